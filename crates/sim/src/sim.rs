//! What everybody in a run shares: the server, the faults, the trace, and whoever looks on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::WallClock;
use crate::faults::{CallFate, Fate, Faults, LineFate};
use crate::object::text;
use crate::server::{Answer, CRDS, Change, ChangeKind, Server};
use crate::trace::Trace;
use crate::webhook;
use crate::world::World;

/// The lease that managers compete for.
pub const LEASE: &str = "dapple";
/// Its resource, as the server names it.
pub const LEASES: &str = "leases.coordination.k8s.io";
/// And where they are.
const LEASES_PATH: &str = "/leases";
const EVENTS_PATH: &str = "/events";

/// More requests of a minute than this that change nothing, reads among them, are a loop.
const MOST_IN_VAIN: u32 = 600;

/// Within so long a manager acts on what it was told, where nothing goes wrong.
const REACTION: Duration = Duration::from_secs(5);

/// Who does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A manager, by its number; a manager that is started again is another one.
    Manager(usize),
    /// Kubelets, the scheduler, and the rest of the control plane.
    World,
    /// People.
    User,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager(number) => write!(f, "manager-{number}"),
            Self::World => f.write_str("world"),
            Self::User => f.write_str("user"),
        }
    }
}

/// Something that was written, as properties see it.
pub struct Write<'c> {
    /// Who wrote it.
    pub actor: Actor,
    /// When.
    pub at: Duration,
    /// Since when the request had been under way.
    pub under_way: Duration,
    /// Whoever wrote it may not have known what became true in this time before it.
    pub memory: Duration,
    /// What.
    pub change: &'c Change,
}

impl Write<'_> {
    /// Whether a manager wrote it.
    pub fn is_ours(&self) -> bool {
        matches!(self.actor, Actor::Manager(_))
    }

    /// Whether nothing has gone wrong of late: whoever wrote it knows all that it has done itself.
    pub fn is_calm(&self) -> bool {
        self.memory <= REACTION
    }

    /// Whether whoever wrote this knows for certain what has been true since then.
    pub fn knows(&self, since: Duration) -> bool {
        since.saturating_add(self.memory) < self.at
    }

    /// Whether nothing but the status was written.
    pub fn is_of_status(&self) -> bool {
        let rest = |object: &Value| {
            let mut rest = object.clone();
            rest["status"] = Value::Null;
            for known_to_the_server in ["resourceVersion", "managedFields"] {
                rest["metadata"][known_to_the_server] = Value::Null;
            }
            rest
        };
        let before = self.change.previous.as_ref().filter(|_| self.change.kind == ChangeKind::Modified);
        before.is_some_and(|before| rest(before) == rest(&self.change.object))
    }

    /// A violation, if a manager wrote what is neither allowed to its family, nor its own lease, nor an event.
    pub fn allow(&self, is_allowed: bool) -> Result<(), String> {
        let name = text(&self.change.object["metadata"]["name"]);
        let is_its_own = match self.change.resource {
            LEASES => name == LEASE,
            "events" | "events.events.k8s.io" => true,
            _ => false,
        };
        if !self.is_ours() || is_allowed || is_its_own {
            return Ok(());
        }
        Err(format!("{} has changed {} {name}", self.actor, self.change.resource))
    }
}

/// What must hold, at every step and at the end.
pub trait Properties: Send {
    /// Takes in a request of a manager, whatever comes of it. An error is a violation.
    fn hear(&mut self, _request: &Request<Vec<u8>>) -> Result<(), String> {
        Ok(())
    }

    /// Takes in a write. An error is a violation.
    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String>;

    /// Whether everything that what is forbidden does not concern has gone on. An error is a violation.
    fn has_gone_on(&self, _server: &Server) -> Result<(), String> {
        Ok(())
    }

    /// Whether everything is as it was asked for. An error tells what is not.
    fn is_settled(&self, server: &Server) -> Result<(), String>;
}

/// A property that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Duration,
    /// What.
    pub what: String,
}

impl Violation {
    /// The same for the same property, whichever nodes and numbers it is about.
    pub fn kind(&self) -> String {
        self.what.split(':').next().unwrap_or_default().chars().filter(|letter| letter.is_alphabetic()).collect()
    }
}

/// The shared part of a run.
pub struct Sim {
    /// The API server.
    pub server: Server,
    /// When the run began.
    pub begun: Instant,
    /// A wall clock that is right.
    pub clock: WallClock,
    /// Rings when the world has something to do, or when a property is violated.
    pub bell: Notify,
    state: Mutex<State>,
}

struct State {
    faults: Faults,
    trace: Trace,
    world: World,
    properties: Box<dyn Properties>,
    violation: Option<Violation>,
    /// The version up to which changes were looked at.
    seen: u64,
    /// The newest versions, and since when they were.
    versions: Vec<(Duration, u64)>,
    /// When a manager last tried to change something that is not its lease, nor an Event.
    last_write: Duration,
    /// Since when and until when somebody may not know all that is true.
    rough: (Duration, Duration),
    requests: u64,
    /// By resource: when one was last written.
    written: BTreeMap<&'static str, Duration>,
    /// Requests of each manager that changed nothing, in the minute they are of.
    in_vain: BTreeMap<Actor, (u64, u32)>,
}

impl State {
    /// Counts a request that changed nothing. A violation, if a manager makes too many of them.
    fn count_vain(&mut self, actor: Actor, at: Duration) {
        let minute = at.as_secs() / 60;
        let (of, count) = self.in_vain.entry(actor).or_default();
        *count = if *of == minute { *count + 1 } else { 1 };
        *of = minute;
        if *count > MOST_IN_VAIN {
            let what = format!("{actor} asks in vain: more than {MOST_IN_VAIN} requests of a minute changed nothing");
            self.violate(at, what);
        }
    }

    /// Somebody may not know what becomes true from now on, for so long.
    fn roughen(&mut self, at: Duration, lasts: Duration) {
        let (since, until) = self.rough;
        self.rough = (if at > until { at } else { since }, until.max(at + lasts));
    }

    /// How far back what somebody believes may lie: a little, and all of the time in which faults follow each other.
    fn memory(&self, at: Duration) -> Duration {
        let (since, until) = self.rough;
        if at > until { REACTION } else { at - since + REACTION }
    }

    /// The first violation is what a run is about.
    fn violate(&mut self, at: Duration, what: String) {
        if self.violation.is_none() {
            self.trace.add(at, format_args!("VIOLATION {what}"));
            self.violation = Some(Violation { at, what });
        }
    }
}

impl Sim {
    /// A run that begins now.
    pub fn new(seed: u64, faults: Faults, trace: Trace, world: World, properties: Box<dyn Properties>) -> Arc<Self> {
        let begun = Instant::now();
        let clock = WallClock::new(begun);
        let of_server = clock.clone();
        let server = Server::new(move || dapple_control::env::Clock::now(&of_server), seed);
        let state = State {
            faults,
            trace,
            world,
            properties,
            violation: None,
            seen: server.version(),
            versions: Vec::new(),
            last_write: Duration::ZERO,
            rough: (Duration::ZERO, Duration::ZERO),
            requests: 0,
            written: BTreeMap::new(),
            in_vain: BTreeMap::new(),
        };
        Arc::new(Self { server, begun, clock, bell: Notify::new(), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the run began.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Has a request answered, and looks at what it changed. `sent` is when it was sent.
    pub fn answer(&self, actor: Actor, sent: Duration, request: &Request<Vec<u8>>) -> Answer {
        let admitted = webhook::admit(self, request);
        let request = admitted.as_ref().unwrap_or(request);
        let answer = self.server.answer(request);
        let mut state = self.lock();
        state.requests += 1;
        let code = match &answer {
            Answer::Whole(response) => response.status().as_u16(),
            Answer::Watch(_) => 200,
        };
        let at = self.now();
        state.trace.add(at, format_args!("{actor} {} {} -> {code}", request.method(), request.uri()));
        state.trace.mix(request.body());
        if let Answer::Whole(response) = &answer {
            state.trace.mix(response.body());
        }
        if matches!(actor, Actor::Manager(_)) {
            if self.server.version() == state.seen {
                state.count_vain(actor, at);
            }
            // One that changes nothing counts as well: whoever tries for ever is not done. What people have to mend is said again
            // every few minutes, for ever.
            let is_kept_up = |path: &str| path.contains(LEASES_PATH) || path.contains(EVENTS_PATH);
            if *request.method() != Method::GET && !is_kept_up(request.uri().path()) {
                state.last_write = at;
            }
            if let Err(what) = state.properties.hear(request) {
                state.violate(at, what);
            }
        }
        self.look(&mut state, actor, at, sent);
        answer
    }

    /// What happens to the next call of the webhook; none if there is none.
    pub fn call_fate(&self) -> Option<CallFate> {
        let mut state = self.lock();
        if !state.world.habits().has_webhook {
            return None;
        }
        let fate = state.faults.call();
        if fate != CallFate::Fine {
            state.trace.add(self.now(), format_args!("the call of the webhook: {fate:?}"));
        }
        Some(fate)
    }

    /// Whether the webhook makes pods by the editions of groups now.
    pub fn makes_pods(&self) -> bool {
        self.lock().world.habits().makes_pods_from.is_some_and(|from| from <= self.now())
    }

    /// The newest version at some time.
    pub fn version_at(&self, at: Duration) -> u64 {
        let state = self.lock();
        let place = state.versions.partition_point(|(since, _)| *since <= at);
        place.checked_sub(1).map_or(0, |last| state.versions[last].1)
    }

    /// Like [`Sim::answer`], for those who are near the server: with a JSON body, and its answer read.
    pub fn ask(&self, actor: Actor, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request =
            Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, content).body(body);
        let Ok(request) = request else { return (400, Value::Null) };
        match self.answer(actor, self.now(), &request) {
            Answer::Whole(response) => {
                (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or(Value::Null))
            }
            Answer::Watch(_) => (200, Value::Null),
        }
    }

    /// Collects garbage once; true if there was any.
    pub fn collect_garbage(&self) -> bool {
        let is_changed = self.server.collect_garbage();
        let at = self.now();
        self.look(&mut self.lock(), Actor::World, at, at);
        is_changed
    }

    /// Shows what has changed to the world and to the properties.
    fn look(&self, state: &mut State, actor: Actor, at: Duration, sent: Duration) {
        let changes = self.server.changes_since(state.seen);
        state.versions.extend(changes.last().map(|last| (at, last.version)));
        for change in changes {
            state.seen = change.version;
            state.written.insert(change.resource, at);
            let memory = state.memory(at);
            let write = Write { actor, at, under_way: at.saturating_sub(sent), memory, change: &change };
            if let Err(what) = state.properties.see(&write, &self.server) {
                state.violate(at, what);
            }
            if state.world.observe(&change, self.begun + at) {
                self.bell.notify_one();
            }
        }
        if state.violation.is_some() {
            self.bell.notify_one();
        }
    }

    /// Has a CRD deleted, with all of its objects, or installed again. What is so already stays.
    pub fn set_served(&self, resource: &str, is_served: bool) {
        self.server.set_served(resource, is_served);
        let at = self.now();
        self.look(&mut self.lock(), Actor::World, at, at);
    }

    /// Whether a resource is served, and when that, or one of its objects, changed last.
    pub fn server_knows(&self, resource: &str) -> (bool, Duration) {
        let state = self.lock();
        let changed = [resource, CRDS].map(|of| state.written.get(of).copied().unwrap_or_default());
        (self.server.is_served(resource), changed.into_iter().max().unwrap_or_default())
    }

    /// How far back what somebody believes may lie.
    pub fn memory(&self) -> Duration {
        self.lock().memory(self.now())
    }

    /// A property does not hold.
    pub fn violate(&self, what: String) {
        self.lock().violate(self.now(), what);
        self.bell.notify_one();
    }

    /// What happens to the next request of a manager.
    pub fn fate(&self, actor: Actor, request: &Request<Vec<u8>>) -> (Fate, [Duration; 2]) {
        let mut state = self.lock();
        let whiles = [state.faults.short_while(), state.faults.short_while()];
        let fate = state.faults.request(request.method());
        if fate != Fate::Fine {
            let at = self.now();
            state.roughen(at, fate.lasts());
            state.trace.add(at, format_args!("{actor} {} {}: {fate:?}", request.method(), request.uri()));
        }
        (fate, whiles)
    }

    /// What happens to the next line of a watch.
    pub fn line_fate(&self, actor: Actor, resource: &str, line: &[u8]) -> (LineFate, Duration) {
        let mut state = self.lock();
        state.trace.mix(line);
        let short = state.faults.short_while();
        let fate = state.faults.line();
        if fate != LineFate::Fine {
            let at = self.now();
            state.roughen(at, fate.lasts());
            state.trace.add(at, format_args!("{actor} watch of {resource}: {fate:?}"));
        }
        (fate, short)
    }

    /// Counts something that happens to a manager, of which it may have to recover for so long.
    pub fn count(&self, name: &'static str, lasts: Duration) {
        let at = self.now();
        let mut state = self.lock();
        state.faults.count(name);
        state.roughen(at, lasts);
    }

    /// Writes something into the trace.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        let at = self.now();
        self.lock().trace.add(at, what);
    }

    /// Lets the world do something.
    pub fn with_world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.lock().world)
    }

    /// Nothing goes wrong any more.
    pub fn calm(&self) {
        self.lock().faults.calm();
    }

    /// The first property that did not hold.
    pub fn violation(&self) -> Option<Violation> {
        self.lock().violation.clone()
    }

    /// Whether everything that what is forbidden does not concern has gone on.
    pub fn check(&self) {
        let mut state = self.lock();
        if let Err(what) = state.properties.has_gone_on(&self.server) {
            state.violate(self.now(), what);
        }
    }

    /// Whether everything is as it was asked for.
    pub fn is_settled(&self) -> Result<(), String> {
        self.lock().properties.is_settled(&self.server)
    }

    /// When a manager last tried to change something that is not its lease, nor an Event.
    pub fn last_write(&self) -> Duration {
        self.lock().last_write
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Faults so far, those that were left out among them, and how many there were of each kind.
    pub fn faults(&self) -> (u64, BTreeMap<&'static str, u64>) {
        let state = self.lock();
        (state.faults.drawn(), state.faults.counts().clone())
    }

    /// Takes the trace out.
    pub fn take_trace(&self) -> Trace {
        std::mem::take(&mut self.lock().trace)
    }
}

//! One run: the real managers against the server in memory, under virtual time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Once};
use std::time::Duration;

use dapple_control::env::Env;
use dapple_control::families::GROUP;
use dapple_control::family::{Family, MarkerLimits, PoolLimits, RepairLimits};
use dapple_control::gates::Gates;
use dapple_control::lease::LeaseDurations;
use dapple_control::manager::{self, Options, Shared};
use dapple_control::metrics::Metrics;
use dapple_control::serve::Readiness;
use dapple_control::writes::rate::Limits;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clock::WallClock;
use crate::faults::Faults;
use crate::health::{self, not_ready, patch_status};
use crate::marker::played;
use crate::network::Link;
use crate::object::{path_of, text};
use crate::reader;
use crate::scenario::Scenario;
use crate::script::{Edit, Event, Script};
use crate::sim::{Actor, LEASE, Sim, Violation};
use crate::trace::Trace;
use crate::world::{self, World};

/// After so long without faults everything must be as it was asked for.
const SETTLED_WITHIN: Duration = Duration::from_secs(3600);
/// Nothing is written for so long once it is.
const STILL_FOR: Duration = Duration::from_secs(300);
/// Objects of a page where the weather is of the second kind: few, so that lists have many.
const LONGEST_PAGE: usize = 3;
/// A manager that died at a request is started again after so long.
const BACK_AFTER: Duration = Duration::from_secs(2);
/// Longer than in the world out there, so that less of a run is spent on renewing them.
const DURATIONS: LeaseDurations = LeaseDurations {
    duration: Duration::from_secs(45),
    renew_within: Duration::from_secs(30),
    retry: Duration::from_secs(9),
};

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The first property that did not hold.
    pub violation: Option<Violation>,
    /// Requests that the server answered.
    pub requests: u64,
    /// Faults that were drawn, those that were left out among them.
    pub drawn: u64,
    /// How many faults there were of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How long it took, in virtual time.
    pub lasted: Duration,
    /// What happened.
    pub trace: Trace,
}

thread_local! {
    /// The last panic of this thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics remembered: a task that panics ends without a word, and nobody waits for it.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANIC.set(Some(panic.to_string()));
            told(panic);
        }));
    });
}

/// Runs a script with the faults of its seed, but for those that are muted.
pub fn run(scenario: &Scenario, script: &Script, muted: &BTreeSet<u64>, trace: Trace) -> std::io::Result<Outcome> {
    remember_panics();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let outcome = runtime.block_on(async {
        let faults = Faults::new(script.seed ^ 0xfa17, script.weather, muted.clone());
        let world = World::new(script.seed ^ 0x3021d, script.habits);
        let sim = Sim::new(script.seed, faults, trace, world, (scenario.properties)());
        if script.weather.second > 0.0 {
            sim.server.limit_pages(LONGEST_PAGE);
        }
        let (family, seed, repair) = (scenario.family, script.seed, script.habits.repair);
        let mut run = Run { sim: sim.clone(), family, seed, repair, started: 0, slots: Vec::new() };
        let played = run.play(script).await;
        let panicked =
            PANIC.take().map(|panic| Violation { at: sim.now(), what: format!("a manager panicked: {panic}") });
        let violation = panicked.or(played.err()).or_else(|| sim.violation());
        run.slots.iter().for_each(Process::kill);
        let (drawn, faults) = sim.faults();
        Outcome { violation, requests: sim.requests(), drawn, faults, lasted: sim.now(), trace: sim.take_trace() }
    });
    Ok(outcome)
}

struct Run {
    sim: Arc<Sim>,
    family: &'static Family,
    seed: u64,
    repair: RepairLimits,
    started: usize,
    slots: Vec<Process>,
}

/// A manager that runs, or was killed.
struct Process {
    link: Link,
    stop: CancellationToken,
    clock: WallClock,
    back_at: Option<Instant>,
}

impl Process {
    /// Nothing of it reaches the server any more; then its tasks are told to end.
    fn kill(&self) {
        self.link.cut();
        self.stop.cancel();
    }
}

impl Run {
    async fn play(&mut self, script: &Script) -> Result<(), Violation> {
        for edit in &script.setup {
            self.edit(Actor::User, edit);
        }
        for _ in 0..script.managers {
            let process = self.start();
            self.slots.push(process);
        }
        for (at, event) in &script.events {
            self.until(self.sim.begun + *at).await?;
            self.sim.note(format_args!("EVENT {event}"));
            self.happen(event);
        }
        self.until(self.sim.begun + script.calm_at).await?;
        self.sim.note(format_args!("CALM"));
        self.sim.calm();
        self.sim.with_world(World::calm);
        self.restart(Instant::now() + Duration::from_secs(3600));
        // What is going is gone before anybody asks for it anew.
        while self.sim.collect_garbage() {}
        script.finish.iter().for_each(|event| self.happen(event));
        self.settle().await
    }

    /// Waits until everything is as it was asked for, and nothing is written any more.
    async fn settle(&mut self) -> Result<(), Violation> {
        let (calm, limit) = (self.sim.now(), Instant::now() + SETTLED_WITHIN);
        loop {
            let still_at = self.sim.begun + self.sim.last_write().max(calm) + STILL_FOR;
            self.until(still_at.min(limit)).await?;
            let settled = self.sim.is_settled();
            let is_still = self.sim.now() >= self.sim.last_write().max(calm) + STILL_FOR;
            let what = match settled {
                Ok(()) if is_still => return Ok(()),
                Ok(()) if Instant::now() < limit => continue,
                Err(_) if !is_still && Instant::now() < limit => continue,
                Ok(()) => format!("something is still written {SETTLED_WITHIN:?} after the last fault"),
                Err(what) if is_still => format!("nothing is done any more, and yet {what}"),
                Err(what) => format!("{SETTLED_WITHIN:?} after the last fault {what}"),
            };
            self.sim.note(format_args!("VIOLATION {what}"));
            return Err(Violation { at: self.sim.now(), what });
        }
    }

    /// Lets the world go on until then.
    async fn until(&mut self, end: Instant) -> Result<(), Violation> {
        let sim = self.sim.clone();
        loop {
            let rung = sim.bell.notified();
            world::turn(&self.sim);
            self.restart(Instant::now());
            if let Some(violation) = self.sim.violation() {
                return Err(violation);
            }
            let next = self.sim.with_world(|world| world.next());
            let back = self.slots.iter().filter_map(|process| process.back_at).min();
            let due = next.into_iter().chain(back).min().map_or(end, |due| due.min(end));
            if due == end && Instant::now() >= end {
                return Ok(());
            }
            tokio::select! { biased; () = rung => {}, () = sleep_until(due) => {} }
        }
    }

    /// Starts those managers again that are to be back by then.
    fn restart(&mut self, by: Instant) {
        for slot in 0..self.slots.len() {
            let process = &mut self.slots[slot];
            if process.link.is_dead() && process.back_at.is_none() {
                self.sim.note(format_args!("DEAD manager in slot {slot}"));
                process.stop.cancel();
                process.back_at = Some(Instant::now() + BACK_AFTER);
            }
            if self.slots[slot].back_at.is_some_and(|at| at <= by) {
                self.slots[slot] = self.start();
            }
        }
    }

    fn start(&mut self) -> Process {
        let number = self.started;
        self.started += 1;
        let link = Link::new(self.sim.clone(), Actor::Manager(number));
        let stop = CancellationToken::new();
        let clock = WallClock::new(self.sim.begun);
        let env = Env::new(clock.clone(), self.seed.wrapping_add(number as u64));
        let options = Options {
            families: vec![self.family],
            listen: ([127, 0, 0, 1], 0).into(),
            identity: format!("manager-{number}"),
            namespace: "kube-system".into(),
            lease: LEASE.into(),
            durations: DURATIONS,
            limits: Limits::default(),
            workers: 2,
            gates: Gates::default(),
            repair: self.repair,
            pool: PoolLimits::default(),
            marker: MarkerLimits::default(),
        };
        self.sim.note(format_args!("START manager-{number}"));
        let (metrics, readiness) = (Arc::new(Metrics::new()), Readiness::default());
        let (sim, seed, reads) = (self.sim.clone(), self.seed ^ number as u64, self.family == GROUP);
        let beside = async move |shared: Shared| {
            if reads {
                reader::read(sim, shared, seed).await;
            }
        };
        tokio::spawn(manager::work(link.client(), options, env, metrics, readiness, stop.clone(), beside));
        Process { link, stop, clock, back_at: None }
    }

    fn edit(&self, actor: Actor, edit: &Edit) -> (u16, Value) {
        let mut body = edit.body.clone();
        // A kubelet that begins says since when its node is well.
        if let Some(Value::Array(conditions)) = body.as_mut().and_then(|body| body.pointer_mut("/status/conditions")) {
            conditions.iter_mut().for_each(|known| known["lastTransitionTime"] = json!(health::now(&self.sim)));
        }
        self.sim.ask(actor, edit.method.clone(), &edit.path, body.as_ref())
    }

    fn happen(&mut self, event: &Event) {
        if let Some((name, lasts)) = event.fault() {
            self.sim.count(name, lasts);
        }
        match event {
            Event::User(edit) => _ = self.edit(Actor::User, edit),
            Event::Node(edit) => self.change_node(edit),
            Event::NodeReady { node, is_ready } => {
                self.sim.with_world(|world| world.is_well(node));
                health::set_ready(&self.sim, node, if *is_ready { "True" } else { "False" });
            }
            Event::NodeLost { node } => {
                self.sim.with_world(|world| world.is_well(node));
                health::set_ready(&self.sim, node, "Unknown");
            }
            Event::Taint { node, key, effect, is_there } => health::taint(&self.sim, node, (key, effect), *is_there),
            Event::MendNodes => health::mend(&self.sim),
            Event::DeletePods { node } => {
                for pod in self.pods_on(node) {
                    self.sim.ask(Actor::User, Method::DELETE, &path_of(&pod), None);
                }
            }
            Event::Unready { node, lasts } => {
                for pod in self.pods_on(node) {
                    self.sim.with_world(|world| world.unready(&pod, Instant::now() + *lasts));
                    patch_status(&self.sim, &pod, &not_ready(&pod));
                }
            }
            Event::Fail { node } => {
                for pod in self.pods_on(node) {
                    let mut status = not_ready(&pod);
                    status["phase"] = json!("Failed");
                    patch_status(&self.sim, &pod, &status);
                }
            }
            Event::Kill { slot, back_after } => {
                if let Some(process) = self.slots.get_mut(*slot) {
                    process.kill();
                    process.back_at = Some(Instant::now() + *back_after);
                }
            }
            Event::Stop { slot } => {
                if self.slots.get(*slot).is_some_and(|process| process.back_at.is_none()) {
                    let next = self.start();
                    std::mem::replace(&mut self.slots[*slot], next).stop.cancel();
                }
            }
            Event::Isolate { slot, lasts } => {
                if let Some(process) = self.slots.get(*slot) {
                    process.link.isolate(Instant::now() + *lasts);
                }
            }
            Event::ClockJump { slot, seconds } => {
                if let Some(process) = self.slots.get(*slot) {
                    process.clock.jump(*seconds);
                }
            }
            Event::Compact => self.sim.server.compact(),
            Event::DeleteOldRevisions => self.delete_old_revisions(),
            Event::Forbid { method, resource } => self.sim.server.forbid(method, resource),
            Event::Allow => self.sim.server.allow(),
            Event::Probed { node, state, is_old } => played::probed(&self.sim, node, state, *is_old),
            Event::Renewed { node } => played::renewed(&self.sim, node),
            Event::Replaced { key, value } => played::replaced(&self.sim, key, value),
            Event::Checkpoint => self.sim.check(),
            Event::Crd { name, is_there } => self.sim.set_served(name, *is_there),
        }
    }

    fn change_node(&mut self, edit: &Edit) {
        let (_, node) = self.edit(Actor::World, edit);
        // A kubelet that begins looks at all that is bound to its node.
        if edit.method == Method::POST {
            let pods = self.pods_on(text(&node["metadata"]["name"]));
            self.sim.with_world(|world| world.wake(&pods, Instant::now()));
            self.sim.bell.notify_one();
        }
    }

    fn delete_old_revisions(&self) {
        let all = self.sim.server.list("controllerrevisions.apps");
        let owner = |of: &Value| of["metadata"]["ownerReferences"].clone();
        let number = |of: &Value| of["revision"].as_i64();
        let is_old = |one: &&Arc<Value>| all.iter().any(|of| owner(of) == owner(one) && number(of) > number(one));
        for revision in all.iter().filter(is_old) {
            let (namespace, name) = (&revision["metadata"]["namespace"], &revision["metadata"]["name"]);
            let path = format!("/apis/apps/v1/namespaces/{}/controllerrevisions/{}", text(namespace), text(name));
            self.sim.ask(Actor::User, Method::DELETE, &path, None);
        }
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Value>> {
        let mut pods = self.sim.server.list("pods");
        pods.retain(|pod| pod["spec"]["nodeName"] == node);
        pods
    }
}

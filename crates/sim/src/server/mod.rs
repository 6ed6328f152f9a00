//! A Kubernetes API server in memory: what our controllers, a kubelet, a scheduler and users with kubectl rely on.
//!
//! It answers a request at once and whole, or with a [`Watch`] that hands out its lines when it is asked. Nothing happens
//! by itself: no clock runs, garbage is collected when told so. The same requests at the same times with the same seed
//! give the same bytes.
//!
//! The conformance test holds it against a real kube-apiserver, message by message.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) mod client;
mod delete;
mod evict;
mod failure;
mod garbage;
mod kinds;
mod output;
mod patch;
mod pods;
mod quantity;
mod read;
mod request;
mod schema;
mod selector;
mod store;
mod tidy;
mod watch;
mod write;

pub use store::{Change, ChangeKind};
pub use watch::{Line, Watch};

use delete::{Deleted, Options};
use failure::{Failure, respond};
use kinds::CATALOGUE;
use patch::Patch;
use request::{Query, Shape, Target};
use store::{Object, State};

/// An API server in memory. Cheap to clone: all clones are the same server.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    /// Wakes watches, in the order in which they came. tokio's `watch` wakes in any order.
    news: Arc<tokio::sync::Notify>,
}

/// What a request is answered with.
pub enum Answer {
    /// A response.
    Whole(Response<Vec<u8>>),
    /// A watch; its response has status 200 and the lines as they come.
    Watch(Watch),
}

/// What is said to those who ask for what is forbidden.
pub const FORBIDDEN: &str = "a policy forbids it";

/// The resource of CRDs.
pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 3] = ["default", "kube-node-lease", "kube-system"];

impl Server {
    /// A server with our CRDs and the namespaces that every cluster has. `now` is the wall clock; UIDs and generated
    /// names follow from `seed`.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, seed: u64) -> Self {
        let mut state = State::new(Box::new(now), seed);
        if let Some(kind) = CATALOGUE.named("namespaces") {
            let target = Target { kind, namespace: "", name: "", subresource: "" };
            for name in NAMESPACES {
                // A new server has room for them.
                let _ = write::create(&mut state, &target, json!({"metadata": {"name": name}}), false);
            }
        }
        Self { state: Arc::new(Mutex::new(state)), news: Arc::default() }
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request<Vec<u8>>) -> Answer {
        self.try_answer(request).unwrap_or_else(|failure| Answer::Whole(failure.response()))
    }

    /// A client without faults.
    pub fn client(&self) -> kube::Client {
        client::client(self.clone())
    }

    /// Forgets what led here: watches and pages from older versions get "410 Gone".
    pub fn compact(&self) {
        self.lock().compact();
    }

    /// Lists that are asked for in pages come in pages no longer than this, so that there are some in a small world.
    pub fn limit_pages(&self, longest: usize) {
        self.lock().longest_page = longest;
    }

    /// Refuses such requests from now on.
    pub fn forbid(&self, method: &Method, resource: &'static str) {
        self.lock().forbidden = Some((method.clone(), resource));
    }

    /// Refuses none because of what was forbidden.
    pub fn allow(&self) {
        self.lock().forbidden = None;
    }

    /// What is forbidden.
    pub fn forbidden(&self) -> Option<(Method, &'static str)> {
        self.lock().forbidden.clone()
    }

    /// Deletes a CRD with all of its objects, or installs it again. What is so already stays.
    pub fn set_served(&self, resource: &str, is_served: bool) {
        self.lock().set_served(resource, is_served);
        self.news.notify_waiters();
    }

    /// Whether a resource is served.
    pub fn is_served(&self, resource: &str) -> bool {
        CATALOGUE.named(resource).is_some_and(|kind| self.lock().is_served(kind))
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.lock().version()
    }

    /// One object. `resource` is such as `pods` or `daemonsets.apps.kruise.io`.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let kind = CATALOGUE.named(resource)?;
        self.lock().get(kind, &kind.key(namespace, name)).map(|object| object.value.clone())
    }

    /// All objects of a resource, in order.
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        let Some(kind) = CATALOGUE.named(resource) else { return Vec::new() };
        self.lock().all(kind.store).values().map(|object| object.value.clone()).collect()
    }

    /// All objects of a resource as they were at a version, in order.
    pub fn list_at(&self, resource: &str, version: u64) -> Vec<Arc<Value>> {
        let Some(kind) = CATALOGUE.named(resource) else { return Vec::new() };
        let state = self.lock();
        if version >= state.version() {
            return state.all(kind.store).values().map(|object| object.value.clone()).collect();
        }
        state.all_at(kind.store, version).values().map(|object| object.value.clone()).collect()
    }

    /// Every change after a version, whether watches can still see it or not.
    pub fn changes_since(&self, version: u64) -> Vec<Change> {
        let state = self.lock();
        let entries = state.log_after(version).iter();
        let change = |entry: &store::Entry| Change {
            version: entry.version,
            resource: CATALOGUE.of_store(entry.store).map_or("", |kind| &kind.qualified),
            kind: entry.kind,
            object: entry.object.value.clone(),
            previous: entry.previous.as_ref().map(|object| object.value.clone()),
        };
        entries.map(change).collect()
    }

    /// One pass of what kube-controller-manager does about owners and terminating namespaces. True if it changed
    /// anything: then another pass may find more.
    pub fn collect_garbage(&self) -> bool {
        let is_changed = garbage::collect(&mut self.lock());
        if is_changed {
            self.news.notify_waiters();
        }
        is_changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_answer(&self, request: &Request<Vec<u8>>) -> Result<Answer, Failure> {
        let target = Target::read(request.uri().path())?;
        let query = Query::read(request.uri().query().unwrap_or_default());
        let shape = Shape::of(request);
        let mut state = self.lock();
        if !state.is_served(target.kind) {
            return Err(Failure::unserved(false));
        }
        if query.initial_events {
            return Err(Failure::bad_request("sendInitialEvents is not simulated"));
        }
        if request.method() == Method::GET && query.watch {
            let shared = (self.state.clone(), self.news.clone());
            return Watch::open(shared, &state, &target, &query, shape).map(Answer::Watch);
        }
        if state
            .forbidden
            .as_ref()
            .is_some_and(|(method, resource)| method == request.method() && target.is_called(resource))
        {
            return Err(Failure::forbidden(target.kind, target.name, FORBIDDEN, None));
        }
        let before = state.version();
        let answer = act(&mut state, request, &target, &query, shape);
        if state.version() != before {
            self.news.notify_waiters();
        }
        answer.map(Answer::Whole)
    }
}

/// Does what a request asks for.
fn act(
    state: &mut State,
    request: &Request<Vec<u8>>,
    target: &Target<'_>,
    query: &Query,
    shape: Shape,
) -> Result<Response<Vec<u8>>, Failure> {
    let answer = |code, object: &Object| object_response(code, target, shape, object);
    let is_one = !target.name.is_empty();
    let dry = query.dry_run;
    match *request.method() {
        Method::GET if is_one && ["", "status", "resize"].contains(&target.subresource) => {
            read::get(state, target).map(|object| answer(200, object))
        }
        Method::GET if !is_one => read::list(state, target, query, shape).map(|text| json_response(200, text)),
        Method::POST if target.subresource == "binding" => {
            let done = evict::bind(state, target, &request::body(request)?, dry)?;
            Ok(json_response(201, done.to_string().into_bytes()))
        }
        Method::POST if target.subresource == "eviction" => {
            let done = evict::evict(state, target, &request::body(request)?, dry)?;
            Ok(json_response(201, done.to_string().into_bytes()))
        }
        Method::POST if !is_one => {
            write::create(state, target, request::body(request)?, dry).map(|object| answer(201, &object))
        }
        Method::PUT if is_one => {
            let body = request::body(request)?;
            let update = write::Update { target: *target, is_whole: true, dry };
            let (object, is_new) = update.make(state, |_| Ok(body))?;
            Ok(answer(if is_new { 201 } else { 200 }, &object))
        }
        Method::PATCH if is_one => {
            let patch = Patch::read(target.kind, request::content_type(request), request.body())?;
            let update = write::Update { target: *target, is_whole: false, dry };
            let (object, _) = update.make(state, |old| patch.apply(target.kind, old))?;
            Ok(answer(200, &object))
        }
        Method::DELETE if target.subresource.is_empty() => {
            let options = if request.body().is_empty() { query.deletion.clone() } else { request::body(request)? };
            delete_response(state, target, query, shape, &Options::read(&options))
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

fn delete_response(
    state: &mut State,
    target: &Target<'_>,
    query: &Query,
    shape: Shape,
    options: &Options,
) -> Result<Response<Vec<u8>>, Failure> {
    if target.name.is_empty() {
        let items = delete::delete_all(state, target, query, options)?;
        let metadata = json!({"resourceVersion": state.version().to_string()});
        return Ok(json_response(200, output::list_text(target.kind, shape, &metadata, &items)));
    }
    match delete::delete(state, target.kind, &target.key(), options)? {
        Deleted::Object(object) => Ok(object_response(200, target, shape, &object)),
        Deleted::Status(status) => Ok(json_response(200, status.to_string().into_bytes())),
    }
}

fn object_response(code: u16, target: &Target<'_>, shape: Shape, object: &Object) -> Response<Vec<u8>> {
    let mut text = Vec::new();
    output::write_object(&mut text, target.kind, shape, object, false);
    json_response(code, text)
}

fn json_response(code: u16, text: Vec<u8>) -> Response<Vec<u8>> {
    respond(code, "application/json", text)
}

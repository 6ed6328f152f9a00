//! Metrics, named as controller-runtime names them where it has a name.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// One label.
type One = [(&'static str, String); 1];
/// Two labels.
type Two = [(&'static str, String); 2];
/// Something that brings gauges up to date, or says that what it measures is gone.
type Refresh = Box<dyn Fn(&Metrics) -> Option<()> + Send + Sync>;
/// A gauge of seconds or sizes.
type Float = Gauge<f64, std::sync::atomic::AtomicU64>;

const SECONDS: [f64; 12] = [0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Everything dapple counts and measures.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// By type: metrics that a family has of its own.
    of_families: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    before_scrape: Mutex<Vec<Refresh>>,
    reconciles: Family<Two, Counter>,
    reconcile_errors: Family<One, Counter>,
    reconcile_seconds: Family<One, Histogram>,
    active_workers: Family<One, Gauge>,
    max_workers: Family<One, Gauge>,
    queue_depth: Family<One, Gauge>,
    queue_adds: Family<One, Counter>,
    queue_retries: Family<One, Counter>,
    queue_wait_seconds: Family<One, Histogram>,
    requests: Family<Two, Counter>,
    leading: Family<One, Gauge>,
    cache_objects: Family<One, Gauge>,
    watch_age: Family<One, Float>,
    watch_errors: Family<One, Counter>,
    malformed: Family<One, Counter>,
    failing: Family<Two, Gauge>,
    family_serving: Family<One, Gauge>,
    admissions: Family<Two, Counter>,
    admission_seconds: Family<One, Histogram>,
    connections_closed: Family<Two, Counter>,
}

/// Metrics that one family has of its own.
pub trait FamilyMetrics: Send + Sync + 'static {
    /// Makes them known, at zero.
    fn register(registry: &mut Registry) -> Self;
}

/// How a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Done.
    Success,
    /// To be looked at again soon.
    Requeue,
    /// Failed.
    Error,
}

impl ReconcileResult {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue_after",
            Self::Error => "error",
        }
    }
}

fn seconds_histogram() -> Histogram {
    Histogram::new(SECONDS)
}

fn one(key: &'static str, value: &str) -> One {
    [(key, value.to_owned())]
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            of_families: Mutex::default(),
            before_scrape: Mutex::default(),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_seconds: Family::new_with_constructor(seconds_histogram),
            active_workers: Family::default(),
            max_workers: Family::default(),
            queue_depth: Family::default(),
            queue_adds: Family::default(),
            queue_retries: Family::default(),
            queue_wait_seconds: Family::new_with_constructor(seconds_histogram),
            requests: Family::default(),
            leading: Family::default(),
            cache_objects: Family::default(),
            watch_age: Family::default(),
            watch_errors: Family::default(),
            malformed: Family::default(),
            failing: Family::default(),
            family_serving: Family::default(),
            admissions: Family::default(),
            admission_seconds: Family::new_with_constructor(seconds_histogram),
            connections_closed: Family::default(),
        };
        {
            let mut registry = metrics.registry.lock().unwrap_or_else(PoisonError::into_inner);
            metrics.register_standard(&mut registry);
            metrics.register_ours(&mut registry);
        }
        metrics
    }

    fn register_standard(&self, registry: &mut Registry) {
        let name = |suffix: &str| format!("controller_runtime_{suffix}");
        registry.register(name("reconcile"), "Reconciliations per controller and result", self.reconciles.clone());
        registry.register(name("reconcile_errors"), "Failed reconciliations", self.reconcile_errors.clone());
        let seconds = self.reconcile_seconds.clone();
        registry.register_with_unit(name("reconcile_time"), "Length of a reconciliation", Unit::Seconds, seconds);
        registry.register(name("active_workers"), "Workers that work", self.active_workers.clone());
        registry.register(name("max_concurrent_reconciles"), "Workers in all", self.max_workers.clone());
        registry.register("workqueue_depth", "Keys ready to be worked on", self.queue_depth.clone());
        registry.register("workqueue_adds", "Keys added", self.queue_adds.clone());
        registry.register("workqueue_retries", "Keys that failed and come again", self.queue_retries.clone());
        let wait = self.queue_wait_seconds.clone();
        registry.register_with_unit("workqueue_queue_duration", "Time a key waits", Unit::Seconds, wait);
        registry.register("rest_client_requests", "Requests to the API server", self.requests.clone());
        let help = "1 while this process leads, 0 while it stands by";
        registry.register("leader_election_master_status", help, self.leading.clone());
    }

    fn register_ours(&self, registry: &mut Registry) {
        registry.register("dapple_cache_objects", "Objects in the cache", self.cache_objects.clone());
        let age = self.watch_age.clone();
        let help = "Time since a watch last told anything; that of a quiet kind grows";
        registry.register_with_unit("dapple_watch_age", help, Unit::Seconds, age);
        registry.register("dapple_watch_errors", "Watches that broke", self.watch_errors.clone());
        let help = "Times an object could not be read and was passed over";
        registry.register("dapple_malformed_objects", help, self.malformed.clone());
        let help = "Objects that fail just now, by controller and reason";
        registry.register("dapple_failing_objects", help, self.failing.clone());
        let help = "1 while a family is served, 0 while its API is missing or another product's";
        registry.register("dapple_family_serving", help, self.family_serving.clone());
        let name = |suffix: &str| format!("dapple_admission_{suffix}");
        registry.register(name("requests"), "Admission requests per webhook and answer", self.admissions.clone());
        let seconds = self.admission_seconds.clone();
        registry.register_with_unit(name("duration"), "Time to answer an admission request", Unit::Seconds, seconds);
        let help = "Connections that were closed for another one (crowded), or took too long (late), or got no place (refused)";
        registry.register("dapple_connections_closed", help, self.connections_closed.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("dapple_build", "The build that runs", build);
    }

    /// Metrics that a family has of its own. They are made known once, however often the family begins anew.
    pub fn of_family<M: FamilyMetrics>(&self) -> Arc<M> {
        let mut known = self.of_families.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&TypeId::of::<M>()).and_then(|known| known.clone().downcast().ok()) {
            return known;
        }
        let made = Arc::new(M::register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner)));
        known.insert(TypeId::of::<M>(), made.clone());
        made
    }

    /// Calls `refresh` before each scrape, for gauges that are read off something else, until it returns `None`.
    pub fn before_scrape(&self, refresh: impl Fn(&Metrics) -> Option<()> + Send + Sync + 'static) {
        self.before_scrape.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// All metrics in the text format.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        self.before_scrape.lock().unwrap_or_else(PoisonError::into_inner).retain(|refresh| refresh(self).is_some());
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }

    /// A request was answered, or not.
    pub fn request(&self, method: &Method, status: Option<StatusCode>) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.as_u16().to_string());
        self.requests.get_or_create(&[("code", code), ("method", method.to_string())]).inc();
    }

    /// A key was added to a queue.
    pub fn queue_added(&self, controller: &str) {
        self.queue_adds.get_or_create(&one("name", controller)).inc();
    }

    /// The number of keys ready in a queue.
    pub fn queue_depth(&self, controller: &str, depth: usize) {
        self.queue_depth.get_or_create(&one("name", controller)).set(depth as i64);
    }

    /// A controller has this many workers.
    pub fn workers(&self, controller: &str, workers: usize) {
        self.max_workers.get_or_create(&one("controller", controller)).set(workers as i64);
    }

    /// A worker took a key that waited this long.
    pub fn reconcile_started(&self, controller: &str, waited: Duration) {
        self.queue_wait_seconds.get_or_create(&one("name", controller)).observe(waited.as_secs_f64());
        self.active_workers.get_or_create(&one("controller", controller)).inc();
    }

    /// A worker is done with a key.
    pub fn reconcile_ended(&self, controller: &str, result: ReconcileResult, took: Duration) {
        let label = one("controller", controller);
        self.active_workers.get_or_create(&label).dec();
        self.reconcile_seconds.get_or_create(&label).observe(took.as_secs_f64());
        let labels = [("controller", controller.to_owned()), ("result", result.label().to_owned())];
        self.reconciles.get_or_create(&labels).inc();
        if result == ReconcileResult::Error {
            self.reconcile_errors.get_or_create(&label).inc();
            self.queue_retries.get_or_create(&one("name", controller)).inc();
        }
    }

    /// Whether this process holds the lease.
    pub fn leading(&self, lease: &str, leading: bool) {
        self.leading.get_or_create(&one("name", lease)).set(i64::from(leading));
    }

    /// The size of a cache, and the time since its watch last told anything.
    pub fn cache(&self, kind: &str, objects: usize, watch_age: Duration) {
        self.cache_objects.get_or_create(&one("kind", kind)).set(objects as i64);
        self.watch_age.get_or_create(&one("kind", kind)).set(watch_age.as_secs_f64());
    }

    /// A watch broke.
    pub fn watch_error(&self, kind: &str) {
        self.watch_errors.get_or_create(&one("kind", kind)).inc();
    }

    /// An object could not be read.
    pub fn malformed(&self, kind: &str) {
        self.malformed.get_or_create(&one("kind", kind)).inc();
    }

    /// How many objects of a controller fail just now, by reason.
    pub fn failing(&self, controller: &str, by_reason: &BTreeMap<String, usize>) {
        for (reason, count) in by_reason {
            let labels = [("controller", controller.to_owned()), ("reason", reason.clone())];
            self.failing.get_or_create(&labels).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// A connection to a port was closed by us, or never taken.
    pub fn connection_closed(&self, port: &str, why: &str) {
        self.connections_closed.get_or_create(&[("port", port.to_owned()), ("why", why.to_owned())]).inc();
    }

    /// An admission request was answered.
    pub fn admission(&self, webhook: &str, is_allowed: bool, took: Duration) {
        let answer = if is_allowed { "allowed" } else { "refused" };
        self.admissions.get_or_create(&[("webhook", webhook.to_owned()), ("answer", answer.to_owned())]).inc();
        self.admission_seconds.get_or_create(&one("webhook", webhook)).observe(took.as_secs_f64());
    }

    /// Whether a family is served.
    pub fn family_serving(&self, family: &str, serving: bool) {
        self.family_serving.get_or_create(&one("family", family)).set(i64::from(serving));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_dashboards_know() {
        let metrics = Metrics::new();
        metrics.request(&Method::GET, Some(StatusCode::OK));
        metrics.queue_added("group");
        metrics.reconcile_started("group", Duration::from_millis(3));
        metrics.reconcile_ended("group", ReconcileResult::Error, Duration::from_millis(3));
        metrics.before_scrape(|metrics| {
            metrics.cache("Node", 3, Duration::from_secs(2));
            Some(())
        });
        metrics.leading("dapple-manager", true);
        let text = metrics.text().expect("it encodes");
        for line in [
            r#"rest_client_requests_total{code="200",method="GET"} 1"#,
            r#"workqueue_adds_total{name="group"} 1"#,
            r#"controller_runtime_reconcile_total{controller="group",result="error"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="group"} 1"#,
            r#"workqueue_queue_duration_seconds_count{name="group"} 1"#,
            r#"controller_runtime_active_workers{controller="group"} 0"#,
            r#"leader_election_master_status{name="dapple-manager"} 1"#,
            r#"dapple_cache_objects{kind="Node"} 3"#,
            r#"dapple_watch_age_seconds{kind="Node"} 2.0"#,
            concat!(r#"dapple_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

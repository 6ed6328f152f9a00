//! Confirms the policies that applications ask for: the `binding-` labels.
//!
//! A policy is confirmed once it is there and applies to the application's template, and unconfirmed once it is gone or not
//! asked for: see [`dapple_plan::group::binding`]. Whether labels or policies come first makes no difference.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::{DAEMON_SET, NATIVE_DAEMON_SET};
use dapple_plan::group::binding::{Check, Confirmation, Pair, Situation, check_override, check_propagation};
use kube::Client;
use kube::api::{Api, Patch};
use serde_json::{Map, Value, json};
use tracing::info;

use super::BACKOFF;
use super::application::{Applicant, ApplicationKey, Applications, Asking, is_news, is_served};
use super::policy::{Policy, PolicySpec};
use crate::caches::Subscription;
use crate::caches::store::{Change, Store};
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::observed::Observed;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Set};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// How soon to look again at an application of which our view is behind.
const ECHO: Duration = Duration::from_secs(1);

/// The controller. Its keys are applications.
pub(super) struct Bindings {
    client: Client,
    recorder: Arc<Recorder>,
    own_namespace: Arc<str>,
    applications: Arc<Applications>,
    /// DaemonSets of ours, should they be installed. They are applications to this controller alone: their own makes their pods.
    sets: Subscription<Set>,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    overrides: Subscription<Policy<OverridePolicySpec>>,
}

impl Bindings {
    /// Subscribes to workloads, pods and policies. Returns the controller and the queue of applications to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<ApplicationKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let sets = context.caches.open().indexed_by([Set::BY_POLICY]);
        let (metrics, applications) = (context.metrics.clone(), Arc::default());
        let adder = Adder { queue: queue.clone(), metrics, applications, sets: sets.store() };
        let (told, of_sets) = (adder.clone(), adder.clone());
        let applications =
            Arc::new(Applications::subscribe(&context.caches, &context.stop, move |at| told.add_with_below(at)));
        // Set once: nobody else has it.
        let _ = adder.applications.set(Arc::downgrade(&applications));
        let controller = Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            own_namespace: context.namespace.clone(),
            applications,
            sets: sets.subscribe(&context.stop, move |change| {
                if let Change::Object { key, .. } = change
                    && is_news(change, Asking::of_set)
                {
                    of_sets.add(ApplicationKey { kind: DAEMON_SET.at, key: key.clone() });
                }
            }),
            propagations: follow(context, Pair::Propagation, adder.clone()),
            overrides: follow(context, Pair::Override, adder),
        };
        (Arc::new(controller), queue)
    }

    /// What asks, as it is known.
    fn get(&self, at: &ApplicationKey) -> Option<Asking> {
        if at.kind == DAEMON_SET.at {
            return self.sets.get(&at.key).map(|set| Asking::of_set(&set));
        }
        self.applications.get(at)
    }

    /// Whether the view includes our own last write of it.
    fn caught_up(&self, at: &ApplicationKey) -> bool {
        if at.kind == DAEMON_SET.at { self.sets.caught_up(&at.key) } else { self.applications.caught_up(at) }
    }

    /// The field that has its pod template; a pod is one itself.
    fn template_field(&self, at: &ApplicationKey) -> Arc<str> {
        // Sets of ours have theirs where those of Kubernetes have it.
        let kind = if at.kind == DAEMON_SET.at { NATIVE_DAEMON_SET.at } else { at.kind };
        self.applications.template_field(kind)
    }

    /// What the checks say of the policy that an application asks for; none if that is not known.
    async fn check(&self, at: &ApplicationKey, asking: &Asking, pair: Pair) -> Result<Option<Check>, kube::Error> {
        let situation = pair.situation(&asking.labels);
        let (Situation::Asked(name) | Situation::Differs { policy: name, .. } | Situation::Bound(name)) = situation
        else {
            return Ok(Some(Check::Missing));
        };
        let policy = Key { namespace: at.key.namespace.clone(), name: Arc::from(name) };
        match pair {
            Pair::Propagation if self.propagations.is_malformed(&policy) => Ok(None),
            Pair::Propagation => {
                let found = self.propagations.get(&policy);
                Ok(Some(found.map_or(Check::Missing, |policy| check_propagation(&policy.spec))))
            }
            Pair::Override if self.overrides.is_malformed(&policy) => Ok(None),
            Pair::Override => {
                let Some(found) = self.overrides.get(&policy) else { return Ok(Some(Check::Missing)) };
                // One that is confirmed stays so, whatever has become of it.
                if !situation.holds_back() {
                    return Ok(Some(Check::Passed));
                }
                let object = self.whole(at, asking).await?;
                Ok(object.map(|object| {
                    let template_field = self.template_field(at);
                    check_override(&format!("OverridePolicy {policy}"), &found.spec, &object, &template_field)
                }))
            }
        }
    }

    /// The application as the API server has it, if it is still the same.
    async fn whole(&self, at: &ApplicationKey, asking: &Asking) -> Result<Option<Value>, kube::Error> {
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.key.namespace, &at.kind);
        let found = api.get_opt(&at.key.name).await?.and_then(|found| found.object.ok());
        Ok(found.filter(|object| object["metadata"]["uid"] == *asking.meta.uid))
    }

    /// Writes labels onto the very version that was looked at.
    async fn write(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        labels: Map<String, Value>,
    ) -> Result<Ended, kube::Error> {
        let meta = &asking.meta;
        let only = json!({"uid": &*meta.uid, "resourceVersion": meta.version.to_string(), "labels": labels});
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.key.namespace, &at.kind);
        let writer = Writer::new(&self.client, &api);
        match writer.patch(&at.key.name, None, &Patch::Merge(json!({"metadata": only}))).await {
            Outcome::Written(version) if at.kind == DAEMON_SET.at => self.sets.wrote(&at.key, version),
            Outcome::Written(version) => self.applications.wrote(at, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // It is another one by now: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        info!(application = %at, ?labels, "labels of policies written");
        Ok(Ended::Done)
    }

    fn report(&self, at: &ApplicationKey, asking: &Asking, event_type: EventType, reason: &'static str, note: String) {
        self.recorder.report(Report {
            about: at.kind,
            key: at.key.clone(),
            uid: asking.meta.uid.to_string(),
            event_type,
            action: "Binding",
            reason,
            note,
        });
    }

    /// Says why a policy that is asked for is not confirmed.
    fn tell_check(&self, at: &ApplicationKey, asking: &Asking, pair: Pair, check: &Check) {
        let Some(name) = asking.labels.get(pair.required()) else { return };
        let (kind, label, namespace) = (pair.kind().kind, pair.required(), &at.key.namespace);
        let (reason, note) = match check {
            Check::Passed if pair == Pair::Propagation && [DAEMON_SET.at, NATIVE_DAEMON_SET.at].contains(&at.kind) => (
                "PropagationIgnored",
                format!(
                    "the pods of a DaemonSet belong to their nodes: the {kind} {name:?} has no say in where they are"
                ),
            ),
            Check::Passed => return,
            Check::Missing => (
                "PolicyMissing",
                format!(
                    "label {label} asks for the {kind} {name:?}, which namespace {namespace} does not have: create it, or \
                     take the label off"
                ),
            ),
            Check::Unrendered(why) => (
                "PolicyNotApplicable",
                format!("the {kind} {name:?} that label {label} asks for does not apply to it: {why}"),
            ),
        };
        self.report(at, asking, EventType::Warning, reason, note);
    }
}

impl Reconcile for Bindings {
    type Key = ApplicationKey;
    const NAME: &'static str = "group-bindings";

    async fn ready(&self, term: u64) {
        self.propagations.synced(term).await;
        self.overrides.synced(term).await;
        self.applications.synced(term).await;
        self.sets.synced_or_missing(term).await;
    }

    async fn reconcile(&self, at: &ApplicationKey) -> Result<Ended, kube::Error> {
        let Some(asking) = self.get(at) else {
            self.recorder.forget(at.kind, &at.key);
            return Ok(Ended::Done);
        };
        if asking.is_terminating() || !is_served(&at.key.namespace, &self.own_namespace) {
            return Ok(Ended::Done);
        }
        if !self.caught_up(at) {
            return Ok(Ended::Again(ECHO));
        }
        let is_application = match self.applications.application_of(&asking) {
            Applicant::Is(application) => application.meta.uid == asking.meta.uid,
            Applicant::None => return Ok(Ended::Done),
            Applicant::Unknown => return Ok(Ended::Again(ECHO)),
        };
        let mut labels = Map::new();
        if !is_application {
            // What is above it asks, so nothing is confirmed on it.
            let left = Pair::ALL.into_iter().map(Pair::binding).filter(|label| asking.labels.get(label).is_some());
            labels.extend(left.map(|label| (label.to_owned(), Value::Null)));
            return if labels.is_empty() { Ok(Ended::Done) } else { self.write(at, &asking, labels).await };
        }
        for pair in Pair::ALL {
            let Some(check) = self.check(at, &asking, pair).await? else { continue };
            self.tell_check(at, &asking, pair, &check);
            match pair.confirm(&asking.labels, &check) {
                Confirmation::Set(policy) => _ = labels.insert(pair.binding().to_owned(), json!(policy)),
                Confirmation::Remove => _ = labels.insert(pair.binding().to_owned(), Value::Null),
                Confirmation::Keep => {}
            }
        }
        if labels.is_empty() { Ok(Ended::Done) } else { self.write(at, &asking, labels).await }
    }

    async fn tell_failure(&self, at: &ApplicationKey, failure: &Failure) {
        let Some(asking) = self.get(at) else { return };
        let note = format!("its labels of policies cannot be written: {}", failure.text);
        self.report(at, &asking, EventType::Warning, "FailedBinding", note);
    }
}

/// Adds applications to the queue.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<ApplicationKey>>,
    metrics: Arc<Metrics>,
    /// Not kept by those who are told of its changes: it ends with the controller. Until it is there, workloads are told
    /// each by itself, and policies not yet.
    applications: Arc<OnceLock<Weak<Applications>>>,
    sets: Arc<Store<Set>>,
}

impl Adder {
    fn applications(&self) -> Option<Arc<Applications>> {
        self.applications.get()?.upgrade()
    }

    fn add(&self, at: ApplicationKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(Bindings::NAME);
        }
    }

    /// What is below it is an application of its own, or not, by what it asks for.
    fn add_with_below(&self, at: ApplicationKey) {
        if let Some(applications) = self.applications()
            && let Some(asking) = applications.get(&at)
        {
            applications.below(&asking.meta.uid).into_iter().for_each(|below| self.add(below));
        }
        self.add(at);
    }
}

/// Subscribes to policies of a kind: whatever asks for one that came, changed or went is looked at.
fn follow<S: PolicySpec>(context: &ControllerContext, pair: Pair, adder: Adder) -> Subscription<Policy<S>> {
    context.caches.open().subscribe(&context.stop, move |change: &Change<Policy<S>>| {
        let Change::Object { key, .. } = change else { return };
        let Some(applications) = adder.applications().filter(|_| Policy::is_news(change)) else { return };
        applications.asking_for(pair, &key.namespace, &key.name).into_iter().for_each(|at| adder.add(at));
        let sets = adder.sets.find(Set::BY_POLICY, &Set::asking(pair, &key.namespace, &key.name));
        sets.iter().for_each(|set| adder.add(ApplicationKey { kind: DAEMON_SET.at, key: set.meta.key.clone() }));
    })
}

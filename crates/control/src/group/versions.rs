//! What OverridePolicies say and have said: a ControllerRevision for each version, written by the leader and read by all replicas.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::group::OverridePolicySpec;
use dapple_api::kinds::OVERRIDE_POLICY;
use dapple_plan::group::version::{self, Settled, name_of, settle, surplus};
use kube::Client;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::BACKOFF;
use super::policy::Policy;
use crate::caches::store::Change;
use crate::caches::{Caches, Subscription};
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::history::History;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Revision};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, exactly};

/// How soon to look again where our view is behind.
const ECHO: Duration = Duration::from_millis(500);

/// What policies have said, newest first.
pub(super) struct Versions {
    revisions: Subscription<Revision>,
    /// By the UID of a policy: the revisions that were read, and what they say. Reading them takes longer than the rest.
    read: Mutex<BTreeMap<Arc<str>, Read>>,
}

type Read = (Vec<(Arc<str>, u64)>, Vec<Arc<OverridePolicySpec>>);

impl Versions {
    pub(super) fn subscribe(
        caches: &Caches,
        life: &CancellationToken,
        on_change: impl FnMut(&Change<Revision>) + Send + 'static,
    ) -> Self {
        let revisions = caches.open().indexed_by([Revision::BY_OWNER]).subscribe(life, on_change);
        Self { revisions, read: Mutex::default() }
    }

    pub(super) async fn synced(&self, term: u64) {
        self.revisions.synced(term).await;
    }

    /// Those of a policy, the newest first.
    fn of_policy(&self, policy: &Policy<OverridePolicySpec>) -> Vec<Arc<Revision>> {
        let mut found = self.revisions.find(Revision::BY_OWNER, &policy.meta.uid);
        let is_its = |revision: &Revision| revision.is_of(OVERRIDE_POLICY.at, &policy.meta);
        found.retain(|revision| is_its(revision) && version::is_numbered(revision.number));
        found.sort_by_key(|revision| std::cmp::Reverse(revision.number));
        found
    }

    /// Whether what a policy says now is written down.
    pub(super) fn is_recorded(&self, policy: &Policy<OverridePolicySpec>) -> bool {
        let known: Vec<version::Revision> = self.of_policy(policy).iter().map(|revision| looked_at(revision)).collect();
        settle(&name_of(&policy.meta.key.name, &policy.spec), &known) == Settled::Keep
    }

    /// What a policy says and has said, the newest first. A revision that cannot be read, or says something else than its name,
    /// counts as none.
    pub(super) fn specs(&self, policy: &Policy<OverridePolicySpec>) -> Vec<Arc<OverridePolicySpec>> {
        let newest = name_of(&policy.meta.key.name, &policy.spec);
        let mut earlier = self.of_policy(policy);
        earlier.retain(|revision| *revision.meta.key.name != *newest);
        let key: Vec<(Arc<str>, u64)> =
            earlier.iter().map(|revision| (revision.meta.key.name.clone(), revision.meta.version)).collect();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.get(&policy.meta.uid).is_none_or(|(known, _)| *known != key) {
            let parse = |revision: &Arc<Revision>| {
                version::spec_of(&policy.meta.key.name, &revision.meta.key.name, &revision.data).map(Arc::new)
            };
            // Policies that are gone have no revisions any more.
            read.retain(|uid, _| !self.revisions.find(Revision::BY_OWNER, uid).is_empty());
            read.insert(policy.meta.uid.clone(), (key, earlier.iter().filter_map(parse).collect()));
        }
        let earlier = read.get(&policy.meta.uid).map(|(_, specs)| specs.clone()).unwrap_or_default();
        std::iter::once(policy.spec.clone()).chain(earlier).collect()
    }
}

/// The controller that writes them. Its keys are policies.
pub(super) struct PolicyHistory {
    client: Client,
    recorder: Arc<Recorder>,
    overrides: Subscription<Policy<OverridePolicySpec>>,
    versions: Versions,
    /// By policy: the revision that was last written. Nothing is decided before it is seen.
    written: Mutex<BTreeMap<Key, Key>>,
}

impl PolicyHistory {
    /// Subscribes to policies and their revisions.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let (of_policies, of_revisions) = (queue.clone(), queue.clone());
        let (metrics, counted) = (context.metrics.clone(), context.metrics.clone());
        let overrides = context.caches.open().subscribe(&context.stop, move |change| {
            if let Change::Object { key, .. } = change
                && Policy::is_news(change)
                && of_policies.add(key.clone(), Urgency::Change)
            {
                metrics.queue_added(Self::NAME);
            }
        });
        let versions = Versions::subscribe(&context.caches, &context.stop, move |change: &Change<Revision>| {
            let Change::Object { key, old, new, .. } = change else { return };
            let owner = new.as_ref().or(old.as_ref()).and_then(|revision| revision.owner.as_ref());
            let is_policys = owner.is_some_and(|owner| *owner.kind == *OVERRIDE_POLICY.at.kind);
            if let Some(owner) = owner.filter(|_| is_policys)
                && of_revisions.add(Key { namespace: key.namespace.clone(), name: owner.name.clone() }, Urgency::Change)
            {
                counted.queue_added(Self::NAME);
            }
        });
        let (client, recorder) = (context.client.clone(), context.recorder.clone());
        (Arc::new(Self { client, recorder, overrides, versions, written: Mutex::default() }), queue)
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<Key, Key>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what is beyond the limit.
    async fn prune(&self, history: &History, known: &[Arc<Revision>]) -> Result<Ended, kube::Error> {
        let all: Vec<version::Revision> = known.iter().map(|revision| looked_at(revision)).collect();
        let spare = surplus(&all);
        for revision in known.iter().filter(|revision| spare.contains(&&*revision.meta.key.name)) {
            match history.delete(&revision.meta.key.name, exactly(&revision.meta)).await {
                Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
                // Gone, or another one by now: the watch will tell.
                _ => {}
            }
        }
        Ok(Ended::Done)
    }
}

fn looked_at(revision: &Revision) -> version::Revision {
    version::Revision { name: revision.meta.key.name.to_string(), number: revision.number }
}

impl Reconcile for PolicyHistory {
    type Key = Key;
    const NAME: &'static str = "group-policy-history";

    async fn ready(&self, term: u64) {
        self.overrides.synced(term).await;
        self.versions.synced(term).await;
    }

    async fn reconcile(&self, at: &Key) -> Result<Ended, kube::Error> {
        let Some(policy) = self.overrides.get(at) else {
            self.written().remove(at);
            return Ok(Ended::Done);
        };
        let written = self.written().get(at).cloned();
        if written.is_some_and(|key| !self.versions.revisions.caught_up(&key)) {
            return Ok(Ended::Again(ECHO));
        }
        let known = self.versions.of_policy(&policy);
        let name = name_of(&at.name, &policy.spec);
        let all: Vec<version::Revision> = known.iter().map(|revision| looked_at(revision)).collect();
        let history = History::new(&self.client, &at.namespace);
        let found = known.iter().find(|revision| *revision.meta.key.name == *name);
        let outcome = match (settle(&name, &all), found) {
            (Settled::Keep, _) => return self.prune(&history, &known).await,
            (Settled::Renumber(number), Some(found)) => {
                history.renumber((&name, found.meta.version), number, &json!({})).await
            }
            (Settled::Renumber(number) | Settled::Create(number), _) => {
                history.create(&version::object((&at.name, &policy.meta.uid), &policy.spec, number)).await
            }
        };
        match outcome {
            Outcome::Written(version) => {
                info!(policy = %at, revision = name, "what the policy says is written down");
                let key = Key::new(&at.namespace, &name);
                self.versions.revisions.wrote(&key, version);
                self.written().insert(at.clone(), key);
                Ok(Ended::Done)
            }
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            // Made before and not seen yet, or the policy or its namespace is gone.
            _ => Ok(Ended::Failed),
        }
    }

    async fn tell_failure(&self, at: &Key, failure: &Failure) {
        let Some(policy) = self.overrides.get(at) else { return };
        self.recorder.report(Report {
            about: OVERRIDE_POLICY.at,
            key: at.clone(),
            uid: policy.meta.uid.to_string(),
            event_type: EventType::Warning,
            action: "Recording",
            reason: "FailedRevision",
            note: format!("what it says cannot be written down, so no running pod is changed: {}", failure.text),
        });
    }
}

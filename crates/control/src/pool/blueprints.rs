//! What webhooks know of applications in pools: what their workloads should be, by this process's own view of the cluster. It may
//! be behind, also behind what the leader has written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::pool::{
    POOL_NAME_LABEL, SUSPEND_ANNOTATION, SubjectKind, YurtAppConfigurationReplacement, YurtAppDaemonSpec,
    YurtAppSetSpec,
};
use dapple_api::selector::Selector;
use dapple_api::verdict::Verdict;
use dapple_plan::pool::admission;
use dapple_plan::pool::application::AskedPool;
use dapple_plan::pool::put_back::{Known, PutBack, Write, put_back};
use dapple_plan::pool::renderings::Renderings;
use dapple_plan::pool::version::{InForce, Pools, Version};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::apps::{addressed, asked, in_force, plain};
use super::kept::{ApplicationSpec, Kept, Owner};
use super::{Pool, Replacement};
use crate::caches::store::Change;
use crate::caches::{Caches, Subscription};
use crate::slim::{Cached, Key, Revision};

/// What is known.
pub struct Blueprints {
    sets: Subscription<Kept<YurtAppSetSpec>>,
    daemons: Subscription<Kept<YurtAppDaemonSpec>>,
    replacements: Subscription<Replacement>,
    pools: Subscription<Pool>,
    revisions: Subscription<Revision>,
    said: AllSaid,
}

/// What applications say, by UID: they have many pools, and are asked about for each.
type AllSaid = Arc<Mutex<BTreeMap<Arc<str>, Said>>>;

/// The generation of an application, and its replacement with that one's.
type SaidOf = (Option<i64>, Option<(Arc<str>, Option<i64>)>);

/// What an application says.
struct Said {
    of: SaidOf,
    version: Arc<Version>,
    /// What pools got of it.
    renderings: Arc<Renderings>,
}

impl Blueprints {
    /// Subscribes. What is not known yet is nobody's hindrance: every write passes.
    pub fn start(caches: &Caches, life: &CancellationToken) -> Self {
        let said = AllSaid::default();
        Self {
            sets: caches.open().subscribe(life, forget::<YurtAppSetSpec>(said.clone())),
            daemons: caches.open().subscribe(life, forget::<YurtAppDaemonSpec>(said.clone())),
            replacements: caches.open().subscribe(life, |_| {}),
            pools: caches.open().subscribe(life, |_| {}),
            revisions: caches.open().subscribe(life, |_| {}),
            said,
        }
    }

    /// What becomes of a write to a workload.
    pub fn put_back(&self, namespace: &str, write: Write<'_>) -> PutBack {
        let Some(owner) = Owner::of(write.new) else { return PutBack::default() };
        let found = if owner.is(YurtAppSetSpec::KIND) {
            self.put_back_of(&self.sets, (namespace, &owner), write)
        } else if owner.is(YurtAppDaemonSpec::KIND) {
            self.put_back_of(&self.daemons, (namespace, &owner), write)
        } else {
            None
        };
        found.unwrap_or_default()
    }

    /// The same, of a workload that applications of one kind control. None if not all is known that decides, if the pool is leaving,
    /// or if nothing of the application is to be written.
    fn put_back_of<S: ApplicationSpec>(
        &self,
        known: &Subscription<Kept<S>>,
        (namespace, owner): (&str, &Owner),
        write: Write<'_>,
    ) -> Option<PutBack> {
        let kept = readable(known, &Key::new(namespace, &owner.name))?;
        if *kept.meta.uid != *owner.uid || kept.is_terminating {
            return None;
        }
        // Whoever takes the label off has not changed the pool.
        let name = write.old.and_then(pool_of).or_else(|| pool_of(write.new))?;
        let (version, renderings) = self.version(&kept)?;
        let pool = self.asked_pool(&version, name)?;
        let revision = |name: &str| {
            let found = self.revisions.get(&Key::new(namespace, name))?;
            let is_own = found.owner.as_ref().is_some_and(|owner| owner.uid == kept.meta.uid);
            is_own.then(|| plain(&found))
        };
        let known = Known {
            application: &kept.application(),
            version: &version,
            renderings: &renderings,
            status: S::common(&kept.status),
            pool: &pool,
            revision: &revision,
        };
        Some(put_back(&known, write))
    }

    /// What is to be said of a replacement beside its application, if that is known.
    pub fn judge(&self, namespace: &str, replacement: &YurtAppConfigurationReplacement) -> Verdict {
        let found = match replacement.subject.kind {
            SubjectKind::YurtAppSet => self.judge_of(&self.sets, namespace, replacement),
            SubjectKind::YurtAppDaemon => self.judge_of(&self.daemons, namespace, replacement),
        };
        found.unwrap_or_default()
    }

    fn judge_of<S: ApplicationSpec>(
        &self,
        known: &Subscription<Kept<S>>,
        namespace: &str,
        replacement: &YurtAppConfigurationReplacement,
    ) -> Option<Verdict> {
        let kept = readable(known, &Key::new(namespace, &replacement.subject.name))?;
        let name = replacement.metadata.name.clone().unwrap_or_default();
        let in_force = InForce { name, replacements: replacement.replacements.clone() };
        let version = kept.spec.version(Some(in_force));
        let pools = asked(&self.pools, &version).ok()?;
        Some(admission::judge(&kept.application(), &version, &pools))
    }

    /// What an application says now, with its replacement. None if that is not known, or if nothing of it is to be written.
    fn version<S: ApplicationSpec>(&self, kept: &Kept<S>) -> Option<(Arc<Version>, Arc<Renderings>)> {
        let namespace = &kept.meta.key.namespace;
        let is_lost = || self.replacements.malformed().keys().any(|key| key.namespace == *namespace);
        if !self.replacements.is_known() || is_lost() {
            return None;
        }
        let replacement = addressed::<S>(&self.replacements, &kept.meta.key).0.into_iter().next();
        let holds = |annotations: &BTreeMap<String, String>| {
            annotations.get(SUSPEND_ANNOTATION).is_some_and(|said| said == "true")
        };
        if holds(&kept.annotations) || replacement.as_ref().is_some_and(|known| holds(&known.annotations)) {
            return None;
        }
        let with = replacement.as_ref().map(|known| (known.meta.uid.clone(), known.generation));
        let of = (kept.generation, with);
        let mut said = lock(&self.said);
        if let Some(known) = said.get(&kept.meta.uid).filter(|known| known.of == of) {
            return Some((known.version.clone(), known.renderings.clone()));
        }
        let version = Arc::new(kept.spec.version(replacement.as_deref().map(in_force)));
        let renderings = Arc::new(Renderings::default());
        let known = Said { of, version: version.clone(), renderings: renderings.clone() };
        said.insert(kept.meta.uid.clone(), known);
        Some((version, renderings))
    }

    /// A pool, if the application should be in it.
    fn asked_pool(&self, version: &Version, name: &str) -> Option<AskedPool> {
        let asked = |taints| AskedPool { name: name.to_owned(), taints };
        let selector = match &version.pools {
            Pools::Named(_) => return version.pool(name).map(|_| asked(Vec::new())),
            Pools::Selected(selector) => Selector::new(selector.as_ref()?).ok()?,
        };
        let pool = readable(&self.pools, &Key::new("", name))?;
        selector.matches(|key| pool.labels.get(key)).then(|| asked(pool.spec.taints.clone()))
    }
}

/// An object, if it is known and can be read.
fn readable<T: Cached>(known: &Subscription<T>, key: &Key) -> Option<Arc<T>> {
    known.get(key).filter(|_| known.is_known() && !known.is_malformed(key))
}

/// The pool that a workload was made for.
fn pool_of(workload: &Value) -> Option<&str> {
    workload["metadata"]["labels"].get(POOL_NAME_LABEL)?.as_str()
}

/// Has what is remembered of an application forgotten with it.
fn forget<S: ApplicationSpec>(said: AllSaid) -> impl FnMut(&Change<Kept<S>>) + Send + 'static {
    move |change| {
        if let Change::Object { old: Some(old), new: None, .. } = change {
            lock(&said).remove(&old.meta.uid);
        }
    }
}

fn lock(said: &AllSaid) -> MutexGuard<'_, BTreeMap<Arc<str>, Said>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

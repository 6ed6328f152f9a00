//! The OverridePolicies that DaemonSets of ours ask for, and the groups of nodes that their rules go by.
//!
//! Few sets ask for one, so the others never wait for these kinds: a cluster need not have them, and the manager need not be let
//! read them. A set that asks is not looked at before they are known.

use std::sync::Arc;

use dapple_api::group::OverridePolicySpec;
use dapple_plan::group::binding::{Pair, Situation};
use dapple_plan::overriding::{GroupRules, Overriding};

use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::family::ControllerContext;
use crate::group::{Group, Policy, is_served};
use crate::signal::Signal;
use crate::slim::{Key, Set};

/// What is said of a set that waits for a policy.
pub(crate) const WAITING: &str = "WaitingForPolicy";

/// What is known of them.
pub(crate) struct Policies {
    overrides: Subscription<Policy<OverridePolicySpec>>,
    groups: Subscription<Group>,
    /// The term that their views have to be of.
    term: Signal,
    /// dapple's own namespace, whose sets are not served.
    own_namespace: Arc<str>,
}

/// What a set has of the policy that it asks for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) overriding: Overriding,
    /// Whether the policy says that nothing is to be changed.
    pub(crate) is_suspended: bool,
    /// Whether the kinds are not there: nobody will tell when they come.
    pub(crate) is_unserved: bool,
}

impl Asked {
    fn waits(why: String) -> Self {
        Self { overriding: Overriding::Waits(why), ..Self::default() }
    }
}

impl Policies {
    /// Subscribes to policies and groups. Tells under which value of [`Set::BY_POLICY`] sets are found that are concerned.
    pub(crate) fn subscribe(context: &ControllerContext, tell: impl Fn(&str) + Clone + Send + 'static) -> Self {
        let (caches, life, tell_of_groups) = (&context.caches, &context.stop, tell.clone());
        Self {
            overrides: caches.open().subscribe(life, move |change| on_policy(change, &tell)),
            groups: caches.open().subscribe(life, move |change| on_group(change, &tell_of_groups)),
            term: Signal::default(),
            own_namespace: context.namespace.clone(),
        }
    }

    /// From now on, views have to be of this term.
    pub(crate) fn begin(&self, term: u64) {
        self.term.set(term);
    }

    /// What a set has of the policy that it asks for; none if that is not known yet.
    pub(crate) fn of(&self, set: &Set) -> Option<Asked> {
        let (namespace, pair) = (&set.meta.key.namespace, Pair::Override);
        let situation = pair.situation(&set.policies);
        if situation == Situation::None || !is_served(namespace, &self.own_namespace) {
            return Some(Asked::default());
        }
        if self.overrides.is_missing() || self.groups.is_missing() {
            return Some(unserved(set));
        }
        let term = self.term.get();
        if !self.overrides.is_synced_in(term) || !self.groups.is_synced_in(term) {
            return None;
        }
        let waits = |why: String| Some(Asked::waits(why));
        match situation {
            Situation::None => Some(Asked::default()),
            Situation::Asked(name) => waits(format!("OverridePolicy {name:?} is asked for and not confirmed")),
            Situation::Differs { policy, bound } => {
                waits(format!("OverridePolicy {policy:?} is asked for and not confirmed; {bound:?} was, before it"))
            }
            Situation::Bound(name) => {
                let key = Key { namespace: namespace.clone(), name: Arc::from(name) };
                match self.overrides.get(&key) {
                    Some(policy) => Some(self.applied(&policy)),
                    None if self.overrides.is_malformed(&key) => {
                        waits(format!("OverridePolicy {name:?} cannot be read: mend it"))
                    }
                    None => waits(format!("OverridePolicy {name:?} is not there any more")),
                }
            }
        }
    }

    fn applied(&self, policy: &Policy<OverridePolicySpec>) -> Asked {
        // Which nodes it has is not known: they would be taken for nodes of no group.
        let is_targeted = |group: &Key| policy.spec.override_rules.iter().any(|rule| rule.targets(&group.name));
        if let Some(group) = self.groups.malformed().into_keys().find(is_targeted) {
            return Asked::waits(format!("NodeGroup {:?} cannot be read: mend it", group.name));
        }
        let groups = self.groups.all();
        let groups = groups.iter().map(|group| (group.name(), group.spec()));
        let rules = GroupRules::new(format!("OverridePolicy {}", policy.meta.key), policy.spec.clone(), groups);
        let is_suspended = policy.is_suspended;
        Asked { overriding: Overriding::By(Arc::new(rules)), is_suspended, is_unserved: false }
    }
}

/// A policy concerns the sets that ask for it.
fn on_policy(change: &Change<Policy<OverridePolicySpec>>, tell: &impl Fn(&str)) {
    let (Change::Object { key, .. } | Change::Malformed { key, .. }) = change;
    if Policy::is_news(change) {
        tell(&Set::asking(Pair::Override, &key.namespace, &key.name));
    }
}

/// Which nodes a group has concerns all sets that ask for a policy. Its status, which names them, concerns nobody.
fn on_group(change: &Change<Group>, tell: &impl Fn(&str)) {
    let said = |group: &Option<Arc<Group>>| group.as_ref().map(|group| group.spec().clone());
    if !matches!(change, Change::Object { old, new, .. } if said(old) == said(new)) {
        tell(Set::OVERRIDDEN);
    }
}

/// Where nobody serves policies, labels mean nothing; but what was confirmed is in pods that run, and they keep it.
fn unserved(set: &Set) -> Asked {
    let overriding = match set.policies.get(Pair::Override.binding()) {
        Some(bound) => Overriding::Waits(format!(
            "OverridePolicy {bound:?} is confirmed, and the API server serves no OverridePolicies and NodeGroups: install \
             them, or take the set's labels off"
        )),
        None => Overriding::None,
    };
    Asked { overriding, is_suspended: false, is_unserved: true }
}

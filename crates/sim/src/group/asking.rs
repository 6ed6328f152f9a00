//! What has asked for policies, and the policies, as they are and were. A manager may act on any of it that it could believe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use serde_json::Value;

use super::binding::has_labels;
use super::properties::{Past, end, remember};
use crate::object::text;
use crate::server::ChangeKind;
use crate::sim::Write;
use crate::webhook::controller_of;
use crate::workload::RESOURCES;

/// What the labels of an application say of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule<'l> {
    /// They go anywhere.
    Free,
    /// They wait for a policy that is asked for and not confirmed.
    Held,
    /// They are divided by this policy.
    Divided(&'l str),
}

impl<'l> Rule<'l> {
    pub(super) fn of(labels: &'l Value) -> Self {
        let is_unconfirmed = |pair: &Pair| {
            let asked = &labels[pair.required()];
            !asked.is_null() && labels[pair.binding()] != *asked
        };
        match labels[Pair::Propagation.required()].as_str() {
            _ if Pair::ALL.iter().any(is_unconfirmed) => Self::Held,
            Some(policy) => Self::Divided(policy),
            None => Self::Free,
        }
    }
}

/// The history.
#[derive(Default)]
pub(super) struct Asking {
    /// By UID.
    workloads: BTreeMap<String, Past<Arc<Value>>>,
    /// By name.
    policies: BTreeMap<String, Past<Arc<Value>>>,
    /// By the UID of a workload, or the name of a policy: all that it has ever said of where pods go.
    said: BTreeMap<String, BTreeSet<String>>,
}

impl Asking {
    /// Takes in a write.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let object = &write.change.object;
        let is_policy = write.change.resource == super::binding::resource(Pair::Propagation);
        if !is_policy && !RESOURCES.contains(&write.change.resource) {
            return;
        }
        let is_gone = write.change.kind == ChangeKind::Deleted;
        let (key, said) = if is_policy {
            (text(&object["metadata"]["name"]), format!("{} {is_gone}", object["spec"]))
        } else {
            let asked = &object["metadata"]["labels"][Pair::Propagation.required()];
            (text(&object["metadata"]["uid"]), format!("{asked} {}", object["spec"]["ordinals"]))
        };
        self.said.entry(key.to_owned()).or_default().insert(said);
        let of_kind = if is_policy { &mut self.policies } else { &mut self.workloads };
        let past = of_kind.entry(key.to_owned()).or_default();
        if is_gone {
            end(past, write);
        } else {
            remember(past, write, object.clone());
        }
    }

    /// Whether a workload, or a policy, has always said the same of where pods go.
    pub(super) fn is_constant(&self, key: &str) -> bool {
        self.said.get(key).is_none_or(|said| said.len() == 1)
    }

    /// The versions that a policy had since then.
    pub(super) fn policies(&self, name: &str, since: Duration) -> impl Iterator<Item = &Value> {
        versions(&self.policies, name, since)
    }

    /// The versions that a workload had since then.
    pub(super) fn workloads(&self, uid: &str, since: Duration) -> impl Iterator<Item = &Value> {
        versions(&self.workloads, uid, since)
    }

    /// All labels that may have been those of a pod's application since then; null where nothing has asked.
    pub(super) fn labels_for(&self, pod: &Value, since: Duration) -> Vec<Value> {
        match controller_of(pod) {
            None => vec![pod["metadata"]["labels"].clone()],
            Some(owner) => self.climb(text(&owner["uid"]), since),
        }
    }

    /// Those of the topmost of a workload and its owners that has any.
    fn climb(&self, uid: &str, since: Duration) -> Vec<Value> {
        let mut found = Vec::new();
        for workload in self.workloads(uid, since) {
            let own = if has_labels(workload) { workload["metadata"]["labels"].clone() } else { Value::Null };
            let above = match controller_of(workload) {
                Some(owner) => self.climb(text(&owner["uid"]), since),
                None => vec![Value::Null],
            };
            found.extend(above.into_iter().map(|above| if above.is_null() { own.clone() } else { above }));
        }
        found
    }
}

fn versions<'p>(
    all: &'p BTreeMap<String, Past<Arc<Value>>>,
    key: &str,
    since: Duration,
) -> impl Iterator<Item = &'p Value> + use<'p> {
    let past = all.get(key).into_iter().flatten();
    past.filter(move |(until, _)| *until >= since).map(|(_, object)| &**object)
}

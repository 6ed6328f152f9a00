//! Policies as their controllers keep them.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use dapple_api::group::{
    OverridePolicySpec, OverridePolicyStatus, PropagationPolicySpec, PropagationPolicyStatus, SUSPEND_ANNOTATION,
};
use dapple_api::kinds;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::repair::ROLLOUT_MAX;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::caches::store::Change;
use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{Cached, Interner, Key, Meta};

/// What a policy of one kind says.
pub(crate) trait PolicySpec: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// What such a policy says of itself.
    type Status: DeserializeOwned + Clone + Debug + PartialEq + Send + Sync + 'static;
    /// The kind of such policies.
    const KIND: KindInfo;
}

impl PolicySpec for PropagationPolicySpec {
    type Status = PropagationPolicyStatus;
    const KIND: KindInfo = kinds::PROPAGATION_POLICY.at;
}

impl PolicySpec for OverridePolicySpec {
    type Status = OverridePolicyStatus;
    const KIND: KindInfo = kinds::OVERRIDE_POLICY.at;
}

/// A cached policy. They are few: the spec is kept whole.
#[derive(Debug)]
pub(crate) struct Policy<S: PolicySpec> {
    pub(crate) meta: Meta,
    pub(super) generation: Option<i64>,
    /// Whether nothing that runs is to be changed by it.
    pub(crate) is_suspended: bool,
    /// So many pods of an application may be away at once.
    pub(super) most_away: usize,
    /// The groups that come first when what it says changes, in this order. The others follow by name.
    pub(super) rollout_order: Vec<String>,
    pub(crate) spec: Arc<S>,
    pub(super) status: Option<S::Status>,
}

impl<S: PolicySpec> Policy<S> {
    /// Groups, or several with commas between them, in the order in which what the policy says reaches them.
    pub(super) fn ordered(&self, groups: &[Arc<str>]) -> Vec<Arc<str>> {
        let is_named = |groups: &str, known: &String| groups.split(',').any(|group| group.eq_ignore_ascii_case(known));
        let place = |groups: &str| self.rollout_order.iter().position(|known| is_named(groups, known));
        let mut ordered = groups.to_vec();
        ordered.sort_by_key(|group| (place(group).unwrap_or(usize::MAX), group.to_ascii_lowercase()));
        ordered
    }
}

/// Annotation of a policy: the groups that come first when what it says changes, with commas between them.
const ROLLOUT_ORDER: &str = "dapple.dev/rollout-order";

/// The fields of a policy that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "")]
pub(crate) struct PolicyWire<S: PolicySpec> {
    metadata: PolicyMeta,
    spec: S,
    status: Option<S::Status>,
}

#[derive(Debug, Clone, Deserialize)]
struct PolicyMeta {
    generation: Option<i64>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl<S: PolicySpec> Wire for PolicyWire<S> {}

impl<S: PolicySpec> KindWire for PolicyWire<S> {
    const KIND: KindInfo = S::KIND;
}

impl<S: PolicySpec> Cached for Policy<S> {
    type Wire = PolicyWire<S>;

    fn slim(meta: Meta, wire: PolicyWire<S>, _: &mut Interner) -> Self {
        let PolicyMeta { generation, annotations } = wire.metadata;
        let most_away = annotations.get(ROLLOUT_MAX).and_then(|most| most.parse().ok());
        let order = annotations.get(ROLLOUT_ORDER).into_iter().flat_map(|order| order.split(','));
        Self {
            meta,
            generation,
            is_suspended: annotations.get(SUSPEND_ANNOTATION).is_some_and(|said| said == "true"),
            most_away: most_away.filter(|most| *most > 0).unwrap_or(1),
            rollout_order: order.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect(),
            spec: Arc::new(wire.spec),
            status: wire.status,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl<S: PolicySpec> Policy<S> {
    /// Whether a change is one of what a policy says, and not of its status alone, which is ours.
    pub(crate) fn is_news(change: &Change<Self>) -> bool {
        let Change::Object { old: Some(old), new: Some(new), .. } = change else { return true };
        let said = |policy: &Self| {
            let Self { meta, generation, is_suspended, most_away, rollout_order, .. } = policy;
            (meta.uid.clone(), *generation, *is_suspended, *most_away, rollout_order.clone())
        };
        said(old) != said(new)
    }
}

/// A policy of either kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PolicyKey {
    /// Which kind.
    pub(super) pair: Pair,
    /// Namespace and name.
    pub(super) key: Key,
}

impl PolicyKey {
    /// The policies that labels ask for in a namespace.
    pub(super) fn asked_by<'l>(
        namespace: &'l Arc<str>,
        label: impl Fn(&str) -> Option<Arc<str>> + 'l,
    ) -> impl Iterator<Item = Self> + 'l {
        let asked = move |pair: Pair| {
            let key = Key { namespace: namespace.clone(), name: label(pair.required())? };
            Some(Self { pair, key })
        };
        Pair::ALL.into_iter().filter_map(asked)
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pair.kind().kind, self.key)
    }
}

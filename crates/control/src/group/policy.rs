//! Policies as their controllers keep them.

use std::fmt::Debug;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{Cached, Interner, Meta};

/// What a policy of one kind says.
pub(super) trait PolicySpec: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// The kind of such policies.
    const KIND: KindInfo;
}

impl PolicySpec for PropagationPolicySpec {
    const KIND: KindInfo = kinds::PROPAGATION_POLICY.at;
}

impl PolicySpec for OverridePolicySpec {
    const KIND: KindInfo = kinds::OVERRIDE_POLICY.at;
}

/// A cached policy. They are few: the spec is kept whole.
#[derive(Debug)]
pub(super) struct Policy<S> {
    pub(super) meta: Meta,
    pub(super) generation: Option<i64>,
    pub(super) spec: S,
}

/// The fields of a policy that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PolicyWire<S> {
    metadata: PolicyMeta,
    spec: S,
}

#[derive(Debug, Clone, Deserialize)]
struct PolicyMeta {
    generation: Option<i64>,
}

impl<S: PolicySpec> Wire for PolicyWire<S> {}

impl<S: PolicySpec> KindWire for PolicyWire<S> {
    const KIND: KindInfo = S::KIND;
}

impl<S: PolicySpec> Cached for Policy<S> {
    type Wire = PolicyWire<S>;

    fn slim(meta: Meta, wire: PolicyWire<S>, _: &mut Interner) -> Self {
        Self { meta, generation: wire.metadata.generation, spec: wire.spec }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

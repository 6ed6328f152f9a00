//! Clients and caches of the controllers of applications.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dapple_api::kinds::{NATIVE_DEPLOYMENT, NATIVE_STATEFUL_SET};
use dapple_edit::document::Document;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;

use super::super::kept::{ApplicationSpec, Kept, Workload};
use super::super::metrics::PoolMetrics;
use super::super::{Pool, Replacement};
use crate::caches::Subscription;
use crate::env::Env;
use crate::history::History;
use crate::observed::KindInfo;
use crate::slim::{Node, Revision};
use crate::writes::events::Recorder;
use crate::writes::outcome::Writer;

/// Clients and caches.
pub(super) struct Io<S: ApplicationSpec> {
    pub(super) client: Client,
    pub(super) env: Env,
    pub(super) recorder: Arc<Recorder>,
    pub(super) counted: Arc<PoolMetrics>,
    pub(super) applications: Subscription<Kept<S>>,
    pub(super) deployments: Subscription<Workload>,
    pub(super) stateful_sets: Subscription<Workload>,
    pub(super) replacements: Subscription<Replacement>,
    pub(super) revisions: Subscription<Revision>,
    pub(super) pools: Subscription<Pool>,
    pub(super) nodes: Subscription<Node>,
    /// The term in which this process leads.
    pub(super) term: AtomicU64,
}

/// The kind of an application's workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkloadKind {
    Deployment,
    StatefulSet,
}

impl WorkloadKind {
    pub(super) fn of(document: Document) -> Self {
        if document == Document::StatefulSet { Self::StatefulSet } else { Self::Deployment }
    }

    pub(super) fn document(self) -> Document {
        match self {
            Self::Deployment => Document::Deployment,
            Self::StatefulSet => Document::StatefulSet,
        }
    }

    pub(super) fn at(self) -> KindInfo {
        match self {
            Self::Deployment => NATIVE_DEPLOYMENT.at,
            Self::StatefulSet => NATIVE_STATEFUL_SET.at,
        }
    }

    pub(super) fn kind(self) -> &'static str {
        self.at().kind
    }

    /// The other kind.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Deployment => Self::StatefulSet,
            Self::StatefulSet => Self::Deployment,
        }
    }
}

impl<S: ApplicationSpec> Io<S> {
    /// What is known of workloads of a kind.
    pub(super) fn workloads(&self, kind: WorkloadKind) -> &Subscription<Workload> {
        match kind {
            WorkloadKind::Deployment => &self.deployments,
            WorkloadKind::StatefulSet => &self.stateful_sets,
        }
    }

    /// Whether it is known which NodePools there are, by a list of this term.
    pub(super) fn knows_pools(&self) -> bool {
        self.pools.is_known() && self.pools.is_synced_in(self.term.load(Ordering::Relaxed))
    }

    /// Objects of a kind in a namespace, in the API server.
    pub(super) fn api(&self, at: KindInfo, namespace: &str) -> Api<DynamicObject> {
        let named = GroupVersionKind::gvk(at.group, at.version, at.kind);
        let resource = ApiResource::from_gvk_with_plural(&named, at.plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Writes to them.
    pub(super) fn writer(&self, at: KindInfo, namespace: &str) -> Writer {
        Writer::new(&self.client, &self.api(at, namespace))
    }

    /// The revisions of a namespace.
    pub(super) fn history(&self, namespace: &str) -> History {
        History::new(&self.client, namespace)
    }

    /// What HorizontalPodAutoscalers of a namespace set the number of pods of, by kind and name.
    pub(super) async fn autoscaled(&self, namespace: &str) -> Result<BTreeSet<(String, String)>, kube::Error> {
        let api = Api::<HorizontalPodAutoscaler>::namespaced(self.client.clone(), namespace);
        let all = api.list(&ListParams::default()).await?;
        let targets = all.items.into_iter().map(|known| known.spec.scale_target_ref);
        Ok(targets.map(|target| (target.kind, target.name)).collect())
    }
}

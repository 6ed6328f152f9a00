//! Pools of nodes and applications that run in each of them: NodePool, YurtAppSet, YurtAppDaemon, and
//! YurtAppConfigurationReplacement, which says how an application differs between pools.

mod node_pool;
mod replacement;
mod replacement_pools;
pub mod v1alpha1;
pub mod v1beta1;
mod validate;
mod validate_replacement;
mod workload;
mod yurt_app_daemon;

use serde_json::Value;

use crate::crd::{Crd, Version, age, column, wide};
use crate::kinds;

pub use node_pool::{
    LeftNode, NodePool, NodePoolSpec, NodePoolStatus, NodePoolType, RESERVED_DOMAINS, RESERVED_KEYS, Taint,
    TaintEffect, is_reserved,
};
pub use replacement::{
    ConfigMapItem, EnvItem, ImageItem, Item, PersistentVolumeClaimItem, Replacement, ReplacementStatus, SecretItem,
    Subject, SubjectKind, UpgradeStrategy, YurtAppConfigurationReplacement,
};
pub use replacement_pools::{Pools, PoolsError};
pub use v1alpha1::{Pool, Topology, YurtAppSet, YurtAppSetSpec, YurtAppSetStatus};
pub use validate::{missing_in_replacement, missing_in_yurt_app_set, validate_node_pool, validate_node_pool_deletion};
pub use validate_replacement::{Other, conflicts, validate_replacement};
pub use workload::{
    ApplicationStatus, DeploymentTemplate, StatefulSetTemplate, TemplateType, WorkloadSummary, WorkloadTemplate,
};
pub use yurt_app_daemon::{YurtAppDaemon, YurtAppDaemonSpec, YurtAppDaemonStatus};

/// The API group of every kind in this module.
pub const GROUP: &str = "apps.openyurt.io";

/// Label that puts a node into the pool it names.
pub const NODE_POOL_LABEL: &str = "apps.openyurt.io/nodepool";

/// Annotation of a node: what a pool has put on it, as OpenYurt writes it.
pub const PREVIOUS_ATTRIBUTES: &str = "nodepool.openyurt.io/previous-attributes";

/// Annotation of a node: what was there before a pool put something else in its place.
pub const REPLACED_ATTRIBUTES: &str = "dapple.dev/pool-replaced";

/// Annotation of a NodePool or an application: `"true"` has nothing of it written.
pub const SUSPEND_ANNOTATION: &str = "dapple.dev/suspend";

/// Annotation of a NodePool: `"true"` lets its taints with the effect NoExecute onto nodes.
pub const ALLOW_NO_EXECUTE: &str = "dapple.dev/allow-no-execute";

/// Annotation of a NodePool or an application: names of what may be removed though much goes at once, or `*`.
pub const CONFIRM_REMOVAL: &str = "dapple.dev/confirm-removal";

/// Label on a workload: the pool that it was made for.
pub const POOL_NAME_LABEL: &str = "apps.openyurt.io/pool-name";

/// Annotation of an application, or of its replacement: how many pools may be changed at once, or which share of them.
pub const ROLLOUT_MAX: &str = "dapple.dev/rollout-max";

/// Annotation of an application, or of its replacement: pools in the order in which they are changed.
pub const ROLLOUT_ORDER: &str = "dapple.dev/rollout-order";

/// Annotation of an application, or of its replacement: pools that a rollout does not wait for.
pub const ROLLOUT_SKIP: &str = "dapple.dev/rollout-skip";

/// Text that stands for the pool's name in the strings of a replacement.
pub const POOL_PLACEHOLDER: &str = "{{nodepool}}";

pub(crate) fn crds() -> Vec<Crd> {
    vec![node_pool(), yurt_app_set(), yurt_app_daemon(), replacement()]
}

fn template_column() -> Value {
    column("Workload", "string", ".status.templateType", "Deployment or StatefulSet")
}

fn node_pool() -> Crd {
    let columns = vec![
        column("Type", "string", ".spec.type", "Edge or Cloud"),
        column("Ready", "integer", ".status.readyNodeNum", "Nodes that are ready"),
        column("NotReady", "integer", ".status.unreadyNodeNum", "Nodes that are not ready"),
        age(),
    ];
    Crd {
        kind: &kinds::NODE_POOL,
        versions: vec![Version::of::<NodePool>(columns), Version::of::<v1alpha1::NodePool>(Vec::new())],
    }
}

fn yurt_app_set() -> Crd {
    let columns = vec![
        column("Ready", "integer", ".status.readyReplicas", "Pods that are ready, of all pools"),
        column("Replicas", "integer", ".status.replicas", "Pods of all pools"),
        template_column(),
        age(),
        wide("Pools", "string", ".status.poolReplicas", "Pods wanted in each pool"),
        wide("Revision", "string", ".status.currentRevision", "The newest revision"),
    ];
    Crd {
        kind: &kinds::YURT_APP_SET,
        versions: vec![Version::of::<YurtAppSet>(columns), Version::of::<v1beta1::YurtAppSet>(Vec::new())],
    }
}

fn yurt_app_daemon() -> Crd {
    let columns = vec![
        column("Pools", "string", ".status.nodepools", "Pools that it runs in"),
        template_column(),
        age(),
        wide("Revision", "string", ".status.currentRevision", "The newest revision"),
    ];
    Crd { kind: &kinds::YURT_APP_DAEMON, versions: vec![Version::of::<YurtAppDaemon>(columns)] }
}

fn replacement() -> Crd {
    let columns = vec![
        column("Kind", "string", ".subject.kind", "Kind of the application it changes"),
        column("Subject", "string", ".subject.name", "Name of the application it changes"),
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", "Whether it is in effect"),
        age(),
    ];
    Crd { kind: &kinds::REPLACEMENT, versions: vec![Version::of::<YurtAppConfigurationReplacement>(columns)] }
}

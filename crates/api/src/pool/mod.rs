//! Pools of nodes and applications that run in each of them: NodePool, YurtAppSet, YurtAppDaemon, and
//! YurtAppConfigurationReplacement, which says how an application differs between pools.

mod node_pool;
mod replacement;
mod replacement_pools;
mod rollout;
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
pub use rollout::{BadRule, Max, Rules};
pub use v1alpha1::{Pool, Topology, YurtAppSet, YurtAppSetSpec, YurtAppSetStatus};
pub use validate::{missing_in_replacement, missing_in_yurt_app_set, validate_node_pool, validate_node_pool_deletion};
pub use validate_replacement::{Other, check_rollout, conflicts, validate_replacement};
pub use workload::{
    ApplicationStatus, DeploymentTemplate, PoolState, PoolStatus, StatefulSetTemplate, Stopped, TemplateType,
    WorkloadTemplate,
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

/// Label on a workload and its pods: the revision that last changed what the pool gets.
pub const POOL_REVISION_LABEL: &str = "apps.openyurt.io/controller-revision-hash";

/// Annotation of a YurtAppSet's workload: the patch of its pool, empty without one.
pub const POOL_PATCH: &str = "apps.openyurt.io/patch";

/// Annotation of a YurtAppDaemon's workload: the pool that it was made for.
pub const REF_NODE_POOL: &str = "apps.openyurt.io/ref-nodepool";

/// Annotation of a workload: the number of pods that was declared for it when it was last written.
pub const DECLARED_REPLICAS: &str = "dapple.dev/replicas";

/// Annotation of a workload: names the rendering that it got. No proof that it still has it.
pub const RENDERED: &str = "dapple.dev/rendered";

/// Annotation of a workload: which rollout changed it last, and how it was before.
pub const CHANGED: &str = "dapple.dev/changed";

/// Annotation of a workload: since when its pool is leaving the application.
pub const LEAVING_SINCE: &str = "dapple.dev/leaving-since";

/// Annotation of a workload: many pools left at once with its own, at the time that is noted beside it.
pub const REMOVAL_HELD: &str = "dapple.dev/removal-held";

/// Annotation of an application: when somebody had its rollout go on. What was stopped before is not stopped any more.
pub const ROLLOUT_RESUMED: &str = "dapple.dev/rollout-resumed";

/// Annotation of an application: how long the workload of a pool outlives it, such as `5m`.
pub const POOL_GRACE: &str = "dapple.dev/pool-grace";

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

/// Counts and no lists: those are as long as there are pools.
fn application_columns() -> Vec<Value> {
    vec![
        column("Pools", "integer", ".status.poolCount", "Pools that it has"),
        column("Updated", "integer", ".status.updatedPools", "Pools that are as they should be"),
        column("Available", "integer", ".status.availablePools", "Pools that have all their pods available"),
        column("Workload", "string", ".status.templateType", "Deployment or StatefulSet"),
        age(),
        wide("Revision", "string", ".status.updateRevision", "The newest revision"),
    ]
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
        versions: vec![Version::of::<NodePool>(columns.clone()), Version::of::<v1alpha1::NodePool>(columns)],
    }
}

fn yurt_app_set() -> Crd {
    Crd {
        kind: &kinds::YURT_APP_SET,
        versions: vec![
            Version::of::<YurtAppSet>(application_columns()),
            Version::of::<v1beta1::YurtAppSet>(Vec::new()),
        ],
    }
}

fn yurt_app_daemon() -> Crd {
    Crd { kind: &kinds::YURT_APP_DAEMON, versions: vec![Version::of::<YurtAppDaemon>(application_columns())] }
}

fn replacement() -> Crd {
    let columns = vec![
        column("Kind", "string", ".subject.kind", "Kind of the application it changes"),
        column("Subject", "string", ".subject.name", "Name of the application it changes"),
        column("Matched", "integer", ".status.matchedPools", "Pools of the application that it changes"),
        column("InEffect", "integer", ".status.poolsInEffect", "Pools that have what it says"),
        column(
            "Ready",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].status",
            "Whether it is in effect everywhere",
        ),
        age(),
    ];
    Crd { kind: &kinds::REPLACEMENT, versions: vec![Version::of::<YurtAppConfigurationReplacement>(columns)] }
}

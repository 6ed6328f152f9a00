//! Groups of nodes, how an application's pods are spread over them, and how its pods differ between them:
//! NodeGroup, PropagationPolicy and OverridePolicy.

mod listed;
mod node_group;
mod override_policy;
mod policy_status;
mod propagation_policy;
mod validate;

use crate::crd::{Crd, Version, age, column, wide};
use crate::kinds;
pub use crate::metadata::SUSPEND_ANNOTATION;

pub use listed::{APPLICATIONS, CONFIG, ListedKind, read_listed};
pub use node_group::{NodeGroup, NodeGroupSpec, NodeGroupStatus};
pub use override_policy::{
    CommandArgsOverrider, ImageComponent, ImageOverrider, ImagePredicate, OverridePolicy, OverridePolicySpec,
    OverriderOperator, Overriders, PlaintextOperator, PlaintextOverrider, RuleWithNodeGroup,
};
pub use policy_status::{
    GroupEdition, GroupPods, OverridePolicyStatus, PendingPods, PodMove, PolicyApplication, PropagationPolicyStatus,
};
pub use propagation_policy::{
    NumRange, PropagationPolicy, PropagationPolicySpec, PropagationStrategy, StaticNodeGroupWeight,
};
pub use validate::{
    group_name, missing_in_override_policy, missing_in_propagation_policy, validate_node_group,
    validate_propagation_policy,
};

/// The API group of every kind in this module.
pub const GROUP: &str = "groupmanagement.kubeedge.io";

/// Label by which a workload asks for a PropagationPolicy of its namespace.
pub const REQUIRED_PROPAGATION_LABEL: &str = "groupmanagement.kubeedge.io/required-propagationpolicy";

/// Label by which a workload asks for an OverridePolicy of its namespace.
pub const REQUIRED_OVERRIDE_LABEL: &str = "groupmanagement.kubeedge.io/required-overridepolicy";

/// Label by which dapple confirms a workload's PropagationPolicy.
pub const BINDING_PROPAGATION_LABEL: &str = "groupmanagement.kubeedge.io/binding-propagationpolicy";

/// Label by which dapple confirms a workload's OverridePolicy.
pub const BINDING_OVERRIDE_LABEL: &str = "groupmanagement.kubeedge.io/binding-overridepolicy";

/// What the labels begin with that nodes of a group get which names nodes. No other label does.
pub const NODE_LABEL_PREFIX: &str = "group.dapple.dev/";

pub(crate) fn crds() -> Vec<Crd> {
    let group_columns = vec![
        column("Nodes", "integer", ".status.nodeCount", "Nodes in the group"),
        age(),
        wide("Labels", "string", ".spec.matchLabels", "Labels that put a node into the group"),
    ];
    let ready =
        || column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", "Whether it is in effect");
    let applications = || column("Applications", "integer", ".status.applicationCount", "Applications that follow it");
    let pods = |text| column("Pods", "integer", ".status.pods", text);
    let propagation_columns = vec![
        column("Strategy", "string", ".spec.propagationStrategy", "How pods are divided"),
        ready(),
        applications(),
        pods("Pods that it divides"),
        column("Pending", "integer", ".status.pending", "Pods without a node"),
        column("Misplaced", "integer", ".status.misplaced", "Pods in another group than should have them"),
        age(),
    ];
    let override_columns = vec![
        ready(),
        applications(),
        pods("Pods in groups"),
        column("Updated", "integer", ".status.updated", "Pods that have the edition of their group"),
        age(),
    ];
    vec![
        Crd { kind: &kinds::NODE_GROUP, versions: vec![Version::of::<NodeGroup>(group_columns)] },
        Crd { kind: &kinds::PROPAGATION_POLICY, versions: vec![Version::of::<PropagationPolicy>(propagation_columns)] },
        Crd { kind: &kinds::OVERRIDE_POLICY, versions: vec![Version::of::<OverridePolicy>(override_columns)] },
    ]
}

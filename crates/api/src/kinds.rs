//! The one table of kinds: those that users write for dapple, and those of Kubernetes that planning looks at. Everything that
//! has to know where a kind is, or what there is of it, goes by it: CRDs, types, caches, webhooks, families, the planner's
//! world, and words on the command line.

use serde_json::Value;

mod kubernetes;

pub use kubernetes::of_kubernetes;

/// Where the API server keeps a kind, in the version that dapple reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindInfo {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind, as in manifests.
    pub kind: &'static str,
    /// Plural, as in paths.
    pub plural: &'static str,
}

impl KindInfo {
    /// As in manifests: `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// With its group, where several groups may have a kind of this name: `DaemonSet.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }
}

/// A version of a kind beside the one that is stored. Objects of it are none of dapple's business before they are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherVersion {
    /// Its name.
    pub name: &'static str,
    /// Whether it is served, and how.
    pub serving: Serving,
}

/// How a version beside the stored one is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// Not at all. It is only declared: then objects that another product stored in it don't stand in the way of replacing that
    /// product's CRD.
    Declared,
    /// Its fields mean what they mean in the stored version: the API server needs nobody to convert it.
    AsStored,
    /// dapple converts it, so that it is served once a manager answers the API server.
    Converted,
}

/// The kinds that users write for dapple, for those who do something else for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the table says what each is")]
pub enum Name {
    DaemonSet,
    PodMarker,
    NodePodProbe,
    NodeGroup,
    PropagationPolicy,
    OverridePolicy,
    NodePool,
    YurtAppSet,
    YurtAppDaemon,
    Replacement,
}

/// A kind that users write for dapple.
#[derive(Debug)]
pub struct OwnKind {
    /// Which one it is.
    pub name: Name,
    /// Where it is. This version is the one that is stored.
    pub at: KindInfo,
    /// Its other versions, newest first.
    pub other_versions: &'static [OtherVersion],
    /// What kubectl users call it.
    pub short_names: &'static [&'static str],
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// The family that serves it: the name of a module in every layer.
    pub family: &'static str,
    /// Whether `dapple plan` looks at it.
    pub is_planned: bool,
    /// Whether it makes pods, so that `dapple plan` has a plan of each.
    pub is_workload: bool,
}

impl OwnKind {
    /// The name of its CustomResourceDefinition.
    pub fn crd(&self) -> String {
        format!("{}.{}", self.at.plural, self.at.group)
    }

    /// The versions that are served where a manager converts: the stored one first.
    pub fn served_versions(&self) -> impl Iterator<Item = &'static str> + use<> {
        let others = self.other_versions.iter().filter(|other| other.serving != Serving::Declared);
        [self.at.version].into_iter().chain(others.map(|other| other.name))
    }

    /// How a version beside the stored one is served; none of another version.
    pub fn serving(&self, version: &str) -> Option<Serving> {
        self.other_versions.iter().find(|other| other.name == version).map(|other| other.serving)
    }

    /// Whether dapple converts objects between its versions.
    pub fn is_converted(&self) -> bool {
        self.other_versions.iter().any(|other| other.serving == Serving::Converted)
    }

    /// Its scope, as the API has it.
    pub const fn scope(&self) -> &'static str {
        if self.is_namespaced { "Namespaced" } else { "Cluster" }
    }
}

const fn own(
    name: Name,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> OwnKind {
    OwnKind {
        name,
        at: KindInfo { group, version, kind, plural },
        other_versions: &[],
        short_names: &[],
        is_namespaced: true,
        family: "",
        is_planned: true,
        is_workload: false,
    }
}

const KRUISE: &str = crate::daemonset::GROUP;
const GROUPS: &str = crate::group::GROUP;
const YURT: &str = crate::pool::GROUP;

/// DaemonSets with patches.
pub const DAEMON_SET: OwnKind = OwnKind {
    other_versions: &[OtherVersion { name: "v1alpha1", serving: Serving::Converted }],
    short_names: &["daemon", "ads"],
    family: "daemonset",
    is_workload: true,
    ..own(Name::DaemonSet, KRUISE, "v1beta1", "DaemonSet", "daemonsets")
};

/// Markers of pods.
pub const POD_MARKER: OwnKind = OwnKind {
    short_names: &["pmark"],
    family: "marker",
    is_planned: false,
    ..own(Name::PodMarker, crate::marker::GROUP, "v1alpha1", "PodMarker", "podmarkers")
};

/// What is to be probed on a node.
pub const NODE_POD_PROBE: OwnKind = OwnKind {
    is_namespaced: false,
    family: "marker",
    is_planned: false,
    ..own(Name::NodePodProbe, crate::marker::PROBE_GROUP, "v1alpha1", "NodePodProbe", "nodepodprobes")
};

/// Groups of nodes.
pub const NODE_GROUP: OwnKind = OwnKind {
    short_names: &["ng"],
    is_namespaced: false,
    family: "group",
    ..own(Name::NodeGroup, GROUPS, "v1alpha1", "NodeGroup", "nodegroups")
};

/// How an application is spread over groups.
pub const PROPAGATION_POLICY: OwnKind = OwnKind {
    short_names: &["gpp"],
    family: "group",
    ..own(Name::PropagationPolicy, GROUPS, "v1alpha1", "PropagationPolicy", "propagationpolicies")
};

/// What differs from group to group.
pub const OVERRIDE_POLICY: OwnKind = OwnKind {
    short_names: &["gop"],
    family: "group",
    ..own(Name::OverridePolicy, GROUPS, "v1alpha1", "OverridePolicy", "overridepolicies")
};

/// Pools of nodes.
pub const NODE_POOL: OwnKind = OwnKind {
    other_versions: &[OtherVersion { name: "v1alpha1", serving: Serving::AsStored }],
    short_names: &["np"],
    is_namespaced: false,
    family: "pool",
    ..own(Name::NodePool, YURT, "v1beta1", "NodePool", "nodepools")
};

/// A workload in each of some pools.
pub const YURT_APP_SET: OwnKind = OwnKind {
    other_versions: &[OtherVersion { name: "v1beta1", serving: Serving::Declared }],
    short_names: &["yas"],
    family: "pool",
    is_workload: true,
    ..own(Name::YurtAppSet, YURT, "v1alpha1", "YurtAppSet", "yurtappsets")
};

/// A workload in every pool.
pub const YURT_APP_DAEMON: OwnKind = OwnKind {
    short_names: &["yad"],
    family: "pool",
    is_workload: true,
    ..own(Name::YurtAppDaemon, YURT, "v1alpha1", "YurtAppDaemon", "yurtappdaemons")
};

/// What differs from pool to pool.
pub const REPLACEMENT: OwnKind = OwnKind {
    short_names: &["yacr"],
    family: "pool",
    ..own(Name::Replacement, YURT, "v1alpha1", "YurtAppConfigurationReplacement", "yurtappconfigurationreplacements")
};

/// All of them: families in order, kinds in the order their documentation has.
pub const OWN: [&OwnKind; 10] = [
    &DAEMON_SET,
    &POD_MARKER,
    &NODE_POD_PROBE,
    &NODE_GROUP,
    &PROPAGATION_POLICY,
    &OVERRIDE_POLICY,
    &NODE_POOL,
    &YURT_APP_SET,
    &YURT_APP_DAEMON,
    &REPLACEMENT,
];

/// Nodes.
pub const NODE: KindInfo = KindInfo { group: "", version: "v1", kind: "Node", plural: "nodes" };
/// Pods.
pub const POD: KindInfo = KindInfo { group: "", version: "v1", kind: "Pod", plural: "pods" };
/// Settings.
pub const CONFIG_MAP: KindInfo = KindInfo { group: "", version: "v1", kind: "ConfigMap", plural: "configmaps" };
/// Revisions.
pub const CONTROLLER_REVISION: KindInfo =
    KindInfo { group: "apps", version: "v1", kind: "ControllerRevision", plural: "controllerrevisions" };
/// Leases.
pub const LEASE: KindInfo = KindInfo { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases" };
/// Claims of volumes.
pub const PERSISTENT_VOLUME_CLAIM: KindInfo =
    KindInfo { group: "", version: "v1", kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims" };
/// Volumes.
pub const PERSISTENT_VOLUME: KindInfo =
    KindInfo { group: "", version: "v1", kind: "PersistentVolume", plural: "persistentvolumes" };
/// Classes of volumes.
pub const STORAGE_CLASS: KindInfo =
    KindInfo { group: "storage.k8s.io", version: "v1", kind: "StorageClass", plural: "storageclasses" };
/// How many pods may be away at once, as people allow it.
pub const POD_DISRUPTION_BUDGET: KindInfo =
    KindInfo { group: "policy", version: "v1", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets" };
/// Definitions of kinds.
pub const CUSTOM_RESOURCE_DEFINITION: KindInfo = KindInfo {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};

/// A workload of Kubernetes.
#[derive(Debug)]
pub struct NativeKind {
    /// Where it is.
    pub at: KindInfo,
    /// What kubectl users call it.
    pub short_names: &'static [&'static str],
    /// The field that has its pod template.
    pub template_field: &'static str,
}

const fn native(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
) -> NativeKind {
    let at = KindInfo { group, version: "v1", kind, plural };
    NativeKind { at, short_names, template_field: "spec.template" }
}

/// DaemonSets of Kubernetes.
pub const NATIVE_DAEMON_SET: NativeKind = native("apps", "DaemonSet", "daemonsets", &["ds"]);

/// Deployments.
pub const NATIVE_DEPLOYMENT: NativeKind = native("apps", "Deployment", "deployments", &["deploy"]);

/// StatefulSets, whose pods may be of several revisions.
pub const NATIVE_STATEFUL_SET: NativeKind = native("apps", "StatefulSet", "statefulsets", &["sts"]);

/// Jobs, which count every pod that is deleted as failed.
pub const NATIVE_JOB: NativeKind = native("batch", "Job", "jobs", &[]);

/// Kubernetes' own workloads, which may ask for a policy.
pub const NATIVE: &[NativeKind] = &[
    NATIVE_DAEMON_SET,
    NATIVE_DEPLOYMENT,
    NATIVE_STATEFUL_SET,
    native("apps", "ReplicaSet", "replicasets", &["rs"]),
    native("", "ReplicationController", "replicationcontrollers", &["rc"]),
    NATIVE_JOB,
    NativeKind { template_field: "spec.jobTemplate.spec.template", ..native("batch", "CronJob", "cronjobs", &["cj"]) },
];

/// The kind of dapple's own that objects of this group and kind are, whatever their version.
pub fn find(group: &str, kind: &str) -> Option<&'static OwnKind> {
    OWN.into_iter().find(|own| own.at.group == group && own.at.kind == kind)
}

/// The kind of dapple's own that an object is of, and the version that it is written in.
pub fn of(object: &Value) -> Option<(&'static OwnKind, &str)> {
    let (group, version) = object.get("apiVersion")?.as_str()?.split_once('/')?;
    Some((find(group, object.get("kind")?.as_str()?)?, version))
}

/// The workload of Kubernetes that objects of this group and kind are, whatever their version.
pub fn find_native(group: &str, kind: &str) -> Option<&'static NativeKind> {
    NATIVE.iter().find(|native| native.at.group == group && native.at.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_kinds_have_a_word_or_a_path_in_common() {
        let paths: BTreeSet<String> = OWN.iter().map(|own| own.crd()).collect();
        assert_eq!(paths.len(), OWN.len());
        assert_eq!(OWN.iter().map(|own| own.name).collect::<BTreeSet<_>>().len(), OWN.len());
        let words = OWN.iter().flat_map(|own| own.short_names.iter().chain([&own.at.plural]));
        assert_eq!(words.clone().collect::<BTreeSet<_>>().len(), words.count());
        assert!(OWN.iter().all(|own| find(own.at.group, own.at.kind).is_some_and(|found| found.at == own.at)));
    }

    #[test]
    fn kinds_of_kubernetes_are_known_and_none_of_ours_is_one() {
        for known in NATIVE.iter().map(|native| native.at).chain([NODE, POD, CONTROLLER_REVISION]) {
            assert!(of_kubernetes(known.group).contains(&known.kind), "{known:?}");
        }
        assert!(OWN.iter().all(|own| of_kubernetes(own.at.group).is_empty()));
    }

    #[test]
    fn every_kind_has_a_family() {
        for own in OWN {
            assert!(!own.family.is_empty(), "{}", own.at.kind);
        }
    }

    #[test]
    fn crds_are_of_these_kinds_and_versions_in_this_order() {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let made = crate::crd::crds().into_iter().map(|crd| {
            let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
            let versions = versions.map(|of| (text(&of["name"]), of["storage"] == true, of["served"] == true));
            (text(&crd["metadata"]["name"]), versions.collect::<Vec<_>>())
        });
        let wanted = OWN.into_iter().map(|own| {
            let is_served = |other: &OtherVersion| other.serving == Serving::AsStored;
            let others = own.other_versions.iter().map(|other| (other.name.to_owned(), false, is_served(other)));
            (own.crd(), [(own.at.version.to_owned(), true, true)].into_iter().chain(others).collect::<Vec<_>>())
        });
        assert_eq!(made.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_only_declared_is_served_beside_what_is_stored() {
        for own in OWN {
            let served: Vec<&str> = own.served_versions().collect();
            assert_eq!(served[0], own.at.version, "{}", own.at.kind);
            assert_eq!(own.serving(own.at.version), None, "{}", own.at.kind);
            for other in own.other_versions {
                assert_eq!(served.contains(&other.name), other.serving != Serving::Declared, "{own:?}");
                assert_eq!(own.serving(other.name), Some(other.serving), "{own:?}");
            }
        }
        assert!(DAEMON_SET.is_converted() && !NODE_POOL.is_converted() && !YURT_APP_SET.is_converted());
        assert_eq!(NODE.api_version(), "v1");
    }
}

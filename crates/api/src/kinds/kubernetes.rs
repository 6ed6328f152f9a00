//! The kinds of Kubernetes itself, for telling a misspelt kind from one that is none of dapple's business.

/// Groups of Kubernetes, with the kinds that people write. Versions do not count.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("apps", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("certificates.k8s.io", &["CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"]),
    ("coordination.k8s.io", &["Lease", "LeaseCandidate"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("events.k8s.io", &["Event"]),
    ("flowcontrol.apiserver.k8s.io", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("resource.k8s.io", &["DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"]),
    ("scheduling.k8s.io", &["PodGroup", "PriorityClass", "Workload"]),
    (
        "storage.k8s.io",
        &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"],
    ),
    ("storagemigration.k8s.io", &["StorageVersionMigration"]),
];

/// The kinds of a group of Kubernetes; none of any other group.
pub fn of_kubernetes(group: &str) -> &'static [&'static str] {
    GROUPS.iter().find(|(known, _)| *known == group).map_or(&[], |(_, kinds)| kinds)
}

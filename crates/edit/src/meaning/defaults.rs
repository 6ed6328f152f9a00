//! What Kubernetes puts into fields of a pod that are absent, or that say nothing in Go.
//!
//! From `pkg/apis/core/v1/defaults.go` and the `+default` markers of `k8s.io/api/core/v1`. Zero, false and empty text are
//! as good as absent only where Go has no pointer: `securityContext.privileged: false`, say, is kept in the pod.

use serde_json::{Map, Value};

use crate::amount;
use crate::image::Image;

/// Fields of some types, with what is as good as absent there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// The form of hash since which this counts. Earlier forms never heard of it.
    pub(super) since: u8,
    /// The types, by their names in Kubernetes.
    pub(super) of: &'static [&'static str],
    /// Their fields.
    pub(super) fields: &'static [(&'static str, Filled)],
}

/// What a field gets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Filled {
    /// Text.
    Text(&'static str),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Bool(bool),
    /// An amount of nothing.
    NoAmount,
    /// The policy that follows from the image in another field.
    PullPolicy(&'static str),
}

use Filled::{Bool, NoAmount, Number, PullPolicy, Text};

const EMPTY: Filled = Text("");
const ZERO: Filled = Number(0);
const NO: Filled = Bool(false);

/// All that is known. What is added gets the next form, once a version with this one is released.
pub(super) const DEFAULTS: &[Defaults] = &[
    // Of workloads, from `pkg/apis/apps/v1/defaults.go`. No pod template has these types.
    Defaults {
        since: 2,
        of: &["DeploymentSpec"],
        fields: &[
            ("replicas", Number(1)),
            ("progressDeadlineSeconds", Number(600)),
            ("revisionHistoryLimit", Number(10)),
            ("minReadySeconds", ZERO),
            ("paused", NO),
        ],
    },
    Defaults {
        since: 2,
        of: &["StatefulSetSpec"],
        fields: &[
            ("replicas", Number(1)),
            ("podManagementPolicy", Text("OrderedReady")),
            ("podManagementPolicy", EMPTY),
            ("revisionHistoryLimit", Number(10)),
            ("minReadySeconds", ZERO),
            ("serviceName", EMPTY),
        ],
    },
    Defaults {
        since: 2,
        of: &["DeploymentStrategy", "StatefulSetUpdateStrategy"],
        fields: &[("type", Text("RollingUpdate")), ("type", EMPTY)],
    },
    Defaults {
        since: 2,
        of: &["RollingUpdateDeployment"],
        fields: &[("maxSurge", Text("25%")), ("maxUnavailable", Text("25%"))],
    },
    Defaults {
        since: 2,
        of: &["RollingUpdateStatefulSetStrategy"],
        fields: &[("partition", ZERO), ("maxUnavailable", Number(1))],
    },
    Defaults {
        since: 2,
        of: &["StatefulSetPersistentVolumeClaimRetentionPolicy"],
        fields: &[("whenDeleted", Text("Retain")), ("whenScaled", Text("Retain"))],
    },
    Defaults {
        since: 2,
        of: &["PersistentVolumeClaim"],
        fields: &[("apiVersion", Text("v1")), ("kind", Text("PersistentVolumeClaim"))],
    },
    Defaults { since: 2, of: &["PersistentVolumeClaimStatus"], fields: &[("phase", Text("Pending"))] },
    Defaults {
        since: 2,
        of: &["PodSpec"],
        fields: &[
            ("restartPolicy", Text("Always")),
            ("restartPolicy", EMPTY),
            ("dnsPolicy", Text("ClusterFirst")),
            ("dnsPolicy", EMPTY),
            ("schedulerName", Text("default-scheduler")),
            ("schedulerName", EMPTY),
            ("terminationGracePeriodSeconds", Number(30)),
            ("enableServiceLinks", Bool(true)),
            ("hostNetwork", NO),
            ("hostPID", NO),
            ("hostIPC", NO),
            ("nodeName", EMPTY),
            ("hostname", EMPTY),
            ("subdomain", EMPTY),
            ("serviceAccountName", EMPTY),
            ("serviceAccount", EMPTY),
            ("priorityClassName", EMPTY),
        ],
    },
    Defaults {
        since: 2,
        of: &["Container"],
        fields: &[
            ("terminationMessagePath", Text("/dev/termination-log")),
            ("terminationMessagePath", EMPTY),
            ("terminationMessagePolicy", Text("File")),
            ("terminationMessagePolicy", EMPTY),
            ("imagePullPolicy", PullPolicy("image")),
            ("imagePullPolicy", EMPTY),
            ("workingDir", EMPTY),
            ("stdin", NO),
            ("stdinOnce", NO),
            ("tty", NO),
        ],
    },
    Defaults {
        since: 2,
        of: &["ContainerPort"],
        fields: &[
            ("protocol", Text("TCP")),
            ("protocol", EMPTY),
            ("name", EMPTY),
            ("hostIP", EMPTY),
            ("hostPort", ZERO),
        ],
    },
    Defaults {
        since: 2,
        of: &["Probe"],
        fields: &[
            ("timeoutSeconds", Number(1)),
            ("timeoutSeconds", ZERO),
            ("periodSeconds", Number(10)),
            ("periodSeconds", ZERO),
            ("successThreshold", Number(1)),
            ("successThreshold", ZERO),
            ("failureThreshold", Number(3)),
            ("failureThreshold", ZERO),
            ("initialDelaySeconds", ZERO),
        ],
    },
    Defaults {
        since: 2,
        of: &["HTTPGetAction"],
        fields: &[("scheme", Text("HTTP")), ("scheme", EMPTY), ("path", Text("/")), ("path", EMPTY), ("host", EMPTY)],
    },
    Defaults { since: 2, of: &["TCPSocketAction"], fields: &[("host", EMPTY)] },
    Defaults { since: 2, of: &["GRPCAction"], fields: &[("service", EMPTY)] },
    Defaults { since: 2, of: &["EnvVar"], fields: &[("value", EMPTY)] },
    Defaults { since: 2, of: &["EnvFromSource"], fields: &[("prefix", EMPTY)] },
    Defaults { since: 2, of: &["ObjectFieldSelector"], fields: &[("apiVersion", Text("v1")), ("apiVersion", EMPTY)] },
    Defaults { since: 2, of: &["ResourceFieldSelector"], fields: &[("divisor", NoAmount), ("containerName", EMPTY)] },
    Defaults { since: 2, of: &["FileKeySelector"], fields: &[("optional", NO)] },
    Defaults {
        since: 2,
        of: &["VolumeMount"],
        fields: &[("readOnly", NO), ("subPath", EMPTY), ("subPathExpr", EMPTY)],
    },
    Defaults {
        since: 2,
        of: &["Toleration"],
        fields: &[("key", EMPTY), ("operator", EMPTY), ("value", EMPTY), ("effect", EMPTY)],
    },
    Defaults {
        since: 2,
        of: &["SELinuxOptions"],
        fields: &[("user", EMPTY), ("role", EMPTY), ("type", EMPTY), ("level", EMPTY)],
    },
    Defaults {
        since: 2,
        of: &["ConfigMapVolumeSource", "SecretVolumeSource", "ProjectedVolumeSource", "DownwardAPIVolumeSource"],
        fields: &[("defaultMode", Number(0o644))],
    },
    Defaults {
        since: 2,
        of: &["ServiceAccountTokenProjection"],
        fields: &[("expirationSeconds", Number(3600)), ("audience", EMPTY)],
    },
    Defaults { since: 2, of: &["HostPathVolumeSource"], fields: &[("type", EMPTY)] },
    Defaults { since: 2, of: &["EmptyDirVolumeSource"], fields: &[("medium", EMPTY)] },
    Defaults {
        since: 2,
        of: &["ImageVolumeSource"],
        fields: &[("pullPolicy", PullPolicy("reference")), ("pullPolicy", EMPTY)],
    },
    Defaults { since: 2, of: &["PersistentVolumeClaimSpec"], fields: &[("volumeMode", Text("Filesystem"))] },
    Defaults {
        since: 2,
        of: &["ISCSIVolumeSource"],
        fields: &[
            ("iscsiInterface", Text("default")),
            ("iscsiInterface", EMPTY),
            ("chapAuthDiscovery", NO),
            ("chapAuthSession", NO),
        ],
    },
    Defaults {
        since: 2,
        of: &["RBDVolumeSource"],
        fields: &[
            ("pool", Text("rbd")),
            ("pool", EMPTY),
            ("user", Text("admin")),
            ("user", EMPTY),
            ("keyring", Text("/etc/ceph/keyring")),
            ("keyring", EMPTY),
        ],
    },
    Defaults {
        since: 2,
        of: &["AzureDiskVolumeSource"],
        fields: &[
            ("cachingMode", Text("ReadWrite")),
            ("fsType", Text("ext4")),
            ("kind", Text("Shared")),
            ("readOnly", NO),
        ],
    },
    Defaults {
        since: 2,
        of: &["ScaleIOVolumeSource"],
        fields: &[
            ("storageMode", Text("ThinProvisioned")),
            ("storageMode", EMPTY),
            ("fsType", Text("xfs")),
            ("fsType", EMPTY),
            ("sslEnabled", NO),
        ],
    },
    Defaults {
        since: 2,
        of: &[
            "AWSElasticBlockStoreVolumeSource",
            "AzureFileVolumeSource",
            "CephFSVolumeSource",
            "CinderVolumeSource",
            "FCVolumeSource",
            "FlexVolumeSource",
            "GCEPersistentDiskVolumeSource",
            "GlusterfsVolumeSource",
            "ISCSIVolumeSource",
            "NFSVolumeSource",
            "PersistentVolumeClaimVolumeSource",
            "PortworxVolumeSource",
            "QuobyteVolumeSource",
            "RBDVolumeSource",
            "ScaleIOVolumeSource",
            "StorageOSVolumeSource",
        ],
        fields: &[("readOnly", NO)],
    },
];

impl Filled {
    /// Whether a value in an object of a type is what the field gets.
    pub(super) fn is(self, value: &Value, object: &Map<String, Value>) -> bool {
        match self {
            Text(text) => value == text,
            Number(number) => *value == number,
            Bool(is_so) => *value == is_so,
            NoAmount => amount::nanos(value) == Some(0),
            PullPolicy(field) => value == pull_policy(object.get(field)),
        }
    }
}

fn pull_policy(image: Option<&Value>) -> &'static str {
    let parsed = image.and_then(Value::as_str).and_then(|image| image.parse::<Image>().ok());
    match parsed.map(|image| image.is_latest()) {
        Some(false) => "IfNotPresent",
        _ => "Always",
    }
}

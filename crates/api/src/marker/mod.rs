//! Marking pods with labels and annotations, by number, labels, nodes and probes: PodMarker, and NodePodProbe, by which
//! dapple and its node agents exchange probes and results.

mod keys;
mod node_pod_probe;
mod pod_marker;
mod validate;

use crate::crd::{Crd, Version, age, column, wide};
use crate::kinds;

pub use keys::{Reserved, reserved};
pub use node_pod_probe::{
    ContainerProbe, ContainerProbeState, NodePodProbe, NodePodProbeSpec, NodePodProbeStatus, PodProbe, PodProbeStatus,
    ProbeState,
};
pub use pod_marker::{
    ConflictPolicy, ContainerName, MarkItems, MatchPreference, MatchRequirements, PodMarker, PodMarkerSpec,
    PodMarkerStatus, PodMarkerStrategy, PodProbeRequirement, ProbeExpectation, SpecChange,
};
pub use validate::validate;

/// The API group of PodMarker.
pub const GROUP: &str = "apps.kruise.io";

/// The API group of NodePodProbe: no design names that kind, and OpenKruise serves another of its name.
pub const PROBE_GROUP: &str = "dapple.dev";

/// Annotation on a marked pod: the names of the markers that marked it, sorted, with commas.
pub const MARKED_BY_ANNOTATION: &str = "kruise.io/marked-by-podmarker";

/// Annotation on a marked pod: the marks that markers set, and what they found in their place.
pub const MARKS_ANNOTATION: &str = "dapple.dev/marks";

/// The namespace of the probers, and of their Leases: one for each node with probes, of the node's name. It is none of the
/// manager's, so that no prober reaches the manager's Lease.
pub const PROBER_NAMESPACE: &str = "dapple-probers";

pub(crate) fn crds() -> Vec<Crd> {
    let count = |name, field: &str, description| column(name, "integer", &format!(".status.{field}"), description);
    let marker_columns = vec![
        count("Desired", "desired", "Pods that should be marked"),
        count("Succeeded", "succeeded", "Pods that are marked"),
        count("Matched", "matched", "Pods that match"),
        count("Waiting", "waiting", "Pods that wait for their turn"),
        count("Failed", "failed", "Pods that could not be marked"),
        age(),
        wide("Replicas", "string", ".spec.strategy.replicas", "How many pods the marker asks for"),
        wide("Conflicting", "integer", ".status.conflicting", "Pods with values that the marker leaves alone"),
        wide("Unknown", "integer", ".status.unknown", "Pods of which it is not known whether they match"),
    ];
    vec![
        Crd { kind: &kinds::POD_MARKER, versions: vec![Version::of::<PodMarker>(marker_columns)] },
        Crd { kind: &kinds::NODE_POD_PROBE, versions: vec![Version::of::<NodePodProbe>(vec![age()])] },
    ]
}

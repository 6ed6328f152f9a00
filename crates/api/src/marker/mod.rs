//! Marking pods with labels and annotations, by number, labels, nodes and probes: PodMarker, and NodePodProbe, by which
//! dapple and its node agents exchange probes and results.

mod node_pod_probe;
mod pod_marker;
mod validate;

use crate::crd::{Crd, Version, age, column, wide};
use crate::kinds;

pub use node_pod_probe::{
    ContainerProbe, ContainerProbeState, NodePodProbe, NodePodProbeSpec, NodePodProbeStatus, PodProbe, PodProbeStatus,
    ProbeState,
};
pub use pod_marker::{
    ConflictPolicy, ContainerName, MarkItems, MatchPreference, MatchRequirements, PodMarker, PodMarkerSpec,
    PodMarkerStatus, PodMarkerStrategy, PodProbeRequirement, ProbeExpectation,
};
pub use validate::validate;

/// The API group of every kind in this module.
pub const GROUP: &str = "apps.kruise.io";

/// Annotation on a marked pod: the names of the markers that marked it, sorted, with commas.
pub const MARKED_BY_ANNOTATION: &str = "kruise.io/marked-by-podmarker";

pub(crate) fn crds() -> Vec<Crd> {
    let count = |name, field: &str, description| column(name, "integer", &format!(".status.{field}"), description);
    let marker_columns = vec![
        count("Desired", "desired", "Pods that should be marked"),
        count("Succeeded", "succeeded", "Pods that are marked"),
        count("Failed", "failed", "Pods that could not be marked"),
        age(),
        wide("Replicas", "string", ".spec.strategy.replicas", "How many pods the marker asks for"),
    ];
    vec![
        Crd { kind: &kinds::POD_MARKER, versions: vec![Version::of::<PodMarker>(marker_columns)] },
        Crd { kind: &kinds::NODE_POD_PROBE, versions: vec![Version::of::<NodePodProbe>(vec![age()])] },
    ]
}

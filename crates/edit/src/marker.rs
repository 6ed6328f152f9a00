//! Markers: what is to be said of a PodMarker, the fields of its probes included, and how marks are set on a pod and taken off.

mod marks;
mod record;

use dapple_api::marker::{self, PodMarker};
use dapple_api::verdict::Verdict;

pub use self::marks::{Change, mark, unmark, wanted};
pub use self::record::{Entry, OwnerKeys, Place, Record};

use crate::check::{check_value, shape_at, tell};
use crate::schema::POD_TEMPLATE;

/// Everything that is to be said of a PodMarker.
pub fn validate(marker: &PodMarker) -> Verdict {
    let mut verdict = marker::validate(marker);
    let probes = marker.spec.match_requirements.iter().flat_map(|requirements| &requirements.pod_probes);
    for (index, requirement) in probes.enumerate() {
        let field = format!("spec.matchRequirements.podProbes[{index}].probe");
        if let Ok(shape) = shape_at(POD_TEMPLATE, ["spec", "containers", "0", "readinessProbe"]) {
            tell(check_value(shape, &requirement.probe.0), &field, &mut verdict);
        }
    }
    verdict
}

//! PodMarkers in the simulator. What nodes are to probe is the managers' to write; probers, which write what came of it, are played by
//! events of the script.

mod brake;
mod changes;
mod end;
pub mod played;
pub mod properties;
mod results;
pub mod script;

use dapple_api::marker::MARKS_ANNOTATION;
use dapple_edit::marker::{OwnerKeys, Record};
use serde_json::{Value, json};

use crate::object::text;

/// The resources, as the server names them.
pub const MARKERS: &str = "podmarkers.apps.kruise.io";
pub const RESULTS: &str = "nodepodprobes.dapple.dev";

/// The marker whose pods are replaced; how many it marks, no other event has to do with it.
pub const KEPT: &str = "kept";
/// The marker that goes by a probe.
pub const PROBED: &str = "probed";

/// The probe of the marker that goes by one, in the container `c`.
pub fn probe() -> Value {
    json!({"exec": {"command": ["cat", "/tmp/healthy"]}})
}

/// What a pod remembers of markers.
fn record(pod: &Value) -> Record {
    Record::read(pod["metadata"]["annotations"][MARKS_ANNOTATION].as_str(), &OwnerKeys::None)
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

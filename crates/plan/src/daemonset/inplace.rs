//! Changing a pod of a DaemonSet where it runs: as [`crate::inplace`] does it, with what tells its revision.

use serde_json::{Value, json};

use super::lifecycle;
use super::pod::{HASH_LABEL, REVISION_ANNOTATION};
pub use crate::inplace::*;

/// The strategic merge patch that changes the pod, but for cpu and memory: these it notes, for [`resize`]. It does nothing
/// to another pod of that name, nor to one that has changed since.
pub fn edit(difference: &Difference, target: &Target<'_>) -> Value {
    let mut patch = change(difference, target);
    let metadata = &mut patch["metadata"];
    metadata["labels"][HASH_LABEL] = json!(target.hash);
    metadata["annotations"][REVISION_ANNOTATION] = json!(target.revision);
    metadata["annotations"][GRACE_ANNOTATION] = Value::Null;
    metadata["annotations"][RESIZE_ANNOTATION] = json!(noted(target.pending, difference, target.hash));
    if let Some(name) = target.lifecycle {
        metadata["labels"][lifecycle::STATE_LABEL] = json!(name);
        metadata["annotations"][lifecycle::TIMESTAMP_ANNOTATION] = json!(target.now);
    }
    patch
}

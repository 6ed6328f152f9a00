//! What objects of several kinds say alike.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

/// A condition that describes the object as it is now.
pub(crate) fn fresh<'a>(conditions: &'a [Condition], metadata: &ObjectMeta, kind: &str) -> Option<&'a Condition> {
    let found = conditions.iter().find(|known| known.type_ == kind)?;
    let is_fresh = |seen: i64| seen >= metadata.generation.unwrap_or(0);
    found.observed_generation.is_none_or(is_fresh).then_some(found)
}

/// When an object was made.
pub(crate) fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
}

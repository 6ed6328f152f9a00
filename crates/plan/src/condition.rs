//! Conditions of objects whose status dapple writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Type, whether it holds, reason and message of a condition.
pub(crate) type Found = (&'static str, bool, &'static str, String);

/// A condition. One that says the same as before keeps its time.
pub(crate) fn condition(found: Found, generation: Option<i64>, before: &[Condition], now: &Time) -> Condition {
    let (kind, is_true, reason, message) = found;
    let status = if is_true { "True" } else { "False" };
    let known = before.iter().find(|known| known.type_ == kind && known.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: known.map_or(now, |known| &known.last_transition_time).clone(),
    }
}

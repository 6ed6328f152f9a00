//! What is told of a marker, and when to look at it again.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_api::kinds::POD_MARKER;
use dapple_api::marker::PodMarkerStatus;
use dapple_plan::marker::allowance::Limit;
use dapple_plan::marker::choice::Numbers;
use dapple_plan::marker::rule::{Replicas, Unusable};
use dapple_plan::marker::status::{Facts, Held, status};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::cache::Marker;
use super::metrics;
use super::site::Site;
use super::view::View;
use crate::writes::events::{EventType, Report};

/// What is told of a marker after a look.
pub(super) struct Told {
    pub(super) status: PodMarkerStatus,
    /// What is counted of it.
    pub(super) numbers: metrics::Numbers,
    /// How long until it is to be looked at again, though nothing is told.
    pub(super) wake: Option<Duration>,
}

/// How soon to look again where our view is behind.
pub(super) const ECHO: Duration = Duration::from_secs(1);
/// Nothing is looked at more often by time alone.
const SOON: Duration = Duration::from_millis(100);

fn before(marker: &Marker) -> PodMarkerStatus {
    marker.object.status.clone().unwrap_or_default()
}

/// Of a marker that cannot be used.
pub(super) fn unusable(marker: &Marker, why: &Unusable, now: &Time) -> PodMarkerStatus {
    let (causes, outdone, doubts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let facts = Facts {
        generation: marker.object.metadata.generation,
        is_suspended: false,
        unusable: Some(why.to_string()),
        replicas: Replicas::All,
        numbers: Numbers::default(),
        failed: 0,
        causes: &causes,
        outdone: &outdone,
        doubts: &doubts,
        held: Held::default(),
        carrying_out: None,
    };
    status(&facts, &before(marker), now)
}

/// Of a marker that is kept at its site; nothing if it is not.
pub(super) fn told(site: &mut Site, view: &View, marker: &Marker, limit: Limit) -> Option<Told> {
    let (name, now) = (&marker.meta.key.name, view.now());
    let (next, outdone, rule) = (site.next(view, name, limit), site.outdone(name), site.rule(name)?);
    let memory = site.memory(name)?;
    let numbers = memory.choice.numbers();
    let of_minute = limit.of(numbers.matched);
    let held = Held {
        allowance: next.is_held.then_some(of_minute),
        resting: memory.rests.resting(now),
        seats: memory.choice.barred(now),
        is_stopped: memory.pace.stopped_until(now).is_some(),
    };
    let facts = Facts {
        generation: marker.object.metadata.generation,
        is_suspended: rule.is_suspended,
        unusable: None,
        replicas: rule.replicas,
        numbers,
        failed: memory.refusals.len(),
        causes: memory.choice.causes(),
        outdone: &outdone,
        doubts: memory.choice.doubts(),
        held,
        carrying_out: memory.carrying.as_ref().and_then(|(_, carrying)| carrying.told()),
    };
    let status = status(&facts, &before(marker), &Time(view.env.now()));
    let is_held = held != Held::default();
    let at = [
        memory.pace.stopped_until(now),
        memory.choice.next(now),
        memory.rests.next(now),
        memory.refusals.next(now),
        next.is_held.then(|| memory.allowance.next(of_minute, now)).flatten(),
        (!rule.probes.is_empty()).then(|| view.probers().next_silence()).flatten(),
    ];
    let wake = at.into_iter().flatten().min().map(|at| at.saturating_sub(now).max(SOON));
    let goes_on = next.found.is_some() && memory.pace.room(now) > 0;
    let again = if goes_on { Some(Duration::ZERO) } else { next.is_behind.then_some(ECHO) };
    Some(Told {
        status,
        numbers: metrics::Numbers { held: if is_held { numbers.waiting } else { 0 }, unknown: numbers.unknown },
        wake: again.into_iter().chain(wake).min(),
    })
}

/// The status as a merge patch that replaces the whole: what is empty now is taken out.
pub(super) fn replacing(status: &PodMarkerStatus) -> Value {
    json!({
        "observedGeneration": status.observed_generation,
        "desired": status.desired,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "matched": status.matched,
        "conflicting": status.conflicting,
        "unknown": status.unknown,
        "waiting": status.waiting,
        "carryingOut": status.carrying_out,
        "conditions": status.conditions,
    })
}

/// What is said of a marker by an Event, once nothing waits and counts have changed, or once more pods are refused.
pub(super) fn news(marker: &Marker, now: &PodMarkerStatus) -> Option<Report> {
    let before = before(marker);
    let counts = |status: &PodMarkerStatus| (status.desired, status.succeeded, status.failed);
    let is_refused = now.failed > before.failed;
    if counts(&before) == counts(now) || now.waiting > 0 && !is_refused {
        return None;
    }
    let PodMarkerStatus { desired, succeeded, failed, .. } = now;
    let refused = if *failed > 0 { format!(", {failed} could not be changed") } else { String::new() };
    Some(Report {
        about: POD_MARKER.at,
        key: marker.meta.key.clone(),
        uid: marker.meta.uid.to_string(),
        event_type: if is_refused { EventType::Warning } else { EventType::Normal },
        action: "Marking",
        reason: if is_refused { "PodsRefused" } else { "Marked" },
        note: format!("of {desired} pods that should be marked, {succeeded} are{refused}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dapple_api::marker::{PodMarker, SpecChange};

    use super::*;
    use crate::slim::{Key, Meta};

    fn marker(status: PodMarkerStatus) -> Marker {
        let meta = Meta { key: Key::new("default", "m"), uid: Arc::from("u"), version: 1 };
        Marker { meta, object: Arc::new(PodMarker { status: Some(status), ..PodMarker::default() }) }
    }

    fn counts(desired: i32, succeeded: i32, failed: i32, waiting: i32) -> PodMarkerStatus {
        PodMarkerStatus { desired, succeeded, failed, waiting, ..PodMarkerStatus::default() }
    }

    #[test]
    fn counts_are_told_once_nothing_waits_and_refusals_at_once() {
        let before = marker(counts(10, 0, 0, 10));
        let reason = |now: &PodMarkerStatus| news(&before, now).map(|report| report.reason);
        assert_eq!(reason(&counts(10, 3, 0, 7)), None, "not for each pod");
        assert_eq!(reason(&counts(10, 10, 0, 0)), Some("Marked"));
        assert_eq!(reason(&counts(10, 3, 1, 6)), Some("PodsRefused"));
        assert_eq!(reason(&counts(10, 0, 0, 3)), None);
        let refused = marker(counts(10, 9, 1, 0));
        assert_eq!(news(&refused, &counts(10, 9, 1, 0)).map(|report| report.reason), None, "it was told");
    }

    #[test]
    fn what_a_status_does_not_say_is_taken_out() {
        let carried = SpecChange { generation: 1, pods: 2 };
        let whole = replacing(&PodMarkerStatus { carrying_out: Some(carried), ..PodMarkerStatus::default() });
        assert_eq!(whole["carryingOut"], json!({"generation": 1, "pods": 2}));
        let status = PodMarkerStatus::default();
        assert!(replacing(&status)["carryingOut"].is_null());
        let fields = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
        let condition = json!({"type": "Marked", "status": "True", "reason": "Marked", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let full = serde_json::to_value(PodMarkerStatus {
            observed_generation: Some(1),
            carrying_out: Some(SpecChange::default()),
            conditions: vec![serde_json::from_value(condition).expect("a condition")],
            ..status.clone()
        });
        assert_eq!(fields(&replacing(&status)), fields(&full.unwrap()), "no field is forgotten");
    }
}

//! Whether a Deployment gets on, as its controller tells it by the deadline that it has. One without a deadline tells nothing: nobody
//! reads it.

use std::time::Duration;

use dapple_control::env::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{View, number};
use crate::health;
use crate::object::{list, text};

/// The condition.
const PROGRESSING: &str = "Progressing";
/// Its reasons, as upstream has them.
const PAUSED: &str = "DeploymentPaused";
const CREATED: &str = "NewReplicaSetCreated";
const UPDATED: &str = "ReplicaSetUpdated";
const AVAILABLE: &str = "NewReplicaSetAvailable";
const LATE: &str = "ProgressDeadlineExceeded";

/// The conditions of a Deployment that is to have this status. `is_new` says that there is no ReplicaSet of its template yet.
pub(super) fn conditions(view: &View<'_>, deployment: &Value, status: &Value, is_new: bool) -> Option<Value> {
    let deadline = deployment["spec"]["progressDeadlineSeconds"].as_i64()?;
    let before = &deployment["status"];
    let known = list(&before["conditions"]).iter().find(|known| known["type"] == PROGRESSING);
    let reason = known.map_or("", |known| text(&known["reason"]));
    let told = |is_so: &str, reason: &str| {
        let now = health::now(view.sim);
        Some(json!([{"type": PROGRESSING, "status": is_so, "reason": reason, "lastUpdateTime": now}]))
    };
    // What is as it was keeps its time.
    let next = |is_so: &str, next: &str| match known {
        Some(known) if reason == next => Some(json!([known])),
        _ => told(is_so, next),
    };
    if deployment["spec"]["paused"] == true {
        return next("Unknown", PAUSED);
    }
    if is_new {
        return next("True", CREATED);
    }
    // That pods fall after all were available is no lack of progress.
    let is_over = reason == AVAILABLE && status["replicas"] == status["updatedReplicas"];
    if is_over || is_complete(deployment, status) {
        return next("True", AVAILABLE);
    }
    let Some(known) = known.filter(|_| reason != PAUSED && !gets_on(before, status)) else {
        return told("True", UPDATED);
    };
    if reason == AVAILABLE || reason == LATE {
        return Some(json!([known]));
    }
    let since = text(&known["lastUpdateTime"]).parse::<Timestamp>().ok()?;
    let left = deadline - (view.sim.clock.now().as_second() - since.as_second());
    if left < 0 {
        return told("False", LATE);
    }
    view.look_after(deployment, Duration::from_secs(left.unsigned_abs() + 1));
    Some(json!([known]))
}

fn is_complete(deployment: &Value, status: &Value) -> bool {
    let wanted = &deployment["spec"]["replicas"];
    ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[*field] == *wanted)
}

/// Whether there are more pods of the template, more of them ready or available, or fewer of others.
fn gets_on(before: &Value, now: &Value) -> bool {
    let count = |status: &Value, field: &str| number(&status[field]).unwrap_or(0);
    let others = |status: &Value| count(status, "replicas").saturating_sub(count(status, "updatedReplicas"));
    let has_more = |field: &&str| count(now, field) > count(before, field);
    others(now) < others(before) || ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(has_more)
}

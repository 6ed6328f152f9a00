//! While the family is off, nobody takes the gate off: what waits behind it says so, and why.

use dapple_api::kinds::POD;
use dapple_plan::group::why::{Why, telling};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tracing::warn;

use super::metrics::GroupMetrics;
use super::release::gated;
use crate::family::ControllerContext;
use crate::slim::Key;
use crate::writes::events::{EventType, Report};

/// Says of pods behind the gate why nobody places them, and counts them. `text`: what is in the way. They are listed, since what is off
/// watches nothing.
pub(super) async fn tell_gated(context: ControllerContext, text: String) {
    // A standby leaves it to the leader.
    context.leading.until(|term| term != 0).await;
    let waiting = match gated(&context.client).await {
        Ok(waiting) => waiting,
        Err(error) => {
            warn!(%error, "it is not known which pods wait behind the gate");
            return;
        }
    };
    let now = context.env.now().as_second();
    let ages = waiting.iter().filter_map(|pod| Some(now - pod.creation_timestamp()?.0.as_second()));
    context.metrics.of_family::<GroupMetrics>().waiting(waiting.len(), ages.max().unwrap_or(0).max(0));
    if waiting.is_empty() {
        return;
    }
    warn!(pods = waiting.len(), why = text, "pods wait behind the gate, and nobody places them");
    let why = Why::NotServed { text };
    for pod in telling(waiting, owner_of) {
        context.recorder.report(Report {
            about: POD,
            key: Key::new(&pod.namespace().unwrap_or_default(), &pod.name_any()),
            uid: pod.uid().unwrap_or_default(),
            event_type: EventType::Warning,
            action: "Placing",
            reason: why.reason(),
            note: why.to_string(),
        });
    }
}

/// The UID of what controls a pod; its own, if nothing does.
fn owner_of(pod: &Pod) -> String {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    owner.map(|owner| owner.uid.clone()).or_else(|| pod.uid()).unwrap_or_default()
}

//! Writes to pods behind the gate: each names the pod by UID and version, and takes the gate off with all that goes with it.

use std::sync::Arc;

use dapple_api::kinds::POD;
use dapple_plan::group::costs::{DELETION_COST, SEAT};
use dapple_plan::group::placing::{GATE, Placement};
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, Patch};
use serde_json::{Map, Value, json};

use crate::caches::store::Store;
use crate::observed::Observed;
use crate::slim::Pod;
use crate::writes::outcome::{Outcome, Writer, exactly};

/// Writes to pods.
pub(super) struct Gates {
    pub(super) client: Client,
    pub(super) pods: Arc<Store<Pod>>,
}

impl Gates {
    fn writer(&self, pod: &Pod) -> Writer {
        Writer::new(&self.client, &Api::<v1::Pod>::namespaced(self.client.clone(), &pod.meta.key.namespace))
    }

    /// Writes to a pod what takes its gate off. Safe to repeat: it names the version that was decided on.
    pub(super) async fn open(&self, pod: &Pod, opening: &Value) -> Outcome {
        let outcome = self.writer(pod).patch(&pod.meta.key.name, None, &Patch::Strategic(opening)).await;
        if let Outcome::Written(version) = &outcome {
            self.pods.wrote(&pod.meta.key, *version);
        }
        outcome
    }

    /// Deletes a pod that waits.
    pub(super) async fn delete(&self, pod: &Pod) -> Outcome {
        let outcome = self.writer(pod).delete(&pod.meta.key.name, Some(exactly(&pod.meta))).await;
        if let Outcome::Written(version) = &outcome {
            self.pods.wrote(&pod.meta.key, *version);
        }
        outcome
    }
}

/// A pod as the API server has it, if it is the version that was decided on.
pub(super) async fn whole(client: &Client, pod: &Pod) -> Result<Option<Value>, kube::Error> {
    let api = Api::<Observed<Value>>::namespaced_with(client.clone(), &pod.meta.key.namespace, &POD);
    let found = api.get_opt(&pod.meta.key.name).await?.and_then(|found| found.object.ok());
    let version = pod.meta.version.to_string();
    Ok(found.filter(|found| found["metadata"]["resourceVersion"].as_str() == Some(&version)))
}

/// What takes the gate off a pod, with its labels, its place, and what it lacks of its edition.
pub(super) fn opening(
    pod: &Pod,
    labels: Map<String, Value>,
    placement: Option<&Placement>,
    correction: Map<String, Value>,
) -> Value {
    let mut patch = Value::Object(correction);
    patch["metadata"]["uid"] = json!(&*pod.meta.uid);
    patch["metadata"]["resourceVersion"] = json!(pod.meta.version.to_string());
    for (key, value) in labels {
        patch["metadata"]["labels"][key] = value;
    }
    if let Some(cost) = placement.and_then(|placement| placement.cost) {
        patch["metadata"]["annotations"][DELETION_COST] = json!(cost.to_string());
        // By it the cost is known to be ours.
        patch["metadata"]["annotations"][SEAT] = json!(cost.unsigned_abs().to_string());
    }
    for (key, value) in placement.iter().flat_map(|placement| &placement.selector) {
        patch["spec"]["nodeSelector"][key] = json!(value);
    }
    patch["spec"]["schedulingGates"] = json!([{"$patch": "delete", "name": GATE}]);
    patch
}

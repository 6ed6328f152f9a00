//! Taking the gate off all pods, before dapple leaves a cluster: nobody would open it.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_plan::group::placing::GATE;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::install::Error;

/// So many pods are read at once.
const PAGE: u32 = 500;
/// So many are written at once.
const AT_ONCE: usize = 8;
/// A pod that somebody changes at the same time is looked at again, so often.
const ROUNDS: usize = 10;
/// And so much later.
const PAUSE: Duration = Duration::from_secs(1);

/// Takes the gate off every pod that waits, and returns how many there were. `on_released` is told of each.
pub async fn release_all(client: &Client, mut on_released: impl FnMut(usize)) -> Result<usize, Error> {
    let mut released: BTreeSet<String> = BTreeSet::new();
    for round in 0..ROUNDS {
        let waiting = gated(client).await?;
        let Some(first) = waiting.first() else { return Ok(released.len()) };
        if round == ROUNDS - 1 {
            return Err(Error::Gated { pods: waiting.len(), first: shown(first) });
        }
        let writes = waiting.iter().map(|pod| release(client, pod));
        let mut writes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        while let Some(done) = writes.next().await {
            if let Some(uid) = done? {
                released.insert(uid);
                on_released(released.len());
            }
        }
        // One more look: a pod may have come meanwhile, or have been changed by somebody else.
        tokio::time::sleep(PAUSE).await;
    }
    Ok(released.len())
}

/// All pods behind the gate.
pub(super) async fn gated(client: &Client) -> Result<Vec<Pod>, Error> {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut params = ListParams::default().fields("spec.nodeName=,status.phase=Pending").limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = pods.list(&params).await;
        let page = page.map_err(|source| Error::Refused { object: "Pods".to_owned(), source: Box::new(source) })?;
        params.continue_token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        found.extend(page.items.into_iter().filter(is_gated));
        if params.continue_token.is_none() {
            return Ok(found);
        }
    }
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == GATE)
}

/// What takes the gate off a pod, if it is still as it was looked at.
fn ungating(uid: &str, version: &str) -> Value {
    json!({
        "metadata": {"uid": uid, "resourceVersion": version},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    })
}

/// Returns its UID, unless it is gone or another one by now.
async fn release(client: &Client, pod: &Pod) -> Result<Option<String>, Error> {
    let uid = pod.uid().unwrap_or_default();
    let patch = ungating(&uid, &pod.resource_version().unwrap_or_default());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    match pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(Some(uid)),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(None),
        Err(source) => Err(Error::Refused { object: shown(pod), source: Box::new(source) }),
    }
}

fn shown(pod: &Pod) -> String {
    format!("Pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

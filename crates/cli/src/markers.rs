//! Reading PodMarkers, and all that decides which pods they mark, from a cluster.

use std::collections::BTreeMap;

use anyhow::Context;
use dapple_api::kinds::{self, KindInfo};
use dapple_api::marker::{NodePodProbe, PROBER_NAMESPACE, PodMarker};
use dapple_api::reading::read;
use dapple_control::writes::client::in_words;
use dapple_edit::marker::OwnerKeys;
use dapple_plan::marker::owner::keys_of;
use dapple_plan::marker::probers::HEARD;
use dapple_plan::marker::seen::Seen;
use dapple_plan::marker::whole::{WholeNode, WholePod};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::Value;

use crate::live::{AT_ONCE, controller, each};
use crate::output::note;
use crate::reach::{pages, resource_of};

/// Pods that have not ended.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// What owns pods, by UID.
type Owners = BTreeMap<String, OwnerKeys>;

/// The markers of a namespace and its pods, with their nodes. Results of probes are for [`add_results`].
pub(crate) async fn seen(client: &Client, namespace: &str) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    each(client, Some(namespace), kinds::POD_MARKER.at, ListParams::default(), |object| {
        match read::<PodMarker>(object) {
            Ok(marker) => seen.add_marker(marker),
            // One malformed object must not hide the rest.
            Err(error) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                note(&format!("warning: PodMarker {namespace}/{name} is passed over: {}: {}", error.field, error.text));
            }
        }
    })
    .await?;
    let mut pods = Vec::new();
    each(client, Some(namespace), kinds::POD, ListParams::default().fields(LIVE), |pod| pods.push(slim(pod))).await?;
    let owners = owners(client, namespace, &pods).await;
    for pod in &pods {
        let uid = controller(pod).and_then(|owner| owner["uid"].as_str());
        let keys = uid.map_or(OwnerKeys::None, |uid| owners.get(uid).cloned().unwrap_or(OwnerKeys::Unread));
        seen.add_pod(WholePod::of(pod, keys));
    }
    each(client, None, kinds::NODE, ListParams::default(), |node| {
        seen.add_node(node["metadata"]["name"].as_str().unwrap_or_default(), WholeNode::of(node));
    })
    .await?;
    Ok(seen)
}

/// Adds what the probers of all nodes say, if some marker has probes.
pub(crate) async fn add_results(client: &Client, seen: &mut Seen) -> anyhow::Result<()> {
    if !seen.has_probes() {
        return Ok(());
    }
    each(client, None, kinds::NODE_POD_PROBE.at, ListParams::default(), |object| match read::<NodePodProbe>(object) {
        Ok(probes) => seen.add_probes(probes),
        Err(error) => {
            note(&format!("warning: NodePodProbe {} is passed over: {}", object["metadata"]["name"], error.text));
        }
    })
    .await?;
    let leases = pages(&Api::<Lease>::namespaced(client.clone(), PROBER_NAMESPACE), ListParams::default()).await;
    let leases = leases.with_context(|| format!("cannot list the leases of probers in {PROBER_NAMESPACE}"))?;
    // The manager goes by when it sees renewals, whatever its clock says. Here there is only one look.
    let now = Timestamp::now();
    for lease in leases {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let is_heard = renewed.is_some_and(|time| now.duration_since(time.0).unsigned_abs() < HEARD);
        if let Some(node) = lease.metadata.name.filter(|_| is_heard) {
            seen.add_heard(&node);
        }
    }
    Ok(())
}

/// A pod without what nobody looks at here: of thousands at once it would be most.
fn slim(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let kept = ["name", "uid", "creationTimestamp", "deletionTimestamp", "labels", "annotations", "ownerReferences"];
    let metadata: serde_json::Map<String, Value> =
        kept.into_iter().map(|field| (field.to_owned(), metadata[field].clone())).collect();
    let containers = |of: &str| -> Value {
        let each = pod["spec"][of].as_array().into_iter().flatten();
        let parts = ["name", "ports", "restartPolicy"];
        each.map(|container| -> Value {
            parts
                .into_iter()
                .map(|part| (part.to_owned(), container[part].clone()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
        .collect()
    };
    serde_json::json!({
        "metadata": metadata,
        "spec": {"nodeName": pod["spec"]["nodeName"], "containers": containers("containers"),
            "initContainers": containers("initContainers")},
        "status": pod["status"],
    })
}

/// What each owner of these pods selects on.
async fn owners(client: &Client, namespace: &str, pods: &[Value]) -> Owners {
    let owners = pods.iter().filter_map(controller);
    let owners: BTreeMap<String, &Value> =
        owners.filter_map(|owner| Some((owner["uid"].as_str()?.to_owned(), owner))).collect();
    let asked = stream::iter(owners).map(|(uid, owner)| async move {
        let keys = keys(client, namespace, owner).await;
        (uid, keys)
    });
    let (mut found, mut is_told) = (Owners::new(), false);
    for (uid, keys) in asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        if let Err(error) = &keys
            && !is_told
        {
            is_told = true;
            note(&format!("warning: it is not known what owners of pods select on: {}", in_words(error)));
        }
        found.insert(uid, keys.unwrap_or(OwnerKeys::Unread));
    }
    found
}

/// What an owner selects on. Of kinds that dapple does not know, and of one that is gone, that cannot be read.
async fn keys(client: &Client, namespace: &str, owner: &Value) -> Result<OwnerKeys, kube::Error> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let Some(at) = kind_of(text("apiVersion"), text("kind")) else { return Ok(OwnerKeys::Unread) };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource_of(at));
    let found = api.get_opt(text("name")).await?.filter(|found| found.metadata.uid.as_deref() == Some(text("uid")));
    Ok(found.map_or(OwnerKeys::Unread, |found| keys_of(&found.data)))
}

fn kind_of(api_version: &str, kind: &str) -> Option<KindInfo> {
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    let native = kinds::find_native(group, kind).map(|native| native.at);
    native.or_else(|| kinds::find(group, kind).map(|own| own.at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_owns_pods_is_found_where_it_is_known() {
        let found = |version: &str, kind: &str| kind_of(version, kind).map(|at| at.plural);
        assert_eq!(found("apps/v1", "ReplicaSet"), Some("replicasets"));
        assert_eq!(found("v1", "ReplicationController"), Some("replicationcontrollers"));
        assert_eq!(found("apps.kruise.io/v1beta1", "DaemonSet"), Some("daemonsets"));
        assert_eq!((found("v1", "Node"), found("example.com/v1", "ReplicaSet")), (None, None));
    }

    #[test]
    fn of_a_pod_all_is_kept_that_markers_look_at() {
        let pod = json!({
            "metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{}]},
            "spec": {"nodeName": "n", "volumes": [{}], "containers": [{"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 80}]}],
                "initContainers": [{"name": "i", "restartPolicy": "Always"}]},
            "status": {"phase": "Running"},
        });
        let slim = slim(&pod);
        assert!(slim["metadata"]["managedFields"].is_null() && slim["spec"]["volumes"].is_null());
        for kept in [
            "/metadata/name",
            "/metadata/labels",
            "/metadata/annotations",
            "/spec/nodeName",
            "/status",
            "/spec/containers/0/ports",
            "/spec/initContainers/0/restartPolicy",
        ] {
            assert_eq!(slim.pointer(kept), pod.pointer(kept), "{kept}");
        }
        assert!(controller(&slim).is_none());
        assert!(WholePod::of(&slim, OwnerKeys::None).node.is_some());
    }
}

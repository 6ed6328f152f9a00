//! Reading what planning needs from a cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use dapple_admit::gate::placer::Placer;
use dapple_api::group::{REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL};
use dapple_api::kinds::{self, KindInfo};
use dapple_api::pool::POOL_NAME_LABEL;
use dapple_control::daemonset::forecast::Cluster;
use dapple_control::env::Env;
use dapple_control::group::read_claims;
use dapple_control::pool::is_there;
use dapple_control::writes::client::in_words;
use dapple_plan::fate::Pod;
use dapple_plan::group::volumes::Claims;
use dapple_plan::pool::application::Existing;
use dapple_plan::pool::learned::Target;
use dapple_plan::pool::revision::{Revision, number_of};
use dapple_plan::variant::ObjectName;
use dapple_plan::world::{World, kind_name};
use futures::{StreamExt, stream};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::output::note;
use crate::reach::resource_of;

/// As many objects per answer: a node is some 60 KB, of which planning keeps its labels and taints.
const PAGE: u32 = 500;

/// So many objects are asked for at once.
pub(crate) const AT_ONCE: usize = 16;

/// Where the pod says which group it was made for.
pub(crate) const GROUP_LABEL: &str = "dapple.dev/group";

/// Everything that planning looks at, and the nodes as the controller sees them. Kinds that the cluster does not serve have
/// no objects.
pub(crate) async fn world(client: &Client) -> anyhow::Result<(World, Cluster)> {
    let (mut world, mut cluster) = (World::default(), Cluster::default());
    let own = kinds::OWN.into_iter().filter(|own| own.is_planned).map(|own| own.at);
    let all = [kinds::NODE].into_iter().chain(own).map(|kind| (kind, None));
    // Of Kubernetes' own workloads only those matter that ask for a policy.
    let asking = kinds::NATIVE
        .iter()
        .flat_map(|native| [REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL].map(|label| (native.at, Some(label))));
    for (kind, label) in all.chain(asking) {
        let params = label.map_or_else(ListParams::default, |label| ListParams::default().labels(label));
        each(client, None, kind, params, |object| {
            // One malformed object must not hide the rest.
            let added = world.add(object).map(|_| ()).map_err(|error| error.to_string());
            let seen = if object["kind"] == "Node" { cluster.add(object) } else { Ok(()) };
            if let Err(error) = added.and(seen) {
                note(&format!("warning: not planned: {error}"));
            }
        })
        .await?;
    }
    Ok((world, cluster))
}

/// Adds the revisions and pods of a namespace that may be a DaemonSet's.
pub(crate) async fn rollout_of(
    client: &Client,
    namespace: &str,
    selector: &LabelSelector,
    cluster: &mut Cluster,
) -> anyhow::Result<()> {
    let mut add = |object: &Value| {
        if let Err(error) = cluster.add(object) {
            note(&format!("warning: {} is passed over: {error}", object["metadata"]["name"]));
        }
    };
    each(client, Some(namespace), kinds::CONTROLLER_REVISION, ListParams::default(), &mut add).await?;
    // A pod whose labels were changed since is the DaemonSet's no more.
    let query = kube::core::Selector::try_from(selector.clone()).context("spec.selector cannot be used")?;
    each(client, Some(namespace), kinds::POD, ListParams::default().labels_from(&query), &mut add).await
}

/// Visits every object of a kind.
pub(crate) async fn each(
    client: &Client,
    namespace: Option<&str>,
    at: KindInfo,
    params: ListParams,
    mut visit: impl FnMut(&Value),
) -> anyhow::Result<()> {
    let (resource, plural) = (resource_of(at), at.plural);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut params = params.limit(PAGE);
    loop {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            other => other.with_context(|| format!("cannot list {plural}"))?,
        };
        for object in page.items {
            let mut value = serde_json::to_value(object)?;
            value["apiVersion"] = Value::from(resource.api_version.clone());
            value["kind"] = Value::from(at.kind);
            visit(&value);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The Deployments and StatefulSets that an application has in its pools, with which of them an autoscaler sets the number of pods
/// of, and its revisions.
pub(crate) async fn of_application(
    client: &Client,
    namespace: &str,
    uid: &str,
) -> anyhow::Result<(Vec<Existing>, Vec<Revision>)> {
    let is_its = |object: &Value| controller(object).is_some_and(|owner| owner["uid"] == uid);
    let autoscaled = autoscaled(client, namespace).await;
    let (mut workloads, mut revisions) = (Vec::new(), Vec::new());
    for kind in [kinds::NATIVE_DEPLOYMENT.at, kinds::NATIVE_STATEFUL_SET.at] {
        let of_pools = ListParams::default().labels(POOL_NAME_LABEL);
        each(client, Some(namespace), kind, of_pools, |object| {
            if is_its(object) {
                let metadata = &object["metadata"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let name = text(&metadata["name"]);
                let pool = text(&metadata["labels"][POOL_NAME_LABEL]);
                workloads.push(Existing {
                    is_autoscaled: autoscaled.contains(&(kind.kind.to_owned(), name)),
                    ..Existing::new(pool, Arc::new(object.clone()))
                });
            }
        })
        .await?;
    }
    each(client, Some(namespace), kinds::CONTROLLER_REVISION, ListParams::default(), |object| {
        if is_its(object) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let number = number_of(object["revision"].as_i64().unwrap_or_default());
            revisions.push(Revision { name, number, data: object["data"].clone() });
        }
    })
    .await?;
    Ok((workloads, revisions))
}

/// What HorizontalPodAutoscalers of a namespace set the number of pods of, by kind and name. Nothing, if whoever asks may not read
/// them: that is told.
async fn autoscaled(client: &Client, namespace: &str) -> BTreeSet<(String, String)> {
    let api = Api::<HorizontalPodAutoscaler>::namespaced(client.clone(), namespace);
    match api.list(&ListParams::default()).await {
        Ok(all) => {
            let targets = all.items.into_iter().map(|known| known.spec.scale_target_ref);
            targets.map(|target| (target.kind, target.name)).collect()
        }
        Err(error) => {
            note(&format!("warning: autoscalers are not taken into account: {}", in_words(&error)));
            BTreeSet::new()
        }
    }
}

/// Those of some targets that do not exist. None, if whoever asks may not read them: that is told.
pub(crate) async fn missing(client: &Client, namespace: &str, targets: BTreeSet<Target>) -> BTreeSet<Target> {
    let asked = stream::iter(targets).map(|target| async move {
        let found = is_there(client, namespace, &target).await;
        (target, found)
    });
    let mut missing = BTreeSet::new();
    let mut is_told = false;
    for (target, found) in asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        match found {
            Ok(true) => {}
            Ok(false) => _ = missing.insert(target),
            Err(error) if !is_told => {
                is_told = true;
                let text = in_words(&error);
                note(&format!("warning: it is not known whether there is what pods would refer to: {text}"));
            }
            Err(_) => {}
        }
    }
    missing
}

/// An object of a namespace; nothing if it is not there.
pub(crate) async fn object(client: &Client, object: &ObjectName, at: KindInfo) -> anyhow::Result<Option<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &object.namespace, &resource_of(at));
    let found = api.get_opt(&object.name).await.with_context(|| format!("cannot get {object}"))?;
    Ok(found.map(serde_json::to_value).transpose()?)
}

/// The pods of a workload that have not ended.
pub(crate) async fn pods(client: &Client, object: &ObjectName, selector: &LabelSelector) -> anyhow::Result<Vec<Value>> {
    // A selector that cannot be used selects nothing.
    let Ok(query) = kube::core::Selector::try_from(selector.clone()) else { return Ok(Vec::new()) };
    let params = ListParams::default().labels_from(&query).fields("status.phase!=Succeeded,status.phase!=Failed");
    let mut pods = Vec::new();
    let listed = each(client, Some(&object.namespace), kinds::POD, params, |pod| pods.push(pod.clone())).await;
    listed.with_context(|| format!("cannot list the pods of {object}"))?;
    // Pods of somebody else may carry the same labels.
    let is_daemon = object.kind.starts_with("DaemonSet");
    pods.retain(|pod| !(is_daemon && controller(pod).is_some_and(|owner| owner["name"] != object.name.as_str())));
    Ok(pods)
}

/// Pods of a namespace that nothing controls and that ask for a PropagationPolicy.
pub(crate) async fn bare_pods(client: &Client, namespace: &str, policy: &str) -> anyhow::Result<Vec<Value>> {
    let params = ListParams::default().labels(&format!("{REQUIRED_PROPAGATION_LABEL}={policy}"));
    let mut pods = Vec::new();
    each(client, Some(namespace), kinds::POD, params, |pod| {
        if controller(pod).is_none() {
            pods.push(pod.clone());
        }
    })
    .await?;
    Ok(pods)
}

/// Pods of a namespace that an object controls.
pub(crate) async fn pods_controlled_by(client: &Client, namespace: &str, owner: &Value) -> anyhow::Result<Vec<Value>> {
    let mut pods = Vec::new();
    each(client, Some(namespace), kinds::POD, ListParams::default(), |pod| {
        if controller(pod).is_some_and(|known| known["uid"] == owner["metadata"]["uid"]) {
            pods.push(pod.clone());
        }
    })
    .await?;
    Ok(pods)
}

/// What PersistentVolumeClaims say of nodes. Nothing, if whoever asks may not read them: that is told.
pub(crate) async fn claims(client: &Client, namespace: &str, asked: &BTreeSet<Arc<str>>) -> Claims {
    match read_claims(client, namespace, asked.clone()).await {
        Ok(claims) => claims,
        Err(error) => {
            note(&format!("warning: volumes are not taken into account: {}", in_words(&error)));
            Claims::new()
        }
    }
}

/// What controls an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().find(|owner| owner["controller"] == true)
}

/// Those of some pods that have a node.
pub(crate) fn on_nodes(pods: &[Value]) -> Vec<Pod> {
    let on_node = |pod: &Value| {
        let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).ok()?;
        let group = pod["metadata"]["labels"][GROUP_LABEL].as_str().map(str::to_owned);
        Some(Pod { name: pod["metadata"]["name"].as_str()?.to_owned(), node: node_of(spec)?, group })
    };
    pods.iter().filter_map(on_node).collect()
}

/// The pod's node, or the one that it waits for: DaemonSets' pods name theirs before the scheduler has seen them.
fn node_of(spec: PodSpec) -> Option<String> {
    let terms = || {
        let required = spec.affinity?.node_affinity?.required_during_scheduling_ignored_during_execution?;
        let fields = required.node_selector_terms.into_iter().next()?.match_fields?;
        fields.into_iter().find(|field| field.key == "metadata.name")?.values?.into_iter().next()
    };
    spec.node_name.or_else(terms)
}

/// A pod, what controls it, and what controls that, from below; and the name that its owners lead to.
pub(crate) struct Owned {
    pub(crate) pod: Value,
    pub(crate) owners: Vec<Value>,
    pub(crate) workload: ObjectName,
}

/// A pod, and the workload that its owners lead to.
pub(crate) async fn pod(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Owned> {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get(name).await.with_context(|| format!("cannot get the pod {namespace}/{name}"))?;
    let mut pod = serde_json::to_value(pod)?;
    (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
    let mut workload = ObjectName { kind: "Pod".to_owned(), namespace: namespace.to_owned(), name: name.to_owned() };
    let mut owners: Vec<Value> = Vec::new();
    // Pod, ReplicaSet, Deployment, YurtAppSet: no chain of owners is longer.
    for _ in 0..4 {
        let Some(owner) = controller(owners.last().unwrap_or(&pod)) else { break };
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        workload =
            ObjectName { kind: kind_name(&api_version, &kind), namespace: namespace.to_owned(), name: name.clone() };
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let Some(next) = api.get_opt(&name).await.with_context(|| format!("cannot get {workload}"))? else { break };
        let mut next = serde_json::to_value(next)?;
        (next["apiVersion"], next["kind"]) = (api_version.into(), kind.into());
        owners.push(next);
    }
    Ok(Owned { pod, owners, workload })
}

/// Whether a manager is seen to lead that places pods.
pub(crate) async fn is_led(client: &Client) -> bool {
    let namespace = crate::args::NAMESPACE;
    let placer =
        Placer::new(client.clone(), namespace, crate::args::LEASE.to_owned(), Env::system(), CancellationToken::new());
    placer.is_there().await
}

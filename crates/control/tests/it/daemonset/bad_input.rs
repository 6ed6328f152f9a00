//! What cannot be: one part of a set, a revision or a node that is wrong stops nothing else.

use std::sync::Arc;

use dapple_control::install::install_crds;
use dapple_testbed::progress::Quiet;
use dapple_testbed::{Cluster, ClusterSpec, Need, Upstream};
use k8s_openapi::api::core::v1::{LimitRange, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::story::{ByNode, Story, changed, look_at, rolling};
use super::watch::{Invariants, watch};
use crate::support::{eventually, kubectl_ok, manager};

/// A patch for nodes with large disks.
fn for_large(patch: Value) -> Value {
    json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": patch})
}

fn with_cpu(requests: &str, limits: &str) -> Value {
    let resources = json!({"requests": {"cpu": requests}, "limits": {"cpu": limits}});
    for_large(json!({"spec": {"containers": [{"name": "agent", "resources": resources}]}}))
}

fn images(seen: &ByNode, kind: &str) -> Vec<String> {
    seen.iter().filter(|(node, _)| node.starts_with(kind)).map(|(_, pod)| pod.image.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_is_refused_on_one_kind_of_node_updates_the_others() {
    let story = Story::new("refused").await;
    let set = |image: &str, patches: Value| {
        story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 2})), "patches": patches}))
    };
    story.apply(&set("agent:1", json!([]))).await;
    let first = story.have_image(6, "agent:1").await;
    let untouched = vec!["large-000", "large-001"];
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched }).await;
    story.apply(&set("agent:2", json!([with_cpu("2", "1")]))).await;
    let second = story.have_image(4, "agent:2").await;
    assert_eq!(images(&second, "large"), ["agent:1", "agent:1"]);
    assert_eq!(watched.made().await, 4);
    watched.finish().await;
    let message = story.condition("Degraded", "True", "Refused").await;
    assert!(message.starts_with("spec.patches[0]: "), "{message}");
    assert!(message.contains("must be less than or equal to cpu limit"), "{message}");
    assert!(message.ends_with("2 nodes keep what they run"), "{message}");
    // One that is lost meanwhile comes back as it was.
    story.pods.delete(&first["large-000"].name, &DeleteParams::default()).await.unwrap();
    let third =
        story.pods_are("it comes back", |seen| seen.len() == 6 && changed(&second, seen) == ["large-000"]).await;
    assert_eq!(third["large-000"].image, "agent:1");

    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2", json!([with_cpu("1", "2")]))).await;
    let last = story.have_image(6, "agent:2").await;
    assert_eq!(changed(&third, &last), ["large-000", "large-001"], "the others have it already");
    watched.finish().await;
    story.condition("Degraded", "False", "AsExpected").await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typo_that_was_stored_makes_no_pod() {
    let story = Story::new("typo").await;
    let typo = for_large(json!({"spec": {"containers": [{"name": "agent", "envv": [{"name": "A"}]}]}}));
    story.apply(&story.set("agent:1", json!({"patches": [typo]}))).await;
    let seen = story.have_image(4, "agent:1").await;
    assert!(images(&seen, "large").is_empty(), "{seen:?}");
    let message = story.condition("Degraded", "True", "Refused").await;
    assert!(message.starts_with("spec.patches[0]: "), "{message}");
    assert!(message.contains("unknown field \"spec.containers[0].envv\""), "{message}");
    let right = for_large(json!({"spec": {"containers": [{"name": "agent", "env": []}]}}));
    story.apply(&story.set("agent:1", json!({"patches": [right]}))).await;
    story.have_image(6, "agent:1").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_refuses_for_a_while_is_tried_again() {
    // On a cluster of its own: nothing that happens elsewhere makes the set look again.
    let cluster = anything_goes().await;
    let story = Story::empty("for-a-while", cluster.clone()).await;
    story.add_nodes("small", 1, json!({})).await;
    story.add_nodes("large", 1, json!({"disk": "large"})).await;
    let _manager = manager(&cluster, "for-a-while").await;
    let client = cluster.client().await.unwrap();
    let limits: Api<LimitRange> = Api::namespaced(client, &story.name);
    let most = json!({"metadata": {"name": "most"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
    story.apply(&story.set("agent:1", json!({}))).await;
    story.have_image(2, "agent:1").await;
    limits.create(&PostParams::default(), &serde_json::from_value(most).unwrap()).await.unwrap();
    // Admission has a cache of its own: it must know the limit before the set changes.
    let probe = json!({"metadata": {"name": "probe"}, "spec": {"nodeName": story.node("small-000"), "containers": [
        {"name": "agent", "image": "x", "resources": {"limits": {"cpu": "2"}}}]}});
    let probe: Pod = serde_json::from_value(probe).unwrap();
    eventually("the limit is known", || async {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match story.pods.create(&params, &probe).await {
            Err(kube::Error::Api(error)) if error.message.contains("maximum cpu usage") => Ok(()),
            other => Err(format!("{:?}", other.map(|_| "taken"))),
        }
    })
    .await;
    story.apply(&story.set("agent:1", json!({"patches": [with_cpu("2", "2")]}))).await;
    let message = story.condition("Degraded", "True", "Refused").await;
    assert!(message.contains("maximum cpu usage per Container is 1"), "{message}");
    limits.delete("most", &DeleteParams::default()).await.unwrap();
    // Nothing of the set, its pods or its nodes changes: the API server is asked again.
    story.condition("Degraded", "False", "AsExpected").await;
    story.status("large disks have it", |status| status["updatedNumberScheduled"] == 2).await;
    story.newest_is_current().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_hides_pods_from_their_own_set_makes_none() {
    let story = Story::new("hides").await;
    let set = |image: &str, labels: Value| {
        let patch = for_large(json!({"metadata": {"labels": labels}}));
        story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 2})), "patches": [patch]}))
    };
    story.apply(&set("agent:1", json!({"more": "1"}))).await;
    let first = story.have_image(6, "agent:1").await;
    let untouched = vec!["large-000", "large-001"];
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched }).await;
    story.apply(&set("agent:2", json!({"app": "hidden"}))).await;
    let second = story.have_image(4, "agent:2").await;
    let message = story.condition("Degraded", "True", "PatchFailed").await;
    assert!(message.contains("spec.patches[0]") && message.contains("2 nodes keep what they run"), "{message}");
    // And nothing more.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(watched.made().await, 4, "the others', and none for the nodes concerned");
    watched.finish().await;
    assert_eq!(changed(&first, &second).len(), 4);

    story.apply(&set("agent:2", json!({"more": "2"}))).await;
    story.have_image(6, "agent:2").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_any_label_gets_its_pod() {
    let story = Story::new("unlabelled").await;
    let name = story.node("bare");
    let node = json!({"metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}});
    story.nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let patches = json!([
        {"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"containers": [{"name": "agent", "image": "agent:large"}]}}},
        {"selector": {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]},
            "patch": {"spec": {"containers": [{"name": "agent", "image": "agent:none"}]}}},
    ]);
    let mut set = story.set("agent:1", json!({"patches": patches}));
    let by_name = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]);
    set["spec"]["template"]["spec"]["nodeSelector"] = Value::Null;
    set["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": by_name}}});
    story.apply(&set).await;
    let first = story.have_image(1, "agent:none").await;
    assert_eq!(first.keys().collect::<Vec<_>>(), ["bare"]);
    // Its first label, and away again.
    story.change_node("bare", json!({"metadata": {"labels": {"disk": "large"}}})).await;
    story.have_image(1, "agent:large").await;
    story.change_node("bare", json!({"metadata": {"labels": null}})).await;
    story.have_image(1, "agent:none").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_that_nobody_can_read_are_passed_over() {
    let story = Story::new("unreadable").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 3}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let before = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    let name = before["currentRevision"].as_str().unwrap().to_owned();
    let mine = story.revisions.get(&name).await.unwrap();
    let mut newer = serde_json::to_value(mine.data.clone().unwrap()).unwrap();
    newer["spec"]["template"]["$patch"] = json!("merge-by-magic");
    newer["spec"]["future"] = json!({"field": [1, 2]});
    newer["spec"]["patches"] = json!([{"selector": {}, "patch": {}, "when": "full moon"}]);
    let broken = json!({"spec": {"template": "?"}});
    let odd = [("agent-broken", 7, broken), ("agent-newer", 8, newer), ("agent-last", i64::MAX, json!({}))];
    for (name, number, data) in odd {
        let revision = json!({"metadata": {"name": name, "labels": {"app": "agent"}, "ownerReferences": mine.owner_references()},
            "revision": number, "data": data});
        story.revisions.create(&PostParams::default(), &serde_json::from_value(revision).unwrap()).await.unwrap();
    }
    eventually("what the set says is the newest still", || async {
        let found = story.revisions.get(&name).await.map_err(|error| error.to_string())?;
        // As high as the highest that somebody can have counted to, or after it.
        if [8, 9].contains(&found.revision) { Ok(()) } else { Err(found.revision.to_string()) }
    })
    .await;
    assert_eq!(story.settled().await.as_ref(), Ok(&first), "nothing restarts");
    let watched = watch(&story, Invariants { budget: Some(3), most_on_a_node: 1, untouched: vec![] }).await;
    for image in ["agent:2", "agent:1"] {
        story.apply(&set(image)).await;
        story.have_image(6, image).await;
        story.condition("Progressing", "False", "Complete").await;
        story.condition("Degraded", "False", "AsExpected").await;
    }
    watched.finish().await;
}

/// A cluster of one's own, whose DaemonSets may say anything.
async fn anything_goes() -> Arc<Cluster> {
    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await.unwrap();
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &Quiet).await.expect("the cluster starts");
    install_crds(&cluster.client().await.unwrap()).await.unwrap();
    let anything = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
        "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]);
    let crd = "daemonsets.apps.kruise.io";
    kubectl_ok(&cluster, &["patch", "crd", crd, "--type=json", "-p", &anything.to_string()], "");
    Arc::new(cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_cannot_be_read_and_a_selector_that_was_forced_harm_nobody() {
    let cluster = anything_goes().await;
    let story = Story::empty("forced", cluster.clone()).await;
    story.add_nodes("small", 3, json!({})).await;
    eventually("the API server takes a malformed set", || async {
        let bad: DynamicObject = serde_json::from_value(json!({"apiVersion": "apps.kruise.io/v1beta1",
            "kind": "DaemonSet", "metadata": {"name": "bad"}, "spec": {"template": "?"}}))
        .unwrap();
        story.sets.create(&PostParams::default(), &bad).await.map_err(|error| error.to_string())
    })
    .await;
    let _manager = manager(&cluster, "forced").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let first = story.have_image(3, "agent:1").await;
    story.event(&["DaemonSet", "spec"]).await;

    // The selector alone: no pod is the set's own by it, and none is let go or made.
    let selects = |value: &str| Patch::Merge(json!({"spec": {"selector": {"matchLabels": {"app": value}}}}));
    story.sets.patch("agent", &PatchParams::default(), &selects("other")).await.unwrap();
    let message = story.condition("Degraded", "True", "PatchFailed").await;
    assert!(message.contains("not those that spec.selector selects"), "{message}");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(story.settled().await.as_ref(), Ok(&first));

    // And the template with it: pods are replaced one by one, and none is left behind without an owner.
    let labels = Patch::Merge(json!({"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}}));
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched: vec![] }).await;
    story.sets.patch("agent", &PatchParams::default(), &labels).await.unwrap();
    let is_new = |(_, pod): &(String, Pod)| pod.labels().get("app").is_some_and(|app| app == "other");
    story.every_pod("all are replaced", |pods| pods.len() == 3 && pods.iter().all(is_new)).await;
    assert!(story.all_pods().await.iter().all(|(_, pod)| look_at(pod).image == "agent:1"));
    story.condition("Degraded", "False", "AsExpected").await;
    story.condition("Progressing", "False", "Complete").await;
    watched.finish().await;
    assert_eq!(story.pods.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

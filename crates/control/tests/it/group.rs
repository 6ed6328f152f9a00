//! The NodeGroup story, on a real API server: nodes by name and label into status, kept true.

use std::collections::BTreeMap;

use dapple_api::group::{NodeGroup, NodeGroupSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{cluster, eventually, group, group_has, http_get, manager, manager_at, node};

mod binding;
mod costs;
mod editions;
mod listed;
mod moving;
mod placing;
mod status;
mod steady;
mod stuck;
mod volumes;

fn by_label(key: &str, value: &str) -> NodeGroupSpec {
    NodeGroupSpec { match_labels: BTreeMap::from([(key.into(), value.into())]), ..NodeGroupSpec::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_follows_nodes_as_they_come_change_and_go() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "group-story").await;
    node(&client, "story-a", json!({"story": "hangzhou"})).await;
    group(&client, "story-hangzhou", by_label("story", "hangzhou")).await;
    group_has(&client, "story-hangzhou", &["story-a"]).await;

    node(&client, "story-b", json!({"story": "hangzhou"})).await;
    group_has(&client, "story-hangzhou", &["story-a", "story-b"]).await;
    node(&client, "story-a", json!({"story": "beijing"})).await;
    group_has(&client, "story-hangzhou", &["story-b"]).await;
    Api::<Node>::all(client.clone()).delete("story-b", &DeleteParams::default()).await.unwrap();
    let empty = group_has(&client, "story-hangzhou", &[]).await;
    let condition = &empty.status.unwrap().conditions[0];
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "NoNodes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_group_is_held_against_the_fleet_anew() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "group-change").await;
    for (name, rack) in [("change-a", "1"), ("change-b", "2"), ("change-c", "2")] {
        node(&client, name, json!({"rack": rack})).await;
    }
    group(&client, "change", by_label("rack", "1")).await;
    group_has(&client, "change", &["change-a"]).await;
    let groups = Api::<NodeGroup>::all(client.clone());
    let spec = json!({"spec": {"matchLabels": {"rack": "2"}, "nodes": ["change-ghost", "change-a"]}});
    groups.patch("change", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    let found = group_has(&client, "change", &["change-a", "change-b", "change-c"]).await;
    let condition = &found.status.unwrap().conditions[0];
    assert_eq!(condition.message, "No such node: change-ghost. Correct spec.nodes, or wait until they join.");

    node(&client, "change-ghost", json!({})).await;
    let whole = group_has(&client, "change", &["change-a", "change-b", "change-c", "change-ghost"]).await;
    assert_eq!(whole.status.unwrap().node_count, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_several_groups_is_shown_by_all_of_them() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "group-shared").await;
    for (name, rack) in [("shared-a", "1"), ("shared-b", "2")] {
        node(&client, name, json!({"shared-rack": rack})).await;
    }
    let says = async |group: &str, reason: &str, message: &str| {
        eventually(&format!("{group} says {reason}"), || async {
            let found = Api::<NodeGroup>::all(client.clone()).get(group).await.map_err(|error| error.to_string())?;
            let conditions = found.status.unwrap_or_default().conditions;
            let is_it =
                |known: &Condition| known.type_ == "Exclusive" && known.reason == reason && known.message == message;
            if conditions.iter().any(is_it) { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await;
    };
    let alone = "No node of the group is in another group.";
    group(&client, "shared-one", by_label("shared-rack", "1")).await;
    says("shared-one", "NoNodeShared", alone).await;

    let both = NodeGroupSpec { nodes: vec!["shared-a".into(), "shared-b".into()], ..NodeGroupSpec::default() };
    group(&client, "shared-both", both).await;
    says("shared-both", "NodesShared", "1 node is in other groups too: shared-a (shared-one).").await;
    says("shared-one", "NodesShared", "1 node is in other groups too: shared-a (shared-both).").await;

    node(&client, "shared-a", json!({"shared-rack": "3"})).await;
    says("shared-both", "NoNodeShared", alone).await;
    node(&client, "shared-b", json!({"shared-rack": "1"})).await;
    says("shared-one", "NodesShared", "1 node is in other groups too: shared-b (shared-both).").await;
    Api::<NodeGroup>::all(client.clone()).delete("shared-both", &DeleteParams::default()).await.unwrap();
    says("shared-one", "NoNodeShared", alone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_a_group_names_have_its_label_and_keep_it_under_pods() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "group-labels").await;
    let nodes = Api::<Node>::all(client.clone());
    for name in ["label-a", "label-b"] {
        node(&client, name, json!({})).await;
    }
    let has_label = async |name: &str, is_there: bool| {
        eventually(&format!("{name} has the label: {is_there}"), || async {
            let found = nodes.get(name).await.map_err(|error| error.to_string())?;
            let label = found.labels().get("group.dapple.dev/label");
            if label.is_some_and(|label| label == "true") == is_there { Ok(()) } else { Err(format!("{label:?}")) }
        })
        .await;
    };
    let named = NodeGroupSpec { nodes: vec!["label-a".into(), "label-b".into()], ..NodeGroupSpec::default() };
    group(&client, "label", named).await;
    has_label("label-a", true).await;
    has_label("label-b", true).await;
    let without = json!({"metadata": {"labels": {"group.dapple.dev/label": null}}});
    nodes.patch("label-b", &PatchParams::default(), &Patch::Merge(&without)).await.unwrap();
    has_label("label-b", true).await;

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "label-pod"}, "spec": {
        "nodeName": "label-a", "nodeSelector": {"group.dapple.dev/label": "true"},
        "containers": [{"name": "c", "image": "c:1"}]}});
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let elsewhere = json!({"spec": {"nodes": ["label-c"]}});
    let groups = Api::<NodeGroup>::all(client.clone());
    groups.patch("label", &PatchParams::default(), &Patch::Merge(&elsewhere)).await.unwrap();
    group_has(&client, "label", &[]).await;
    // Not at once: a scheduler may be about to bind a pod there.
    has_label("label-b", false).await;
    has_label("label-a", true).await;
    pods.delete("label-pod", &DeleteParams::default().grace_period(0)).await.unwrap();
    has_label("label-a", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_somebody_else_changed_is_put_right() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "group-repair").await;
    node(&client, "repair-a", json!({"repair": "yes"})).await;
    group(&client, "repair", by_label("repair", "yes")).await;
    group_has(&client, "repair", &["repair-a"]).await;
    let groups = Api::<NodeGroup>::all(client.clone());
    let wrong = json!({"status": {"containedNodes": ["nonsense"], "nodeCount": 7}});
    groups.patch_status("repair", &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
    group_has(&client, "repair", &["repair-a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_when_nothing_changed() {
    let (cluster, client) = cluster().await;
    node(&client, "calm-a", json!({"calm": "yes"})).await;
    group(&client, "calm", by_label("calm", "yes")).await;
    let first = {
        let _manager = manager(&cluster, "group-calm-1").await;
        group_has(&client, "calm", &["calm-a"]).await
    };
    let second_manager = manager(&cluster, "group-calm-2").await;
    // The second manager has looked at every group once its queue is empty and it leads.
    eventually("the second manager has looked", || async {
        let (_, text) = http_get(second_manager.address, "/metrics").await?;
        let looked = text.lines().any(|line| {
            line.starts_with("controller_runtime_reconcile_total{controller=\"group\",result=\"success\"}")
        });
        let idle = text.contains("workqueue_depth{name=\"group\"} 0")
            && text.contains("controller_runtime_active_workers{controller=\"group\"} 0");
        if looked && idle { Ok(()) } else { Err(text) }
    })
    .await;
    let now = Api::<NodeGroup>::all(client.clone()).get("calm").await.unwrap();
    assert_eq!(now.metadata.resource_version, first.metadata.resource_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_has_seen_nothing_is_not_ready() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = kube::Config::new(format!("http://{nobody}").parse().unwrap());
    let manager = manager_at(config, "nowhere");
    let status = eventually("an answer that names every family", || async {
        let (status, text) = http_get(manager.address, "/readyz").await?;
        if text.contains("waiting for the first full view of: daemonset, group") { Ok(status) } else { Err(text) }
    })
    .await;
    assert_eq!(status, 503);
    assert_eq!(http_get(manager.address, "/healthz").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_metrics_are_served() {
    let (cluster, client) = cluster().await;
    let manager = manager(&cluster, "group-health").await;
    node(&client, "health-a", json!({"health": "yes"})).await;
    group(&client, "health", by_label("health", "yes")).await;
    group_has(&client, "health", &["health-a"]).await;
    let ready = eventually("readiness", || async {
        let (status, text) = http_get(manager.address, "/readyz").await?;
        if status == 200 { Ok(text) } else { Err(text) }
    })
    .await;
    assert!(ready.ends_with("ok\n"));
    assert_eq!(http_get(manager.address, "/healthz").await.unwrap().0, 200);
    // Its status may be another manager's work: this one need not lead yet.
    let lines = [
        "leader_election_master_status{name=\"group-health\"} 1",
        "dapple_family_serving{family=\"group\"} 1",
        "dapple_cache_objects{kind=\"Node\"}",
        "dapple_cache_objects{kind=\"NodeGroup\"}",
        "dapple_watch_age_seconds{kind=\"Node\"}",
        "controller_runtime_max_concurrent_reconciles{controller=\"group\"} 4",
        "rest_client_requests_total{code=\"200\",method=\"GET\"}",
        "dapple_build_info{version=",
    ];
    eventually("metrics", || async {
        let (_, metrics) = http_get(manager.address, "/metrics").await?;
        let missing = lines.iter().find(|line| !metrics.contains(**line));
        missing.map_or(Ok(()), |line| Err(format!("{line} is not in\n{metrics}")))
    })
    .await;
}

//! What nodes are to probe, as the manager writes it, while markers, pods and nodes change.
//!
//! What OpenKruise's probes suffer from, and what shows that ours do not:
//!
//! | defect | shown by |
//! |---|---|
//! | results are kept by container, so that two probes of one overwrite each other | `probes_of_one_container_and_their_markers_do_not_disturb_each_other` |
//! | each look writes all that nodes are to probe again | `what_is_to_be_probed_is_said_in_full_and_written_on_change_only` |
//! | probes that are gone, and pods that match no more, are probed for ever | `what_nobody_asks_for_any_more_is_not_probed` |
//! | who cleans up looks for a part of a name, and deletes probes of other markers (#2508) | `probes_of_one_container_and_their_markers_do_not_disturb_each_other` |
//! | the daemon panics where the runtime does not know a container (#1943) | `crates/node/src/marker/exec.rs`, `what_the_runtime_cannot_do_is_no_failure`; of managers: each run of the simulator |
//! | no probes by gRPC (#2334) | `crates/node/src/marker/grpc.rs` |
//! | the daemon may do too much (charts#49, #1519, #1600) | `crates/cli/src/install_tests.rs`, `the_prober_may_do_what_it_does_and_nothing_else`; `crates/cli/tests/it/authors/probers.rs` |
//! | nobody says how much is too much (#1921, #1982) | `crates/plan/src/marker/probing.rs`, `a_node_has_a_thousand_probes_and_those_that_come_later_are_beyond`; `schedule_tests.rs`, `too_many_probes_run_more_seldom_and_that_is_said` |
//! | the runtime is asked twice before each run, also where a probe needs none | `crates/cli/tests/it/probing.rs`, where there is no runtime; `crates/node/src/marker/exec.rs`, whose runtime answers once |
//! | the daemon watches pods | `crates/cli/src/install_tests.rs`, `the_prober_may_do_what_it_does_and_nothing_else` |
//! | names of probes are taken apart | `crates/plan/src/marker/probe.rs`, `names_follow_from_container_and_definition` |
//! | two CRDs of one name: one of them stays off | `probes_work_beside_those_of_openkruise` |

use dapple_plan::marker::probe::{filled, name};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::played::{NODE, asked, pods, probe, probes, renew, say, spec, tell};
use super::story::{QUIET, Story, container_id};
use crate::support::{eventually, manager};

/// A marker that goes by another probe of one of the containers.
fn other_spec() -> Value {
    let probe = json!({"exec": {"command": ["cat", "/tmp/other"]}});
    json!({
        "matchRequirements": {
            "podSelector": {"matchLabels": {"app": "nginx"}},
            "podProbes": [{"containers": [{"name": "c"}], "probe": probe, "expectation": "succeeded"}],
        },
        "markItems": {"labels": {"other": "1"}},
    })
}

fn is_other(probe: &Value) -> bool {
    probe["probe"]["exec"]["command"][1] == "/tmp/other"
}

/// Waits until nothing is to be probed.
async fn nothing_is_asked(story: &Story) {
    eventually("nothing is to be probed", || async {
        let found = probes(story).get_opt(NODE).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |object| Err(object.data.to_string()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_probed_is_said_in_full_and_written_on_change_only() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-asked").await;
    pods(&story, &["a", "b"]).await;
    story.marker("m", spec()).await;
    let both = [("a", 2), ("b", 2)];
    let object = asked(&story, &both).await;
    let node = story.api("v1", "Node").get(NODE).await.unwrap();
    let owners: Vec<String> = object.owner_references().iter().map(|owner| owner.uid.clone()).collect();
    assert_eq!(owners, [node.uid().unwrap()]);
    let pod = &object.data["spec"]["podProbes"][0];
    assert_eq!([&pod["uid"], &pod["namespace"]], [&json!(story.read("a").await.uid()), &json!("here")]);
    let filled = filled(&probe()).unwrap();
    for asked in pod["probes"].as_array().unwrap() {
        let container = asked["containerName"].as_str().unwrap();
        let expected = json!({"name": &*name(container, &filled), "containerName": container,
            "containerID": container_id(container), "startedAt": "2026-01-01T00:00:00Z", "probe": filled});
        assert_eq!(*asked, expected);
    }
    // Neither results nor what else happens to pods have it written again.
    let good = ["Succeeded", "Succeeded"];
    say(&story, &[("a", good), ("b", good)], container_id).await;
    let version = probes(&story).get(NODE).await.unwrap().resource_version();
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    story.is_done("m", 1).await;
    story.patch_pod("b", json!({"metadata": {"annotations": {"note": "1"}}})).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(probes(&story).get(NODE).await.unwrap().resource_version(), version);
    // What somebody writes by hand is put right.
    let edit = Patch::Merge(json!({"spec": {"podProbes": []}}));
    probes(&story).patch(NODE, &PatchParams::default(), &edit).await.unwrap();
    asked(&story, &both).await;
    story.cluster.stop().await.unwrap();
}

/// One of the markers has a name that begins with the other's.
#[tokio::test(flavor = "multi_thread")]
async fn probes_of_one_container_and_their_markers_do_not_disturb_each_other() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-two").await;
    pods(&story, &["a"]).await;
    story.marker("m", spec()).await;
    story.marker("m-2", other_spec()).await;
    let object = asked(&story, &[("a", 3)]).await;
    let results = |of_other: &'static str, of_first: &'static str| {
        move |_: &Value, probe: &Value| {
            let state = if is_other(probe) { of_other } else { of_first };
            json!({"name": probe["name"], "containerID": probe["containerID"], "state": state})
        }
    };
    tell(&story, &object, results("Failed", "Succeeded")).await;
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    story.are_marked("rollback", "lastRevision", &["a"]).await;
    story.says("m-2", "that none matches", |status| status["matched"] == 0 && status["unknown"] == 0).await;
    tell(&story, &object, results("Succeeded", "Failed")).await;
    story.are_marked("other", "1", &["a"]).await;
    story.are_marked("rollback", "lastRevision", &[]).await;
    story.markers().delete("m", &DeleteParams::default()).await.unwrap();
    let left = asked(&story, &[("a", 1)]).await;
    assert!(is_other(&left.data["spec"]["podProbes"][0]["probes"][0]), "{}", left.data);
    tokio::time::sleep(QUIET).await;
    story.are_marked("other", "1", &["a"]).await;
    story.markers().delete("m-2", &DeleteParams::default()).await.unwrap();
    nothing_is_asked(&story).await;
    story.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_asks_for_any_more_is_not_probed() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-pruned").await;
    pods(&story, &["a", "b", "c"]).await;
    story.marker("m", spec()).await;
    let before = asked(&story, &[("a", 2), ("b", 2), ("c", 2)]).await;
    story.patch_pod("a", json!({"metadata": {"labels": {"app": "db"}}})).await;
    asked(&story, &[("b", 2), ("c", 2)]).await;
    story.delete_pod("b").await;
    asked(&story, &[("c", 2)]).await;
    // One that is edited is another, and the one before is none.
    let mut probe = probe();
    probe["periodSeconds"] = json!(7);
    let requirement = json!({"containers": [{"name": "c"}], "probe": probe, "expectation": "succeeded"});
    story.patch_marker("m", json!({"spec": {"matchRequirements": {"podProbes": [requirement]}}})).await;
    let after = asked(&story, &[("c", 1)]).await;
    let name = &after.data["spec"]["podProbes"][0]["probes"][0]["name"];
    assert!(name.is_string() && !before.data.to_string().contains(name.as_str().unwrap()), "{name}");
    // One that marks no pod needs no results.
    story.mark("m", json!(0)).await;
    nothing_is_asked(&story).await;
    story.mark("m", json!(1)).await;
    asked(&story, &[("c", 1)]).await;
    let arm = Patch::Merge(json!({"metadata": {"labels": {"arch": "arm"}}}));
    story.api("v1", "Node").patch(NODE, &PatchParams::default(), &arm).await.unwrap();
    nothing_is_asked(&story).await;
    story.cluster.stop().await.unwrap();
}

/// Nobody collects garbage here: the manager itself takes away what belonged to the Node before, with its results.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_anew_has_no_results_of_the_one_before() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-anew").await;
    pods(&story, &["a"]).await;
    story.marker("m", spec()).await;
    say(&story, &[("a", ["Succeeded", "Succeeded"])], container_id).await;
    let before = probes(&story).get(NODE).await.unwrap();
    story.api("v1", "Node").delete(NODE, &DeleteParams::default()).await.unwrap();
    story.node(NODE, json!({"arch": "x86"})).await;
    let node = story.api("v1", "Node").get(NODE).await.unwrap();
    eventually("what is to be probed is the new Node's", || async {
        let found = probes(&story).get_opt(NODE).await.map_err(|error| error.to_string())?;
        let object = found.ok_or("nothing is to be probed")?;
        let is_its_own = object.owner_references().iter().any(|owner| Some(&owner.uid) == node.uid().as_ref());
        if is_its_own && object.uid() != before.uid() { Ok(()) } else { Err(format!("{:?}", object.metadata)) }
    })
    .await;
    let object = asked(&story, &[("a", 2)]).await;
    assert!(object.data["status"].is_null(), "{}", object.data);
    story.cluster.stop().await.unwrap();
}

/// A CRD of OpenKruise, as far as its name is concerned.
fn crd(kind: &str, plural: &str, scope: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        json!({"name": "v1alpha1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    json!({
        "metadata": {"name": format!("{plural}.apps.kruise.io")},
        "spec": {
            "group": "apps.kruise.io", "scope": scope, "versions": [version],
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        },
    })
}

/// OpenKruise has a NodePodProbe of its own for the node, which stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn probes_work_beside_those_of_openkruise() {
    const VERSION: &str = "apps.kruise.io/v1alpha1";
    let story = Story::of_objects().await;
    for crd in [crd("NodePodProbe", "nodepodprobes", "Cluster"), crd("PodProbeMarker", "podprobemarkers", "Namespaced")]
    {
        story.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd).await;
    }
    let asked = json!({"podProbes": [{"name": "p", "namespace": "here", "uid": "u", "probes": []}]});
    let object = json!({"metadata": {"name": NODE}, "spec": asked});
    eventually("its kind is served", || story.try_create(VERSION, "NodePodProbe", object.clone())).await;
    let theirs = story.api(VERSION, "NodePodProbe");
    let before = theirs.get(NODE).await.unwrap();
    let _manager = manager(&story.cluster, "marker-beside").await;
    pods(&story, &["a", "b"]).await;
    story.marker("m", spec()).await;
    say(&story, &[("a", ["Succeeded", "Failed"]), ("b", ["Succeeded", "Succeeded"])], container_id).await;
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    story.are_marked("rollback", "lastRevision", &["b"]).await;
    assert_eq!(theirs.get(NODE).await.unwrap(), before);
    story.cluster.stop().await.unwrap();
}

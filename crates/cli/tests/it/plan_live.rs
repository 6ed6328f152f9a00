//! `dapple plan` and `explain` beside a cluster: what becomes of the pods there are, and why a pod has what it has.

use std::collections::BTreeMap;
use std::path::Path;

use dapple_api::daemonset::DaemonSet;
use dapple_control::install::{apply, apply_yaml, install_crds};
use dapple_testbed::{Cluster, Fleet};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::openkruise;
use crate::support::{Manager, dapple, eventually, group, text};

fn set(image: &str, patches: Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "InPlaceIfPossible"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
                // The API server adds `protocol: TCP` to the port, which must not count as a change.
                "containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80}]}], "tolerations": [{"operator": "Exists"}]}},
            "patches": patches,
        },
    })
}

fn on_zone(zone: &str, patch: Value) -> Value {
    json!({"selector": {"matchLabels": {"zone": zone}}, "patch": patch})
}

/// A control plane with kwok, our APIs and permissions.
async fn played_cluster() -> (Cluster, Client) {
    let (cluster, client) = openkruise::start(true).await;
    install_crds(&client).await.unwrap();
    apply_yaml(&client, include_str!("../../../../config/rbac.yaml")).await.unwrap();
    (cluster, client)
}

/// A node in each of these zones, named after it.
async fn nodes_in(cluster: &Cluster, zones: &[&str]) {
    let kinds: Vec<Value> =
        zones.iter().map(|zone| json!({"name": zone, "count": 1, "labels": {"zone": &zone[..2]}})).collect();
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
}

/// The set's pods, by node: name and UID.
async fn pods_by_node(client: &Client) -> BTreeMap<String, (String, String)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let all = pods.list(&ListParams::default().labels("app=agent")).await.unwrap();
    let told = all.items.into_iter().map(|pod| {
        let (name, uid) = (pod.metadata.name.unwrap(), pod.metadata.uid.unwrap());
        (pod.spec.unwrap().node_name.unwrap_or_default(), (name, uid))
    });
    told.collect()
}

/// Waits until the set's status says that all these nodes are updated and available.
async fn rolled_out(client: &Client, nodes: u64) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "default");
    eventually("the rollout is over", || async {
        let set = serde_json::to_value(sets.get("agent").await.map_err(|error| error.to_string())?).unwrap();
        let status = &set["status"];
        let is_it = status["observedGeneration"] == set["metadata"]["generation"]
            && status["updatedNumberScheduled"] == nodes
            && status["numberAvailable"] == nodes;
        if is_it { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

fn run(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = dapple(&[args, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Plans an object with some flags, and returns the exit code and what was printed.
type Planning<'a> = &'a dyn Fn(&Value, &[&str]) -> (Option<i32>, String);

/// What only the API server and what it has can tell, by a function that plans an object with some flags.
fn the_server_is_asked(now: &Value, plan: Planning<'_>) {
    // The API server knows what no table of ours does: whether there is such a field, and which values it takes.
    let mut typo = now.clone();
    typo["spec"]["template"]["spec"]["containers"][0]["envv"] = json!([]);
    let (code, shown) = plan(&typo, &["--server"]);
    let expected = "DaemonSet default/agent: spec.template.spec.containers[0].envv: there is no such field";
    assert!(code == Some(2) && shown.contains("error: ") && shown.contains(expected), "{shown}");
    let mut value = now.clone();
    let policy = json!({"spec": {"containers": [{"name": "c", "imagePullPolicy": "Sometimes"}]}});
    value["spec"]["patches"] = json!([on_zone("z1", policy)]);
    let (code, shown) = plan(&value, &["--server"]);
    let expected = "imagePullPolicy: Unsupported value: \"Sometimes\"";
    assert!(code == Some(2) && shown.contains("spec.patches[0].patch.spec.containers"), "{shown}");
    assert!(shown.contains(expected), "{shown}");
    // What is not of pods, it knows too; and what the cluster has cannot be changed at will.
    let mut wrong = now.clone();
    wrong["spec"]["burstReplicass"] = json!(3);
    let (code, shown) = plan(&wrong, &["--server"]);
    assert!(code == Some(2) && shown.contains("burstReplicass"), "{shown}");
    let mut other = now.clone();
    other["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    other["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let (code, shown) = plan(&other, &[]);
    assert!(code == Some(2) && shown.contains("DaemonSet default/agent: spec.selector: "), "{shown}");
    let (code, shown) = plan(now, &["--server"]);
    assert!(code == Some(1) && !shown.contains("error"), "{shown}");
}

/// What the controller would do is foretold without it, and then it does that.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_told_what_becomes_of_them_and_why_they_are_as_they_are() {
    let (cluster, client) = played_cluster().await;
    nodes_in(&cluster, &["z1a", "z2b", "z3c"]).await;
    let now = set("c:1", json!([on_zone("z1", json!({"metadata": {"annotations": {"tier": "large"}}}))]));
    apply(&client, &now).await.unwrap();
    let kubeconfig = cluster.admin_kubeconfig();
    let manager = Manager::start(kubeconfig, cluster.dir().join("manager.log"));
    rolled_out(&client, 3).await;
    drop(manager);
    nodes_in(&cluster, &["z1a", "z2b", "z3c", "z3d"]).await;
    let before = pods_by_node(&client).await;
    let pod_on = |node: &str| before[node].0.as_str();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.json");
    let path = file.to_str().unwrap().to_owned();
    let plan = |object: &Value, more: &[&str]| {
        std::fs::write(&file, object.to_string()).unwrap();
        run(kubeconfig, &[&["plan", "-f", &path][..], more].concat())
    };

    // The same again changes nothing but that the node without a pod gets one.
    let (code, shown) = plan(&now, &[]);
    assert!(shown.contains("pods: 1 created, 3 left alone"), "{shown}");
    assert!(shown.contains("now: 1 pod created (z3d-000)"), "{shown}");
    assert_eq!(code, Some(1), "{shown}");

    let next = the_rollout_is_foretold(&now, pod_on, &plan);

    // A pod that has not got what its node's rendering says is explained with the difference.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let bare = json!({"metadata": {"annotations": {"tier": null}}});
    pods.patch(pod_on("z1a-000"), &PatchParams::default(), &Patch::Merge(bare)).await.unwrap();
    let (code, shown) = run(kubeconfig, &["explain", &format!("pod/{}", pod_on("z1a-000"))]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("DaemonSet default/agent on node z1a-000, pod default/agent-"), "{shown}");
    assert!(shown.contains("tier: large  # spec.patches[0]"), "{shown}");
    assert!(shown.contains("metadata.annotations.tier: has nothing, not \"large\""), "{shown}");

    policies_are_planned(&client, &now, &plan).await;
    the_server_is_asked(&now, &plan);
    let (code, shown) = run(kubeconfig, &["diff", "ds/agent", "z1a-000", "z2b-000"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("-    tier: large"), "{shown}");

    // And so it comes.
    apply(&client, &next).await.unwrap();
    let _manager = Manager::start(kubeconfig, cluster.dir().join("manager.log"));
    rolled_out(&client, 4).await;
    let after = pods_by_node(&client).await;
    let is_kept = |node: &str| before.get(node) == after.get(node);
    let kept = ["z1a-000", "z2b-000", "z3c-000"].map(is_kept);
    assert_eq!(kept, [true, true, false], "left alone, updated in place, recreated: {before:?} {after:?}");
    cluster.stop().await.unwrap();
}

/// Another image on zone 2 goes in place, a variable on zone 3 does not, zone 1 has no reason to be touched.
fn the_rollout_is_foretold<'p>(now: &Value, pod_on: impl Fn(&str) -> &'p str, plan: Planning<'_>) -> Value {
    let image = json!({"spec": {"containers": [{"name": "c", "image": "c:2"}]}});
    let variable = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}});
    let mut next = now.clone();
    let patches = next["spec"]["patches"].as_array_mut().unwrap();
    patches.extend([on_zone("z2", image), on_zone("z3", variable)]);
    let (code, shown) = plan(&next, &["-o", "wide"]);
    assert!(shown.contains("pods: 1 created, 1 left alone, 1 recreated, 1 updated in place"), "{shown}");
    for (node, fate) in [("z1a-000", "left alone"), ("z2b-000", "updated in place"), ("z3c-000", "recreated")] {
        let line = format!("{} on {node}: {fate}", pod_on(node));
        assert!(shown.contains(&line), "{line} in {shown}");
    }
    let lines = [
        "a pod on z3d-000: created",
        "rollout: at most 1 node at a time, in this order: z3c-000, z2b-000",
        "now: 1 pod created (z3d-000)",
    ];
    lines.iter().for_each(|line| assert!(shown.contains(line), "{line} in {shown}"));
    assert_eq!(code, Some(1), "{shown}");

    // What holds pods back is named, and programs get all of it.
    let mut held = next.clone();
    held["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(2);
    let (_, shown) = plan(&held, &[]);
    assert!(shown.contains("1 held back (partition)") && shown.contains("in this order: z3c-000"), "{shown}");
    held["spec"]["updateStrategy"]["rollingUpdate"]["paused"] = json!(true);
    let (_, shown) = plan(&held, &["-o", "json"]);
    let told: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(told[0]["pods"]["counts"], json!({"created": 1, "held back (paused)": 2, "left alone": 1}), "{shown}");
    assert_eq!(told[0]["rollout"]["now"], json!([{"node": "z3d-000", "step": "created"}]), "{shown}");
    let templates: Vec<&Value> = told[0]["variants"].as_array().unwrap().iter().map(|of| &of["template"]).collect();
    assert!(templates.iter().any(|of| of["spec"]["containers"][0]["image"] == "c:2"), "{shown}");
    next
}

/// A policy alone is enough to plan with; one that changes nothing for anybody is no error.
async fn policies_are_planned(client: &Client, now: &Value, plan: Planning<'_>) {
    let policy = json!({
        "apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "p"},
        "spec": {"overrideRules": [{"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "9"}]}]},
    });
    let (code, shown) = plan(&policy, &[]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("No workload changes.") && shown.contains("no workload asks for it"), "{shown}");
    let mut asking = now.clone();
    asking["metadata"]["labels"] = json!({"groupmanagement.kubeedge.io/required-overridepolicy": "p"});
    apply(client, &asking).await.unwrap();
    group(client, "g", "z2").await;
    let (code, shown) = plan(&policy, &[]);
    assert!(shown.contains("by OverridePolicy default/p spec.overrideRules[0].imageOverrider[0]"), "{shown}");
    assert!(shown.contains("pods: 1 created, 2 left alone, 1 updated in place"), "{shown}");
    assert_eq!(code, Some(1), "{shown}");
}

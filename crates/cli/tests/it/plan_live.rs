//! `dapple plan` and `explain` beside a cluster: what becomes of the pods there are, and why a pod has what it has.

use std::path::Path;

use dapple_control::install::apply;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::support::{dapple, eventually, group, node, own_cluster, text};

fn set(image: &str, patches: Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "InPlaceIfPossible"}},
            // Nobody plays these nodes, so they are tainted as not ready at some time.
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

/// A pod of the DaemonSet, as its controller makes them.
async fn pod(client: &Client, owner: &str, node: &str, image: &str) {
    let reference = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": "agent", "uid": owner, "controller": true});
    let object = json!({
        "metadata": {"name": format!("agent-{node}"), "labels": {"app": "agent"}, "ownerReferences": [reference]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": image}],
                 "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": false},
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let object: Pod = serde_json::from_value(object).unwrap();
    // The namespace's service account comes a moment after the namespace.
    eventually("the pod is taken", || async {
        pods.create(&PostParams::default(), &object).await.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
}

fn run(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = dapple(&[args, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// What only the API server and what it has can tell, by a function that plans an object with some flags.
fn the_server_is_asked(now: &Value, plan: impl Fn(&Value, &[&str]) -> (Option<i32>, String)) {
    // The API server knows what no table of ours does: whether there is such a field, and which values it takes.
    let mut typo = now.clone();
    typo["spec"]["template"]["spec"]["containers"][0]["envv"] = json!([]);
    let (code, shown) = plan(&typo, &["--server"]);
    let expected = "DaemonSet default/agent: spec.template.spec.containers[0].envv: there is no such field";
    assert!(code == Some(2) && shown.contains("error: ") && shown.contains(expected), "{shown}");
    let mut value = now.clone();
    let policy = json!({"spec": {"containers": [{"name": "c", "imagePullPolicy": "Sometimes"}]}});
    value["spec"]["patches"] = json!([on_zone("1", policy)]);
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

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_told_what_becomes_of_them_and_why_they_are_as_they_are() {
    let (cluster, client) = own_cluster().await;
    for (name, zone) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "3")] {
        node(&client, name, zone).await;
    }
    let now = set("c:1", json!([on_zone("1", json!({"metadata": {"annotations": {"tier": "large"}}}))]));
    apply(&client, &now).await.unwrap();
    let resource =
        kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("apps.kruise.io", "v1beta1", "DaemonSet"));
    let sets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let uid = sets.get("agent").await.unwrap().metadata.uid.unwrap();
    for name in ["a", "b", "c"] {
        pod(&client, &uid, name, "c:1").await;
    }
    let kubeconfig = cluster.admin_kubeconfig();
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
    assert_eq!(code, Some(1), "{shown}");

    // Another image on zone 2 goes in place, a variable on zone 3 does not, zone 1 has no reason to be touched.
    let image = json!({"spec": {"containers": [{"name": "c", "image": "c:2"}]}});
    let variable = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}});
    let mut next = now.clone();
    let patches = next["spec"]["patches"].as_array_mut().unwrap();
    patches.extend([on_zone("2", image), on_zone("3", variable)]);
    let (code, shown) = plan(&next, &["-o", "wide"]);
    assert!(shown.contains("pods: 1 created, 1 left alone, 1 recreated, 1 updated in place"), "{shown}");
    for line in
        ["agent-a on a: left alone", "agent-b on b: updated in place", "agent-c on c: recreated", "a pod on d: created"]
    {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert_eq!(code, Some(1), "{shown}");

    // A pod that has not got what its node's rendering says is explained with the difference.
    let (code, shown) = run(kubeconfig, &["explain", "pod/agent-a"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("DaemonSet default/agent on node a, pod default/agent-a"), "{shown}");
    assert!(shown.contains("tier: large  # spec.patches[0]"), "{shown}");
    assert!(shown.contains("metadata.annotations.tier: has nothing, not \"large\""), "{shown}");

    // A policy alone is enough to plan with; one that changes nothing for anybody is no error.
    let policy = json!({
        "apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "p"},
        "spec": {"overrideRules": [{"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "9"}]}]},
    });
    let (code, shown) = plan(&policy, &[]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("No workload changes.") && shown.contains("no workload asks for it"), "{shown}");
    let mut asking = now.clone();
    asking["metadata"]["labels"] = json!({"groupmanagement.kubeedge.io/required-overridepolicy": "p"});
    apply(&client, &asking).await.unwrap();
    group(&client, "g", "2").await;
    let (code, shown) = plan(&policy, &[]);
    assert!(shown.contains("by OverridePolicy default/p spec.overrideRules[0].imageOverrider[0]"), "{shown}");
    assert!(shown.contains("pods: 1 created, 2 left alone, 1 updated in place"), "{shown}");
    assert_eq!(code, Some(1), "{shown}");

    the_server_is_asked(&now, plan);
    let (code, shown) = run(kubeconfig, &["diff", "ds/agent", "a", "b"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("-    tier: large"), "{shown}");
    cluster.stop().await.unwrap();
}

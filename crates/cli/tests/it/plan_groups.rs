//! `dapple plan` and `explain` of pods that a PropagationPolicy divides: who goes where, who moves, who waits, and why.

use std::path::Path;

use dapple_control::install::{apply, apply_yaml, install_crds};
use dapple_testbed::{Cluster, Fleet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::openkruise;
use crate::support::{dapple, eventually, text};

const REQUIRED: &str = "groupmanagement.kubeedge.io/required-propagationpolicy";
const BINDING: &str = "groupmanagement.kubeedge.io/binding-propagationpolicy";
const GROUP: &str = "dapple.dev/group";

fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).to_str().unwrap().to_owned()
}

fn shares(plan: &Value) -> Vec<(String, u64)> {
    let groups = plan["spread"]["groups"].as_array().unwrap().iter();
    groups.map(|share| (share["group"].as_str().unwrap().to_owned(), share["pods"].as_u64().unwrap())).collect()
}

#[test]
fn the_pod_of_each_group_is_in_the_json() {
    let (files, nodes) = (repository("examples/group"), repository("fleets/example.yaml"));
    let output = dapple(&["plan", "-f", &files, "--nodes", &nodes, "-o", "json"]);
    let plans: Vec<Value> = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    let nginx = plans.iter().find(|plan| plan["name"] == "nginx").expect("nginx is planned");
    assert_eq!(shares(nginx), [("beijing".to_owned(), 2), ("hangzhou".to_owned(), 3)]);
    for share in nginx["spread"]["groups"].as_array().unwrap() {
        let (group, pod) = (share["group"].as_str().unwrap(), &share["pod"]);
        assert_eq!((&pod["kind"], &pod["spec"]["nodeSelector"]), (&json!("Pod"), &json!({"location": group})), "{pod}");
        assert_eq!(pod["spec"]["containers"][0]["image"], format!("{group}.registry.io/nginx:1.14.2"));
        assert_eq!(pod["metadata"]["labels"][GROUP], group);
        assert_eq!(pod["metadata"]["labels"][BINDING], "nginx-propagationpolicy");
        assert_eq!(pod["metadata"]["annotations"]["dapple.dev/edition"], share["edition"]);
        assert!(share["edition"].is_string() && share["current"].is_null());
    }
}

#[test]
fn pods_that_nothing_owns_are_planned() {
    let folder = tempfile::tempdir().unwrap();
    let mut objects = vec![
        json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "spread"},
            "spec": {"staticWeightList": [{"nodeGroupNames": ["beijing"], "weight": 2}, {"nodeGroupNames": ["hangzhou"], "weight": 3}]}}),
    ];
    objects.extend(["a", "b", "c"].map(|name| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {REQUIRED: "spread"}},
            "spec": {"containers": [{"name": "c", "image": "web:1"}]}})
    }));
    std::fs::write(
        folder.path().join("pods.json"),
        json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
    )
    .unwrap();
    let (files, nodes) = (folder.path().to_str().unwrap(), repository("fleets/example.yaml"));
    let groups = repository("examples/group/nodegroups.yaml");
    let plan = |more: &[&str]| {
        let output = dapple(&[&["plan", "-f", files, "-f", &groups, "--nodes", &nodes][..], more].concat());
        text(&output.stdout) + &text(&output.stderr)
    };
    let shown = plan(&[]);
    let line = "pods per group, of 3 that nothing owns and that ask for the policy: beijing 1, hangzhou 2";
    assert!(shown.contains("Pod default/a: ") && shown.contains(line), "{shown}");
    let plans: Vec<Value> = serde_json::from_str(&plan(&["-o", "json"])).expect("JSON");
    assert_eq!(plans.len(), 3);
    assert_eq!((&plans[0]["spread"]["together"], &plans[0]["kind"]), (&json!(3), &json!("Pod")));
    assert_eq!(plans[0]["spread"]["groups"][0]["pod"]["metadata"]["labels"][GROUP], "beijing");
}

fn run(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = dapple(&[args, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn policy() -> Value {
    json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "spread", "namespace": "default"},
        "spec": {"staticWeightList": [{"nodeGroupNames": ["za", "zb", "zempty"], "weight": 1}]}})
}

/// A cluster without a manager, with three groups, one of them empty, and a Deployment of three pods behind the gate.
async fn started(deployment: &Value) -> (Cluster, Client, Vec<String>) {
    let (cluster, client) = openkruise::start(true).await;
    install_crds(&client).await.unwrap();
    apply_yaml(&client, include_str!("../../../../config/rbac.yaml")).await.unwrap();
    let kinds: Vec<Value> =
        ["za", "zb"].iter().map(|zone| json!({"name": zone, "count": 2, "labels": {"zone": zone}})).collect();
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
    for group in ["za", "zb", "zempty"] {
        let object = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup", "metadata": {"name": group},
            "spec": {"matchLabels": {"zone": group}}});
        apply(&client, &object).await.unwrap();
    }
    apply(&client, deployment).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let names = eventually("three pods", || async {
        let found = pods.list(&ListParams::default().labels("app=web")).await.map_err(|error| error.to_string())?;
        let mut names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        names.sort();
        if names.len() == 3 { Ok(names) } else { Err(format!("{names:?}")) }
    })
    .await;
    (cluster, client, names)
}

/// Without a manager: what it would do is said, and it is played here.
#[tokio::test(flavor = "multi_thread")]
async fn pods_say_why_they_wait_and_where_they_should_be() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {REQUIRED: "spread", BINDING: "spread"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
                "schedulingGates": [{"name": GROUP}], "containers": [{"name": "c", "image": "web:1"}]}}}});
    let (cluster, client, names) = started(&deployment).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let kubeconfig = cluster.admin_kubeconfig();
    let explain = |name: &str| {
        let (code, shown) = run(kubeconfig, &["explain", &format!("pod/{name}")]);
        assert_eq!(code, Some(0), "{shown}");
        shown
    };

    // Behind the gate: the policy is not there, then it is, and nobody leads.
    let shown = explain(&names[0]);
    assert!(shown.contains("waits behind the scheduling gate, by PropagationPolicy default/spread"), "{shown}");
    assert!(shown.contains("WaitingForPolicy: there is no PropagationPolicy \"spread\""), "{shown}");
    apply(&client, &policy()).await.unwrap();
    let shown = explain(&names[0]);
    assert!(shown.contains("waits behind the scheduling gate for group z"), "{shown}");
    assert!(shown.contains("BeingPlaced: ") && shown.contains("NoLeader: "), "{shown}");
    let (code, shown) = run(kubeconfig, &["explain", &format!("pod/{}", names[0]), "-o", "json"]);
    let place: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((code, &place["place"]["stand"]), (Some(0), &json!("Gated")), "{shown}");

    // Two in one group, and one in a group without nodes.
    for (name, group) in names.iter().zip(["za", "za", "zempty"]) {
        let opened = json!({"metadata": {"labels": {GROUP: group}},
            "spec": {"schedulingGates": null, "nodeSelector": {"zone": group}}});
        pods.patch(name, &PatchParams::default(), &Patch::Merge(opened)).await.unwrap();
    }
    eventually("two run", || async {
        let found = pods.list(&ListParams::default().labels("app=web")).await.map_err(|error| error.to_string())?;
        let is_ready = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|known| known.type_ == "Ready" && known.status == "True")
        };
        let ready = found.iter().filter(is_ready).count();
        if ready == 2 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await;
    let shown = explain(&names[2]);
    assert!(shown.contains("is placed in group zempty") && shown.contains("GroupEmpty: its group"), "{shown}");
    let told: Vec<String> = names[..2].iter().map(|name| explain(name)).collect();
    let misplaced: Vec<&String> =
        told.iter().filter(|shown| shown.contains("is in group za and should be in group zb")).collect();
    assert_eq!(misplaced.len(), 1, "{told:?}");
    assert!(misplaced[0].contains("OthersUnavailable: ") && misplaced[0].contains("web:1"), "{misplaced:?}");
    let placed: Vec<&String> = told.iter().filter(|shown| shown.contains("is where it belongs, in group za")).collect();
    assert_eq!(placed.len(), 1, "{told:?}");
    the_plan_says_the_same(kubeconfig, &deployment);
    volumes_come_before_seats(&client, kubeconfig).await;
}

fn the_plan_says_the_same(kubeconfig: &Path, deployment: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.json");
    std::fs::write(&file, deployment.to_string()).unwrap();
    let plan = |more: &[&str]| run(kubeconfig, &[&["plan", "-f", file.to_str().unwrap()][..], more].concat());
    let (code, shown) = plan(&["-o", "wide"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("pods per group: za 1 (now 2), zb 1 (now 0), zempty 1\n"), "{shown}");
    assert!(shown.contains("pods: 1 left alone, 1 moved") && shown.contains(": moved to group zb"), "{shown}");
    let (_, shown) = plan(&["-o", "json"]);
    let plans: Vec<Value> = serde_json::from_str(&shown).expect("JSON");
    let moved: Vec<&Value> =
        plans[0]["pods"]["each"].as_array().unwrap().iter().filter(|pod| pod["fate"] == "moved").collect();
    assert_eq!((moved.len(), &moved[0]["to"]), (1, &json!("zb")));
    assert_eq!(plans[0]["spread"]["groups"][0]["current"], 2);
}

/// Of a pod with a volume that can be used in the second group only, which by its seat would be in the first.
async fn volumes_come_before_seats(client: &Client, kubeconfig: &Path) {
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "pinned", "namespace": "default", "labels": {REQUIRED: "spread", BINDING: "spread"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "pinned"}}, "template": {
            "metadata": {"labels": {"app": "pinned"}}, "spec": {"terminationGracePeriodSeconds": 0, "volumes": [volume],
                "schedulingGates": [{"name": GROUP}], "containers": [{"name": "c", "image": "web:1"}]}}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "pinned",
            "resources": {"requests": {"storage": "1Gi"}}}});
    for object in [&set, &claim] {
        apply(client, object).await.unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let name = eventually("a pod", || async {
        let found = pods.list(&ListParams::default().labels("app=pinned")).await.map_err(|error| error.to_string())?;
        found.items.first().map(ResourceExt::name_any).ok_or_else(|| "none".to_owned())
    })
    .await;
    let says = async |part: &str| {
        eventually(part, || async {
            let (_, shown) = run(kubeconfig, &["explain", &format!("pod/{name}")]);
            if shown.contains(part) { Ok(()) } else { Err(shown) }
        })
        .await;
    };
    says("WaitingForVolume: it waits until its PersistentVolumeClaim \"data\" is bound").await;
    let here = json!({"key": "zone", "operator": "In", "values": ["zb"]});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pinned"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "pinned",
            "claimRef": {"namespace": "default", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}});
    apply(client, &volume).await.unwrap();
    says("waits behind the scheduling gate for group zb").await;
    let opened = json!({"metadata": {"labels": {GROUP: "zb"}},
        "spec": {"schedulingGates": null, "nodeSelector": {"zone": "zb"}}});
    pods.patch(&name, &PatchParams::default(), &Patch::Merge(opened)).await.unwrap();
    says("is where it belongs, in group zb").await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pinned.json");
    std::fs::write(&file, set.to_string()).unwrap();
    let (code, shown) = run(kubeconfig, &["plan", "-f", file.to_str().unwrap()]);
    assert!(shown.contains("za 1 (now 0), zb 0 (now 1)") && shown.contains("pods: 1 left alone\n"), "{shown}");
    assert_eq!(code, Some(0), "{shown}");
}

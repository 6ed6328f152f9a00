//! Who may write PodMarkers, OverridePolicies and pools, by real users: nobody gets through dapple what they may not do themselves.

use dapple_testbed::Cluster;
use kube::Client;
use serde_json::{Value, json};

use crate::support::{MANAGER_USER, dapple, eventually, own_cluster, text};
use crate::users::{User, bind, policies_are_sound, refused, role};

mod pools;
mod probers;

const MARKERS: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/default/podmarkers";
const OVERRIDES: &str = "/apis/groupmanagement.kubeedge.io/v1alpha1/namespaces/default/overridepolicies";

/// Every policy that comes with the installation.
const POLICIES: [&str; 19] = [
    "dapple-podmarker-authors",
    "dapple-nodepodprobe-authors",
    "dapple-prober-results",
    "dapple-prober-leases",
    "dapple-overridepolicy-authors",
    "dapple-revision-authors",
    "dapple-override-revision-authors",
    "dapple-daemonset-status-authors",
    "dapple-manager-of-nodes",
    "dapple-manager-of-workloads",
    "dapple-nodepool-authors",
    "dapple-pool-of-nodes",
    "dapple-yurtappset-authors",
    "dapple-yurtappset-revision-authors",
    "dapple-yurtappset-status-authors",
    "dapple-yurtappdaemon-authors",
    "dapple-yurtappdaemon-revision-authors",
    "dapple-yurtappdaemon-status-authors",
    "dapple-replacement-authors",
];

fn marker(name: &str, probe: Option<Value>) -> Value {
    let mut marker = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodMarker", "metadata": {"name": name},
        "spec": {"markItems": {"labels": {"marked": "yes"}}},
    });
    if let Some(probe) = probe {
        let probes = json!([{"containers": [{"name": "c"}], "probe": probe}]);
        marker["spec"]["matchRequirements"] = json!({"podProbes": probes});
    }
    marker
}

fn exec() -> Value {
    json!({"exec": {"command": ["cat", "/etc/passwd"]}})
}

fn override_policy(name: &str) -> Value {
    let rule = json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "v2"}]});
    json!({
        "apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name}, "spec": {"overrideRules": [rule]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_through_dapple_what_they_may_not_do_themselves() {
    let (cluster, client) = own_cluster().await;
    let kubeconfig = cluster.admin_kubeconfig().to_str().unwrap();
    // Twice: installing again changes nothing.
    for _ in 0..2 {
        let installed = dapple(&["up", "--cluster", "--yes", "--kubeconfig", kubeconfig]);
        assert!(installed.status.success(), "{}", text(&installed.stderr));
    }
    let pods = |resource: &str, verb: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]});
    role(
        &client,
        "write-objects",
        json!([
            {"apiGroups": ["apps.kruise.io"], "resources": ["podmarkers"], "verbs": ["*"]},
            {"apiGroups": ["groupmanagement.kubeedge.io"], "resources": ["overridepolicies"], "verbs": ["*"]},
        ]),
    )
    .await;
    role(&client, "patch-pods", json!([pods("pods", "patch")])).await;
    role(&client, "exec-pods", json!([pods("pods/exec", "create")])).await;
    role(&client, "forward-ports", json!([pods("pods/portforward", "create")])).await;
    role(&client, "create-pods", json!([pods("pods", "create")])).await;
    for (user, roles) in [
        ("wanda", &["write-objects"][..]),
        ("mark", &["write-objects", "patch-pods"]),
        ("rita", &["write-objects", "patch-pods", "exec-pods"]),
        ("paul", &["write-objects", "patch-pods", "forward-ports"]),
        ("dora", &["write-objects", "create-pods"]),
    ] {
        for role in roles {
            bind(&client, user, role, Some("default")).await;
        }
    }
    let user = |name| User::new(&cluster, name);
    let (writer, marks, runs, deploys) =
        (user("wanda").await, user("mark").await, user("rita").await, user("dora").await);
    let forwards = user("paul").await;

    let no_patch = ["whoever writes its spec needs permission to patch pods in namespace default: wanda lacks it"];
    eventually("the policy on markers is in effect", || async {
        let said = writer.would_create(MARKERS, &marker("w", None)).await.err().unwrap_or_default();
        if said.contains(no_patch[0]) { Ok(()) } else { Err(said) }
    })
    .await;
    markers(&writer, &marks, &runs, &no_patch).await;
    network_probes(&marks, &runs, &forwards).await;
    overrides(&writer, &deploys).await;
    revisions(&cluster, &client).await;
    override_revisions(&cluster, &client, &deploys).await;
    managers_own(&cluster, &client).await;
    pools::authors(&cluster, &client).await;
    pools::memory_of_applications(&cluster, &client).await;
    pools::nodes(&cluster, &client).await;
    probers::own_node_alone(&cluster, &client).await;

    let admin = user("root").await;
    bind(&client, "root", "cluster-admin", None).await;
    let any = marker("any", Some(exec()));
    eventually("the administrator is one", || admin.would_create(MARKERS, &any)).await;
    policies_are_sound(&admin, &POLICIES).await;
    cluster.stop().await.unwrap();
}

async fn markers(writer: &User, marks: &User, runs: &User, no_patch: &[&str]) {
    let no_exec =
        ["an exec probe of a PodMarker runs a command in pods", "create pods/exec in namespace default: mark"];
    refused(writer.create(MARKERS, &marker("a", None)).await, no_patch);
    marks.create(MARKERS, &marker("a", None)).await.unwrap();
    refused(marks.create(MARKERS, &marker("b", Some(exec()))).await, &no_exec);
    runs.create(MARKERS, &marker("b", Some(exec()))).await.unwrap();

    let [a, b] = ["a", "b"].map(|name| format!("{MARKERS}/{name}"));
    let more = json!({"spec": {"markItems": {"labels": {"marked": "more"}}}});
    refused(writer.patch(&a, &more).await, no_patch);
    refused(marks.patch(&a, &json!({"spec": marker("a", Some(exec()))["spec"]})).await, &no_exec);
    marks.patch(&a, &more).await.unwrap();
    refused(marks.patch(&b, &more).await, &no_exec);
    // What leaves the spec as it is, whoever may write the object may do; and delete it.
    for path in [&a, &b] {
        writer.patch(path, &json!({"metadata": {"labels": {"seen": "yes"}}})).await.unwrap();
        writer.delete(path).await.unwrap();
    }
}

// A probe over the network reaches a port that NetworkPolicies may keep its author from.
async fn network_probes(marks: &User, runs: &User, forwards: &User) {
    let no_forward = ["reaches pods past their NetworkPolicy", "create pods/portforward in namespace default: mark"];
    for probe in [json!({"httpGet": {"port": 80}}), json!({"tcpSocket": {"port": 80}}), json!({"grpc": {"port": 80}})] {
        let asking = marker("asks", Some(probe));
        refused(marks.create(MARKERS, &asking).await, &no_forward);
        refused(runs.create(MARKERS, &asking).await, &["create pods/portforward in namespace default: rita"]);
        forwards.would_create(MARKERS, &asking).await.unwrap();
    }
    refused(
        forwards.create(MARKERS, &marker("asks", Some(exec()))).await,
        &["create pods/exec in namespace default: paul"],
    );
    forwards.create(MARKERS, &marker("asks", Some(json!({"httpGet": {"port": 80}})))).await.unwrap();
}

async fn overrides(writer: &User, deploys: &User) {
    let no_create = ["an OverridePolicy decides what pods run", "create pods in namespace default: wanda lacks it"];
    eventually("the policy on OverridePolicies is in effect", || async {
        let said = writer.would_create(OVERRIDES, &override_policy("w")).await.err().unwrap_or_default();
        if said.contains(no_create[0]) { Ok(()) } else { Err(said) }
    })
    .await;
    refused(writer.create(OVERRIDES, &override_policy("o")).await, &no_create);
    deploys.create(OVERRIDES, &override_policy("o")).await.unwrap();
    let path = format!("{OVERRIDES}/o");
    refused(writer.patch(&path, &json!({"spec": {"overrideRules": []}})).await, &no_create);
    writer.patch(&path, &json!({"metadata": {"annotations": {"dapple.dev/suspend": "true"}}})).await.unwrap();
    deploys.patch(&path, &json!({"spec": {"overrideRules": []}})).await.unwrap();
    writer.delete(&path).await.unwrap();
}

const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// Names an object as the owner. The garbage collector deletes what has an owner that is not there.
fn owned_by(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "controller": true}])
}

fn revision(name: &str, owner: Option<&Value>) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 9, "data": {"spec": {"template": {}}},
        "metadata": {"name": name, "labels": {"app": "agent"}, "ownerReferences": owner.map_or(json!([]), owned_by)},
    })
}

/// Gives those who write revisions their rights.
async fn may_write_revisions(client: &Client) {
    let may = |group: &str, resource: &str, verbs: &[&str], names: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names});
    role(
        client,
        "forge",
        json!([
            may("apps", "controllerrevisions", &["*"], &[]),
            may("apps.kruise.io", "daemonsets/status", &["*"], &[]),
            may("apps.kruise.io", "daemonsets", &["get"], &[]),
        ]),
    )
    .await;
    role(client, "own-agent", json!([may("apps.kruise.io", "daemonsets", &["update"], &["agent"])])).await;
    role(client, "own-all", json!([may("apps.kruise.io", "daemonsets", &["patch"], &[])])).await;
    for (user, roles) in
        [("mallory", &["forge"][..]), ("olga", &["forge", "own-agent"]), ("alan", &["forge", "own-all"])]
    {
        for role in roles {
            bind(client, user, role, Some("default")).await;
        }
    }
    bind(client, "root", "cluster-admin", None).await;
}

// Whoever may write revisions and statuses, and no DaemonSet, would decide what pods of DaemonSets run.
async fn revisions(cluster: &Cluster, client: &Client) {
    may_write_revisions(client).await;
    let user = |name| User::new(cluster, name);
    let (forger, owner, everywhere, admin) =
        (user("mallory").await, user("olga").await, user("alan").await, user("root").await);
    let container = json!({"name": "c", "image": "agent:1"});
    let template = json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [container]}});
    let set = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
    });
    let agent = eventually("the set is there", || admin.create(SETS, &set)).await;
    let mut second = set.clone();
    second["metadata"]["name"] = json!("second");
    let second = admin.create(SETS, &second).await.unwrap();
    let db = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "replicas": 0, "serviceName": "db", "selector": {"matchLabels": {"app": "agent"}}, "template": template}});
    let db = admin.create("/apis/apps/v1/namespaces/default/statefulsets", &db).await.unwrap();
    let lacks = ["a ControllerRevision says what pods of a DaemonSet run", "mallory lacks it"];
    eventually("the policy on revisions is in effect", || async {
        let said = forger.would_create(REVISIONS, &revision("r", Some(&agent))).await.err().unwrap_or_default();
        if said.contains(lacks[0]) { Ok(()) } else { Err(said) }
    })
    .await;
    // What a set has, or would take in.
    refused(forger.create(REVISIONS, &revision("r", Some(&agent))).await, &lacks);
    refused(forger.create(REVISIONS, &revision("r", None)).await, &lacks);
    // Those of other workloads are nobody's business here; made another's afterwards, they are.
    forger.create(REVISIONS, &revision("other", Some(&db))).await.unwrap();
    let path = |name: &str| format!("{REVISIONS}/{name}");
    let given = json!({"metadata": {"ownerReferences": owned_by(&agent)}});
    refused(forger.patch(&path("other"), &given).await, &lacks);
    refused(forger.patch(&path("other"), &json!({"metadata": {"ownerReferences": null}})).await, &lacks);
    // Who may change the set may write its revisions, and no other's; who may change all, those that nobody owns.
    owner.create(REVISIONS, &revision("r", Some(&agent))).await.unwrap();
    refused(forger.patch(&path("r"), &json!({"revision": 10})).await, &lacks);
    refused(
        forger.patch(&path("r"), &json!({"metadata": {"labels": {"controller-revision-hash": "x"}}})).await,
        &lacks,
    );
    owner.patch(&path("r"), &json!({"revision": 10})).await.unwrap();
    refused(owner.create(REVISIONS, &revision("s", Some(&second))).await, &["olga lacks it"]);
    refused(owner.create(REVISIONS, &revision("s", None)).await, &["olga lacks it"]);
    everywhere.create(REVISIONS, &revision("s", None)).await.unwrap();

    let status = format!("{SETS}/agent/status");
    let held = json!({"status": {"currentRevision": "r"}});
    let lacks = ["the status of a DaemonSet says what nodes that are held back run", "mallory lacks it"];
    refused(forger.patch(&status, &held).await, &lacks);
    owner.patch(&status, &held).await.unwrap();
    let manager = user(MANAGER_USER).await;
    manager.patch(&status, &json!({"status": {"currentRevision": null}})).await.unwrap();
    manager.create(REVISIONS, &revision("t", Some(&agent))).await.unwrap();
    orphaned_and_taken_in(&admin, &manager, &set).await;
}

// Groups whose turn has not come, and those that the newest version does not suit, have what a revision says.
async fn override_revisions(cluster: &Cluster, client: &Client, deploys: &User) {
    let forger = User::new(cluster, "mallory").await;
    let policy = deploys.create(OVERRIDES, &override_policy("kept")).await.unwrap();
    let forged = |name: &str| revision(name, Some(&policy));
    let lacks = ["a ControllerRevision of an OverridePolicy says what pods run", "mallory lacks it"];
    eventually("the policy on their revisions is in effect", || async {
        let said = forger.would_create(REVISIONS, &forged("k")).await.err().unwrap_or_default();
        if said.contains(lacks[0]) { Ok(()) } else { Err(said) }
    })
    .await;
    refused(forger.create(REVISIONS, &forged("k")).await, &lacks);
    bind(client, "dora", "forge", Some("default")).await;
    let own = forged("k");
    eventually("who may do both may do this", || deploys.create(REVISIONS, &own)).await;
    let path = format!("{REVISIONS}/k");
    refused(forger.patch(&path, &json!({"revision": 10})).await, &lacks);
    // One that nobody owns is one that a DaemonSet could take in.
    refused(forger.patch(&path, &json!({"metadata": {"ownerReferences": null}})).await, &["mallory lacks it"]);
    let manager = User::new(cluster, MANAGER_USER).await;
    manager.create(REVISIONS, &forged("l")).await.unwrap();
}

// The manager may patch nodes and workloads, for what is its own.
async fn managers_own(cluster: &Cluster, client: &Client) {
    bind(client, "root", "cluster-admin", None).await;
    let (admin, manager) = (User::new(cluster, "root").await, User::new(cluster, MANAGER_USER).await);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "labels": {"zone": "a"}}});
    eventually("the node is there", || admin.create("/api/v1/nodes", &node)).await;
    let path = "/api/v1/nodes/one";
    manager.patch(path, &json!({"metadata": {"labels": {"group.dapple.dev/east": "true"}}})).await.unwrap();
    let no_more = [pools::NO_MORE];
    for change in [
        json!({"metadata": {"labels": {"zone": "b"}}}),
        json!({"metadata": {"labels": {"zone": null}}}),
        json!({"metadata": {"labels": {"role": "x"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["a.example/b"]}}),
        json!({"spec": {"unschedulable": true}}),
    ] {
        refused(manager.patch(path, &change).await, &no_more);
    }
    manager.patch(path, &json!({"metadata": {"labels": {"group.dapple.dev/east": null}}})).await.unwrap();

    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    admin.create(deployments, &deployment).await.unwrap();
    let path = format!("{deployments}/web");
    let label = "groupmanagement.kubeedge.io/binding-overridepolicy";
    manager.patch(&path, &json!({"metadata": {"labels": {label: "o"}}})).await.unwrap();
    for change in [
        json!({"metadata": {"labels": {"groupmanagement.kubeedge.io/required-overridepolicy": "o"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"ownerReferences": owned_by(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "uid": "00000000-0000-4000-8000-000000000000"}}))}}),
        json!({"spec": {"replicas": 3}}),
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other:1"}]}}}}),
    ] {
        refused(manager.patch(&path, &change).await, &["of workloads, dapple's manager changes the labels"]);
    }
    manager.patch(&path, &json!({"metadata": {"labels": {label: null}}})).await.unwrap();
    admin.delete(&path).await.unwrap();
    admin.delete("/api/v1/nodes/one").await.unwrap();
}

/// What is honest goes on: the garbage collector lets revisions go, and the manager takes them in again.
async fn orphaned_and_taken_in(admin: &User, manager: &User, set: &Value) {
    admin.delete(&format!("{SETS}/agent?propagationPolicy=Orphan")).await.unwrap();
    for name in ["r", "t"] {
        eventually("the revision is nobody's", || async {
            let found = admin.get(&format!("{REVISIONS}/{name}")).await?;
            let owners = &found["metadata"]["ownerReferences"];
            if owners.is_null() { Ok(()) } else { Err(owners.to_string()) }
        })
        .await;
    }
    let again = eventually("the set is there again", || admin.create(SETS, set)).await;
    let taken = json!({"metadata": {"ownerReferences": owned_by(&again)}});
    for name in ["r", "t"] {
        manager.patch(&format!("{REVISIONS}/{name}"), &taken).await.unwrap();
    }
}

//! The CRDs, judged by a real API server.

use serde_json::{Value, json};

use crate::support::{cluster, kubectl, kubectl_ok, repository};

const EXPECT: &str = "dapple.dev/expect";

#[tokio::test(flavor = "multi_thread")]
async fn every_example_is_accepted() {
    let (cluster, _) = cluster().await;
    let examples = repository().join("examples");
    let args = ["apply", "--server-side", "--dry-run=server", "-R", "-f", examples.to_str().unwrap()];
    let out = kubectl_ok(&cluster, &args, "");
    let accepted = out.lines().filter(|line| line.ends_with("serverside-applied (server dry run)")).count();
    assert!(accepted >= 30 && accepted == out.lines().count(), "{accepted} of {} lines:\n{out}", out.lines().count());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_refuse_and_accept_what_the_cases_say() {
    let (cluster, client) = cluster().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cases"}});
    dapple_control::install::apply(&client, &namespace).await.unwrap();
    let mut wrong = Vec::new();
    let mut cases = 0;
    for file in std::fs::read_dir(repository().join("crates/api/tests/cases")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            cases += 1;
            let expected = document["metadata"]["annotations"][EXPECT].as_str().expect("every case says").to_owned();
            let said = verdict(&cluster, &document);
            let fits = match expected.strip_prefix("refused: ") {
                Some(part) => said.as_ref().is_err_and(|message| message.contains(part)),
                None => expected == "accepted" && said.is_ok(),
            };
            if !fits {
                wrong.push(format!("{}: expected {expected:?}, got {said:?}", document["metadata"]["name"]));
            }
        }
    }
    assert!(cases > 100, "only {cases} cases");
    assert!(wrong.is_empty(), "{} of {cases} cases:\n{}", wrong.len(), wrong.join("\n"));
}

fn verdict(cluster: &dapple_testbed::Cluster, document: &Value) -> Result<(), String> {
    let args = ["apply", "--server-side", "--force-conflicts", "-n", "cases", "-f", "-"];
    let output = kubectl(cluster, &args, &document.to_string());
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn daemon_set(name: &str, containers: Value) -> String {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}},
        },
    })
    .to_string()
}

fn stored(cluster: &dapple_testbed::Cluster, name: &str) -> Value {
    serde_json::from_str(&kubectl_ok(cluster, &["get", "ads", name, "-o", "json"], "")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_the_schema_does_not_know_survive() {
    let (cluster, _) = cluster().await;
    let container = json!([{"name": "c", "image": "i:1", "fieldOfNextYear": {"deep": [1, {"x": null, "y": "z"}]}}]);
    kubectl_ok(&cluster, &["create", "--validate=false", "-f", "-"], &daemon_set("unknown-field", container));
    let found = stored(&cluster, "unknown-field");
    assert_eq!(
        found["spec"]["template"]["spec"]["containers"][0]["fieldOfNextYear"],
        json!({"deep": [1, {"x": null, "y": "z"}]})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_merges_containers_by_name() {
    let (cluster, _) = cluster().await;
    let first =
        daemon_set("merged", json!([{"name": "main", "image": "main:1", "env": [{"name": "A", "value": "1"}]}]));
    kubectl_ok(&cluster, &["apply", "--server-side", "--field-manager=team", "-f", "-"], &first);
    let second =
        json!([{"name": "sidecar", "image": "side:1"}, {"name": "main", "env": [{"name": "B", "value": "2"}]}]);
    kubectl_ok(
        &cluster,
        &["apply", "--server-side", "--field-manager=platform", "-f", "-"],
        &daemon_set("merged", second),
    );
    let found = stored(&cluster, "merged");
    let containers = found["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let main = containers.iter().find(|container| container["name"] == "main").unwrap();
    assert_eq!(containers.len(), 2, "{containers:?}");
    assert_eq!(main["image"], "main:1");
    assert_eq!(main["env"].as_array().unwrap().len(), 2, "{main}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_pool_of_the_older_version_is_one_of_the_newer() {
    let (cluster, _) = cluster().await;
    let selector = json!({"matchLabels": {"apps.openyurt.io/nodepool": "older-pool"}});
    let pool = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "NodePool", "metadata": {"name": "older-pool"},
        "spec": {"type": "Cloud", "selector": selector, "labels": {"zone": "a"}}});
    kubectl_ok(&cluster, &["create", "-f", "-"], &pool.to_string());
    let read = |version: &str| -> Value {
        let resource = format!("nodepools.{version}.apps.openyurt.io");
        serde_json::from_str(&kubectl_ok(&cluster, &["get", &resource, "older-pool", "-o", "json"], "")).unwrap()
    };
    assert_eq!(read("v1beta1")["spec"], json!({"type": "Cloud", "labels": {"zone": "a"}}), "its selector is ignored");
    let older = read("v1alpha1");
    assert_eq!((&older["apiVersion"], &older["spec"]["labels"]), (&pool["apiVersion"], &pool["spec"]["labels"]));
}

//! What others write to the workloads of applications in pools: put back by webhooks, or put right by the controller.

use serde_json::{Value, json};

use crate::support::{eventually, own_cluster, text};
use crate::webhooks::{Hooked, ok};

const WEBHOOK: &str = "workloads.pool.dapple.dev";
const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// An application without pods in two pools, each of which has a workload of this kind.
fn application(kind: &str) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": {
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}});
    let field = if kind == "StatefulSet" { "statefulSetTemplate" } else { "deploymentTemplate" };
    if kind == "StatefulSet" {
        spec["serviceName"] = json!("web");
    }
    let template = json!({field: {"metadata": {"labels": {"app": "web"}}, "spec": spec}});
    json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "workloadTemplate": template,
            "topology": {"pools": [{"name": "edge", "replicas": 0}, {"name": "core", "replicas": 0}]}}})
}

fn replacement(items: Value) -> String {
    json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
        "metadata": {"name": "far", "namespace": "default"}, "subject": {"kind": "YurtAppSet", "name": "web"},
        "replacements": [{"pools": ["core"], "items": items}]})
    .to_string()
}

/// The workload of a pool, as `kubectl` names it.
struct Workload<'h> {
    hooked: &'h Hooked,
    name: String,
}

impl<'h> Workload<'h> {
    /// Waits until a pool has one, which its own controller has seen.
    async fn of(hooked: &'h Hooked, kind: &str, pool: &str) -> Self {
        let label = format!("apps.openyurt.io/pool-name={pool}");
        let what = format!("{pool} has its {kind}");
        let name = eventually(&what, || async {
            let said = hooked.kubectl(&["get", kind, "-l", &label, "-o", "json"], "");
            let list: Value = serde_json::from_slice(&said.stdout).map_err(|_| text(&said.stderr))?;
            let found = &list["items"][0];
            let is_seen = found["status"]["observedGeneration"] == found["metadata"]["generation"];
            match found["metadata"]["name"].as_str() {
                Some(name) if is_seen => Ok(format!("{}/{name}", kind.to_lowercase())),
                _ => Err(found.to_string()),
            }
        });
        Self { hooked, name: name.await }
    }

    fn now(&self) -> Value {
        serde_json::from_str(&ok(&self.hooked.kubectl(&["get", &self.name, "-o", "json"], ""))).unwrap()
    }

    /// What kubectl says of a change of the image.
    fn set_image(&self, image: &str, flags: &[&str]) -> String {
        let said = self.hooked.kubectl(&[&["set", "image", &self.name, &format!("c={image}")], flags].concat(), "");
        ok(&said);
        text(&said.stderr)
    }

    /// Waits until a stray image would be put back, with this said.
    async fn is_kept(&self, wanted: &str) {
        eventually("a stray image would be put back", || async {
            let said = self.set_image("stray:1", &["--dry-run=server"]);
            if said.contains(wanted) { Ok(()) } else { Err(format!("{said}; of {}", self.now())) }
        })
        .await;
    }

    async fn has_image(&self, image: &str) {
        eventually(&format!("{} has the image {image}", self.name), || async {
            let now = self.now();
            if now.pointer(IMAGE) == Some(&json!(image)) { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    }
}

/// How often the API server has asked.
async fn asked(hooked: &Hooked) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = hooked.client.request_text(request).await.unwrap();
    let lines = metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook_request_total{"));
    let of_ours = lines.filter(|line| line.contains(&format!("name=\"{WEBHOOK}\"")));
    of_ours.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_edits_of_deployments_restart_nothing() {
    stray_edits("Deployment").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_edits_of_stateful_sets_restart_nothing() {
    stray_edits("StatefulSet").await;
}

async fn stray_edits(kind: &str) {
    let mut hooked = Hooked::on(own_cluster().await).await;
    let manager = hooked.replica();
    hooked.asked().await;
    ok(&hooked.kubectl(&["create", "-f", "-"], &application(kind).to_string()));
    let edge = Workload::of(&hooked, kind, "edge").await;
    edge.is_kept("Warning: edit YurtAppSet default/web instead; put back here: spec.template.spec.containers").await;
    what_the_application_says_is_put_back(&edge);
    others_are_never_asked_about(&hooked).await;
    a_replacement_is_looked_at(&hooked, kind).await;
    let name = edge.name.clone();
    without_webhooks_it_ends_the_same(&mut hooked, &name).await;
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

fn what_the_application_says_is_put_back(workload: &Workload<'_>) {
    let before = workload.now();
    assert!(workload.set_image("stray:1", &[]).contains("Warning: edit YurtAppSet default/web instead"));
    let after = workload.now();
    assert_eq!(
        (&after["spec"], &after["metadata"]["generation"]),
        (&before["spec"], &before["metadata"]["generation"])
    );

    // What the application does not say is anybody's.
    let name = workload.name.as_str();
    let said = workload.hooked.kubectl(&["label", name, "mine=x"], "");
    ok(&said);
    assert!(!text(&said.stderr).contains("Warning"), "{}", text(&said.stderr));
    let labelled = workload.now();
    assert_eq!(labelled["metadata"]["labels"]["mine"], "x");
    assert_eq!(labelled["metadata"]["generation"], before["metadata"]["generation"]);
    ok(&workload.hooked.kubectl(&["rollout", "restart", name], ""));
    let restarted = workload.now();
    let at = &restarted["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
    assert!(at.is_string(), "{restarted}");
    assert_eq!(restarted.pointer(IMAGE), before.pointer(IMAGE));
    assert!(workload.set_image("stray:2", &[]).contains("Warning"), "it is kept with the restart");
    assert_eq!(workload.now()["spec"], restarted["spec"]);
}

async fn others_are_never_asked_about(hooked: &Hooked) {
    let before = asked(hooked).await;
    assert!(before > 0.0, "it counts");
    let deployment = |name: &str, labels: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}})
    };
    // One that has nothing to do with pools, and one that looks as if it had.
    let labels = [json!({}), json!({"apps.openyurt.io/pool-name": "edge"})];
    for (name, labels) in ["plain", "lookalike"].into_iter().zip(labels) {
        ok(&hooked.kubectl(&["create", "-f", "-"], &deployment(name, labels).to_string()));
        let resource = format!("deployment/{name}");
        ok(&hooked.kubectl(&["set", "image", &resource, "c=c:2"], ""));
        ok(&hooked.kubectl(&["scale", &resource, "--replicas=1"], ""));
    }
    assert_eq!(asked(hooked).await, before, "nobody asked about them");
}

/// Before it is taken, and in its status; and its fields are kept as the application's own are.
async fn a_replacement_is_looked_at(hooked: &Hooked, kind: &str) {
    let image = |container: &str| json!({"image": {"containerName": container, "imageClaim": "c:2"}});
    let unused = json!({"configMap": {"configMapSource": "none", "configMapTarget": "some"}});
    for (items, wanted) in [
        (json!([image("none")]), "replacements[0].items[0]: the template has no container \"none\""),
        (json!([image("c"), unused]), "replacements[0].items[1]: nothing refers to the ConfigMap \"none\""),
    ] {
        let said = hooked.kubectl(&["create", "--dry-run=server", "-f", "-"], &replacement(items));
        ok(&said);
        assert!(text(&said.stderr).contains(wanted), "{}", text(&said.stderr));
    }
    ok(&hooked.kubectl(&["create", "-f", "-"], &replacement(json!([image("c"), unused]))));
    let core = Workload::of(hooked, kind, "core").await;
    core.has_image("c:2").await;
    core.is_kept("Warning: edit YurtAppConfigurationReplacement default/far replacements[0].items[0] instead").await;
    eventually("its status says so", || async {
        let said = hooked.kubectl(&["get", "yurtappconfigurationreplacement/far", "-o", "jsonpath={.status}"], "");
        let status = text(&said.stdout);
        let wanted = "Items that change nothing: replacements[0].items[1]";
        if status.contains(wanted) { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn without_webhooks_it_ends_the_same(hooked: &mut Hooked, name: &str) {
    hooked.disconnect();
    let edge = Workload { hooked, name: name.to_owned() };
    let before = edge.now();
    let said = edge.set_image("stray:3", &[]);
    assert!(!said.contains("put back"), "nobody answers: {said}");
    edge.has_image("c:1").await;
    let after = edge.now();
    assert!(after["metadata"]["generation"].as_i64() > before["metadata"]["generation"].as_i64(), "it had changed");
    hooked.connect().await;
    let edge = Workload { hooked, name: name.to_owned() };
    edge.is_kept("Warning: edit YurtAppSet default/web instead").await;
}

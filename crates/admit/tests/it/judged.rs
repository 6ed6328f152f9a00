//! DaemonSets as they are judged beside a cluster: of a few nodes, and an API server that knows a few fields.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_admit::ask::Asker;
use dapple_admit::daemonset::DaemonSets;
use dapple_api::daemonset::DaemonSet;
use dapple_api::verdict::Verdict;
use dapple_plan::census::Census;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// An API server that knows no field `envv`, and wants no more of cpu than its limit. It counts what it is asked.
fn api_server(pace: Duration) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, places) = (asked.clone(), Arc::new(Semaphore::new(8)));
    let service = tower::service_fn(move |request: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let places = places.clone();
        async move {
            let _place = places.acquire().await.unwrap();
            tokio::time::sleep(pace).await;
            let body = request.into_body().collect_bytes().await.unwrap();
            let template = serde_json::from_slice::<Value>(&body).unwrap()["template"].take();
            let (code, answer) = said_of(&template);
            Ok::<_, std::io::Error>(
                Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap(),
            )
        }
    });
    (Client::new(service, "default"), asked)
}

fn said_of(template: &Value) -> (u16, Value) {
    let status = |code: u16, message: &str, causes: Value| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": "Invalid", "message": message, "details": {"causes": causes}});
        (code, status)
    };
    let container = &template["spec"]["containers"][0];
    if !container["envv"].is_null() {
        let message = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: strict decoding error: unknown \
                       field \"template.spec.containers[0].envv\"";
        return status(400, message, json!([]));
    }
    let resources = &container["resources"];
    let cpu = |field: &str| resources[field]["cpu"].as_u64();
    if cpu("limits").is_some_and(|limit| cpu("requests").is_some_and(|request| request > limit)) {
        let field = "template.spec.containers[0].resources.requests";
        let cause = json!({"reason": "FieldValueInvalid", "message": "must be less than or equal to cpu limit", "field": field});
        return status(422, "invalid", json!([cause]));
    }
    (201, json!({"kind": "PodTemplate", "apiVersion": "v1", "metadata": {}}))
}

/// Judges beside three nodes: two with large disks, one of them fast.
pub(crate) struct Cluster {
    sets: DaemonSets,
    census: Census,
    asked: Arc<AtomicUsize>,
}

impl Cluster {
    fn new() -> Self {
        Self::beside(api_server(Duration::ZERO))
    }

    /// With an API server that answers 400 questions a second.
    pub(crate) fn slow() -> Self {
        Self::beside(api_server(Duration::from_millis(20)))
    }

    fn beside((client, asked): (Client, Arc<AtomicUsize>)) -> Self {
        let mut census = Census::default();
        for (name, labels) in [("a", &[LARGE, FAST][..]), ("b", &[LARGE]), ("c", &[SMALL])] {
            census.put(name, labels.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))));
        }
        Self { sets: DaemonSets::new(Arc::new(Asker::new(client, "dapple-system".to_owned()))), census, asked }
    }

    pub(crate) async fn judge(&self, set: &DaemonSet, old: Option<&DaemonSet>) -> Verdict {
        self.sets.judge(set, old, |selectors| self.census.classes(selectors)).await
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

pub(crate) fn set(patches: Value) -> DaemonSet {
    serde_json::from_value(json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": "agent"}, "spec": {
            "selector": {"matchLabels": {"app": "a"}}, "patches": patches,
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}}))
    .unwrap()
}

/// A patch of the container, for nodes with a label.
pub(crate) fn patch(label: (&str, &str), container: Value) -> Value {
    let mut container = container;
    container["name"] = "c".into();
    json!({"selector": {"matchLabels": {label.0: label.1}}, "patch": {"spec": {"containers": [container]}}})
}

pub(crate) fn errors(verdict: &Verdict) -> Vec<String> {
    verdict.errors.iter().map(ToString::to_string).collect()
}

// Labels that no node can set itself: nothing is to be said of them.
const LARGE: (&str, &str) = ("node-restriction.kubernetes.io/disk", "large");
const SMALL: (&str, &str) = ("node-restriction.kubernetes.io/disk", "small");
const FAST: (&str, &str) = ("node-restriction.kubernetes.io/cpu", "fast");
pub(crate) const NOBODY: (&str, &str) = ("node-restriction.kubernetes.io/gpu", "yes");

#[tokio::test]
async fn patches_that_newly_meet_are_asked_about() {
    let cluster = Cluster::new();
    let limit = json!({"resources": {"limits": {"cpu": 1}}});
    let request = json!({"resources": {"requests": {"cpu": 2}}});
    let apart = set(json!([patch(SMALL, limit.clone()), patch(LARGE, request.clone())]));
    assert_eq!(cluster.judge(&apart, None).await, Verdict::default());
    assert_eq!(cluster.asked(), 3, "the template, and each patch");
    let refused =
        ["spec.patches[1].patch.spec.containers[name=c].resources.requests: must be less than or equal to cpu limit"];
    // Nothing of it is new but where they apply.
    let together = set(json!([patch(FAST, limit.clone()), patch(LARGE, request.clone())]));
    assert_eq!(errors(&cluster.judge(&together, Some(&apart)).await), refused);
    // What was taken once is in nobody's way, and costs nothing.
    cluster.asked();
    assert_eq!(cluster.judge(&together, Some(&together)).await, Verdict::default());
    assert_eq!(cluster.asked(), 0);
    // A change of priorities makes other pods, too.
    let sooner = set(json!([
        patch(LARGE, json!({"resources": {"limits": {"cpu": 3}}})),
        patch(FAST, limit),
        patch(LARGE, request)
    ]));
    let mut later = sooner.clone();
    later.spec.patches[0].priority = Some(1);
    assert_eq!(errors(&cluster.judge(&sooner, None).await).len(), 1);
    let verdict = cluster.judge(&sooner, Some(&later)).await;
    assert_eq!(errors(&verdict).len(), 1, "{verdict:?}");
}

#[tokio::test]
async fn a_patch_that_gets_its_first_nodes_is_asked_about() {
    let cluster = Cluster::new();
    let wrong = json!({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}});
    let idle = set(json!([patch(NOBODY, wrong.clone())]));
    let verdict = cluster.judge(&idle, None).await;
    assert!(verdict.is_ok() && verdict.warnings.len() == 2, "{verdict:?}");
    let busy = set(json!([patch(LARGE, wrong)]));
    assert_eq!(errors(&cluster.judge(&busy, Some(&idle)).await).len(), 1);
}

#[tokio::test]
async fn patches_that_cannot_be_put_together_are_refused() {
    let cluster = Cluster::new();
    // In a field that dapple does not know, a directive is read only where there is something that it is about.
    let some = json!({"brandNew": {"a": {"x": 1}}});
    let wrong = json!({"brandNew": {"a": {"$patch": "sooner"}}});
    let apart = set(json!([patch(SMALL, some.clone()), patch(LARGE, wrong.clone())]));
    assert_eq!(cluster.judge(&apart, None).await, Verdict::default());
    let together = set(json!([patch(FAST, some), patch(LARGE, wrong)]));
    for old in [None, Some(&apart)] {
        let told = errors(&cluster.judge(&together, old).await);
        assert_eq!(told.len(), 1, "{told:?}");
        let beginning = "spec.patches[1].patch: it cannot be used together with spec.patches[0], as on 1 nodes: ";
        assert!(told[0].starts_with(beginning), "{told:?}");
    }
    assert!(cluster.judge(&together, Some(&together)).await.is_ok(), "it was so before");
}

#[tokio::test]
async fn what_the_rules_and_the_cluster_say_is_told_at_once() {
    let cluster = Cluster::new();
    let typo = patch(FAST, json!({"envv": []}));
    let no_merge =
        json!({"selector": {"matchLabels": {LARGE.0: LARGE.1}}, "patch": {"spec": {"containers": [{"image": "c:2"}]}}});
    let mut wrong = set(json!([no_merge, typo]));
    wrong.spec.template.0["spec"]["restartPolicy"] = "Never".into();
    let told = errors(&cluster.judge(&wrong, None).await);
    let fields: Vec<&str> = told.iter().filter_map(|error| error.split(": ").next()).collect();
    let wanted = [
        "spec.template.spec.restartPolicy",
        "spec.patches[0].patch.spec.containers",
        "spec.patches[1].patch.spec.containers[name=c].envv",
    ];
    assert_eq!(fields.len(), wanted.len(), "{told:?}");
    for (field, wanted) in fields.iter().zip(wanted) {
        assert!(field.starts_with(wanted), "{told:?}");
    }
    // The same mistake in two places is two.
    let twice = set(json!([patch(SMALL, json!({"envv": []})), patch(FAST, json!({"envv": []}))]));
    assert_eq!(errors(&cluster.judge(&twice, None).await).len(), 2);
    // Thousands of patches are one mistake, and nobody is asked about them.
    cluster.asked();
    let many = set(Value::from(vec![patch(FAST, json!({"envv": []})); 2_000]));
    let told = errors(&cluster.judge(&many, None).await);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(cluster.asked(), 0, "the template is known, and that is all there is to know");
}

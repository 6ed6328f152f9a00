//! Applications in pools beside webhooks of others, while their own are down, and while a replica that answers knows nothing new.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use dapple_control::install::apply;
use dapple_testbed::Fleet;
use dapple_testbed::balancer::Backend;
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::proxy::{Proxy, kubeconfig};
use crate::reinvocation::other_product;
use crate::support::{eventually, leads, own_cluster_with_kwok, text};
use crate::webhooks::{Hooked, ok};

const OURS: &str = "apps.openyurt.io/v1alpha1";
const POOLS: [&str; 4] = ["a", "b", "c", "d"];
const POOL: &str = "apps.openyurt.io/pool-name";
const REVISION: &str = "apps.openyurt.io/controller-revision-hash";
const MAX: &str = "dapple.dev/rollout-max";
const GRACE: &str = "dapple.dev/pool-grace";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const SIZE: &str = "/spec/template/spec/containers/0/env/0/value";
const DIGEST: &str = "sha256:6a0f3e2b1c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7";

/// The application `web` of a namespace.
struct Web<'c> {
    client: &'c Client,
    namespace: &'static str,
    kind: &'static str,
}

impl Web<'_> {
    fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), self.namespace, &resource)
    }

    /// Makes it, with a namespace that has these labels, where all pools are changed at once.
    async fn create(&self, image: &str, labels: Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.namespace, "labels": labels}});
        apply(self.client, &namespace).await.unwrap();
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": image}]}}});
        let template = json!({"deploymentTemplate": {"metadata": {"labels": {"app": "web"}}, "spec": spec}});
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}, "workloadTemplate": template});
        if self.kind == "YurtAppSet" {
            let pools = POOLS.map(|pool| {
                let here = json!({"key": "apps.openyurt.io/nodepool", "operator": "In", "values": [pool]});
                json!({"name": pool, "replicas": 1, "nodeSelectorTerm": {"matchExpressions": [here]}})
            });
            spec["topology"] = json!({"pools": pools});
        } else {
            spec["nodepoolSelector"] = json!({});
        }
        let web = json!({"apiVersion": OURS, "kind": self.kind, "spec": spec,
            "metadata": {"name": "web", "namespace": self.namespace, "annotations": {MAX: "100%"}}});
        eventually("the application is taken", || async {
            apply(self.client, &web).await.map_err(|error| format!("{error:?}"))
        })
        .await;
    }

    async fn patch(&self, patch: Value) {
        let api = self.api(OURS, self.kind);
        api.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Gives its pods another image, so many pools at once.
    async fn set_image(&self, image: &str, max: &str) {
        let template = json!({"spec": {"containers": [{"name": "web", "image": image}]}});
        self.patch(json!({"metadata": {"annotations": {MAX: max}},
            "spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": template}}}}}))
            .await;
    }

    async fn workloads(&self) -> BTreeMap<String, Value> {
        let all = self.api("apps/v1", "Deployment").list(&ListParams::default()).await.unwrap();
        let in_pool = |known: DynamicObject| Some((known.labels().get(POOL)?.clone(), json!(known)));
        all.items.into_iter().filter_map(in_pool).collect()
    }

    /// In how many pools this is at a place.
    async fn count(&self, place: &str, wanted: &str) -> usize {
        self.workloads().await.values().filter(|known| known.pointer(place) == Some(&json!(wanted))).count()
    }

    /// Waits until this is at a place in so many pools.
    async fn have(&self, count: usize, place: &str, wanted: &str) {
        eventually(&format!("{count} pools have {wanted} at {place}"), || async {
            let found = self.count(place, wanted).await;
            if found == count { Ok(()) } else { Err(format!("{found} have")) }
        })
        .await;
    }

    async fn status(&self) -> Value {
        self.api(OURS, self.kind).get("web").await.unwrap().data["status"].clone()
    }

    /// Waits until every pool is done with what is said now, and it is known to be rolled out whole.
    async fn is_done(&self) {
        eventually(&format!("all pools of {} are done", self.namespace), || async {
            let found = self.api(OURS, self.kind).get("web").await.map_err(|error| error.to_string())?;
            let status = &found.data["status"];
            let pools = status["pools"].as_array().map_or(&[][..], Vec::as_slice);
            let are_done = pools.len() == POOLS.len() && pools.iter().all(|pool| pool["state"] == "Done");
            let is_fresh = status["observedGeneration"].as_i64() == found.metadata.generation;
            let is_whole = status["currentRevision"] == status["updateRevision"];
            if are_done && is_fresh && is_whole { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Waits until it was looked at twice so often: a look says that an annotation cannot be understood, another that it can again.
    async fn is_looked_at(&self, times: usize) {
        for _ in 0..times {
            for (grace, reason) in [(Some("soon"), "BadAnnotation"), (None, "Synced")] {
                self.patch(json!({"metadata": {"annotations": {GRACE: grace}}})).await;
                eventually(&format!("it says {reason}"), || async {
                    let status = self.status().await;
                    let mut conditions = status["conditions"].as_array().into_iter().flatten();
                    let is_told = conditions.any(|told| told["type"] == "Synced" && told["reason"] == reason);
                    if is_told { Ok(()) } else { Err(status["conditions"].to_string()) }
                })
                .await;
            }
        }
    }

    /// What every write changes.
    async fn versions(&self) -> Vec<Value> {
        self.workloads().await.values().map(|known| known["metadata"]["resourceVersion"].clone()).collect()
    }

    /// What its workloads say, by pool: all but the name of the revision.
    async fn said(&self) -> BTreeMap<String, Value> {
        let mut known = self.workloads().await;
        for workload in known.values_mut() {
            let labels = workload.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut);
            labels.unwrap().remove(REVISION);
            *workload = json!([workload["metadata"]["annotations"]["dapple.dev/rendered"], workload["spec"]]);
        }
        known
    }
}

/// The pods of a namespace that there ever were, with their pools.
struct Pods {
    seen: Arc<Mutex<BTreeSet<(String, String)>>>,
    watching: AbortHandle,
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Pods {
    fn watch(web: &Web<'_>) -> Self {
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let (api, told) = (Api::<Pod>::namespaced(web.client.clone(), web.namespace), seen.clone());
        let watching = tokio::spawn(async move {
            let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event {
                    let pool = pod.labels().get(POOL).cloned().unwrap_or_default();
                    told.lock().unwrap().insert((pool, pod.uid().unwrap_or_default()));
                }
            }
        });
        Self { seen, watching: watching.abort_handle() }
    }

    /// How many pods each pool has had.
    fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        self.seen.lock().unwrap().iter().for_each(|(pool, _)| *counts.entry(pool.clone()).or_default() += 1);
        counts
    }
}

/// Two managers: one leads, the other alone answers webhooks, and reaches the API server by way of a proxy.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_others_and_faults_of_ones_own_restart_nothing_twice() {
    let mut hooked = Hooked::with_replicas(own_cluster_with_kwok().await, 1).await;
    let kinds = POOLS.map(|pool| json!({"name": pool, "count": 1, "labels": {"apps.openyurt.io/nodepool": pool}}));
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    hooked.cluster.apply_fleet(&fleet).await.unwrap();
    let address = || SocketAddr::from(([127, 0, 0, 1], hooked.cluster.choose_port().unwrap()));
    let leader = Backend { address: address(), health: address() };
    let leader = hooked.replica_at(leader, "leader", &hooked.kubeconfig, &[]);
    leads(&hooked.client, &leader).await;
    let file = Kubeconfig::read_from(&hooked.kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let (proxy, address) = Proxy::start(Client::try_from(config).unwrap()).await;
    let by_proxy = kubeconfig(hooked.cluster.dir(), address);
    let answering = hooked.replica_at(hooked.backends[0], "answering", &by_proxy, &[]);
    hooked.asked().await;
    for pool in POOLS {
        let object = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool", "metadata": {"name": pool},
            "spec": {"type": "Edge"}});
        apply(&hooked.client, &object).await.unwrap();
    }

    let client = hooked.client.clone();
    let rough = Web { client: &client, namespace: "rough", kind: "YurtAppSet" };
    let pods = Pods::watch(&rough);
    rough.create("web:1", json!({})).await;
    let stop = CancellationToken::new();
    another_webhook_changes_workloads(&hooked, stop.clone()).await;

    rough.is_done().await;
    the_one_that_answers_is_frozen(&hooked, &rough, &proxy).await;
    webhooks_are_down(&mut hooked, &rough).await;
    proxy.freeze(false);
    hooked.connect().await;
    stray_edits_are_put_back(&hooked).await;
    it_is_as_without_faults(&rough).await;
    let each_change_once = BTreeMap::from(POOLS.map(|pool| (pool.to_owned(), 4_usize)));
    assert_eq!(pods.counts(), each_change_once, "one pod for each version of each pool; {}", leader.log_text());
    stop.cancel();
    drop((leader, answering, pods));
    hooked.cluster.stop().await.unwrap();
}

/// Another product's webhook, which labels workloads and their pods, and pins images.
fn pin(workload: &Value) -> Value {
    let labelled = |place: &str| json!({"op": "add", "path": format!("{place}/labels/injected"), "value": "yes"});
    let mut patch = vec![labelled("/metadata"), labelled("/spec/template/metadata")];
    let image = workload.pointer(IMAGE).and_then(Value::as_str).unwrap_or_default();
    if !image.contains('@') {
        patch.push(json!({"op": "replace", "path": IMAGE, "value": format!("{image}@{DIGEST}")}));
    }
    Value::Array(patch)
}

/// What it makes of workloads stays, and nothing is written for it: in ten looks here, as many as in five minutes.
async fn another_webhook_changes_workloads(hooked: &Hooked, stop: CancellationToken) {
    let front = SocketAddr::from(([127, 0, 0, 1], hooked.cluster.choose_port().unwrap()));
    let (_, bundle) = other_product(front, stop, pin).await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "zz-pins"}, "webhooks": [{
            "name": "pins.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"pinned": "yes"}},
            "clientConfig": {"url": format!("https://{front}/"), "caBundle": ByteString(bundle.into_bytes())},
            "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["deployments"]}]}]});
    let probe =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probe", "labels": {"pinned": "yes"}}});
    for object in [hook, probe] {
        apply(&hooked.client, &object).await.unwrap();
    }
    eventually("the webhook is asked", || async {
        let said = hooked.kubectl(
            &["create", "deployment", "probe", "-n", "probe", "--image=c:1", "--dry-run=server", "-o", "json"],
            "",
        );
        let said = text(&said.stdout) + &text(&said.stderr);
        if said.contains(DIGEST) { Ok(()) } else { Err(said) }
    })
    .await;
    let web = Web { client: &hooked.client, namespace: "pinned", kind: "YurtAppDaemon" };
    web.create("web:1", json!({"pinned": "yes"})).await;
    web.is_done().await;
    is_pinned_and_silent(&web, "web:1", 5).await;
    // A change comes to all pools, and is as silent then.
    web.set_image("web:2", "100%").await;
    web.have(POOLS.len(), IMAGE, &format!("web:2@{DIGEST}")).await;
    web.is_done().await;
    is_pinned_and_silent(&web, "web:2", 1).await;
}

async fn is_pinned_and_silent(web: &Web<'_>, image: &str, looks: usize) {
    assert_eq!(web.count(IMAGE, &format!("{image}@{DIGEST}")).await, POOLS.len());
    for place in ["/metadata/labels/injected", "/spec/template/metadata/labels/injected"] {
        assert_eq!(web.count(place, "yes").await, POOLS.len(), "{place}");
    }
    let before = web.versions().await;
    web.is_looked_at(looks).await;
    assert_eq!(web.versions().await, before, "nothing is written");
}

/// Waits until who answers knows what the application says, and puts stray edits back.
async fn stray_edits_are_put_back(hooked: &Hooked) {
    eventually("stray images would be put back", || async {
        let stray = ["set", "image", "deployment", "--all", "-n", "rough", "web=stray:1"];
        let said = hooked.kubectl(&[&stray[..], &["--dry-run=server", "-o", "json"]].concat(), "");
        let (stored, warned) = (text(&said.stdout), text(&said.stderr));
        let are_kept = stored.contains("web:") && !stored.contains("stray:1");
        if are_kept && warned.contains("instead; put back here") { Ok(()) } else { Err(stored + &warned) }
    })
    .await;
}

/// Somebody puts a label on all workloads: the webhook is asked about each.
fn label_all(hooked: &Hooked, note: &str) {
    let label = format!("note={note}");
    ok(&hooked.kubectl(&["label", "deployment", "--all", "-n", "rough", &label, "--overwrite"], ""));
}

/// A replica that knows nothing new turns no rollout back, and has no pool jump the queue.
async fn the_one_that_answers_is_frozen(hooked: &Hooked, web: &Web<'_>, proxy: &Proxy) {
    stray_edits_are_put_back(hooked).await;
    proxy.freeze(true);
    web.set_image("web:2", "50%").await;
    web.have(2, IMAGE, "web:2").await;
    label_all(hooked, "frozen");
    assert_eq!(web.count("/metadata/labels/note", "frozen").await, POOLS.len());
    let (have, status) = (web.count(IMAGE, "web:2").await, web.status().await);
    let is_whole = |pool: &&Value| pool["state"] == "Done" && pool["revision"] == status["updateRevision"];
    let done = status["pools"].as_array().unwrap().iter().filter(is_whole).count();
    // On a slow machine the first half may be done by now: only then the other half has its turn.
    assert!(have == 2 || have > 2 && done >= 2, "{have} of them have it, and {done} are done with it: {status}");
    web.is_done().await;
    assert_eq!(web.count(IMAGE, "web:2").await, POOLS.len());
    label_all(hooked, "frozen-still");
    assert_eq!(web.count(IMAGE, "web:2").await, POOLS.len(), "none is turned back");
}

/// What is under way goes on without webhooks, and so does what is said meanwhile.
async fn webhooks_are_down(hooked: &mut Hooked, web: &Web<'_>) {
    let replacement = json!({"apiVersion": OURS, "kind": "YurtAppConfigurationReplacement",
        "metadata": {"name": "web", "namespace": web.namespace}, "subject": {"kind": web.kind, "name": "web"},
        "replacements": [{"pools": "*", "items": [{"env": {"containerName": "web", "envClaim": {"SIZE": "large"}}}]}]});
    apply(web.client, &replacement).await.unwrap();
    eventually("it has begun", || async {
        let found = web.count(SIZE, "large").await;
        if found > 0 { Ok(()) } else { Err("no pool has it".to_owned()) }
    })
    .await;
    hooked.disconnect();
    label_all(hooked, "down");
    web.is_done().await;
    assert_eq!(web.count(SIZE, "large").await, POOLS.len());

    let replacements = web.api(OURS, "YurtAppConfigurationReplacement");
    replacements.delete("web", &DeleteParams::default()).await.unwrap();
    web.have(0, SIZE, "large").await;
    label_all(hooked, "down-still");
    web.is_done().await;
}

/// As one that is made so at once.
async fn it_is_as_without_faults(rough: &Web<'_>) {
    let calm = Web { client: rough.client, namespace: "calm", kind: rough.kind };
    calm.create("web:2", json!({})).await;
    calm.have(POOLS.len(), IMAGE, "web:2").await;
    assert_eq!(rough.said().await, calm.said().await);
    // And nothing is left to do.
    let before = rough.versions().await;
    rough.is_looked_at(1).await;
    assert_eq!(rough.versions().await, before, "nothing is written");
}

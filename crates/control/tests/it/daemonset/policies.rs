//! OverridePolicies: pods by the groups of their node, after patches, and by the set's own strategy and budget.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_testbed::Readiness;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::illness::{Course, Illness, SICK};
use super::story::{ByNode, Story, cache, changed, rolling, tolerant};
use super::watch::{Invariants, watch};

const API: &str = "groupmanagement.kubeedge.io/v1alpha1";
const REQUIRED: &str = "groupmanagement.kubeedge.io/required-overridepolicy";
const BINDING: &str = "groupmanagement.kubeedge.io/binding-overridepolicy";

impl Story {
    /// Two nodes in each of two groups, and one in none.
    async fn with_groups(name: &str) -> Self {
        let story = Self::without_nodes(name).await;
        for (kind, count) in [("east", 2), ("west", 2), ("free", 1)] {
            story.add_nodes(kind, count, json!({"site": kind})).await;
        }
        for site in ["east", "west"] {
            let labels = json!({"story": name, "site": site});
            story.put("NodeGroup", &story.node(site), json!({"matchLabels": labels})).await;
        }
        story
    }

    fn api_of(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = API.split_once('/').unwrap_or_default();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.sets.clone().into_client();
        match kind {
            "NodeGroup" => Api::all_with(client, &resource),
            _ => Api::namespaced_with(client, &self.name, &resource),
        }
    }

    async fn put(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("test").force();
        self.api_of(kind).patch(name, &params, &Patch::Apply(&object)).await.expect("it is taken");
    }

    /// A registry for each group, by which images tell the version of the policy.
    async fn put_policy(&self, version: usize, more: &[Value]) {
        let rule = |site: &str| {
            json!({"targetNodeGroup": [self.node(site)], "overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "add", "value": format!("{site}{version}.example")}]}})
        };
        let rules: Vec<Value> = ["east", "west"].map(rule).into_iter().chain(more.iter().cloned()).collect();
        self.put("OverridePolicy", "registries", json!({"overrideRules": rules})).await;
    }

    async fn change_policy(&self, patch: Value) {
        let policies = self.api_of("OverridePolicy");
        policies.patch("registries", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("it is taken");
    }

    /// As the story's set, and asks for the policy.
    fn asking(&self, image: &str, spec: Value) -> Value {
        let mut set = self.set(image, spec);
        set["metadata"]["labels"] = json!({REQUIRED: "registries"});
        set
    }

    /// Waits until the nodes have these images.
    async fn have(&self, wanted: &[(&str, &str)]) -> ByNode {
        let wanted: BTreeMap<&str, &str> = wanted.iter().copied().collect();
        let images = |seen: &ByNode| {
            seen.iter().map(|(node, pod)| (node.clone(), pod.image.clone())).collect::<BTreeMap<String, String>>()
        };
        let expected: BTreeMap<String, String> =
            wanted.iter().map(|(node, image)| (node.to_string(), image.to_string())).collect();
        self.pods_are(&format!("images are {wanted:?}"), |seen| images(seen) == expected).await
    }

    /// Waits until nodes of the groups have the images of these versions of the policy, and the one in none its template's.
    async fn have_versions(&self, east: usize, west: usize) -> ByNode {
        let (east, west) = (format!("east{east}.example/agent:1"), format!("west{west}.example/agent:1"));
        self.have(&[
            ("east-000", &east),
            ("east-001", &east),
            ("free-000", "agent:1"),
            ("west-000", &west),
            ("west-001", &west),
        ])
        .await
    }

    /// Waits until `Degraded` says all of this, for this reason or, if that is empty, for any.
    async fn is_told(&self, reason: &str, parts: &[&str]) {
        let is_it = |known: &Value| {
            let message = known["message"].as_str().unwrap_or_default();
            known["type"] == "Degraded"
                && (reason.is_empty() || known["reason"] == reason)
                && parts.iter().all(|part| message.contains(part))
        };
        let says = |status: &Value| status["conditions"].as_array().is_some_and(|all| all.iter().any(is_it));
        self.status(&format!("Degraded says {parts:?}"), says).await;
    }

    /// The names of the set's own revisions.
    async fn own_revisions(&self) -> Vec<String> {
        let all = self.revisions.list(&ListParams::default()).await.unwrap();
        let is_its = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| owner.kind == "DaemonSet";
        all.iter().filter(|known| known.owner_references().iter().any(is_its)).map(ResourceExt::name_any).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_made_by_the_groups_of_their_node_and_rolled_out_within_the_budget() {
    let story = Story::with_groups("overriding").await;
    // Labels first: nobody gets a pod before it is known what it should be.
    story.apply(&story.asking("agent:1", json!({"patches": [cache("none", "1"), patch_of_site("east")]}))).await;
    story.is_told("WaitingForPolicy", &["OverridePolicy \"registries\" is asked for and not confirmed; 5 nodes"]).await;
    assert!(story.all_pods().await.is_empty());
    let watched = watch(&story, Invariants { most_on_a_node: 1, ..Invariants::default() }).await;
    story.put_policy(1, &[]).await;
    let first = story.have_versions(1, 1).await;
    assert_eq!(first["east-000"].cache, "patched", "rules apply after patches");
    assert_eq!(watched.made().await, 5, "none was made twice");
    watched.finish().await;
    story.condition("Degraded", "False", "AsExpected").await;
    let bound = story.sets.get("agent").await.unwrap();
    assert_eq!(bound.labels().get(BINDING).map(String::as_str), Some("registries"));

    // The policy is edited: one after another, and who has no rule is left alone.
    let calm = Invariants { budget: Some(1), most_on_a_node: 1, untouched: vec!["free-000"] };
    let watched = watch(&story, calm.clone()).await;
    story.put_policy(2, &[]).await;
    let second = story.have_versions(2, 2).await;
    assert_eq!(changed(&first, &second).len(), 4);
    watched.finish().await;
    story.status("all are told to have it", |status| status["updatedNumberScheduled"] == 5).await;

    // A node comes into another group; then a group gets other nodes.
    let moved = Invariants { untouched: vec!["free-000", "east-001", "west-000", "west-001"], ..calm.clone() };
    let watched = watch(&story, moved).await;
    story.change_node("east-000", json!({"metadata": {"labels": {"site": "west"}}})).await;
    let (east, west) = ("east2.example/agent:1", "west2.example/agent:1");
    let mut wanted =
        [("east-000", west), ("east-001", east), ("free-000", "agent:1"), ("west-000", west), ("west-001", west)];
    story.have(&wanted).await;
    watched.finish().await;
    let joined = json!({"nodes": [story.node("free-000")], "matchLabels": {"story": story.name, "site": "east"}});
    story.put("NodeGroup", &story.node("east"), joined).await;
    wanted[2].1 = east;
    story.have(&wanted).await;

    // Nothing of it is in revisions; without the label everything is as the template again.
    assert_eq!(story.own_revisions().await.len(), 1);
    let watched = watch(&story, Invariants { untouched: Vec::new(), ..calm }).await;
    let unasked = json!({"metadata": {"labels": {REQUIRED: null}}});
    story.sets.patch("agent", &PatchParams::default(), &Patch::Merge(&unasked)).await.unwrap();
    story.have_image(5, "agent:1").await;
    watched.finish().await;
    story.condition("Progressing", "False", "Complete").await;
    assert_eq!(story.own_revisions().await.len(), 1);
}

/// Another value of `CACHE` for the nodes of a site.
fn patch_of_site(site: &str) -> Value {
    let mut patch = cache("", "patched");
    patch["selector"] = json!({"matchLabels": {"site": site}});
    patch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_cannot_be_used_takes_nobody_and_one_that_does_harm_takes_one_node() {
    let story = Story::with_groups("overharm").await;
    story.put_policy(1, &[]).await;
    let in_place = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 1}));
    story.apply(&story.asking("agent:1", json!({"updateStrategy": in_place}))).await;
    let first = story.have_versions(1, 1).await;

    // Suspended: nothing that runs is changed. Then images are changed where they run.
    story.change_policy(json!({"metadata": {"annotations": {"dapple.dev/suspend": "true"}}})).await;
    story.put_policy(2, &[]).await;
    story.condition("Paused", "True", "PolicySuspended").await;
    assert_eq!(story.have_versions(1, 1).await, first);
    story.change_policy(json!({"metadata": {"annotations": {"dapple.dev/suspend": null}}})).await;
    let second = story.have_versions(2, 2).await;
    assert_eq!(changed(&first, &second), [] as [&str; 0], "no pod is made anew");

    // A rule that does not apply, and one that makes what the API server refuses: their nodes keep what they run.
    let broken = json!({"targetNodeGroup": [story.node("west")], "plaintext": [
        {"path": "/spec/volumes/0", "operator": "remove"}]});
    let refused = json!({"targetNodeGroup": [story.node("east")], "plaintext": [
        {"path": "/spec/dnsPolicy", "operator": "add", "value": "Nowhere"}]});
    story.put_policy(3, &[broken, refused]).await;
    let failed = "OverridePolicy overharm/registries spec.overrideRules[2].plaintext[0]: ";
    story.is_told("", &[failed, "OverridePolicy overharm/registries spec.overrideRules[3]: ", "dnsPolicy"]).await;
    assert_eq!(story.have_versions(2, 2).await, second);

    // One that does harm stops at the budget.
    let nodes: Vec<String> = ["east-000", "east-001", "west-000", "west-001"].map(|node| story.node(node)).into();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    story.cluster.hold_readiness("overharm", &held, Readiness::Delay(Duration::from_secs(3600))).await.unwrap();
    story.put_policy(4, &[]).await;
    let of_fourth = |pods: &[(String, k8s_openapi::api::core::v1::Pod)]| {
        let images = pods.iter().filter_map(|(_, pod)| pod.spec.as_ref()?.containers.first()?.image.clone());
        images.filter(|image| image.contains("4.example")).count()
    };
    story.every_pod("one node has the fourth", |pods| of_fourth(pods) == 1).await;
    story
        .status("it is told", |status| status["updatedNumberScheduled"] == 2 && status["numberUnavailable"] == 1)
        .await;
    assert_eq!(of_fourth(&story.all_pods().await), 1);
    story.cluster.release_readiness("overharm").await.unwrap();
    let fourth = story.have_versions(4, 4).await;

    // It is gone, and still asked for: who runs keeps what it has, and who has no pod waits.
    story.api_of("OverridePolicy").delete("registries", &DeleteParams::default()).await.unwrap();
    story.condition("Degraded", "True", "WaitingForPolicy").await;
    story.pods.delete(&fourth["east-000"].name, &DeleteParams::default()).await.unwrap();
    let kept = story.pods_are("one is missing", |seen| seen.len() == 4).await;
    assert!(changed(&fourth, &kept).is_empty());
    story.put_policy(4, &[]).await;
    let back = story.have_versions(4, 4).await;
    assert_eq!(changed(&fourth, &back), ["east-000"]);
}

/// The policy itself does the harm: its image makes a node NotReady, which must not give the budget back.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_makes_its_node_not_ready_is_stopped_and_its_correction_heals() {
    const MIN_READY: u64 = 8;
    let story = Story::with_groups("oversick").await;
    let tag = async |tag: &str| {
        let overrider = json!({"component": "Tag", "operator": "replace", "value": tag});
        let rule = json!({"targetNodeGroup": [story.node("east"), story.node("west")], "imageOverrider": [overrider]});
        story.put("OverridePolicy", "registries", json!({"overrideRules": [rule]})).await;
    };
    let have = async |image: &str| {
        let sites = ["east-000", "east-001", "west-000", "west-001"].map(|node| (node, image));
        story.have(&[&sites[..], &[("free-000", "agent:1")]].concat()).await;
    };
    tag("2").await;
    let strategy = rolling(json!({"maxUnavailable": 1}));
    let spec = json!({"updateStrategy": strategy, "minReadySeconds": MIN_READY});
    story.apply(&tolerant(story.asking("agent:1", spec))).await;
    have("agent:2").await;
    story.condition("Progressing", "False", "Complete").await;

    let course = Course {
        ready: "false",
        takes_pods_along: false,
        after: Duration::from_secs(1),
        only: None,
        is_for_good: false,
        is_over: false,
    };
    let illness = Illness::begin(&story, course);
    tag("sick").await;
    illness.reaches(&story, 1).await;
    // Longer than pods have to be ready: by pods alone it would go on.
    tokio::time::sleep(Duration::from_secs(MIN_READY + 3)).await;
    let images = story.all_pods().await.into_iter().filter_map(|(_, pod)| pod.spec?.containers.first()?.image.clone());
    assert_eq!((illness.most_ill(), images.filter(|image| image == SICK).count()), (1, 1), "{:?}", illness.ill());

    tag("3").await;
    have("agent:3").await;
    let nodes = ["east-000", "east-001", "free-000", "west-000", "west-001"].map(str::to_owned);
    story.readiness_is(&nodes, "True").await;
    assert_eq!(illness.most_ill(), 1);
}

//! Pods are moved to the groups that should have them: one after another, and not on once a move does harm.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_api::group::NodeGroup;
use dapple_testbed::Readiness;
use dapple_testbed::testing::Observer;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::binding::REQUIRED;
use super::placing::{Site, is_ready};
use super::steady::LONG_ENOUGH;
use crate::support::eventually;

/// Looks at the pods of a namespace all the time, and remembers the fewest that were ready.
pub(super) struct Watcher {
    fewest: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub(super) fn start(client: &Client, namespace: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let fewest = Arc::new(AtomicUsize::new(usize::MAX));
        let seen = fewest.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Ok(found) = pods.list(&ListParams::default()).await {
                    seen.fetch_min(found.iter().filter(|pod| is_ready(pod)).count(), Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { fewest, task }
    }

    pub(super) fn stop(self) -> usize {
        self.task.abort();
        self.fewest.load(Ordering::Relaxed)
    }
}

impl Site {
    pub(super) async fn weigh(&self, weights: [i64; 2]) {
        self.patch_policy("PropagationPolicy", "spread", json!({"spec": self.weights(weights)})).await;
    }

    pub(super) async fn has_event(&self, reason: &str) {
        eventually(&format!("an event {reason}"), || async {
            let events =
                Api::<Event>::namespaced(self.client.clone(), &self.name).list(&ListParams::default()).await.unwrap();
            let reasons: BTreeSet<String> = events.into_iter().filter_map(|event| event.reason).collect();
            if reasons.contains(reason) { Ok(()) } else { Err(format!("{reasons:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_moved_one_by_one_and_not_on_once_a_move_does_harm() {
    let site = Site::new("moving").await;
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.add_policy().await;
    site.place.create(&api, object).await;
    site.are_divided([2, 3]).await;

    let before = site.identities().await;
    let watcher = Watcher::start(&site.client, &site.name);
    site.weigh([3, 2]).await;
    site.are_divided([3, 2]).await;
    assert_eq!(site.identities().await.intersection(&before).count(), 4, "one eviction");
    assert!(watcher.stop() >= 4, "never two away");
    site.has_event("PodMoved").await;

    // A budget without room: nothing moves.
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(site.client.clone(), &site.name);
    let budget =
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "web"}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    eventually("the budget is counted", || async {
        let healthy = budgets.get("web").await.unwrap().status.and_then(|status| status.current_healthy);
        if healthy == Some(5) { Ok(()) } else { Err(format!("{healthy:?}")) }
    })
    .await;
    let before = site.identities().await;
    site.weigh([2, 3]).await;
    site.has_event("MoveRefused").await;
    assert_eq!(site.identities().await, before);
    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    site.are_divided([2, 3]).await;

    // All to beijing, one by one. Then nothing becomes ready in hangzhou any more: the first move there is the last.
    let watcher = Watcher::start(&site.client, &site.name);
    site.weigh([19, 1]).await;
    site.are_divided([5, 0]).await;
    assert!(watcher.stop() >= 4, "never two away");
    let cluster = crate::daemonset::cluster().await;
    let nodes: Vec<String> = (0..3).map(|number| format!("{}-hangzhou-{number:03}", site.name)).collect();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    cluster.hold_readiness("moving", &held, Readiness::Fail).await.unwrap();
    let (before, watcher) = (site.identities().await, Watcher::start(&site.client, &site.name));
    site.weigh([1, 4]).await;
    eventually("one is moved", || async {
        let moved = site.identities().await.difference(&before).count();
        if moved == 1 { Ok(()) } else { Err(format!("{moved} are new")) }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(
        site.identities().await.intersection(&before).count(),
        4,
        "four belong there, and the first was the last"
    );
    assert!(watcher.stop() >= 4, "never two away");
    // So many at once as the policy allows, and no more.
    let two = json!({"metadata": {"annotations": {"dapple.dev/rollout-max": "2"}}});
    site.patch_policy("PropagationPolicy", "spread", two).await;
    eventually("a second is moved", || async {
        let now = site.identities().await;
        let kept = now.intersection(&before).count();
        if (kept, now.len()) == (3, 5) { Ok(()) } else { Err(format!("{kept} of {} are where they were", now.len())) }
    })
    .await;
    site.moves_nobody().await;
    cluster.release_readiness("moving").await.unwrap();
    site.are_divided([1, 4]).await;

    moves_are_counted().await;
}

async fn moves_are_counted() {
    let metrics = crate::daemonset::metrics().await;
    for (name, least) in [
        ("group_placements_total", 5.0),
        ("group_moves_total", 2.0),
        ("group_evictions_refused_total", 1.0),
        ("group_gated_pods", 0.0),
        ("group_gated_oldest_seconds", 0.0),
    ] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert!(value.is_some_and(|value| value >= least), "{name} is {value:?}");
    }
}

/// A scheduler that has reasons of its own puts pods back where they were: that is not gone on with.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_has_not_helped_is_the_last() {
    let site = Site::new("moving-futile").await;
    let [beijing, _] = site.groups();
    site.place.add_propagation_of("spread", site.weights([1, 19])).await;
    let mut template = site.template("Always");
    template["spec"]["schedulingGates"] = Value::Null;
    let there = json!({"key": "place", "operator": "In", "values": [beijing]});
    template["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [there]}}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    let observer = Observer::start(&site.client, &site.name);
    site.place.create(&api, object).await;
    site.has_event("MoveDidNotHelp").await;
    site.moves_nobody().await;
    assert_eq!(observer.evicted(), 1);
}

impl Site {
    /// Nothing is evicted for a while, though something is to be done.
    async fn moves_nobody(&self) {
        let before = self.identities().await;
        tokio::time::sleep(LONG_ENOUGH).await;
        assert_eq!(self.identities().await, before, "none is evicted");
    }

    pub(super) async fn patch_policy(&self, kind: &str, name: &str, patch: Value) {
        let policies = self.place.api("groupmanagement.kubeedge.io/v1alpha1", kind);
        policies.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// What a group's nodes take is judged by what its own pods are made of.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_moved_to_nodes_that_take_the_edition_of_their_group() {
    let site = Site::new("moving-editions").await;
    let [_, hangzhou] = site.groups();
    let nodes: Api<Node> = Api::all(site.client.clone());
    let taint = json!({"spec": {"taints": [{"key": "edge", "effect": "NoSchedule"}]}});
    for number in 0..3 {
        let node = format!("{hangzhou}-{number:03}");
        nodes.patch(&node, &PatchParams::default(), &Patch::Strategic(&taint)).await.unwrap();
    }
    site.place.add_propagation_of("spread", site.weights([19, 1])).await;
    let rule = |cpu: &str| {
        json!({"targetNodeGroup": [hangzhou], "overriders": {"plaintext": [
            {"path": "/spec/tolerations/-", "operator": "add", "value": {"key": "edge", "operator": "Exists"}},
            {"path": "/spec/containers/0/resources", "operator": "add", "value": {"requests": {"cpu": cpu}}}]}})
    };
    let tolerates = json!({"targetNodeGroup": [hangzhou], "overriders": {"plaintext": [
        {"path": "/spec/tolerations/-", "operator": "add", "value": {"key": "edge", "operator": "Exists"}}]}});
    site.place.add_override("registries", tolerates).await;
    let mut template = site.template("Always");
    template["spec"]["tolerations"] = json!([{"key": "other", "operator": "Exists"}]);
    site.add_deployment_of_both(json!({"replicas": 5, "template": template})).await;
    site.are_divided([5, 0]).await;

    // Its template does not tolerate the taint, the edition of the group does.
    site.weigh([4, 1]).await;
    site.are_divided([4, 1]).await;

    // More than any node has: no pod is moved there, nor changed. While the policy is suspended, not even asked.
    let suspended = json!({"metadata": {"annotations": {"dapple.dev/suspend": "true"}}});
    site.patch_policy("PropagationPolicy", "spread", suspended).await;
    site.patch_policy("OverridePolicy", "registries", json!({"spec": {"overrideRules": [rule("1000")]}})).await;
    site.has_event("EditionWaits").await;
    site.weigh([1, 4]).await;
    site.moves_nobody().await;
    let resumed = json!({"metadata": {"annotations": {"dapple.dev/suspend": null}}});
    site.patch_policy("PropagationPolicy", "spread", resumed).await;
    site.moves_nobody().await;

    // Groups without nodes take none either.
    let groups: Api<NodeGroup> = Api::all(site.client.clone());
    let nowhere = json!({"spec": {"nodes": null, "matchLabels": {"place": format!("{}-nowhere", site.name)}}});
    groups.patch(&hangzhou, &PatchParams::default(), &Patch::Merge(&nowhere)).await.unwrap();
    site.patch_policy("OverridePolicy", "registries", json!({"spec": {"overrideRules": []}})).await;
    site.moves_nobody().await;
}

/// Each application has a budget of its own, and that of the cluster is of a minute: neither would stop this.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_applications_that_are_moved_to_where_no_pod_becomes_ready_five_lose_one() {
    const APPLICATIONS: usize = 20;
    let site = Site::new("moving-many").await;
    let [_, hangzhou] = site.groups();
    site.place.add_propagation_of("spread", site.weights([4, 1])).await;
    for number in 0..APPLICATIONS {
        let name = format!("web-{number}");
        let mut template = site.template("Always");
        template["metadata"]["labels"] = json!({"app": name});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
        let (api, mut object) = site.application("apps/v1", "Deployment", spec);
        object["metadata"]["name"] = json!(name);
        site.place.create(&api, object).await;
    }
    site.are_divided([APPLICATIONS, 0]).await;
    let cluster = crate::daemonset::cluster().await;
    let nodes: Vec<String> = (0..3).map(|number| format!("{hangzhou}-{number:03}")).collect();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    cluster.hold_readiness("moving-many", &held, Readiness::Fail).await.unwrap();
    let (before, watcher) = (site.identities().await, Watcher::start(&site.client, &site.name));
    site.weigh([1, 4]).await;
    site.has_event("GroupUnwell").await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(site.identities().await.intersection(&before).count(), APPLICATIONS - 5, "the fifth was the last");
    assert_eq!(watcher.stop(), APPLICATIONS - 5, "never more away");
    // Once they are well, others follow.
    cluster.release_readiness("moving-many").await.unwrap();
    eventually("more are moved", || async {
        let kept = site.identities().await.intersection(&before).count();
        if kept < APPLICATIONS - 5 { Ok(()) } else { Err(format!("{kept} are where they were")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_and_a_policy_that_goes_move_nobody_that_has_no_successor() {
    let site = Site::new("moving-held").await;
    site.add_policy().await;
    let quotas: Api<ResourceQuota> = Api::namespaced(site.client.clone(), &site.name);
    let quota = serde_json::from_value(json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "3"}}})).unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    eventually("the quota counts", || async {
        let found = quotas.get("pods").await.unwrap().status.and_then(|status| status.used);
        if found.is_some() { Ok(()) } else { Err("it does not yet".to_owned()) }
    })
    .await;
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    site.are_divided([1, 2]).await;
    // Two that are missing count as unavailable: none of the others is moved.
    site.weigh([4, 1]).await;
    site.moves_nobody().await;
    site.weigh([2, 3]).await;
    let more = json!({"spec": {"hard": {"pods": "9"}}});
    quotas.patch("pods", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    site.are_divided([2, 3]).await;

    // The policy goes while pods are moved: they stay where they are.
    let before = site.identities().await;
    site.weigh([19, 1]).await;
    eventually("one is moved", || async {
        let moved = before.difference(&site.identities().await).count();
        if moved > 0 { Ok(()) } else { Err("none is".to_owned()) }
    })
    .await;
    let policies = site.place.api("groupmanagement.kubeedge.io/v1alpha1", "PropagationPolicy");
    policies.delete("spread", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(before.difference(&site.identities().await).count(), 1, "the first was the last");
    site.has_event("PolicyMissing").await;
}

/// Pods that go back to their template are evicted as those are that get an edition: where a node takes another.
#[tokio::test(flavor = "multi_thread")]
async fn without_their_policy_pods_stay_while_no_node_takes_others() {
    let site = Site::new("moving-released").await;
    site.add_policy().await;
    let rule = json!({"targetNodeGroup": site.groups(), "overriders": {"plaintext": [
        {"path": "/spec/tolerations/-", "operator": "add", "value": {"key": "edge", "operator": "Exists"}}]}});
    site.place.add_override("registries", rule).await;
    let mut template = site.template("Always");
    template["spec"]["tolerations"] = json!([{"key": "other", "operator": "Exists"}]);
    let api = site.add_deployment_of_both(json!({"replicas": 5, "template": template})).await;
    site.are_divided([2, 3]).await;

    let nodes: Api<Node> = Api::all(site.client.clone());
    let cordon = async |is_cordoned: bool| {
        let patch = json!({"spec": {"unschedulable": is_cordoned}});
        for (group, count) in site.groups().iter().zip([2, 3]) {
            for number in 0..count {
                let node = format!("{group}-{number:03}");
                nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            }
        }
    };
    cordon(true).await;
    let asks_no_more = json!({"metadata": {"labels": {REQUIRED[1]: null}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(asks_no_more)).await.unwrap();
    site.has_event("EditionWaits").await;
    site.moves_nobody().await;
    site.are_divided([2, 3]).await;

    cordon(false).await;
    eventually("all are as their template again", || async {
        let tolerates = |pod: &Pod| {
            let all = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
            all.is_some_and(|all| all.iter().any(|known| known.key.as_deref() == Some("edge")))
        };
        let left = site.pods().await.iter().filter(|pod| tolerates(pod)).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are not")) }
    })
    .await;
    site.are_divided([2, 3]).await;
}

/// A node that runs a pod which keeps another away is none to go to, whatever room it has.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_moved_to_where_every_node_has_a_pod_that_keeps_others_away() {
    let site = Site::new("moving-apart").await;
    site.add_policy().await;
    let mut template = site.template("Always");
    template["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    // One on each node there is.
    site.are_divided([2, 3]).await;
    site.weigh([3, 2]).await;
    site.moves_nobody().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_replication_controller_are_moved() {
    let site = Site::new("moving-controller").await;
    site.add_policy().await;
    let spec = json!({"replicas": 5, "selector": {"app": "web"}, "template": site.template("Always")});
    let (api, object) = site.application("v1", "ReplicationController", spec);
    site.place.create(&api, object).await;
    site.are_divided([2, 3]).await;
    let (before, observer) = (site.identities().await, Observer::start(&site.client, &site.name));
    site.weigh([3, 2]).await;
    site.are_divided([3, 2]).await;
    assert_eq!((site.identities().await.intersection(&before).count(), observer.evicted()), (4, 1));
}

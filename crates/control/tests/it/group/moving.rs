//! Pods are moved to the groups that should have them: one after another, and not on once a move does harm.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_testbed::Readiness;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

use super::placing::{Site, is_ready};
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
        let items: Vec<_> = self
            .groups()
            .iter()
            .zip(weights)
            .map(|(group, weight)| json!({"nodeGroupNames": [group], "weight": weight}))
            .collect();
        let policies = self.place.api("groupmanagement.kubeedge.io/v1alpha1", "PropagationPolicy");
        let patch = json!({"spec": {"staticWeightList": items}});
        policies.patch("spread", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
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
    cluster.release_readiness("moving").await.unwrap();
    site.are_divided([1, 4]).await;
    assert!(watcher.stop() >= 4, "never two away");
}

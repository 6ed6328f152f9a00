//! Pods that are down, and would stay so if all waited for them: what was wrong is put right, and that reaches them.

use std::collections::BTreeMap;

use dapple_api::group::NodeGroup;
use dapple_testbed::Readiness;
use dapple_testbed::testing::Observer;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::editions::image;
use super::placing::{Site, is_ready};
use super::steady::LONG_ENOUGH;
use crate::support::eventually;

impl Site {
    /// Waits until so many pods have each image, and tells which are ready apart from which are not.
    async fn have(&self, ready: &[(&str, usize)], down: &[(&str, usize)]) {
        let named = |known: &[(&str, usize)], is_ready: bool| -> BTreeMap<(String, bool), usize> {
            known.iter().map(|(image, count)| (((*image).to_owned(), is_ready), *count)).collect()
        };
        let wanted: BTreeMap<_, _> = named(ready, true).into_iter().chain(named(down, false)).collect();
        eventually(&format!("{}: images and readiness are {wanted:?}", self.name), || async {
            let mut found = BTreeMap::new();
            for pod in self.pods().await {
                *found.entry((image(&pod), is_ready(&pod))).or_default() += 1;
            }
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    fn registry(&self, group: &str, registry: &str) -> Value {
        json!({"targetNodeGroup": [group], "overriders": {"imageOverrider": [
            {"component": "Registry", "operator": "add", "value": registry}]}})
    }

    async fn set_registry(&self, group: &str, registry: &str) {
        let rules = json!({"spec": {"overrideRules": [self.registry(group, registry)]}});
        self.patch_policy("OverridePolicy", "registries", rules).await;
    }

    async fn has_group(&self, group: &str, place: &str) {
        let groups: Api<NodeGroup> = Api::all(self.client.clone());
        let spec = json!({"spec": {"matchLabels": {"place": place}}});
        groups.patch(group, &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_wait_for_nodes_their_group_had_once_are_made_anew() {
    let site = Site::new("stuck-selector").await;
    let [beijing, _] = site.groups();
    site.has_group(&beijing, &format!("{beijing}-misspelt")).await;
    site.add_policy().await;
    let observer = Observer::start(&site.client, &site.name);
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    site.have(&[("web:1", 3)], &[("web:1", 2)]).await;
    // What they select cannot be changed once they are placed.
    site.has_group(&beijing, &beijing).await;
    site.are_divided([2, 3]).await;
    assert_eq!(observer.evicted(), 2, "those that were pending, and no others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_edition_reaches_the_pod_that_moves_wait_for() {
    let site = Site::new("stuck-moves").await;
    let [_, hangzhou] = site.groups();
    site.place.add_propagation_of("spread", site.weights([19, 1])).await;
    site.place.add_override("registries", site.registry(&hangzhou, "wrong.example")).await;
    site.add_deployment_of_both(json!({"replicas": 5, "template": site.template("Always")})).await;
    site.are_divided([5, 0]).await;

    let cluster = crate::daemonset::cluster().await;
    let nodes: Vec<String> = (0..3).map(|number| format!("{hangzhou}-{number:03}")).collect();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    cluster.hold_readiness("stuck-moves", &held, Readiness::Fail).await.unwrap();
    let observer = Observer::start(&site.client, &site.name);
    site.weigh([1, 4]).await;
    site.have(&[("web:1", 4)], &[("wrong.example/web:1", 1)]).await;
    // The moves wait for that pod: it gets the correction all the same, and no other is touched for it.
    site.set_registry(&hangzhou, "right.example").await;
    site.have(&[("web:1", 4)], &[("right.example/web:1", 1)]).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    site.have(&[("web:1", 4)], &[("right.example/web:1", 1)]).await;
    assert_eq!(observer.evicted(), 1, "the first was the last");
    cluster.release_readiness("stuck-moves").await.unwrap();
    site.are_divided([1, 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_edition_reaches_what_is_down_while_the_workload_rolls_out() {
    let site = Site::new("stuck-rollout").await;
    let [beijing, _] = site.groups();
    site.place.add_propagation_of("spread", site.weights([19, 1])).await;
    site.place.add_override("registries", site.registry(&beijing, "wrong.example")).await;
    let spec = json!({"replicas": 3, "template": site.template("Always"),
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    let api = site.add_deployment_of_both(spec).await;
    site.are_divided([3, 0]).await;

    // New pods do not become ready: the rollout waits for its first.
    let cluster = crate::daemonset::cluster().await;
    let nodes: Vec<String> = (0..2).map(|number| format!("{beijing}-{number:03}")).collect();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    cluster
        .hold_readiness("stuck-rollout", &held, Readiness::Delay(std::time::Duration::from_secs(3600)))
        .await
        .unwrap();
    let second = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "web:2"}]}}}});
    api.patch("web", &PatchParams::default(), &Patch::Strategic(second)).await.unwrap();
    site.have(&[("wrong.example/web:1", 3)], &[("wrong.example/web:2", 1)]).await;
    site.set_registry(&beijing, "right.example").await;
    site.have(&[("wrong.example/web:1", 3)], &[("right.example/web:2", 1)]).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    site.have(&[("wrong.example/web:1", 3)], &[("right.example/web:2", 1)]).await;
    cluster.release_readiness("stuck-rollout").await.unwrap();
    site.have(&[("right.example/web:2", 3)], &[]).await;
}

//! Running pods get the edition of their group when a policy changes: group by group, one pod first, and not on once one is unwell.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_testbed::Readiness;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::binding::REQUIRED;
use super::moving::Watcher;
use super::placing::Site;
use crate::support::eventually;

/// By which images tell the group and the version of the policy.
fn registry(group: &str, version: usize) -> String {
    let site = group.rsplit('-').next().unwrap_or_default();
    format!("{site}{version}.example")
}

impl Site {
    fn rules(&self, version: usize) -> Value {
        let rule = |group: &String| {
            json!({"targetNodeGroup": [group], "overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "add", "value": registry(group, version)}]}})
        };
        json!({"overrideRules": self.groups().iter().map(rule).collect::<Vec<_>>()})
    }

    async fn set_rules(&self, version: usize) {
        let policies = self.place.api("groupmanagement.kubeedge.io/v1alpha1", "OverridePolicy");
        policies
            .patch("registries", &PatchParams::default(), &Patch::Merge(json!({"spec": self.rules(version)})))
            .await
            .unwrap();
    }

    /// The registries of all pods, and how many pods have each.
    async fn registries(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for pod in self.pods().await {
            let image = image(&pod);
            *counts.entry(image.rsplit_once('/').map_or("", |(registry, _)| registry).to_owned()).or_default() += 1;
        }
        counts
    }

    async fn have_registries(&self, wanted: &[(&str, usize)]) {
        let wanted: BTreeMap<String, usize> = wanted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        eventually(&format!("registries are {wanted:?}"), || async {
            let found = self.registries().await;
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
}

fn image(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.containers.first()).and_then(|container| container.image.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_reaches_running_pods_group_by_group_and_not_on_once_one_is_unwell() {
    let site = Site::new("editions").await;
    site.add_policy().await;
    let policies = site.place.api("groupmanagement.kubeedge.io/v1alpha1", "OverridePolicy");
    let object = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "registries"}, "spec": site.rules(1)});
    site.place.create(&policies, object).await;
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, mut object) = site.application("apps/v1", "Deployment", spec);
    object["metadata"]["labels"][REQUIRED[1]] = json!("registries");
    site.place.create(&api, object).await;
    site.are_divided([2, 3]).await;
    site.have_registries(&[("beijing1.example", 2), ("hangzhou1.example", 3)]).await;

    // All are changed where they run, one after another.
    let (before, watcher) = (site.identities().await, Watcher::start(&site.client, &site.name));
    site.set_rules(2).await;
    site.have_registries(&[("beijing2.example", 2), ("hangzhou2.example", 3)]).await;
    assert_eq!(site.identities().await, before, "nobody is evicted");
    assert!(watcher.stop() >= 4, "never two away");

    // What the policy has said is written down.
    let revisions: Api<ControllerRevision> = Api::namespaced(site.client.clone(), &site.name);
    let is_policys = |revision: &ControllerRevision| {
        revision.owner_references().iter().any(|owner| owner.kind == "OverridePolicy" && owner.name == "registries")
    };
    let known = revisions.list(&ListParams::default()).await.unwrap();
    assert_eq!(known.iter().filter(|revision| is_policys(revision)).count(), 2);

    // A restart is a disruption: without room in its budget, nothing is changed.
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(site.client.clone(), &site.name);
    let budget =
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "web"}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    eventually("the budget is counted", || async {
        let healthy = budgets.get("web").await.unwrap().status.and_then(|status| status.current_healthy);
        if healthy == Some(5) { Ok(()) } else { Err(format!("{healthy:?}")) }
    })
    .await;
    site.set_rules(1).await;
    site.has_event("MoveRefused").await;
    site.have_registries(&[("beijing2.example", 2), ("hangzhou2.example", 3)]).await;
    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    site.have_registries(&[("beijing1.example", 2), ("hangzhou1.example", 3)]).await;

    // An edition that does harm takes one pod. New pods of the other group keep the edition that it has.
    let cluster = crate::daemonset::cluster().await;
    let nodes: Vec<String> = (0..2).map(|number| format!("{}-beijing-{number:03}", site.name)).collect();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let never = Readiness::Delay(Duration::from_secs(3600));
    cluster.hold_readiness("editions", &held, never).await.unwrap();
    site.set_rules(3).await;
    site.have_registries(&[("beijing1.example", 1), ("beijing3.example", 1), ("hangzhou1.example", 3)]).await;
    site.has_event("EditionWaits").await;
    let scale = json!({"spec": {"replicas": 6}});
    api.patch_scale("web", &PatchParams::default(), &Patch::Merge(scale)).await.unwrap();
    site.have_registries(&[("beijing1.example", 1), ("beijing3.example", 1), ("hangzhou1.example", 4)]).await;
    // What puts it right reaches the one that is down, and the others follow.
    cluster.release_readiness("editions").await.unwrap();
    site.set_rules(4).await;
    site.have_registries(&[("beijing4.example", 2), ("hangzhou4.example", 4)]).await;

    // Nothing is asked for any more: pods are as their template again.
    let before = site.identities().await;
    let unasked = json!({"metadata": {"labels": {REQUIRED[1]: null}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(unasked)).await.unwrap();
    site.have_registries(&[("", 6)]).await;
    assert_eq!(site.identities().await, before);
    assert!(site.pods().await.iter().all(|pod| !pod.annotations().contains_key("dapple.dev/edition")));
}

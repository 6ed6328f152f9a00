//! Running pods get the edition of their group when a policy changes: group by group, one pod first, and not on once one is unwell.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_testbed::Readiness;
use dapple_testbed::testing::Observer;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::binding::REQUIRED;
use super::moving::Watcher;
use super::placing::{Site, is_ready};
use super::steady::LONG_ENOUGH;
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

    pub(super) async fn have_registries(&self, wanted: &[(&str, usize)]) {
        let wanted: BTreeMap<String, usize> = wanted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        eventually(&format!("registries are {wanted:?}"), || async {
            let found = self.registries().await;
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
}

pub(super) fn image(pod: &Pod) -> String {
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
    let api = site.add_deployment_of_both(json!({"replicas": 5, "template": site.template("Always")})).await;
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

    groups_come_in_order_and_nothing_changes_without_its_policy(&site, &api).await;

    // Nothing is asked for any more: pods are as their template again.
    let before = site.identities().await;
    let unasked = json!({"metadata": {"labels": {REQUIRED[1]: null}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(unasked)).await.unwrap();
    site.have_registries(&[("", 6)]).await;
    assert_eq!(site.identities().await, before);
    assert!(site.pods().await.iter().all(|pod| !pod.annotations().contains_key("dapple.dev/edition")));
}

/// By the policy `registries`, which says what pods are for the fifth time then.
async fn groups_come_in_order_and_nothing_changes_without_its_policy(site: &Site, api: &Api<DynamicObject>) {
    // Groups come in the order that the policy says.
    let [_, hangzhou] = site.groups();
    let first = json!({"metadata": {"annotations": {"dapple.dev/rollout-order": hangzhou}}, "spec": site.rules(5)});
    site.patch_policy("OverridePolicy", "registries", first).await;
    let is_last = ("hangzhou5.example".to_owned(), 4);
    eventually("hangzhou is changed, and beijing after it", || async {
        let found = site.registries().await;
        let in_order = !found.contains_key("beijing5.example") || found.get(&is_last.0) == Some(&is_last.1);
        assert!(in_order, "{found:?}");
        if found.get("beijing5.example") == Some(&2) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    // While the policy is suspended, what it says is for nobody.
    let suspended = json!({"metadata": {"annotations": {"dapple.dev/suspend": "true"}}, "spec": site.rules(6)});
    site.patch_policy("OverridePolicy", "registries", suspended).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    let fifth = [("beijing5.example", 2), ("hangzhou5.example", 4)];
    site.have_registries(&fifth).await;
    // New pods are placed all the same, with the edition that their group has.
    site.scale(api, 7).await;
    site.have_registries(&[("beijing5.example", 3), ("hangzhou5.example", 4)]).await;
    site.scale(api, 6).await;
    site.have_registries(&fifth).await;

    // While it is gone and still asked for, pods that run keep what they have, and new ones wait.
    let policies = site.place.api("groupmanagement.kubeedge.io/v1alpha1", "OverridePolicy");
    policies.delete("registries", &DeleteParams::default()).await.unwrap();
    site.has_event("PolicyMissing").await;
    site.scale(api, 7).await;
    eventually("the seventh waits", || async {
        let pods = site.pods().await;
        let waits = pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_some()));
        let waits = waits.count();
        if waits == 1 && pods.len() == 7 { Ok(()) } else { Err(format!("{waits} of {}", pods.len())) }
    })
    .await;
    site.has_event("WaitingForPolicy").await;
    let kept = site.registries().await;
    assert_eq!((kept.get("beijing5.example"), kept.get("hangzhou5.example")), (Some(&2), Some(&4)), "{kept:?}");
    site.scale(api, 6).await;
    let object = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "registries"}, "spec": site.rules(5)});
    site.place.create(&policies, object).await;
    site.are_divided([2, 4]).await;
    site.have_registries(&fifth).await;
}

/// What cannot be changed where a pod runs takes another pod. No webhook makes pods here, so it is what can be given to one that waits.
#[tokio::test(flavor = "multi_thread")]
async fn an_edition_that_takes_other_pods_and_does_harm_takes_one() {
    let site = Site::new("editions-anew").await;
    site.add_policy().await;
    let mut template = site.template("Always");
    template["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "amd64"});
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    site.are_divided([2, 3]).await;

    let cluster = crate::daemonset::cluster().await;
    let nodes = site.groups().into_iter().zip([2, 3]);
    let nodes = nodes.flat_map(|(group, count)| (0..count).map(move |number| format!("{group}-{number:03}")));
    let nodes: Vec<String> = nodes.collect();
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let never = Readiness::Delay(Duration::from_secs(3600));
    cluster.hold_readiness("editions-anew", &held, never).await.unwrap();
    let (before, observer) = (site.identities().await, Observer::start(&site.client, &site.name));
    let rule = json!({"targetNodeGroup": site.groups(), "overriders": {"plaintext": [
        {"path": "/spec/nodeSelector/kubernetes.io~1os", "operator": "add", "value": "linux"}]}});
    site.place.add_override("registries", rule).await;
    let asks = json!({"metadata": {"labels": {REQUIRED[1]: "registries"}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(asks)).await.unwrap();
    let kept = async || site.identities().await.intersection(&before).count();
    eventually("one is made anew", || async {
        let kept = kept().await;
        if kept == 4 { Ok(()) } else { Err(format!("{kept} are left")) }
    })
    .await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!((kept().await, observer.evicted()), (4, 1), "the first was the last");
    cluster.release_readiness("editions-anew").await.unwrap();
}

impl Site {
    /// Waits until so many ready pods have each image.
    async fn have_images(&self, app: &str, wanted: &[(&str, usize)]) {
        let wanted: BTreeMap<String, usize> =
            wanted.iter().map(|(image, count)| ((*image).to_owned(), *count)).collect();
        eventually(&format!("images of {app} are {wanted:?}"), || async {
            let found = self.images(app).await;
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    async fn images(&self, app: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for pod in self.pods().await.iter().filter(|pod| pod.labels().get("app").is_some_and(|known| known == app)) {
            *counts.entry(image(pod)).or_default() += usize::from(is_ready(pod));
        }
        counts
    }

    /// A workload of pods on these nodes that asks for both policies, without the gate.
    async fn add_ungated(&self, kind: &str, nodes: &[String], asks: &[&str]) {
        let app = kind.to_lowercase();
        let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": nodes});
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": {"metadata": {"labels": {"app": app}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "web:1"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [here]}]}}}}}});
        if kind == "Deployment" {
            spec["replicas"] = json!(1);
        }
        let labels: BTreeMap<&str, &str> = asks.iter().map(|label| (*label, "registries")).collect();
        let object =
            json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app, "labels": labels}, "spec": spec});
        self.place.create(&self.place.api("apps/v1", kind), object).await;
    }
}

/// Pods that say no group have the edition of their node's: it must not follow each change of the node's labels.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_and_goes_restarts_nothing() {
    let site = Site::new("editions-flapping").await;
    let [beijing, _] = site.groups();
    let node = format!("{beijing}-000");
    for kind in ["DaemonSet", "Deployment"] {
        site.add_ungated(kind, std::slice::from_ref(&node), &[REQUIRED[1]]).await;
    }
    for app in ["daemonset", "deployment"] {
        site.have_images(app, &[("web:1", 1)]).await;
    }
    let nodes: Api<Node> = Api::all(site.client.clone());
    let be_in = async |place: &str| {
        let patch = json!({"metadata": {"labels": {"place": place}}});
        nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    // Of this test alone: in others too there are nodes and groups of no place.
    let nowhere = format!("{}-nowhere", site.name);
    be_in(&nowhere).await;
    let rule = json!({"targetNodeGroup": [beijing], "overriders": {
        "imageOverrider": [{"component": "Registry", "operator": "add", "value": "beijing1.example"}],
        "plaintext": [{"path": "/spec/terminationGracePeriodSeconds", "operator": "replace", "value": 0}]}});
    site.place.add_override("registries", rule).await;
    // Every second, while nothing is done before two have passed.
    for number in 0..9 {
        be_in(if number % 2 == 0 { &beijing } else { &nowhere }).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for app in ["daemonset", "deployment"] {
            assert_eq!(site.images(app).await, BTreeMap::from([("web:1".to_owned(), 1)]), "{app} after {number} s");
        }
    }
    be_in(&beijing).await;
    for app in ["daemonset", "deployment"] {
        site.have_images(app, &[("beijing1.example/web:1", 1)]).await;
    }
    // Pods that were not made by it have no more of it than images.
    site.has_event("OnlyImages").await;
    // And having left the group, they are as they were.
    be_in(&nowhere).await;
    for app in ["daemonset", "deployment"] {
        site.have_images(app, &[("web:1", 1)]).await;
    }
}

/// What a policy made of pods that runs no more is known to nobody: they get the images of the one that counts now, where they run.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_follow_their_node_get_images_whatever_made_them() {
    let site = Site::new("editions-switched").await;
    let [beijing, _] = site.groups();
    let rule = |registry: &str| {
        json!({"targetNodeGroup": [beijing], "overriders": {"imageOverrider": [
            {"component": "Registry", "operator": "add", "value": registry}]}})
    };
    site.place.add_override("registries", rule("first.example")).await;
    for kind in ["DaemonSet", "Deployment"] {
        site.add_ungated(kind, &[format!("{beijing}-000")], &[REQUIRED[1]]).await;
    }
    let all_have = async |image: &str| {
        for app in ["daemonset", "deployment"] {
            site.have_images(app, &[(image, 1)]).await;
        }
    };
    all_have("first.example/web:1").await;
    // Its revisions go with it.
    let policies = site.place.api("groupmanagement.kubeedge.io/v1alpha1", "OverridePolicy");
    policies.delete("registries", &DeleteParams::default()).await.unwrap();
    site.has_event("PolicyMissing").await;
    site.place.add_override("registries", rule("second.example")).await;
    all_have("second.example/web:1").await;

    site.place.add_override("others", rule("third.example")).await;
    let ask = async |policy: Value| {
        for kind in ["DaemonSet", "Deployment"] {
            let labels = json!({"metadata": {"labels": {REQUIRED[1]: policy}}});
            let api = site.place.api("apps/v1", kind);
            api.patch(&kind.to_lowercase(), &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
        }
    };
    ask(json!("others")).await;
    all_have("third.example/web:1").await;
    ask(Value::Null).await;
    all_have("web:1").await;
}

/// Pods of a DaemonSet belong to their nodes: no PropagationPolicy moves them, and an image that does harm takes one.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_native_daemon_set_an_image_that_does_harm_takes_one_node() {
    let site = Site::new("editions-daemons").await;
    let [beijing, hangzhou] = site.groups();
    site.place
        .add_propagation_of("registries", json!({"staticWeightList": [{"nodeGroupNames": [beijing], "weight": 1}]}))
        .await;
    let rule = |version: usize| {
        json!({"targetNodeGroup": [hangzhou], "overriders": {"imageOverrider": [
            {"component": "Registry", "operator": "add", "value": format!("hangzhou{version}.example")}]}})
    };
    site.place.add_override("registries", rule(1)).await;
    let observer = Observer::start(&site.client, &site.name);
    let nodes: Vec<String> = (0..3).map(|number| format!("{hangzhou}-{number:03}")).collect();
    site.add_ungated("DaemonSet", &nodes, &REQUIRED).await;
    site.has_event("PropagationIgnored").await;
    site.have_images("daemonset", &[("hangzhou1.example/web:1", 3)]).await;

    let cluster = crate::daemonset::cluster().await;
    let held: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let never = Readiness::Delay(Duration::from_secs(3600));
    cluster.hold_readiness("editions-daemons", &held, never).await.unwrap();
    let changed = json!({"spec": {"overrideRules": [rule(2)]}});
    site.patch_policy("OverridePolicy", "registries", changed).await;
    site.has_event("EditionWaits").await;
    tokio::time::sleep(LONG_ENOUGH).await;
    site.have_images("daemonset", &[("hangzhou1.example/web:1", 2), ("hangzhou2.example/web:1", 0)]).await;
    cluster.release_readiness("editions-daemons").await.unwrap();
    assert_eq!(observer.evicted(), 0);
}

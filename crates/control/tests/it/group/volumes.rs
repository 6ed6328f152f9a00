//! Pods go where their volumes are, before their seats, and are never evicted to where those cannot follow.

use dapple_testbed::testing::Observer;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::binding::REQUIRED;
use super::placing::Site;
use super::status::is;
use super::steady::LONG_ENOUGH;
use crate::support::eventually;

impl Site {
    /// A StatefulSet `web` of five, each with a claim `data` of this class.
    fn set_with_claims(&self, class: &str) -> (Api<DynamicObject>, Value) {
        let mut template = self.template("Always");
        template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}});
        let spec = json!({"replicas": 5, "serviceName": "web", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}}, "template": template, "volumeClaimTemplates": [claim]});
        self.application("apps/v1", "StatefulSet", spec)
    }

    /// A volume, on a node of the site if it is bound to one, for this claim if it is for one only.
    async fn add_volume(&self, class: &str, number: usize, node: Option<&str>, claim: Option<&str>) {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class, "hostPath": {"path": "/data"}});
        if let Some(node) = node {
            let name = format!("{}-{node}", self.name);
            let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [name]});
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
        }
        if let Some(claim) = claim {
            spec["claimRef"] = json!({"namespace": self.name, "name": claim});
        }
        let volume = json!({"metadata": {"name": format!("{class}-{number}")}, "spec": spec});
        let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &volume).await.unwrap();
    }

    /// A claim of this class that is not made for a pod alone.
    async fn add_claim(&self, class: &str, name: &str) {
        let claims = self.place.api("v1", "PersistentVolumeClaim");
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}}});
        self.place.create(&claims, claim).await;
    }

    /// Where each pod is, by name: its node, without the name of the site.
    async fn nodes_of_pods(&self) -> Vec<(String, String)> {
        let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let short = |node: String| node.replace(&format!("{}-", self.name), "");
        let mut all: Vec<(String, String)> =
            self.pods().await.iter().map(|pod| (pod.name_any(), short(node_of(pod)))).collect();
        all.sort();
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_stateful_set_stay_where_their_volumes_were_bound() {
    let site = Site::new("volumes-local").await;
    site.add_policy().await;
    let class = json!({"metadata": {"name": "volumes-local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    let class: StorageClass = serde_json::from_value(class).unwrap();
    Api::all(site.client.clone()).create(&PostParams::default(), &class).await.unwrap();
    let nodes = ["beijing-000", "beijing-001", "hangzhou-000", "hangzhou-001", "hangzhou-002"];
    for (number, node) in nodes.into_iter().enumerate() {
        site.add_volume("volumes-local", number, Some(node), None).await;
    }
    let observer = Observer::start(&site.client, &site.name);
    let (sets, object) = site.set_with_claims("volumes-local");
    site.place.create(&sets, object).await;
    // Not bound before the pod has a node: seats decide.
    site.are_divided([2, 3]).await;
    let bound = site.nodes_of_pods().await;

    site.weigh([3, 2]).await;
    site.roll_out(&sets, "web:2").await;
    site.are_divided([2, 3]).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(site.nodes_of_pods().await, bound, "each is where its volume is");

    // So that is where they belong: the status says it, and they get the edition of the groups that they are in.
    site.says("PropagationPolicy", "that all are where they belong", |status| {
        status["misplaced"] == 0 && is(status, "Divided", "True", "AsDesired")
    })
    .await;
    let before = site.identities().await;
    let rule = json!({"targetNodeGroup": site.groups(), "overriders": {"imageOverrider": [
        {"component": "Registry", "operator": "add", "value": "mirror.example"}]}});
    site.place.add_override("registries", rule).await;
    let asks = json!({"metadata": {"labels": {REQUIRED[1]: "registries"}}});
    sets.patch("web", &PatchParams::default(), &Patch::Merge(asks)).await.unwrap();
    site.have_registries(&[("mirror.example", 5)]).await;
    assert_eq!(site.identities().await, before, "all are changed where they run");
    assert_eq!(observer.evicted(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_come_before_seats_and_only_what_can_follow_is_moved() {
    let site = Site::new("volumes-bound").await;
    site.add_policy().await;
    let observer = Observer::start(&site.client, &site.name);
    let (sets, object) = site.set_with_claims("volumes-bound");
    site.place.create(&sets, object).await;
    eventually("pods wait for their volumes", || async {
        let (pods, told) = (site.pods().await.len(), site.reasons().await.contains("WaitingForVolume"));
        if pods == 5 && told { Ok(()) } else { Err(format!("{pods} pods; {:?}", site.reasons().await)) }
    })
    .await;
    // By their seats, web-0 would be in hangzhou. The volume of web-3 can be used everywhere.
    let volumes =
        [Some("beijing-000"), Some("beijing-001"), Some("hangzhou-000"), None, Some("hangzhou-001")].into_iter();
    for (number, node) in volumes.enumerate() {
        site.add_volume("volumes-bound", number, node, Some(&format!("data-web-{number}"))).await;
    }
    site.are_divided([3, 2]).await;
    let before = site.identities().await;

    // The seats of the first four are in hangzhou now: only web-3 can go there.
    site.weigh([1, 9]).await;
    site.are_divided([2, 3]).await;
    site.roll_out(&sets, "web:2").await;
    site.are_divided([2, 3]).await;
    let nodes = site.nodes_of_pods().await;
    for (number, node) in [(0, "beijing-000"), (1, "beijing-001"), (2, "hangzhou-000"), (4, "hangzhou-001")] {
        assert_eq!(nodes[number].1, node, "web-{number}: {nodes:?}");
    }
    assert!(nodes[3].1.starts_with("hangzhou"), "{nodes:?}");
    assert_eq!(site.identities().await.intersection(&before).count(), 0, "all are new");
    assert_eq!(observer.evicted(), 1, "web-3 alone was evicted");

    // A volume on a node of no group: the pod waits, and says so.
    site.add_volume("volumes-bound", 9, Some("nowhere-000"), Some("data-outside")).await;
    site.add_claim("volumes-bound", "data-outside").await;
    let mut spec = site.template("Always")["spec"].clone();
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-outside"}}]);
    let (pods, mut pod) = site.application("v1", "Pod", spec);
    pod["metadata"]["name"] = json!("outside");
    site.place.create(&pods, pod).await;
    site.has_event("VolumesOutOfReach").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_follow_the_policy_though_volumes_keep_pods_where_they_are() {
    let site = Site::new("volumes-costs").await;
    // The first seats are all of the first group, where the volume is.
    site.place.add_propagation_of("spread", site.weights([9, 1])).await;
    site.add_volume("volumes-costs", 0, Some("beijing-000"), Some("data")).await;
    site.add_claim("volumes-costs", "data").await;
    let observer = Observer::start(&site.client, &site.name);
    let mut template = site.template("Always");
    template["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    site.are_divided([3, 0]).await;
    site.have_costs([&[0, -1, -2], &[]]).await;

    // By these weights it should have one of them, and cannot give any away: they have the seats of its first three.
    site.weigh([2, 3]).await;
    site.have_costs([&[-1, -3, -6], &[]]).await;
    site.are_divided([3, 0]).await;
    assert_eq!(observer.evicted(), 0);
}

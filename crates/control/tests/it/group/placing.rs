//! Pods that wait behind the gate are placed by their policy, on a real scheduler. Here their templates have the gate.

use std::collections::{BTreeMap, BTreeSet};

use dapple_testbed::Fleet;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::binding::{Place, REQUIRED};
use crate::support::eventually;

const GATE: &str = "dapple.dev/group";
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A namespace with two groups of nodes of its own, one by label and one by names.
pub(super) struct Site {
    pub(super) place: Place,
    pub(super) client: Client,
    pub(super) name: String,
}

impl Site {
    /// On a cluster with one manager: of several that lead at once, each would place pods without knowing of the others.
    pub(super) async fn new(name: &str) -> Self {
        let cluster = crate::daemonset::cluster().await;
        let client = cluster.client().await.unwrap();
        let kind = |site: &str, count: usize| {
            json!({"name": format!("{name}-{site}"), "count": count,
            "labels": {"place": format!("{name}-{site}")}})
        };
        let fleet = json!({"kinds": [kind("beijing", 2), kind("hangzhou", 3)]});
        cluster.apply_fleet(&Fleet::from_yaml(&fleet.to_string(), "fleet").unwrap()).await.unwrap();
        let place = Place::new(&client, name).await;
        let site = Self { place, client, name: name.to_owned() };
        site.add_group("beijing", json!({"matchLabels": {"place": format!("{name}-beijing")}})).await;
        let named: Vec<String> = (0..3).map(|number| format!("{name}-hangzhou-{number:03}")).collect();
        site.add_group("hangzhou", json!({"nodes": named})).await;
        site
    }

    /// Without groups of its own.
    pub(super) async fn in_groups_of_others(name: &str, client: &Client) -> Self {
        Self { place: Place::new(client, name).await, client: client.clone(), name: name.to_owned() }
    }

    pub(super) async fn add_group(&self, group: &str, spec: Value) {
        let spec = serde_json::from_value(spec).unwrap();
        crate::support::group(&self.client, &format!("{}-{group}", self.name), spec).await;
    }

    pub(super) fn groups(&self) -> [String; 2] {
        ["beijing", "hangzhou"].map(|group| format!("{}-{group}", self.name))
    }

    /// The spec of a PropagationPolicy that gives each of the two groups its weight.
    pub(super) fn weights(&self, weights: [i64; 2]) -> Value {
        let lists = self.groups().into_iter().zip(weights);
        let lists = lists.map(|(group, weight)| json!({"nodeGroupNames": [group], "weight": weight}));
        json!({"staticWeightList": lists.collect::<Vec<_>>()})
    }

    pub(super) async fn add_policy(&self) {
        self.place.add_propagation_of("spread", self.weights([2, 3])).await;
    }

    pub(super) fn template(&self, policy: &str) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": 0,
            "schedulingGates": [{"name": GATE}], "containers": [{"name": "c", "image": "web:1"}]}})
    }

    pub(super) fn application(&self, api_version: &str, kind: &str, spec: Value) -> (Api<DynamicObject>, Value) {
        let metadata = json!({"name": "web", "labels": {REQUIRED[0]: "spread"}});
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        (self.place.api(api_version, kind), object)
    }

    /// A Deployment `web` that asks for both policies, `spread` and `registries`. Its spec is given without the selector.
    pub(super) async fn add_deployment_of_both(&self, mut spec: Value) -> Api<DynamicObject> {
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        let (api, mut object) = self.application("apps/v1", "Deployment", spec);
        object["metadata"]["labels"][REQUIRED[1]] = json!("registries");
        self.place.create(&api, object).await;
        api
    }

    pub(super) async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        let all = pods.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// Waits until so many pods of each group are ready on its nodes, and no others are there.
    pub(super) async fn are_divided(&self, wanted: [usize; 2]) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let places: BTreeMap<String, String> = nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .into_iter()
            .filter_map(|node| Some((node.name_any(), node.labels().get("place")?.clone())))
            .collect();
        eventually(&format!("{}: pods are {wanted:?}", self.name), || async {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for pod in self.pods().await {
                let group = pod.labels().get(GATE).cloned().unwrap_or_default();
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
                let is_there = places.get(&node) == Some(&group);
                *counts.entry(if is_there && is_ready(&pod) { group } else { "not yet".to_owned() }).or_default() += 1;
            }
            let expected: BTreeMap<String, usize> =
                self.groups().into_iter().zip(wanted).filter(|(_, count)| *count > 0).collect();
            if counts == expected { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
    }

    pub(super) async fn scale(&self, api: &Api<DynamicObject>, replicas: usize) {
        let patch = json!({"spec": {"replicas": replicas}});
        api.patch_scale("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Gives the application another image, and waits until all its pods have it.
    pub(super) async fn roll_out(&self, api: &Api<DynamicObject>, image: &str) {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        api.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
        eventually(&format!("{}: the rollout is complete", self.name), || async {
            let is_old =
                |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() != Some(image));
            let old = self.pods().await.iter().filter(|pod| is_old(pod)).count();
            if old == 0 { Ok(()) } else { Err(format!("{old} are old")) }
        })
        .await;
    }

    /// The reasons of all Events.
    pub(super) async fn reasons(&self) -> BTreeSet<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.name);
        let found = events.list(&ListParams::default()).await.unwrap();
        found.into_iter().filter_map(|event| event.reason).collect()
    }

    pub(super) async fn identities(&self) -> BTreeSet<String> {
        self.pods().await.iter().filter_map(ResourceExt::uid).collect()
    }
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|known| known.type_ == "Ready" && known.status == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_divided_through_scaling_and_rollouts() {
    let site = Site::new("placing-deployment").await;
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    // Labels first: no pod is scheduled before its policy is there, and it says what it waits for.
    eventually("pods say why they wait", || async {
        let events: Api<Event> = Api::namespaced(site.client.clone(), &site.name);
        let found = events.list(&ListParams::default()).await.unwrap();
        let told = |kind: &str| {
            found.iter().any(|event| {
                event.involved_object.kind.as_deref() == Some(kind)
                    && event.reason.as_deref() == Some("WaitingForPolicy")
            })
        };
        if told("Pod") && told("Deployment") { Ok(()) } else { Err(format!("{} events", found.items.len())) }
    })
    .await;
    assert!(site.pods().await.iter().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none())));
    site.add_policy().await;
    site.are_divided([2, 3]).await;
    let five = site.identities().await;
    for pod in site.pods().await {
        let labels = pod.labels();
        assert_eq!(labels.get(REQUIRED[0]).map(String::as_str), Some("spread"));
        assert_eq!(
            labels.get("groupmanagement.kubeedge.io/binding-propagationpolicy").map(String::as_str),
            Some("spread")
        );
        assert!(pod.annotations().get(COST).is_some_and(|cost| cost.parse::<i32>().is_ok_and(|cost| cost <= 0)));
    }

    for (replicas, wanted) in [(20, [8, 12]), (5, [2, 3]), (6, [2, 4]), (1, [0, 1]), (5, [2, 3])] {
        site.scale(&api, replicas).await;
        site.are_divided(wanted).await;
        if replicas == 20 {
            assert!(site.identities().await.is_superset(&five), "scaling up moves nobody");
        }
    }

    site.roll_out(&api, "web:2").await;
    site.are_divided([2, 3]).await;

    // Nothing asks any more: pods are where they are, and new ones go anywhere.
    let before = site.identities().await;
    let unasked = json!({"metadata": {"labels": {REQUIRED[0]: null}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(unasked)).await.unwrap();
    site.scale(&api, 6).await;
    eventually("the sixth is released", || async {
        let pods = site.pods().await;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        if ready == 6 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await;
    assert!(site.identities().await.is_superset(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinals_are_seats_and_jobs_end() {
    let site = Site::new("placing-numbered").await;
    site.add_policy().await;
    let spec = json!({"replicas": 5, "serviceName": "web", "podManagementPolicy": "Parallel", "ordinals": {"start": 3},
        "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (sets, object) = site.application("apps/v1", "StatefulSet", spec);
    site.place.create(&sets, object).await;
    site.are_divided([2, 3]).await;
    let group_of = |pods: &[Pod], name: &str| {
        pods.iter().find(|pod| pod.name_any() == name).and_then(|pod| pod.labels().get(GATE).cloned())
    };
    let [beijing, hangzhou] = site.groups();
    let pods = site.pods().await;
    for (ordinal, group) in [(3, &hangzhou), (4, &beijing), (5, &hangzhou), (6, &beijing), (7, &hangzhou)] {
        assert_eq!(group_of(&pods, &format!("web-{ordinal}")).as_ref(), Some(group), "web-{ordinal}");
    }
    sets.delete("web", &DeleteParams::foreground()).await.unwrap();
    site.are_divided([0, 0]).await;

    let job = json!({"completions": 5, "parallelism": 5, "completionMode": "Indexed", "backoffLimit": 0, "template": site.template("Never")});
    let (jobs, object) = site.application("batch/v1", "Job", job);
    site.place.create(&jobs, object).await;
    eventually("the Job ends, and none of its pods failed", || async {
        let job = jobs.get("web").await.map_err(|error| error.to_string())?;
        let status = &job.data["status"];
        if status["succeeded"] == 5 && status["failed"].is_null() { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pod in site.pods().await {
        *counts.entry(pod.labels().get(GATE).cloned().unwrap_or_default()).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([(beijing, 2), (hangzhou, 3)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_nobodys_are_divided_together_and_without_a_policy_go_anywhere() {
    let site = Site::new("placing-bare").await;
    site.add_policy().await;
    let pods = site.place.api("v1", "Pod");
    let bare = |name: &str, labels: Value| {
        let mut pod = site.template("Always");
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"] = json!({"name": name, "labels": labels});
        pod
    };
    for number in 0..5 {
        site.place.create(&pods, bare(&format!("one-{number}"), json!({REQUIRED[0]: "spread"}))).await;
    }
    site.are_divided([2, 3]).await;
    site.place.create(&pods, bare("free", json!({}))).await;
    eventually("one that asks for nothing is released", || async {
        let free = site.pods().await.into_iter().find(|pod| pod.name_any() == "free");
        let is_so = free.as_ref().is_some_and(|pod| is_ready(pod) && pod.labels().get(GATE).is_none());
        if is_so { Ok(()) } else { Err(format!("{free:?}")) }
    })
    .await;

    // One that cannot be changed any more, and must not be lost, is placed as it is.
    let rule = |overriders: Value| json!({"overriders": overriders});
    let args = json!({"argsOverrider": [{"containerName": "c", "operator": "add", "value": ["--edge"]}]});
    site.place.add_override("args", rule(args)).await;
    site.place.create(&pods, bare("kept", json!({REQUIRED[0]: "spread", REQUIRED[1]: "args"}))).await;
    site.has_event("EditionKept").await;
    // Nodes of the one group have another label than these ask for.
    for name in ["elsewhere-1", "elsewhere-2", "elsewhere-3"] {
        let mut pod = bare(name, json!({REQUIRED[0]: "spread"}));
        pod["spec"]["nodeSelector"] = json!({"place": "elsewhere"});
        site.place.create(&pods, pod).await;
    }
    site.has_event("NodeSelectorContradicts").await;
    // What the API server does not take is nobody's edition.
    let refused = json!({"plaintext": [{"path": "/spec/dnsPolicy", "operator": "add", "value": "Nonsense"}]});
    site.place.add_override("refused", rule(refused)).await;
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, mut object) = site.application("apps/v1", "Deployment", spec);
    object["metadata"]["labels"][REQUIRED[1]] = json!("refused");
    site.place.create(&api, object).await;
    site.has_event("WaitingForEdition").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_range_pods_above_the_least_number_go_where_there_is_room() {
    let site = Site::new("placing-room").await;
    let [beijing, hangzhou] = site.groups();
    let ranges = json!([{"nodeGroupNames": [beijing], "min": 3, "max": 9}, {"nodeGroupNames": [hangzhou], "max": 5}]);
    site.place.add_propagation_of("spread", json!({"numRange": ranges})).await;
    // A node of beijing has room for one such pod, one of hangzhou for two.
    let nodes: Api<Node> = Api::all(site.client.clone());
    for (group, count, cpu) in [("beijing", 2, "1"), ("hangzhou", 3, "2")] {
        for number in 0..count {
            let patch = json!({"status": {"allocatable": {"cpu": cpu}, "capacity": {"cpu": cpu}}});
            let name = format!("{}-{group}-{number:03}", site.name);
            nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }
    // Changes of nodes come in their order: whoever knows of this one knows of those before it.
    site.add_group("known", json!({"matchLabels": {"room": "known"}})).await;
    let last = format!("{}-hangzhou-002", site.name);
    let known = json!({"metadata": {"labels": {"room": "known"}}});
    nodes.patch(&last, &PatchParams::default(), &Patch::Merge(known)).await.unwrap();
    crate::support::group_has(&site.client, &format!("{}-known", site.name), &[&last]).await;
    let mut template = site.template("Always");
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "900m"}});
    let spec = json!({"replicas": 9, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    let counted = async || {
        let mut counts = [0, 0];
        for pod in site.pods().await {
            let group = pod.labels().get(GATE).cloned().unwrap_or_default();
            counts[0] += usize::from(group == beijing);
            counts[1] += usize::from(group == hangzhou);
        }
        counts
    };
    // Three are beijing's own, though one of them finds no room: it waits there. Hangzhou takes no more than five, and the ninth
    // finds room nowhere.
    eventually("pods are placed", || async {
        let counts = counted().await;
        if counts == [4, 5] { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    eventually("all that have room run", || async {
        let ready = site.pods().await.iter().filter(|pod| is_ready(pod)).count();
        if ready == 7 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await;
    let before = site.identities().await;
    site.scale(&api, 7).await;
    eventually("the last go first", || async {
        let counts = counted().await;
        if counts == [3, 4] || counts == [2, 5] { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    assert!(site.identities().await.is_subset(&before), "no pod is moved");
}

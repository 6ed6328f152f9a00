//! The example of the design: a Deployment that runs already is spread over two places, each with a registry of its own; once with
//! the scheduler alone, and once with the extender.

use std::collections::{BTreeMap, BTreeSet};

use dapple_control::install::apply;
use dapple_testbed::testing::Observer;
use dapple_testbed::{ClusterSpec, Fleet};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::extender::{SCHEDULER, printed_config, start_scheduler};
use crate::support::{eventually, installed};
use crate::webhooks::Hooked;

const ASKS: [(&str, &str); 2] = [
    ("groupmanagement.kubeedge.io/required-propagationpolicy", "nginx-propagationpolicy"),
    ("groupmanagement.kubeedge.io/required-overridepolicy", "nginx-overridepolicy"),
];

/// One namespace with the example in it.
struct Example {
    client: Client,
    namespace: &'static str,
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|known| known.type_ == "Ready" && known.status == "True")
}

/// Where a pod is, by the name of its node, and its image.
fn place(pod: &Pod) -> (String, String) {
    let spec = pod.spec.clone().unwrap_or_default();
    let node = spec.node_name.unwrap_or_default();
    let image = spec.containers.first().and_then(|container| container.image.clone()).unwrap_or_default();
    (node.split('-').next().unwrap_or_default().to_owned(), image)
}

impl Example {
    async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let all = api.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    async fn identities(&self) -> BTreeSet<String> {
        self.pods().await.iter().filter_map(ResourceExt::uid).collect()
    }

    /// Waits until so many pods are ready in each place, with these images.
    async fn are(&self, beijing: (usize, &str), hangzhou: (usize, &str)) {
        let entry = |place: &str, (count, image): (usize, &str)| ((place.to_owned(), image.to_owned()), count);
        let wanted = BTreeMap::from([entry("beijing", beijing), entry("hangzhou", hangzhou)]);
        eventually(&format!("{}: pods are {wanted:?}", self.namespace), || async {
            let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
            for pod in self.pods().await {
                let key = if is_ready(&pod) { place(&pod) } else { ("not ready".to_owned(), String::new()) };
                *found.entry(key).or_default() += 1;
            }
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    /// Sees all that happens to the five pods from now on.
    async fn observe(&self) -> Observer {
        let observer = Observer::start(&self.client, self.namespace);
        observer.count_anew(5).await;
        observer
    }

    async fn add(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec});
        apply(&self.client, &object).await.unwrap();
    }

    async fn weigh(&self, beijing: i64, hangzhou: i64) {
        let kind = GroupVersionKind::gvk("groupmanagement.kubeedge.io", "v1alpha1", "PropagationPolicy");
        let api = Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            self.namespace,
            &ApiResource::from_gvk_with_plural(&kind, "propagationpolicies"),
        );
        let patch = json!({"spec": weights(beijing, hangzhou)});
        api.patch(ASKS[0].1, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn patch(&self, patch: Value) {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace);
        api.patch("nginx", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    }

    async fn scale(&self, replicas: usize) {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace);
        let patch = json!({"spec": {"replicas": replicas}});
        api.patch_scale("nginx", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Five replicas, two in Hangzhou and three in Beijing, as the scheduler has spread them without any policy.
    async fn runs_already(&self, scheduler: &str) {
        apply(&self.client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}))
            .await
            .unwrap();
        let selector = json!({"matchLabels": {"app": "nginx"}});
        let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector}]);
        let template = json!({"metadata": {"labels": {"app": "nginx"}}, "spec": {"schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0, "topologySpreadConstraints": spread,
            "containers": [{"name": "nginx", "image": "nginx:1"}]}});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "nginx", "namespace": self.namespace},
            "spec": {"replicas": 5, "selector": selector, "template": template}});
        apply(&self.client, &object).await.unwrap();
        self.are((3, "nginx:1"), (2, "nginx:1")).await;
    }

    /// Labels first, then policies. One pod goes to Hangzhou, and the other four are changed where they run.
    async fn is_spread(&self) {
        let (before, observer) = (self.identities().await, self.observe().await);
        let labels: BTreeMap<&str, &str> = ASKS.into_iter().collect();
        self.patch(json!({"metadata": {"labels": labels}})).await;
        let rule = |group: &str| {
            json!({"targetNodeGroup": [group], "imageOverrider": [
                {"component": "Registry", "operator": "replace", "value": format!("{}.registry.io", group.to_lowercase())}]})
        };
        let mut spec = weights(2, 3);
        spec["propagationStrategy"] = json!("StaticWeight");
        self.add("PropagationPolicy", ASKS[0].1, spec).await;
        self.add("OverridePolicy", ASKS[1].1, json!({"overrideRules": [rule("Beijing"), rule("Hangzhou")]})).await;
        self.are((2, "beijing.registry.io/nginx:1"), (3, "hangzhou.registry.io/nginx:1")).await;
        assert_eq!(self.identities().await.intersection(&before).count(), 4, "one eviction");
        assert_eq!((observer.evicted(), observer.fewest_ready()), (1, 4), "never two away");
    }

    async fn lives_on(&self) {
        let (beijing, hangzhou) = ("beijing.registry.io/nginx:1", "hangzhou.registry.io/nginx:1");
        let (before, observer) = (self.identities().await, self.observe().await);
        self.weigh(3, 2).await;
        self.are((3, beijing), (2, hangzhou)).await;
        assert_eq!(self.identities().await.intersection(&before).count(), 4, "one eviction");
        self.weigh(2, 3).await;
        self.are((2, beijing), (3, hangzhou)).await;
        assert_eq!((observer.evicted(), observer.fewest_ready()), (2, 4), "never two away");

        let five = self.identities().await;
        self.scale(20).await;
        self.are((8, beijing), (12, hangzhou)).await;
        assert!(self.identities().await.is_superset(&five), "nobody is moved");
        self.scale(5).await;
        self.are((2, beijing), (3, hangzhou)).await;
        assert_eq!(observer.evicted(), 2, "nor is anybody moved by scaling");
    }

    /// The node of one of its pods in Beijing.
    async fn node_of_a_pod(&self) -> String {
        let pods = self.pods().await;
        let nodes = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
        nodes.into_iter().find(|node| node.starts_with("beijing")).expect("a pod in Beijing")
    }

    /// Nodes are gone, one of its own among them: their pods come again in the same place.
    async fn loses(&self, lost: &BTreeSet<String>) {
        let observer = Observer::start(&self.client, self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let mut there = self.pods().await;
        there.retain(|pod| lost.contains(&node_of(pod)));
        assert!(!there.is_empty(), "{} had a pod there", self.namespace);
        for pod in there {
            // What the garbage collector does after a while.
            pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
        }
        self.are((2, "beijing.registry.io/nginx:1"), (3, "hangzhou.registry.io/nginx:1")).await;
        assert_eq!(observer.evicted(), 0);
    }

    async fn is_rolled_out(&self) {
        let (beijing, hangzhou) = ("beijing.registry.io/nginx:2", "hangzhou.registry.io/nginx:2");
        let image = json!([{"name": "nginx", "image": "nginx:2"}]);
        self.patch(json!({"spec": {"template": {"spec": {"containers": image}}}})).await;
        self.are((2, beijing), (3, hangzhou)).await;
    }

    async fn stop_asking(&self) {
        let labels: BTreeMap<&str, Value> = ASKS.into_iter().map(|(label, _)| (label, Value::Null)).collect();
        self.patch(json!({"metadata": {"labels": labels}})).await;
    }

    /// Without the labels, pods keep their places and are as their template again.
    async fn asks_no_more(&self) {
        let (before, observer) = (self.identities().await, self.observe().await);
        self.stop_asking().await;
        self.are((2, "nginx:2"), (3, "nginx:2")).await;
        assert_eq!(self.identities().await, before);
        assert_eq!((observer.evicted(), observer.fewest_ready()), (0, 4), "never two away");
    }

    /// Waits until all pods have these arguments, and none has been ready too short a time to count.
    async fn have_arguments(&self, wanted: &[&str]) {
        eventually(&format!("{}: arguments are {wanted:?}", self.namespace), || async {
            let pods = self.pods().await;
            let arguments = |pod: &Pod| pod.spec.as_ref()?.containers[0].args.clone();
            let is_right = |pod: &&Pod| is_ready(pod) && arguments(pod).unwrap_or_default() == *wanted;
            let right = pods.iter().filter(is_right).count();
            if (right, pods.len()) == (5, 5) { Ok(()) } else { Err(format!("{right} of {}", pods.len())) }
        })
        .await;
    }

    /// Arguments take other pods, one after another, and so does taking them back.
    async fn takes_other_pods(&self) {
        let (before, observer) = (self.identities().await, self.observe().await);
        let args = json!([{"containerName": "nginx", "operator": "add", "value": ["--edge"]}]);
        let rule = json!({"targetNodeGroup": ["Beijing", "Hangzhou"], "argsOverrider": args});
        self.add("OverridePolicy", ASKS[1].1, json!({"overrideRules": [rule]})).await;
        self.have_arguments(&["--edge"]).await;
        assert!(self.identities().await.is_disjoint(&before));
        assert_eq!((observer.evicted(), observer.fewest_ready()), (5, 4), "never two away");

        self.stop_asking().await;
        self.have_arguments(&[]).await;
        assert_eq!((observer.evicted(), observer.fewest_ready()), (10, 4), "never two away");
    }
}

impl Example {
    /// Deletes a pod of the DaemonSet. The one that comes in its place has the arguments of that.
    async fn has_a_daemon_made_anew(&self) {
        let before = self.identities().await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let daemon = self.pods().await.into_iter().find(|pod| pod.labels()["app"] == "DaemonSet").unwrap();
        pods.delete(&daemon.name_any(), &DeleteParams::default()).await.unwrap();
        eventually("a new pod of the DaemonSet has the arguments of its place", || async {
            let all = self.pods().await;
            let new = all
                .iter()
                .find(|pod| pod.labels()["app"] == "DaemonSet" && !before.contains(&pod.uid().unwrap_or_default()));
            let container = new.and_then(|pod| pod.spec.as_ref()).map(|spec| spec.containers[0].clone());
            let args = container.and_then(|container| container.args).unwrap_or_default();
            if args == [format!("--site={}", place(&daemon).0)] { Ok(()) } else { Err(format!("{args:?}")) }
        })
        .await;
    }

    /// Waits until the manager knows what an OverridePolicy says.
    async fn has_seen(&self, policy: &str) {
        let kind = GroupVersionKind::gvk("groupmanagement.kubeedge.io", "v1alpha1", "OverridePolicy");
        let kind = ApiResource::from_gvk_with_plural(&kind, "overridepolicies");
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), self.namespace, &kind);
        eventually(&format!("{policy} is seen"), || async {
            let found = api.get(policy).await.map_err(|error| error.to_string())?;
            let seen = found.data["status"]["observedGeneration"].as_i64();
            if seen == found.metadata.generation { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }
}

/// Pods of a DaemonSet are made by the groups of their nodes, and later get images where they run; pods that no policy divides get
/// images alone.
async fn pods_follow_their_nodes(client: &Client) {
    let example = Example { client: client.clone(), namespace: "follows" };
    apply(client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "follows"}})).await.unwrap();
    let rule = |group: &str, version: usize| {
        json!({"targetNodeGroup": [group], "overriders": {
            "imageOverrider": [{"component": "Registry", "operator": "replace", "value": format!("{group}{version}.io")}],
            "argsOverrider": [{"containerName": "c", "operator": "add", "value": [format!("--site={group}")]}]}})
    };
    let rules = |version| json!({"overrideRules": [rule("beijing", version), rule("hangzhou", version)]});
    example.add("OverridePolicy", "sites", rules(1)).await;
    let workload = |kind: &str, spec: Value| {
        let mut spec = spec;
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "location", "operator": "In", "values": ["beijing", "hangzhou"]}]}]}}});
        spec["selector"] = json!({"matchLabels": {"app": kind}});
        spec["template"] = json!({"metadata": {"labels": {"app": kind}}, "spec": {"affinity": affinity,
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "c:1"}]}});
        json!({"apiVersion": "apps/v1", "kind": kind, "spec": spec, "metadata": {"name": kind.to_lowercase(),
            "namespace": "follows", "labels": {"groupmanagement.kubeedge.io/required-overridepolicy": "sites"}}})
    };
    // Its first pods may come before the policy is confirmed for it.
    apply(client, &workload("DaemonSet", json!({}))).await.unwrap();
    apply(client, &workload("Deployment", json!({"replicas": 5}))).await.unwrap();
    let follow = async |version: usize| {
        eventually(&format!("pods have the images {version} of their places"), || async {
            let pods = example.pods().await;
            let wrong = pods.iter().filter(|pod| {
                let (site, image) = place(pod);
                image != format!("{site}{version}.io/c:1") || !is_ready(pod)
            });
            let wrong: Vec<(String, String)> = wrong.map(place).collect();
            if pods.len() == 10 && wrong.is_empty() { Ok(()) } else { Err(format!("{} pods, {wrong:?}", pods.len())) }
        })
        .await;
    };
    follow(1).await;
    let before = example.identities().await;
    example.add("OverridePolicy", "sites", rules(2)).await;
    follow(2).await;
    assert_eq!(example.identities().await, before, "all are changed where they run");

    // A pod that comes after the policy was confirmed has all of it.
    example.has_a_daemon_made_anew().await;
    follow(2).await;
    // What the API server refuses reaches nobody: new pods get the last edition that is any good.
    let mut refused = rules(2);
    let nowhere = json!({"plaintext": [{"path": "/spec/dnsPolicy", "operator": "add", "value": "Nowhere"}]});
    refused["overrideRules"].as_array_mut().unwrap().push(nowhere);
    example.add("OverridePolicy", "sites", refused).await;
    example.has_seen("sites").await;
    example.has_a_daemon_made_anew().await;
    follow(2).await;
    Api::<Deployment>::namespaced(client.clone(), "follows")
        .delete("deployment", &DeleteParams::background())
        .await
        .unwrap();
    Api::<DaemonSet>::namespaced(client.clone(), "follows")
        .delete("daemonset", &DeleteParams::background())
        .await
        .unwrap();
    eventually("all are gone", || async {
        let left = example.pods().await.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} pods")) }
    })
    .await;
}

fn weights(beijing: i64, hangzhou: i64) -> Value {
    json!({"staticWeightList": [{"nodeGroupNames": ["Beijing"], "weight": beijing},
        {"nodeGroupNames": ["Hangzhou"], "weight": hangzhou}]})
}

/// The value of a counter of the manager.
async fn counted(hooked: &Hooked, name: &str) -> u64 {
    let mut stream = TcpStream::connect(hooked.backends[0].health).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut body = String::new();
    stream.read_to_string(&mut body).await.unwrap();
    let line =
        body.lines().find(|line| line.starts_with(&format!("{name}_total "))).unwrap_or_else(|| panic!("{body}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_deployment_is_spread_over_two_places_each_with_its_own_registry() {
    let hooked = Hooked::on(installed(ClusterSpec::temporary()).await).await;
    let kind = |site: &str, count: usize| json!({"name": site, "count": count, "labels": {"location": site}});
    let fleet = json!({"kinds": [kind("hangzhou", 2), kind("beijing", 3)]});
    hooked.cluster.apply_fleet(&Fleet::from_yaml(&fleet.to_string(), "fleet").unwrap()).await.unwrap();
    let client = hooked.client.clone();
    for site in ["hangzhou", "beijing"] {
        let group = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
            "metadata": {"name": site}, "spec": {"matchLabels": {"location": site}}});
        apply(&client, &group).await.unwrap();
    }
    let address = format!("127.0.0.1:{}", hooked.cluster.choose_port().unwrap());
    let _manager = hooked.replica_with(0, &["--repair-after", "3s", "--extender-listen", &address]);
    hooked.asked().await;
    let config = printed_config(&hooked.cluster, &address).await;
    start_scheduler(&hooked.cluster, config).await;

    let plain = Example { client: client.clone(), namespace: "plain" };
    let extended = Example { client: client.clone(), namespace: "extended" };
    tokio::join!(plain.runs_already("default-scheduler"), extended.runs_already(SCHEDULER));
    pods_follow_their_nodes(&client).await;
    let changed = counted(&hooked, "group_edition_changes").await;
    tokio::join!(plain.is_spread(), extended.is_spread());
    let totals = async || (counted(&hooked, "group_moves").await, counted(&hooked, "group_edition_changes").await);
    assert_eq!(totals().await, (2, changed + 8), "of each one eviction, and four changes where they run");
    tokio::join!(plain.lives_on(), extended.lives_on());
    assert_eq!(totals().await, (6, changed + 8), "one for each change of the weights, none for scaling");

    let lost = BTreeSet::from([plain.node_of_a_pod().await, extended.node_of_a_pod().await]);
    for node in &lost {
        Api::<Node>::all(client.clone()).delete(node, &DeleteParams::default()).await.unwrap();
    }
    tokio::join!(plain.loses(&lost), extended.loses(&lost));
    assert_eq!(totals().await, (6, changed + 8), "nobody else is moved for that");
    tokio::join!(plain.is_rolled_out(), extended.is_rolled_out());
    assert_eq!(totals().await, (6, changed + 8), "new pods are right from the first on");
    tokio::join!(plain.takes_other_pods(), extended.asks_no_more());
    assert_eq!(totals().await, (6, changed + 23), "of one ten by eviction, of the other five where they run");
}

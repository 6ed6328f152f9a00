//! The scheduler extender of the real program, asked by a real kube-scheduler that `dapple extender config` configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dapple_control::install::apply;
use dapple_testbed::progress::Quiet;
use dapple_testbed::testing::Observer;
use dapple_testbed::{Binary, Cluster, Fleet, Need, Upstream};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{MANAGER_USER, Manager, dapple, eventually, own_cluster_with_kwok, text};

const REQUIRED: &str = "groupmanagement.kubeedge.io/required-propagationpolicy";
const BINDING: &str = "groupmanagement.kubeedge.io/binding-propagationpolicy";
/// The scheduler that asks us. The other one goes on beside it.
pub(crate) const SCHEDULER: &str = "extended";

/// What `dapple extender config` prints.
pub(crate) async fn printed_config(cluster: &Cluster, address: &str) -> Value {
    let url = format!("https://{}", address);
    let kubeconfig = cluster.admin_kubeconfig().to_str().unwrap().to_owned();
    eventually("there are certificates", || async {
        let said = dapple(&["extender", "config", "--url", &url, "--kubeconfig", &kubeconfig]);
        if !said.status.success() {
            return Err(text(&said.stderr));
        }
        let printed = text(&said.stdout);
        assert!(printed.starts_with("# Holds until 20"), "{printed}");
        Ok(serde_saphyr::from_str(&printed).unwrap())
    })
    .await
}

/// Starts a scheduler of that configuration.
pub(crate) async fn start_scheduler(cluster: &Cluster, mut config: Value) {
    let kubeconfig = cluster.kubeconfig_for("system:kube-scheduler", &[]).await.unwrap();
    config["leaderElection"] = json!({"leaderElect": false});
    config["clientConnection"] = json!({"kubeconfig": kubeconfig});
    config["profiles"] = json!([{"schedulerName": SCHEDULER}]);
    let file = cluster.dir().join("extended.config");
    std::fs::write(&file, config.to_string()).unwrap();
    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await.unwrap();
    let port = cluster.choose_port().unwrap();
    let args =
        [format!("--config={}", file.display()), "--bind-address=127.0.0.1".into(), format!("--secure-port={port}")];
    let program = binaries.path(Binary::KubeScheduler).unwrap();
    cluster.spawn_attached("extended-scheduler", program, &args, &[]).unwrap();
}

/// A cluster with groups of nodes, a manager, and a scheduler that asks it.
struct Site {
    cluster: Cluster,
    client: Client,
    kubeconfig: PathBuf,
    address: String,
}

impl Site {
    async fn start() -> Self {
        let (cluster, client) = own_cluster_with_kwok().await;
        let kind = |site: &str, count: usize| json!({"name": site, "count": count, "labels": {"place": site}});
        let places = [kind("beijing", 2), kind("hangzhou", 3), kind("elsewhere", 2), kind("full", 1), kind("cheap", 1)];
        let fleet = json!({"kinds": places});
        cluster.apply_fleet(&Fleet::from_yaml(&fleet.to_string(), "fleet").unwrap()).await.unwrap();
        let kubeconfig = cluster.kubeconfig_for(MANAGER_USER, &[]).await.unwrap();
        let address = format!("127.0.0.1:{}", cluster.choose_port().unwrap());
        let site = Self { cluster, client, kubeconfig, address };
        for place in ["beijing", "hangzhou", "full"] {
            site.group_object("NodeGroup", place, json!({"matchLabels": {"place": place}})).await;
        }
        site
    }

    fn manager(&self) -> Manager {
        let flags = ["--listen", "127.0.0.1:0", "--extender-listen", &self.address, "--repair-after", "5s"];
        Manager::with(&self.kubeconfig, self.cluster.log("manager"), &flags)
    }

    async fn group_object(&self, kind: &str, name: &str, spec: Value) {
        let mut metadata = json!({"name": name});
        if kind != "NodeGroup" {
            metadata["namespace"] = json!("default");
        }
        let version = "groupmanagement.kubeedge.io/v1alpha1";
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        apply(&self.client, &object).await.unwrap();
    }

    async fn add_policy(&self, name: &str) {
        let weight = |group: &str, weight: i32| json!({"nodeGroupNames": [group], "weight": weight});
        let list = json!({"staticWeightList": [weight("beijing", 2), weight("hangzhou", 3)]});
        self.group_object("PropagationPolicy", name, list).await;
    }

    /// A Deployment whose pods come without the gate.
    async fn deploy(&self, name: &str, policy: Option<&str>, replicas: usize) {
        let labels = policy.map_or_else(|| json!({}), |policy| json!({REQUIRED: policy}));
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "web:1"}]}});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}});
        apply(&self.client, &object).await.unwrap();
    }

    async fn scale(&self, name: &str, replicas: usize) {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn pods(&self, name: &str) -> Vec<Pod> {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        api.list(&ListParams::default().labels(&format!("app={name}"))).await.unwrap().items
    }

    /// Waits until so many pods are on nodes of each place.
    async fn are_divided(&self, name: &str, wanted: &[(&str, usize)]) {
        let wanted: BTreeMap<String, usize> =
            wanted.iter().map(|(place, count)| ((*place).to_owned(), *count)).collect();
        eventually(&format!("pods of {name} are {wanted:?}"), || async {
            let mut found: BTreeMap<String, usize> = BTreeMap::new();
            for pod in self.pods(name).await {
                let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
                *found.entry(node.split('-').next().unwrap_or_default().to_owned()).or_default() += 1;
            }
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}\n{}", self.cluster.tail("extended-scheduler")))
            }
        })
        .await;
    }

    /// Waits until so many pods are on nodes, wherever.
    async fn run_anywhere(&self, name: &str, count: usize) {
        eventually(&format!("{count} pods of {name} are on nodes"), || async {
            let pods = self.pods(name).await;
            let there =
                pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).count();
            if there == count { Ok(()) } else { Err(format!("{there} of {}", pods.len())) }
        })
        .await;
    }
}

/// Asks as a scheduler of this configuration does, or without its certificate.
struct Asker(Client);

impl Asker {
    async fn new(config: &Value, has_certificate: bool) -> Self {
        let (extender, tls) = (&config["extenders"][0], &config["extenders"][0]["tlsConfig"]);
        let user = json!({"client-certificate-data": tls["certData"], "client-key-data": tls["keyData"]});
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": extender["urlPrefix"], "certificate-authority-data": tls["caData"],
                "tls-server-name": tls["serverName"]}}],
            "users": [{"name": "c", "user": if has_certificate { user } else { json!({}) }}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self(Client::try_from(config).unwrap())
    }

    async fn ask(&self, verb: &str, body: &str) -> Result<Value, String> {
        let request = http::Request::post(format!("/{verb}")).body(body.as_bytes().to_vec()).unwrap();
        let answer = self.0.request_text(request).await.map_err(|error| error.to_string())?;
        serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))
    }
}

/// Waits until policy and labels of a Deployment are known to whoever answers: what was refused before is tried again by a
/// scheduler after minutes.
async fn is_known(site: &Site, asker: &Asker, name: &str) {
    let deployments: Api<Deployment> = Api::default_namespaced(site.client.clone());
    let sets: Api<ReplicaSet> = Api::default_namespaced(site.client.clone());
    eventually(&format!("{name} is known"), || async {
        let found = deployments.get(name).await.map_err(|error| error.to_string())?;
        if !found.labels().contains_key(BINDING) {
            return Err("it is not confirmed".to_owned());
        }
        let sets = sets.list(&ListParams::default().labels(&format!("app={name}"))).await.unwrap();
        let uid = sets.iter().find_map(ResourceExt::uid).ok_or("it has no ReplicaSet")?;
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": true});
        let pod =
            json!({"metadata": {"namespace": "default", "name": "probe", "uid": "probe", "ownerReferences": [owner]}});
        let body = json!({"Pod": pod, "NodeNames": ["beijing-000", "hangzhou-000", "elsewhere-000"]});
        let scores = asker.ask("prioritize", &body.to_string()).await?;
        if scores.as_array().is_some_and(|scores| !scores.is_empty()) { Ok(()) } else { Err(scores.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_the_gate_are_divided_by_a_scheduler_that_asks() {
    let site = Site::start().await;
    let said = dapple(&["extender", "config", "--kubeconfig", site.cluster.admin_kubeconfig().to_str().unwrap()]);
    let error = text(&said.stderr);
    assert!(!said.status.success() && error.contains("--extender-listen"), "{error}");
    let manager = site.manager();
    let config = printed_config(&site.cluster, &site.address).await;
    let asker = Asker::new(&config, true).await;
    only_known_callers_are_answered(&config, &asker).await;
    start_scheduler(&site.cluster, config).await;

    site.add_policy("spread").await;
    site.deploy("web", Some("spread"), 0).await;
    is_known(&site, &asker, "web").await;
    every_situation_has_its_answer(&asker).await;
    site.scale("web", 5).await;
    site.are_divided("web", &[("beijing", 2), ("hangzhou", 3)]).await;
    site.scale("web", 20).await;
    site.are_divided("web", &[("beijing", 8), ("hangzhou", 12)]).await;

    waits_and_says_why(&site).await;
    nobody_dies_elsewhere(&site).await;
    nobody_waits_for_one_that_is_away(&site, manager).await;
    site.cluster.stop().await.unwrap();
}

/// Without its certificate nobody is told anything; with it, whatever is asked.
async fn only_known_callers_are_answered(config: &Value, asker: &Asker) {
    let extender = &config["extenders"][0];
    for (field, value) in [
        ("nodeCacheCapable", json!(true)),
        ("ignorable", json!(true)),
        ("enableHTTPS", json!(true)),
        ("httpTimeout", json!("1s")),
        ("filterVerb", json!("filter")),
        ("prioritizeVerb", json!("prioritize")),
        ("preemptVerb", json!("preempt")),
    ] {
        assert_eq!(extender[field], value, "{field}");
    }
    let pod = json!({"metadata": {"namespace": "kube-system", "name": "p", "uid": "p"}});
    let body = json!({"Pod": pod, "NodeNames": ["a", "b"]}).to_string();
    eventually("it answers", || async {
        let answer = asker.ask("filter", &body).await?;
        if answer == json!({"NodeNames": ["a", "b"]}) { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    assert_eq!(asker.ask("prioritize", &body).await, Ok(json!([])));
    let garbled = asker.ask("filter", &body[..body.len() / 2]).await.unwrap();
    assert!(garbled["Error"].as_str().is_some_and(|error| error.contains("cannot read")), "{garbled}");
    assert_eq!(asker.ask("prioritize", "garbage").await, Ok(json!([])));
    let stranger = Asker::new(config, false).await;
    let refused = stranger.ask("filter", &body).await.expect_err("it shows no certificate");
    assert!(refused.contains("a client certificate is needed here"), "{refused}");
}

/// Pods of nobody's, and others, as nobody made them: only what is asked says what they are.
async fn every_situation_has_its_answer(asker: &Asker) {
    let nodes = ["beijing-000", "hangzhou-000", "elsewhere-000"];
    let ask = async |verb: &str, name: &str, labels: Value, owner: Value| {
        let owners = if owner.is_null() { json!([]) } else { json!([owner]) };
        let metadata =
            json!({"namespace": "default", "name": name, "uid": name, "labels": labels, "ownerReferences": owners});
        asker.ask(verb, &json!({"Pod": {"metadata": metadata}, "NodeNames": nodes}).to_string()).await.unwrap()
    };
    for (labels, why) in [
        (json!({REQUIRED: "spread"}), "PropagationPolicy \"spread\" is asked for and not confirmed"),
        (
            json!({REQUIRED: "spread", BINDING: "other"}),
            "PropagationPolicy \"spread\" is asked for and \"other\" confirmed",
        ),
        (json!({REQUIRED: "gone", BINDING: "gone"}), "PropagationPolicy \"gone\" is confirmed and not there"),
    ] {
        let failed: BTreeMap<&str, &str> = nodes.into_iter().map(|node| (node, why)).collect();
        let told = ask("filter", "held", labels.clone(), Value::Null).await;
        assert_eq!(told, json!({"NodeNames": [], "FailedAndUnresolvableNodes": failed}), "{labels}");
        assert_eq!(ask("prioritize", "held", labels, Value::Null).await, json!([]));
    }
    let owner =
        |kind: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "nobody", "controller": true});
    let bound = json!({REQUIRED: "spread", BINDING: "spread"});
    let mut placed = bound.clone();
    placed["dapple.dev/group"] = json!("hangzhou");
    for (labels, owner) in [
        (json!({}), Value::Null),
        (json!({BINDING: "spread"}), Value::Null),
        (json!({"groupmanagement.kubeedge.io/required-overridepolicy": "images"}), Value::Null),
        (placed, Value::Null),
        (bound.clone(), owner("ReplicaSet")),
        (bound.clone(), owner("DaemonSet")),
        (bound.clone(), owner("Unheard")),
    ] {
        let told = ask("filter", "free", labels.clone(), owner.clone()).await;
        assert_eq!(told, json!({"NodeNames": nodes}), "{labels} {owner}");
        assert_eq!(ask("prioritize", "free", labels, owner).await, json!([]));
    }
    // One after the other, as the policy divides them, though none is ever seen.
    for (name, node) in [("p1", nodes[1]), ("p2", nodes[0]), ("p3", nodes[1]), ("p4", nodes[0]), ("p5", nodes[1])] {
        let told = ask("filter", name, bound.clone(), Value::Null).await;
        assert_eq!(told["NodeNames"], json!([node]), "{name}: {told}");
        assert_eq!(told["FailedAndUnresolvableNodes"][nodes[2]], "in no group of PropagationPolicy \"spread\"");
        let scores = ask("prioritize", name, bound.clone(), Value::Null).await;
        let score =
            |scored: &str| scores.as_array().and_then(|all| all.iter().find(|known| known["Host"] == scored).cloned());
        assert_eq!(score(node).map(|known| known["Score"].clone()), Some(json!(10)), "{name}: {scores}");
    }
}

/// A pod whose policy is not there stays pending, and its Event says why.
async fn waits_and_says_why(site: &Site) {
    site.deploy("early", Some("later"), 1).await;
    let events: Api<Event> = Api::default_namespaced(site.client.clone());
    eventually("the scheduler says why", || async {
        let params = ListParams::default().fields("reason=FailedScheduling,involvedObject.kind=Pod");
        let found = events.list(&params).await.map_err(|error| error.to_string())?;
        let notes: Vec<String> = found.items.into_iter().filter_map(|event| event.message).collect();
        let why = "9 PropagationPolicy \"later\" is asked for and not confirmed";
        if notes.iter().any(|note| note.contains(why)) { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
    let pods = site.pods("early").await;
    assert!(pods.iter().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none())), "it waits");
    site.deploy("free", None, 2).await;
    site.run_anywhere("free", 2).await;
}

/// The group that the policy lists is full of pods as dear as this one, and the cheaper one is elsewhere.
async fn nobody_dies_elsewhere(site: &Site) {
    let list = json!({"staticWeightList": [{"nodeGroupNames": ["full"], "weight": 1}]});
    site.group_object("PropagationPolicy", "dear", list).await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "dear"}, "value": 1000});
    apply(&site.client, &class).await.unwrap();
    let here = json!({"key": "place", "operator": "In", "values": ["full", "cheap"]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [here]}]}}});
    // Of 8 processors each has 5: there is no room for two.
    let containers = json!([{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "5"}}}]);
    let pod = |name: &str, class: &str, labels: Value, node: Option<&str>| {
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"schedulerName": SCHEDULER,
            "priorityClassName": class, "nodeName": node, "affinity": affinity, "containers": containers,
            "terminationGracePeriodSeconds": 0}})
    };
    let observer = Observer::start(&site.client, "default");
    apply(&site.client, &pod("there", "dear", json!({}), Some("full-000"))).await.unwrap();
    apply(&site.client, &pod("victim", "", json!({}), Some("cheap-000"))).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(site.client.clone());
    let phase = async |name: &str| pods.get_opt(name).await.unwrap().and_then(|pod| pod.status?.phase);
    eventually("both are there", || async {
        let phases = [phase("there").await, phase("victim").await].map(Option::unwrap_or_default);
        if phases == ["Running", "Running"] { Ok(()) } else { Err(format!("{phases:?}")) }
    })
    .await;
    apply(&site.client, &pod("asking", "dear", json!({REQUIRED: "dear", BINDING: "dear"}), None)).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(site.client.clone());
    eventually("the scheduler finds no room", || async {
        let params = ListParams::default().fields("reason=FailedScheduling,involvedObject.name=asking");
        let found = events.list(&params).await.map_err(|error| error.to_string())?;
        let notes: Vec<String> = found.items.into_iter().filter_map(|event| event.message).collect();
        if notes.iter().any(|note| note.contains("2 Insufficient cpu")) { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
    assert_eq!((observer.preempted(), phase("victim").await.as_deref()), (0, Some("Running")));

    apply(&site.client, &pod("free", "dear", json!({}), None)).await.unwrap();
    eventually("without a policy one dies", || async {
        let there = (observer.preempted(), phase("free").await);
        if there == (1, Some("Running".to_owned())) { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
    assert_eq!(phase("asking").await.as_deref(), Some("Pending"));
}

/// While nobody answers, and while nobody is there, pods run all the same. Once somebody is, those that are in the wrong place are
/// moved, and no others.
async fn nobody_waits_for_one_that_is_away(site: &Site, mut manager: Manager) {
    manager.signal(Signal::STOP);
    site.scale("free", 4).await;
    site.run_anywhere("free", 4).await;
    site.scale("web", 22).await;
    site.run_anywhere("web", 22).await;
    manager.signal(Signal::KILL);
    manager.wait();
    site.scale("free", 6).await;
    site.run_anywhere("free", 6).await;
    site.scale("web", 24).await;
    site.run_anywhere("web", 24).await;

    let observer = Observer::start(&site.client, "default");
    let shares = [("beijing", 10), ("hangzhou", 14)];
    let mut misplaced = 24;
    for (place, share) in shares {
        let there = site.pods("web").await.iter().filter(|pod| is_on(pod, place)).count();
        misplaced -= there.min(share);
    }
    assert!(misplaced > 0, "some were to be in the wrong place");
    let _manager = site.manager();
    site.are_divided("web", &shares).await;
    assert_eq!(observer.evicted(), misplaced);
}

fn is_on(pod: &Pod, place: &str) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| node.starts_with(place))
}

//! Markers of pods, in process: one pod that changes, with ten markers over 10,000 pods that all of them match, beside its limit of
//! 50 µs, and for 1,000 to 100,000 pods: it must not grow with them. And the bytes of what a node of 110 pods is to probe.
//!
//! One event is all that decides between watch and write: the pod's record is read, the pod is held against each marker, and each
//! marker says what is to be done next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use dapple_api::marker::{
    ContainerProbeState, MARKS_ANNOTATION, NodePodProbeSpec, PodProbe, PodProbeStatus, ProbeState,
};
use dapple_bench::goals::check;
use dapple_bench::measure::cost_of;
use dapple_edit::marker::{OwnerKeys, Record, mark};
use dapple_plan::marker::choice::Choice;
use dapple_plan::marker::probing::{MOST_BYTES, Probed, node_probes};
use dapple_plan::marker::result::{Container, Outcome, Run};
use dapple_plan::marker::rule::{Rule, Rules};
use dapple_plan::marker::standing::{NodeOf, Pod, standing};
use serde_json::{Value, json};

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const EVENT_LIMIT: Duration = Duration::from_micros(50);
/// A hundred times as many pods may cost this much more per event: deeper trees, colder caches.
const GROWTH_LIMIT: f64 = 5.0;
const MARKERS: usize = 10;
const SIZES: [usize; 5] = [1_000, 5_000, 10_000, 50_000, 100_000];
const EVENTS: usize = 20_000;
/// As many pods of a kind of change are asked for at a time.
const AT_ONCE: usize = 64;
/// On the clock that never goes back, and in seconds since 1970.
const NOW: Duration = Duration::from_secs(1_000);
const SECOND: i64 = 1_800_000_000;
/// A node that is full, by Kubernetes' default.
const PODS_OF_NODE: usize = 110;

struct OnePod {
    name: Arc<str>,
    uid: Arc<str>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    is_ready: bool,
    created: i64,
    containers: Vec<Container>,
}

struct Made {
    rules: Rules,
    choices: Vec<(Arc<Rule>, Choice)>,
    pods: Vec<OnePod>,
    numbers: BTreeMap<Arc<str>, usize>,
    node: BTreeMap<String, String>,
    owner: OwnerKeys,
}

fn main() -> anyhow::Result<()> {
    let mut missed = Vec::new();
    println!("a pod that changes, with {MARKERS} markers");
    println!("{:>8} {:>10} {:>8}  per event", "pods", "event µs", "/ limit");
    let mut first = None;
    for size in SIZES {
        let mut made = Made::new(size)?;
        let took = events(&mut made)?;
        let (micros, ratio) = (took.as_secs_f64() * 1e6, took.as_secs_f64() / EVENT_LIMIT.as_secs_f64());
        let growth = micros / *first.get_or_insert(micros);
        println!("{size:>8} {micros:>10.2} {ratio:>8.3}  {}", "#".repeat((growth * 10.0) as usize));
        if size == 10_000 {
            check(&mut missed, format!("{size} pods: {ratio:.3} of the limit of {EVENT_LIMIT:?}"), ratio <= 1.0);
        }
        if growth > GROWTH_LIMIT {
            missed.push(format!("{size} pods: {growth:.1} times the event of {} (goal {GROWTH_LIMIT})", SIZES[0]));
        }
    }
    bytes(&mut missed)?;
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// What one event costs.
fn events(made: &mut Made) -> anyhow::Result<Duration> {
    let size = made.pods.len();
    let (changes, cost) = cost_of(|| (0..EVENTS).map(|number| made.event(number * 7919 % size)).sum::<usize>())?;
    ensure!(changes == 0, "what becomes preferred moves no mark: {changes} changes");
    Ok(cost.cpu / u32::try_from(EVENTS)?)
}

impl Made {
    /// So many pods, marked as the markers ask.
    fn new(size: usize) -> anyhow::Result<Self> {
        let rules = (0..MARKERS).map(rule).collect::<anyhow::Result<Vec<Rule>>>()?;
        let rules: Rules = rules.into_iter().map(|rule| (rule.age.name.clone(), Arc::new(rule))).collect();
        let choices = rules.values().map(|rule| (rule.clone(), Choice::new(rule.replicas, 0))).collect();
        let pods: Vec<OnePod> = (0..size).map(pod).collect();
        let numbers = pods.iter().enumerate().map(|(number, pod)| (pod.name.clone(), number)).collect();
        let node = BTreeMap::from([("arch".to_owned(), "x86".to_owned())]);
        let owner = OwnerKeys::Known(["app".to_owned(), "pod-template-hash".to_owned()].into());
        let mut made = Self { rules, choices, pods, numbers, node, owner };
        (0..size).for_each(|number| made.tell(number));
        made.mark_all()?;
        (0..size).for_each(|number| made.tell(number));
        Ok(made)
    }

    /// Marks all pods that are to be.
    fn mark_all(&mut self) -> anyhow::Result<()> {
        for (rule, choice) in &self.choices {
            for name in choice.changes(NOW, usize::MAX).mark {
                let number = *self.numbers.get(&name).context("there is no such pod")?;
                let pod = &mut self.pods[number];
                let change = pod.look(&self.node, &self.owner, |seen| {
                    mark(
                        seen.record,
                        &|place, key| seen.value(place, key),
                        rule.name(),
                        &rule.items,
                        seen.owner,
                        SECOND,
                    )
                });
                let values = |keys: BTreeMap<String, Option<String>>| {
                    keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect::<Vec<_>>()
                };
                pod.labels.extend(values(change.labels));
                pod.annotations.extend(values(change.annotations));
            }
        }
        Ok(())
    }

    /// Holds a pod against each marker.
    fn tell(&mut self, number: usize) {
        let Self { rules, choices, pods, node, owner, .. } = self;
        let pod = &pods[number];
        pod.look(node, owner, |seen| {
            for (rule, choice) in choices.iter_mut() {
                let standing = standing(rule, seen, rules, &|_, _| Outcome::Succeeded);
                choice.put((&pod.name, &pod.uid), &standing, false, NOW);
            }
        });
    }

    /// A pod turns ready, or is so no more. Returns how much is to be done then.
    fn event(&mut self, number: usize) -> usize {
        self.pods[number].is_ready = !self.pods[number].is_ready;
        self.tell(number);
        let changes = self.choices.iter().map(|(_, choice)| choice.changes(NOW, AT_ONCE));
        changes.map(|changes| changes.mark.len() + changes.amend.len() + changes.unmark.len()).sum()
    }
}

impl OnePod {
    fn look<T>(&self, node: &BTreeMap<String, String>, owner: &OwnerKeys, look: impl FnOnce(&Pod<'_>) -> T) -> T {
        let record = Record::read(self.annotations.get(MARKS_ANNOTATION).map(String::as_str), owner);
        look(&Pod {
            labels: &self.labels,
            annotations: &self.annotations,
            record: &record,
            owner,
            is_divided: false,
            is_ready: self.is_ready,
            created: self.created,
            node: NodeOf::There(node),
            containers: &self.containers,
        })
    }
}

/// A marker of some of the pods, each by a key of its own. Every other one asks a probe too.
fn rule(number: usize) -> anyhow::Result<Rule> {
    let probes = if number.is_multiple_of(2) { json!([]) } else { json!([required(number)]) };
    let requirements = json!({"podSelector": {"matchLabels": {"app": "nginx"}}, "nodeSelector": {"matchLabels": {"arch": "x86"}},
        "podProbes": probes});
    let preferences = json!([{"podSelector": {"matchLabels": {"pod.state": "working_online"}}}, {"podReady": true}]);
    let items = json!({"labels": {(format!("marked-{number}")): "yes"}, "annotations": {(format!("marked-by-{number}")): "marker"}});
    of(
        number,
        json!({"strategy": {"replicas": format!("{}%", 10 + 5 * number), "conflictPolicy": "Overwrite"},
        "matchRequirements": requirements, "matchPreferences": preferences, "markItems": items}),
    )
}

fn of(number: usize, spec: Value) -> anyhow::Result<Rule> {
    let metadata = json!({"name": format!("marker-{number}"), "creationTimestamp": "2026-11-15T10:00:00Z"});
    Ok(Rule::of(&serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?)?)
}

/// Probes of each kind, as people write them.
fn required(number: usize) -> Value {
    let probe = match number % 5 {
        0 => {
            json!({"httpGet": {"path": "/healthz/ready", "port": "web", "httpHeaders": [{"name": "Accept", "value": "text/plain"}]}})
        }
        1 => json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "initialDelaySeconds": 5, "periodSeconds": 5}),
        2 => json!({"tcpSocket": {"port": 8080}, "periodSeconds": 15}),
        3 => json!({"grpc": {"port": 9090, "service": "health"}}),
        _ => {
            json!({"exec": {"command": ["sh", "-c", "test $(wc -l < /var/lib/app/queue) -lt 100"]}, "timeoutSeconds": 3})
        }
    };
    json!({"containers": [{"name": "c0"}], "probe": probe})
}

fn pod(number: usize) -> OnePod {
    let states = ["working_online", "draining", "offline"];
    let labels = [("app", "nginx"), ("pod-template-hash", "6d4cf56db6"), ("pod.state", states[number % 3])];
    OnePod {
        name: Arc::from(format!("nginx-6d4cf56db6-{number:06}")),
        uid: Arc::from(uid(number)),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        annotations: BTreeMap::new(),
        is_ready: number.is_multiple_of(2),
        created: SECOND - i64::try_from(number % 1_000).unwrap_or_default(),
        containers: vec![container(number)],
    }
}

fn container(number: usize) -> Container {
    let run = Run::Runs { id: Arc::from(format!("containerd://{number:064x}")), since: SECOND };
    Container { name: Arc::from("c0"), ports: vec![(Arc::from("web"), 8080)], run }
}

fn uid(number: usize) -> String {
    format!("{number:08x}-7919-4000-8000-{number:012x}")
}

/// How large it is what a full node is to probe, each pod in five ways, and what came of it.
fn bytes(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let markers = (0..5)
        .map(|number| {
            let requirements = json!({"podProbes": [required(number)]});
            of(number, json!({"matchRequirements": requirements, "markItems": {"labels": {"k": "v"}}}))
        })
        .collect::<anyhow::Result<Vec<Rule>>>()?;
    let pods: Vec<OnePod> = (0..PODS_OF_NODE).map(pod).collect();
    let probed = pods.iter().map(|pod| {
        let seen = Probed {
            namespace: "web",
            name: &pod.name,
            uid: &pod.uid,
            ip: Some("10.244.17.103"),
            containers: &pod.containers,
        };
        (seen, markers.iter().collect::<Vec<&Rule>>())
    });
    let found = node_probes(probed, &|_, _| false);
    let count: usize = found.spec.pod_probes.iter().map(|pod| pod.probes.len()).sum();
    ensure!(count == PODS_OF_NODE * markers.len() && found.beyond.is_empty(), "{count} probes");
    let spec = serde_json::to_vec(&found.spec)?.len();
    let status = serde_json::to_vec(&json!({"podProbeStatuses": results(&found.spec)}))?.len();
    println!("a NodePodProbe of {PODS_OF_NODE} pods with {} probes each: results have {status} bytes", markers.len());
    let ratio = spec as f64 / MOST_BYTES as f64;
    check(
        missed,
        format!("what is to be probed has {spec} bytes, {ratio:.3} of the limit of {MOST_BYTES}"),
        ratio <= 1.0,
    );
    Ok(())
}

/// A result of each probe.
fn results(spec: &NodePodProbeSpec) -> Vec<PodProbeStatus> {
    let of_pod = |pod: &PodProbe| PodProbeStatus {
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        uid: pod.uid.clone(),
        probe_states: pod
            .probes
            .iter()
            .map(|probe| ContainerProbeState {
                name: probe.name.clone(),
                container_id: probe.container_id.clone(),
                state: ProbeState::Succeeded,
                last_transition_time: probe.started_at.clone(),
                message: None,
            })
            .collect(),
    };
    spec.pod_probes.iter().map(of_pod).collect()
}

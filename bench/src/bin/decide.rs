//! Deciding about a DaemonSet, in process: everything anew for 10,000 nodes, beside its limit of 10 ms; and one pod that
//! changes, beside its limit of 200 µs, for 100 to 50,000 nodes: it must not grow with them.
//!
//! One event is all that the controller does between watch and write: the pod is told to the fleet, the fleet decides, and
//! the status is made. One event of a node, at 10,000 nodes and 20 sets: from its decoded form to the decision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use dapple_api::daemonset::{DaemonSetSpec, DaemonSetStatus};
use dapple_bench::measure::cost_of;
use dapple_bench::objects::pod_template;
use dapple_control::slim::{self, Interner, read};
use dapple_plan::daemonset::cell::{PodState, Rollout};
use dapple_plan::daemonset::desired::Variants;
use dapple_plan::daemonset::fleet::Fleet;
use dapple_plan::daemonset::layout::{Proof, Revisions, Seen, Strategy};
use dapple_plan::daemonset::placement::Prospect;
use dapple_plan::daemonset::reads::{Readers, Reads};
use dapple_plan::daemonset::renderings::Renderings;
use dapple_plan::daemonset::status::{Facts, status};
use dapple_plan::fit::Node;
use dapple_plan::health::Health;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const FULL_LIMIT: Duration = Duration::from_millis(10);
const EVENT_LIMIT: Duration = Duration::from_micros(200);
/// The largest fleet may cost this much more per event than the smallest: deeper trees, colder caches.
const GROWTH_LIMIT: f64 = 5.0;
/// A node that changes for one set, and for none of so many.
const NODE_LIMIT: Duration = Duration::from_micros(100);
const UNREAD_LIMIT: Duration = Duration::from_micros(2);
const SETS: usize = 20;
const NODE_EVENTS: usize = 10_000;
const SIZES: [usize; 6] = [100, 500, 1_000, 5_000, 10_000, 50_000];
const EVENTS: usize = 20_000;
const ROUNDS: usize = 9;
const NOW: i64 = 1_000_000;

struct Made {
    names: Vec<Arc<str>>,
    labels: Vec<BTreeMap<String, String>>,
    spec: DaemonSetSpec,
    pods: Vec<PodState>,
}

fn main() -> anyhow::Result<()> {
    println!("{:>7} {:>10} {:>8} {:>10} {:>8}  per event", "nodes", "full ms", "/ limit", "event µs", "/ limit");
    let (mut is_missed, mut first) = (false, None);
    for size in SIZES {
        let made = make(size)?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let ((_, decision), cost) = cost_of(|| {
                let (mut fleet, _, _) = fleet(&made);
                let decision = fleet.decide(NOW);
                (fleet, decision)
            })?;
            times.push(cost.cpu);
            ensure!(!decision.actions.is_empty(), "an update is to be done");
        }
        times.sort();
        let (full, event) = (times[ROUNDS / 2], events(&made)?);
        let micros = event.as_secs_f64() * 1e6;
        let growth = micros / *first.get_or_insert(micros);
        println!(
            "{size:>7} {:>10.2} {:>8.3} {micros:>10.2} {:>8.4}  {}",
            full.as_secs_f64() * 1e3,
            full.as_secs_f64() / FULL_LIMIT.as_secs_f64(),
            event.as_secs_f64() / EVENT_LIMIT.as_secs_f64(),
            "#".repeat((growth * 10.0) as usize),
        );
        is_missed |= size == 10_000 && full > FULL_LIMIT;
        if size == 10_000 {
            let [read, unread] = node_events(&made)?;
            for (what, took, limit) in [("read", read, NODE_LIMIT), ("unread", unread, UNREAD_LIMIT)] {
                let (micros, ratio) = (took.as_secs_f64() * 1e6, took.as_secs_f64() / limit.as_secs_f64());
                println!("        a label of a node changes, {what}: {micros:.2} µs, {ratio:.4} of the limit");
                is_missed |= took > limit;
            }
        }
        is_missed |= event > EVENT_LIMIT || growth > GROWTH_LIMIT;
    }
    ensure!(!is_missed, "over a limit");
    Ok(())
}

fn make(size: usize) -> anyhow::Result<Made> {
    let patch = |disk: &str| {
        json!({"selector": {"matchLabels": {"disk": disk}},
            "patch": {"spec": {"containers": [{"name": "c0", "env": [{"name": "DISK", "value": disk}]}]}}})
    };
    let mut template = pod_template(3);
    template["metadata"]["labels"]["app"] = json!("agent");
    let spec = serde_json::from_value(json!({
        "selector": {"matchLabels": {"app": "agent"}}, "template": template,
        "patches": [patch("large"), patch("nvme"), patch("tape")],
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
    }))?;
    let disks = ["small", "large", "nvme", "tape"];
    let labels = |number: usize| {
        let pairs = [
            ("disk", disks[number % 4].to_owned()),
            ("zone", format!("z{}", number % 7)),
            ("host", format!("n{number}")),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    };
    Ok(Made {
        names: (0..size).map(|number| Arc::from(format!("node-{number:06}"))).collect(),
        labels: (0..size).map(labels).collect(),
        spec,
        pods: (0..size).map(|number| pod(&format!("agent-{number:06}"), "old")).collect(),
    })
}

fn pod(name: &str, hash: &str) -> PodState {
    PodState { name: Arc::from(name), hash: Arc::from(hash), ready_since: Some(0), ..PodState::default() }
}

/// Everything anew: variants rendered, nodes matched and put in order, pods told.
fn fleet(made: &Made) -> (Fleet, Variants, Strategy) {
    let spec = &made.spec;
    let template = spec.template.0.clone();
    let mut variants = Variants::new("DaemonSet default/agent", (template, &spec.patches), spec, ("new", 2));
    let strategy =
        Strategy::of(spec, None, Rollout { newest: 2, current: 1, complete: 1, ..Rollout::default() }, false);
    let nodes = made.names.iter().zip(&made.labels);
    let prospects = nodes.map(|(name, labels)| prospect(&strategy, &mut variants, name, labels)).collect();
    let placement = strategy.placement();
    let mut fleet =
        Fleet::new(strategy.rules.clone(), placement, Renderings::default()).with_limits(strategy.limits.clone());
    fleet.put_all(prospects);
    for (node, pod) in made.names.iter().zip(&made.pods) {
        fleet.observe(&pod.name, Some((node, pod.clone())));
    }
    (fleet, variants, strategy)
}

/// What a node may get.
fn prospect(
    strategy: &Strategy,
    variants: &mut Variants,
    name: &Arc<str>,
    labels: &BTreeMap<String, String>,
) -> Prospect {
    let seen = Seen { node: Node { name, labels, taints: &[] }, name, health: Health::Ready };
    strategy.prospect(&mut Revisions { newest: variants, current: None }, seen, |_| Proof::Taken)
}

/// A node as the manager keeps it, decoded.
fn decoded(name: &str, labels: &BTreeMap<String, String>, strings: &mut Interner) -> anyhow::Result<slim::Node> {
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "labels": labels});
    read(&json!({"metadata": metadata, "status": {"conditions": ready}}), strings).map_err(anyhow::Error::msg)
}

/// The time from a node's decoded event to what is decided: what has changed, whom of twenty sets it concerns, what the node
/// gets now, its place, and the decision. Of a label that one set reads, and of one that none does.
fn node_events(made: &Made) -> anyhow::Result<[Duration; 2]> {
    let (mut fleet, mut variants, strategy) = fleet(made);
    fleet.decide(NOW);
    let mut readers = Readers::default();
    readers.put(0, Some(Reads::of(&strategy, std::iter::once(&variants))));
    let mut others = made.spec.clone();
    others.patches.clear();
    for set in 1..SETS {
        let template = (others.template.0.clone(), &*others.patches);
        let mut variants = Variants::new("DaemonSet default/other", template, &others, ("new", 2));
        prospect(&strategy, &mut variants, &made.names[0], &made.labels[0]);
        readers.put(set, Some(Reads::of(&strategy, std::iter::once(&variants))));
    }
    let mut strings = Interner::default();
    let disks = ["small", "large", "nvme", "tape"];
    let mut told =
        |key: &str, value: &dyn Fn(usize) -> String| -> anyhow::Result<Vec<(usize, slim::Node, slim::Node)>> {
            let pair = |number: usize| {
                let place = number * 7919 % made.names.len();
                let mut labels = made.labels[place].clone();
                let old = decoded(&made.names[place], &labels, &mut strings)?;
                labels.insert(key.to_owned(), value(number));
                Ok((place, old, decoded(&made.names[place], &labels, &mut strings)?))
            };
            (0..NODE_EVENTS).map(pair).collect()
        };
    let read = told("disk", &|number| disks[(number + 1) % 4].to_owned())?;
    let unread = told("example.com/owner", &|number| format!("team-{number}"))?;
    let mut concerned = 0;
    let mut spend = |events: &[(usize, slim::Node, slim::Node)]| -> anyhow::Result<Duration> {
        let (_, cost) = cost_of(|| {
            for (place, old, new) in events {
                for _ in readers.concerned(&slim::Node::change(Some(old), Some(new))) {
                    concerned += 1;
                    let taints = new.fit_taints();
                    let node = Node { name: new.name(), labels: &new.labels, taints: &taints };
                    let seen = Seen { node, name: &made.names[*place], health: new.health };
                    let mut revisions = Revisions { newest: &mut variants, current: None };
                    fleet.put(strategy.prospect(&mut revisions, seen, |_| Proof::Taken));
                    fleet.decide(NOW);
                }
            }
        })?;
        Ok(cost.cpu / u32::try_from(events.len())?)
    };
    let times = [spend(&read)?, spend(&unread)?];
    ensure!(concerned > NODE_EVENTS / 2 && concerned <= NODE_EVENTS, "one set is concerned by a label that it reads");
    Ok(times)
}

/// The time of one event.
fn events(made: &Made) -> anyhow::Result<Duration> {
    let (mut fleet, variants, _) = fleet(made);
    // The middle of a rollout: the budget is used up, and what was decided is on its way.
    loop {
        let decision = fleet.decide(NOW);
        decision.actions.iter().for_each(|action| fleet.wrote(&action.node));
        if decision.actions.is_empty() {
            break;
        }
    }
    let mut last = DaemonSetStatus::default();
    let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let (result, cost) = cost_of(|| -> anyhow::Result<()> {
        for number in 0..EVENTS {
            let place = number * 7919 % made.pods.len();
            let mut pod = made.pods[place].clone();
            pod.ready_since = (number % 2 == 0).then_some(0);
            fleet.observe(&pod.name.clone(), Some((&made.names[place], pod)));
            let decision = fleet.decide(NOW);
            let facts = Facts {
                fleet: &fleet,
                variants: variants.all(),
                update: "agent-new",
                update_hash: "new",
                current: "agent-old",
                is_blocked: false,
                is_paused: false,
                is_suspended: false,
                problems: &[],
                generation: Some(1),
            };
            last = status(facts, &last, &now);
            decision.actions.iter().for_each(|action| fleet.wrote(&action.node));
        }
        Ok(())
    })?;
    result?;
    let took = cost.cpu / u32::try_from(EVENTS)?;
    ensure!(last.desired_number_scheduled == i32::try_from(made.pods.len())?, "every node counts");
    last.conditions.first().context("a status has conditions")?;
    Ok(took)
}

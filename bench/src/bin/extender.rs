//! Answering a scheduler, in process, from the bytes of its question to those of the answer: 5,000 nodes of which most are of
//! groups of the pod's policy, beside the limit of 200 µs for each verb; and 500 nodes for a pod of no policy, beside 50 µs.
//!
//! What is measured is all that a replica does between socket and socket but finding the pod's application, which is a look
//! into an index.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_api::group::{PropagationPolicySpec, StaticNodeGroupWeight};
use dapple_bench::goals::check;
use dapple_control::group::extender::Answer;
use dapple_extend::answer::{Judge, filter, prioritize};
use dapple_plan::group::Rule;
use dapple_plan::group::extender::{Judged, Passes, PodName, Roster};
use dapple_plan::group::placing::Placing;
use serde_json::{Value, json};

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NODES: usize = 5_000;
const GROUPS: usize = 10;
const PODS: usize = 1_000;
const LIMIT: Duration = Duration::from_micros(200);
const FEW_NODES: usize = 500;
const UNTOUCHED_LIMIT: Duration = Duration::from_micros(50);
const ROUNDS: usize = 400;
/// What a scheduler waits between two questions about it is of no concern here.
const NOW: Duration = Duration::from_secs(1);

/// A policy of ten groups, and a pod of a thousand, none of which has a place yet.
struct World {
    roster: Roster,
    placing: Placing,
    passes: Passes<u8>,
}

impl World {
    fn new() -> anyhow::Result<Self> {
        let mut roster = Roster::default();
        let labels = |number: usize| BTreeMap::from([("site".to_owned(), format!("g{}", number % (GROUPS + 1)))]);
        let nodes: Vec<(String, BTreeMap<String, String>)> =
            (0..NODES).map(|number| (name(number), labels(number))).collect();
        nodes.iter().for_each(|(node, labels)| roster.node_changed(node, labels));
        let groups: Vec<String> = (0..GROUPS).map(|number| format!("g{number}")).collect();
        for group in &groups {
            let match_labels = BTreeMap::from([("site".to_owned(), group.clone())]);
            roster.group_changed(group, Rule { match_labels, ..Rule::default() }, |visit| {
                nodes.iter().for_each(|(node, labels)| visit(node, labels));
            });
        }
        let weight = |group: &String| StaticNodeGroupWeight { node_group_names: vec![group.clone()], weight: 3 };
        let static_weight_list = groups.iter().map(weight).collect();
        let policy = PropagationPolicySpec { static_weight_list, ..PropagationPolicySpec::default() };
        let mut placing = Placing::new("spread", &policy).context("it says how to divide")?;
        placing.expect((0..PODS).map(|number| Arc::from(format!("web-{number}"))));
        Ok(Self { roster, placing, passes: Passes::default() })
    }

    fn ask(&mut self, judge: Judge<'_>) -> Answer {
        let pod = PodName { uid: "u", name: "web-0" };
        let shares = self.passes.shares(&1, pod, &mut self.placing, NOW);
        if let Some(group) = judge(&Judged::new(&self.roster, "spread", shares)) {
            self.passes.note(&1, pod, group, NOW);
        }
        Answer::Judged
    }
}

fn name(number: usize) -> String {
    format!("ip-10-0-{}-{}.eu-west-1.compute", number / 256, number % 256)
}

/// A question about a pod of three containers and so many nodes.
fn question(nodes: usize) -> Vec<u8> {
    let mut pod = dapple_bench::objects::pod_template(3);
    pod["metadata"] = json!({"name": "web-0", "namespace": "default", "uid": "u", "labels": {"app": "web"}});
    let names: Vec<String> = (0..nodes).map(name).collect();
    // In the order in which Go writes them.
    format!(r#"{{"Pod":{pod},"Nodes":null,"NodeNames":{}}}"#, json!(names)).into_bytes()
}

/// The median time of an answer, and one of them.
fn measure(mut answer: impl FnMut() -> String) -> anyhow::Result<(Duration, Value)> {
    let mut times = Vec::with_capacity(ROUNDS);
    let mut last = String::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        last = answer();
        times.push(begun.elapsed());
    }
    times.sort();
    Ok((times[ROUNDS / 2], serde_json::from_str(&last)?))
}

fn main() -> anyhow::Result<()> {
    let (mut world, body, few) = (World::new()?, question(NODES), question(FEW_NODES));
    let mut missed = Vec::new();
    let mut tell = |what: &str, took: Duration, limit: Duration| {
        let ratio = took.as_secs_f64() / limit.as_secs_f64();
        let line = format!("{what}: {:.1} µs, {ratio:.3} of the limit", took.as_secs_f64() * 1e6);
        check(&mut missed, line, took <= limit);
    };
    println!("{NODES} names in {GROUPS} groups, {PODS} pods; medians of {ROUNDS}");
    let (took, answer) = measure(|| filter(&body, |_, judge| world.ask(judge)).0)?;
    let passed = answer["NodeNames"].as_array().map_or(0, Vec::len);
    ensure!(passed == (0..NODES).filter(|number| number % (GROUPS + 1) < GROUPS).count(), "{passed} nodes passed");
    tell("filter", took, LIMIT);
    let (took, answer) = measure(|| prioritize(&body, |_, judge| world.ask(judge)).0)?;
    ensure!(answer.as_array().is_some_and(|scores| scores.len() == NODES), "every node is scored");
    tell("prioritize", took, LIMIT);
    println!("{FEW_NODES} names, a pod of no policy");
    let (took, answer) = measure(|| filter(&few, |_, _| Answer::Untouched).0)?;
    ensure!(answer["NodeNames"].as_array().is_some_and(|names| names.len() == FEW_NODES), "all pass");
    tell("filter", took, UNTOUCHED_LIMIT);
    let (took, answer) = measure(|| prioritize(&few, |_, _| Answer::Untouched).0)?;
    ensure!(answer == json!([]), "nothing is said");
    tell("prioritize", took, UNTOUCHED_LIMIT);
    ensure!(missed.is_empty(), "over a limit: {}", missed.join("; "));
    Ok(())
}

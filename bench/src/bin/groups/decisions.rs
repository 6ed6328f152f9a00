//! What one pod that comes and waits costs, in process: it is taken in, decided about and noted, beside 100 to 50,000 others. What the
//! controller does around that is in `gate`, as CPU time of the whole manager.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_api::group::{PropagationPolicySpec, StaticNodeGroupWeight};
use dapple_bench::goals::check;
use dapple_plan::group::placing::{Decision, GATE, Known, Placing, PodFacts};

const LIMIT: Duration = Duration::from_micros(100);
/// As far as the cost may grow from the fewest pods to the most.
const FLAT: f64 = 2.0;
const SIZES: [usize; 4] = [100, 1_000, 10_000, 50_000];
const GROUPS: usize = 10;
const ROUNDS: usize = 400;

type Map = BTreeMap<String, String>;

struct Pods {
    placing: Placing,
    nothing: Map,
    nowhere: BTreeSet<Arc<str>>,
}

impl Pods {
    fn new() -> anyhow::Result<Self> {
        let weight = |number: usize| StaticNodeGroupWeight {
            node_group_names: vec![format!("g{number}")],
            weight: i64::try_from(number).unwrap_or(0) + 1,
        };
        let static_weight_list = (0..GROUPS).map(weight).collect();
        let policy = PropagationPolicySpec { static_weight_list, ..PropagationPolicySpec::default() };
        let placing = Placing::new("spread", &policy).context("it says how to divide")?;
        Ok(Self { placing, nothing: Map::new(), nowhere: BTreeSet::new() })
    }

    /// Takes a pod in, as a watch tells of it.
    fn put(&mut self, pod: &Arc<str>, group: Option<&Map>) {
        let facts = PodFacts {
            is_gated: group.is_none(),
            is_live: true,
            labels: group.unwrap_or(&self.nothing),
            annotations: &self.nothing,
            node_selector: &self.nothing,
            groups_of_node: &self.nowhere,
            ordinal: None,
            created: 0,
        };
        self.placing.put(pod, &facts);
    }

    /// Decides about those that wait, and notes it. Returns the group of the last.
    fn decide(&mut self) -> Option<Arc<str>> {
        let (unrendered, allowed) = (BTreeMap::new(), BTreeMap::new());
        let known = Known {
            selector_of: &|group| Some(BTreeMap::from([("site".to_owned(), group.to_owned())])),
            suits: &|_| Vec::new(),
            unrendered: &unrendered,
            allowed: &allowed,
            has_room: &|_, _, _| true,
            are_kept: false,
        };
        let mut last = None;
        for (pod, decision) in self.placing.decide(&known) {
            if let Decision::Place(placement) = decision {
                self.placing.note_placed(&pod, &placement);
                last = Some(placement.group);
            }
        }
        last
    }
}

/// The median cost of a pod that comes, is placed, is seen to be placed, and goes.
fn measure(size: usize) -> anyhow::Result<Duration> {
    let mut pods = Pods::new()?;
    let names: Vec<Arc<str>> = (0..size).map(|number| Arc::from(format!("web-6f7d9c-{number:05}"))).collect();
    pods.placing.expect(names.iter().cloned());
    names.iter().for_each(|name| pods.put(name, None));
    pods.decide().context("all are placed")?;
    let mut times = Vec::with_capacity(ROUNDS);
    for number in 0..ROUNDS {
        let pod: Arc<str> = Arc::from(format!("web-6f7d9c-new-{number}"));
        let begun = Instant::now();
        pods.put(&pod, None);
        let group = pods.decide();
        let took = begun.elapsed();
        let labels = Map::from([(GATE.to_owned(), group.context("it is placed")?.to_string())]);
        let begun = Instant::now();
        pods.put(&pod, Some(&labels));
        // Two events: it comes, and it is seen to be placed.
        times.push((took + begun.elapsed()) / 2);
        pods.placing.remove(&pod);
    }
    times.sort();
    Ok(times[ROUNDS / 2])
}

pub(crate) fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    println!("a pod event, in process: medians of {ROUNDS}, {GROUPS} groups");
    let mut first = None;
    for size in SIZES {
        let took = measure(size)?;
        let (ratio, micros) = (took.as_secs_f64() / LIMIT.as_secs_f64(), took.as_secs_f64() * 1e6);
        check(missed, format!("{size} pods: {micros:.2} µs, {ratio:.3} of the limit of {LIMIT:?}"), took <= LIMIT);
        first.get_or_insert(took);
    }
    let first = first.context("there are sizes")?;
    let most = measure(SIZES[SIZES.len() - 1])?;
    ensure!(!first.is_zero(), "it takes time");
    let growth = most.as_secs_f64() / first.as_secs_f64();
    check(missed, format!("50,000 pods / 100 pods: {growth:.2} (goal at most {FLAT})"), growth <= FLAT);
    Ok(())
}

//! A scheduler asks, pods come and go, and what is seen of them is behind.

use dapple_api::group::{NodeGroupSpec, NumRange, PropagationPolicySpec, StaticNodeGroupWeight};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::group::placing::{GATE, PodFacts};

type Map = BTreeMap<String, String>;

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn weights(listed: &[(&str, i64)]) -> Placing {
    let item = |(group, weight): &(&str, i64)| StaticNodeGroupWeight {
        node_group_names: vec![(*group).to_owned()],
        weight: *weight,
    };
    let static_weight_list = listed.iter().map(item).collect();
    Placing::new("spread", &PropagationPolicySpec { static_weight_list, ..PropagationPolicySpec::default() }).unwrap()
}

/// Nodes, each in these groups.
fn roster(nodes: &[(&str, &[&str])]) -> Roster {
    let mut roster = Roster::default();
    nodes.iter().for_each(|(node, _)| roster.node_changed(node, &map(&[])));
    let groups: BTreeSet<&str> = nodes.iter().flat_map(|(_, groups)| groups.iter().copied()).collect();
    for group in groups {
        let named = nodes.iter().filter(|(_, groups)| groups.contains(&group)).map(|(node, _)| (*node).to_owned());
        let spec = NodeGroupSpec { nodes: named.collect(), ..NodeGroupSpec::default() };
        roster.group_changed(group, Rule::from(&spec), |visit| {
            nodes.iter().for_each(|(node, _)| visit(node, &map(&[])));
        });
    }
    roster
}

const NODES: [(&str, &[&str]); 5] =
    [("b1", &["beijing"]), ("b2", &["beijing"]), ("h1", &["hangzhou"]), ("s1", &["beijing", "hangzhou"]), ("o1", &[])];

fn names() -> impl Iterator<Item = &'static str> {
    NODES.iter().map(|(node, _)| *node)
}

#[test]
fn nodes_whose_names_have_the_same_number_are_told_apart() {
    let mut known = roster(&NODES);
    let kinds: Vec<Option<usize>> = names().map(|node| known.kind_of(node)).collect();
    assert_eq!(known.kind_of("nobody"), None);
    let numbers: Vec<u64> = known.entries.keys().copied().collect();
    // As if another node had been entered under each.
    numbers.into_iter().for_each(|number| known.enter(number, 0, false));
    assert_eq!(names().map(|node| known.kind_of(node)).collect::<Vec<_>>(), kinds);
    known.node_removed("b1");
    assert_eq!((known.kind_of("b1"), known.kind_of("b2")), (None, kinds[1]));
}

/// Tells of a pod: where it is, if it is anywhere.
fn tell(placing: &mut Placing, pod: &str, node_groups: &[&str], labels: &Map) {
    let groups_of_node = node_groups.iter().map(|group| Arc::from(*group)).collect();
    let facts = PodFacts {
        is_gated: false,
        is_live: true,
        labels,
        annotations: &map(&[]),
        node_selector: &map(&[]),
        groups_of_node: &groups_of_node,
        ordinal: None,
        created: 0,
    };
    placing.put(&Arc::from(pod), &facts);
}

fn share(group: &str, current: usize, desired: usize) -> Share {
    Share { group: Arc::from(group), current, desired }
}

const POD: PodName<'static> = PodName { uid: "u", name: "p" };
const AT: Duration = Duration::from_secs(1_000);

#[test]
fn only_the_labels_of_propagation_policies_count() {
    let (spread, images) = (Pair::Propagation, Pair::Override);
    let refused = |pairs: &[(&str, &str)]| match Question::of(&map(pairs)) {
        Question::Refused(reason) => reason.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(refused(&[(spread.required(), "a")]), "PropagationPolicy \"a\" is asked for and not confirmed");
    assert_eq!(
        refused(&[(spread.required(), "a"), (spread.binding(), "b")]),
        "PropagationPolicy \"a\" is asked for and \"b\" confirmed"
    );
    assert_eq!(Question::of(&map(&[(spread.required(), "a"), (spread.binding(), "a")])), Question::Divide("a"));
    for pairs in [
        &[][..],
        &[(spread.binding(), "a")],
        &[(images.required(), "o")],
        &[(images.required(), "o"), (images.binding(), "p")],
    ] {
        assert_eq!(Question::of(&map(pairs)), Question::None, "{pairs:?}");
    }
}

#[test]
fn nodes_pass_whose_group_has_not_enough_pods() {
    let roster = roster(&NODES);
    let judged = |shares: &[Share]| Judged::new(&roster, "spread", shares.to_vec());
    let filter = |shares: &[Share]| {
        let filtered = judged(shares).filter(names().chain(["unknown"]));
        let told: Vec<String> = filtered
            .nodes
            .iter()
            .map(|why| why.map_or_else(String::new, |number| filtered.reasons[number].to_string()))
            .collect();
        (told, filtered.group.as_deref().map(str::to_owned))
    };
    let outside = "in no group of PropagationPolicy \"spread\"";
    let (told, group) = filter(&[share("beijing", 0, 2), share("hangzhou", 0, 3)]);
    assert_eq!(told, ["", "", "", "", outside, outside], "both groups lack pods, and others are not in the policy");
    assert_eq!(group.as_deref(), Some("hangzhou"));

    let full = "group hangzhou has its 3 of PropagationPolicy \"spread\"";
    let (told, group) = filter(&[share("beijing", 1, 2), share("hangzhou", 3, 3)]);
    assert_eq!(told, ["", "", full, "", outside, outside], "a node of both counts for the one that lacks a pod");
    assert_eq!(group.as_deref(), Some("beijing"));

    let (told, group) = filter(&[share("beijing", 4, 2), share("hangzhou", 3, 3)]);
    assert!(told.iter().all(|why| !why.is_empty()) && group.is_none(), "{told:?}");
    let (told, _) = filter(&[share("elsewhere", 0, 1)]);
    assert_eq!(told, [outside; 6], "the policy lists a group that no node is in");
}

#[test]
fn one_score_per_group_and_one_group_has_the_best() {
    let roster = roster(&NODES);
    let scores = |shares: &[Share]| Judged::new(&roster, "spread", shares.to_vec()).scores(names());
    let (given, group) = scores(&[share("beijing", 0, 2), share("hangzhou", 0, 4)]);
    assert_eq!(given, [5, 5, 10, 10, 0], "the shared node counts for the group with the greater need");
    assert_eq!(group.as_deref(), Some("hangzhou"));
    let (given, group) = scores(&[share("beijing", 1, 3), share("hangzhou", 1, 3)]);
    assert_eq!((given, group.as_deref()), (vec![10, 10, 9, 10, 0], Some("beijing")), "of equal ones the first listed");
    let (given, group) = scores(&[share("beijing", 3, 3), share("hangzhou", 5, 3)]);
    assert_eq!((given, group), (vec![0; 5], None));
    let (given, _) = scores(&[share("beijing", 0, 1), share("hangzhou", 0, usize::MAX)]);
    assert_eq!(given, [0, 0, 10, 10, 0]);
    // Only nodes that are asked about count: a group without room is not among them.
    let judged = Judged::new(&roster, "spread", vec![share("beijing", 0, 2), share("hangzhou", 0, 4)]);
    assert_eq!(judged.scores(["b1", "o1"].into_iter()), (vec![10, 0], Some(Arc::from("beijing"))));
}

#[test]
fn nodes_are_found_by_the_groups_that_they_are_in_now() {
    let mut roster = roster(&NODES);
    let passes = |roster: &Roster, node: &str| {
        let judged = Judged::new(roster, "spread", vec![share("hangzhou", 0, 1), share("west", 0, 1)]);
        judged.filter(std::iter::once(node)).nodes[0].is_none()
    };
    assert!(passes(&roster, "h1") && !passes(&roster, "b1") && !passes(&roster, "new"));
    let west = NodeGroupSpec { match_labels: map(&[("zone", "west")]), ..NodeGroupSpec::default() };
    roster.group_changed("west", Rule::from(&west), |visit| visit("b1", &map(&[("zone", "west")])));
    assert!(passes(&roster, "b1") && !passes(&roster, "b2"));
    roster.node_changed("new", &map(&[("zone", "west")]));
    roster.node_changed("b1", &map(&[]));
    assert!(passes(&roster, "new") && !passes(&roster, "b1"));
    roster.node_removed("new");
    assert!(!passes(&roster, "new"));
    roster.group_removed("hangzhou");
    assert!(!passes(&roster, "h1"));
}

#[test]
fn pods_that_were_let_pass_count_until_they_are_seen() {
    let (mut placing, mut passes) = (weights(&[("beijing", 2), ("hangzhou", 3)]), Passes::default());
    for pod in ["p1", "p2", "p3", "p4", "p5"] {
        tell(&mut placing, pod, &[], &map(&[]));
    }
    let at = |name: &'static str| PodName { uid: name, name };
    let shares =
        |passes: &Passes<u8>, placing: &mut Placing, name: &'static str, now: Duration| -> Vec<(usize, usize)> {
            let shares = passes.shares(&1, at(name), placing, now);
            shares.into_iter().map(|share| (share.current, share.desired)).collect()
        };
    assert_eq!(shares(&passes, &mut placing, "p1", AT), [(0, 2), (0, 3)]);
    passes.note(&1, at("p1"), Arc::from("hangzhou"), AT);
    passes.note(&2, PodName { uid: "of another", name: "p2" }, Arc::from("hangzhou"), AT);
    assert_eq!(shares(&passes, &mut placing, "p2", AT), [(0, 2), (1, 3)]);
    assert_eq!(
        shares(&passes, &mut placing, "p1", AT),
        [(0, 2), (0, 3)],
        "asked about again, it is not in its own way"
    );
    // One that was never seen lives too.
    assert_eq!(shares(&passes, &mut placing, "p6", AT), [(0, 2), (1, 4)]);
    // Seen, it counts where it is.
    tell(&mut placing, "p1", &["beijing"], &map(&[]));
    assert_eq!(shares(&passes, &mut placing, "p2", AT), [(1, 2), (0, 3)]);
    // Scored among other nodes than were let pass, it goes elsewhere; one that was not let pass goes nowhere.
    passes.note(&1, at("p3"), Arc::from("hangzhou"), AT);
    passes.redirect("p3", Arc::from("beijing"));
    passes.redirect("p4", Arc::from("beijing"));
    assert_eq!(shares(&passes, &mut placing, "p2", AT), [(2, 2), (0, 3)]);
    passes.forget("p3");
    // Another of the name is another pod.
    passes.note(&1, PodName { uid: "later", name: "p7" }, Arc::from("hangzhou"), AT);
    assert_eq!(shares(&passes, &mut placing, "p2", AT), [(1, 2), (1, 4)]);
    passes.forget("later");
    assert_eq!(shares(&passes, &mut placing, "p2", AT), [(1, 2), (0, 3)]);
}

#[test]
fn what_was_let_pass_is_forgotten_after_a_while() {
    let (mut placing, mut passes) = (weights(&[("beijing", 1)]), Passes::default());
    passes.note(&1, POD, Arc::from("beijing"), AT);
    let other = PodName { uid: "v", name: "q" };
    let mut current = |passes: &Passes<u8>, now| passes.shares(&1, other, &mut placing, now)[0].current;
    assert_eq!(current(&passes, AT + REMEMBERED - Duration::from_millis(1)), 1);
    assert_eq!(current(&passes, AT + REMEMBERED), 0);
    // Let pass again, it counts anew, and what ended is not kept.
    passes.note(&1, POD, Arc::from("beijing"), AT + REMEMBERED / 2);
    passes.note(&1, other, Arc::from("beijing"), AT + REMEMBERED);
    assert_eq!((passes.owners.len(), passes.by_owner[&1].len()), (2, 2));
    passes.note(&1, other, Arc::from("beijing"), AT + REMEMBERED * 2);
    assert_eq!((passes.owners.len(), passes.ends.len()), (1, 1));
}

#[test]
fn a_placed_pod_counts_for_the_group_that_it_says() {
    let mut placing = weights(&[("beijing", 1), ("hangzhou", 1)]);
    tell(&mut placing, "p1", &["beijing"], &map(&[(GATE, "hangzhou")]));
    let shares = Passes::<u8>::default().shares(&1, POD, &mut placing, AT);
    assert_eq!(shares, [share("beijing", 0, 1), share("hangzhou", 1, 1)]);
}

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    /// A pod is made.
    Create,
    /// The scheduler asks about a pod that is nowhere, and puts it somewhere if the flag says so.
    Schedule(usize, bool),
    /// A pod is deleted.
    Delete(usize),
    /// So much of what happened is seen.
    See(usize),
    /// Seconds go by.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Create),
        6 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(pod, binds)| Step::Schedule(pod, binds)),
        1 => any::<usize>().prop_map(Step::Delete),
        2 => (1..4_usize).prop_map(Step::See),
        1 => (1..20_u64).prop_map(Step::Wait),
    ];
    vec(step, 1..120)
}

fn policies() -> impl Strategy<Value = PropagationPolicySpec> {
    let names = |number: usize| vec![format!("g{number}")];
    let weighted = vec(1..5_i64, 1..4).prop_map(move |weights| PropagationPolicySpec {
        static_weight_list: (weights.into_iter().enumerate())
            .map(|(number, weight)| StaticNodeGroupWeight { node_group_names: names(number), weight })
            .collect(),
        ..PropagationPolicySpec::default()
    });
    let ranged = vec((0..3, 0..4), 1..4).prop_map(move |ranges| PropagationPolicySpec {
        num_range: (ranges.into_iter().enumerate())
            .map(|(number, (min, more))| NumRange {
                node_group_names: names(number),
                min: Some(min),
                max: Some(min + more),
            })
            .collect(),
        ..PropagationPolicySpec::default()
    });
    prop_oneof![weighted, ranged]
}

/// A cluster, a scheduler that goes by the score, and a view that is behind.
struct World {
    roster: Roster,
    passes: Passes<u8>,
    placing: Placing,
    /// Every pod that lives, with its group once it is on a node of it.
    pods: BTreeMap<String, Option<String>>,
    /// What happened and is not seen yet: a pod, its group if it is on a node, and whether it lives.
    unseen: VecDeque<(Duration, String, Option<String>, bool)>,
    made: usize,
    now: Duration,
}

impl World {
    fn new(policy: &PropagationPolicySpec) -> Self {
        Self {
            roster: roster(&[("n0", &["g0"]), ("n1", &["g1"]), ("n2", &["g2"]), ("outside", &[])]),
            passes: Passes::default(),
            placing: Placing::new("spread", policy).unwrap(),
            pods: BTreeMap::new(),
            unseen: VecDeque::new(),
            made: 0,
            now: AT,
        }
    }

    fn happened(&mut self, pod: &str, is_live: bool) {
        let group = self.pods.get(pod).cloned().flatten();
        self.unseen.push_back((self.now, pod.to_owned(), group, is_live));
    }

    fn see(&mut self) {
        let Some((_, pod, group, is_live)) = self.unseen.pop_front() else { return };
        if is_live {
            tell(&mut self.placing, &pod, group.as_deref().as_slice(), &map(&[]));
        } else {
            self.placing.remove(&Arc::from(&*pod));
        }
        if group.is_some() || !is_live {
            self.passes.forget(&pod);
        }
    }

    /// Asks about a pod as a scheduler does, and puts it where the score is best. Whether any node passed.
    fn schedule(&mut self, pod: &str, binds: bool) -> Result<bool, TestCaseError> {
        let name = PodName { uid: pod, name: pod };
        let shares = self.passes.shares(&1, name, &mut self.placing, self.now);
        let judged = Judged::new(&self.roster, "spread", shares.clone());
        let nodes = ["n0", "n1", "n2", "outside"];
        let filtered = judged.filter(nodes.into_iter());
        let passing: Vec<&str> =
            nodes.into_iter().zip(&filtered.nodes).filter(|(_, why)| why.is_none()).map(|(node, _)| node).collect();
        for node in &passing {
            let share = shares.iter().find(|share| share.group[1..] == node[1..]).unwrap();
            prop_assert!(share.current < share.desired, "{node} passes, and its group has its share: {share:?}");
        }
        let Some(group) = filtered.group else {
            prop_assert!(passing.is_empty());
            self.passes.forget(pod);
            return Ok(false);
        };
        let (scores, best) = judged.scores(passing.iter().copied());
        prop_assert_eq!(best.as_ref(), Some(&group));
        let chosen = (0..passing.len()).max_by_key(|number| scores[*number]).map(|number| passing[number]).unwrap();
        prop_assert_eq!(&chosen[1..], &group[1..]);
        let desired = shares.iter().find(|share| share.group == group).map_or(0, |share| share.desired);
        self.passes.note(&1, name, group.clone(), self.now);
        if binds {
            self.pods.insert(pod.to_owned(), Some(group.to_string()));
            self.happened(pod, true);
            let there = self.pods.values().filter(|known| known.as_deref() == Some(&*group)).count();
            prop_assert!(there <= desired, "{there} pods in {group}, whose share is {desired}");
        }
        Ok(true)
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        let pick = |pods: Vec<String>, number: usize| pods.get(number % pods.len().max(1)).cloned();
        match step {
            Step::Create => {
                self.made += 1;
                let pod = format!("p{}", self.made);
                self.pods.insert(pod.clone(), None);
                self.happened(&pod, true);
            }
            Step::Schedule(number, binds) => {
                let waiting = self.pods.iter().filter(|(_, group)| group.is_none()).map(|(pod, _)| pod.clone());
                if let Some(pod) = pick(waiting.collect(), number) {
                    self.schedule(&pod, binds)?;
                }
            }
            Step::Delete(number) => {
                if let Some(pod) = pick(self.pods.keys().cloned().collect(), number) {
                    self.pods.remove(&pod);
                    self.happened(&pod, false);
                }
            }
            Step::See(count) => (0..count).for_each(|_| self.see()),
            Step::Wait(seconds) => {
                self.now += Duration::from_secs(seconds);
                while self.unseen.front().is_some_and(|(at, ..)| *at + REMEMBERED <= self.now) {
                    self.see();
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_group_gets_more_pods_than_its_share(policy in policies(), steps in steps()) {
        let mut world = World::new(&policy);
        for step in steps {
            world.take(step)?;
        }
    }

    #[test]
    fn every_pod_of_a_burst_has_a_place_and_they_come_out_as_divided(
        weights in vec(1..5_i64, 1..4),
        count in 1..30_usize,
        seen in vec(0..3_usize, 30),
    ) {
        let names: Vec<String> = (0..weights.len()).map(|number| format!("g{number}")).collect();
        let list = names.iter().zip(&weights).map(|(name, weight)| StaticNodeGroupWeight {
            node_group_names: vec![name.clone()], weight: *weight,
        });
        let policy = PropagationPolicySpec { static_weight_list: list.collect(), ..PropagationPolicySpec::default() };
        let mut world = World::new(&policy);
        (0..count).try_for_each(|_| world.take(Step::Create))?;
        (0..count).for_each(|_| world.see());
        for (pod, seen) in (1..=count).zip(seen) {
            prop_assert!(world.schedule(&format!("p{pod}"), true)?, "p{pod} has no place");
            (0..seen).for_each(|_| world.see());
        }
        let expected: Vec<usize> = super::super::division::Division::of(&policy).unwrap().counts(count);
        let there = |group: &String| world.pods.values().filter(|known| known.as_ref() == Some(group)).count();
        prop_assert_eq!(names.iter().map(there).collect::<Vec<_>>(), expected);
    }
}

//! The fleet: properties of whole rollouts, in worlds of all kinds.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::cell::{Gate, Hold};
use super::super::inplace::{Intent, Progress};
use super::tests::{NOW, down, fleet_of, node, pod, rules};
use super::*;
use crate::health::Health;

/// A world that does what is decided, and in which pods come up when they are told to.
#[derive(Debug, Clone)]
struct World {
    nodes: Vec<NodeState>,
    pods: BTreeMap<Arc<str>, (Arc<str>, PodState)>,
    made: usize,
}

impl World {
    fn fresh(&self, rules: &Rules) -> Fleet {
        let mut fleet = fleet_of(rules.clone(), self.nodes.clone());
        for (name, (node, pod)) in &self.pods {
            fleet.observe(name, Some((node, pod.clone())));
        }
        fleet
    }

    /// Does it, and tells which pods are concerned.
    fn act(&mut self, action: &Action, mode: Mode) -> Vec<Arc<str>> {
        let wanted = self.nodes.iter().find(|node| node.name == action.node).map(|node| node.wanted.clone());
        let Some(name) = action.pod.clone() else {
            self.made += 1;
            let name: Arc<str> = Arc::from(format!("made-{}", self.made));
            let gate = if mode == Mode::InPlace { Gate::Unset } else { Gate::Absent };
            let hash = wanted.expect("a node that is there");
            let number = Some(if *hash == *"new" { 2 } else { 1 });
            let created = NOW + self.made as i64;
            let pod = PodState { gate, hash, number, created, name: name.clone(), ..down("", "") };
            self.pods.insert(name.clone(), (action.node.clone(), pod));
            return vec![name];
        };
        let pod = &mut self.pods.get_mut(&name).expect("a pod that is there").1;
        match action.act {
            Act::Delete(_) => _ = self.pods.remove(&name),
            Act::Gate { opens, .. } => {
                pod.gate = if opens { Gate::Open } else { Gate::Closed };
                pod.ready_since = opens.then_some(0);
            }
            Act::Edit => {
                pod.hash = wanted.expect("a node that is there");
                (pod.number, pod.changed) = (Some(2), Some(NOW));
                pod.edit = Progress::Waiting;
                pod.intent = Intent::Pending;
            }
            Act::Mark(state) => pod.state = state,
            Act::Resize => pod.intent = Intent::Done,
            Act::ClearResize => pod.intent = Intent::None,
            Act::Create => unreachable!("handled above"),
        }
        vec![name]
    }

    /// Nodes that count and are without an available pod.
    fn down(&self) -> usize {
        let counted = self.nodes.iter().filter(|node| node.can_start && node.health.is_ready());
        counted.filter(|node| !self.on(node).any(|pod| pod.is_live() && pod.ready_since.is_some())).count()
    }

    fn on(&self, node: &NodeState) -> impl Iterator<Item = &PodState> {
        let name = node.name.clone();
        self.pods.values().filter(move |(on, _)| *on == name).map(|(_, pod)| pod)
    }
}

fn some_health() -> impl Strategy<Value = Health> {
    prop_oneof![8 => Just(Health::Ready), 1 => Just(Health::NotReady { since: 400 }), 1 => Just(Health::Unknown { since: 400 })]
}

prop_compose! {
    fn some_node()(number in 0_usize..8, can_start in prop::bool::weighted(0.9), can_stay in prop::bool::weighted(0.9),
                   health in some_health(), held in prop::bool::weighted(0.2)) -> NodeState {
        let hold = held.then_some(Hold::Partition);
        let wanted = Arc::from(if held { "old" } else { "new" });
        NodeState { can_start: can_start && can_stay, can_stay, health, hold, wanted, ..node(&format!("n{number}")) }
    }
}

prop_compose! {
    fn some_pod()(number in 0_usize..20, on in 0_usize..9, hash in prop::sample::select(vec!["old", "new", "other"]),
                  up in prop::bool::weighted(0.7), going in prop::bool::weighted(0.1), ended in prop::bool::weighted(0.1),
                  created in 0_i64..9) -> (String, PodState) {
        let pod = PodState {
            ready_since: (up && !ended).then_some(0),
            leaving_since: going.then_some(0), has_ended: ended, created, ..pod(&format!("p{number}"), hash)
        };
        (format!("n{on}"), pod)
    }
}

prop_compose! {
    fn world()(nodes in prop::collection::vec(some_node(), 0..8), pods in prop::collection::vec(some_pod(), 0..10)) -> World {
        let nodes: BTreeMap<Arc<str>, NodeState> = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        let pods = pods.into_iter().map(|(node, pod)| (pod.name.clone(), (Arc::from(node), pod))).collect();
        World { nodes: nodes.into_values().collect(), pods, made: 0 }
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Standard, Mode::InPlace, Mode::Surge, Mode::OnDelete])
}

/// Everything about a fleet that decides.
fn standing(fleet: &mut Fleet, now: i64) -> (Decision, Tally, Vec<Tally>, Sets) {
    let decision = fleet.decide(now);
    (decision, fleet.tally.clone(), fleet.variants.clone(), fleet.sets.clone())
}

proptest! {
    #[test]
    fn told_one_by_one_it_stands_as_if_made_anew(
        world in world(), mode in mode(), budget in 0_usize..4, steps in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..5), 0..20),
    ) {
        let (mut world, rules) = (world, Rules { min_ready: 5, ..rules(mode, budget) });
        let mut fleet = world.fresh(&rules);
        fleet.decide(NOW);
        for (step, (index, kind)) in steps.into_iter().enumerate() {
            let now = NOW + step as i64 * 3;
            let names: Vec<Arc<str>> = world.pods.keys().cloned().collect();
            let Some(name) = names.get(index.index(names.len().max(1))) else { break };
            let pod = &mut world.pods.get_mut(name).expect("listed").1;
            match kind {
                0 => pod.ready_since = None,
                1 => pod.ready_since = Some(now),
                2 => pod.leaving_since = Some(now),
                3 => pod.hash = Arc::from("new"),
                _ => _ = world.pods.remove(name),
            }
            let seen = world.pods.get(name).map(|(node, pod)| (node, pod.clone()));
            fleet.observe(name, seen);
            let mut anew = world.fresh(&rules).remembering(&fleet);
            prop_assert_eq!(standing(&mut fleet, now), standing(&mut anew, now));
        }
    }

    #[test]
    fn updates_keep_the_budget_at_every_step(world in world(), mode in mode(), budget in 0_usize..4) {
        let (mut world, rules) = (world, rules(mode, budget));
        let limit = rules.budget;
        for _ in 0..30 {
            let before = world.down();
            for action in world.fresh(&rules).decide(NOW).actions {
                let held = world.nodes.iter().find(|node| node.name == action.node).is_some_and(|node| node.hold.is_some());
                let is_update = matches!(action.act, Act::Delete(Why::Outdated) | Act::Edit | Act::Gate { opens: false, .. });
                prop_assert!(!(held && is_update), "a node that is held back is touched: {:?}", action);
                world.act(&action, rules.mode);
            }
            prop_assert!(world.down() <= before.max(limit), "{} down, {before} before, budget {limit}", world.down());
            for node in world.nodes.iter().filter(|node| node.can_stay && !node.health.is_unknown()) {
                let live = world.on(node).filter(|pod| pod.is_live()).count();
                prop_assert!(live <= if mode == Mode::Surge { 2 } else { 1 }, "{live} on {}", node.name);
            }
            // One that starts or is being changed comes up.
            if let Some((_, pod)) = world.pods.values_mut().find(|(_, pod)| pod.ready_since.is_none() && pod.is_live()) {
                pod.edit = Progress::Done;
                pod.ready_since = (pod.gate != Gate::Closed).then_some(0);
            }
        }
    }

    #[test]
    fn a_fleet_in_which_nothing_comes_up_is_touched_no_further_than_the_budget(
        up in prop::collection::vec(any::<bool>(), 1..9), in_place in any::<bool>(), budget in 0_usize..4,
    ) {
        let rules = rules(if in_place { Mode::InPlace } else { Mode::Standard }, budget);
        let names: Vec<Arc<str>> = (0..up.len()).map(|number| Arc::from(format!("n{number}"))).collect();
        let pods = names.iter().zip(up).map(|(name, up)| {
            let pod = if up { pod(name, "old") } else { down(name, "old") };
            (name.clone(), (name.clone(), pod))
        });
        let mut world = World { nodes: names.iter().map(|name| node(name)).collect(), pods: pods.collect(), made: 0 };
        for _ in 0..20 {
            for action in world.fresh(&rules).decide(NOW).actions {
                world.act(&action, rules.mode);
            }
            let kept = world.pods.values().filter(|(_, pod)| *pod.hash == *"old" && pod.edit == Progress::Done).count();
            prop_assert!(names.len() - kept <= budget, "{} of {} were touched", names.len() - kept, names.len());
        }
    }

    /// Nothing cascades: a revision that makes its nodes ill, whichever way, is not given to more of them than the budget.
    #[test]
    fn a_revision_that_makes_nodes_ill_stops_at_the_budget(
        ills in prop::collection::vec(prop::bool::ANY, 1..9), up in any::<bool>(), mode in mode(), budget in 0_usize..4,
    ) {
        let rules = rules(mode, budget);
        let names: Vec<Arc<str>> = (0..ills.len()).map(|number| Arc::from(format!("n{number}"))).collect();
        let pods = names.iter().map(|name| (name.clone(), (name.clone(), pod(name, "old")))).collect();
        let mut world = World { nodes: names.iter().map(|name| node(name)).collect(), pods, made: 0 };
        for _ in 0..20 {
            for action in world.fresh(&rules).decide(NOW).actions {
                world.act(&action, rules.mode);
            }
            for (_, pod) in world.pods.values_mut().filter(|(_, pod)| *pod.hash == *"new") {
                pod.edit = Progress::Done;
                pod.ready_since = (up && matches!(pod.gate, Gate::Absent | Gate::Open)).then_some(0);
            }
            let bad: BTreeSet<Arc<str>> =
                world.pods.values().filter(|(_, pod)| *pod.hash == *"new").map(|(node, _)| node.clone()).collect();
            for (node, is_lost) in world.nodes.iter_mut().zip(&ills).filter(|(node, _)| bad.contains(&node.name)) {
                node.health = if *is_lost { Health::Unknown { since: NOW } } else { Health::NotReady { since: NOW } };
            }
            prop_assert!(bad.len() <= rules.budget.max(rules.surge), "{} of {} were lost", bad.len(), names.len());
        }
    }

    #[test]
    fn a_rollout_comes_to_its_end(world in world(), mode in mode(), budget in 1_usize..4) {
        prop_assume!(mode != Mode::OnDelete);
        let (mut world, rules) = (world, rules(mode, budget));
        world.nodes.iter_mut().for_each(|node| node.health = Health::Ready);
        for _ in 0..80 {
            world.pods.retain(|_, (_, pod)| pod.leaving_since.is_none());
            for action in world.fresh(&rules).decide(NOW).actions {
                world.act(&action, rules.mode);
            }
            // What is outdated may stay down for ever; what is held back takes from the budget until it is up.
            let held: BTreeSet<Arc<str>> =
                world.nodes.iter().filter(|node| node.hold.is_some()).map(|node| node.name.clone()).collect();
            for (_, pod) in world.pods.values_mut().filter(|(node, pod)| *pod.hash == *"new" || held.contains(node)) {
                pod.edit = Progress::Done;
                pod.ready_since = matches!(pod.gate, Gate::Absent | Gate::Open).then_some(0);
            }
        }
        for node in world.nodes.iter().filter(|node| node.can_start && node.hold.is_none()) {
            let here: Vec<&PodState> = world.on(node).collect();
            prop_assert!(here.len() == 1 && here[0].hash == node.wanted && here[0].ready_since.is_some(), "{}: {here:?}", node.name);
        }
        prop_assert_eq!(world.fresh(&rules).decide(NOW).actions, [], "and then nothing more is done");
    }
}

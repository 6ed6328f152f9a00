//! Placement and replacement, case by case and as properties.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn node(name: &str) -> NodeState {
    let name = name.to_owned();
    NodeState { name, can_start: true, can_stay: true, is_ready: true, wanted: "new".to_owned(), is_held: false }
}

fn pod(name: &str, node: &str, hash: &str) -> PodState {
    PodState {
        name: name.to_owned(),
        node: node.to_owned(),
        hash: hash.to_owned(),
        is_available: true,
        is_terminating: false,
        has_ended: false,
        created: 0,
    }
}

fn deleted(pod: &str, why: Why) -> Action {
    Action::Delete { pod: pod.to_owned(), why }
}

fn created(node: &str) -> Action {
    Action::Create { node: node.to_owned() }
}

#[test]
fn every_node_gets_one_pod_and_keeps_it() {
    assert_eq!(place(&[node("a"), node("b")], &[pod("p", "a", "old")]), [created("b")]);
    let going = PodState { is_terminating: true, ..pod("p", "a", "new") };
    assert_eq!(place(&[node("a")], &[going]), [], "its place is not free yet");
}

#[test]
fn what_does_not_belong_is_taken_away() {
    let misplaced = NodeState { can_start: false, can_stay: false, ..node("a") };
    let full = NodeState { can_start: false, ..node("b") };
    let pods = [pod("p", "a", "new"), pod("q", "b", "new"), pod("r", "gone", "new")];
    let expected = [deleted("p", Why::Misplaced), deleted("r", Why::NodeGone)];
    assert_eq!(place(&[misplaced, full.clone()], &pods), expected);
    assert_eq!(place(&[full], &[]), [], "none starts where only those that run may stay");
}

#[test]
fn one_that_ended_makes_room() {
    let ended = PodState { has_ended: true, ..pod("p", "a", "new") };
    assert_eq!(place(&[node("a")], &[ended]), [deleted("p", Why::Ended)]);
}

#[test]
fn of_two_the_better_stays() {
    let old = PodState { created: 1, ..pod("p", "a", "old") };
    let new = PodState { created: 2, ..pod("q", "a", "new") };
    assert_eq!(place(&[node("a")], &[old.clone(), new.clone()]), [deleted("p", Why::Double)]);
    let down = PodState { is_available: false, ..new.clone() };
    let younger = PodState { created: 3, ..pod("r", "a", "new") };
    assert_eq!(place(&[node("a")], &[down, younger]), [deleted("q", Why::Double)]);
}

#[test]
fn the_budget_is_kept_and_nodes_come_in_their_order() {
    let nodes = [node("c"), node("a"), node("b")];
    let pods = [pod("pa", "a", "old"), pod("pb", "b", "old"), pod("pc", "c", "old")];
    let first = replace(&nodes, &pods, 1);
    assert_eq!((first.delete, first.waiting), (vec!["pc".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    let down = [pods[0].clone(), pods[1].clone(), PodState { is_available: false, ..pod("pc2", "c", "new") }];
    let second = replace(&nodes, &down, 1);
    assert_eq!((second.delete.len(), second.holding), (0, vec!["c".to_owned()]));
}

#[test]
fn pods_that_are_down_are_not_swept_away_at_once() {
    let nodes: Vec<NodeState> = (0..10).map(|number| node(&format!("n{number}"))).collect();
    let down =
        |number: usize| PodState { is_available: false, ..pod(&format!("p{number}"), &format!("n{number}"), "old") };
    let pods: Vec<PodState> = (0..10).map(down).collect();
    assert_eq!(replace(&nodes, &pods, 2).delete, ["p0", "p1"]);
}

#[test]
fn nodes_that_are_not_well_or_held_back_hold_up_nobody() {
    let sick = NodeState { is_ready: false, ..node("a") };
    let held = NodeState { is_held: true, ..node("b") };
    let down = PodState { is_available: false, ..pod("pa", "a", "old") };
    let pods = [down, pod("pb", "b", "old"), pod("pc", "c", "old")];
    let replacing = replace(&[sick, held, node("c")], &pods, 1);
    assert_eq!(replacing.delete, ["pc"]);
    assert!(replacing.holding.is_empty());
}

/// A world of some nodes, each with up to three pods.
fn world() -> impl Strategy<Value = (Vec<NodeState>, Vec<PodState>)> {
    let one_pod = (any::<[bool; 3]>(), prop_oneof![Just("old"), Just("new"), Just("other")], 0_i64..4);
    let one_node = (any::<[bool; 4]>(), prop::collection::vec(one_pod, 0..3));
    prop::collection::vec(one_node, 0..12).prop_map(|all| {
        let (mut nodes, mut pods) = (Vec::new(), Vec::new());
        for (number, ([can_start, can_stay, is_ready, is_held], here)) in all.into_iter().enumerate() {
            let name = format!("n{number}");
            let can_stay = can_stay || can_start;
            nodes.push(NodeState { can_start, can_stay, is_ready, is_held, ..node(&name) });
            for (index, ([is_available, is_terminating, has_ended], hash, created)) in here.into_iter().enumerate() {
                let is_available = is_available && !is_terminating && !has_ended;
                let state = PodState { is_available, is_terminating, has_ended, created, ..pod("", &name, hash) };
                pods.push(PodState { name: format!("p{number}-{index}"), ..state });
            }
        }
        (nodes, pods)
    })
}

/// What the world is once everything decided has happened.
fn after(nodes: &[NodeState], pods: &[PodState], actions: &[Action]) -> Vec<PodState> {
    let gone: BTreeSet<&str> = actions.iter().filter_map(deleted_pod).collect();
    let mut left: Vec<PodState> =
        pods.iter().filter(|pod| !gone.contains(pod.name.as_str()) && !pod.is_terminating).cloned().collect();
    for action in actions {
        if let Action::Create { node } = action {
            let wanted = nodes.iter().find(|known| known.name == *node).unwrap().wanted.clone();
            left.push(pod(&format!("new-{node}"), node, &wanted));
        }
    }
    left
}

fn deleted_pod(action: &Action) -> Option<&str> {
    match action {
        Action::Delete { pod, .. } => Some(pod),
        Action::Create { .. } => None,
    }
}

proptest! {
    #[test]
    fn placing_ends_with_one_pod_on_every_node_that_fits((nodes, mut pods) in world()) {
        // What goes makes room for what comes: two rounds, and one in which nothing is left to do.
        for _ in 0..2 {
            pods = after(&nodes, &pods, &place(&nodes, &pods));
        }
        prop_assert_eq!(place(&nodes, &pods), []);
        for node in &nodes {
            let here = pods.iter().filter(|pod| pod.node == node.name).count();
            prop_assert!(here <= 1, "{} on {}", here, node.name);
            prop_assert!(!node.can_start || here == 1, "none on {}", node.name);
            prop_assert!(node.can_stay || here == 0, "one on {}", node.name);
        }
    }

    #[test]
    fn no_pod_is_taken_away_twice_and_none_that_is_going((nodes, pods) in world()) {
        let actions = place(&nodes, &pods);
        let names: Vec<&str> = actions.iter().filter_map(deleted_pod).collect();
        prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for pod in pods.iter().filter(|pod| pod.is_terminating) {
            prop_assert!(!names.contains(&pod.name.as_str()));
        }
    }

    #[test]
    fn the_order_of_the_lists_does_not_matter((nodes, pods) in world()) {
        let (mut shuffled_nodes, mut shuffled_pods) = (nodes.clone(), pods.clone());
        shuffled_nodes.reverse();
        shuffled_pods.reverse();
        prop_assert_eq!(place(&nodes, &pods), place(&shuffled_nodes, &shuffled_pods));
        prop_assert_eq!(replace(&nodes, &pods, 2), replace(&nodes, &shuffled_pods, 2));
    }

    #[test]
    fn replacing_never_takes_more_down_than_the_budget((nodes, pods) in world(), budget in 0_usize..5) {
        let placed = after(&nodes, &pods, &place(&nodes, &pods));
        let replacing = replace(&nodes, &placed, budget);
        let is_up = |node: &NodeState, without: &[String]| {
            placed.iter().any(|pod| pod.node == node.name && pod.is_available && pod.is_live() && !without.contains(&pod.name))
        };
        let counted: Vec<&NodeState> = nodes.iter().filter(|node| node.can_start && node.is_ready).collect();
        let down = |without: &[String]| counted.iter().filter(|node| !is_up(node, without)).count();
        let before = down(&[]);
        prop_assert!(down(&replacing.delete) <= before.max(budget), "{} of {}", down(&replacing.delete), budget);
        prop_assert!(replacing.delete.len() <= budget);
        // Nothing that is held back, as it should be, or on a node that is not well.
        for name in &replacing.delete {
            let pod = placed.iter().find(|pod| pod.name == *name).unwrap();
            let node = nodes.iter().find(|node| node.name == pod.node).unwrap();
            prop_assert!(!node.is_held && node.is_ready && pod.hash != node.wanted);
        }
    }

    #[test]
    fn a_rollout_comes_to_its_end((nodes, pods) in world(), budget in 1_usize..5) {
        let nodes: Vec<NodeState> = nodes.into_iter().map(|node| NodeState { is_held: false, is_ready: true, ..node }).collect();
        let mut pods = pods;
        for _ in 0..60 {
            pods = after(&nodes, &pods, &place(&nodes, &pods));
            // Whatever starts becomes available in the end; what is outdated and down may stay so.
            for pod in pods.iter_mut().filter(|pod| pod.hash == "new") {
                pod.is_available = true;
            }
            let gone = replace(&nodes, &pods, budget).delete;
            pods.retain(|pod| !gone.contains(&pod.name));
        }
        for node in nodes.iter().filter(|node| node.can_start) {
            prop_assert!(pods.iter().any(|pod| pod.node == node.name && pod.hash == node.wanted), "{}", node.name);
        }
    }
}

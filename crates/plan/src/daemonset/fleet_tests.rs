//! The fleet, case by case and as properties of whole rollouts.

use serde_json::json;

use super::super::cell::{Class, Gate, Held, Hold, Rollout};
use super::super::inplace::{GATE, Intent, Progress};
use super::super::lifecycle::State;
use super::*;
use crate::health::Health;

pub(super) const NOW: i64 = 1_000;

pub(super) fn node(name: &str) -> NodeState {
    NodeState {
        name: Arc::from(name),
        can_start: true,
        can_stay: true,
        is_selected: true,
        is_barred_for_now: false,
        health: Health::Ready,
        is_out_of_service: false,
        wanted: Arc::from("new"),
        newest: Arc::from("new"),
        is_unproven: false,
        variant: 0,
        hold: None,
        is_left_without: false,
        is_partitioned: false,
        class: Class::Plain,
    }
}

/// The rollout of "new", the second revision, which began at 500; "old" is the first, and was complete.
pub(super) fn rollout() -> Rollout {
    Rollout { began: 500, since: 500, newest: 2, current: 1, complete: 1, soak: None }
}

/// A pod that is up. One of the new revision was made since the rollout began.
pub(super) fn pod(name: &str, hash: &str) -> PodState {
    let is_new = hash == "new";
    let (number, created) = if is_new { (2, 600) } else { (1, 0) };
    let (name, hash) = (Arc::from(name), Arc::from(hash));
    PodState { name, hash, number: Some(number), created, ready_since: Some(created), ..PodState::default() }
}

pub(super) fn down(name: &str, hash: &str) -> PodState {
    PodState { ready_since: None, ..pod(name, hash) }
}

pub(super) fn rules(mode: Mode, budget: usize) -> Rules {
    let surge = if mode == Mode::Surge { budget } else { 0 };
    let budget = if mode == Mode::Surge { 0 } else { budget };
    Rules { rollout: rollout(), mode, budget, surge, burst: 250, ..Rules::default() }
}

pub(super) fn renderings() -> Renderings {
    let template = |image: &str| Arc::new(json!({"spec": {"containers": [{"name": "c", "image": image}]}}));
    let mut renderings = Renderings::default();
    renderings.add(&Arc::from("old"), &template("c:1"));
    renderings.add(&Arc::from("new"), &template("c:2"));
    renderings
}

/// A fleet of these nodes, whatever would hold them back.
pub(super) fn fleet_of(rules: Rules, nodes: Vec<NodeState>) -> Fleet {
    let mut fleet = Fleet::new(rules, Placement::default(), renderings());
    nodes.into_iter().for_each(|node| fleet.set_node(node));
    fleet
}

pub(super) fn fleet(rules: Rules, nodes: Vec<NodeState>, pods: &[(&str, PodState)]) -> Fleet {
    let mut fleet = fleet_of(rules, nodes);
    for (node, pod) in pods {
        fleet.observe(&pod.name.clone(), Some((&Arc::from(*node), pod.clone())));
    }
    fleet
}

/// What is decided: pod or node, and what.
fn decided(rules: Rules, nodes: Vec<NodeState>, pods: &[(&str, PodState)]) -> Vec<(String, Act)> {
    let decision = fleet(rules, nodes, pods).decide(NOW);
    decision.actions.into_iter().map(|action| (action.pod.unwrap_or(action.node).to_string(), action.act)).collect()
}

fn told(name: &str, act: Act) -> (String, Act) {
    (name.to_owned(), act)
}

#[test]
fn every_node_gets_one_pod_and_keeps_it() {
    let standard = || rules(Mode::Standard, 1);
    assert_eq!(decided(standard(), vec![node("a"), node("b")], &[("a", pod("p", "new"))]), [told("b", Act::Create)]);
    let going = PodState { leaving_since: Some(0), ..pod("p", "new") };
    assert_eq!(decided(standard(), vec![node("a")], &[("a", going)]), [], "its place is not free yet");
}

#[test]
fn what_does_not_belong_is_taken_away() {
    let misplaced = NodeState { can_start: false, can_stay: false, is_selected: false, ..node("a") };
    let full = NodeState { can_start: false, ..node("b") };
    let pods = [("a", pod("p", "new")), ("b", pod("q", "new")), ("gone", pod("r", "new"))];
    let expected = [told("r", Act::Delete(Why::NodeGone)), told("p", Act::Delete(Why::Misplaced))];
    assert_eq!(decided(rules(Mode::Standard, 1), vec![misplaced, full.clone()], &pods), expected);
    assert_eq!(
        decided(rules(Mode::Standard, 1), vec![full], &[]),
        [],
        "none starts where only those that run may stay"
    );
}

#[test]
fn of_two_the_one_in_service_stays() {
    let old = PodState { created: 1, ..pod("p", "old") };
    let new = PodState { created: 2, ..pod("q", "new") };
    let one = |pods: [PodState; 2]| {
        let pods: Vec<(&str, PodState)> = pods.into_iter().map(|pod| ("a", pod)).collect();
        decided(rules(Mode::Standard, 0), vec![node("a")], &pods)
    };
    assert_eq!(one([old.clone(), new.clone()]), [told("p", Act::Delete(Why::Double))]);
    let starting = PodState { ready_since: None, ..new };
    assert_eq!(one([old, starting]), [told("q", Act::Delete(Why::Double))], "no node goes down outside the budget");
    // One that is being changed where it runs says that it is ready for a while, and is not in service.
    let changing = PodState { edit: Progress::Waiting, created: 1, ..pod("p", "new") };
    let whole = PodState { created: 2, ..pod("q", "new") };
    assert_eq!(one([changing, whole]), [told("p", Act::Delete(Why::Double))]);
}

/// Found by the simulator, where a strategy of surge was given up halfway: both went at once.
#[test]
fn of_two_at_most_one_goes() {
    let old = PodState { created: 1, ..pod("p", "old") };
    let starting = PodState { created: 2, ..down("q", "new") };
    let one = |pods: [PodState; 2]| {
        let pods = pods.map(|pod| ("a", pod));
        decided(rules(Mode::Standard, 1), vec![node("a")], &pods)
    };
    assert_eq!(one([old.clone(), starting.clone()]), [told("q", Act::Delete(Why::Double))]);
    let begun = PodState { edit: Progress::Waiting, ..old.clone() };
    assert_eq!(one([begun, starting.clone()]), [told("q", Act::Delete(Why::Double))]);
    let going = PodState { leaving_since: Some(NOW), ..starting };
    assert_eq!(one([old, going]), [], "what comes next waits for it");
}

#[test]
fn the_budget_is_kept_and_nodes_come_in_their_order() {
    let nodes = || vec![node("b"), node("a"), node("c")];
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "old")), ("c", pod("pc", "old"))];
    let first = decided(rules(Mode::Standard, 1), nodes(), &pods);
    assert_eq!(first, [told("pc", Act::Delete(Why::Outdated))], "the last is the first to be updated");
    let under_way = [pods[0].clone(), pods[1].clone(), ("c", down("pc2", "new"))];
    let mut fleet = fleet(rules(Mode::Standard, 1), nodes(), &under_way);
    assert_eq!(fleet.decide(NOW).actions, []);
    assert_eq!(fleet.holding(3, NOW), ["c: pod pc2 is not ready"]);
    assert_eq!((fleet.behind(), fleet.lagging()), (2, 2));
}

#[test]
fn pods_that_are_down_are_not_swept_away_at_once() {
    let nodes: Vec<NodeState> = (0..10).map(|number| node(&format!("n{number}"))).collect();
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let pods: Vec<(&str, PodState)> = names.iter().map(|name| (name.as_str(), down(name, "old"))).collect();
    assert_eq!(decided(rules(Mode::Standard, 2), nodes, &pods).len(), 2);
}

#[test]
fn nodes_that_are_not_well_or_held_back_hold_up_nobody() {
    let sick = NodeState { health: Health::Unknown { since: 60 }, ..node("a") };
    let held = NodeState { hold: Some(Hold::Partition), wanted: Arc::from("old"), ..node("b") };
    let pods = [("a", down("pa", "old")), ("b", pod("pb", "old")), ("c", pod("pc", "old"))];
    let mut fleet = fleet(rules(Mode::Standard, 1), vec![sick, held, node("c")], &pods);
    let actions = fleet.decide(NOW).actions;
    assert_eq!(actions.len(), 1);
    assert_eq!(actions[0].pod.as_deref(), Some("pc"));
    assert_eq!(fleet.unreachable(3, NOW), ["a: not Ready since 00:01: its kubelet does not answer"]);
    let mut closed = fleet_of(rules(Mode::Standard, 1), vec![NodeState { can_start: false, ..node("a") }]);
    closed.observe(&Arc::from("pa"), Some((&Arc::from("a"), pod("pa", "old"))));
    assert_eq!(closed.decide(NOW).actions, []);
    assert_eq!(closed.unreachable(3, NOW), ["a: no pod may start there"]);
    assert_eq!((fleet.behind(), fleet.lagging()), (2, 3));
}

#[test]
fn an_update_in_place_goes_step_by_step() {
    let step = |pod: PodState| decided(rules(Mode::InPlace, 1), vec![node("a")], &[("a", pod)]);
    let close = Act::Gate { condition: GATE, opens: false };
    let open = Act::Gate { condition: GATE, opens: true };
    assert_eq!(step(PodState { gate: Gate::Open, ..pod("p", "old") }), [told("p", close)]);
    let closed = |hash: &str| PodState { gate: Gate::Closed, ready_since: None, ..pod("p", hash) };
    assert_eq!(step(closed("old")), [told("p", Act::Edit)]);
    assert_eq!(step(PodState { edit: Progress::Waiting, ..closed("new") }), []);
    assert_eq!(step(closed("new")), [told("p", open)]);
    assert_eq!(step(PodState { gate: Gate::Open, ..pod("p", "new") }), []);
    assert_eq!(step(pod("p", "old")), [told("p", Act::Edit)], "one without a gate");
    assert_eq!(step(PodState { gate: Gate::Unset, ..down("p", "new") }), [told("p", open)], "a new one");
    // A newer change, a difference that cannot be had in place, and one that the kubelet cannot give.
    assert_eq!(step(PodState { edit: Progress::Waiting, ..closed("old") }), [told("p", Act::Edit)]);
    assert_eq!(step(PodState { gate: Gate::Open, ..pod("p", "other") }), [told("p", Act::Delete(Why::Outdated))]);
    assert_eq!(step(PodState { edit: Progress::Stuck, ..closed("new") }), [told("p", Act::Delete(Why::Stuck))]);
    assert_eq!(step(PodState { edit: Progress::Until(NOW + 9), ..closed("new") }), []);
    assert_eq!(step(PodState { edit: Progress::Until(NOW), ..closed("new") }), [told("p", Act::Delete(Why::Stuck))]);
}

#[test]
fn hooks_hold_pods_until_somebody_lets_go() {
    let hooked = Held { from_deletion: true, from_update: true, again: true };
    let standard = |pod: PodState| decided(rules(Mode::Standard, 1), vec![node("a")], &[("a", pod)]);
    let held = PodState { held: hooked, ..pod("p", "old") };
    assert_eq!(standard(held.clone()), [told("p", Act::Mark(State::PreparingDelete))]);
    let preparing = PodState { state: State::PreparingDelete, ..held.clone() };
    assert_eq!(standard(preparing.clone()), []);
    let free = PodState { held: Held::default(), ..preparing.clone() };
    assert_eq!(standard(free), [told("p", Act::Delete(Why::Outdated))]);
    // While it waits it takes from the budget, though it still is ready.
    let two = [("a", preparing), ("b", pod("q", "old"))];
    assert_eq!(decided(rules(Mode::Standard, 1), vec![node("a"), node("b")], &two), []);

    let with_hook = || Rules { has_update_hook: true, unready: (false, true), ..rules(Mode::InPlace, 1) };
    let in_place = |pod: PodState| decided(with_hook(), vec![node("a")], &[("a", pod)]);
    assert_eq!(in_place(held.clone()), [told("p", Act::Mark(State::PreparingUpdate))]);
    let preparing = PodState { state: State::PreparingUpdate, ..held };
    assert_eq!(in_place(preparing.clone()), []);
    let with_gate = PodState { service: Gate::Open, ..preparing.clone() };
    let not_ready = Act::Gate { condition: super::super::lifecycle::NOT_READY_GATE, opens: false };
    assert_eq!(in_place(with_gate), [told("p", not_ready)]);
    let let_go = PodState { held: Held::default(), ..preparing };
    assert_eq!(in_place(let_go.clone()), [told("p", Act::Edit)]);
    let updated = PodState { state: State::Updating, hash: Arc::from("new"), ..let_go };
    assert_eq!(in_place(updated.clone()), [told("p", Act::Mark(State::Updated))]);
    let updated = PodState { state: State::Updated, ..updated };
    assert_eq!(in_place(updated.clone()), [], "it waits for the hook to hold it again");
    assert_eq!(in_place(PodState { held: hooked, ..updated.clone() }), [told("p", Act::Mark(State::Normal))]);
    // One that was set not ready is ready again before it is held again, also if the hook does not ask for it any more.
    let serves = Act::Gate { condition: super::super::lifecycle::NOT_READY_GATE, opens: true };
    let unready = PodState { service: Gate::Closed, ready_since: None, ..updated };
    assert_eq!(in_place(unready.clone()), [told("p", serves)]);
    assert_eq!(decided(rules(Mode::InPlace, 1), vec![node("a")], &[("a", unready)]), [told("p", serves)]);
}

#[test]
fn what_is_told_of_a_node_is_true() {
    let says = |pod: PodState| {
        let mut fleet = fleet(rules(Mode::InPlace, 1), vec![node("a")], &[("a", pod)]);
        fleet.decide(NOW);
        fleet.holding(1, NOW).join("")
    };
    assert_eq!(says(PodState { gate: Gate::Closed, ..pod("p", "old") }), "a: pod p is taken out of service");
    let held = Held { from_deletion: true, ..Held::default() };
    let preparing = PodState { state: State::PreparingDelete, held, ..pod("p", "old") };
    assert_eq!(says(preparing), "a: pod p is held by preDelete");
    assert_eq!(says(down("p", "new")), "a: pod p is not ready");
    let mut fleet = fleet(rules(Mode::Standard, 1), vec![node("a")], &[("a", pod("p", "old"))]);
    fleet.wrote("a");
    fleet.decide(NOW);
    assert_eq!(fleet.holding(1, NOW), ["a: what was just written has not come back yet"]);
}

#[test]
fn a_surge_makes_the_new_before_it_takes_the_old() {
    let surge = |pods: &[(&str, PodState)]| decided(rules(Mode::Surge, 1), vec![node("a"), node("b")], pods);
    let old = [("a", pod("pa", "old")), ("b", pod("pb", "old"))];
    assert_eq!(surge(&old), [told("b", Act::Create)]);
    let pair = [old[0].clone(), old[1].clone(), ("b", down("pb2", "new"))];
    assert_eq!(surge(&pair), [], "it waits for the new one");
    let mut waits = fleet(rules(Mode::Surge, 1), vec![node("a"), node("b")], &pair);
    waits.decide(NOW);
    assert_eq!(waits.waiting(3, NOW), ["b: pod pb2 is not ready"]);
    let up = [old[0].clone(), old[1].clone(), ("b", pod("pb2", "new"))];
    assert_eq!(surge(&up), [told("pb", Act::Delete(Why::Outdated))]);
    // A newer revision: the half-made one goes, the one in service stays.
    let superseded = [("a", pod("pa", "new")), old[1].clone(), ("b", PodState { created: 5, ..down("pb2", "mid") })];
    assert_eq!(surge(&superseded)[0], told("pb2", Act::Delete(Why::Double)));
}

/// Found by the simulator: it counted once it was seen to have two pods, and not before, so that one more was begun.
#[test]
fn a_surge_waits_for_no_node_that_is_lost_for_good() {
    let lost = || NodeState { is_out_of_service: true, ..node("b") };
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "old")), ("b", down("qb", "new"))];
    let mut fleet = fleet(rules(Mode::Surge, 1), vec![node("a"), lost()], &pods);
    let actions = fleet.decide(NOW).actions;
    assert_eq!(actions.iter().map(|action| (&*action.node, action.act)).collect::<Vec<_>>(), [("a", Act::Create)]);
    assert_eq!(fleet.waiting(3, NOW), Vec::<String>::new());
}

/// Found by the simulator: a surge was undone when the old pod was about to be deleted, and both stayed for ever.
#[test]
fn a_surge_takes_back_what_is_asked_for_again() {
    let bad = pod("p", "old");
    let marked = PodState { state: State::PreparingDelete, ..pod("q", "new") };
    let one = |marked: PodState| decided(rules(Mode::Surge, 1), vec![node("a")], &[("a", bad.clone()), ("a", marked)]);
    assert_eq!(one(marked.clone()), [told("q", Act::Mark(State::Normal))]);
    let held = Held { from_deletion: true, ..Held::default() };
    assert_eq!(one(PodState { held, ..marked }), [told("q", Act::Mark(State::Normal))]);
    assert_eq!(one(pod("q", "new")), [told("p", Act::Delete(Why::Outdated))]);
}

#[test]
fn what_we_wrote_and_have_not_seen_counts_as_down() {
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "old"))];
    let mut fleet = fleet(rules(Mode::Standard, 1), vec![node("a"), node("b")], &pods);
    assert_eq!(fleet.decide(NOW).actions.len(), 1);
    fleet.wrote("b");
    assert_eq!(fleet.decide(NOW).actions, []);
    assert_eq!(fleet.behind(), 2, "the rollout is not done with it");
    fleet.saw("b");
    assert_eq!(fleet.decide(NOW).actions.len(), 1);
}

#[test]
fn pods_that_end_come_back_more_and_more_slowly() {
    let ended = PodState { has_ended: true, ready_since: None, ..pod("p", "new") };
    let mut fleet = fleet(rules(Mode::Standard, 1), vec![node("a")], &[("a", ended)]);
    let mut now = NOW;
    for pause in [1, 2, 4, 8] {
        assert_eq!(fleet.decide(now).actions[0].act, Act::Delete(Why::Ended));
        fleet.took_ended(&Arc::from("a"), now);
        assert_eq!(fleet.decide(now).actions, []);
        assert_eq!(fleet.next_wake(), Some(now + pause));
        now += pause;
    }
    assert_eq!(pause(60), RETRY.1);
    assert_eq!(
        fleet.failing().map(|(node, count)| (node.to_string(), count)).collect::<Vec<_>>(),
        [("a".to_owned(), 4)]
    );
    // One that goes well from then on is forgiven.
    fleet.observe(&Arc::from("p"), Some((&Arc::from("a"), pod("p", "new"))));
    let last = now - 8;
    assert_eq!((fleet.decide(last + FORGIVEN).actions, fleet.failing().count()), (vec![], 1));
    assert_eq!(fleet.next_wake(), Some(last + FORGIVEN + 1));
    assert_eq!((fleet.decide(last + FORGIVEN + 1).actions, fleet.failing().count()), (vec![], 0));
    assert_eq!(fleet.next_wake(), None);
}

#[test]
fn where_something_was_refused_nothing_is_tried_for_a_while_and_others_go_on() {
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "old"))];
    let mut fleet = fleet(rules(Mode::Standard, 1), vec![node("a"), node("b")], &pods);
    fleet.set_back("b", NOW + 10);
    assert_eq!(fleet.decide(NOW).actions[0].pod.as_deref(), Some("pa"));
    assert_eq!(fleet.next_wake(), Some(NOW + 10));
    assert_eq!(fleet.decide(NOW + 10).actions[0].pod.as_deref(), Some("pb"));
}

#[test]
fn one_that_is_stuck_on_a_node_that_is_left_alone_goes_on_serving() {
    let held = || NodeState { hold: Some(Hold::Paused), ..node("a") };
    let stuck = PodState { edit: Progress::Stuck, ..pod("p", "new") };
    assert_eq!(decided(rules(Mode::InPlace, 1), vec![held()], &[("a", stuck.clone())]), []);
    let out = PodState { gate: Gate::Closed, ready_since: None, ..stuck };
    assert_eq!(decided(rules(Mode::InPlace, 1), vec![held()], &[("a", out)]), [told("p", Act::Delete(Why::Stuck))]);
}

/// Its label says what it is to be; the resize is yet to be done.
fn half_done(hash: &str) -> PodState {
    PodState { edit: Progress::Waiting, intent: Intent::Pending, gate: Gate::Closed, ..down("p", hash) }
}

#[test]
fn a_resize_that_was_begun_is_ended_whatever_holds_the_node_back() {
    let step = |mode, node: NodeState, pod: PodState| decided(rules(mode, 1), vec![node], &[("a", pod)]);
    let paused = || NodeState { hold: Some(Hold::Paused), ..node("a") };
    let open = Act::Gate { condition: GATE, opens: true };
    for mode in [Mode::InPlace, Mode::Standard, Mode::Surge, Mode::OnDelete] {
        for (node, hash) in [(node("a"), "new"), (paused(), "new"), (paused(), "old"), (paused(), "other")] {
            let step = |pod: PodState| step(mode, node.clone(), pod);
            let pod = half_done(hash);
            assert_eq!(step(pod.clone()), [told("p", Act::Resize)]);
            let pod = PodState { intent: Intent::Done, ..pod };
            assert_eq!(step(pod.clone()), [told("p", Act::ClearResize)], "while the node is at it");
            assert_eq!(step(PodState { edit: Progress::Done, ..pod.clone() }), [told("p", Act::ClearResize)]);
            let pod = PodState { intent: Intent::None, ..pod };
            assert_eq!(step(pod.clone()), []);
            assert_eq!(step(PodState { edit: Progress::Done, ..pod }), [told("p", open)]);
        }
    }
    // What makes it something else, or takes it away, comes first.
    let next = |mode, hash: &str| step(mode, node("a"), half_done(hash));
    assert_eq!(next(Mode::InPlace, "old"), [told("p", Act::Edit)]);
    assert_eq!(next(Mode::InPlace, "other"), [told("p", Act::Delete(Why::Outdated))]);
    assert_eq!(next(Mode::Standard, "old"), [told("p", Act::Delete(Why::Outdated))]);
    let misplaced = NodeState { can_start: false, can_stay: false, is_selected: false, ..node("a") };
    assert_eq!(step(Mode::InPlace, misplaced, half_done("new")), [told("p", Act::Delete(Why::Misplaced))]);
    assert_eq!(step(Mode::InPlace, node("a"), PodState { leaving_since: Some(0), ..half_done("new") }), []);
    let held = PodState { held: Held { from_update: true, ..Held::default() }, ..half_done("old") };
    let held = PodState { state: State::PreparingUpdate, ..held };
    assert_eq!(step(Mode::InPlace, node("a"), held), [told("p", Act::Resize)], "a hook may hold it for long");
    let cordoned = NodeState { can_start: false, ..node("a") };
    assert_eq!(step(Mode::InPlace, cordoned, half_done("old")), [told("p", Act::Resize)]);
}

#[test]
fn a_resize_that_is_refused_replaces_the_pod_whatever_holds_the_node_back() {
    let refused = PodState { edit: Progress::Stuck, ..half_done("new") };
    let ungated = PodState { gate: Gate::Absent, ready_since: Some(0), ..refused.clone() };
    for node in [node("a"), NodeState { hold: Some(Hold::Partition), ..node("a") }] {
        for pod in [&refused, &ungated] {
            let actions = decided(rules(Mode::InPlace, 1), vec![node.clone()], &[("a", pod.clone())]);
            assert_eq!(actions, [told("p", Act::Delete(Why::Stuck))]);
        }
    }
    let cordoned = NodeState { can_start: false, ..node("a") };
    assert_eq!(decided(rules(Mode::InPlace, 1), vec![cordoned], &[("a", refused)]), [], "none could come in its place");
}

#[test]
fn one_that_is_to_be_resized_takes_from_the_budget_and_one_that_was_does_not() {
    let ungated = |intent, edit| PodState { intent, edit, ..pod("p", "new") };
    let decided = |one: PodState| {
        let pods = [("a", one), ("b", pod("q", "old"))];
        decided(rules(Mode::Standard, 1), vec![node("a"), node("b")], &pods)
    };
    assert_eq!(decided(ungated(Intent::Pending, Progress::Waiting)), [told("p", Act::Resize)]);
    let both = [told("p", Act::ClearResize), told("q", Act::Delete(Why::Outdated))];
    assert_eq!(decided(ungated(Intent::Done, Progress::Done)), both);
    // One thing at a time on one pod.
    let outdated = PodState { hash: Arc::from("old"), ..ungated(Intent::Done, Progress::Done) };
    assert_eq!(decided(outdated)[0], told("p", Act::ClearResize));
}

#[test]
fn no_more_is_done_at_once_than_the_burst() {
    let nodes: Vec<NodeState> = (0..10).map(|number| node(&format!("n{number}"))).collect();
    let decision = fleet(Rules { burst: 4, ..rules(Mode::Standard, 1) }, nodes, &[]).decide(NOW);
    assert_eq!((decision.actions.len(), decision.has_more), (4, true));
}

#[test]
fn the_partition_can_hold_back_first_pods_too() {
    // Whatever else holds it: a pause must not make what the partition holds back.
    let held = NodeState { hold: Some(Hold::Paused), is_partitioned: true, ..node("a") };
    let scaling = Rules { partitioned_scaling: true, ..rules(Mode::Standard, 1) };
    assert_eq!(decided(scaling, vec![held.clone(), node("b")], &[]), [told("b", Act::Create)]);
    assert_eq!(decided(rules(Mode::Standard, 1), vec![held, node("b")], &[]).len(), 2);
}

#[test]
fn without_patches_a_pod_of_the_right_template_is_right() {
    let patched = PodState { template: Some(Arc::from("new")), ..pod("p", "patched") };
    let off = Rules { ignores_patches: true, ..rules(Mode::Standard, 1) };
    assert_eq!(decided(off, vec![node("a")], &[("a", patched.clone())]), []);
    assert_eq!(decided(rules(Mode::Standard, 1), vec![node("a")], &[("a", patched)]).len(), 1);
}

/// Nodes that a rollout has touched: what each is, and whether it takes from the budget.
#[test]
fn what_a_rollout_has_touched_counts_until_it_is_well() {
    let (ill, lost) = (Health::NotReady { since: 700 }, Health::Unknown { since: 700 });
    let counts = |node: NodeState, pods: &[PodState], rules: Rules| {
        let pods: Vec<(&str, PodState)> = pods.iter().map(|pod| ("a", pod.clone())).collect();
        let mut fleet = fleet(rules, vec![node], &pods);
        fleet.decide(NOW);
        fleet.sets.down.len() == 1
    };
    let with = |health: Health| NodeState { health, ..node("a") };
    let standard = || rules(Mode::Standard, 1);
    let leaving = |at: i64, hash: &str| PodState { leaving_since: Some(at), ..pod("p", hash) };
    let left_over = PodState { number: Some(3), ..pod("p", "mid") };
    let before = |hash: &str| PodState { created: 400, ready_since: Some(400), ..pod("p", hash) };
    for health in [ill, lost] {
        for (pods, expected, why) in [
            (vec![pod("p", "new")], true, "updated, available, and its Node is not Ready"),
            (vec![down("p", "new")], true, "updated"),
            (vec![], true, "missing"),
            (vec![pod("p", "old")], false, "it has not been touched"),
            (vec![down("p", "old")], false, "it has not been touched"),
            (vec![leaving(499, "old")], false, "deleted before the rollout began"),
            (vec![leaving(500, "old")], true, "deleted since"),
            (vec![before("new")], false, "of the revision that an undo returns to, made before"),
            (vec![PodState { changed: Some(500), ..before("new") }], true, "changed since"),
            (vec![PodState { gate: Gate::Closed, ..pod("p", "old") }], true, "being changed"),
            (
                vec![PodState { number: Some(2), created: 600, ..pod("p", "other") }],
                true,
                "its node has other labels since",
            ),
            (vec![PodState { number: None, ..pod("p", "gone") }], false, "of a revision that is gone, made before"),
        ] {
            assert_eq!(counts(with(health), &pods, standard()), expected, "{health:?}: {why}");
        }
        // A rollout that came to no end left it: revision 3 came after 1 was complete, and 4 is the newest now.
        let fourth = || Rules { rollout: Rollout { newest: 4, ..rollout() }, ..standard() };
        assert!(counts(with(health), std::slice::from_ref(&left_over), fourth()));
        // Not while 1 returns, as 4: an undo gets past those that nobody can reach.
        let undone = Rules { rollout: Rollout { newest: 4, current: 4, ..rollout() }, ..standard() };
        assert!(!counts(with(health), std::slice::from_ref(&left_over), undone));
        // A bad revision returns, before another was complete: what it broke the first time counts.
        let returned = Rules { rollout: Rollout { since: 300, ..rollout() }, ..standard() };
        assert!(counts(with(health), &[before("new")], returned));
        let out = NodeState { is_out_of_service: true, ..with(health) };
        assert!(!counts(out, &[pod("p", "new")], standard()), "given up by people");
        let soaked = |soak: i64| Rules { rollout: Rollout { soak: Some(soak), ..rollout() }, ..standard() };
        assert!(
            counts(with(health), &[pod("p", "new")], soaked(400))
                && !counts(with(health), &[pod("p", "new")], soaked(399))
        );
        // Out of service for a change: nobody knows since when, so it counts for ever.
        let begun = [PodState { gate: Gate::Closed, created: 10, ..pod("p", "old") }];
        assert!(counts(with(health), &begun, soaked(1)));
    }
    assert!(!counts(node("a"), &[pod("p", "new")], standard()), "it is well");
    assert!(counts(node("a"), &[down("p", "old")], standard()), "Ready, without an available pod");
    let scaling = Rules { partitioned_scaling: true, ..standard() };
    assert!(!counts(NodeState { is_partitioned: true, ..node("a") }, &[], scaling), "kept empty");
    let closed = NodeState { can_start: false, ..with(ill) };
    assert!(counts(closed.clone(), &[pod("p", "new")], standard()), "whatever its taints");
    assert!(!counts(closed, &[], standard()), "it should have none");
}

/// The rollout of a bad revision stops at the budget; what comes instead heals, first what counts already.
#[test]
fn a_fix_reaches_what_a_bad_revision_broke() {
    let bad = |name: &str| PodState { number: Some(2), created: 600, ..pod(name, "bad") };
    let fix = || Rollout { began: 800, newest: 3, ..rollout() };
    let ill = |name: &str| NodeState { health: Health::NotReady { since: 700 }, ..node(name) };
    let lost = |name: &str| NodeState { health: Health::Unknown { since: 700 }, ..node(name) };
    let pods = [("a", bad("pa")), ("b", bad("pb")), ("c", pod("pc", "old")), ("d", pod("pd", "old"))];
    let next = |nodes: Vec<NodeState>, budget: usize| {
        decided(Rules { rollout: fix(), ..rules(Mode::Standard, budget) }, nodes, &pods)
    };
    let replaced = |name: &str| told(name, Act::Delete(Why::Outdated));
    assert_eq!(
        next(vec![ill("a"), ill("b"), node("c"), node("d")], 1),
        [replaced("pb")],
        "one at a time, and no other"
    );
    assert_eq!(next(vec![ill("a"), ill("b"), node("c"), node("d")], 3), ["pb", "pa", "pd"].map(replaced));
    assert_eq!(
        next(vec![lost("a"), ill("b"), node("c"), node("d")], 2),
        [replaced("pb")],
        "its kubelet does not answer"
    );
    assert_eq!(next(vec![lost("a"), lost("b"), node("c"), node("d")], 2), [], "it waits for those");
    // Those that are ill for reasons of their own come after all the rest.
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "new"))];
    assert_eq!(decided(rules(Mode::Standard, 1), vec![ill("a"), node("b")], &pods), [replaced("pa")]);
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "old"))];
    assert_eq!(decided(rules(Mode::Standard, 2), vec![ill("a"), node("b")], &pods), [replaced("pb")]);
}

/// Found by the simulator: with a budget of two, bad revisions cost three nodes.
#[test]
fn one_that_is_down_by_itself_takes_no_more_than_its_slot() {
    let fix = Rollout { began: 800, newest: 3, ..rollout() };
    let touched = |name: &str| PodState { ready_since: Some(NOW), created: 600, number: Some(2), ..pod(name, "bad") };
    let pods = [("a", touched("pa")), ("b", touched("pb")), ("c", down("pc", "old")), ("d", pod("pd", "old"))];
    let next = |budget: usize| {
        let rules = Rules { rollout: fix.clone(), min_ready: 60, ..rules(Mode::Standard, budget) };
        decided(rules, ["a", "b", "c", "d"].map(node).to_vec(), &pods)
    };
    let replaced = |name: &str| told(name, Act::Delete(Why::Outdated));
    assert_eq!(next(2), ["pb", "pa"].map(replaced), "those that were touched have both slots");
    assert_eq!(next(3), ["pb", "pa", "pc"].map(replaced));
    assert_eq!(next(4), ["pb", "pa", "pc", "pd"].map(replaced));
}

#[test]
fn a_surge_stops_at_nodes_that_fall_ill() {
    let ill = |name: &str| NodeState { health: Health::NotReady { since: 700 }, ..node(name) };
    let pods = [("a", pod("pa", "old")), ("b", pod("pb", "new"))];
    assert_eq!(decided(rules(Mode::Surge, 1), vec![node("a"), ill("b")], &pods), []);
    assert_eq!(decided(rules(Mode::Surge, 2), vec![node("a"), ill("b")], &pods), [told("a", Act::Create)]);
    // The fix goes where the harm is, and needs no further slot.
    let bad = PodState { number: Some(2), created: 600, ..pod("pb", "bad") };
    let fix = Rules { rollout: Rollout { began: 800, newest: 3, ..rollout() }, ..rules(Mode::Surge, 1) };
    let pods = [("a", pod("pa", "old")), ("b", bad)];
    assert_eq!(decided(fix.clone(), vec![node("a"), ill("b")], &pods), [told("b", Act::Create)]);
    // Where the harm has closed the node to new pods, the bad one goes first: none can start beside it.
    let barred = NodeState { can_start: false, is_barred_for_now: true, ..ill("b") };
    assert_eq!(decided(fix, vec![node("a"), barred], &pods), [told("pb", Act::Delete(Why::Outdated))]);
}

#[test]
fn nothing_is_asked_of_a_kubelet_that_does_not_answer() {
    let lost = || NodeState { health: Health::Unknown { since: 1 }, ..node("a") };
    let all = [Mode::Standard, Mode::InPlace, Mode::Surge, Mode::OnDelete];
    for mode in all {
        for pod in [
            pod("p", "old"),
            PodState { gate: Gate::Closed, ready_since: None, ..pod("p", "old") },
            PodState { gate: Gate::Unset, ..down("p", "new") },
            PodState { has_ended: true, ..down("p", "new") },
        ] {
            assert_eq!(decided(rules(mode, 1), vec![lost()], &[("a", pod.clone())]), [], "{mode:?} {pod:?}");
        }
        let misplaced = NodeState { can_start: false, can_stay: false, ..lost() };
        assert_eq!(decided(rules(mode, 1), vec![misplaced], &[("a", pod("p", "new"))]), []);
        assert_eq!(decided(rules(mode, 1), vec![lost()], &[]), [told("a", Act::Create)], "one that is missing is made");
    }
}

#[test]
fn no_pod_in_service_is_given_up_for_one_that_may_be_refused() {
    let unproven = |name: &str| NodeState { is_unproven: true, ..node(name) };
    for mode in [Mode::Standard, Mode::Surge] {
        assert_eq!(decided(rules(mode, 1), vec![unproven("a")], &[("a", pod("p", "old"))]), []);
    }
    let in_place = decided(rules(Mode::InPlace, 1), vec![unproven("a")], &[("a", pod("p", "old"))]);
    assert_eq!(in_place, [told("p", Act::Edit)], "no pod is made for it");
    // Nor is one that a hook has just let go.
    let begun = PodState { state: State::PreparingDelete, ..pod("p", "old") };
    assert_eq!(decided(rules(Mode::Standard, 1), vec![unproven("a")], &[("a", begun.clone())]), []);
    let gone = [told("p", Act::Delete(Why::Outdated))];
    assert_eq!(decided(rules(Mode::Standard, 1), vec![node("a")], &[("a", begun)]), gone);
    let broken = decided(rules(Mode::Standard, 1), vec![unproven("a")], &[("a", down("p", "old"))]);
    assert_eq!(broken, [told("p", Act::Delete(Why::Outdated))]);
    let missing = decided(rules(Mode::Standard, 9), vec![unproven("a"), unproven("b"), node("c")], &[]);
    assert_eq!(missing, ["a", "c"].map(|name| told(name, Act::Create)), "one is tried at a time");
}

#[test]
fn a_rollout_is_complete_when_all_are_well_and_nobody_is_held_back() {
    let complete = |nodes: Vec<NodeState>, pods: &[(&str, PodState)], now: i64| {
        let mut fleet = fleet(rules(Mode::Standard, 1), nodes, pods);
        fleet.decide(now);
        fleet.is_complete(now)
    };
    let three = || vec![node("a"), node("b"), node("c")];
    let all = [("a", pod("pa", "new")), ("b", pod("pb", "new")), ("c", pod("pc", "new"))];
    assert!(complete(three(), &all, NOW));
    let with = |state: NodeState| vec![state, node("b"), node("c")];
    let held = NodeState { hold: Some(Hold::Partition), wanted: Arc::from("old"), ..node("a") };
    let old = [("a", pod("pa", "old")), all[1].clone(), all[2].clone()];
    assert!(!complete(with(held.clone()), &old, 9_999));
    let lost = |state: NodeState| NodeState { health: Health::Unknown { since: 700 }, ..state };
    assert!(!complete(with(lost(held)), &old, 9_999), "an outage of those held back completes nothing");
    assert!(
        !complete(with(lost(node("a"))), &old, 1_299) && complete(with(lost(node("a"))), &old, 1_300),
        "passed over"
    );
    assert!(!complete(with(lost(node("a"))), &all, 9_999), "one that was updated counts for ever");
    let most = [("a", pod("pa", "old")), ("b", pod("pb", "old")), all[2].clone()];
    assert!(!complete(vec![lost(node("a")), lost(node("b")), node("c")], &most, 9_999), "more are lost than updated");
    assert!(complete(vec![], &[], NOW));
}

//! A rollout run ahead: what becomes of every pod if all goes well and nothing else happens.
//!
//! The fleet decides as it does for the controller; what it decides is done at once, pods that are made or changed come up,
//! hooks let go, and pods on their way out are gone. Nodes stay as they are: one that is not Ready does not become so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::cell::{Act, Gate, Hold, Mode, NodeState, PodState};
use super::super::inplace::{GATE, Intent, Progress};
use super::super::lifecycle::State;
use super::{Action, Fleet};
use crate::fate::{Fate, Fates, HeldBy};

/// So many seconds beyond `minReadySeconds` are looked ahead: what waits longer waits for somebody.
const HORIZON: i64 = 600;
/// More steps than any node needs: hooks, gates, a deletion and a creation, one after the other.
const STEPS: usize = 20;

/// What a fleet comes to.
#[derive(Debug, Default)]
pub struct Ahead {
    /// What is done now, before anything has come of it.
    pub first: Vec<Action>,
    /// Nodes whose pods are replaced or changed, in the order in which their turn comes.
    pub order: Vec<String>,
    /// So many nodes may be under way at once; none where nothing rolls out by itself.
    pub at_once: Option<usize>,
    /// What becomes of each pod.
    pub fates: Fates,
}

impl Fleet {
    /// Runs ahead from this time.
    pub fn run_ahead(mut self, now: i64) -> Ahead {
        let strays = self.strays.iter().map(|(pod, (node, _))| (pod, node));
        let pods: BTreeMap<Arc<str>, Arc<str>> =
            self.pods.iter().chain(strays).map(|(pod, node)| (pod.clone(), node.clone())).collect();
        let first = self.decide(now).actions;
        let at_once = match self.rules.mode {
            Mode::OnDelete => None,
            Mode::Surge => Some(self.rules.surge),
            Mode::Standard | Mode::InPlace => Some(self.rules.budget),
        };
        let mut run = Run { fleet: self, now, made: 0, told: Told::default() };
        run.finish(first.clone(), &pods);
        let fates = run.fates(&pods);
        let is_update = |fate: &Fate| matches!(fate, Fate::Recreated | Fate::InPlace);
        let updated = fates.pods.values().filter(|(_, fate)| is_update(fate)).map(|(node, _)| node.as_str());
        let updated: BTreeSet<&str> = updated.collect();
        let order = run.told.order.iter().filter(|node| updated.contains(&***node)).map(ToString::to_string).collect();
        Ahead { first, order, at_once, fates }
    }
}

struct Run {
    fleet: Fleet,
    now: i64,
    /// How many pods were made.
    made: usize,
    told: Told,
}

/// What has happened.
#[derive(Default)]
struct Told {
    /// Pods that were taken away.
    gone: BTreeSet<Arc<str>>,
    /// Pods that were changed where they run.
    changed: BTreeSet<Arc<str>>,
    /// Nodes that a pod was made on.
    made_on: BTreeSet<Arc<str>>,
    /// Nodes that something was done on, in that order.
    order: Vec<Arc<str>>,
    ordered: BTreeSet<Arc<str>>,
}

impl Run {
    /// Goes on until nothing is left to be done.
    fn finish(&mut self, mut actions: Vec<Action>, pods: &BTreeMap<Arc<str>, Arc<str>>) {
        let horizon = self.now + self.fleet.rules.min_ready + HORIZON;
        let most = STEPS * (self.fleet.cells.len() + pods.len() + 1);
        pods.keys().for_each(|pod| self.come_up(pod));
        for _ in 0..most {
            for action in &actions {
                self.act(action);
            }
            if actions.is_empty() {
                match self.fleet.next_wake() {
                    Some(at) if at > self.now && at <= horizon => self.now = at,
                    _ => return,
                }
            }
            actions = self.fleet.decide(self.now).actions;
        }
    }

    /// A pod that was there before is on its way somewhere: it arrives, unless the kubelet says what keeps it.
    fn come_up(&mut self, name: &Arc<str>) {
        let Some(node) = self.fleet.pods.get(name).cloned() else { return };
        let Some(pod) = self.fleet.pod(name).cloned() else { return };
        let is_answered = self.fleet.node(&node).is_some_and(|node| !node.health.is_unknown());
        if !is_answered || pod.has_ended || pod.trouble.is_some() {
            return;
        }
        if pod.leaving_since.is_some() {
            self.remove(name);
        } else if pod.ready_since.is_none() {
            self.put(&node, pod);
        }
    }

    /// Does it.
    fn act(&mut self, action: &Action) {
        if self.told.ordered.insert(action.node.clone()) {
            self.told.order.push(action.node.clone());
        }
        let Some(state) = self.fleet.node(&action.node).cloned() else {
            // Of a node that is gone.
            action.pod.iter().for_each(|pod| self.remove(pod));
            return;
        };
        let Some(name) = &action.pod else { return self.create(&state) };
        let Some(mut pod) = self.fleet.pod(name).cloned() else { return };
        match action.act {
            Act::Delete(_) => return self.remove(name),
            Act::Create => return,
            Act::Mark(marked) => {
                pod.state = marked;
                // Whoever holds it sees that, and does what he is asked for.
                pod.held.from_deletion &= marked != State::PreparingDelete;
                pod.held.from_update &= marked != State::PreparingUpdate;
                pod.held.again |= matches!(marked, State::Updating | State::Updated);
            }
            Act::Gate { condition, opens } => {
                let gate = if opens { Gate::Open } else { Gate::Closed };
                *(if condition == GATE { &mut pod.gate } else { &mut pod.service }) = gate;
            }
            Act::Edit => {
                pod.hash = state.wanted.clone();
                (pod.number, pod.changed) = (self.number(&state), Some(self.now));
                pod.held.again = true;
                if self.fleet.rules.has_update_hook {
                    pod.state = State::Updating;
                }
                self.told.changed.insert(name.clone());
            }
            Act::Resize => pod.intent = Intent::Done,
            Act::ClearResize => pod.intent = Intent::None,
        }
        self.put(&action.node, pod);
    }

    fn create(&mut self, node: &NodeState) {
        self.made += 1;
        self.told.made_on.insert(node.name.clone());
        let pod = PodState {
            // No pod of a cluster has such a name.
            name: Arc::from(format!("/{}", self.made)),
            hash: node.wanted.clone(),
            number: self.number(node),
            created: self.now,
            ..PodState::default()
        };
        self.put(&node.name.clone(), pod);
    }

    /// The number of the revision that a node gets.
    fn number(&self, node: &NodeState) -> Option<i64> {
        let rollout = &self.fleet.rules.rollout;
        Some(if node.wanted == node.newest { rollout.newest } else { rollout.current })
    }

    fn remove(&mut self, name: &Arc<str>) {
        self.told.gone.insert(name.clone());
        self.fleet.observe(name, None);
    }

    /// A pod is as told now, has got what was asked for, and is ready as far as its node and its gates let it be.
    fn put(&mut self, node: &Arc<str>, mut pod: PodState) {
        let is_shut = |gate: Gate| matches!(gate, Gate::Unset | Gate::Closed);
        let is_ready = self.fleet.node(node).is_some_and(|node| node.health.is_ready());
        (pod.edit, pod.has_ended) = (Progress::Done, false);
        if pod.intent == Intent::Pending {
            pod.intent = Intent::None;
        }
        // For as long as it takes to be available.
        let since = self.now - self.fleet.rules.min_ready - 1;
        let was_ready = pod.ready_since.is_some_and(|known| known <= since);
        pod.ready_since = match is_shut(pod.gate) || is_shut(pod.service) || !is_ready {
            true => None,
            false if was_ready => pod.ready_since,
            false => Some(since),
        };
        let name = pod.name.clone();
        self.fleet.observe(&name, Some((node, pod)));
    }

    /// What has become of the pods that were there.
    fn fates(&self, pods: &BTreeMap<Arc<str>, Arc<str>>) -> Fates {
        let told = &self.told;
        let fate = |pod: &Arc<str>, node: &Arc<str>| match () {
            () if told.gone.contains(pod) && told.made_on.contains(node) => Fate::Recreated,
            () if told.gone.contains(pod) => Fate::Removed,
            () if told.changed.contains(pod) => Fate::InPlace,
            () => self.stays(pod, node),
        };
        let served: BTreeSet<&Arc<str>> = pods.values().collect();
        Fates {
            pods: pods.iter().map(|(pod, node)| (pod.to_string(), (node.to_string(), fate(pod, node)))).collect(),
            created_on: told.made_on.iter().filter(|node| !served.contains(node)).map(ToString::to_string).collect(),
            ..Fates::default()
        }
    }

    /// Why a pod is as it was.
    fn stays(&self, pod: &Arc<str>, node: &Arc<str>) -> Fate {
        let (Some(pod), Some(node)) = (self.fleet.pod(pod), self.fleet.node(node)) else { return Fate::LeftAlone };
        let held = match node.hold {
            _ if pod.is_right(&node.newest, &self.fleet.rules) => return Fate::LeftAlone,
            Some(Hold::Unrendered) => HeldBy::Rendering,
            Some(Hold::Paused) => HeldBy::Pause,
            Some(Hold::Partition) => HeldBy::Partition,
            Some(Hold::Selector) => HeldBy::Selector,
            None if self.fleet.rules.mode == Mode::OnDelete => return Fate::Waits,
            None if node.health.is_unknown() => HeldBy::Kubelet,
            None if !node.can_start => HeldBy::Taint,
            None => HeldBy::Budget,
        };
        Fate::HeldBack(held)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::super::tests::{NOW, down, node, pod, rules};
    use super::*;
    use crate::health::Health;

    fn fleet(mode: Mode, budget: usize, nodes: Vec<NodeState>, pods: Vec<(&str, PodState)>) -> Fleet {
        tests::fleet(rules(mode, budget), nodes, &pods)
    }

    fn fates(ahead: &Ahead) -> Vec<(&str, Fate)> {
        ahead.fates.pods.iter().map(|(pod, (_, fate))| (pod.as_str(), *fate)).collect()
    }

    #[test]
    fn a_rollout_is_foretold_to_its_end() {
        let held = NodeState { hold: Some(Hold::Partition), wanted: Arc::from("old"), ..node("a") };
        let nodes = vec![held, node("b"), node("c"), node("d"), node("e")];
        let pods =
            vec![("a", pod("pa", "old")), ("b", pod("pb", "old")), ("c", pod("pc", "new")), ("d", pod("pd", "old"))];
        let ahead = fleet(Mode::Standard, 1, nodes, pods).run_ahead(NOW);
        let expected = [
            ("pa", Fate::HeldBack(HeldBy::Partition)),
            ("pb", Fate::Recreated),
            ("pc", Fate::LeftAlone),
            ("pd", Fate::Recreated),
        ];
        assert_eq!(fates(&ahead), expected);
        assert_eq!((ahead.order, ahead.at_once), (vec!["d".to_owned(), "b".to_owned()], Some(1)));
        assert_eq!(ahead.fates.created_on, ["e".to_owned()].into());
        // The node without a pod counts: nothing else is begun before it has one.
        assert_eq!(
            ahead.first.iter().map(|action| (&*action.node, action.act)).collect::<Vec<_>>(),
            [("e", Act::Create)]
        );
    }

    #[test]
    fn what_keeps_a_pod_is_named() {
        let lost = NodeState { health: Health::Unknown { since: 0 }, ..node("a") };
        let shut = NodeState { can_start: false, ..node("b") };
        let pods = || vec![("a", pod("pa", "old")), ("b", pod("pb", "old")), ("c", pod("pc", "old"))];
        let nodes = || vec![lost.clone(), shut.clone(), node("c")];
        let held = |by| Fate::HeldBack(by);
        let ahead = fleet(Mode::Standard, 0, nodes(), pods()).run_ahead(NOW);
        assert_eq!(
            fates(&ahead),
            [("pa", held(HeldBy::Kubelet)), ("pb", held(HeldBy::Taint)), ("pc", held(HeldBy::Budget))]
        );
        let ahead = fleet(Mode::OnDelete, 1, nodes(), pods()).run_ahead(NOW);
        assert_eq!((fates(&ahead)[2], ahead.at_once), (("pc", Fate::Waits), None));
    }

    #[test]
    fn one_that_does_not_come_up_holds_the_rest() {
        let stuck = PodState { trouble: Some(Arc::from("CrashLoopBackOff")), ..down("pa", "new") };
        let starting = down("pb", "new");
        let nodes = || vec![node("a"), node("b"), node("c")];
        let ahead = fleet(Mode::Standard, 1, nodes(), vec![("a", stuck), ("c", pod("pc", "old"))]).run_ahead(NOW);
        assert_eq!(fates(&ahead)[1], ("pc", Fate::HeldBack(HeldBy::Budget)));
        let ahead = fleet(Mode::Standard, 1, nodes(), vec![("b", starting), ("c", pod("pc", "old"))]).run_ahead(NOW);
        assert_eq!(fates(&ahead)[1], ("pc", Fate::Recreated));
    }

    #[test]
    fn a_surge_replaces_pods_too() {
        let ahead = fleet(Mode::Surge, 1, vec![node("a")], vec![("a", pod("pa", "old"))]).run_ahead(NOW);
        assert_eq!((fates(&ahead), ahead.at_once), (vec![("pa", Fate::Recreated)], Some(1)));
        assert_eq!(ahead.order, ["a"]);
    }
}

//! Nodes that a taint drives the rollout's pods off: noticing them in time, and counting them.

use std::sync::Arc;

use super::super::cell::PodState;
use super::super::driven_off::DrivenOff;
use super::Fleet;

impl Fleet {
    /// With those that the cluster remembers. To be told before nodes.
    pub fn with_driven_off(mut self, noted: DrivenOff) -> Self {
        self.driven_off = noted;
        self
    }

    /// Those that the cluster does not remember yet, as of the last decision.
    pub fn unnoted(&self) -> Vec<Arc<str>> {
        self.sets.unnoted.iter().map(|rank| rank.name.clone()).collect()
    }

    /// The cluster remembers these now.
    pub fn noted(&mut self, nodes: &[Arc<str>], now: i64) {
        for node in nodes {
            self.driven_off.insert(node.clone(), now);
            self.with_cell(node, |cell| cell.driven_off = Some(now));
        }
    }

    /// A pod is gone: with it goes the only thing that says that the rollout had to do with the node.
    pub(super) fn lost(&mut self, node: &Arc<str>, pod: &PodState) {
        let Some(cell) = self.cells.get_mut(node) else { return };
        cell.was_driven_off |= cell.is_barred() && pod.is_touched(&cell.node.newest, &self.rules);
    }

    /// Takes over nodes that were driven off between what an earlier fleet was told and what this one was.
    pub(super) fn driven_off_since(&mut self, earlier: &Self) {
        for (name, before) in &earlier.cells {
            let Some(cell) = self.cells.get_mut(name).filter(|cell| cell.is_barred() && cell.pods.is_empty()) else {
                continue;
            };
            let touched = before.pods.iter().any(|pod| pod.is_touched(&before.node.newest, &earlier.rules));
            let is_unnoted = before.was_driven_off && before.driven_off.is_none() && before.is_barred();
            cell.was_driven_off |= touched || is_unnoted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cell::{Act, Mode, NodeState, Rollout, Rules, Why};
    use super::super::tests::{NOW, fleet, fleet_of, node, pod, rollout, rules};
    use super::*;

    /// A node with a taint that does not pass, and that pods have to leave.
    fn tainted(name: &str) -> NodeState {
        NodeState { can_start: false, can_stay: false, ..node(name) }
    }

    fn acts(fleet: &mut Fleet) -> Vec<(String, Act)> {
        let actions = fleet.decide(NOW).actions;
        actions.into_iter().map(|action| (action.pod.unwrap_or(action.node).to_string(), action.act)).collect()
    }

    fn standard() -> Rules {
        rules(Mode::Standard, 1)
    }

    fn updated(name: &str) -> (String, Act) {
        (name.to_owned(), Act::Delete(Why::Outdated))
    }

    #[test]
    fn a_taint_that_drives_the_new_pod_off_gives_no_slot_back() {
        let pods = [("a", pod("pa", "new")), ("b", pod("pb", "old"))];
        let mut fleet = fleet(standard(), vec![tainted("a"), node("b")], &pods);
        assert_eq!(acts(&mut fleet), [], "it is not deleted before the cluster remembers it");
        assert_eq!(fleet.unnoted(), [Arc::from("a")]);
        fleet.noted(&[Arc::from("a")], NOW);
        assert_eq!(acts(&mut fleet), [("pa".to_owned(), Act::Delete(Why::Misplaced))]);
        fleet.observe(&Arc::from("pa"), None);
        assert_eq!((acts(&mut fleet), fleet.unnoted()), (vec![], vec![]), "the next node does not follow");
        assert_eq!(fleet.ill(), 1);
        assert!(fleet.waiting(3, NOW)[0].contains("a taint keeps its pods away since"), "{:?}", fleet.waiting(3, NOW));
        fleet.set_node(node("a"));
        assert_eq!(acts(&mut fleet), [("a".to_owned(), Act::Create)], "the taint is gone");
    }

    #[test]
    fn a_pod_that_is_gone_at_once_is_noticed() {
        let pods = [("a", pod("pa", "new")), ("b", pod("pb", "old"))];
        let mut fleet = fleet(standard(), vec![node("a"), node("b")], &pods);
        fleet.set_node(tainted("a"));
        fleet.observe(&Arc::from("pa"), None);
        assert_eq!((acts(&mut fleet), fleet.unnoted()), (vec![], vec![Arc::from("a")]));
        // So it is if everything is looked at anew in between.
        let before = self::fleet(standard(), vec![node("a"), node("b")], &pods);
        let after = self::fleet(standard(), vec![tainted("a"), node("b")], &pods[1..]);
        let mut after = after.remembering(&before);
        assert_eq!((acts(&mut after), after.unnoted()), (vec![], vec![Arc::from("a")]));
    }

    #[test]
    fn a_new_leader_reads_who_was_driven_off() {
        let next = |rules: Rules, state: NodeState| {
            let noted = DrivenOff::from([(Arc::from("a"), 700)]);
            let mut fleet = fleet_of(rules, vec![]).with_driven_off(noted);
            fleet.set_node(state);
            fleet.set_node(node("b"));
            fleet.observe(&Arc::from("pb"), Some((&Arc::from("b"), pod("pb", "old"))));
            acts(&mut fleet)
        };
        assert_eq!(next(standard(), tainted("a")), []);
        assert_eq!(next(rules(Mode::Standard, 2), tainted("a")), [updated("pb")], "a larger budget");
        let gone = NodeState { is_out_of_service: true, ..tainted("a") };
        assert_eq!(next(standard(), gone), [updated("pb")], "it is out of service");
        let soak = Rules { rollout: Rollout { soak: Some(200), ..rollout() }, ..standard() };
        assert_eq!(next(soak, tainted("a")), [updated("pb")], "it has soaked");
        let other = NodeState { is_selected: false, ..tainted("a") };
        assert_eq!(next(standard(), other), [updated("pb")], "the template is not for it any more");
    }

    #[test]
    fn nodes_that_the_rollout_had_nothing_to_do_with_do_not_count() {
        let pods = [("a", pod("pa", "old")), ("b", pod("pb", "old"))];
        let mut fleet = fleet(standard(), vec![tainted("a"), tainted("c"), node("b")], &pods);
        let gone = ("pa".to_owned(), Act::Delete(Why::Misplaced));
        assert_eq!((acts(&mut fleet), fleet.unnoted()), (vec![gone, updated("pb")], vec![]));
    }
}

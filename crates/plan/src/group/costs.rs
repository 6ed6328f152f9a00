//! What deleting pods costs, once their policy is another one: minus the number of the seat that each has by it.
//!
//! A pod is given its seat, and the cost with it, when it is placed. By another policy its seat may be another group's, and a ReplicaSet
//! that shrinks would take pods of the wrong group. So the pods of a group are given its first seats anew; those that have one of
//! them keep it.
//!
//! Which costs are dapple's is remembered on the pod: the seat is an annotation of its own. A cost that says anything else is the
//! user's, whoever wrote the pod last, and stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::division::Division;
use super::seating::believed;
use crate::node::Labels;

/// By which a ReplicaSet chooses whom to delete first: the lowest.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation of a pod: the number of the seat that it was given. Written together with the cost.
pub const SEAT: &str = dapple_api::metadata::SEAT_ANNOTATION;

/// What deleting the pod of a seat costs: those of the last seats go first.
#[must_use]
pub fn cost_of(seat: usize) -> Option<i32> {
    i32::try_from(seat).ok().map(|seat| -seat)
}

/// The seat that a pod was given.
#[must_use]
pub fn seat_of(annotations: &dyn Labels) -> Option<usize> {
    annotations.get(SEAT)?.parse().ok()
}

/// Whether a pod has a cost that dapple has not written.
#[must_use]
pub fn has_own_cost(annotations: &dyn Labels) -> bool {
    let written = seat_of(annotations).and_then(cost_of).map(|cost| cost.to_string());
    let cost = annotations.get(DELETION_COST);
    // One that was taken off a pod that had one is the user's wish too.
    cost != written.as_deref()
}

/// A pod that is placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seated {
    /// Its name.
    pub name: Arc<str>,
    /// Its group, by its place in the policy; none if the policy does not list it.
    pub group: Option<usize>,
    /// The seat that it was given.
    pub seat: Option<usize>,
    /// Whether its cost is the user's.
    pub has_own_cost: bool,
}

/// Which pods get another seat, and which: of all pods of an owner that live. As few as possible.
#[must_use]
pub fn reseated(division: &mut Division, pods: &[Seated]) -> Vec<(Arc<str>, usize)> {
    let most = believed(pods.len());
    let mut by_group: BTreeMap<usize, Vec<&Seated>> = BTreeMap::new();
    for pod in pods {
        if let Some(group) = pod.group.filter(|group| *group < division.groups().len()) {
            by_group.entry(group).or_default().push(pod);
        }
    }
    let mut changes = Vec::new();
    for (group, mut members) in by_group {
        members.sort_by(|one, other| (one.seat, &one.name).cmp(&(other.seat, &other.name)));
        let mut free: BTreeSet<usize> =
            (0..members.len()).filter_map(|rank| division.seat_at(group, rank, most)).collect();
        // Those whose cost is the user's count for the group all the same, and keep their seats as they are.
        let (own, given): (Vec<&Seated>, Vec<&Seated>) = members.into_iter().partition(|pod| pod.has_own_cost);
        own.iter().filter_map(|pod| pod.seat).for_each(|seat| _ = free.remove(&seat));
        let given = given.into_iter().filter_map(|pod| Some((pod, pod.seat?)));
        let left: Vec<&Seated> = given.filter(|(_, seat)| !free.remove(seat)).map(|(pod, _)| pod).collect();
        changes.extend(left.into_iter().zip(free).map(|(pod, seat)| (pod.name.clone(), seat)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use dapple_api::group::{PropagationPolicySpec, StaticNodeGroupWeight};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn division(listed: &[i64]) -> Division {
        let item = |(group, weight): (usize, &i64)| StaticNodeGroupWeight {
            node_group_names: vec![format!("g{group}")],
            weight: *weight,
        };
        let static_weight_list = listed.iter().enumerate().map(item).collect();
        Division::of(&PropagationPolicySpec { static_weight_list, ..PropagationPolicySpec::default() }).unwrap()
    }

    fn pod(name: &str, group: usize, seat: usize) -> Seated {
        Seated { name: Arc::from(name), group: Some(group), seat: Some(seat), has_own_cost: false }
    }

    #[test]
    fn pods_of_a_changed_policy_get_the_first_seats_of_their_groups() {
        // By 2 and 3, seats are of groups 1, 0, 1, 0, 1; by 3 and 2, of 0, 1, 0, 1, 0.
        let pods = [pod("a", 0, 1), pod("b", 0, 3), pod("c", 0, 2), pod("d", 1, 0), pod("e", 1, 4)];
        let changes = reseated(&mut division(&[3, 2]), &pods);
        assert_eq!(changes, [("a", 0), ("b", 4), ("d", 1), ("e", 3)].map(|(name, seat)| (Arc::from(name), seat)));
        let settled = [pod("a", 0, 0), pod("b", 0, 4), pod("c", 0, 2), pod("d", 1, 1), pod("e", 1, 3)];
        assert_eq!(reseated(&mut division(&[3, 2]), &settled), []);
    }

    #[test]
    fn what_is_not_dapples_stays() {
        let mut own = pod("own", 0, 7);
        own.has_own_cost = true;
        let unlisted = Seated { group: None, ..pod("unlisted", 0, 0) };
        let without = Seated { seat: None, ..pod("without", 0, 0) };
        assert_eq!(reseated(&mut division(&[1]), &[own, unlisted, without, pod("absurd", 0, usize::MAX)]).len(), 1);
    }

    #[test]
    fn whose_cost_it_is_says_the_seat_beside_it() {
        let pod = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(!has_own_cost(&pod(&[])));
        assert!(!has_own_cost(&pod(&[(SEAT, "3"), (DELETION_COST, "-3")])));
        assert!(!has_own_cost(&pod(&[(SEAT, "0"), (DELETION_COST, "0")])));
        assert!(has_own_cost(&pod(&[(DELETION_COST, "-3")])));
        assert!(has_own_cost(&pod(&[(SEAT, "3"), (DELETION_COST, "100")])));
        assert!(has_own_cost(&pod(&[(SEAT, "3")])), "somebody took it off");
    }

    proptest! {
        /// Whatever seats pods have: afterwards those of each group have its first ones, each once, nobody else is changed, and
        /// nothing is left to change.
        #[test]
        fn each_group_has_its_first_seats_once(
            listed in vec(1_i64..9, 1..4),
            had in vec((0_usize..4, 0_usize..40), 0..30),
        ) {
            let mut division = division(&listed);
            let mut pods: Vec<Seated> = had.iter().enumerate().map(|(number, (group, seat))| {
                pod(&format!("p{number:02}"), group % listed.len(), *seat)
            }).collect();
            let changes: BTreeMap<Arc<str>, usize> = reseated(&mut division, &pods).into_iter().collect();
            for pod in &mut pods {
                if let Some(seat) = changes.get(&pod.name) {
                    prop_assert_ne!(pod.seat, Some(*seat));
                    pod.seat = Some(*seat);
                }
            }
            prop_assert_eq!(reseated(&mut division, &pods), []);
            for group in 0..listed.len() {
                let own: BTreeSet<Option<usize>> =
                    pods.iter().filter(|pod| pod.group == Some(group)).map(|pod| pod.seat).collect();
                let count = pods.iter().filter(|pod| pod.group == Some(group)).count();
                let first: BTreeSet<Option<usize>> =
                    (0..count).map(|rank| division.seat_at(group, rank, believed(pods.len()))).collect();
                // Of groups far above their share, seats beyond those that are believed are left as they are.
                prop_assert!(first.contains(&None) || own == first, "{:?} not {:?}", own, first);
            }
        }
    }
}

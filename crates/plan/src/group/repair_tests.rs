//! Moves are as many as the difference, one after another, and end where the first of them does harm.

use dapple_api::group::PropagationPolicySpec;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn division(list: &str, items: &[serde_json::Value]) -> Division {
    let spec: PropagationPolicySpec = serde_json::from_value(json!({list: items})).expect("a policy");
    Division::of(&spec).expect("it divides")
}

fn weights(weights: &[i64]) -> Division {
    let item = |(number, weight): (usize, &i64)| json!({"nodeGroupNames": [format!("g{number}")], "weight": weight});
    division("staticWeightList", &weights.iter().enumerate().map(item).collect::<Vec<_>>())
}

fn ranges(ranges: &[(i64, i64)]) -> Division {
    let item = |(number, (min, max)): (usize, &(i64, i64))| json!({"nodeGroupNames": [format!("g{number}")], "min": min, "max": max});
    division("numRange", &ranges.iter().enumerate().map(item).collect::<Vec<_>>())
}

fn pod(number: usize, group: Option<usize>) -> PodState {
    PodState {
        name: Arc::from(format!("p{number}")),
        group,
        near: Vec::new(),
        ordinal: None,
        seat: Some(number),
        is_available: true,
        is_gated: false,
        is_protected: false,
        is_stale: false,
        reach: None,
    }
}

fn pods(groups: &[Option<usize>]) -> Vec<PodState> {
    groups.iter().enumerate().map(|(number, group)| pod(number, *group)).collect()
}

fn facts(pods: Vec<PodState>) -> Facts {
    let available = pods.iter().filter(|pod| pod.is_available).count();
    Facts { desired: pods.len(), available, pods, stranded: 0, most_away: 1 }
}

fn targets(division: &mut Division, groups: &[Option<usize>]) -> Vec<(usize, usize)> {
    misplaced(division, &pods(groups)).into_iter().map(|known| (known.pod, known.to)).collect()
}

#[test]
fn the_last_seats_of_a_group_with_too_many_are_moved() {
    let (a, b) = (Some(0), Some(1));
    // Two and three are the shares.
    assert_eq!(targets(&mut weights(&[2, 3]), &[a, b, a, b, a]), [(4, 1)]);
    assert_eq!(targets(&mut weights(&[2, 3]), &[a, b, a, b, b]), []);
    assert_eq!(targets(&mut weights(&[2, 3]), &[None, b, a, b, a]), [(0, 1)], "it is in no group that is listed");
}

#[test]
fn a_pod_that_says_no_group_counts_where_there_is_room_for_it() {
    let near = |number: usize, near: &[usize]| PodState { near: near.to_vec(), ..pod(number, None) };
    // North may have one, and has it: the other counts for west.
    let mut division = ranges(&[(0, 1), (1, 9)]);
    assert_eq!(misplaced(&mut division, &[pod(0, Some(0)), near(1, &[0, 1])]), []);
    // Of two in north, that one goes of which it is not sure that it is there.
    let both = [pod(0, Some(0)), near(1, &[0])];
    assert_eq!(misplaced(&mut division, &both), [Move { pod: 1, to: 1 }]);
}

#[test]
fn an_ordinal_belongs_to_the_group_of_its_seat() {
    let mut set = pods(&[Some(1), Some(1), Some(0)]);
    set.iter_mut().enumerate().for_each(|(number, pod)| pod.ordinal = Some(number + 1));
    // Seats 1, 2 and 3 are of groups 0, 1 and 0.
    let moves = misplaced(&mut weights(&[2, 3]), &set);
    assert_eq!(moves, [Move { pod: 0, to: 0 }]);
}

#[test]
fn a_pod_that_waits_for_nodes_its_group_does_not_have_any_more_is_made_anew_for_its_group() {
    let (a, b) = (Some(0), Some(1));
    let mut division = weights(&[2, 3]);
    let mut all = pods(&[a, b, a, b, b]);
    for pod in [1, 3] {
        (all[pod].is_stale, all[pod].is_available) = (true, false);
    }
    assert_eq!(misplaced(&mut division, &all), [Move { pod: 1, to: 1 }, Move { pod: 3, to: 1 }]);
    // One after another, and the next when the successor of the last is available.
    assert_eq!(next(&mut division, &facts(all.clone()), |_, _| true), Next::Evict(Move { pod: 1, to: 1 }));
    all[1].is_stale = false;
    assert_eq!(next(&mut division, &facts(all.clone()), |_, _| true), Next::Wait);
    all[1].is_available = true;
    assert_eq!(next(&mut division, &facts(all.clone()), |_, _| true), Next::Evict(Move { pod: 3, to: 1 }));
    assert_eq!(next(&mut division, &facts(all.clone()), |_, _| false), Next::Rest, "there is no node that fits");
    // Where its group has too many pods, it goes to the one that lacks one.
    all[0].group = b;
    assert_eq!(misplaced(&mut division, &all), [Move { pod: 3, to: 0 }]);
    all.iter_mut().enumerate().for_each(|(number, pod)| (pod.ordinal, pod.group) = (Some(number), b));
    let numbered = misplaced(&mut division, &all);
    assert!(numbered.contains(&Move { pod: 3, to: 0 }) && !numbered.contains(&Move { pod: 4, to: 1 }), "{numbered:?}");
    all[4].is_stale = true;
    assert!(misplaced(&mut division, &all).contains(&Move { pod: 4, to: 1 }));
}

#[test]
fn a_pod_belongs_where_it_is_while_its_volumes_cannot_follow_it() {
    let (a, b) = (Some(0), Some(1));
    let mut set = pods(&[b, a, b, a, b]);
    set.iter_mut().enumerate().for_each(|(number, pod)| pod.ordinal = Some(number));
    // By the weights of now, each has its seat in the other group: only the last can go there.
    let mut division = weights(&[3, 2]);
    for pod in &mut set[..4] {
        pod.reach = Some(pod.group.into_iter().collect());
    }
    set[4].reach = Some([0, 1].into());
    assert_eq!(misplaced(&mut division, &set), [Move { pod: 4, to: 0 }]);
    // Those that stay count as well placed, so that none goes while one of them is down.
    set[0].is_available = false;
    assert_eq!(next(&mut division, &facts(set.clone()), |_, _| true), Next::Wait);
    set[4].is_available = false;
    assert_eq!(next(&mut division, &facts(set.clone()), |_, _| true), Next::Wait);
    // One that waits for nodes which its group does not have any more is made anew all the same.
    set[0].is_stale = true;
    assert!(misplaced(&mut division, &set).contains(&Move { pod: 0, to: 0 }));
    // Without ordinals alike.
    let mut all = pods(&[a, b, a, b, a]);
    all[4].reach = Some([0].into());
    assert_eq!(misplaced(&mut weights(&[2, 3]), &all), []);
}

#[test]
fn by_range_only_least_and_greatest_numbers_are_mended() {
    let (a, b) = (Some(0), Some(1));
    assert_eq!(targets(&mut ranges(&[(0, 9), (0, 9)]), &[a, a, a, a]), [], "it need not be even");
    assert_eq!(targets(&mut ranges(&[(0, 9), (2, 9)]), &[a, a, a, a]).len(), 2, "a least number");
    assert_eq!(targets(&mut ranges(&[(0, 3), (0, 9)]), &[a, a, a, a]).len(), 1, "a greatest number");
    assert_eq!(targets(&mut ranges(&[(0, 1), (0, 1)]), &[a, a, b, b]), [], "there is nowhere to go");
    assert_eq!(targets(&mut ranges(&[(3, 9), (3, 9)]), &[a, a, a, b]), [], "neither has more than its least number");
}

#[test]
fn nothing_available_goes_while_anything_is_unavailable() {
    let fits = |_: &PodState, _: usize| true;
    let mut all = pods(&[Some(0), Some(0), Some(0), Some(0)]);
    let mut division = weights(&[1, 1]);
    assert!(matches!(next(&mut division, &facts(all.clone()), fits), Next::Evict(_)));
    // One that is where it belongs: the successor of the last, perhaps.
    all[0].is_available = false;
    all[0].group = Some(1);
    assert_eq!(next(&mut division, &facts(all.clone()), fits), Next::Wait);
    // One that is to be moved goes first, and needs nobody's leave.
    all[0].group = Some(0);
    assert_eq!(next(&mut division, &facts(all.clone()), fits), Next::Evict(Move { pod: 0, to: 1 }));
    // Its owner counts otherwise, or one is missing.
    all[0].is_available = true;
    assert_eq!(next(&mut division, &Facts { available: 3, ..facts(all.clone()) }, fits), Next::Wait);
    assert_eq!(next(&mut division, &Facts { desired: 5, ..facts(all.clone()) }, fits), Next::Wait);
    // The last one that was moved may have broken the node that another is leaving.
    assert_eq!(next(&mut division, &Facts { stranded: 1, ..facts(all.clone()) }, fits), Next::Wait);
    assert!(matches!(next(&mut division, &Facts { desired: 5, most_away: 2, ..facts(all) }, fits), Next::Evict(_)));
}

#[test]
fn no_move_that_does_not_help() {
    let mut all = pods(&[Some(0), Some(0), Some(0), Some(0)]);
    let mut division = weights(&[1, 1]);
    assert_eq!(next(&mut division, &facts(all.clone()), |_, _| false), Next::Rest);
    all.iter_mut().for_each(|pod| pod.is_protected = true);
    assert_eq!(next(&mut division, &facts(all), |_, _| true), Next::Rest);
}

#[test]
fn a_move_that_does_not_help_is_the_last() {
    let stage = |generation: i64, desired: usize, misplaced: usize| Stage {
        policy: (Arc::from("uid"), Some(generation)),
        desired,
        misplaced,
    };
    let before = stage(1, 5, 2);
    assert!(before.has_helped(&stage(1, 5, 1)));
    assert!(!before.has_helped(&stage(1, 5, 2)) && !before.has_helped(&stage(1, 5, 3)));
    assert!(before.has_helped(&stage(2, 5, 3)) && before.has_helped(&stage(1, 6, 3)), "something else is asked for");
}

proptest! {
    /// However pods were placed: as many moves as the counts differ from the shares, never more away than allowed, and then rest.
    #[test]
    fn moves_equal_the_difference(
        listed in vec(1_i64..20, 1..6),
        placed in vec(proptest::option::of(0..6_usize), 1..40),
        most_away in 1..4_usize,
    ) {
        let mut division = weights(&listed);
        let groups: Vec<Option<usize>> = placed.iter().map(|group| group.filter(|group| *group < listed.len())).collect();
        let mut known = Facts { most_away, ..facts(pods(&groups)) };
        let shares = division.counts(groups.len());
        let over = |pods: &[PodState]| {
            let of = |group: usize| pods.iter().filter(|pod| pod.group == Some(group)).count();
            (0..shares.len()).map(|group| of(group).saturating_sub(shares[group])).sum::<usize>()
                + pods.iter().filter(|pod| pod.group.is_none()).count()
        };
        let difference = over(&known.pods);
        let mut moves = 0;
        loop {
            match next(&mut division, &known, |_, _| true) {
                Next::Evict(known_move) => {
                    moves += 1;
                    // Its successor comes where it belongs, and is not available yet.
                    known.pods[known_move.pod].group = Some(known_move.to);
                    known.pods[known_move.pod].is_available = false;
                    known.available -= 1;
                    prop_assert!(known.pods.iter().filter(|pod| !pod.is_available).count() <= most_away);
                }
                Next::Wait => {
                    let first = known.pods.iter_mut().find(|pod| !pod.is_available).expect("something is waited for");
                    first.is_available = true;
                    known.available += 1;
                }
                Next::Rest => break,
            }
            prop_assert!(moves <= difference, "no pod is moved twice");
        }
        prop_assert_eq!((moves, over(&known.pods)), (difference, 0));
    }

    /// A successor that never becomes available ends it: however many are misplaced, no more are lost than may be away.
    #[test]
    fn what_does_harm_ends_it(
        placed in vec(0..3_usize, 1..30),
        down in vec(any::<bool>(), 30),
        most_away in 1..4_usize,
    ) {
        let mut division = weights(&[1, 5, 2]);
        let mut all = pods(&placed.iter().copied().map(Some).collect::<Vec<_>>());
        all.iter_mut().zip(down).for_each(|(pod, is_down)| pod.is_available = !is_down);
        let mut known = Facts { most_away, ..facts(all) };
        let was_available = known.available;
        while let Next::Evict(known_move) = next(&mut division, &known, |_, _| true) {
            let pod = &mut known.pods[known_move.pod];
            known.available -= usize::from(pod.is_available);
            (pod.group, pod.is_available) = (Some(known_move.to), false);
        }
        prop_assert!(was_available - known.available <= most_away);
    }

    /// By range, every group is within its least and greatest number after the moves, as far as the pods allow.
    #[test]
    fn ranges_are_kept(
        listed in vec((0_i64..4, 0_i64..6), 1..5),
        placed in vec(0..5_usize, 1..20),
    ) {
        let listed: Vec<(i64, i64)> = listed.into_iter().map(|(min, more)| (min, min + more)).collect();
        let mut division = ranges(&listed);
        let mut all = pods(&placed.iter().map(|group| Some(group % listed.len())).collect::<Vec<_>>());
        for known in misplaced(&mut division, &all) {
            all[known.pod].group = Some(known.to);
        }
        let of = |group: usize| all.iter().filter(|pod| pod.group == Some(group)).count() as i64;
        let (least, most): (i64, i64) = (listed.iter().map(|item| item.0).sum(), listed.iter().map(|item| item.1).sum());
        for (group, (min, max)) in listed.iter().enumerate() {
            if all.len() as i64 >= least {
                prop_assert!(of(group) >= *min, "{:?}", all);
            }
            if all.len() as i64 <= most {
                prop_assert!(of(group) <= *max, "{:?}", all);
            }
        }
    }
}

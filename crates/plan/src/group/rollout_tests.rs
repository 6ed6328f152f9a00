//! Groups come one after another, and an edition that does harm takes one pod.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn name(edition: usize) -> EditionName {
    (edition > 0).then(|| Arc::from(format!("e{edition}")))
}

fn pod(number: usize, group: usize, edition: usize) -> PodEdition {
    PodEdition {
        name: Arc::from(format!("p{number}")),
        group,
        edition: name(edition),
        is_available: true,
        is_left: false,
        is_to_move: false,
        helps_early: false,
    }
}

fn facts(wanted: &[usize], pods: &[(usize, usize)]) -> Facts {
    Facts {
        wanted: wanted.iter().map(|edition| name(*edition)).collect(),
        pods: pods.iter().enumerate().map(|(number, (group, edition))| pod(number, *group, *edition)).collect(),
        others_down: 0,
        most_away: 1,
    }
}

#[test]
fn groups_come_one_after_another() {
    let mut known = facts(&[2, 2], &[(1, 1), (0, 1), (0, 1)]);
    assert_eq!((known.turn(), known.next()), (0, Next::Change(1)));
    known.pods[1].edition = name(2);
    known.pods[1].is_available = false;
    assert_eq!((known.turn(), known.next()), (0, Next::Wait), "until it is available");
    known.pods[1].is_available = true;
    assert_eq!(known.next(), Next::Change(2));
    known.pods[2].edition = name(2);
    assert_eq!((known.turn(), known.next()), (1, Next::Change(0)));
    known.pods[0].edition = name(2);
    assert_eq!((known.turn(), known.next()), (2, Next::Rest));
}

#[test]
fn the_first_pod_of_a_group_goes_alone() {
    let mut known = Facts { most_away: 3, ..facts(&[2], &[(0, 1), (0, 1), (0, 1)]) };
    assert_eq!(known.next(), Next::Change(0));
    (known.pods[0].edition, known.pods[0].is_available) = (name(2), false);
    assert_eq!(known.next(), Next::Wait);
    known.pods[0].is_available = true;
    assert_eq!(known.next(), Next::Change(1));
    (known.pods[1].edition, known.pods[1].is_available) = (name(2), false);
    assert_eq!(known.next(), Next::Change(2), "now two may be away");
}

#[test]
fn what_is_down_goes_first_and_a_fix_reaches_it() {
    let mut known = facts(&[3], &[(0, 1), (0, 2)]);
    // The edition before has broken it.
    known.pods[1].is_available = false;
    assert_eq!(known.next(), Next::Change(1));
    known.others_down = 1;
    assert_eq!(known.next(), Next::Wait, "something else is down");
    known.others_down = 0;
    known.pods[1].is_left = true;
    assert_eq!(known.next(), Next::Wait);
}

#[test]
fn pods_that_are_to_be_moved_hold_up_no_correction() {
    let mut known = facts(&[3, 3], &[(0, 1), (1, 2), (0, 3)]);
    known.pods[0].is_to_move = true;
    known.pods[1].is_available = false;
    assert_eq!(known.next(), Next::Change(1), "the edition before has broken it");
    // One that is down waits to be moved until the other is well, and is not waited for.
    known.pods[0].is_available = false;
    assert_eq!(known.next(), Next::Change(1));
    known.pods[1].is_available = true;
    assert_eq!(known.next(), Next::Wait, "what is available waits for all");
    known.pods[1].edition = name(3);
    assert_eq!(known.next(), Next::Rest, "the other gets no edition where it is");
}

#[test]
fn a_correction_reaches_what_is_down_before_the_turn_of_its_group() {
    // The edition before was fine for the first group, and broke a pod of the second.
    let mut known = facts(&[3, 3], &[(0, 2), (0, 2), (1, 2), (1, 1)]);
    known.pods[2].is_available = false;
    assert_eq!(known.next(), Next::Wait, "it would only be made anew as it is");
    known.pods[2].helps_early = true;
    assert_eq!((known.turn(), known.next()), (0, Next::Change(2)));
    known.pods[2].edition = name(3);
    assert_eq!(known.next(), Next::Wait, "until it is available");
    known.pods[2].is_available = true;
    assert_eq!(known.next(), Next::Change(0), "groups come in their order again");
}

#[test]
fn of_some_pods_only_those_that_are_down_are_asked_about() {
    let mut known = facts(&[3], &[(0, 2), (0, 2), (0, 2)]);
    known.pods.iter_mut().for_each(|pod| pod.helps_early = true);
    assert_eq!(known.next_down(|_| true), None, "what is available is not touched");
    (known.pods[0].is_available, known.pods[1].is_available) = (false, false);
    assert_eq!(known.next_down(|pod| pod > 0), Some(Next::Change(1)));
    known.pods[1].edition = name(3);
    assert_eq!(known.next_down(|_| true), Some(Next::Wait), "one after another");
    assert_eq!(known.next_down(|pod| pod > 1), None);
}

#[test]
fn groups_keep_what_they_have_until_their_turn() {
    let earlier = vec![vec![name(1), name(0)]; 3];
    let known = facts(&[2, 2, 2], &[(0, 1), (1, 1), (1, 0), (1, 1)]);
    assert_eq!(known.held(&earlier, false), [None, Some(name(1)), Some(name(1))], "the last has no pods");
    assert_eq!(known.held(&earlier, true), [Some(name(1)), Some(name(1)), Some(name(1))]);
    assert_eq!(known.held(&vec![Vec::new(); 3], false), [None, None, None], "the policy was never another");
    let other = facts(&[2, 2], &[(0, 1), (1, 5)]);
    assert_eq!(other.held(&earlier, false), [None, None], "what its pods have is none of the policy's");
    let done = facts(&[2, 2], &[(0, 2), (1, 2)]);
    assert_eq!((done.held(&earlier, false), done.held(&earlier, true)), (vec![None, None], vec![None, None]));
}

#[test]
fn what_is_left_as_it_is_holds_up_nothing() {
    let mut known = facts(&[2, 2], &[(0, 1), (1, 1)]);
    known.pods[0].is_left = true;
    assert_eq!((known.turn(), known.next()), (1, Next::Change(1)));
}

proptest! {
    /// It ends with every pod at its edition, with never more away than allowed.
    #[test]
    fn all_pods_get_their_edition(
        wanted in vec(0..3_usize, 1..5),
        placed in vec((0..5_usize, 0..3_usize), 1..30),
        most_away in 1..4_usize,
    ) {
        let placed: Vec<(usize, usize)> = placed.iter().map(|(group, edition)| (group % wanted.len(), *edition)).collect();
        let mut known = Facts { most_away, ..facts(&wanted, &placed) };
        let difference = placed.iter().filter(|(group, edition)| wanted[*group] != *edition).count();
        let mut changes = 0;
        loop {
            match known.next() {
                Next::Rest => break,
                Next::Wait => {
                    let down = known.pods.iter_mut().find(|pod| !pod.is_available).expect("something is waited for");
                    down.is_available = true;
                }
                Next::Change(number) => {
                    let group = known.pods[number].group;
                    prop_assert!(known.pods.iter().all(|pod| pod.group >= group || !known.is_outdated(pod)));
                    changes += 1;
                    known.pods[number].edition = known.wanted[group].clone();
                    known.pods[number].is_available = false;
                    prop_assert!(known.pods.iter().filter(|pod| !pod.is_available).count() <= most_away);
                }
            }
        }
        prop_assert_eq!(changes, difference);
    }

    /// An edition that breaks every pod that gets it takes one, however many may be away.
    #[test]
    fn an_edition_that_does_harm_takes_one_pod(pods in 1..30_usize, most_away in 1..5_usize) {
        let placed: Vec<(usize, usize)> = (0..pods).map(|number| (number % 3, 1)).collect();
        let mut known = Facts { most_away, ..facts(&[2, 2, 2], &placed) };
        while let Next::Change(number) = known.next() {
            let pod = &mut known.pods[number];
            (pod.edition, pod.is_available) = (name(2), false);
        }
        prop_assert_eq!(known.pods.iter().filter(|pod| !pod.is_available).count(), 1);
    }

    /// Whatever is down, is to be moved or left: no more of what is available is lost than may be away, and no more pods are changed,
    /// if every edition does harm.
    #[test]
    fn corrections_do_no_more_harm_than_allowed(
        placed in vec((0..3_usize, 0..3_usize, any::<bool>(), 0..4_u8), 1..30),
        most_away in 1..4_usize,
    ) {
        let editions: Vec<(usize, usize)> = placed.iter().map(|(group, edition, ..)| (*group, *edition)).collect();
        let mut known = Facts { most_away, ..facts(&[2, 2, 2], &editions) };
        for (pod, (_, _, is_available, kind)) in known.pods.iter_mut().zip(&placed) {
            pod.is_available = *is_available;
            (pod.is_to_move, pod.is_left, pod.helps_early) = (*kind == 1, *kind == 2, *kind == 3);
        }
        let mut changed = 0;
        while let Next::Change(number) = known.next() {
            let pod = &mut known.pods[number];
            prop_assert!(!pod.is_to_move && !pod.is_left);
            (pod.edition, pod.is_available) = (name(2), false);
            changed += 1;
            prop_assert!(changed <= most_away);
        }
    }
}

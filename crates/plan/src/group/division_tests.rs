//! Sequences of seats, held against what they are to be by definition.

use dapple_api::group::{NumRange, StaticNodeGroupWeight};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn weights(listed: &[(&str, i64)]) -> PropagationPolicySpec {
    let item = |(name, weight): &(&str, i64)| StaticNodeGroupWeight {
        node_group_names: vec![(*name).to_owned()],
        weight: *weight,
    };
    PropagationPolicySpec { static_weight_list: listed.iter().map(item).collect(), ..PropagationPolicySpec::default() }
}

fn ranges(listed: &[(&[&str], i32, Option<i32>)]) -> PropagationPolicySpec {
    let item = |(names, min, max): &(&[&str], i32, Option<i32>)| NumRange {
        node_group_names: names.iter().map(|name| (*name).to_owned()).collect(),
        min: Some(*min),
        max: *max,
    };
    PropagationPolicySpec { num_range: listed.iter().map(item).collect(), ..PropagationPolicySpec::default() }
}

/// The groups of the first seats, by name, until there is none.
fn sequence(policy: &PropagationPolicySpec, seats: usize) -> Vec<String> {
    let mut division = Division::of(policy).unwrap();
    let mut names = Vec::new();
    while let Some(group) = (names.len() < seats).then(|| division.group_at(names.len())).flatten() {
        names.push(division.groups()[group].to_string());
    }
    names
}

#[test]
fn the_specs_example_is_two_and_three() {
    let policy = weights(&[("Beijing", 2), ("Hangzhou", 3)]);
    assert_eq!(sequence(&policy, 5), ["hangzhou", "beijing", "hangzhou", "beijing", "hangzhou"]);
    assert_eq!(Division::of(&policy).unwrap().counts(5), [2, 3]);
}

#[test]
fn equal_claims_go_to_fewer_pods_and_then_to_the_first_name() {
    // After one seat each of three to one, 3/3 and 1/1 are equal: the smaller group has none yet.
    assert_eq!(sequence(&weights(&[("b", 1), ("a", 1)]), 4), ["a", "b", "a", "b"]);
    assert_eq!(sequence(&weights(&[("big", 3), ("small", 1)]), 4), ["big", "small", "big", "big"]);
}

#[test]
fn least_numbers_come_first_in_list_order_and_then_all_evenly_up_to_the_greatest() {
    let policy = ranges(&[(&["a"], 2, Some(3)), (&["b", "c"], 1, None)]);
    assert_eq!(sequence(&policy, 9), ["a", "a", "b", "c", "b", "c", "a", "b", "c"]);
    let policy = ranges(&[(&["a"], 1, Some(2)), (&["b"], 0, Some(1))]);
    assert_eq!(sequence(&policy, 9), ["a", "b", "a"], "further pods have no seat");
    let mut division = Division::of(&policy).unwrap();
    assert_eq!((division.group_at(3), division.counts(100)), (None, vec![2, 1]));
}

#[test]
fn names_compare_without_case_and_a_group_counts_once() {
    let policy = weights(&[("Beijing", 1), ("beijing", 9), ("hangzhou", 1)]);
    assert_eq!(Division::of(&policy).unwrap().counts(4), [2, 2]);
}

#[test]
fn a_policy_that_does_not_say_which_list_counts_divides_nothing() {
    let both = PropagationPolicySpec { num_range: ranges(&[(&["a"], 0, None)]).num_range, ..weights(&[("a", 1)]) };
    assert!(Division::of(&both).is_none());
    assert_eq!(sequence(&weights(&[("a", 0), ("b", -1)]), 3), Vec::<String>::new(), "no group has weight");
}

/// Webster's apportionment by definition: the greatest quotients of all.
fn webster(listed: &[i64], pods: usize) -> Vec<usize> {
    let mut quotients: Vec<(usize, u64, u64)> = Vec::new();
    for (group, weight) in listed.iter().enumerate() {
        quotients.extend((0..pods).map(|seats| (group, u64::try_from(*weight).unwrap(), seats as u64)));
    }
    quotients.sort_by(|(a, of_a, seats_a), (b, of_b, seats_b)| {
        let (left, right) = (of_a * (2 * seats_b + 1), of_b * (2 * seats_a + 1));
        right.cmp(&left).then(seats_a.cmp(seats_b)).then(a.cmp(b))
    });
    let mut counts = vec![0; listed.len()];
    for (group, ..) in &quotients[..pods] {
        counts[*group] += 1;
    }
    counts
}

proptest! {
    #[test]
    fn every_prefix_is_websters_apportionment(listed in vec(1_i64..40, 1..8), pods in 0_usize..80) {
        let names: Vec<String> = (0..listed.len()).map(|group| format!("g{group}")).collect();
        let policy: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(listed.iter().copied()).collect();
        let counts = Division::of(&weights(&policy)).unwrap().counts(pods);
        prop_assert_eq!(counts, webster(&listed, pods));
    }

    #[test]
    fn ranges_are_kept_while_they_can_be_and_what_is_above_the_least_is_even(
        listed in vec((0_i32..6, proptest::option::of(0_i32..9)), 1..7),
        pods in 0_usize..60,
    ) {
        let listed: Vec<(i32, Option<i32>)> =
            listed.into_iter().map(|(min, more)| (min, more.map(|more| min + more))).collect();
        let names: Vec<String> = (0..listed.len()).map(|group| format!("g{group}")).collect();
        let items: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        let policy: Vec<(&[&str], i32, Option<i32>)> =
            items.iter().zip(&listed).map(|(names, (min, max))| (&names[..], *min, *max)).collect();
        let counts = Division::of(&ranges(&policy)).unwrap().counts(pods);
        let range = |group: usize| {
            let (min, max) = listed[group];
            (usize::try_from(min).unwrap(), max.map_or(usize::MAX, |max| usize::try_from(max).unwrap()))
        };
        let all = 0..listed.len();
        let (least, most) = all.clone().map(range).fold((0, 0_usize), |(least, most), (min, max)| (least + min, most.saturating_add(max)));
        prop_assert_eq!(counts.iter().sum::<usize>(), pods.min(most), "all that have a seat");
        for group in all.clone() {
            let (min, max) = range(group);
            prop_assert!(counts[group] <= max);
            prop_assert!(pods < least || counts[group] >= min, "{:?}", counts);
            let has_fewer = |other: usize| counts[other] + 1 < counts[group] && counts[other] < range(other).1;
            prop_assert!(counts[group] <= min || !all.clone().any(has_fewer), "{:?}", counts);
        }
    }

    #[test]
    fn more_pods_take_none_away(listed in vec(1_i64..1_000_000, 1..6), pods in 0_usize..200) {
        let names: Vec<String> = (0..listed.len()).map(|group| format!("g{group}")).collect();
        let policy: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(listed.iter().copied()).collect();
        let mut division = Division::of(&weights(&policy)).unwrap();
        let (before, after) = (division.counts(pods), division.counts(pods + 1));
        prop_assert_eq!(after.iter().sum::<usize>(), pods + 1);
        prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
    }
}

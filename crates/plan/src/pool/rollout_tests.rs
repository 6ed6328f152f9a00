//! Rollouts over pools that are well, fall ill, or never were well.

use std::collections::BTreeMap;

use dapple_api::pool::{BadRule, Max, ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_SKIP};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn pool(name: &str) -> PoolState {
    PoolState {
        name: name.to_owned(),
        is_due: true,
        is_changed: false,
        is_done: true,
        is_available: true,
        was_available: true,
        is_broken: false,
        is_overdue: false,
    }
}

fn pools(count: usize) -> Vec<PoolState> {
    (0..count).map(|number| pool(&format!("p{number:02}"))).collect()
}

fn in_change(name: &str) -> PoolState {
    PoolState { is_due: false, is_changed: true, is_done: false, is_available: false, ..pool(name) }
}

fn done(name: &str) -> PoolState {
    PoolState { is_due: false, is_changed: true, ..pool(name) }
}

fn rules(pairs: &[(&str, &str)]) -> Result<Rules, BadRule> {
    let annotations: BTreeMap<String, String> =
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Rules::of(|key| annotations.get(key).map(String::as_str))
}

#[test]
fn one_pool_first_and_then_a_tenth_of_them() {
    let mut all = pools(25);
    assert_eq!(next(&all, &Rules::default(), 0), Next::Change(vec![0]));
    all[0] = in_change("p00");
    assert_eq!(next(&all, &Rules::default(), 0), Next::Wait(vec![0]));
    all[0] = done("p00");
    assert_eq!(next(&all, &Rules::default(), 0), Next::Change(vec![1, 2, 3]), "a tenth of 25, rounded up");
    assert_eq!(next(&all.iter().map(|pool| done(&pool.name)).collect::<Vec<_>>(), &Rules::default(), 0), Next::Rest);
}

#[test]
fn what_was_changed_and_is_not_available_counts_whatever_made_it_so() {
    let mut all = pools(20);
    all[0] = done("p00");
    all[1] = PoolState { is_available: false, ..done("p01") };
    assert_eq!(next(&all, &Rules::default(), 0), Next::Change(vec![2]));
    all[0].is_available = false;
    assert_eq!(next(&all, &Rules::default(), 0), Next::Wait(vec![0, 1]));
    let skipping = rules(&[(ROLLOUT_SKIP, "p01")]).unwrap();
    assert_eq!(next(&all, &skipping, 0), Next::Change(vec![2]), "one of them is not waited for");
}

#[test]
fn a_pool_that_is_not_done_in_time_stops_the_rollout_unless_it_was_never_well() {
    let mut all = pools(20);
    all[0] = PoolState { is_overdue: true, ..in_change("p00") };
    assert_eq!(next(&all, &Rules::default(), 0), Next::Stopped(vec![0]));
    all[0].was_available = false;
    assert_eq!(next(&all, &Rules::default(), 0), Next::Wait(vec![0]), "it counts, and stops nothing");
    let several = rules(&[(ROLLOUT_MAX, "2")]).unwrap();
    assert_eq!(next(&all, &several, 0), Next::Change(vec![1]));
}

#[test]
fn what_is_broken_comes_first_and_what_never_was_well_last() {
    let mut all = pools(6);
    all[1].is_available = false;
    all[4] = PoolState { is_available: false, is_broken: true, ..all[4].clone() };
    let ordered = rules(&[(ROLLOUT_MAX, "100%"), (ROLLOUT_ORDER, "p05, *,p00")]).unwrap();
    assert_eq!(next(&all, &ordered, 0), Next::Change(vec![4, 5, 2, 3, 0, 1]));
    // One that this rollout has changed already takes no more of the budget.
    all[3] = PoolState { is_due: true, ..in_change("p03") };
    assert_eq!(next(&all, &Rules::default(), 0), Next::Change(vec![3]));
}

#[test]
fn rules_that_say_nothing_clear_are_told() {
    let told = |pairs: &[(&str, &str)]| rules(pairs).unwrap_err().to_string();
    for text in ["0", "0%", "101%", "-1", "a", "", "1.5", "%"] {
        assert!(told(&[(ROLLOUT_MAX, text)]).contains("neither a number of pools"), "{text}");
    }
    assert!(told(&[(ROLLOUT_ORDER, "a b,a")]).contains("\"a\" is there twice"));
    assert!(told(&[(ROLLOUT_SKIP, "*")]).contains("wait for no pool"));
    assert_eq!(rules(&[(ROLLOUT_MAX, " 25% ")]).unwrap().budget(10, false), 3);
    assert_eq!(rules(&[]).unwrap(), Rules::default());
}

proptest! {
    /// Whatever happens to pools meanwhile, no more are started than the budget leaves; and a version that turns ready and then
    /// takes every pool down, changed or not, is started nowhere else once as many as the budget have it.
    #[test]
    fn a_version_that_takes_everything_down_stays_where_it_is(
        count in 1_usize..60,
        percent in proptest::option::of(1_usize..=100),
        happens in vec(any::<u8>(), 1..40),
        strikes_at in 0_usize..40,
    ) {
        let rules = Rules { max: percent.map(Max::Percent), ..Rules::default() };
        let mut all = pools(count);
        let mut has_struck = false;
        for (step, what) in happens.into_iter().enumerate() {
            if step == strikes_at {
                has_struck = true;
            }
            if has_struck {
                all.iter_mut().for_each(|pool| pool.is_available = false);
            }
            let before = all.iter().filter(|pool| pool.is_changed && !(pool.is_done && pool.is_available)).count();
            let changed = all.iter().filter(|pool| pool.is_changed).count();
            let budget = budget(&all, &rules);
            if let Next::Change(places) = next(&all, &rules, 0) {
                prop_assert!(before + places.len() <= budget);
                prop_assert!(!has_struck || changed + places.len() <= budget);
                for place in places {
                    all[place] = in_change(&all[place].name.clone());
                }
            }
            // Some of those in change get done.
            let started = all.iter_mut().filter(|pool| pool.is_changed && !pool.is_done);
            for (number, pool) in started.enumerate() {
                if (what >> (number % 8)) & 1 == 1 {
                    pool.is_done = true;
                    pool.is_available = !has_struck;
                }
            }
        }
    }
}

//! Which pools of an application are changed next.
//!
//! Every write that changes the pods of a pool, or takes some away, goes through here, whatever the cause is: one edit can restart
//! hundreds of sites. Invariants, whatever the facts are:
//! - No pool is changed while as many as the budget are being changed, or were changed by this rollout and are not available,
//!   whatever made them so: a bad version may take down what it runs on.
//! - A pool that was available, was changed and is not done in time stops the rollout: nothing is changed any more.
//! - A pool that counts already goes first and takes no more of the budget, and so a fix reaches what a rollout has broken.
//!
//! All of it is read from the cluster, so that a new leader decides the same.

use dapple_api::pool::Rules;

use crate::mutant::{Mutant, is_on};

/// A pool of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    /// Its name.
    pub name: String,
    /// Whether its workload is not as it should be, and the difference concerns its pods.
    pub is_due: bool,
    /// Whether this rollout has changed it.
    pub is_changed: bool,
    /// Whether its workload has observed what was last written, and all its pods are of that and have been available for long
    /// enough.
    pub is_done: bool,
    /// Whether all its pods are available now.
    pub is_available: bool,
    /// Whether they all were when this rollout changed it.
    pub was_available: bool,
    /// Whether a rollout that never came to all pools changed it, and it is not available.
    pub is_broken: bool,
    /// Whether it should have been done by now.
    pub is_overdue: bool,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: every pool is as it should be.
    Rest,
    /// Nothing yet: these pools use the budget up.
    Wait(Vec<usize>),
    /// Nothing any more: these pools are not done in time.
    Stopped(Vec<usize>),
    /// These pools are changed.
    Change(Vec<usize>),
}

/// The pools that use the budget up: those in change, and those that this rollout changed and that are not available.
#[must_use]
pub fn counted(pools: &[PoolState], rules: &Rules) -> Vec<usize> {
    (0..pools.len()).filter(|place| counts(&pools[*place], rules)).collect()
}

fn counts(pool: &PoolState, rules: &Rules) -> bool {
    pool.is_changed && !rules.skip.contains(&pool.name) && !(pool.is_done && pool.is_available)
}

/// How many pools may be changed at once.
#[must_use]
pub fn budget(pools: &[PoolState], rules: &Rules) -> usize {
    // One that is due again, since something else than a revision has changed, is not done.
    let is_first_done = pools.iter().any(|pool| pool.is_changed && pool.is_done && !pool.is_due);
    rules.budget(pools.len(), is_first_done || is_on(Mutant::FirstPoolNotAlone))
}

/// What is done next about the pools of an application. So many of the budget are `reserved` for pools that are being deleted.
#[must_use]
pub fn next(pools: &[PoolState], rules: &Rules, reserved: usize) -> Next {
    let mut due: Vec<usize> = (0..pools.len()).filter(|place| pools[*place].is_due).collect();
    if due.is_empty() {
        return Next::Rest;
    }
    let counted = counted(pools, rules);
    let is_stuck = |pool: &PoolState| !pool.is_done && pool.is_overdue && pool.was_available;
    let stuck: Vec<usize> = counted.iter().copied().filter(|place| is_stuck(&pools[*place])).collect();
    if !stuck.is_empty() {
        return Next::Stopped(stuck);
    }
    due.sort_by_key(|place| {
        let pool = &pools[*place];
        (rank(pool, counts(pool, rules)), rules.position(&pool.name), &pool.name)
    });
    let budget = if is_on(Mutant::PoolBudgetForgotten) { usize::MAX } else { budget(pools, rules) };
    let mut used = counted.len() + reserved;
    let mut changed = Vec::new();
    for place in due {
        if !counts(&pools[place], rules) {
            if used >= budget {
                break;
            }
            used += 1;
        }
        changed.push(place);
    }
    if changed.is_empty() { Next::Wait(counted) } else { Next::Change(changed) }
}

/// Which pools come first: those that count already, those that the last rollout broke, those that are well, and then the others,
/// of which nobody can tell whether the change does them good.
fn rank(pool: &PoolState, counts: bool) -> u8 {
    match pool {
        _ if counts => 0,
        PoolState { is_broken: true, .. } if !is_on(Mutant::BrokenPoolsLast) => 1,
        PoolState { is_available: true, .. } => 2,
        _ => 3,
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;

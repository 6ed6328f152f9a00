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

use std::collections::BTreeSet;

use dapple_api::pool::{ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_SKIP};

use crate::node::Labels;

/// Stands for all pools that are not named.
const REST: &str = "*";

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
    /// Whether the rollout before this one changed it, and it has not been available since.
    pub is_broken: bool,
    /// Whether it should have been done by now.
    pub is_overdue: bool,
}

/// How many pools may be changed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Max {
    /// So many.
    Pools(usize),
    /// So many of a hundred, rounded up.
    Percent(usize),
}

/// What annotations say of rollouts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// How many pools may be changed at once. If nothing is said, one first, and then a tenth of them.
    pub max: Option<Max>,
    /// Pools in the order in which they are changed, `*` for all others.
    pub order: Vec<String>,
    /// Pools that are not waited for.
    pub skip: BTreeSet<String>,
}

/// An annotation that does not say how pools are to be rolled out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation}: {text}")]
pub struct BadRule {
    /// Which annotation.
    pub annotation: &'static str,
    /// What is wrong with it, and what would be right.
    pub text: String,
}

impl Rules {
    /// What annotations say.
    pub fn of(annotations: &dyn Labels) -> Result<Self, BadRule> {
        let names = |annotation: &'static str| {
            let text = annotations.get(annotation).unwrap_or_default();
            text.split(|letter: char| letter == ',' || letter.is_whitespace()).filter(|name| !name.is_empty())
        };
        let order: Vec<String> = names(ROLLOUT_ORDER).map(str::to_owned).collect();
        let mut known = BTreeSet::new();
        if let Some(twice) = order.iter().find(|name| !known.insert(*name)) {
            let text = format!("{twice:?} is there twice: leave it out once");
            return Err(BadRule { annotation: ROLLOUT_ORDER, text });
        }
        let skip: BTreeSet<String> = names(ROLLOUT_SKIP).map(str::to_owned).collect();
        if skip.contains(REST) {
            let text = "\"*\" would have the rollout wait for no pool: name pools".to_owned();
            return Err(BadRule { annotation: ROLLOUT_SKIP, text });
        }
        Ok(Self { max: annotations.get(ROLLOUT_MAX).map(max).transpose()?, order, skip })
    }

    /// How many of so many pools may be changed at once.
    #[must_use]
    pub fn budget(&self, pools: usize, is_first_done: bool) -> usize {
        match self.max {
            Some(Max::Pools(number)) => number,
            Some(Max::Percent(percent)) => pools.saturating_mul(percent).div_ceil(100),
            None if is_first_done => pools.div_ceil(10),
            None => 1,
        }
        .max(1)
    }

    fn position(&self, pool: &str) -> usize {
        let named = |name: &str| self.order.iter().position(|known| known == name);
        named(pool).or_else(|| named(REST)).unwrap_or(self.order.len())
    }
}

fn max(text: &str) -> Result<Max, BadRule> {
    let (number, is_percent) = match text.trim().strip_suffix('%') {
        Some(number) => (number, true),
        None => (text.trim(), false),
    };
    match (number.parse::<usize>(), is_percent) {
        (Ok(percent @ 1..=100), true) => Ok(Max::Percent(percent)),
        (Ok(pools @ 1..), false) => Ok(Max::Pools(pools)),
        _ => {
            let text = format!("{text:?} is neither a number of pools, such as \"2\", nor a share, such as \"10%\"");
            Err(BadRule { annotation: ROLLOUT_MAX, text })
        }
    }
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

/// What is done next about the pools of an application.
#[must_use]
pub fn next(pools: &[PoolState], rules: &Rules) -> Next {
    let is_waited_for = |pool: &PoolState| !rules.skip.contains(&pool.name);
    let counts = |pool: &PoolState| pool.is_changed && is_waited_for(pool) && !(pool.is_done && pool.is_available);
    let is_stuck = |pool: &PoolState| counts(pool) && !pool.is_done && pool.is_overdue && pool.was_available;
    let such = |is_such: &dyn Fn(&PoolState) -> bool| -> Vec<usize> {
        (0..pools.len()).filter(|place| is_such(&pools[*place])).collect()
    };
    let mut due = such(&|pool| pool.is_due);
    if due.is_empty() {
        return Next::Rest;
    }
    let stuck = such(&is_stuck);
    if !stuck.is_empty() {
        return Next::Stopped(stuck);
    }
    due.sort_by_key(|place| {
        let pool = &pools[*place];
        (rank(pool, counts(pool)), rules.position(&pool.name), &pool.name)
    });
    let counted = such(&counts);
    let budget = rules.budget(pools.len(), pools.iter().any(|pool| pool.is_changed && pool.is_done));
    let mut used = counted.len();
    let mut changed = Vec::new();
    for place in due {
        if !counts(&pools[place]) {
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
        PoolState { is_broken: true, .. } => 1,
        PoolState { is_available: true, .. } => 2,
        _ => 3,
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;

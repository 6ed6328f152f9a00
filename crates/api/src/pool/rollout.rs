//! What annotations say of rollouts over pools.

use std::collections::BTreeSet;

use super::{ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_SKIP};

/// Stands for all pools that are not named.
const REST: &str = "*";

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
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Result<Self, BadRule> {
        let names = |name: &str| {
            let text = annotation(name).unwrap_or_default();
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
        Ok(Self { max: annotation(ROLLOUT_MAX).map(max).transpose()?, order, skip })
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

    /// The place of a pool in the order.
    #[must_use]
    pub fn position(&self, pool: &str) -> usize {
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

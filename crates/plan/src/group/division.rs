//! How a PropagationPolicy divides pods among groups: one endless sequence of seats, of which n pods take the first n.
//!
//! Invariant: the group of a seat follows from the policy alone, not from how many pods there are or how they came. So more
//! pods take none away from any group, and fewer pods than before are the same ones without the last.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use dapple_api::group::{PropagationPolicySpec, PropagationStrategy};

/// The sequence of a policy, as far as it was asked for.
#[derive(Debug)]
pub struct Division {
    groups: Vec<Arc<str>>,
    rest: Rest,
    /// The group of each seat.
    order: Vec<usize>,
    /// The seats of each group, in order.
    seats_of: Vec<Vec<usize>>,
}

/// What comes after the seats that are known.
#[derive(Debug)]
enum Rest {
    Weights(BinaryHeap<Claim>),
    Ranges {
        /// Groups with how many of their least numbers are left.
        least: std::vec::IntoIter<(usize, usize)>,
        /// How many pods groups have once all least numbers are reached, and the groups.
        even: BinaryHeap<Reverse<(usize, usize)>>,
        min: Vec<usize>,
        most: Vec<usize>,
    },
}

/// The claim of a group to the next seat. The greatest gets it.
#[derive(Debug, PartialEq, Eq)]
struct Claim {
    weight: u64,
    seats: u64,
    name: Arc<str>,
    group: usize,
}

impl Ord for Claim {
    /// By Webster: weight / (2 * seats + 1), as whole numbers. Ties go to fewer seats, then to the first name.
    fn cmp(&self, other: &Self) -> Ordering {
        let product = |weight: u64, seats: u64| u128::from(weight) * (2 * u128::from(seats) + 1);
        product(self.weight, other.seats)
            .cmp(&product(other.weight, self.seats))
            .then_with(|| other.seats.cmp(&self.seats))
            .then_with(|| other.name.cmp(&self.name))
            .then_with(|| other.group.cmp(&self.group))
    }
}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Division {
    /// How a policy divides pods. None if it does not say which of its lists counts. A group that is listed twice counts where
    /// it comes first.
    #[must_use]
    pub fn of(policy: &PropagationPolicySpec) -> Option<Self> {
        let mut known = BTreeSet::new();
        let mut is_first = |name: &Arc<str>| known.insert(name.clone());
        let name = |name: &String| Arc::<str>::from(name.to_ascii_lowercase());
        Some(match policy.strategy()? {
            PropagationStrategy::StaticWeight => {
                let listed = policy.static_weight_list.iter();
                let each = listed.flat_map(|item| item.node_group_names.iter().map(|group| (name(group), item.weight)));
                Self::by_weight(each.filter(|(group, _)| is_first(group)).collect())
            }
            PropagationStrategy::NumRange => {
                let size = |count: i32| usize::try_from(count).unwrap_or(0);
                let listed = policy.num_range.iter();
                let each = listed.flat_map(|item| {
                    let range = (size(item.min()), item.max.map_or(usize::MAX, size));
                    item.node_group_names.iter().map(move |group| (name(group), range))
                });
                Self::by_range(each.filter(|(group, _)| is_first(group)).collect())
            }
        })
    }

    fn by_weight(listed: Vec<(Arc<str>, i64)>) -> Self {
        let claim = |(group, (name, weight)): (usize, &(Arc<str>, i64))| Claim {
            weight: u64::try_from(*weight).unwrap_or(0),
            seats: 0,
            name: name.clone(),
            group,
        };
        // A group without weight gets no pod.
        let claims = listed.iter().enumerate().map(claim).filter(|claim| claim.weight > 0).collect();
        Self::new(listed.into_iter().map(|(name, _)| name).collect(), Rest::Weights(claims))
    }

    fn by_range(listed: Vec<(Arc<str>, (usize, usize))>) -> Self {
        let most: Vec<usize> = listed.iter().map(|(_, (_, most))| *most).collect();
        let least: Vec<(usize, usize)> =
            listed.iter().enumerate().map(|(group, (_, (least, most)))| (group, *least.min(most))).collect();
        let even = least.iter().map(|(group, least)| Reverse((*least, *group))).collect();
        let min = least.iter().map(|(_, least)| *least).collect();
        let rest = Rest::Ranges { least: least.into_iter(), even, min, most };
        Self::new(listed.into_iter().map(|(name, _)| name).collect(), rest)
    }

    fn new(groups: Vec<Arc<str>>, rest: Rest) -> Self {
        let seats_of = vec![Vec::new(); groups.len()];
        Self { groups, rest, order: Vec::new(), seats_of }
    }

    /// The groups that are listed, in the policy's order, in lower case.
    #[must_use]
    pub fn groups(&self) -> &[Arc<str>] {
        &self.groups
    }

    /// The group of a seat, by its place in [`Self::groups`]. None if there is no such seat: all groups are full.
    pub fn group_at(&mut self, seat: usize) -> Option<usize> {
        self.extend(seat + 1);
        self.order.get(seat).copied()
    }

    /// How many of the first `pods` seats each group has.
    pub fn counts(&mut self, pods: usize) -> Vec<usize> {
        self.extend(pods);
        self.seats_of.iter().map(|seats| seats.partition_point(|seat| *seat < pods)).collect()
    }

    /// How many seats a group has before this one.
    pub fn rank_of(&mut self, group: usize, seat: usize) -> usize {
        self.extend(seat);
        self.seats_of.get(group).map_or(0, |seats| seats.partition_point(|known| *known < seat))
    }

    /// The seat of a group before which it has so many, among the first `pods`.
    pub fn seat_at(&mut self, group: usize, rank: usize, pods: usize) -> Option<usize> {
        self.extend(pods);
        self.seats_of.get(group)?.get(rank).copied().filter(|seat| *seat < pods)
    }

    /// Whether it is by range, and not by weight.
    #[must_use]
    pub fn is_by_range(&self) -> bool {
        matches!(self.rest, Rest::Ranges { .. })
    }

    /// The number of pods that a group gets before any other gets more than its own: by range alone.
    pub fn least(&self, group: usize) -> usize {
        match &self.rest {
            Rest::Weights(_) => usize::MAX,
            Rest::Ranges { min, .. } => min.get(group).copied().unwrap_or(0),
        }
    }

    /// The greatest number of pods that a group may have.
    pub fn most(&self, group: usize) -> usize {
        match &self.rest {
            Rest::Weights(_) => usize::MAX,
            Rest::Ranges { most, .. } => most.get(group).copied().unwrap_or(0),
        }
    }

    fn extend(&mut self, seats: usize) {
        while self.order.len() < seats
            && let Some(group) = self.rest.next()
        {
            self.seats_of[group].push(self.order.len());
            self.order.push(group);
        }
    }
}

impl Rest {
    fn next(&mut self) -> Option<usize> {
        match self {
            Self::Weights(claims) => {
                let claim = claims.pop()?;
                let group = claim.group;
                claims.push(Claim { seats: claim.seats + 1, ..claim });
                Some(group)
            }
            Self::Ranges { least, even, most, .. } => {
                while let Some((group, left)) = least.as_mut_slice().first_mut() {
                    if *left > 0 {
                        *left -= 1;
                        return Some(*group);
                    }
                    least.next();
                }
                while let Some(Reverse((pods, group))) = even.pop() {
                    // One that is full stays so.
                    if pods < most[group] {
                        even.push(Reverse((pods + 1, group)));
                        return Some(group);
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "division_tests.rs"]
mod tests;

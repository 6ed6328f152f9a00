//! Who sits where: the pods of one owner revision under one policy, and where those that wait are placed.
//!
//! n pods take the first n seats of the policy's [`Division`]. What counts is how many pods a group has; the number of a
//! seat says who goes first when there are fewer pods: the last ones.
//!
//! Invariants: no seat is given twice. No group gets a pod that waits while it has as many as its share of all pods, unless the
//! pod's volumes allow no other, or, by range, the group whose share it is has no room for it; and then none gets more than its
//! greatest number. The cost of a change does not depend on the number of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::division::Division;

/// So far beyond the number of pods a seat is believed: whoever may write a pod can claim any.
const BEYOND: usize = 64;

/// Of an owner with so many pods, seats below this are believed to be had.
#[must_use]
pub fn believed(pods: usize) -> usize {
    pods.saturating_mul(2).saturating_add(BEYOND)
}

/// A pod that has a place, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its group, by its place in the policy; none if the policy does not list it.
    pub group: Option<usize>,
    /// The seat that it was given.
    pub seat: Option<usize>,
}

/// A pod that waits to be placed.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// Its ordinal, if its owner numbers its pods: that is its seat.
    pub ordinal: Option<usize>,
    /// How the edition that it was made by suits each group, by its place in the policy. Empty if there are none.
    pub suits: Vec<Suits>,
    /// Whether it must not be replaced by another: it rather goes to the group that it was made for.
    pub is_kept: bool,
    /// The only groups that its volumes allow.
    pub allowed: Option<BTreeSet<usize>>,
    /// Groups that it is not sent to for want of room elsewhere: it would wait there behind the gate.
    pub barred: BTreeSet<usize>,
}

/// Whether a group has room for one of the pods that wait, by its place among them, beside so many of them that go there too.
pub type HasRoom<'r> = &'r dyn Fn(usize, usize, usize) -> bool;

/// How far a step of placing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Groups get their least number; by weight, their share.
    Least,
    /// Groups with room get their share.
    Room,
    /// By range, groups with room get what others have no room for.
    Beyond,
}

/// The steps of placing. By range, every group has its least number before any other gets more, and gets pods that are made anew
/// for that before others are sent on for want of room. Within that, what suits a group as it is need not be changed there: those
/// first. What suits none takes what is left.
const STEPS: [(Extent, Suits); 8] = [
    (Extent::Least, Suits::AsItIs),
    (Extent::Least, Suits::Corrected),
    (Extent::Room, Suits::AsItIs),
    (Extent::Room, Suits::Corrected),
    (Extent::Least, Suits::Never),
    (Extent::Beyond, Suits::AsItIs),
    (Extent::Beyond, Suits::Corrected),
    (Extent::Beyond, Suits::Never),
];

/// The pods that are placed at once.
struct Round<'r> {
    has_room: HasRoom<'r>,
    /// How many pods each group should have in the end.
    shares: Vec<usize>,
    /// How many of them each group has got.
    taken: Vec<usize>,
    step: (Extent, Suits),
}

impl Round<'_> {
    fn has_room(&self, pod: usize, group: usize) -> bool {
        (self.has_room)(pod, group, self.taken[group])
    }
}

/// How the edition that a pod was made by suits a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suits {
    /// It is the group's own.
    AsItIs,
    /// The group's own can be put in its place on a pod that waits.
    Corrected,
    /// It takes another pod.
    Never,
}

/// Where a pod is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The group, by its place in the policy.
    pub group: usize,
    /// The seat, if it has one.
    pub seat: Option<usize>,
}

/// The pods of one owner revision.
#[derive(Debug)]
pub struct Seating {
    division: Division,
    /// How many pods live, those that wait included.
    live: usize,
    pods: BTreeMap<Arc<str>, Place>,
    /// Pods that say a seat which another has, as the view is. Seats are exchanged when a policy changes, and told one after the
    /// other: it is theirs as soon as the other has it no more.
    claims: BTreeMap<Arc<str>, Place>,
    rows: Vec<Row>,
}

/// The seats of one group, by how many it has before.
#[derive(Debug, Clone, Default)]
struct Row {
    pods: usize,
    /// Seats below `end` that nobody has.
    free: BTreeSet<usize>,
    end: usize,
}

impl Row {
    fn is_free(&self, rank: usize) -> bool {
        rank >= self.end || self.free.contains(&rank)
    }

    fn take(&mut self, rank: usize) {
        self.free.extend(self.end..rank.max(self.end));
        self.end = self.end.max(rank + 1);
        self.free.remove(&rank);
    }

    fn leave(&mut self, rank: usize) {
        self.free.insert(rank);
        while self.end > 0 && self.free.remove(&(self.end - 1)) {
            self.end -= 1;
        }
    }

    fn lowest(&self) -> usize {
        self.free.first().copied().unwrap_or(self.end)
    }
}

impl Seating {
    /// Nobody yet.
    #[must_use]
    pub fn new(division: Division) -> Self {
        let rows = vec![Row::default(); division.groups().len()];
        Self { division, live: 0, pods: BTreeMap::new(), claims: BTreeMap::new(), rows }
    }

    /// How its policy divides pods.
    #[must_use]
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// How many pods live, those that wait included. To be said before any of them is put.
    pub fn set_live(&mut self, live: usize) {
        self.live = live;
    }

    /// A pod has this place. Returns the seat that it sits on: its own, if that is one of its group and nobody has it.
    pub fn put(&mut self, pod: &Arc<str>, placed: Placed) -> Option<usize> {
        self.remove(pod);
        let group = placed.group.filter(|group| *group < self.rows.len())?;
        let seat = placed.seat.filter(|seat| *seat < believed(self.live));
        let seat = seat.filter(|seat| self.division.group_at(*seat) == Some(group));
        let rank = seat.map(|seat| self.division.rank_of(group, seat)).filter(|rank| self.rows[group].is_free(*rank));
        self.rows[group].pods += 1;
        match rank {
            Some(rank) => self.rows[group].take(rank),
            None if seat.is_some() => _ = self.claims.insert(pod.clone(), Place { group, seat }),
            None => {}
        }
        let seat = seat.filter(|_| rank.is_some());
        self.pods.insert(pod.clone(), Place { group, seat });
        seat
    }

    /// A pod is gone, or has no place any more.
    pub fn remove(&mut self, pod: &str) {
        self.claims.remove(pod);
        let Some(left) = self.pods.remove(pod) else { return };
        self.rows[left.group].pods -= 1;
        let Some(seat) = left.seat else { return };
        match self.claims.iter().find(|(_, claimed)| **claimed == left).map(|(pod, _)| pod.clone()) {
            Some(next) => {
                self.claims.remove(&next);
                self.pods.insert(next, left);
            }
            None => {
                let rank = self.division.rank_of(left.group, seat);
                self.rows[left.group].leave(rank);
            }
        }
    }

    /// How many pods each group has, and how many are its share.
    pub fn counts(&mut self) -> Vec<(usize, usize)> {
        self.counts_with(0)
    }

    /// As [`Self::counts`], if so many pods live besides.
    pub fn counts_with(&mut self, besides: usize) -> Vec<(usize, usize)> {
        let shares = self.division.counts(self.live.saturating_add(besides));
        self.rows.iter().map(|row| row.pods).zip(shares).collect()
    }

    /// Whether a pod has a place.
    #[must_use]
    pub fn has(&self, pod: &str) -> bool {
        self.pods.contains_key(pod)
    }

    /// Places pods that wait, all at once, in the order in which they came. None for one that has no place: every group has
    /// its greatest number. Whether a group has room is asked by range only, and only for pods above its least number.
    pub fn place(&mut self, waiting: &[(Arc<str>, Waiting)], has_room: HasRoom<'_>) -> Vec<Option<Place>> {
        let shares = self.division.counts(self.live);
        let mut round = Round { has_room, shares, taken: vec![0; self.rows.len()], step: STEPS[0] };
        let mut places: Vec<Option<Place>> = vec![None; waiting.len()];
        for step in STEPS {
            round.step = step;
            for (number, (pod, waits)) in waiting.iter().enumerate() {
                if places[number].is_some() {
                    continue;
                }
                places[number] = match waits.ordinal {
                    Some(ordinal) => self.at_ordinal(waits, ordinal),
                    None => self.first_open((number, waits), &round),
                };
                if let Some(Place { group, seat }) = places[number] {
                    round.taken[group] += 1;
                    self.put(pod, Placed { group: Some(group), seat });
                }
            }
        }
        places
    }

    fn at_ordinal(&mut self, waits: &Waiting, ordinal: usize) -> Option<Place> {
        let group = self.division.group_at(ordinal)?;
        if !waits.is_allowed(group) {
            return self.by_volumes(waits);
        }
        let own = Place { group, seat: Some(ordinal) };
        Some(if waits.suits(group) == Suits::Never { self.made_for(waits).unwrap_or(own) } else { own })
    }

    /// Whether a group gets a pod in this step: it has less than it should have by then, the pod suits it, and its volumes allow it.
    fn is_open(&self, group: usize, (number, waits): (usize, &Waiting), round: &Round<'_>) -> bool {
        let (extent, at_most) = round.step;
        let (least, share, pods) = (self.division.least(group), round.shares[group], self.rows[group].pods);
        let is_below = match extent {
            Extent::Least => pods < share.min(least),
            Extent::Room => pods < share && (pods < least || round.has_room(number, group)),
            Extent::Beyond => pods < share,
        };
        is_below && waits.suits(group) <= at_most && waits.is_allowed(group)
    }

    /// The open group whose free seat comes first.
    fn first_open(&mut self, (number, waits): (usize, &Waiting), round: &Round<'_>) -> Option<Place> {
        // One that must not be made anew may yet find a group that it suits.
        if waits.is_kept && round.step == (Extent::Least, Suits::Never) && self.division.is_by_range() {
            return None;
        }
        let is_open = |group: &usize| self.is_open(*group, (number, waits), round);
        let open: Vec<usize> = (0..self.rows.len()).filter(is_open).collect();
        let first =
            open.into_iter().min_by_key(|group| self.lowest_below(*group, self.live).seat.unwrap_or(usize::MAX));
        match first {
            Some(group) if waits.suits(group) == Suits::Never => {
                Some(self.made_for(waits).unwrap_or_else(|| self.take(group, (number, waits), round)))
            }
            Some(group) => Some(self.take(group, (number, waits), round)),
            None if round.step == (Extent::Beyond, Suits::Never) => self.by_volumes(waits),
            None => None,
        }
    }

    /// The group that a pod was made for, if it must not be replaced, though that has its share.
    fn made_for(&self, waits: &Waiting) -> Option<Place> {
        let made_for = |group: &usize| waits.suits(*group) < Suits::Never && waits.is_allowed(*group);
        let groups = (0..self.rows.len()).filter(|_| waits.is_kept).filter(made_for);
        let group = groups.min_by_key(|group| (waits.suits(*group), self.rows[*group].pods))?;
        Some(Place { group, seat: None })
    }

    /// A place in a group; by range, and above its least number, in the next one with room if it has none.
    fn take(&mut self, group: usize, (number, waits): (usize, &Waiting), round: &Round<'_>) -> Place {
        let may_pass = self.rows[group].pods >= self.division.least(group) && !round.has_room(number, group);
        let is_open = |other: &usize| {
            let is_below = self.rows[*other].pods < self.division.most(*other);
            // One that would have to be made anew there would be made for the same group again.
            let suits = waits.suits(*other) < Suits::Never || waits.suits(group) == Suits::Never;
            *other != group && is_below && suits && waits.is_allowed(*other) && !waits.barred.contains(other)
        };
        let mut others: Vec<usize> = (0..self.rows.len()).filter(|_| may_pass).filter(is_open).collect();
        others.sort_by_key(|other| self.rows[*other].pods);
        match others.into_iter().find(|other| round.has_room(number, *other)) {
            // With the next seat there, though that be beyond the group's share: then it goes before those within theirs.
            Some(other) => self.lowest_below(other, believed(self.live)),
            None => self.lowest_below(group, self.live),
        }
    }

    /// A group that a pod's volumes allow, though it has its share; none if they allow all.
    fn by_volumes(&self, waits: &Waiting) -> Option<Place> {
        let allowed = waits.allowed.as_ref()?.iter().filter(|group| **group < self.rows.len());
        let group = *allowed.min_by_key(|group| self.rows[**group].pods)?;
        Some(Place { group, seat: None })
    }

    /// The first free seat of a group, if it is one of the first `seats`.
    fn lowest_below(&mut self, group: usize, seats: usize) -> Place {
        let rank = self.rows[group].lowest();
        Place { group, seat: self.division.seat_at(group, rank, seats) }
    }
}

impl Waiting {
    /// How it suits a group.
    #[must_use]
    pub fn suits(&self, group: usize) -> Suits {
        self.suits.get(group).copied().unwrap_or(Suits::AsItIs)
    }

    fn is_allowed(&self, group: usize) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&group))
    }
}

#[cfg(test)]
#[path = "seating_tests.rs"]
mod tests;

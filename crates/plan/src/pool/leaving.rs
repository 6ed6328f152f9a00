//! Nodes that leave their pool, and when what it put on them may be undone.
//!
//! One script can take the label off hundreds of nodes. If more than a tenth of a pool's nodes, and more than two, leave within ten
//! minutes, nothing is undone on them until somebody says that it was meant.
//!
//! What that takes to know is in the cluster. A node that has left and is not undone yet says itself which pool it was in. One that
//! is undone says nothing any more, so the pool's status names it, with the time, before anything is undone on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::pool::LeftNode;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::mutant::{Mutant, is_on};

/// Nodes that leave within so many seconds have left together.
pub const TOGETHER: i64 = 600;
/// So many may always leave.
const FEW: usize = 2;
/// Of a pool, one in so many may leave.
const SHARE: usize = 10;

/// Those who leave a pool.
#[derive(Debug, Clone, Copy)]
pub struct Leaving<'a> {
    /// How many nodes are in the pool.
    pub members: usize,
    /// Those that have left, and on which nothing is undone yet, each once. [`decisive`] says how many of them are enough to know what
    /// becomes of one.
    pub left: &'a [Arc<str>],
    /// What the pool's status says of those that left lately. None if there is no such pool any more.
    pub noted: Option<&'a [LeftNode]>,
    /// Which of them were meant to leave, by the pool's annotation: names with commas between, or `*`.
    pub confirmed: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// What becomes of a node that has left its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// What the pool put there is undone.
    Undo,
    /// The pool's status has to name it first.
    Note,
    /// Too many have left with it.
    Hold,
}

/// With so many of those that have left it is known what becomes of each, however many more there are.
#[must_use]
pub fn decisive(members: usize, confirmed: Option<&str>) -> usize {
    let meant = confirmed.map_or(0, |names| names.split(',').count());
    // Of those that were not meant to leave, more than a tenth of all, themselves counted.
    (members / (SHARE - 1)).saturating_add(FEW + 1).saturating_add(meant)
}

impl Leaving<'_> {
    /// What becomes of one that has left.
    #[must_use]
    pub fn of(&self, node: &str) -> Leave {
        match self.noted {
            _ if self.is_confirmed(node) => Leave::Undo,
            _ if self.are_many() => Leave::Hold,
            Some(noted) if !noted.iter().any(|known| known.name == node) => Leave::Note,
            Some(_) | None => Leave::Undo,
        }
    }

    /// Whether so many have left that nothing is undone.
    #[must_use]
    pub fn are_many(&self) -> bool {
        if is_on(Mutant::LeaversUnguarded) {
            return false;
        }
        let noted: BTreeSet<&str> = self.lately().map(|known| known.name.as_str()).collect();
        let left = self.left.iter().map(|name| &**name).filter(|name| !noted.contains(name));
        let gone = noted.iter().copied().chain(left).filter(|name| !self.is_confirmed(name));
        // The pool's nodes are those that are there and those that are gone.
        let is_enough = |gone: usize| gone > FEW && gone.saturating_mul(SHARE) > self.members.saturating_add(gone);
        // With more of them it stays so: counting may end there.
        gone.zip(1..).any(|(_, count)| is_enough(count))
    }

    /// Those that are held.
    #[must_use]
    pub fn held(&self) -> Vec<Arc<str>> {
        if !self.are_many() {
            return Vec::new();
        }
        self.left.iter().filter(|node| !self.is_confirmed(node)).cloned().collect()
    }

    /// What the pool's status has to say of those that left. `is_member` says who is back.
    #[must_use]
    pub fn note(&self, is_member: impl Fn(&str) -> bool) -> Vec<LeftNode> {
        let mut all: Vec<LeftNode> = self.lately().filter(|known| !is_member(&known.name)).cloned().collect();
        if !self.are_many() {
            let new = self.left.iter().filter(|node| self.of(node) == Leave::Note);
            all.extend(new.map(|node| LeftNode { name: node.to_string(), time: Time(self.now) }));
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Those of which the pool's status says that they left within the time.
    fn lately(&self) -> impl Iterator<Item = &LeftNode> {
        let noted = self.noted.unwrap_or_default().iter();
        noted.filter(|known| self.now.as_second().saturating_sub(known.time.0.as_second()) < TOGETHER)
    }

    fn is_confirmed(&self, node: &str) -> bool {
        self.confirmed.is_some_and(|names| names.split(',').any(|name| ["*", node].contains(&name.trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: std::ops::Range<usize>) -> Vec<Arc<str>> {
        numbers.map(|number| Arc::from(format!("n{number:02}"))).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn leaving<'a>(members: usize, left: &'a [Arc<str>], noted: &'a [LeftNode], second: i64) -> Leaving<'a> {
        Leaving { members, left, noted: Some(noted), confirmed: None, now: at(second) }
    }

    #[test]
    fn a_few_are_noted_and_then_undone() {
        let left = names(0..2);
        let first = leaving(3, &left, &[], 0);
        assert_eq!(first.of("n00"), Leave::Note);
        let noted = first.note(|_| false);
        assert_eq!(noted.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["n00", "n01"]);
        assert_eq!(leaving(3, &left, &noted, 1).of("n00"), Leave::Undo);
        assert!(leaving(3, &left, &noted, 1).note(|name| name == "n00").len() == 1, "one is back");
    }

    #[test]
    fn when_many_leave_nothing_is_undone_however_few_are_left_to_undo() {
        let (left, noted) = (names(0..20), []);
        let all = leaving(0, &left, &noted, 0);
        assert!(all.left.iter().all(|node| all.of(node) == Leave::Hold) && all.note(|_| false).is_empty());
        // Two are undone already; a third follows a minute later.
        let (two, third) = (names(0..2), names(2..3));
        let noted = leaving(18, &two, &[], 0).note(|_| false);
        assert_eq!(leaving(17, &third, &noted, 60).of("n02"), Leave::Hold);
        assert_eq!(leaving(17, &third, &noted, TOGETHER).of("n02"), Leave::Note, "ten minutes later");
        assert_eq!(leaving(27, &third, &noted, 60).of("n02"), Leave::Note, "a tenth");
    }

    #[test]
    fn those_that_were_meant_are_undone_and_do_not_count() {
        let left = names(0..5);
        let of = |confirmed| Leaving { confirmed: Some(confirmed), ..leaving(0, &left, &[], 0) };
        assert!(left.iter().all(|node| of("*").of(node) == Leave::Undo));
        assert_eq!((of("n00, n01").of("n01"), of("n00, n01").of("n02")), (Leave::Undo, Leave::Hold));
        assert_eq!(of("n00,n01,n02").of("n03"), Leave::Note, "two others are few");
    }

    #[test]
    fn so_many_are_enough_to_know_what_becomes_of_each() {
        let (noted, none) = (leaving(30, &names(0..3), &[], 0).note(|_| false), Vec::new());
        assert_eq!(noted.len(), 3);
        for (members, count) in (0..60).flat_map(|members| (0..12).map(move |count| (members, count))) {
            for (noted, confirmed) in
                [(&none, None), (&noted, None), (&none, Some("n00,n01, n07")), (&noted, Some("*"))]
            {
                let all = names(0..count);
                let some = &all[..count.min(decisive(members, confirmed))];
                let of = |left| Leaving { confirmed, ..leaving(members, left, noted, 60) };
                let (by_all, by_some) = (of(&all[..]), of(some));
                assert!(
                    all.iter().all(|node| by_all.of(node) == by_some.of(node)),
                    "{count} of {members}, {confirmed:?}: {some:?} are not enough"
                );
            }
        }
        assert_eq!(decisive(9_000, None), 1_003, "so that it takes no look at all of them");
    }

    #[test]
    fn without_a_pool_to_note_it_a_few_are_undone_and_many_are_held() {
        let (few, many) = (names(0..2), names(0..3));
        let of = |left: &[Arc<str>]| Leaving { members: 0, left, noted: None, confirmed: None, now: at(0) }.of("n00");
        assert_eq!((of(&few), of(&many)), (Leave::Undo, Leave::Hold));
    }
}

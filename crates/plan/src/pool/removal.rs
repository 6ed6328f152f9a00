//! Pools that leave an application, and what becomes of their workloads.
//!
//! Invariants:
//! - A YurtAppDaemon's workload outlives its pool by the grace. Since when the pool is leaving is noted on the workload before
//!   the time begins to count, so that every leader counts alike; who comes back in time finds all as it was.
//! - If many leave at once, it was probably a mistake: none is deleted but those that somebody names. That is noted on each workload
//!   before one of them is deleted, and lasts when the others are gone.
//! - No more are deleted at once than the rollout leaves room for, and one that is being deleted counts until it is gone.

use std::collections::BTreeSet;

use dapple_api::pool::POOL_GRACE;
use jiff::{SignedDuration, Timestamp};

use crate::mutant::{Mutant, is_on};

/// How long a workload outlives its pool, in seconds, if nothing is said.
pub const GRACE: i64 = 5 * 60;

/// A pool that is leaving, and still has its workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaver {
    /// Its name.
    pub pool: String,
    /// Since when, as noted on the workload.
    pub since: Option<Timestamp>,
    /// Whether it is noted there that many left with it.
    pub is_held: bool,
    /// Whether the workload is being deleted already.
    pub is_going: bool,
    /// Whether the pool uses up some of the rollout's budget as it is: deleting it needs no more.
    pub counts: bool,
}

/// What becomes of the workload of a pool that is leaving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is noted on it since when.
    Note,
    /// It stays until then.
    Grace(Timestamp),
    /// It stays until somebody confirms the removal.
    Held,
    /// It is deleted when there is room for it.
    Waits,
    /// It is deleted.
    Delete,
    /// It is being deleted.
    Going,
}

/// What decides.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    /// How many pools the application has, those that are leaving included, and those not that came after the first of these left.
    pub pools: usize,
    /// How long a workload outlives its pool, in seconds.
    pub grace: i64,
    /// Removals that somebody confirmed.
    pub confirmed: &'a Confirmed,
    /// How many may be deleted at once, beside what the rollout uses of its budget.
    pub room: usize,
    /// The time.
    pub now: Timestamp,
}

/// The pools whose removal somebody confirmed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confirmed {
    names: BTreeSet<String>,
}

impl Confirmed {
    /// As an annotation says: names, or `*` for all.
    pub fn new(text: &str) -> Self {
        let names = text.split(|letter: char| letter == ',' || letter.is_whitespace());
        Self { names: names.filter(|name| !name.is_empty()).map(str::to_owned).collect() }
    }

    fn has(&self, pool: &str) -> bool {
        self.names.contains("*") || self.names.contains(pool)
    }
}

/// A time of grace that cannot be understood. Nothing is deleted until it can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {POOL_GRACE}: {text:?} is not a length of time such as \"5m\", \"90s\" or \"1h30m\"")]
pub struct BadGrace {
    text: String,
}

/// How long a workload outlives its pool, in seconds, as an annotation says.
pub fn grace(text: Option<&str>) -> Result<i64, BadGrace> {
    let Some(text) = text else { return Ok(GRACE) };
    let read = text.trim().parse::<SignedDuration>().ok().map(|grace| grace.as_secs());
    read.filter(|grace| *grace >= 0).ok_or_else(|| BadGrace { text: text.to_owned() })
}

/// Whether so many leave at once that it was probably a mistake.
pub fn are_many(leaving: usize, pools: usize) -> bool {
    leaving > 1 && leaving.saturating_mul(3) > pools
}

/// Which of them stay until somebody confirms their removal, whenever their time of grace is over.
pub fn held(leavers: &[Leaver], terms: &Terms<'_>) -> Vec<bool> {
    let are_many = are_many(leavers.len(), terms.pools);
    let is_noted = |leaver: &Leaver| leaver.is_held && !is_on(Mutant::HoldDissolves);
    let is_held = |leaver: &Leaver| (are_many || is_noted(leaver)) && !terms.confirmed.has(&leaver.pool);
    leavers.iter().map(|leaver| is_held(leaver) && !is_on(Mutant::HoldForgotten)).collect()
}

/// What becomes of each.
pub fn fates(leavers: &[Leaver], terms: &Terms<'_>) -> Vec<Fate> {
    let mut room = terms.room.saturating_sub(leavers.iter().filter(|leaver| leaver.is_going && !leaver.counts).count());
    let mut fate = |(leaver, is_held): (&Leaver, bool)| {
        if leaver.is_going {
            return Fate::Going;
        }
        // A time that is yet to come is not believed.
        let Some(since) = leaver.since.filter(|since| *since <= terms.now) else { return Fate::Note };
        let end = since.as_second().saturating_add(terms.grace);
        if terms.now.as_second() < end && !is_on(Mutant::GraceForgotten) {
            return Fate::Grace(Timestamp::from_second(end).unwrap_or(Timestamp::MAX));
        }
        if is_held {
            return Fate::Held;
        }
        if leaver.counts {
            return Fate::Delete;
        }
        if room == 0 {
            return Fate::Waits;
        }
        room -= 1;
        Fate::Delete
    };
    leavers.iter().zip(held(leavers, terms)).map(&mut fate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).expect("a time")
    }

    fn leaver(pool: &str, since: Option<i64>) -> Leaver {
        Leaver { pool: pool.to_owned(), since: since.map(at), is_held: false, is_going: false, counts: false }
    }

    fn of(leavers: &[Leaver], pools: usize, confirmed: &str, now: i64) -> Vec<Fate> {
        let terms = Terms { pools, grace: GRACE, confirmed: &Confirmed::new(confirmed), room: 9, now: at(now) };
        fates(leavers, &terms)
    }

    #[test]
    fn a_workload_outlives_its_pool_by_the_grace() {
        assert_eq!(of(&[leaver("a", None)], 1, "", 0), [Fate::Note]);
        assert_eq!(of(&[leaver("a", Some(0))], 1, "", 299), [Fate::Grace(at(300))]);
        assert_eq!(of(&[leaver("a", Some(0))], 1, "", 300), [Fate::Delete]);
        assert_eq!(of(&[leaver("a", Some(500))], 1, "", 300), [Fate::Note], "that time is yet to come");
    }

    #[test]
    fn of_many_only_those_go_that_somebody_names() {
        let two = [leaver("a", Some(0)), leaver("b", Some(0))];
        assert_eq!(of(&two, 6, "", 300), [Fate::Delete, Fate::Delete], "a third of them");
        assert_eq!(of(&two, 5, "", 300), [Fate::Held, Fate::Held]);
        assert_eq!(of(&two, 5, "c, b", 300), [Fate::Held, Fate::Delete]);
        assert_eq!(of(&two, 2, "*", 300), [Fate::Delete, Fate::Delete]);
        assert_eq!(of(&two[..1], 1, "", 300), [Fate::Delete], "the only one");
    }

    #[test]
    fn what_is_held_stays_so_when_the_others_are_gone() {
        let one = [Leaver { is_held: true, ..leaver("a", Some(0)) }];
        assert_eq!(of(&one, 9, "", 300), [Fate::Held]);
        assert_eq!(of(&one, 9, "b", 300), [Fate::Held]);
        assert_eq!(of(&one, 9, "a", 300), [Fate::Delete]);
        assert_eq!(of(&one, 9, "", 299), [Fate::Grace(at(300))], "and its time of grace is as long");
    }

    #[test]
    fn no_more_are_deleted_at_once_than_there_is_room_for() {
        let mut two = [leaver("a", Some(0)), leaver("b", Some(0))];
        let of = |leavers: &[Leaver], room| {
            fates(leavers, &Terms { pools: 9, grace: 0, confirmed: &Confirmed::default(), room, now: at(1) })
        };
        assert_eq!(of(&two, 1), [Fate::Delete, Fate::Waits]);
        two[0].is_going = true;
        assert_eq!(of(&two, 1), [Fate::Going, Fate::Waits]);
        two[1].counts = true;
        assert_eq!(
            of(&two, 0),
            [Fate::Going, Fate::Delete],
            "it was changed, and is broken: that it goes does no harm"
        );
    }

    #[test]
    fn a_grace_is_a_length_of_time() {
        for (text, seconds) in [("5m", 300), ("90s", 90), ("1h30m", 5400), ("0s", 0), ("PT2M", 120)] {
            assert_eq!(grace(Some(text)), Ok(seconds), "{text}");
        }
        for text in ["", "5", "-5m", "soon"] {
            assert!(grace(Some(text)).unwrap_err().to_string().contains("dapple.dev/pool-grace"), "{text}");
        }
        assert_eq!(grace(None), Ok(GRACE));
    }

    proptest! {
        /// Whoever leaves: none within the grace, of many only those that are confirmed, no more at once than there is room.
        #[test]
        fn none_goes_before_it_may(
            leavers in vec((proptest::option::of(0_i64..900), any::<bool>()), 0..20),
            others in 0_usize..20,
            room in 0_usize..5,
            is_confirmed in any::<bool>(),
        ) {
            let all: Vec<Leaver> = leavers.iter().enumerate()
                .map(|(number, (since, is_going))| Leaver { is_going: *is_going, ..leaver(&number.to_string(), *since) })
                .collect();
            let confirmed = Confirmed::new(if is_confirmed { "*" } else { "" });
            let terms = Terms { pools: all.len() + others, grace: GRACE, confirmed: &confirmed, room, now: at(450) };
            let fates = fates(&all, &terms);
            let going = all.iter().filter(|leaver| leaver.is_going).count();
            let deleted = fates.iter().filter(|fate| **fate == Fate::Delete).count();
            prop_assert!(deleted == 0 || deleted + going <= room);
            prop_assert!(deleted == 0 || is_confirmed || !(all.len() > 1 && 3 * all.len() > all.len() + others));
            for (leaver, fate) in all.iter().zip(&fates) {
                prop_assert!(*fate != Fate::Delete || leaver.since.is_some_and(|since| since <= at(150)));
            }
        }
    }
}

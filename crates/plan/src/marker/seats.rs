//! The seats of marked pods that ended.
//!
//! A controller that replaces marked pods would be led through the whole fleet if each mark went on to the next pod at once. So the
//! seat of a pod that ended goes, for five minutes, only to a pod that was made after that mark was set; then to any.

use std::time::Duration;

use crate::mutant::{Mutant, is_on};

/// So long a seat is kept for a pod that was made after the mark.
pub const KEPT: Duration = Duration::from_secs(300);

/// The seats of a marker that are kept. Times of marks and pods are in seconds since 1970, all others of one clock that never goes
/// back.
#[derive(Debug, Default)]
pub struct Seats {
    /// By when the mark was set.
    kept: Vec<Seat>,
}

#[derive(Debug, Clone, Copy)]
struct Seat {
    set_at: i64,
    until: Duration,
}

impl Seats {
    /// A pod ended whose mark was set then.
    pub fn open(&mut self, set_at: i64, now: Duration) {
        self.forget(now);
        if is_on(Mutant::SeatsNotKept) {
            return;
        }
        let index = self.kept.partition_point(|seat| seat.set_at <= set_at);
        self.kept.insert(index, Seat { set_at, until: now.saturating_add(KEPT) });
    }

    /// A pod was marked that was made then. It has the seat that fewest others may have.
    pub fn fill(&mut self, created: i64, now: Duration) {
        self.forget(now);
        let older = self.kept.partition_point(|seat| seat.set_at < created);
        if let Some(index) = older.checked_sub(1) {
            self.kept.remove(index);
        }
    }

    /// The seats that are open, if there are so many in all.
    #[must_use]
    pub fn among(&self, count: usize, now: Duration) -> Open {
        let mut kept: Vec<i64> = self.kept.iter().filter(|seat| seat.until > now).map(|seat| seat.set_at).collect();
        // Where there are fewer, those are left that fewest may have.
        kept.drain(..kept.len().saturating_sub(count));
        Open { free: count - kept.len(), kept }
    }

    /// When the next seat goes to any pod.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        self.kept.iter().map(|seat| seat.until).filter(|until| *until > now).min()
    }

    fn forget(&mut self, now: Duration) {
        self.kept.retain(|seat| seat.until > now);
    }
}

/// Seats that are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// How many may go to any pod.
    free: usize,
    /// After when a pod must have been made for each other one, in order.
    kept: Vec<i64>,
}

impl Open {
    /// After when a pod must have been made at least, to get one; nothing if there is none.
    #[must_use]
    pub fn after(&self) -> Option<i64> {
        if self.free > 0 { Some(i64::MIN) } else { self.kept.first().copied() }
    }

    /// A pod gets one that was made then: the one that fewest others may have.
    pub fn take(&mut self, created: i64) {
        let older = self.kept.partition_point(|set_at| *set_at < created);
        match older.checked_sub(1) {
            Some(index) => _ = self.kept.remove(index),
            None => self.free = self.free.saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn for_five_minutes_a_seat_goes_only_to_a_pod_made_after_the_mark() {
        let mut seats = Seats::default();
        seats.open(1_000, seconds(10));
        for now in [10, 100, 309] {
            assert_eq!(seats.among(1, seconds(now)).after(), Some(1_000), "at {now}");
        }
        assert_eq!(seats.next(seconds(100)), Some(seconds(310)));
        assert_eq!(seats.among(1, seconds(310)).after(), Some(i64::MIN), "then to any");
        assert_eq!(seats.next(seconds(310)), None);
    }

    #[test]
    fn other_seats_go_to_any() {
        let mut seats = Seats::default();
        seats.open(1_000, seconds(10));
        let mut open = seats.among(2, seconds(10));
        open.take(500);
        assert_eq!(open.after(), Some(1_000), "the other one is taken");
        open.take(1_001);
        assert_eq!(open.after(), None);
    }

    #[test]
    fn a_pod_takes_the_seat_that_fewest_others_may_have() {
        let mut seats = Seats::default();
        for set_at in [1_000, 3_000, 2_000] {
            seats.open(set_at, seconds(10));
        }
        let mut open = seats.among(4, seconds(10));
        open.take(2_500);
        assert_eq!(open, Open { free: 1, kept: vec![1_000, 3_000] });
        seats.fill(2_500, seconds(20));
        assert_eq!(seats.among(2, seconds(20)), Open { free: 0, kept: vec![1_000, 3_000] });
        seats.fill(2_500, seconds(20));
        seats.fill(2_500, seconds(20));
        assert_eq!(seats.among(1, seconds(20)), Open { free: 0, kept: vec![3_000] }, "it had one that goes to any");
    }

    #[test]
    fn where_there_are_fewer_seats_those_are_left_that_fewest_may_have() {
        let mut seats = Seats::default();
        for set_at in [1_000, 2_000, 3_000] {
            seats.open(set_at, seconds(10));
        }
        assert_eq!(seats.among(1, seconds(10)).after(), Some(3_000));
        assert_eq!(seats.among(0, seconds(10)).after(), None);
    }

    #[test]
    fn a_pod_made_in_the_second_of_the_mark_is_not_made_after_it() {
        let mut seats = Seats::default();
        seats.open(1_000, seconds(0));
        seats.fill(1_000, seconds(1));
        assert_eq!(seats.among(1, seconds(1)).after(), Some(1_000));
    }
}

//! How many patches of one marker are sent at a time: it begins with one, then two, four, and so on, so that a marker whose patches
//! are refused does not send thousands of them.
//!
//! Invariant: after five refusals in a row nothing is sent for a while, longer each time.

use std::time::Duration;

use crate::backoff;

/// So many refusals in a row stop a marker.
pub const REFUSALS: u32 = 5;
/// At most so many are sent at a time.
pub const MOST: usize = 64;

/// How long it is stopped, in seconds: the first time, and at most.
const STOPS: (i64, i64) = (10, 600);

/// What came of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The pod is changed.
    Done,
    /// It is refused.
    Refused,
    /// The pod has changed meanwhile, or is gone, or nobody knows.
    Neither,
}

/// The patches of one marker. Times are those of one clock that never goes back.
#[derive(Debug)]
pub struct Pace {
    /// How many are sent before all of them have to be answered.
    batch: usize,
    sent: usize,
    answered: usize,
    is_any_refused: bool,
    refused_in_a_row: u32,
    stops: u32,
    stopped_until: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            batch: 1,
            sent: 0,
            answered: 0,
            is_any_refused: false,
            refused_in_a_row: 0,
            stops: 0,
            stopped_until: None,
        }
    }
}

impl Pace {
    /// How many may be sent now.
    #[must_use]
    pub fn room(&self, now: Duration) -> usize {
        if self.stopped_until(now).is_some() { 0 } else { self.batch - self.sent }
    }

    /// Until when nothing is sent, since too many were refused.
    #[must_use]
    pub fn stopped_until(&self, now: Duration) -> Option<Duration> {
        self.stopped_until.filter(|until| *until > now)
    }

    /// One is sent. There must be room for it.
    pub fn send(&mut self) {
        self.sent += 1;
        self.batch = self.batch.max(self.sent);
    }

    /// One is answered.
    pub fn answer(&mut self, answer: Answer, now: Duration) {
        self.answered += 1;
        match answer {
            Answer::Done => (self.refused_in_a_row, self.stops) = (0, 0),
            Answer::Refused => {
                self.is_any_refused = true;
                self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
                if self.refused_in_a_row >= REFUSALS && self.stopped_until(now).is_none() {
                    self.stops = self.stops.saturating_add(1);
                    let wait = u64::try_from(backoff::wait(STOPS, self.stops)).unwrap_or_default();
                    self.stopped_until = Some(now.saturating_add(Duration::from_secs(wait)));
                }
            }
            Answer::Neither => {}
        }
        let is_stopped = self.refused_in_a_row >= REFUSALS;
        if self.answered == self.sent && (is_stopped || self.sent == self.batch) {
            let next = match (is_stopped, self.is_any_refused) {
                (true, _) => 1,
                (false, true) => self.batch,
                (false, false) => self.batch.saturating_mul(2).min(MOST),
            };
            self.begin(next);
        }
    }

    /// There is nothing to send. What comes next begins slowly.
    pub fn idle(&mut self) {
        if self.answered == self.sent {
            self.begin(1);
        }
    }

    fn begin(&mut self, batch: usize) {
        (self.batch, self.sent, self.answered, self.is_any_refused) = (batch, 0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Sends as many as there is room for, and has all of them answered so.
    fn batch(pace: &mut Pace, answer: Answer, now: Duration) -> usize {
        let room = pace.room(now);
        (0..room).for_each(|_| pace.send());
        assert_eq!(pace.room(now), 0, "all have to be answered first");
        (0..room).for_each(|_| pace.answer(answer, now));
        room
    }

    #[test]
    fn it_begins_slowly() {
        let mut pace = Pace::default();
        let batches: Vec<usize> = (0..9).map(|_| batch(&mut pace, Answer::Done, seconds(1))).collect();
        assert_eq!(batches, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        pace.idle();
        assert_eq!(batch(&mut pace, Answer::Done, seconds(2)), 1, "so does what comes next");
    }

    #[test]
    fn what_was_refused_makes_it_no_faster() {
        let mut pace = Pace::default();
        batch(&mut pace, Answer::Done, seconds(1));
        assert_eq!(batch(&mut pace, Answer::Refused, seconds(1)), 2);
        assert_eq!(batch(&mut pace, Answer::Neither, seconds(1)), 2);
        assert_eq!(batch(&mut pace, Answer::Done, seconds(1)), 4);
    }

    #[test]
    fn five_refusals_in_a_row_stop_it_longer_each_time() {
        let mut pace = Pace::default();
        for _ in 0..4 {
            assert_eq!(batch(&mut pace, Answer::Refused, seconds(1)), 1);
        }
        assert_eq!(pace.stopped_until(seconds(1)), None);
        batch(&mut pace, Answer::Refused, seconds(1));
        assert_eq!((pace.room(seconds(2)), pace.stopped_until(seconds(2))), (0, Some(seconds(11))));
        for (now, until) in [(11, 31), (31, 71), (71, 151)] {
            assert_eq!(batch(&mut pace, Answer::Refused, seconds(now)), 1, "one is tried");
            assert_eq!(pace.stopped_until(seconds(now)), Some(seconds(until)));
        }
        assert_eq!(batch(&mut pace, Answer::Done, seconds(151)), 1);
        assert_eq!(batch(&mut pace, Answer::Refused, seconds(151)), 2, "it is forgotten");
        assert_eq!(pace.stopped_until(seconds(152)), None);
    }

    #[test]
    fn refusals_with_others_between_them_do_not_stop_it() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            for answer in [Answer::Refused, Answer::Refused, Answer::Refused, Answer::Refused, Answer::Done] {
                if pace.room(seconds(1)) > 0 {
                    pace.send();
                    pace.answer(answer, seconds(1));
                }
            }
        }
        assert_eq!(pace.stopped_until(seconds(1)), None);
    }

    proptest! {
        /// Whatever the answers are, it never sends more than a batch before they are there, and it never gets stuck.
        #[test]
        fn it_goes_on_whatever_the_answers_are(
            answers in vec(select(vec![Answer::Done, Answer::Refused, Answer::Neither]), 1..200),
        ) {
            let mut pace = Pace::default();
            let (mut now, mut open) = (seconds(0), 0);
            for answer in answers {
                let room = pace.room(now);
                prop_assert!(room <= MOST);
                (0..room).for_each(|_| pace.send());
                open += room;
                if open == 0 {
                    now = pace.stopped_until(now).expect("it is stopped, or there is room");
                    continue;
                }
                pace.answer(answer, now);
                open -= 1;
                prop_assert!(open < MOST);
            }
        }
    }
}

//! When a workload that somebody else keeps changing is put right again.
//!
//! Two that write for ever are worse than one that is wrong: after a few repairs there is a pause, and it is told who the other is.
//! When a workload was put right is in the status of its application before it is done, so that a new leader counts on.

use jiff::Timestamp;

use crate::mutant::{Mutant, is_on};

/// So many repairs.
pub const MOST: usize = 3;
/// Within so many seconds.
const WITHIN: i64 = 10 * 60;
/// Are followed by none for so many.
const PAUSE: i64 = 60 * 60;

/// Until when a workload is not put right, after repairs at these times; none if it may be now. Times that are yet to come are
/// not believed.
pub fn paused_until(repairs: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    let mut known: Vec<i64> =
        repairs.iter().map(|time| time.as_second()).filter(|time| *time <= now.as_second()).collect();
    known.sort_unstable();
    let many = known
        .windows(MOST)
        .rev()
        .find(|times| matches!((times.first(), times.last()), (Some(first), Some(last)) if last - first <= WITHIN));
    let last = *many.filter(|_| !is_on(Mutant::RepairedForEver))?.last()?;
    Timestamp::from_second(last + PAUSE).ok().filter(|until| now < *until)
}

/// The repairs to be remembered with one more.
pub fn with(repairs: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let mut all: Vec<Timestamp> = repairs.iter().copied().filter(|time| *time <= now).chain([now]).collect();
    all.sort_unstable();
    all.split_off(all.len().saturating_sub(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).expect("a time")
    }

    #[test]
    fn after_three_within_ten_minutes_there_is_none_for_an_hour() {
        let three = [at(0), at(300), at(600)];
        assert_eq!(paused_until(&three, at(601)), Some(at(4200)));
        assert_eq!(paused_until(&three, at(4200)), None);
        assert_eq!(paused_until(&[at(0), at(300), at(601)], at(602)), None, "they are further apart");
        assert_eq!(paused_until(&three[..2], at(601)), None);
        assert_eq!(paused_until(&[at(5000), at(5001), at(5002)], at(0)), None, "they are yet to come");
    }

    #[test]
    fn however_long_somebody_fights_there_are_three_in_an_hour() {
        let (mut repairs, mut done) = (Vec::new(), Vec::new());
        for second in 0..20_000 {
            if paused_until(&repairs, at(second)).is_none() {
                repairs = with(&repairs, at(second));
                done.push(second);
            }
        }
        assert!(repairs.len() <= MOST);
        assert!(done.windows(MOST + 1).all(|times| times[MOST] - times[0] >= PAUSE), "{done:?}");
        assert_eq!(done.len(), 18, "each hour and a bit three: {done:?}");
    }
}

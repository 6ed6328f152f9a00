//! How fast pods behind the gate are replaced by others, since they were made by the edition of another group.
//!
//! Their owner makes others at once, and those may be no better: as long as the webhook does not know what it should, or another
//! one takes out what a rule needs, all of them would be made anew for ever. Invariants, whatever comes of those that are made:
//! - At most [`AT_ONCE`] pods of an owner are replaced in one step.
//! - A step comes at least a second after the last one; later each time, while no pod could be placed as it was made.

use std::time::Duration;

/// So many pods of an owner are replaced in one step.
pub const AT_ONCE: usize = 16;
/// So many steps without a pod that could be placed are no bad luck any more.
pub const TOLD_AFTER: u32 = 3;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The steps of one owner. Times are those of one clock that never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacing {
    /// Steps in a row without a pod that could be placed since.
    in_a_row: u32,
    /// When the last one began.
    begun: Duration,
    /// How many pods it has replaced so far.
    replaced: usize,
}

impl Replacing {
    /// The first step, in which nothing is replaced yet.
    #[must_use]
    pub fn begun(now: Duration) -> Self {
        Self { in_a_row: 1, begun: now, replaced: 0 }
    }

    /// Replaces one more pod. If it is too soon for that, says when it is not any more.
    pub fn replace(&mut self, now: Duration) -> Result<(), Duration> {
        let next = self.begun.saturating_add(self.pause());
        if now >= next {
            *self = Self { in_a_row: self.in_a_row.saturating_add(1), begun: now, replaced: 0 };
        } else if self.replaced >= AT_ONCE {
            return Err(next);
        }
        self.replaced += 1;
        Ok(())
    }

    /// A pod was placed as it was made: what makes them knows by now what it should.
    pub fn placed(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether nothing that was replaced lately makes a difference any more.
    #[must_use]
    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.begun.saturating_add(2 * LONGEST)
    }

    /// Whether people should know of it.
    #[must_use]
    pub fn is_in_vain(&self) -> bool {
        self.in_a_row >= TOLD_AFTER
    }

    fn pause(&self) -> Duration {
        FIRST.saturating_mul(1_u32.checked_shl(self.in_a_row.saturating_sub(1)).unwrap_or(u32::MAX)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Replaces as many as possible.
    fn step(replacing: &mut Replacing, now: Duration) -> (usize, Duration) {
        let mut count = 0;
        loop {
            match replacing.replace(now) {
                Ok(()) => count += 1,
                Err(next) => return (count, next),
            }
        }
    }

    #[test]
    fn steps_come_later_each_time_while_nothing_can_be_placed() {
        let mut replacing = Replacing::begun(seconds(100));
        assert_eq!(step(&mut replacing, seconds(100)), (AT_ONCE, seconds(101)));
        assert_eq!(step(&mut replacing, seconds(100)).0, 0);
        assert_eq!(step(&mut replacing, seconds(101)), (AT_ONCE, seconds(103)));
        assert!(!replacing.is_in_vain());
        assert_eq!(step(&mut replacing, seconds(103)), (AT_ONCE, seconds(107)));
        assert!(replacing.is_in_vain());
        let mut next = seconds(107);
        for _ in 0..10 {
            let (count, after) = step(&mut replacing, next);
            assert!(count == AT_ONCE && after - next <= LONGEST);
            next = after;
        }
        assert_eq!(step(&mut replacing, next).1 - next, LONGEST);
    }

    #[test]
    fn once_a_pod_could_be_placed_the_pauses_are_short_again_and_not_gone() {
        let mut replacing = Replacing::begun(seconds(0));
        for now in [0, 1, 3, 7] {
            assert_eq!(step(&mut replacing, seconds(now)).0, AT_ONCE);
        }
        replacing.placed();
        assert!(!replacing.is_in_vain());
        assert_eq!(step(&mut replacing, seconds(7)), (0, seconds(8)));
        assert_eq!(step(&mut replacing, seconds(8)), (AT_ONCE, seconds(9)));
        assert!(!replacing.is_over(seconds(9)) && replacing.is_over(seconds(130)));
    }
}

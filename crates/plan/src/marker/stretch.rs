//! How much more seldom probes are run than they ask for, where they are too many.

use std::time::Duration;

/// By how much periods are longer than asked for, in a hundred, so that probes of these periods are no more than so many in ten
/// seconds. In steps of a half, so that one probe that comes or goes seldom moves all the others.
pub(super) fn stretch(periods: impl Iterator<Item = Duration>, most: u32) -> u32 {
    // In thousandths of a run in ten seconds.
    let asked: u128 = periods.map(|period| 10_000_000 / period.as_millis().max(1)).sum();
    let percent = (asked * 100).div_ceil(u128::from(most) * 1_000);
    if percent <= 100 { 100 } else { u32::try_from(percent.div_ceil(50) * 50).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize, seconds: u64, most: u32) -> u32 {
        stretch((0..count).map(|_| Duration::from_secs(seconds)), most)
    }

    #[test]
    fn nothing_is_stretched_up_to_the_limit() {
        assert_eq!(of(0, 1, 100), 100);
        assert_eq!(of(50, 5, 100), 100, "ten a second");
        assert_eq!(of(1_000, 100, 100), 100, "however many there are");
    }

    #[test]
    fn beyond_it_all_are_and_together_keep_to_it() {
        assert_eq!(of(51, 5, 100), 150, "in steps");
        for (count, seconds) in [(51, 5), (100, 5), (777, 7), (1_000, 5), (1_000, 1)] {
            let percent = of(count, seconds, 100);
            let in_ten_seconds = count as f64 * 10.0 / (seconds as f64 * f64::from(percent) / 100.0);
            assert!(in_ten_seconds <= 100.0, "{count} every {seconds} s: {in_ten_seconds}");
        }
    }
}

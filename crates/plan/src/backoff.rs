//! How long to wait before what failed is tried again.

/// The wait after so many failures in a row, in seconds: `first` after one, twice as long after each further, at most
/// `longest`.
#[must_use]
pub fn wait((first, longest): (i64, i64), failures: u32) -> i64 {
    // What is shifted out at the top is longer than anything.
    let doubled = first.checked_shl(failures.saturating_sub(1)).filter(|wait| *wait >= first);
    doubled.unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_however_often_it_fails() {
        for (first, longest) in [(1, 900), (2, 60), (10, 300)] {
            assert_eq!(wait((first, longest), 1), first);
            let mut before = 0;
            for failures in 1..=200 {
                let next = wait((first, longest), failures);
                assert!(next == longest || next == before * 2 || failures == 1, "{failures} failures: {next}");
                assert!((before..=longest).contains(&next), "{failures} failures: {next}");
                before = next;
            }
            assert_eq!(before, longest);
        }
        assert_eq!(wait((2, 60), u32::MAX), 60);
    }
}

//! How often a status is written.

use std::time::Duration;

use dapple_api::daemonset::DaemonSetStatus;

/// The status is written at most this often, unless the set itself has changed: a rollout over ten thousand nodes must
/// not write it ten thousand times.
pub const PACE: Duration = Duration::from_secs(1);

/// How long a status that says something new has to wait, after the last was written so long ago; nothing if it says
/// nothing new. That something is over, or has gone wrong, is told at once.
pub fn waits(wanted: &DaemonSetStatus, before: &DaemonSetStatus, since: Option<Duration>) -> Option<Duration> {
    let conditions = |status: &DaemonSetStatus| -> Vec<(String, String)> {
        status.conditions.iter().map(|known| (known.status.clone(), known.reason.clone())).collect()
    };
    let is_urgent = wanted.observed_generation != before.observed_generation
        || conditions(wanted) != conditions(before)
        || (wanted.number_unavailable == Some(0) && before.number_unavailable != Some(0));
    let wait = since.filter(|_| !is_urgent).map_or(Duration::ZERO, |since| PACE.saturating_sub(since));
    (wanted != before).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(count: i32) -> DaemonSetStatus {
        DaemonSetStatus { observed_generation: Some(3), number_unavailable: Some(count), ..DaemonSetStatus::default() }
    }

    #[test]
    fn counts_are_told_once_a_second_and_ends_at_once() {
        let since = Some(Duration::from_millis(400));
        let wait = |after: &DaemonSetStatus, before: &DaemonSetStatus| waits(after, before, since);
        assert_eq!(wait(&unavailable(5), &unavailable(5)), None, "it says nothing new");
        assert_eq!(wait(&unavailable(4), &unavailable(5)), Some(Duration::from_millis(600)));
        assert_eq!(wait(&unavailable(0), &unavailable(5)), Some(Duration::ZERO), "all are available");
        let next = DaemonSetStatus { observed_generation: Some(4), ..unavailable(5) };
        assert_eq!(wait(&next, &unavailable(5)), Some(Duration::ZERO), "another generation");
        assert_eq!(waits(&unavailable(4), &unavailable(5), None), Some(Duration::ZERO), "the first of this process");
        assert_eq!(waits(&unavailable(4), &unavailable(5), Some(PACE * 2)), Some(Duration::ZERO));
    }
}

//! Pods whose patch was refused: they are passed over, and tried again now and then, more rarely each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff;

/// How long until one is tried again, in seconds: the first time, and at most.
const RETRIES: (i64, i64) = (10, 600);

/// The pods of a marker whose last patch was refused, by UID. Times are those of one clock that never goes back.
#[derive(Debug, Default)]
pub struct Refusals {
    pods: BTreeMap<Arc<str>, Refused>,
}

#[derive(Debug)]
struct Refused {
    times: u32,
    until: Duration,
}

impl Refusals {
    /// A patch was refused. Returns until when the pod is passed over.
    pub fn refused(&mut self, pod: &Arc<str>, now: Duration) -> Duration {
        let times = self.pods.get(pod).map_or(1, |before| before.times.saturating_add(1));
        let wait = u64::try_from(backoff::wait(RETRIES, times)).unwrap_or_default();
        let until = now.saturating_add(Duration::from_secs(wait));
        self.pods.insert(pod.clone(), Refused { times, until });
        until
    }

    /// A patch was taken, there is none to send any more, or the pod is gone.
    pub fn forget(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    /// Whether a pod is passed over.
    #[must_use]
    pub fn is_passed_over(&self, pod: &str, now: Duration) -> bool {
        self.pods.get(pod).is_some_and(|refused| refused.until > now)
    }

    /// How many could not be changed when that was last tried.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// When the next pod may be tried again.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        self.pods.values().map(|refused| refused.until).filter(|until| *until > now).min()
    }

    /// The pods that may be tried again.
    pub fn due(&self, now: Duration) -> impl Iterator<Item = &Arc<str>> {
        self.pods.iter().filter(move |(_, refused)| refused.until <= now).map(|(pod, _)| pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_pod_that_is_refused_is_passed_over_more_rarely_tried_each_time() {
        let mut refusals = Refusals::default();
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        assert_eq!(refusals.refused(&a, seconds(0)), seconds(10));
        assert_eq!(refusals.refused(&b, seconds(5)), seconds(15));
        assert!(refusals.is_passed_over("a", seconds(9)) && !refusals.is_passed_over("a", seconds(10)));
        assert_eq!(refusals.due(seconds(10)).collect::<Vec<_>>(), [&a]);
        assert_eq!(refusals.next(seconds(10)), Some(seconds(15)));
        assert_eq!(refusals.len(), 2, "it has failed until it is taken");
        assert_eq!(refusals.refused(&a, seconds(10)), seconds(30));
        refusals.forget("a");
        assert_eq!((refusals.len(), refusals.is_empty()), (1, false));
        assert_eq!(refusals.refused(&a, seconds(40)), seconds(50), "it is forgotten");
        for _ in 0..20 {
            assert!(refusals.refused(&a, seconds(0)) <= seconds(600));
        }
    }
}

//! When to look at a set again, unless something happens before.

use std::time::Duration;

/// How soon to look again for our own writes, should their echo not wake us.
pub const ECHO: Duration = Duration::from_secs(1);

/// What may have to be looked at without anything having happened. Times are seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wakes {
    /// When a node or pod is to be looked at again: it is available by then, or may be tried again.
    pub fleet: Option<i64>,
    /// When the API server is to be asked again what it thinks of a rendering.
    pub asked: Option<i64>,
    /// When a step that failed is tried again.
    pub retried: Option<i64>,
    /// When a rollout that makes no progress has stalled. Once told, nothing more comes of it.
    pub stalls: Option<i64>,
    /// When to tell what had to wait.
    pub told: Option<Duration>,
    /// Whether pods are on nodes that are not known: of a node that came and went between two lists, no watch tells.
    pub has_strays: bool,
    /// Whether writes are open.
    pub has_open_writes: bool,
    /// Whether everything is to be looked at anew: a write taught us something that no watch will tell.
    pub is_stale: bool,
}

impl Wakes {
    /// How long to wait; nothing if only an event can change anything.
    #[must_use]
    pub fn next(&self, now: i64) -> Option<Duration> {
        let stalls = self.stalls.filter(|at| *at > now);
        let at = [self.fleet, self.asked, self.retried, stalls].into_iter().flatten().min();
        // Times have whole seconds: not before the next has begun.
        let wake = at.map(|at| Duration::from_secs(u64::try_from(at.saturating_sub(now)).unwrap_or(0).max(1)));
        let soon = (self.has_strays || self.has_open_writes || self.is_stale).then_some(ECHO);
        [wake, soon, self.told].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_all_wakes() {
        let seconds = |wakes: Wakes| wakes.next(100).map(|wait| wait.as_secs_f64());
        assert_eq!(seconds(Wakes::default()), None, "only an event can change anything");
        let all = Wakes { fleet: Some(160), asked: Some(130), retried: Some(140), ..Wakes::default() };
        assert_eq!(seconds(all), Some(30.0));
        assert_eq!(seconds(Wakes { fleet: Some(90), ..all }), Some(1.0), "what is overdue does not spin");
        assert_eq!(seconds(Wakes { has_open_writes: true, ..all }), Some(1.0));
        assert_eq!(seconds(Wakes { told: Some(Duration::from_millis(300)), is_stale: true, ..all }), Some(0.3));
        assert_eq!(seconds(Wakes { stalls: Some(90), ..Wakes::default() }), None, "that it has stalled is told");
        assert_eq!(seconds(Wakes { stalls: Some(101), ..all }), Some(1.0));
    }
}

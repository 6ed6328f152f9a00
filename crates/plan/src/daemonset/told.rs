//! What people are told of a node that a rollout waits for.

use jiff::Timestamp;
use jiff::tz::Offset;

use super::cell::PodState;
use super::inplace::Progress;
use super::judge::Cell;
use super::lifecycle::State;
use crate::health::Health;

impl Cell {
    /// What the node waits for.
    pub(super) fn told(&self, now: i64) -> String {
        let name = &self.node.name;
        if let Some(since) = self.node.health.since() {
            let silence =
                if matches!(self.node.health, Health::Unknown { .. }) { ": its kubelet does not answer" } else { "" };
            let not_ready = format!("not Ready since {}{silence}", clock(since, now));
            return match self.pods.iter().map(PodState::last_touched).max().filter(|_| self.verdict.is_ill) {
                Some(updated) => format!("{name}: updated {}, {not_ready}", clock(updated, now)),
                None => format!("{name}: {not_ready}"),
            };
        }
        if self.unseen > 0 {
            return format!("{name}: what was just written has not come back yet");
        }
        if !self.node.can_start && self.verdict.is_ill {
            let since = self.driven_off.map(|at| format!(" since {}", clock(at, now))).unwrap_or_default();
            return format!("{name}: updated, and a taint keeps its pods away{since}");
        }
        if !self.node.can_start {
            return format!("{name}: no pod may start there");
        }
        let live = || self.pods.iter().rev().filter(|pod| pod.is_live());
        let starting = live().find(|pod| pod.ready_since.is_none());
        match starting.or_else(|| live().next()).or(self.pods.last()) {
            None => format!("{name}: its pod is to be made"),
            Some(pod) => format!("{name}: pod {} {}", pod.name, state_of(pod)),
        }
    }
}

fn state_of(pod: &PodState) -> String {
    let because = || pod.trouble.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    match pod {
        _ if pod.leaving_since.is_some() => "is being deleted".to_owned(),
        _ if pod.has_ended => "ended, and is to be made anew".to_owned(),
        _ if pod.state == State::PreparingDelete && pod.held.from_deletion => "is held by preDelete".to_owned(),
        _ if pod.state == State::PreparingUpdate => "is held by inPlaceUpdate".to_owned(),
        _ if pod.edit != Progress::Done => format!("is being updated in place{}", because()),
        _ if pod.is_begun() => "is taken out of service".to_owned(),
        _ if pod.ready_since.is_some() => "is ready, but not for minReadySeconds yet".to_owned(),
        _ => format!("is not ready{}", because()),
    }
}

/// A time for people: hours and minutes (UTC), with the date if it was not today.
fn clock(at: i64, now: i64) -> String {
    let date = |at: i64| Timestamp::from_second(at).map(|at| Offset::UTC.to_datetime(at));
    match (date(at), date(now)) {
        (Ok(at), Ok(now)) if at.date() == now.date() => at.strftime("%H:%M").to_string(),
        (Ok(at), _) => at.strftime("%Y-%m-%d %H:%M").to_string(),
        (Err(_), _) => "?".to_owned(),
    }
}

//! Whether anybody opens the gate: a leader that says on its lease that it places pods, and renews it.

use std::time::Duration;

use dapple_control::env::Env;
use dapple_control::lease::PLACES_ANNOTATION;
use dapple_control::writes::client::in_words;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The lease is read no more often.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Nor, if it could not be read.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The API server answers within this time: a pod waits meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// A leader that has not renewed for so long opens no gate.
const RENEWED_WITHIN: Duration = Duration::from_secs(60);

/// Looks at the lease.
pub struct Placer {
    leases: Api<Lease>,
    name: String,
    env: Env,
    stop: CancellationToken,
    seen: tokio::sync::Mutex<Seen>,
}

/// How the lease was seen last.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// When it was read, and in which version.
    read: Option<(Instant, Option<String>)>,
    /// When it was seen to change, on our own clock.
    changed: Option<Instant>,
    says_so: bool,
    /// When it could not be read, unless it was since.
    failed: Option<Instant>,
}

impl Placer {
    /// By the lease of this name in dapple's namespace. Once `stop` is cancelled this process may be the last one.
    pub fn new(client: Client, namespace: &str, name: String, env: Env, stop: CancellationToken) -> Self {
        Self { leases: Api::namespaced(client, namespace), name, env, stop, seen: tokio::sync::Mutex::default() }
    }

    /// Whether anybody does. If that cannot be found out, pods come as if dapple were away.
    pub async fn is_there(&self) -> bool {
        if self.stop.is_cancelled() {
            return false;
        }
        let mut seen = self.seen.lock().await;
        let within = |since: Option<Instant>, time| since.is_some_and(|since| since.elapsed() < time);
        if within(seen.failed, RETRY_EVERY) {
            return false;
        }
        if !within(seen.read.as_ref().map(|(at, _)| *at), READ_EVERY) {
            match tokio::time::timeout(ANSWER_WITHIN, self.leases.get_opt(&self.name)).await {
                Ok(Ok(lease)) => *seen = look(&lease.unwrap_or_default(), &seen, Instant::now(), self.env.now()),
                failed => {
                    let error = match &failed {
                        Ok(Err(error)) => in_words(error),
                        _ => "it did not answer in time".to_owned(),
                    };
                    warn!(lease = self.name, error, "the lease cannot be read: pods are not put behind the gate");
                    seen.failed = Some(Instant::now());
                    return false;
                }
            }
        }
        seen.says_so && within(seen.changed, RENEWED_WITHIN)
    }
}

/// What a lease says.
fn look(lease: &Lease, before: &Seen, now: Instant, wall: jiff::Timestamp) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    let version = lease.resource_version();
    let changed = match &before.read {
        Some((_, known)) if *known == version => before.changed,
        // It has changed since, and that is not long ago.
        Some((at, _)) if now.duration_since(*at) < RENEWED_WITHIN => Some(now),
        // Only here is the time in it compared with a clock, which may be another.
        _ => {
            let ago = spec.renew_time.as_ref().map(|time| wall.duration_since(time.0).unsigned_abs());
            ago.filter(|ago| *ago < RENEWED_WITHIN).map(|ago| now.checked_sub(ago).unwrap_or(now))
        }
    };
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let says_so = holder.is_some() && lease.annotations().get(PLACES_ANNOTATION) == holder.as_ref();
    Seen { read: Some((now, version)), changed, says_so, failed: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(version: &str, holder: &str, places: Option<&str>, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"resourceVersion": version, "annotations": places.map(|places| json!({PLACES_ANNOTATION: places}))},
            "spec": {"holderIdentity": holder, "renewTime": renewed},
        }))
        .unwrap()
    }

    fn is_placing(seen: &Seen, now: Instant) -> bool {
        seen.says_so && seen.changed.is_some_and(|changed| now.duration_since(changed) < RENEWED_WITHIN)
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_places_that_says_so_and_renews() {
        let wall: jiff::Timestamp = "2026-11-18T00:00:30Z".parse().unwrap();
        // An instant from which one can count back.
        tokio::time::advance(2 * RENEWED_WITHIN).await;
        let now = Instant::now();
        let recent = "2026-11-18T00:00:20.000000Z";
        let first = |lease: &Lease| is_placing(&look(lease, &Seen::default(), now, wall), now);
        assert!(first(&lease("1", "a", Some("a"), recent)));
        assert!(!first(&lease("1", "a", Some("b"), recent)), "that was the leader before");
        assert!(!first(&lease("1", "a", None, recent)));
        assert!(!first(&lease("1", "", Some(""), recent)), "given back");
        assert!(!first(&lease("1", "a", Some("a"), "2026-11-17T00:00:00.000000Z")), "it is old");
        assert!(!first(&Lease::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn later_on_only_our_own_clock_counts() {
        let (wall, now) = ("2026-11-18T00:00:30Z".parse().unwrap(), Instant::now());
        let [old, renewed] = [("1", "2020-01-01T00:00:00.000000Z"), ("2", "2020-01-01T00:00:02.000000Z")]
            .map(|(version, time)| lease(version, "a", Some("a"), time));
        let seen = look(&old, &Seen::default(), now, wall);
        assert!(!is_placing(&seen, now), "of another clock, or of long ago");
        let soon = now + READ_EVERY;
        let seen = look(&renewed, &seen, soon, wall);
        assert!(is_placing(&seen, soon));
        let later = |seconds| {
            let later = soon + Duration::from_secs(seconds);
            is_placing(&look(&renewed, &seen, later, wall), later)
        };
        assert!(later(59) && !later(60));
        // A change that was not watched may be of any time.
        let late = soon + RENEWED_WITHIN;
        let again = lease("3", "a", Some("a"), "2020-01-01T00:00:04.000000Z");
        assert!(!is_placing(&look(&again, &seen, late, wall), late));
    }
}

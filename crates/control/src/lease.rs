//! Leader election on a Lease.
//!
//! Invariants:
//! - Nobody's clock is trusted but one's own. A standby takes over only after it has itself watched the record stay
//!   unchanged for the whole lease duration, measured on its monotonic clock.
//! - A leader stops writing before anybody may take over: its [`Fence`] closes `renew_within` after the *sending* of the
//!   last renewal that succeeded, and `renew_within` is shorter than the lease duration.
//! - Every write to the Lease names the version it replaces, so of two who try at once one fails.
//! - A record is input that others can write. What no manager can have written in it counts for nothing: a length that
//!   `--lease-duration` does not take is as good as none, and our own holds; times are never compared with a clock.
//! - Whoever takes the lease begins a new term. What was seen before it may miss what the leader before did last.

use std::ops::RangeInclusive;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::env::Env;
use crate::retry::Recovery;
use crate::signal::Signal;
use crate::writes::client::in_words;
use crate::writes::fence::Fence;

/// The lengths that a lease can have, in seconds. Under three there is no room for a renewal.
pub const LENGTHS: RangeInclusive<u64> = 3..=3_600;

/// Annotation of the Lease by which its holder says that it places pods behind the gate: its identity.
pub const PLACES_ANNOTATION: &str = "dapple.dev/places";

/// An API server that fails is asked so often, however long the lease: others wait to hear that it is back.
const RETRY_FAILED: Duration = Duration::from_secs(1);

/// How long a lease lasts and how often it is renewed.
#[derive(Debug, Clone, Copy)]
pub struct LeaseDurations {
    /// Others may take over after the record has not changed for this long.
    pub duration: Duration,
    /// The leader stops writing this long after its last good renewal. Shorter than `duration`.
    pub renew_within: Duration,
    /// Time between two tries.
    pub retry: Duration,
}

impl Default for LeaseDurations {
    fn default() -> Self {
        Self { duration: Duration::from_secs(15), renew_within: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// What to do next about the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There is none: make it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It is nobody's, or its holder has been silent for too long: take it.
    TakeOver,
    /// Another one holds it.
    Wait,
}

/// When a version of the record was first seen.
#[derive(Debug, Clone)]
struct Sighting {
    version: String,
    at: Instant,
}

/// How long a record may stay unchanged: the holder's own promise counts, if a manager can have made it. Otherwise somebody
/// else wrote it, and a lease of 68 years, or of none, would take the election away from all managers.
pub fn promised(spec: &LeaseSpec, ours: Duration) -> Duration {
    let written = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    written.filter(|seconds| LENGTHS.contains(seconds)).map_or(ours, Duration::from_secs)
}

/// The decision, free of I/O. `ours` is the length that we would write.
fn decide(record: Option<&Lease>, identity: &str, sighting: Option<&Sighting>, ours: Duration, now: Instant) -> Step {
    let Some(record) = record else { return Step::Create };
    let spec = record.spec.clone().unwrap_or_default();
    match spec.holder_identity.as_deref() {
        None | Some("") => Step::TakeOver,
        Some(holder) if holder == identity => Step::Renew,
        Some(_) => {
            let unchanged_since =
                sighting.filter(|seen| Some(&seen.version) == record.metadata.resource_version.as_ref());
            match unchanged_since {
                Some(seen) if now.duration_since(seen.at) >= promised(&spec, ours) => Step::TakeOver,
                _ => Step::Wait,
            }
        }
    }
}

/// Takes part in an election until stopped.
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
    durations: LeaseDurations,
    fence: Fence,
    env: Env,
    leading: Signal,
    recovery: Recovery,
    /// Whether the API server did not answer the last try.
    is_failing: bool,
    /// How often we have come to hold the lease.
    term: u64,
    /// Whether nobody else can have held it since we last knew that we did.
    is_held: bool,
    /// The term in which pods are placed, 0 before.
    places: Signal,
    /// The record as last read or written.
    known: Option<Lease>,
    sighting: Option<Sighting>,
}

impl Elector {
    /// Takes part as `identity` in the election on the Lease `name`. `client` should be free of rate limits, so that
    /// a busy leader does not lose its lease to its own work.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        durations: LeaseDurations,
        fence: Fence,
    ) -> Self {
        let env = fence.env().clone();
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            durations,
            fence,
            env,
            leading: Signal::default(),
            recovery: Recovery::default(),
            is_failing: false,
            term: 0,
            is_held: false,
            places: Signal::default(),
            known: None,
            sighting: None,
        }
    }

    /// The term in which this process leads; 0 while it does not.
    pub fn leading(&self) -> Signal {
        self.leading.clone()
    }

    /// To be set to the term in which pods behind the gate are placed.
    pub fn places(&self) -> Signal {
        self.places.clone()
    }

    /// When the API server is back after it failed. Of all that is asked of it, the lease is asked for most often.
    pub fn recovery(&self) -> Recovery {
        self.recovery.clone()
    }

    /// Takes part until `stop`, then gives the lease back if it is ours. `idle` ends when our own last writes are done:
    /// the lease is not given back before.
    pub async fn run(mut self, stop: CancellationToken, idle: impl Future<Output = ()>) {
        loop {
            self.try_to_lead().await;
            tokio::select! { biased; () = stop.cancelled() => break, () = tokio::time::sleep(self.rest()) => {} }
        }
        tokio::select! { biased; () = idle => {}, () = self.keep_renewing() => {} }
        self.release().await;
    }

    /// How long to wait before the next try.
    fn rest(&self) -> Duration {
        let retry = if self.is_failing { self.durations.retry.min(RETRY_FAILED) } else { self.durations.retry };
        // Standbys come at different times; a leader comes early, so that the fence never closes on it by chance.
        retry.mul_f64(if self.is_leading() { 1.0 } else { 1.0 + self.env.fraction() / 5.0 })
    }

    /// Takes the lease if it can be had, or renews it.
    pub async fn try_to_lead(&mut self) {
        self.turn().await;
        self.note_leading();
    }

    /// One try, bounded in time: an API server that does not answer must not keep us from noticing that we are late.
    async fn turn(&mut self) {
        let limit = self.durations.retry.max(self.durations.renew_within / 2);
        let answer = tokio::time::timeout(limit, self.try_once()).await;
        if !matches!(answer, Ok(Ok(()))) {
            self.known = None;
        }
        let is_failing = match answer {
            Ok(Ok(())) => false,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                let remedy = "create it with `dapple up --cluster`, or choose another with --namespace";
                warn!(lease = %self.name, error = %status.message, remedy, "the lease has no namespace; trying again");
                false
            }
            Ok(Err(error)) => {
                warn!(lease = %self.name, error = in_words(&error), "could not read or renew the lease; trying again");
                true
            }
            Err(_) => {
                warn!(lease = %self.name, ?limit, "the API server did not answer about the lease; trying again");
                true
            }
        };
        if std::mem::replace(&mut self.is_failing, is_failing) && !is_failing {
            self.recovery.note();
        }
    }

    async fn try_once(&mut self) -> Result<(), kube::Error> {
        // Our own record is as we wrote it, unless somebody took it; then the write fails and it is read anew.
        if !self.is_leading() || self.known.is_none() {
            self.known = self.api.get_opt(&self.name).await?;
        }
        let now = Instant::now();
        let step = decide(self.known.as_ref(), &self.identity, self.sighting.as_ref(), self.durations.duration, now);
        let version = self.known.as_ref().and_then(ResourceExt::resource_version).unwrap_or_default();
        if self.sighting.as_ref().is_none_or(|seen| seen.version != version) {
            self.sighting = Some(Sighting { version, at: now });
        }
        debug!(lease = %self.name, ?step, "election");
        // Taken, perhaps, and the answer lost: then it is ours next time, and a new term all the same.
        self.is_held &= step == Step::Renew;
        let (sent, sent_wall) = (Instant::now(), self.env.now());
        let written = match step {
            Step::Wait => return Ok(()),
            Step::Create => self.api.create(&PostParams::default(), &self.record(step)).await,
            Step::Renew | Step::TakeOver => {
                self.api.replace(&self.name, &PostParams::default(), &self.record(step)).await
            }
        };
        match written {
            Ok(lease) => {
                self.known = Some(lease);
                self.term += u64::from(!std::mem::replace(&mut self.is_held, true));
                self.fence.set_term(self.term);
                self.fence.open(sent, sent_wall, self.durations.renew_within);
                Ok(())
            }
            // Somebody was faster: it is theirs now, whatever we believed.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.known = None;
                if step == Step::Renew {
                    self.fence.close();
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The record we want, replacing the one we know.
    fn record(&self, step: Step) -> Lease {
        let known = self.known.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let now = Some(MicroTime(self.env.now()));
        let took = step != Step::Renew;
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.durations.duration.as_secs()).ok(),
            acquire_time: if took { now.clone() } else { known.acquire_time },
            renew_time: now,
            lease_transitions: Some(
                known.lease_transitions.unwrap_or(0).saturating_add(i32::from(step == Step::TakeOver)),
            ),
            ..LeaseSpec::default()
        };
        let mut metadata = match &self.known {
            Some(lease) => lease.metadata.clone(),
            None => ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
        };
        // Who it is, so that what the leader before said does not count.
        let annotations = metadata.annotations.get_or_insert_default();
        if self.is_held && self.places.get() == self.term {
            annotations.insert(PLACES_ANNOTATION.to_owned(), self.identity.clone());
        } else {
            annotations.remove(PLACES_ANNOTATION);
        }
        Lease { metadata, spec: Some(spec) }
    }

    fn is_leading(&self) -> bool {
        self.leading.get() != 0
    }

    fn note_leading(&self) {
        let now = self.fence.is_open();
        match (self.leading.set(if now { self.term } else { 0 }), now) {
            (true, true) => info!(lease = %self.name, identity = %self.identity, "leading"),
            (true, false) => info!(lease = %self.name, identity = %self.identity, "no longer leading"),
            _ => {}
        }
    }

    async fn keep_renewing(&mut self) {
        loop {
            tokio::time::sleep(self.durations.retry).await;
            if self.is_leading() {
                self.turn().await;
            }
        }
    }

    /// Gives the lease back, so that a standby need not wait. If it can't, the lease expires anyway.
    async fn release(&mut self) {
        let ours = self.fence.is_open();
        self.fence.close();
        self.note_leading();
        if !ours {
            return;
        }
        match tokio::time::timeout(self.durations.retry, self.give_back()).await {
            Ok(Ok(())) => info!(lease = %self.name, "gave the lease back"),
            Ok(Err(error)) => debug!(lease = %self.name, error = in_words(&error), "could not give the lease back"),
            Err(_) => debug!(lease = %self.name, "could not give the lease back in time"),
        }
    }

    /// Reads the record anew: a renewal that was cut off may have been written all the same.
    async fn give_back(&mut self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
        let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        else {
            return Ok(());
        };
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(MicroTime(self.env.now()));
        self.api.replace(&self.name, &PostParams::default(), &lease).await.map(|_| ())
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;

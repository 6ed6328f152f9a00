//! Telling how replacements are: the one that counts for an application, others for the same, those without one, and those for a kind
//! that dapple does not serve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::crd::is_ours;
use dapple_api::kinds;
use dapple_api::pool::{ReplacementStatus, YurtAppConfigurationReplacement};
use dapple_plan::pool::application::Decision;
use dapple_plan::pool::replacement::{astray, in_force, no_subject, not_counted, not_served};
use dapple_plan::pool::report::{Found, condition};
use dapple_plan::pool::stored::merge_patch;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::Api;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use super::super::Replacement;
use super::super::kept::ApplicationSpec;
use super::failed::ends_all;
use super::io::Io;
use super::observe::{View, addressed};
use super::{AGAIN, PACE};
use crate::caches::Subscription;
use crate::family::ControllerContext;
use crate::install::{find_crd, is_served};
use crate::slim::Key;
use crate::writes::client::{in_words, is_not_leading};
use crate::writes::fence::in_term;
use crate::writes::outcome::{Outcome, Writer};

/// A replacement, and what it is to say.
type Saying = (Arc<Replacement>, (ReplacementStatus, Found));

/// When each was last written: none is more than once a second.
#[derive(Default)]
pub(super) struct Paced(BTreeMap<Key, Instant>);

impl Paced {
    /// How long one is not written yet.
    fn rest(&mut self, key: &Key) -> Option<Duration> {
        self.forget();
        self.0.get(key).map(|told| PACE.saturating_sub(told.elapsed()))
    }

    /// Forgets those that may be written. Whether none is left.
    pub(super) fn forget(&mut self) -> bool {
        self.0.retain(|_, told| told.elapsed() < PACE);
        self.0.is_empty()
    }
}

/// Tells of all that name an application. How long until one may be written that was written a moment ago.
pub(super) async fn tell_of_application<S: ApplicationSpec>(
    io: &Io<S>,
    view: &View,
    decision: &Decision,
    paced: &mut Paced,
    now: Timestamp,
) -> Result<Option<Duration>, kube::Error> {
    let mut all: Vec<Saying> = Vec::new();
    if let (Some(replacement), Some(said)) = (&view.replacement, &view.version.replacements) {
        all.push((replacement.clone(), in_force(said, decision)));
    }
    let counts = view.replacement.as_ref().map(|known| known.meta.key.name.clone()).unwrap_or_default();
    all.extend(view.others.iter().map(|other| (other.clone(), not_counted(&counts))));
    all.extend(told_astray(&view.astray));
    tell((&io.client, &io.replacements), all, paced, now).await
}

/// Tells of all that name an application which is not there.
pub(super) async fn tell_without_subject<S: ApplicationSpec>(
    io: &Io<S>,
    key: &Key,
    paced: &mut Paced,
    now: Timestamp,
) -> Result<Option<Duration>, kube::Error> {
    // Of a kind that is not installed any more, nobody knows what there is.
    if !io.applications.is_known() {
        return Ok(None);
    }
    let (found, strays) = addressed::<S>(&io.replacements, key);
    let mut all: Vec<Saying> = found.into_iter().map(|known| (known, no_subject(S::SUBJECT, &key.name))).collect();
    all.extend(told_astray(&strays));
    tell((&io.client, &io.replacements), all, paced, now).await
}

fn told_astray(strays: &[Arc<Replacement>]) -> impl Iterator<Item = Saying> {
    strays.iter().map(|stray| (stray.clone(), astray(stray.subject.namespace().unwrap_or_default())))
}

/// Tells of all for a kind that dapple does not serve, for as long as it does not. `why`: what is in the way.
pub(in crate::pool) async fn tell_unserved<S: ApplicationSpec>(context: ControllerContext, why: String) {
    // What another product serves is not ours to write.
    let found = find_crd(&context.client, &kinds::REPLACEMENT.crd()).await;
    if !found.is_ok_and(|found| found.is_some_and(|crd| is_ours(&crd) && is_served(&crd))) {
        return;
    }
    let changed = Arc::new(Notify::new());
    let wake = changed.clone();
    let replacements = context.caches.open::<Replacement>().subscribe(&context.stop, move |_| wake.notify_one());
    let mut paced = Paced::default();
    loop {
        // A standby leaves it to the leader.
        let term = context.leading.until(|term| term != 0).await;
        replacements.synced(term).await;
        let mut all = replacements.all();
        all.retain(|known| known.subject.kind == S::SUBJECT);
        let all = all.into_iter().map(|known| (known, not_served(S::SUBJECT, &why))).collect();
        let now = context.env.now();
        match in_term(term, tell((&context.client, &replacements), all, &mut paced, now)).await {
            Ok(None) => changed.notified().await,
            Ok(Some(rest)) => tokio::time::sleep(rest).await,
            Err(error) => {
                if !is_not_leading(&error) {
                    warn!(error = in_words(&error), "the status of a replacement cannot be written");
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Writes what is to be said, where it is not said yet. How long until one may be written that was written a moment ago.
async fn tell(
    (client, replacements): (&Client, &Subscription<Replacement>),
    all: Vec<Saying>,
    paced: &mut Paced,
    now: Timestamp,
) -> Result<Option<Duration>, kube::Error> {
    let (mut later, mut failed): (Option<Duration>, _) = (None, None);
    for (replacement, (mut wanted, found)) in all {
        let key = &replacement.meta.key;
        let known = replacement.status.clone().unwrap_or_default();
        let as_kept = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        wanted.observed_generation = replacement.generation;
        wanted.conditions = vec![condition(found, replacement.generation, &known.conditions, &as_kept)];
        let is_told = replacement.status.as_ref() == Some(&wanted);
        if is_told || !replacements.caught_up(key) || replacements.is_malformed(key) {
            continue;
        }
        if let Some(rest) = paced.rest(key) {
            later = Some(later.map_or(rest, |later| later.min(rest)));
            continue;
        }
        paced.0.insert(key.clone(), Instant::now());
        let api = Api::<YurtAppConfigurationReplacement>::namespaced(client.clone(), &key.namespace);
        let status = merge_patch(&json!(known), &json!(wanted));
        match Writer::new(client, &api).write_status(&replacement.meta, &status).await {
            Outcome::Written(version) => replacements.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) if ends_all(&error) => return Err(error),
            // The others are told of.
            Outcome::Refused(error) | Outcome::Unknown(error) => failed = failed.or(Some(error)),
            // It is another by now: the watch tells.
            Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
        }
    }
    failed.map_or(Ok(later), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_is_written_once_a_second() {
        let (mut paced, key, other) = (Paced::default(), Key::new("default", "web"), Key::new("default", "other"));
        paced.0.insert(key.clone(), Instant::now());
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!((paced.rest(&key), paced.rest(&other)), (Some(Duration::from_millis(600)), None));
        assert!(!paced.forget());
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(paced.rest(&key), None);
        assert!(paced.forget(), "nothing is kept of it");
    }
}

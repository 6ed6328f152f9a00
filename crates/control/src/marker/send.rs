//! Patching pods for a marker: one after another in turn with all other markers, and as many at a time as its pace allows.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_api::kinds::POD;
use dapple_edit::marker::Change;
use dapple_plan::marker::allowance::Limit;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1;
use kube::api::{Api, Patch};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use super::cache::Marker;
use super::job::{Job, Task};
use super::memory::Answered;
use super::metrics::MarkerMetrics;
use super::site::{Site, locked};
use super::view::View;
use crate::observed::Observed;
use crate::pacer::Pacer;
use crate::writes::client::{in_words, is_not_leading};
use crate::writes::outcome::{Outcome, Writer};

/// After so long others have their turn, and it is told how far the marker is.
const SLICE: Duration = Duration::from_secs(1);

/// Patches pods.
pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) counted: Arc<MarkerMetrics>,
    pub(super) view: Arc<View>,
    /// The pace of all markers together.
    pub(super) pacer: Pacer,
    pub(super) limit: Limit,
}

/// What came of a job; an error if nothing was sent.
type Done = (Job, Result<Outcome, kube::Error>);

impl Sender {
    /// Patches pods of a marker for a while. An error if that has to be tried again later.
    pub(super) async fn send(&self, site: &Mutex<Site>, marker: &Marker) -> Result<(), kube::Error> {
        let (mut under_way, mut failed) = (FuturesUnordered::new(), None);
        let mut end = Instant::now() + SLICE;
        loop {
            if failed.is_some() || Instant::now() >= end || !self.has_next(site, marker) {
                let Some(done) = under_way.next().await else { break };
                self.take(site, marker, done, &mut failed);
                continue;
            }
            let mut turn = pin!(self.pacer.turn());
            loop {
                tokio::select! {
                    biased;
                    () = &mut turn => break,
                    Some(done) = under_way.next() => self.take(site, marker, done, &mut failed),
                }
            }
            if failed.is_some() {
                continue;
            }
            let job = locked(site).begin(&self.view, marker, self.limit);
            match job {
                Some(job) => under_way.push(self.patch(job)),
                // By now there is nothing to do, or the marker asks for something else.
                None => end = Instant::now(),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Whether a pod may be patched now.
    fn has_next(&self, site: &Mutex<Site>, marker: &Marker) -> bool {
        let mut site = locked(site);
        let has_next = site.next(&self.view, &marker.meta.key.name, self.limit).found.is_some();
        let now = self.view.now();
        site.memory(&marker.meta.key.name).is_some_and(|memory| {
            if !has_next {
                memory.pace.idle();
            }
            has_next && memory.pace.room(now) > 0
        })
    }

    /// Sends what becomes of a pod: onto the very version that was looked at.
    async fn patch(&self, job: Job) -> Done {
        let (meta, read) = (&job.seen.pod.meta, self.read(&job).await);
        let change = match read {
            Ok(Some(change)) if !change.is_empty() => change,
            Ok(_) => return (job, Ok(Outcome::Conflict)),
            Err(error) => return (job, Err(error)),
        };
        let api = Api::<v1::Pod>::namespaced(self.client.clone(), &meta.key.namespace);
        let patch = Patch::Merge(change.patch(&meta.uid, meta.version));
        let outcome = Writer::new(&self.client, &api).patch(&meta.key.name, None, &patch).await;
        (job, Ok(outcome))
    }

    /// What is changed of a pod. If a value is replaced that is not cached, the pod is read whole before; nothing if it is another
    /// one by now.
    async fn read(&self, job: &Job) -> Result<Option<Change>, kube::Error> {
        if let Some(change) = &job.change {
            return Ok(Some(change.clone()));
        }
        let meta = &job.seen.pod.meta;
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &meta.key.namespace, &POD);
        let found = api.get_opt(&meta.key.name).await?;
        let is_same = |found: &Observed<Value>| {
            found.uid().as_deref() == Some(&*meta.uid) && found.resource_version() == Some(meta.version.to_string())
        };
        let found = found.filter(is_same).and_then(|found| found.object.ok());
        Ok(found.map(|pod| job.change_by(&pod)))
    }

    /// Takes in what came of a patch.
    fn take(&self, site: &Mutex<Site>, marker: &Marker, (job, done): Done, failed: &mut Option<kube::Error>) {
        let (pod, name) = (&job.seen.pod.meta.key, &marker.meta.key.name);
        let answer = match done {
            Ok(Outcome::Written(version)) => {
                self.view.pods.wrote(pod, version);
                self.counted.patches.inc();
                info!(%pod, marker = &**name, is_marked = job.task == Task::Mark, "marks written");
                Answered::Done
            }
            Ok(Outcome::Conflict | Outcome::Missing | Outcome::Gone | Outcome::NameTaken) => Answered::Late,
            // Nothing is said of the pod by this.
            Ok(Outcome::Refused(error)) if is_not_leading(&error) || is_too_fast(&error) => {
                *failed = Some(error);
                Answered::NotNow
            }
            Ok(Outcome::Refused(error)) => {
                self.counted.refusals.inc();
                warn!(%pod, marker = &**name, error = in_words(&error), "a pod cannot be marked");
                Answered::Refused
            }
            Ok(Outcome::Unknown(error)) => {
                *failed = Some(error);
                Answered::Unknown
            }
            Err(error) => {
                *failed = Some(error);
                Answered::NotNow
            }
        };
        locked(site).answered(&self.view, name, &job, answer);
    }
}

/// Whether the API server takes no more just now.
fn is_too_fast(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429)
}

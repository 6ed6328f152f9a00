//! Says what is wrong with the kinds that users list in ConfigMap `groupmanagement-config`: a list that cannot be read, kinds that are
//! not served or may not be read. Nothing else waits for it.

use std::sync::Arc;

use dapple_api::group::{APPLICATIONS, ListedKind, read_listed};
use dapple_api::kinds::CONFIG_MAP;
use kube::Client;
use tracing::warn;

use super::BACKOFF;
use super::listed::{Config, LOOK_AGAIN, find};
use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Cached, Key};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};

/// The controller. Its one key is the ConfigMap.
pub(super) struct Kinds {
    client: Client,
    recorder: Arc<Recorder>,
    config: Subscription<Config>,
}

impl Kinds {
    /// Subscribes to the ConfigMap.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let (told, metrics) = (queue.clone(), context.metrics.clone());
        let on_change = move |change: &Change<Config>| {
            if let Change::Object { key, .. } = change
                && told.add(key.clone(), Urgency::Change)
            {
                metrics.queue_added(Self::NAME);
            }
        };
        let config = context.caches.open().subscribe(&context.stop, on_change);
        (Arc::new(Self { client: context.client.clone(), recorder: context.recorder.clone(), config }), queue)
    }

    fn report(&self, config: &Config, reason: &'static str, note: String) {
        warn!(config = %config.meta().key, reason, note);
        self.recorder.report(Report {
            about: CONFIG_MAP,
            key: config.meta().key.clone(),
            uid: config.meta().uid.to_string(),
            event_type: EventType::Warning,
            action: "Reading",
            reason,
            note,
        });
    }

    /// Reports what keeps kinds from being followed. Returns whether something does.
    async fn report_unserved(&self, config: &Config, listed: &[ListedKind]) -> bool {
        let mut is_any = false;
        for kind in listed {
            if let Err(unserved) = find(&self.client, kind).await {
                is_any = true;
                self.report(config, unserved.reason(), unserved.to_string());
            }
        }
        is_any
    }
}

impl Reconcile for Kinds {
    type Key = Key;
    const NAME: &'static str = "group-kinds";

    async fn ready(&self, term: u64) {
        self.config.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        let Some(config) = self.config.get(key) else {
            self.recorder.forget(CONFIG_MAP, key);
            return Ok(Ended::Done);
        };
        match read_listed(&config.applications) {
            Ok(listed) if self.report_unserved(&config, &listed).await => Ok(Ended::Again(LOOK_AGAIN)),
            Ok(_) => Ok(Ended::Done),
            Err(error) => {
                let note = format!("{APPLICATIONS} cannot be read, and the last list that could be counts: {error}");
                self.report(&config, "ApplicationsUnreadable", note);
                Ok(Ended::Done)
            }
        }
    }

    /// Nothing is written but Events.
    async fn tell_failure(&self, _: &Key, _: &Failure) {}
}

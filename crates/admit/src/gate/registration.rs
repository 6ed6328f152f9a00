//! Telling the API server of which namespaces it is to ask about pods. The leader keeps the configuration as it should be; any
//! replica may add a namespace, in time for the first pods of a workload that is about to be created there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::crd::is_ours;
use dapple_api::kinds::KindInfo;
use dapple_control::env::Env;
use dapple_control::group::Gatekeeper;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use super::hooks::{bundle_of, hooks, namespaces_of};
use super::scope::{Asked, Scope, added, age, note_added};
use crate::hooks::{GATE_CONFIGURATION, Reach, configuration, says};
use crate::requests::{Error, path_of, refused, request};

/// Namespaces that come together are written at once.
const TOGETHER: Duration = Duration::from_millis(50);
/// So often the leader tries again at once if somebody else was faster.
const TRIES: usize = 5;
/// So long a workload waits for its namespace to be added.
const ADDED_WITHIN: Duration = Duration::from_millis(1_500);
/// So soon all API servers have heard of a changed configuration.
const HEARD_WITHIN: Duration = Duration::from_millis(200);
/// What was added so recently need not be added again.
const RECENT: Duration = Duration::from_secs(60);

/// Keeps the configuration.
pub struct GateRegistration {
    plain: Client,
    guarded: Client,
    reach: Reach,
    own_namespace: String,
    env: Env,
    /// What asks for policies; nothing is known of it where this process does not serve node groups.
    gatekeeper: Option<Arc<Gatekeeper>>,
    /// Something may ask for policies in another namespace than before.
    asked: Arc<Notify>,
    scope: Mutex<Scope>,
    /// The namespaces in the configuration, as the leader last saw it.
    written: Mutex<BTreeSet<String>>,
    /// The kinds in it that users have listed.
    written_kinds: Mutex<Vec<KindInfo>>,
    /// Namespaces that are to be added by whoever writes next.
    pending: Mutex<BTreeSet<String>>,
    writing: tokio::sync::Mutex<()>,
}

/// What it is made of.
pub struct Parts {
    /// For what every replica may do.
    pub plain: Client,
    /// For what only the leader may do.
    pub guarded: Client,
    /// Where webhooks are reached.
    pub reach: Reach,
    /// dapple's namespace.
    pub own_namespace: String,
    /// Wall time.
    pub env: Env,
    /// What asks for policies, where this process serves node groups.
    pub gatekeeper: Option<Arc<Gatekeeper>>,
    /// Told of every change of that.
    pub asked: Arc<Notify>,
}

impl GateRegistration {
    /// Nothing is written yet.
    pub fn new(parts: Parts) -> Self {
        let Parts { plain, guarded, reach, own_namespace, env, gatekeeper, asked } = parts;
        Self {
            plain,
            guarded,
            reach,
            own_namespace,
            env,
            gatekeeper,
            asked,
            scope: Mutex::default(),
            written: Mutex::default(),
            written_kinds: Mutex::default(),
            pending: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Waits until pods of another namespace are to be asked about.
    pub async fn behind(&self) {
        loop {
            self.asked.notified().await;
            tokio::time::sleep(TOGETHER).await;
            let wanted = self.gatekeeper.as_ref().map(|known| known.namespaces()).unwrap_or_default();
            let is_asked = wanted.iter().all(|namespace| lock(&self.written).contains(&**namespace));
            if !is_asked || *lock(&self.written_kinds) != self.listed() {
                return;
            }
        }
    }

    /// The kinds that users have listed, as far as this process knows.
    fn listed(&self) -> Vec<KindInfo> {
        self.gatekeeper.as_ref().map(|known| known.listed()).unwrap_or_default()
    }

    /// The configuration as it is. None if there is none, or it is somebody else's.
    async fn find(&self, client: &Client) -> Result<Option<Value>, Error> {
        let path = self.path();
        match request(client, Method::GET, &path, None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(Error::Missing { configuration: format!("MutatingWebhookConfiguration {GATE_CONFIGURATION}") })
            }
            found => Ok(Some(found.map_err(refused(path))?).filter(is_ours)),
        }
    }

    fn path(&self) -> String {
        format!("{}/{GATE_CONFIGURATION}", path_of(&configuration(GATE_CONFIGURATION, Vec::new())))
    }

    /// Makes the configuration say what it should: nothing is asked while nobody opens the gate. To be called in the term in
    /// which this process leads.
    pub async fn keep(&self, bundle: &str, term: u64, is_served: bool) -> Result<(), Error> {
        let gatekeeper = self.gatekeeper.as_ref().filter(|_| is_served);
        let mut tries = 0..TRIES;
        loop {
            let Some(found) = self.find(&self.guarded).await? else {
                warn!(configuration = GATE_CONFIGURATION, "it belongs to another product, and is left alone");
                return Ok(());
            };
            let now = self.env.now();
            let listed = self.listed();
            let hooks = gatekeeper.map(|gatekeeper| {
                let asked = Asked { namespaces: gatekeeper.namespaces(), is_complete: gatekeeper.is_complete() };
                let ages: BTreeMap<String, Duration> =
                    added(&found).into_iter().map(|(namespace, at)| (namespace, age(at, now))).collect();
                let namespaces = lock(&self.scope).update(term, &asked, &namespaces_of(&found), &ages, Instant::now());
                hooks(&self.reach, bundle, &self.own_namespace, &namespaces, &listed)
            });
            let mut wanted = configuration(GATE_CONFIGURATION, hooks.unwrap_or_default());
            if says(&found, &wanted) {
                *lock(&self.written) = namespaces_of(&found);
                *lock(&self.written_kinds) = listed;
                return Ok(());
            }
            for field in ["annotations", "resourceVersion"] {
                wanted["metadata"][field] = found["metadata"][field].clone();
            }
            note_added(&mut wanted, added(&found), now);
            match self.write(&self.guarded, &wanted).await {
                Ok(()) => {
                    *lock(&self.written) = namespaces_of(&wanted);
                    *lock(&self.written_kinds) = listed;
                    return Ok(());
                }
                // A namespace was added meanwhile: what was looked at is not what is there.
                Err(error) if is_conflict(&error) && tries.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(&self, client: &Client, wanted: &Value) -> Result<(), Error> {
        let path = self.path();
        request(client, Method::PUT, &path, Some(wanted)).await.map_err(refused(path))?;
        let namespaces = namespaces_of(wanted).len();
        info!(configuration = GATE_CONFIGURATION, namespaces, "the API server is told whose pods to ask about");
        Ok(())
    }

    /// Has pods of a namespace asked about, before a workload is there that asks for a policy, and waits until API servers have
    /// heard of it. Any replica may.
    pub async fn add(&self, namespace: &str) -> Result<(), Error> {
        lock(&self.pending).insert(namespace.to_owned());
        let adding = async {
            let _turn = self.writing.lock().await;
            self.add_pending(namespace).await
        };
        let heard_in = tokio::time::timeout(ADDED_WITHIN, adding).await;
        lock(&self.pending).remove(namespace);
        tokio::time::sleep(heard_in.unwrap_or(Err(Error::Busy { configuration: GATE_CONFIGURATION }))?).await;
        Ok(())
    }

    /// Returns how long it takes until API servers have heard of it.
    async fn add_pending(&self, namespace: &str) -> Result<Duration, Error> {
        loop {
            let Some(mut found) = self.find(&self.plain).await? else { return Ok(Duration::ZERO) };
            // Without webhooks nobody opens the gate.
            let Some(bundle) = bundle_of(&found) else { return Ok(Duration::ZERO) };
            let (mut namespaces, mut times, now) = (namespaces_of(&found), added(&found), self.env.now());
            let recent = times.get(namespace).map(|at| age(*at, now)).filter(|age| *age < RECENT);
            let is_asked = self.gatekeeper.as_ref().is_some_and(|known| known.is_asked(namespace));
            if namespaces.contains(namespace) && (recent.is_some() || is_asked) {
                return Ok(recent.map_or(Duration::ZERO, |age| HEARD_WITHIN.saturating_sub(age)));
            }
            let mut batch = std::mem::take(&mut *lock(&self.pending));
            batch.insert(namespace.to_owned());
            times.extend(batch.iter().map(|namespace| (namespace.clone(), now)));
            namespaces.extend(batch);
            found["webhooks"] = json!(hooks(&self.reach, &bundle, &self.own_namespace, &namespaces, &self.listed()));
            note_added(&mut found, times, now);
            match self.write(&self.plain, &found).await {
                Ok(()) => return Ok(HEARD_WITHIN),
                // Somebody else was faster: look again.
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Refused { error, .. } if matches!(&**error, kube::Error::Api(status) if status.code == 409))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

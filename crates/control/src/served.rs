//! Whether the cluster lets a part of a family be served.
//!
//! A CRD that another product serves is never touched: the part that needs it stays off and says so, until it is handed over, and a
//! kind that another product takes is given up. A watch of the CRDs' metadata tells that one of them has changed; whether
//! it is served stands in its status, so it is looked at then.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::crd::is_ours;
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::families::way_over;
use crate::family::{ControllerContext, Part};
use crate::install::{find_crd, is_served};
use crate::slim::Crd;

/// How often to look though nothing was told: should the watch not be allowed, or be dead.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// How soon to look again if the API server did not say how it stands.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Changes within this time are looked at once: a CRD is large, and two writers may fight over it.
const TOGETHER: Duration = Duration::from_secs(1);
/// Where this is logged, whatever module it is in: people filter by it.
const LOGGED_AS: &str = "dapple_control::family";

/// Follows the CRDs that a part of a family needs.
pub(crate) struct Served {
    part: &'static Part,
    context: ControllerContext,
    /// One of them has come, changed or gone since it was last looked at.
    changed: Arc<Notify>,
    _crds: Subscription<Crd>,
}

impl Served {
    /// Subscribes to CRDs, until `stop`.
    pub(crate) fn follow(part: &'static Part, context: &ControllerContext, stop: &CancellationToken) -> Self {
        let changed = Arc::new(Notify::new());
        let needed: Vec<String> = part.needs.iter().map(|kind| kind.crd()).collect();
        let wake = changed.clone();
        let on_crd = move |change: &Change<Crd>| {
            let is_needed = |name: &str| needed.iter().any(|needed| needed == name);
            if matches!(change, Change::Object { key, .. } if is_needed(&key.name)) {
                wake.notify_one();
            }
        };
        Self { part, context: context.clone(), changed, _crds: context.caches.open().subscribe(stop, on_crd) }
    }

    /// Waits until the cluster lets it be served. `on_look` is told whether the cluster's answer is known; if it is, those who wait
    /// for it are told too.
    pub(crate) async fn until_ours(&self, on_look: impl Fn(bool)) {
        let name = self.part.name;
        let mut said = None;
        loop {
            let known = self.context.recovery.count();
            let state = self.state().await;
            self.context.metrics.family_serving(name, state == CrdState::Ours);
            if state == CrdState::Ours {
                info!(target: LOGGED_AS, family = name, "served");
                return;
            }
            on_look(!state.is_unknown());
            if said.as_ref() != Some(&state) {
                warn!(target: LOGGED_AS, family = name, "off: {state}");
            }
            let telling = async {
                if !state.is_unknown() {
                    (self.part.tell_off)(self.context.clone(), state.to_string()).await;
                }
                pending::<()>().await;
            };
            tokio::select! {
                biased;
                _ = self.context.recovery.after(known) => {}
                () = self.pause(&state) => {}
                () = telling => {}
            }
            said = Some(state);
        }
    }

    /// Waits until the cluster does not let it be served any more. A cluster that does not answer has not said so.
    pub(crate) async fn until_not_ours(&self) {
        let mut state = CrdState::Ours;
        while state == CrdState::Ours || state.is_unknown() {
            self.pause(&state).await;
            state = self.state().await;
        }
        self.context.metrics.family_serving(self.part.name, false);
    }

    /// After a look, until it is time for another.
    async fn pause(&self, state: &CrdState) {
        let at_most = if state.is_unknown() { ASK_AGAIN } else { LOOK_AGAIN };
        let changed = async {
            self.changed.notified().await;
            tokio::time::sleep(TOGETHER).await;
        };
        tokio::select! { biased; () = changed => {}, () = tokio::time::sleep(at_most) => {} }
    }

    /// How the cluster stands to its kinds.
    async fn state(&self) -> CrdState {
        for kind in self.part.needs {
            match state_of(&self.context.client, kind.crd()).await {
                CrdState::Ours => {}
                other => return other,
            }
        }
        CrdState::Ours
    }
}

/// How the cluster stands to a CRD that we need.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CrdState {
    /// It is ours and served.
    Ours,
    Missing(String),
    Foreign(String),
    NotYetServed(String),
    Unknown(String, String),
}

impl CrdState {
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(..))
    }
}

impl fmt::Display for CrdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("served"),
            Self::Missing(crd) => write!(f, "the CRD {crd} is not installed; `dapple up --cluster` installs it"),
            Self::Foreign(crd) => {
                write!(f, "the CRD {crd} belongs to another product, and dapple leaves it alone; {}", way_over(crd))
            }
            Self::NotYetServed(crd) => {
                write!(f, "the API server does not serve the CRD {crd} yet; `kubectl describe crd {crd}` says why")
            }
            Self::Unknown(crd, error) => write!(f, "the CRD {crd} cannot be read: {error}"),
        }
    }
}

async fn state_of(client: &Client, crd: String) -> CrdState {
    match find_crd(client, &crd).await {
        Ok(None) => CrdState::Missing(crd),
        Ok(Some(found)) if !is_ours(&found) => CrdState::Foreign(crd),
        Ok(Some(found)) if !is_served(&found) => CrdState::NotYetServed(crd),
        Ok(Some(_)) => CrdState::Ours,
        Err(error) => CrdState::Unknown(crd, error.to_string()),
    }
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;

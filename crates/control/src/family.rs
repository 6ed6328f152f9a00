//! The families of APIs that a manager serves, and whether the cluster lets it.
//!
//! A CRD that another product serves is never touched: its family stays off and says so, until it is handed over. The
//! look is repeated, so a kind that another product takes is given up.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::crd::is_ours;
use dapple_api::kinds::{self, OwnKind};
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::caches::Caches;
use crate::env::Env;
use crate::gates::Gates;
use crate::install::{find_crd, is_served};
use crate::metrics::Metrics;
use crate::retry::Recovery;
use crate::writes::events::Recorder;

/// What the controllers of a family are made of.
#[derive(Clone)]
pub struct Parts {
    /// A client whose writes are sent only while this process leads.
    pub client: Client,
    /// Wall time and randomness.
    pub env: Env,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Where to report.
    pub recorder: Arc<Recorder>,
    /// What is switched on.
    pub gates: Gates,
    /// When the API server is back.
    pub recovery: Recovery,
    /// What is known of the cluster.
    pub caches: Caches,
    /// Ends the family.
    pub stop: CancellationToken,
}

/// How often to look whether a family may be served.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A family of APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// DaemonSet.
    DaemonSet,
    /// NodeGroup, PropagationPolicy, OverridePolicy.
    Group,
}

impl Family {
    /// Every family there is.
    pub const ALL: [Self; 2] = [Self::DaemonSet, Self::Group];

    /// Its name, as in `--families`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DaemonSet => "daemonset",
            Self::Group => "group",
        }
    }

    /// The CRDs that its controllers need.
    fn kinds(self) -> &'static [&'static OwnKind] {
        match self {
            Self::DaemonSet => &[&kinds::DAEMON_SET],
            Self::Group => &[&kinds::NODE_GROUP],
        }
    }

    /// Whether `dapple adopt` can take its kinds over from another product.
    pub fn is_adoptable(self) -> bool {
        self == Self::DaemonSet
    }

    /// Waits until the cluster lets this family be served. `on_look` is told whether the cluster's answer is known.
    pub(crate) async fn ours(self, client: &Client, recovery: &Recovery, metrics: &Metrics, on_look: impl Fn(bool)) {
        let mut said = None;
        loop {
            let known = recovery.count();
            let standing = self.standing(client).await;
            metrics.family_serving(self.name(), standing == Standing::Ours);
            if standing == Standing::Ours {
                info!(family = self.name(), "served");
                return;
            }
            on_look(!matches!(standing, Standing::Unknown(..)));
            if said.as_ref() != Some(&standing) {
                warn!(family = self.name(), "off: {standing}");
            }
            said = Some(standing);
            tokio::select! { biased; _ = recovery.after(known) => {}, () = tokio::time::sleep(LOOK_AGAIN) => {} }
        }
    }

    /// Waits until the cluster does not let this family be served any more. A cluster that does not answer has not said so.
    pub(crate) async fn not_ours(self, client: &Client, metrics: &Metrics) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let standing = self.standing(client).await;
            if !matches!(standing, Standing::Ours | Standing::Unknown(..)) {
                metrics.family_serving(self.name(), false);
                return;
            }
        }
    }

    /// How the cluster stands to this family's APIs.
    async fn standing(self, client: &Client) -> Standing {
        for kind in self.kinds() {
            match standing_of(client, &kind.crd()).await {
                Standing::Ours => {}
                other => return other,
            }
        }
        Standing::Ours
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|family| family.name() == text);
        found.ok_or_else(|| format!("no family {text:?}; there is: {known}"))
    }
}

/// How the cluster stands to a CRD that we need.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It is ours and served.
    Ours,
    Missing(String),
    Foreign(String),
    NotYetServed(String),
    Unknown(String, String),
}

impl fmt::Display for Standing {
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

/// How dapple comes to serve the kind of a CRD that belongs to another product.
pub fn way_over(crd: &str) -> String {
    let family = Family::ALL.into_iter().find(|family| family.kinds().iter().any(|kind| kind.crd() == crd));
    match family.filter(|family| family.is_adoptable()) {
        Some(family) => format!("`dapple adopt {}` takes it over, and nothing restarts", family.name()),
        None => "remove that product and its CRD, then `dapple up --cluster`, to have dapple serve the kind".to_owned(),
    }
}

async fn standing_of(client: &Client, crd: &str) -> Standing {
    match find_crd(client, crd).await {
        Ok(None) => Standing::Missing(crd.to_owned()),
        Ok(Some(found)) if !is_ours(&found) => Standing::Foreign(crd.to_owned()),
        Ok(Some(found)) if !is_served(&found) => Standing::NotYetServed(crd.to_owned()),
        Ok(Some(_)) => Standing::Ours,
        Err(error) => Standing::Unknown(crd.to_owned(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_product_serves_comes_with_the_way_over() {
        let said = |crd: &str| Standing::Foreign(crd.to_owned()).to_string();
        assert!(
            said("daemonsets.apps.kruise.io").ends_with("`dapple adopt daemonset` takes it over, and nothing restarts")
        );
        for crd in ["nodegroups.groupmanagement.kubeedge.io", "podmarkers.apps.kruise.io"] {
            assert!(said(crd).contains("remove that product and its CRD"), "{}", said(crd));
        }
    }
}

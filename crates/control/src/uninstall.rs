//! Taking back what was installed into a cluster, as far as it is dapple's.

use std::time::Duration;

use dapple_api::crd::is_ours;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::api::{Api, DeleteParams, Preconditions};
use serde_json::Value;

use crate::install::{Error, api_of, documents, find, shown};
use crate::lease::{LeaseDurations, promised};

/// What became of objects that were to be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// Those that were removed: kind and name.
    pub removed: Vec<String>,
    /// Those of somebody else under the same name, which were left alone.
    pub foreign: Vec<String>,
}

impl Removal {
    /// Adds what became of others.
    pub fn extend(&mut self, other: Self) {
        self.removed.extend(other.removed);
        self.foreign.extend(other.foreign);
    }
}

/// Removes objects of these kinds and names in order, if they are there and dapple's.
pub async fn remove(client: &Client, objects: impl IntoIterator<Item = Value>) -> Result<Removal, Error> {
    let mut removal = Removal::default();
    for wanted in objects {
        let found = match find(client, &wanted).await {
            // A kind that is not known has no objects.
            Err(Error::Unserved { .. }) => continue,
            found => found?,
        };
        let Some(found) = found else { continue };
        if !is_ours(&found) {
            removal.foreign.push(shown(&wanted));
            continue;
        }
        // What is deleted is what was looked at.
        let uid = found["metadata"]["uid"].as_str().map(str::to_owned);
        let only = Preconditions { uid, resource_version: None };
        let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        match api_of(client, &wanted).await?.delete(name, &params).await {
            Ok(_) => removal.removed.push(shown(&wanted)),
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(Error::Refused { object: shown(&wanted), source: Box::new(error) }),
        }
    }
    Ok(removal)
}

/// Removes what a YAML text installs, the last first. What is in a namespace goes with it.
pub async fn remove_yaml(client: &Client, text: &str) -> Result<Removal, Error> {
    let mut objects = documents(text)?;
    objects.retain(|object| object["metadata"]["namespace"].is_null());
    objects.reverse();
    remove(client, objects).await
}

/// Who leads by this lease now, if anybody does. A record that is not of a manager, or whose time is not of now, tells only who
/// watches it: `on_watch` is called with the time that this takes.
pub async fn leader(
    client: &Client,
    (namespace, name): (&str, &str),
    now: Timestamp,
    on_watch: impl FnOnce(Duration),
) -> Result<Option<String>, Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let refused = |source| Error::Refused { object: format!("Lease {namespace}/{name}"), source: Box::new(source) };
    let Some(lease) = leases.get_opt(name).await.map_err(refused)? else { return Ok(None) };
    let spec = lease.spec.unwrap_or_default();
    let lasts = promised(&spec, LeaseDurations::default().duration);
    let Some(holder) = spec.holder_identity.clone().filter(|holder| !holder.is_empty()) else { return Ok(None) };
    match is_held(&spec, lasts, now) {
        Some(true) => Ok(Some(holder)),
        Some(false) => Ok(None),
        None => {
            on_watch(lasts);
            tokio::time::sleep(lasts).await;
            let later = leases.get_opt(name).await.map_err(refused)?;
            let is_renewed =
                later.is_some_and(|later| later.metadata.resource_version != lease.metadata.resource_version);
            Ok(is_renewed.then_some(holder))
        }
    }
}

/// Whether a lease is held at this time, as far as its record can be believed.
fn is_held(spec: &LeaseSpec, lasts: Duration, now: Timestamp) -> Option<bool> {
    let since = now.duration_since(spec.renew_time.as_ref()?.0);
    let lasts = SignedDuration::try_from(lasts).ok()?;
    // Clocks differ a little. A time further ahead is nobody's.
    (since > -lasts).then_some(since < lasts)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    #[test]
    fn a_time_of_the_future_is_nobodys_word() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let held = |ago: Option<i64>| {
            let at = |ago: i64| MicroTime(Timestamp::from_second(1_000_000 - ago).unwrap());
            let spec = LeaseSpec { renew_time: ago.map(at), ..LeaseSpec::default() };
            is_held(&spec, Duration::from_secs(15), now)
        };
        assert_eq!([held(Some(0)), held(Some(14)), held(Some(15))], [Some(true), Some(true), Some(false)]);
        assert_eq!(held(Some(-14)), Some(true), "a clock that is ahead");
        assert_eq!([held(Some(-15)), held(Some(-999_999)), held(None)], [None, None, None]);
    }
}

//! Taking back what was installed into a cluster, as far as it is dapple's.

use dapple_api::crd::is_ours;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, Preconditions};
use serde_json::Value;

use crate::install::{Error, api_of, documents, find, shown};

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

/// Who leads by this lease now, if anybody does.
pub async fn leader(client: &Client, namespace: &str, name: &str, now: Timestamp) -> Result<Option<String>, Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let refused = |source| Error::Refused { object: format!("Lease {namespace}/{name}"), source: Box::new(source) };
    let Some(spec) = leases.get_opt(name).await.map_err(refused)?.and_then(|lease| lease.spec) else { return Ok(None) };
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
    let is_held = spec.renew_time.is_some_and(|renewed| renewed.0.as_second() + lasts > now.as_second());
    Ok(spec.holder_identity.filter(|holder| is_held && !holder.is_empty()))
}

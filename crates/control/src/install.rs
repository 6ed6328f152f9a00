//! Putting dapple's APIs, permissions and examples into a cluster. Safe to repeat.

use std::time::Duration;

use dapple_api::crd::{crds, is_ours};
use http::Request;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, oneshot};
use serde_json::Value;

/// Who owns the fields that installing sets.
const FIELD_MANAGER: &str = "dapple-install";
/// How long the API server may take to serve a new kind.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Why something could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("{object}: {source}")]
    Refused {
        /// What it was about.
        object: String,
        /// The refusal.
        source: Box<kube::Error>,
    },
    /// A document is not an object.
    #[error("document {number} has no {field}; every object needs one")]
    NotAnObject {
        /// Which document, from one.
        number: usize,
        /// What it lacks.
        field: &'static str,
    },
    /// The text is not YAML.
    #[error("not valid YAML: {0}")]
    Yaml(String),
    /// The API server took a CRD and does not serve it.
    #[error("the API server does not serve {crd} after {SERVED_WITHIN:?}; `kubectl describe crd {crd}` says why")]
    NotServed {
        /// Its name.
        crd: String,
    },
}

/// What became of one CRD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledCrd {
    /// Its name.
    pub name: String,
    /// Whether another product's was found and left alone.
    pub foreign: bool,
}

/// Installs or brings up to date every CRD that is ours or nobody's, and waits until they are served.
pub async fn install_crds(client: &Client) -> Result<Vec<InstalledCrd>, Error> {
    let mut installed = Vec::new();
    for crd in crds() {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let foreign = find_crd(client, &name).await?.is_some_and(|found| !is_ours(&found));
        if !foreign {
            apply(client, &crd).await?;
        }
        installed.push(InstalledCrd { name, foreign });
    }
    for crd in installed.iter().filter(|crd| !crd.foreign) {
        wait_until_served(client, &crd.name).await?;
    }
    Ok(installed)
}

/// The CRD of this name, if there is one.
pub async fn find_crd(client: &Client, name: &str) -> Result<Option<Value>, Error> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let refused = |source| Error::Refused { object: format!("CRD {name}"), source: Box::new(source) };
    let request = Request::get(path).body(Vec::new()).map_err(|error| refused(kube::Error::HttpError(error)))?;
    match client.request::<Value>(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

/// Whether the API server serves this CRD.
pub fn is_served(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|is| is["type"] == "Established" && is["status"] == "True")
}

/// Waits until the API server serves a CRD.
pub(crate) async fn wait_until_served(client: &Client, name: &str) -> Result<(), Error> {
    let wait = async {
        while !find_crd(client, name).await?.is_some_and(|crd| is_served(&crd)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(SERVED_WITHIN, wait).await.unwrap_or_else(|_| Err(Error::NotServed { crd: name.to_owned() }))
}

/// Applies every document of a YAML text, in order.
pub async fn apply_yaml(client: &Client, text: &str) -> Result<(), Error> {
    let documents = serde_saphyr::from_multiple::<Value>(text).map_err(|error| Error::Yaml(error.to_string()))?;
    for (index, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
        for field in ["apiVersion", "kind"] {
            if !document[field].is_string() {
                return Err(Error::NotAnObject { number: index + 1, field });
            }
        }
        apply(client, document).await?;
    }
    Ok(())
}

/// Applies one object.
pub async fn apply(client: &Client, object: &Value) -> Result<(), Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let refused = |source| Error::Refused { object: format!("{kind} {name}"), source: Box::new(source) };
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    let (resource, capabilities) = oneshot::pinned_kind(client, &gvk).await.map_err(refused)?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await.map_err(refused)?;
    Ok(())
}

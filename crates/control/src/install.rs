//! Putting dapple's APIs, permissions and examples into a cluster. Safe to repeat.

use std::time::Duration;

use dapple_api::crd::{MANAGED_BY, MANAGED_BY_LABEL, crds, is_ours};
use dapple_api::partition::{ServiceAccount, author_policies};
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, oneshot};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::writes::client::in_words;

/// Who owns the fields that installing sets.
const FIELD_MANAGER: &str = "dapple-install";
/// So often an object is applied again for which the API server had no time.
const REPEATS: usize = 3;
/// How long the API server may take to serve a new kind.
const SERVED_WITHIN: Duration = Duration::from_secs(300);

/// A namespace that is being deleted is waited for no longer.
const GONE_WITHIN: Duration = Duration::from_secs(120);

/// Why something could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("{object}: {}", in_words(source.as_ref()))]
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
    /// Somebody else has an object of this name.
    #[error(
        "{object} is there and is not dapple's, which would have the label {MANAGED_BY_LABEL}={MANAGED_BY}; \
         rename it, or delete it if nothing needs it, and try again"
    )]
    Foreign {
        /// Which one.
        object: String,
    },
    /// The API server does not know the kind.
    #[error(
        "{object}: the API server does not serve this kind of {api_version}; use a newer Kubernetes, or install what \
         defines it, and try again"
    )]
    Unserved {
        /// Which object.
        object: String,
        /// API group and version of its kind.
        api_version: String,
    },
    /// Pods stay behind the gate.
    #[error(
        "{pods} pods, {first} among them, still wait behind dapple's scheduling gate: something puts it back or changes them; try again"
    )]
    Gated {
        /// How many.
        pods: usize,
        /// One of them.
        first: String,
    },
    /// The API server took a CRD and does not serve it.
    #[error("the API server does not serve {crd} after {SERVED_WITHIN:?}; `kubectl describe crd {crd}` says why")]
    NotServed {
        /// Its name.
        crd: String,
    },
    /// A namespace is being deleted, and does not go.
    #[error(
        "the namespace {namespace} is still being deleted after {GONE_WITHIN:?}: {why}; wait until \
         `kubectl get namespace {namespace}` does not find it, then run this again, or choose another with --namespace"
    )]
    NotGone {
        /// Its name.
        namespace: String,
        /// What it waits for, as far as it says.
        why: String,
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
    for mut crd in crds() {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let found = find_crd(client, &name).await?;
        let foreign = found.as_ref().is_some_and(|found| !is_ours(found));
        if !foreign {
            found.iter().for_each(|found| keep_conversion(found, &mut crd));
            apply(client, &crd).await?;
        }
        installed.push(InstalledCrd { name, foreign });
    }
    for crd in installed.iter().filter(|crd| !crd.foreign) {
        wait_until_served(client, &crd.name).await?;
    }
    Ok(installed)
}

/// Leaves the conversion that a manager has set up as it is, and the versions served that need it.
fn keep_conversion(found: &Value, crd: &mut Value) {
    let conversion = &found["spec"]["conversion"];
    if conversion["strategy"] != "Webhook" {
        return;
    }
    crd["spec"]["conversion"] = conversion.clone();
    let before = found["spec"]["versions"].as_array();
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let known = before.into_iter().flatten().find(|known| known["name"] == version["name"]);
        if let Some(known) = known {
            version["served"] = known["served"].clone();
        }
    }
}

/// Has nobody convert a kind any more, and only the version that is stored be served: the others would be read as what they
/// are not. Returns whether there was something to change.
pub async fn stop_conversion(client: &Client, name: &str) -> Result<bool, Error> {
    let Some(mut crd) = find_crd(client, name).await?.filter(is_ours) else { return Ok(false) };
    if crd["spec"]["conversion"]["strategy"] != "Webhook" {
        return Ok(false);
    }
    crd["spec"]["conversion"] = json!({"strategy": "None"});
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["served"] = version["storage"].clone();
    }
    let refused = |source| Error::Refused { object: format!("CRD {name}"), source: Box::new(source) };
    let object: DynamicObject =
        serde_json::from_value(crd.clone()).map_err(|error| refused(kube::Error::SerdeError(error)))?;
    api_of(client, &crd).await?.replace(name, &PostParams::default(), &object).await.map_err(refused)?;
    Ok(true)
}

/// Installs or brings up to date the policies on who may write objects that make dapple change pods. A kind that another
/// product serves has none.
pub async fn install_policies(client: &Client, manager: &ServiceAccount) -> Result<(), Error> {
    for policy in author_policies(manager) {
        if find_crd(client, &policy.crd).await?.is_some_and(|found| is_ours(&found)) {
            apply_own(client, &policy.objects).await?;
        }
    }
    Ok(())
}

/// Applies objects in order, or none of them if somebody else has one of the same name.
pub(crate) async fn apply_own(client: &Client, objects: &[Value]) -> Result<(), Error> {
    for object in objects {
        if find(client, object).await?.is_some_and(|found| !is_ours(&found)) {
            return Err(Error::Foreign { object: shown(object) });
        }
    }
    for object in objects {
        apply(client, object).await?;
    }
    Ok(())
}

/// The object of this kind and name as the API server has it, if it does.
pub async fn find(client: &Client, object: &Value) -> Result<Option<Value>, Error> {
    let refused = |source| Error::Refused { object: shown(object), source: Box::new(source) };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let found = api_of(client, object).await?.get_opt(name).await.map_err(refused)?;
    found.map(serde_json::to_value).transpose().map_err(|error| refused(kube::Error::SerdeError(error)))
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

/// Waits until a namespace that is being deleted is gone, such as that of the installation before: nothing can be put into it.
/// `on_wait` is called each time that it is looked at in vain, with what it waits for.
pub async fn wait_until_gone(client: &Client, namespace: &str, mut on_wait: impl FnMut(&str)) -> Result<(), Error> {
    let (namespaces, begun): (Api<Namespace>, _) = (Api::all(client.clone()), Instant::now());
    let refused = |source| Error::Refused { object: format!("Namespace {namespace}"), source: Box::new(source) };
    while let Some(why) = namespaces.get_opt(namespace).await.map_err(refused)?.as_ref().and_then(still_there) {
        if begun.elapsed() >= GONE_WITHIN {
            return Err(Error::NotGone { namespace: namespace.to_owned(), why });
        }
        on_wait(&why);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// What a namespace that is being deleted waits for; none if it is not being deleted.
fn still_there(namespace: &Namespace) -> Option<String> {
    namespace.metadata.deletion_timestamp.as_ref()?;
    let conditions = namespace.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let said: Vec<&str> =
        conditions.filter(|known| known.status == "True").filter_map(|known| known.message.as_deref()).collect();
    Some(if said.is_empty() { "it does not say what it waits for".to_owned() } else { said.join("; ") })
}

/// Applies every document of a YAML text, in order; none if one of them is no object.
pub async fn apply_yaml(client: &Client, text: &str) -> Result<(), Error> {
    for document in documents(text)? {
        apply(client, &document).await?;
    }
    Ok(())
}

/// The objects of a YAML text.
pub fn documents(text: &str) -> Result<Vec<Value>, Error> {
    let mut documents = serde_saphyr::from_multiple::<Value>(text).map_err(|error| Error::Yaml(error.to_string()))?;
    for (index, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
        if let Some(field) = ["apiVersion", "kind"].into_iter().find(|field| !document[*field].is_string()) {
            return Err(Error::NotAnObject { number: index + 1, field });
        }
    }
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// Applies one object. A busy API server may say that it ran out of time: applying says the whole object, so it is safe to repeat.
pub async fn apply(client: &Client, object: &Value) -> Result<(), Error> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let api = api_of(client, object).await?;
    let mut repeats = 0..REPEATS;
    loop {
        match api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 504 && repeats.next().is_some() => {}
            Err(source) => return Err(Error::Refused { object: shown(object), source: Box::new(source) }),
        }
    }
}

/// Where objects of this one's kind and namespace are read and written.
pub async fn api_of(client: &Client, object: &Value) -> Result<Api<DynamicObject>, Error> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let unserved = || Error::Unserved { object: shown(object), api_version: api_version.to_owned() };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, text("kind"));
    let found = oneshot::pinned_kind(client, &gvk).await;
    let (resource, capabilities) = found.map_err(|error| match error {
        kube::Error::Discovery(_) => unserved(),
        kube::Error::Api(status) if status.code == 404 => unserved(),
        other => Error::Refused { object: shown(object), source: Box::new(other) },
    })?;
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    })
}

/// Kind and name, as people say them.
pub(crate) fn shown(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversion_that_is_set_up_survives_an_upgrade() {
        let version = |name: &str, served: bool| json!({"name": name, "served": served});
        let crd = || json!({"spec": {"versions": [version("v1beta1", true), version("v1alpha1", false), version("v2", true)]}});
        let webhook = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}}});
        let found =
            json!({"spec": {"conversion": webhook, "versions": [version("v1beta1", true), version("v1alpha1", true)]}});
        let mut kept = crd();
        keep_conversion(&found, &mut kept);
        assert_eq!(kept["spec"]["conversion"], webhook);
        assert_eq!(kept["spec"]["versions"][1]["served"], true);
        let mut fresh = crd();
        keep_conversion(&json!({"spec": {"conversion": {"strategy": "None"}}}), &mut fresh);
        assert_eq!(fresh, crd());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_being_deleted_is_waited_for() {
        /// A cluster whose namespace is looked at so often before it is gone.
        fn cluster(mut times: usize) -> Client {
            let answer = move |_: http::Request<kube::client::Body>| {
                let left = times;
                times = times.saturating_sub(1);
                async move {
                    let message = format!("{left} pods remain");
                    let found = json!({"apiVersion": "v1", "kind": "Namespace",
                        "metadata": {"name": "a", "deletionTimestamp": "2026-11-15T00:00:00Z"},
                        "status": {"conditions": [
                            {"type": "NamespaceContentRemaining", "status": "True", "message": message},
                            {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "fine"}]}});
                    let gone = json!({"apiVersion": "v1", "kind": "Status", "code": 404, "status": "Failure",
                        "reason": "NotFound", "message": "not found", "metadata": {}});
                    let (code, body) = if left > 0 { (200, found) } else { (404, gone) };
                    let body = kube::client::Body::from(body.to_string().into_bytes());
                    http::Response::builder().status(code).body(body).map_err(std::io::Error::other)
                }
            };
            Client::new(tower::service_fn(answer), "default")
        }
        let mut said = Vec::new();
        wait_until_gone(&cluster(3), "a", |why| said.push(why.to_owned())).await.expect("it goes");
        assert_eq!(said, ["3 pods remain", "2 pods remain", "1 pods remain"]);
        wait_until_gone(&cluster(0), "a", |why| panic!("{why}")).await.expect("there is none");
        let error = wait_until_gone(&cluster(usize::MAX), "a", |_| {}).await.expect_err("it stays").to_string();
        assert!(
            error.contains("namespace a") && error.contains("pods remain") && error.contains("--namespace"),
            "{error}"
        );
        assert_eq!(still_there(&Namespace::default()), None, "it is not being deleted");
    }
}

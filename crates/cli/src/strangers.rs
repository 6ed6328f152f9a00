//! Documents that nothing is planned of though somebody may think so: without a kind, of a kind that nobody knows, or of a
//! version that is not planned.

use std::collections::BTreeSet;

use anyhow::Context;
use dapple_api::kinds;
use dapple_api::manifest::Manifest;
use dapple_control::install::{self, api_of};
use dapple_edit::check::nearest;
use dapple_plan::world::{is_known, name_of};
use dapple_view::harmless;
use kube::Client;
use serde_json::Value;

/// Says what is not planned, and why.
pub(crate) struct Strangers<'a> {
    /// Who knows all kinds that are served; nobody where nodes came from a file.
    client: Option<&'a Client>,
    /// Groups and kinds that the files themselves define.
    defined: BTreeSet<(String, String)>,
}

impl<'a> Strangers<'a> {
    /// Beside these files.
    pub(crate) fn new(manifests: &[Manifest], client: Option<&'a Client>) -> Self {
        let definitions = manifests.iter().map(Manifest::value).filter(|value| {
            kind_of(value) == (kinds::CUSTOM_RESOURCE_DEFINITION.group, kinds::CUSTOM_RESOURCE_DEFINITION.kind)
        });
        let defined = definitions.map(|crd| {
            let text = |pointer| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            (text("/spec/group"), text("/spec/names/kind"))
        });
        Self { client, defined: defined.collect() }
    }

    /// What is to be said of a document that plays no part in planning: nothing of kinds that are known to play none.
    pub(crate) async fn told(&self, manifest: &Manifest) -> anyhow::Result<Option<String>> {
        let value = manifest.value();
        let (group, kind) = kind_of(value);
        let version = value["apiVersion"].as_str().unwrap_or_default();
        let say = |field: &str, why: String| {
            let place = format!("{}:{}", manifest.file(), manifest.locate(field));
            Ok(Some(harmless(&format!("{place}: {why}"))))
        };
        if kind.is_empty() {
            let why =
                "this document has no kind, so it is not planned: give it apiVersion and kind, as in kind: NodeGroup";
            return say("kind", why.to_owned());
        }
        let name = name_of(value);
        if version.is_empty() {
            return say("apiVersion", format!("{name} is not planned: it has no apiVersion"));
        }
        let is_ours = kinds::find(group, kind).is_some();
        if is_ours || kinds::of_kubernetes(group).contains(&kind) || self.is_defined(value, group, kind).await? {
            // Of a group whose kinds are planned, whoever writes one takes it for planned too.
            let why = is_known(value).then(|| format!("{name} is not planned: {version} is not"));
            return why.map_or(Ok(None), |why| say("apiVersion", why));
        }
        let own = kinds::OWN.into_iter().filter(|own| own.at.group == group).map(|own| own.at.kind);
        let meant = nearest(kind, own.chain(kinds::of_kubernetes(group).iter().copied()));
        let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
        let nobody =
            if self.client.is_some() { "the cluster does not have" } else { "neither Kubernetes nor dapple has" };
        say("kind", format!("{name} is not planned: {nobody} the kind {kind} of {version}{meant}"))
    }

    /// Whether the files or the cluster have this kind.
    async fn is_defined(&self, object: &Value, group: &str, kind: &str) -> anyhow::Result<bool> {
        if self.defined.contains(&(group.to_owned(), kind.to_owned())) {
            return Ok(true);
        }
        let Some(client) = self.client else { return Ok(false) };
        match api_of(client, object).await {
            Err(install::Error::Unserved { .. }) => Ok(false),
            found => found.map(|_| true).with_context(|| format!("cannot ask for the kind of {}", name_of(object))),
        }
    }
}

/// Group and kind of an object.
fn kind_of(object: &Value) -> (&str, &str) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    (version.split_once('/').map_or("", |(group, _)| group), object["kind"].as_str().unwrap_or_default())
}

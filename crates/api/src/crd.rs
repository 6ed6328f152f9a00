//! CustomResourceDefinitions of every kind, generated from the Rust types.

use std::borrow::Cow;

use kube::Resource;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::kinds::{OwnKind, Serving};
use crate::structural::schema_of;
use crate::{daemonset, group, marker, pool, template, yaml};

/// The label by which dapple recognises its own objects, CRDs among them. Its value is [`MANAGED_BY`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY_LABEL`] on dapple's own objects.
pub const MANAGED_BY: &str = "dapple";

/// The command that writes [`crd_files`] into the repository.
pub const REGENERATE: &str = "dapple crds --write config/crds";

/// One kind, with all its versions.
pub(crate) struct Crd {
    pub(crate) kind: &'static OwnKind,
    pub(crate) versions: Vec<Version>,
}

/// What a version of a kind looks like. How it is served, the table of kinds says.
pub(crate) struct Version {
    name: Cow<'static, str>,
    schema: Value,
    columns: Vec<Value>,
}

impl Version {
    /// The version that a type is of.
    pub(crate) fn of<T: JsonSchema + Resource<DynamicType = ()>>(columns: Vec<Value>) -> Self {
        Self { name: T::version(&()), schema: schema_of::<T>(), columns }
    }

    fn render(mut self, kind: &OwnKind, definitions: &Map<String, Value>) -> Value {
        let is_stored = self.name == kind.at.version;
        let is_as_stored = kind.serving(&self.name) == Some(Serving::AsStored);
        // Of one that is never served, nobody reads the schema.
        let is_ever_served = kind.served_versions().any(|name| self.name == name);
        template::expand(&mut self.schema, definitions, is_ever_served);
        let mut version = json!({
            "name": self.name,
            // Those that are converted are once the manager does it.
            "served": is_stored || is_as_stored,
            "storage": is_stored,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": self.schema},
        });
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = self.columns.into();
        }
        version
    }
}

impl Crd {
    fn render(self, definitions: &Map<String, Value>) -> Value {
        let versions: Vec<Value> =
            self.versions.into_iter().map(|version| version.render(self.kind, definitions)).collect();
        let mut crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": self.kind.crd(),
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
            },
            "spec": {
                "group": self.kind.at.group,
                "names": {
                    "kind": self.kind.at.kind,
                    "listKind": format!("{}List", self.kind.at.kind),
                    "plural": self.kind.at.plural,
                    "singular": self.kind.at.kind.to_lowercase(),
                    "categories": ["dapple"],
                },
                "scope": self.kind.scope(),
                "versions": versions,
            },
        });
        // An empty list is none to the API server.
        if !self.kind.short_names.is_empty() {
            crd["spec"]["names"]["shortNames"] = json!(self.kind.short_names);
        }
        crd
    }
}

/// A column of `kubectl get`.
pub(crate) fn column(name: &str, kind: &str, path: &str, description: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "description": description})
}

/// A column of `kubectl get -o wide`.
pub(crate) fn wide(name: &str, kind: &str, path: &str, description: &str) -> Value {
    let mut column = column(name, kind, path, description);
    column["priority"] = 1.into();
    column
}

/// The column that `kubectl get` shows where a kind names no columns of its own.
pub(crate) fn age() -> Value {
    column("Age", "date", ".metadata.creationTimestamp", "Time since creation")
}

/// The CustomResourceDefinition of every kind, families in order, kinds in the order their documentation has.
pub fn crds() -> Vec<Value> {
    let definitions = template::definitions();
    let families = [daemonset::crds(), marker::crds(), group::crds(), pool::crds()];
    families.into_iter().flatten().map(|crd| crd.render(&definitions)).collect()
}

/// Whether a CustomResourceDefinition found in a cluster is dapple's own, so that dapple may change it.
pub fn is_ours(crd: &Value) -> bool {
    crd["metadata"]["labels"][MANAGED_BY_LABEL] == MANAGED_BY
}

/// The files of `config/crds`: name (`<group>_<plural>.yaml`) and text, the same bytes on every machine.
pub fn crd_files() -> Vec<(String, String)> {
    let file = |crd: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{}_{}.yaml", text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]));
        (name, format!("# Generated by `{REGENERATE}`: do not edit.\n{}", yaml::document(crd)))
    };
    crds().iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labelled_crds_are_ours() {
        assert!(crds().iter().all(is_ours));
        assert!(!is_ours(&json!({"metadata": {"name": "daemonsets.apps.kruise.io"}})));
        assert!(!is_ours(&json!({"metadata": {"labels": {MANAGED_BY_LABEL: "Helm"}}})));
    }
}

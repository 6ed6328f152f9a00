//! YurtAppConfigurationReplacement: how an application differs between pools.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::replacement_pools::Pools;
use crate::object::resource;
use crate::schema;

resource! {
    /// Says how an application, a YurtAppSet or YurtAppDaemon of the same namespace, differs between pools. It has no
    /// `spec`: `subject` and `replacements` stand at the top.
    pub struct YurtAppConfigurationReplacement: REPLACEMENT, NamespaceResourceScope {
        /// The application. At most one object of this kind may name it.
        pub subject: Subject,
        /// Changes, applied in order; the last one wins where two change the same thing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 256))]
        pub replacements: Vec<Replacement>,
        /// What dapple found out. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<ReplacementStatus>,
    }
}

/// The application that is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.nameSpace) || !has(self.namespace) || self.nameSpace == self.namespace",
    "message": "subject.nameSpace and subject.namespace are two spellings of one field: remove one of them"
}]))]
pub struct Subject {
    /// The application's version, for example `apps.openyurt.io/v1alpha1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^apps\.openyurt\.io/v[0-9a-z]+$"))]
    pub api_version: Option<String>,
    /// The application's kind.
    pub kind: SubjectKind,
    /// The application's namespace: leave it out, or write the one of this object.
    #[serde(default, rename = "nameSpace", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub name_space: Option<String>,
    /// Another spelling of `nameSpace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The application's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Kinds of applications that can be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// An application in pools that it names.
    #[default]
    YurtAppSet,
    /// An application in pools that it selects.
    YurtAppDaemon,
}

/// Changes for some pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.items.filter(item, has(item.replicas)).size() <= 1",
        "message": "items may have replicas only once: use another replacement for other pools"
    },
    {
        "rule": "self.items.filter(item, has(item.upgradeStrategy)).size() <= 1",
        "message": "items may have upgradeStrategy only once: use another replacement for other pools"
    }
]))]
pub struct Replacement {
    /// Names of the pools: a list, one string with spaces between the names, or "*" for all.
    pub pools: Pools,
    /// The changes, applied in order. In every text, `{{nodepool}}` stands for the name of the pool.
    #[schemars(length(max = 128))]
    pub items: Vec<Item>,
}

/// One change: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.image), has(self.configMap), has(self.secret), has(self.env), \
             has(self.persistentVolumeClaim), has(self.replicas), has(self.upgradeStrategy)].exists_one(set, set)",
    "message": "an item must have exactly one of image, configMap, secret, env, persistentVolumeClaim, replicas and \
                upgradeStrategy: use one item for each"
}]))]
pub struct Item {
    /// Gives a container another image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageItem>,
    /// Uses another ConfigMap wherever the template refers to a certain one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapItem>,
    /// Uses another Secret wherever the template refers to a certain one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretItem>,
    /// Sets environment variables of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvItem>,
    /// Uses another PersistentVolumeClaim wherever the template refers to a certain one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimItem>,
    /// Sets the number of pods in each of the pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Sets how the workload replaces its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<UpgradeStrategy>,
}

/// Another image for a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageItem {
    /// The container's name.
    #[schemars(length(min = 1))]
    pub container_name: String,
    /// The image it gets.
    #[schemars(length(min = 1))]
    pub image_claim: String,
}

/// Environment variables for a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvItem {
    /// The container's name.
    #[schemars(length(min = 1))]
    pub container_name: String,
    /// Variables and their values. They replace variables of the same name, or are added.
    #[schemars(extend("minProperties" = 1))]
    pub env_claim: BTreeMap<String, String>,
}

/// Another PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimItem {
    /// The claim that the template refers to.
    #[schemars(length(min = 1))]
    pub pvc_source: String,
    /// The claim to use in its place, for example `data-{{nodepool}}`.
    #[schemars(length(min = 1))]
    pub pvc_target: String,
}

/// Another ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapItem {
    /// The ConfigMap that the template refers to.
    #[schemars(length(min = 1))]
    pub config_map_source: String,
    /// The ConfigMap to use in its place, for example `settings-{{nodepool}}`.
    #[schemars(length(min = 1))]
    pub config_map_target: String,
}

/// Another Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretItem {
    /// The Secret that the template refers to.
    #[schemars(length(min = 1))]
    pub secret_source: String,
    /// The Secret to use in its place, for example `credentials-{{nodepool}}`.
    #[schemars(length(min = 1))]
    pub secret_target: String,
}

/// How a workload replaces its pods: `strategy.type` of a Deployment, `updateStrategy.type` of a StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeStrategy {
    /// A few at a time.
    RollingUpdate,
    /// All old ones go before new ones come. Deployments only.
    Recreate,
    /// Only where someone deletes the old pod. StatefulSets only.
    OnDelete,
}

/// What dapple found out about a replacement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pools of the application it changes.
    #[serde(default)]
    pub matched_pools: i32,
    /// How many of them have what it says.
    #[serde(default)]
    pub pools_in_effect: i32,
    /// How many of them wait for their turn, or are being changed.
    #[serde(default)]
    pub pools_waiting: i32,
    /// How many of them cannot be given what it says.
    #[serde(default)]
    pub pools_failed: i32,
    /// Findings, such as a container that the template lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl Subject {
    /// The namespace in either spelling, if one is given. It must be the object's own, which only a webhook can check:
    /// rules of a CRD don't see `metadata.namespace`.
    pub fn namespace(&self) -> Option<&str> {
        let given = |text: &&String| !text.is_empty();
        self.name_space.as_ref().filter(given).or(self.namespace.as_ref().filter(given)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_namespace_are_read() {
        let namespace = |fields: &str| {
            let subject = format!(r#"{{"kind": "YurtAppSet", "name": "demo"{fields}}}"#);
            serde_json::from_str::<Subject>(&subject).expect("parses").namespace().map(str::to_owned)
        };
        assert_eq!(namespace(""), None);
        assert_eq!(namespace(r#", "nameSpace": """#), None);
        assert_eq!(namespace(r#", "nameSpace": "a""#).as_deref(), Some("a"));
        assert_eq!(namespace(r#", "nameSpace": "", "namespace": "b""#).as_deref(), Some("b"));
    }
}

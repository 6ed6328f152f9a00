//! What names an object, and one version of it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Interner;

/// Namespace and name. The namespace of a cluster-wide object is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, empty for cluster-wide objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key made of plain strings.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// What names one version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// UID: the same name after a deletion is another object.
    pub uid: Arc<str>,
    /// `resourceVersion`, which Kubernetes guarantees to be an increasing number.
    pub version: u64,
}

impl Meta {
    /// Of an object off the wire.
    pub(crate) fn read(meta: &ObjectMeta, strings: &mut Interner) -> Result<Self, String> {
        let version = meta.resource_version.as_deref().unwrap_or_default();
        Ok(Self {
            key: Key {
                namespace: strings.share(meta.namespace.as_deref().unwrap_or_default()),
                name: Arc::from(meta.name.as_deref().unwrap_or_default()),
            },
            uid: Arc::from(meta.uid.as_deref().unwrap_or_default()),
            version: version.parse().map_err(|_| format!("metadata.resourceVersion {version:?} is not a number"))?,
        })
    }
}

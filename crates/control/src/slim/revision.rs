//! A ControllerRevision as dapple keeps it, whatever it is a revision of.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::kinds;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{Cached, Index, Interner, Meta};
use crate::observed::{KindInfo, KindWire, Wire};

/// Annotations of this prefix are read.
const KEPT_ANNOTATIONS: &str = "dapple.dev/";

/// A cached ControllerRevision.
#[derive(Debug)]
pub struct Revision {
    /// Namespace, name, UID and version.
    pub meta: Meta,
    /// What controls it; nothing if nobody does, or another product's object.
    pub owner: Option<ControllerRef>,
    /// Whether nobody controls it.
    pub is_orphan: bool,
    /// Labels, if it is ours or nobody's.
    pub labels: BTreeMap<String, String>,
    /// The annotations that dapple reads.
    pub annotations: BTreeMap<String, String>,
    /// `revision`.
    pub number: i64,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `data`, if it is ours or nobody's.
    pub data: Value,
}

/// The owner that controls an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerRef {
    /// Group and version.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

/// The fields of a ControllerRevision that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct RevisionWire {
    metadata: RevisionMeta,
    revision: i64,
    #[serde(default)]
    data: Value,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RevisionMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl Owner {
    /// Whether it is of a kind of ours that has revisions. Those of other owners are kept by name only: Kubernetes' own are many.
    fn is_kept(&self) -> bool {
        let kind = self.api_version.split_once('/').and_then(|(group, _)| kinds::find(group, &self.kind));
        kind.is_some_and(|kind| kind.is_workload || kind.at == kinds::OVERRIDE_POLICY.at)
    }
}

impl Wire for RevisionWire {}

impl KindWire for RevisionWire {
    const KIND: KindInfo = kinds::CONTROLLER_REVISION;
}

impl Cached for Revision {
    type Wire = RevisionWire;

    fn slim(meta: Meta, wire: RevisionWire, strings: &mut Interner) -> Self {
        let mut metadata = wire.metadata;
        let controller = metadata.owner_references.iter().find(|owner| owner.controller);
        let is_orphan = controller.is_none();
        let owner = controller.filter(|owner| owner.is_kept()).map(|owner| ControllerRef {
            api_version: strings.share(&owner.api_version),
            kind: strings.share(&owner.kind),
            name: strings.share(&owner.name),
            uid: strings.share(&owner.uid),
        });
        metadata.annotations.retain(|key, _| key.starts_with(KEPT_ANNOTATIONS));
        let is_kept = owner.is_some() || is_orphan;
        Self {
            meta,
            number: wire.revision,
            created: metadata.creation_timestamp,
            annotations: metadata.annotations,
            data: if is_kept { wire.data } else { Value::Null },
            labels: if is_kept { metadata.labels } else { BTreeMap::new() },
            owner,
            is_orphan,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Revision {
    /// Whether an object of this kind controls it. Policies on authors go by group, kind and name, so these count as well as the UID:
    /// else one could name an owner to the policy and another to us.
    pub fn is_of(&self, kind: KindInfo, object: &Meta) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            (group, &*owner.kind) == (Some(kind.group), kind.kind)
                && (&owner.name, &owner.uid) == (&object.key.name, &object.uid)
        })
    }

    /// By the UID of its controller.
    pub const BY_OWNER: Index<Self> =
        Index { name: "owner", values: |known, add| known.owner.iter().for_each(|owner| add(owner.uid.clone())) };
    /// Those that nobody controls, by namespace.
    pub const ORPHANS: Index<Self> = Index {
        name: "orphans",
        values: |known, add| {
            if known.is_orphan {
                add(known.meta.key.namespace.clone());
            }
        },
    };

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// The value of an annotation that dapple reads.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Key, read};
    use super::*;

    #[test]
    fn an_owner_counts_by_group_kind_name_and_uid_together() {
        let revision = |api_version: &str, kind: &str, name: &str, uid: &str| {
            let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true});
            let metadata =
                json!({"name": "r", "namespace": "d", "uid": "r", "resourceVersion": "1", "ownerReferences": [owner]});
            let object = json!({"metadata": metadata, "revision": 1, "data": {}});
            read::<Revision>(&object, &mut Interner::default()).expect("a revision")
        };
        let set = Meta { key: Key::new("d", "web"), uid: Arc::from("u"), ..revision("v1", "X", "x", "x").meta };
        let kind = kinds::YURT_APP_SET.at;
        let version = kind.api_version();
        assert!(revision(&version, kind.kind, "web", "u").is_of(kind, &set));
        let daemon_set = kinds::DAEMON_SET.at;
        for forged in [
            revision(&daemon_set.api_version(), daemon_set.kind, "web", "u"),
            revision(&version, "YurtAppDaemon", "web", "u"),
            revision(&version, kind.kind, "other", "u"),
            revision(&version, kind.kind, "web", "other"),
        ] {
            assert!(!forged.is_of(kind, &set), "{:?}", forged.owner);
        }
    }
}

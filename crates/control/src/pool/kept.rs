//! Applications in pools, and their workloads, as their controller keeps them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use dapple_api::kinds;
use dapple_api::pool::{
    ApplicationStatus, POOL_NAME_LABEL, SubjectKind, YurtAppDaemonSpec, YurtAppDaemonStatus, YurtAppSetSpec,
    YurtAppSetStatus,
};
use dapple_api::selector::Selector;
use dapple_plan::pool::version::{Application, InForce, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Pool;
use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{Cached, Index, Interner, Meta};

/// What applications of one kind say.
pub(super) trait ApplicationSpec: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// What such an application says of itself.
    type Status: DeserializeOwned + Serialize + Clone + Debug + Default + PartialEq + Send + Sync + 'static;
    /// The kind of such applications.
    const KIND: KindInfo;
    /// How replacements name the kind.
    const SUBJECT: SubjectKind;
    /// What their controller is called in logs and metrics.
    const CONTROLLER: &'static str;
    /// Which workloads are an application's own.
    fn selector(&self) -> &LabelSelector;
    /// How many old revisions to keep.
    fn history_limit(&self) -> i32;
    /// What it says, with these replacements.
    fn version(&self, replacements: Option<InForce>) -> Version;
    /// Whether a NodePool may be one of its pools by what both say. A selector that cannot be used may select any.
    fn may_select(&self, pool: &Pool) -> bool;
    /// What statuses of all kinds have in common.
    fn common(status: &Self::Status) -> &ApplicationStatus;
    /// The conditions of a status.
    fn conditions(status: &Self::Status) -> &[Condition];
    /// A status.
    fn status(common: ApplicationStatus, conditions: Vec<Condition>) -> Self::Status;
}

impl ApplicationSpec for YurtAppSetSpec {
    type Status = YurtAppSetStatus;
    const KIND: KindInfo = kinds::YURT_APP_SET.at;
    const SUBJECT: SubjectKind = SubjectKind::YurtAppSet;
    const CONTROLLER: &'static str = "yurtappset";

    fn selector(&self) -> &LabelSelector {
        &self.selector
    }

    fn history_limit(&self) -> i32 {
        self.revision_history_limit()
    }

    fn version(&self, replacements: Option<InForce>) -> Version {
        Version::of_set(self, replacements)
    }

    /// It names its pools itself, and reads nothing of theirs.
    fn may_select(&self, _: &Pool) -> bool {
        false
    }

    fn common(status: &YurtAppSetStatus) -> &ApplicationStatus {
        &status.common
    }

    fn conditions(status: &YurtAppSetStatus) -> &[Condition] {
        &status.conditions
    }

    fn status(common: ApplicationStatus, conditions: Vec<Condition>) -> YurtAppSetStatus {
        let number = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
        YurtAppSetStatus {
            pool_replicas: common.pools.iter().map(|pool| (pool.name.clone(), number(pool.desired))).collect(),
            ready_replicas: number(common.pools.iter().map(|pool| pool.ready).sum()),
            replicas: number(common.pools.iter().map(|pool| pool.desired).sum()),
            common,
            conditions,
        }
    }
}

impl ApplicationSpec for YurtAppDaemonSpec {
    type Status = YurtAppDaemonStatus;
    const KIND: KindInfo = kinds::YURT_APP_DAEMON.at;
    const SUBJECT: SubjectKind = SubjectKind::YurtAppDaemon;
    const CONTROLLER: &'static str = "yurtappdaemon";

    fn selector(&self) -> &LabelSelector {
        &self.selector
    }

    fn history_limit(&self) -> i32 {
        self.revision_history_limit()
    }

    fn version(&self, replacements: Option<InForce>) -> Version {
        Version::of_daemon(self, replacements)
    }

    fn may_select(&self, pool: &Pool) -> bool {
        let selector = self.node_pool_selector.as_ref().map(Selector::new);
        selector.is_some_and(|read| read.map_or(true, |selector| selector.matches(|key| pool.labels.get(key))))
    }

    fn common(status: &YurtAppDaemonStatus) -> &ApplicationStatus {
        &status.common
    }

    fn conditions(status: &YurtAppDaemonStatus) -> &[Condition] {
        &status.conditions
    }

    fn status(common: ApplicationStatus, conditions: Vec<Condition>) -> YurtAppDaemonStatus {
        YurtAppDaemonStatus { common, conditions }
    }
}

/// A cached application. They are few: the spec is kept whole.
#[derive(Debug)]
pub(super) struct Kept<S: ApplicationSpec> {
    pub(super) meta: Meta,
    pub(super) generation: Option<i64>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) is_terminating: bool,
    pub(super) spec: S,
    pub(super) status: S::Status,
}

impl<S: ApplicationSpec> Kept<S> {
    /// What does not change from one revision to the next.
    pub(super) fn application(&self) -> Application {
        Application {
            kind: S::SUBJECT,
            namespace: self.meta.key.namespace.to_string(),
            name: self.meta.key.name.to_string(),
            uid: self.meta.uid.to_string(),
            selector: self.spec.selector().clone(),
            history_limit: usize::try_from(self.spec.history_limit()).unwrap_or_default(),
        }
    }
}

/// The fields of an application that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "")]
pub(super) struct KeptWire<S: ApplicationSpec> {
    metadata: KeptMeta,
    spec: S,
    status: Option<S::Status>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptMeta {
    generation: Option<i64>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

impl<S: ApplicationSpec> Wire for KeptWire<S> {}

impl<S: ApplicationSpec> KindWire for KeptWire<S> {
    const KIND: KindInfo = S::KIND;
}

impl<S: ApplicationSpec> Cached for Kept<S> {
    type Wire = KeptWire<S>;

    fn slim(meta: Meta, wire: KeptWire<S>, _: &mut Interner) -> Self {
        let KeptMeta { generation, mut annotations, deletion_timestamp } = wire.metadata;
        annotations.retain(|key, _| key.starts_with("dapple.dev/"));
        Self {
            meta,
            generation,
            annotations,
            is_terminating: deletion_timestamp.is_some(),
            spec: wire.spec,
            status: wire.status.unwrap_or_default(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A cached Deployment or StatefulSet that is some pool's.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) meta: Meta,
    /// The pool that it was made for.
    pub(super) pool: String,
    /// What controls it.
    pub(super) owner: Option<Owner>,
    /// All that decisions read of it.
    pub(super) object: Arc<Value>,
}

/// What controls a workload.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    #[serde(default)]
    controller: bool,
}

impl Owner {
    /// What controls a workload.
    pub(super) fn of(workload: &Value) -> Option<Self> {
        let owners = serde_json::from_value::<Vec<Self>>(workload["metadata"]["ownerReferences"].clone());
        owners.unwrap_or_default().into_iter().find(|owner| owner.controller)
    }

    /// Whether it is an application of this kind.
    pub(super) fn is(&self, kind: KindInfo) -> bool {
        self.kind == kind.kind && self.api_version.split_once('/').is_some_and(|(group, _)| group == kind.group)
    }
}

/// A workload off the wire: all of it, since what it should be is compared with all of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct WorkloadWire(Value);

impl Wire for WorkloadWire {
    const LABELLED: Option<&'static str> = Some(POOL_NAME_LABEL);
}

impl Cached for Workload {
    type Wire = WorkloadWire;

    fn slim(meta: Meta, wire: WorkloadWire, _: &mut Interner) -> Self {
        let mut object = wire.0;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        let owner = Owner::of(&object);
        let pool = object["metadata"]["labels"][POOL_NAME_LABEL].as_str().unwrap_or_default().to_owned();
        Self { meta, pool, owner, object: Arc::new(object) }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Workload {
    /// By the UID of what controls it.
    pub(super) const BY_OWNER: Index<Self> = Index {
        name: "owner",
        values: |workload, add| workload.owner.iter().for_each(|owner| add(Arc::from(owner.uid.as_str()))),
    };
    /// Those that nobody controls, by namespace.
    pub(super) const ORPHANS: Index<Self> = Index {
        name: "orphans",
        values: |workload, add| {
            if workload.owner.is_none() {
                add(workload.meta.key.namespace.clone());
            }
        },
    };

    /// The value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["labels"].get(key)?.as_str()
    }
}

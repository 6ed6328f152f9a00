//! An application as the API server has it, whichever of the two kinds it is.

use std::collections::BTreeMap;

use dapple_api::pool::{
    ApplicationStatus, SubjectKind, WorkloadTemplate, YurtAppConfigurationReplacement, YurtAppDaemon,
    YurtAppDaemonSpec, YurtAppSet, YurtAppSetSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};

use super::version::{Application, InForce, Version};

/// An application.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationObject {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it asks for.
    pub spec: Spec,
    /// How it is.
    pub status: ApplicationStatus,
    /// What is told of it.
    pub conditions: Vec<Condition>,
}

/// What an application asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    /// A YurtAppSet.
    Set(YurtAppSetSpec),
    /// A YurtAppDaemon.
    Daemon(YurtAppDaemonSpec),
}

impl From<YurtAppSet> for ApplicationObject {
    fn from(set: YurtAppSet) -> Self {
        let status = set.status.unwrap_or_default();
        let (status, conditions) = (status.common, status.conditions);
        Self { metadata: set.metadata, spec: Spec::Set(set.spec), status, conditions }
    }
}

impl From<YurtAppDaemon> for ApplicationObject {
    fn from(daemon: YurtAppDaemon) -> Self {
        let status = daemon.status.unwrap_or_default();
        let (status, conditions) = (status.common, status.conditions);
        Self { metadata: daemon.metadata, spec: Spec::Daemon(daemon.spec), status, conditions }
    }
}

impl ApplicationObject {
    /// Its kind.
    pub fn kind(&self) -> SubjectKind {
        match &self.spec {
            Spec::Set(_) => SubjectKind::YurtAppSet,
            Spec::Daemon(_) => SubjectKind::YurtAppDaemon,
        }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The workload that each pool gets.
    pub fn template(&self) -> &WorkloadTemplate {
        match &self.spec {
            Spec::Set(spec) => &spec.workload_template,
            Spec::Daemon(spec) => &spec.workload_template,
        }
    }

    fn selector(&self) -> &LabelSelector {
        match &self.spec {
            Spec::Set(spec) => &spec.selector,
            Spec::Daemon(spec) => &spec.selector,
        }
    }

    /// What does not change from one revision to the next.
    pub fn application(&self) -> Application {
        let limit = match &self.spec {
            Spec::Set(spec) => spec.revision_history_limit(),
            Spec::Daemon(spec) => spec.revision_history_limit(),
        };
        Application {
            kind: self.kind(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            selector: self.selector().clone(),
            history_limit: usize::try_from(limit).unwrap_or_default(),
        }
    }

    /// What it says, with these replacements.
    pub fn version(&self, replacements: Option<InForce>) -> Version {
        match &self.spec {
            Spec::Set(spec) => Version::of_set(spec, replacements),
            Spec::Daemon(spec) => Version::of_daemon(spec, replacements),
        }
    }

    /// Whether its status describes what it says now.
    pub fn is_seen(&self) -> bool {
        self.status.observed_generation.is_some_and(|seen| seen >= self.metadata.generation.unwrap_or(0))
    }

    /// A condition, unless it is older than the last change.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        let found = self.conditions.iter().find(|known| known.type_ == kind)?;
        let is_fresh = |seen: i64| seen >= self.metadata.generation.unwrap_or(0);
        found.observed_generation.is_none_or(is_fresh).then_some(found)
    }
}

/// The object whose replacements count for an application: the oldest. One that has no time is yet to be made.
pub fn counting<'a>(
    all: impl IntoIterator<Item = &'a YurtAppConfigurationReplacement>,
    application: &ApplicationObject,
) -> Option<&'a YurtAppConfigurationReplacement> {
    let namespace = application.namespace();
    let is_for = |known: &&'a YurtAppConfigurationReplacement| {
        let subject = &known.subject;
        subject.kind == application.kind()
            && subject.name == application.name()
            && subject.namespace().is_none_or(|said| said == namespace)
            && known.metadata.namespace.as_deref().is_none_or(|own| own == namespace)
    };
    all.into_iter().filter(is_for).min_by_key(|known| {
        let created = known.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created.is_none(), created, known.metadata.name.clone())
    })
}

/// What such an object says, as a revision keeps it.
pub fn in_force(replacement: &YurtAppConfigurationReplacement) -> InForce {
    InForce {
        name: replacement.metadata.name.clone().unwrap_or_default(),
        replacements: replacement.replacements.clone(),
    }
}

/// An annotation out of those that an object has.
pub(super) fn annotation_of<'a>(annotations: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    annotations?.get(key).map(String::as_str)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A YurtAppSet in these pools, with more metadata and status.
    pub(in crate::pool) fn set(pools: &[&str], metadata: Value, status: Value) -> ApplicationObject {
        let pools: Vec<Value> = pools.iter().map(|name| json!({"name": name})).collect();
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}});
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "edge", "uid": "u", "resourceVersion": "7", "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "topology": {"pools": pools},
                "workloadTemplate": {"deploymentTemplate": template}},
            "status": {"observedGeneration": 2},
        });
        for (part, more) in [("metadata", metadata), ("status", status)] {
            for (field, value) in more.as_object().into_iter().flatten() {
                object[part][field] = value.clone();
            }
        }
        serde_json::from_value::<YurtAppSet>(object).unwrap().into()
    }

    /// A replacement object for that application.
    pub(in crate::pool) fn replacement(
        name: &str,
        created: Option<&str>,
        more: Value,
    ) -> YurtAppConfigurationReplacement {
        let mut object = json!({
            "metadata": {"name": name, "namespace": "edge", "creationTimestamp": created, "generation": 3},
            "subject": {"kind": "YurtAppSet", "name": "web"}, "replacements": [],
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_oldest_replacement_object_counts() {
        let web = set(&["a"], json!({}), json!({}));
        let all = [
            replacement("new", None, json!({})),
            replacement("young", Some("2026-11-15T10:00:01Z"), json!({})),
            replacement("old", Some("2026-11-15T10:00:00Z"), json!({})),
            replacement(
                "other",
                Some("2026-11-15T09:00:00Z"),
                json!({"subject": {"kind": "YurtAppDaemon", "name": "web"}}),
            ),
            replacement(
                "elsewhere",
                Some("2026-11-15T09:00:00Z"),
                json!({"subject": {"kind": "YurtAppSet", "name": "web", "nameSpace": "core"}}),
            ),
        ];
        let name =
            |found: Option<&YurtAppConfigurationReplacement>| found.and_then(|known| known.metadata.name.clone());
        assert_eq!(name(counting(&all, &web)).as_deref(), Some("old"));
        assert_eq!(name(counting(&all[..1], &web)).as_deref(), Some("new"));
        assert_eq!(counting(&all[3..], &web), None);
    }

    #[test]
    fn a_status_of_the_state_before_is_not_believed() {
        let condition = |seen: i64| {
            json!({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True",
            "reason": "Done", "message": "", "observedGeneration": seen, "lastTransitionTime": "2026-11-15T10:00:00Z"}]})
        };
        assert!(set(&["a"], json!({}), condition(2)).condition("Ready").is_some());
        assert!(set(&["a"], json!({}), condition(1)).condition("Ready").is_none());
        assert!(set(&["a"], json!({}), json!({})).is_seen());
        assert!(!set(&["a"], json!({"generation": 3}), json!({})).is_seen());
    }
}

//! What is rendered: a pod template alone, or a workload with one inside.

use serde_json::{Map, Value, json};

use crate::edit::{EditProblem, UpgradeStrategy};
use crate::schema::{DEPLOYMENT, POD_TEMPLATE, STATEFUL_SET, Shape};

/// What Kubernetes changes of the spec of a StatefulSet that is there.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

/// The kind of document that edits change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Document {
    /// A pod template.
    PodTemplate,
    /// A Deployment: metadata and spec.
    Deployment,
    /// A StatefulSet: metadata and spec.
    StatefulSet,
}

impl Document {
    /// What Kubernetes knows about it.
    pub fn shape(self) -> Shape {
        match self {
            Self::PodTemplate => POD_TEMPLATE,
            Self::Deployment => DEPLOYMENT,
            Self::StatefulSet => STATEFUL_SET,
        }
    }

    /// The pod template in it.
    pub fn template(self, document: &Value) -> Option<&Value> {
        match self {
            Self::PodTemplate => Some(document),
            Self::Deployment | Self::StatefulSet => document.get("spec")?.get("template"),
        }
    }

    /// Whether Kubernetes changes this field of the spec of one that is there.
    pub fn is_changeable(self, field: &str) -> bool {
        match self {
            Self::StatefulSet => CHANGEABLE.contains(&field),
            Self::Deployment | Self::PodTemplate => field != "selector",
        }
    }

    pub(crate) fn template_mut(self, document: &mut Value) -> Result<&mut Value, EditProblem> {
        match self {
            Self::PodTemplate => Ok(document),
            Self::Deployment | Self::StatefulSet => {
                document.get_mut("spec").and_then(|spec| spec.get_mut("template")).ok_or(EditProblem::NoTemplate)
            }
        }
    }

    pub(crate) fn set_replicas(self, document: &mut Value, replicas: i32) -> Result<(), EditProblem> {
        self.workload_spec(document, "replicas")?.insert("replicas".to_owned(), replicas.into());
        Ok(())
    }

    /// Sets how pods are replaced. Settings of a rolling update go with it: Kubernetes refuses them beside another type.
    pub(crate) fn set_strategy(self, document: &mut Value, strategy: UpgradeStrategy) -> Result<(), EditProblem> {
        use UpgradeStrategy::{OnDelete, Recreate, RollingUpdate};
        let (field, name) = match (self, strategy) {
            (Self::Deployment, RollingUpdate) => ("strategy", "RollingUpdate"),
            (Self::Deployment, Recreate) => ("strategy", "Recreate"),
            (Self::StatefulSet, RollingUpdate) => ("updateStrategy", "RollingUpdate"),
            (Self::StatefulSet, OnDelete) => ("updateStrategy", "OnDelete"),
            (Self::Deployment | Self::StatefulSet, _) => return Err(EditProblem::Strategy { strategy, of: self }),
            (Self::PodTemplate, _) => return Err(EditProblem::NoWorkload { field: "upgradeStrategy" }),
        };
        let spec = self.workload_spec(document, "upgradeStrategy")?;
        match spec.get_mut(field) {
            Some(Value::Object(known)) => {
                known.insert("type".to_owned(), name.into());
                if strategy != RollingUpdate {
                    known.remove("rollingUpdate");
                }
            }
            _ => {
                spec.insert(field.to_owned(), json!({"type": name}));
            }
        }
        Ok(())
    }

    fn workload_spec<'a>(
        self,
        document: &'a mut Value,
        field: &'static str,
    ) -> Result<&'a mut Map<String, Value>, EditProblem> {
        if self == Self::PodTemplate {
            return Err(EditProblem::NoWorkload { field });
        }
        document.get_mut("spec").and_then(Value::as_object_mut).ok_or(EditProblem::NoTemplate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_pods_and_how_they_are_replaced_belong_to_the_workload() {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
        let mut deployment = json!({"spec": {"strategy": rolling, "template": {}}});
        Document::Deployment.set_replicas(&mut deployment, 3).unwrap();
        Document::Deployment.set_strategy(&mut deployment, UpgradeStrategy::Recreate).unwrap();
        assert_eq!(deployment["spec"], json!({"replicas": 3, "strategy": {"type": "Recreate"}, "template": {}}));
        let mut set = json!({"spec": {"updateStrategy": rolling}});
        Document::StatefulSet.set_strategy(&mut set, UpgradeStrategy::RollingUpdate).unwrap();
        assert_eq!(set["spec"]["updateStrategy"], rolling, "its settings stay");
        Document::StatefulSet.set_strategy(&mut set, UpgradeStrategy::OnDelete).unwrap();
        assert_eq!(set["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    }

    #[test]
    fn kubernetes_changes_more_of_a_deployment_than_of_a_stateful_set() {
        for (field, of_deployment, of_set) in [
            ("template", true, true),
            ("ordinals", true, true),
            ("serviceName", true, false),
            ("selector", false, false),
        ] {
            assert_eq!(Document::Deployment.is_changeable(field), of_deployment, "{field}");
            assert_eq!(Document::StatefulSet.is_changeable(field), of_set, "{field}");
        }
    }

    #[test]
    fn what_a_workload_cannot_do_is_refused() {
        let error = |kind: Document, strategy| {
            kind.set_strategy(&mut json!({"spec": {}}), strategy).expect_err("it is refused").to_string()
        };
        let on_delete = error(Document::Deployment, UpgradeStrategy::OnDelete);
        assert_eq!(on_delete, "Deployments cannot have the upgradeStrategy OnDelete");
        let recreate = error(Document::StatefulSet, UpgradeStrategy::Recreate);
        assert_eq!(recreate, "StatefulSets cannot have the upgradeStrategy Recreate");
        let alone = Document::PodTemplate.set_replicas(&mut json!({"spec": {}}), 1).expect_err("it is refused");
        assert!(alone.to_string().starts_with("replicas is a matter of the workload"), "{alone}");
    }

    #[test]
    fn a_workload_without_a_template_is_told() {
        let error = Document::Deployment.template_mut(&mut json!({"spec": 7})).expect_err("there is none");
        assert_eq!(error.to_string(), "the workload has no spec.template to change");
        assert_eq!(Document::Deployment.template(&json!({"spec": {"template": {"a": 1}}})), Some(&json!({"a": 1})));
    }
}

//! What is rendered: a pod template alone, or a workload with one inside.

use serde_json::{Map, Value, json};

use crate::edit::{EditProblem, UpgradeStrategy};
use crate::schema::{DEPLOYMENT, POD_TEMPLATE, STATEFUL_SET, Shape};

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

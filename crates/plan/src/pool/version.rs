//! What an application says at some time: its template, what it says of its pools, and the replacements in force.

use dapple_api::pool::{
    GROUP, Pool, Replacement, SubjectKind, TemplateType, Topology, WorkloadTemplate, YurtAppDaemonSpec, YurtAppSetSpec,
};
use dapple_edit::document::Document;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An application, apart from what its revisions hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// YurtAppSet or YurtAppDaemon.
    pub kind: SubjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Which workloads are its own.
    pub selector: LabelSelector,
    /// How many old revisions to keep.
    pub history_limit: usize,
}

impl Application {
    /// As people name it.
    pub fn object(&self) -> String {
        format!("{:?} {}/{}", self.kind, self.namespace, self.name)
    }

    /// The reference by which its objects know it.
    pub fn owner(&self) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": format!("{:?}", self.kind), "name": self.name,
            "uid": self.uid, "controller": true, "blockOwnerDeletion": true,
        })
    }
}

/// What an application says at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// The workload that each pool gets.
    pub template: WorkloadTemplate,
    /// Which pools, and what is particular to each.
    pub pools: Pools,
    /// The object with replacements that is in force.
    pub replacements: Option<InForce>,
    /// What a YurtAppSet has its workloads keep of their history.
    pub history_limit: Option<i32>,
}

/// Which pools an application is in.
#[derive(Debug, Clone, PartialEq)]
pub enum Pools {
    /// Those of a YurtAppSet.
    Named(Topology),
    /// Those that a YurtAppDaemon selects.
    Selected(Option<LabelSelector>),
}

/// An object with replacements that counts for an application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// Its name.
    pub name: String,
    /// What it says.
    pub replacements: Vec<Replacement>,
}

impl Version {
    /// What a YurtAppSet says now.
    pub fn of_set(spec: &YurtAppSetSpec, replacements: Option<InForce>) -> Self {
        Self {
            template: spec.workload_template.clone(),
            pools: Pools::Named(spec.topology.clone()),
            replacements,
            history_limit: spec.revision_history_limit,
        }
    }

    /// What a YurtAppDaemon says now.
    pub fn of_daemon(spec: &YurtAppDaemonSpec, replacements: Option<InForce>) -> Self {
        Self {
            template: spec.workload_template.clone(),
            pools: Pools::Selected(spec.node_pool_selector.clone()),
            replacements,
            history_limit: None,
        }
    }

    /// The kind of workload. None where the template has neither or both.
    pub fn document(&self) -> Option<Document> {
        Some(match self.template.template_type()? {
            TemplateType::Deployment => Document::Deployment,
            TemplateType::StatefulSet => Document::StatefulSet,
        })
    }

    /// The kind of workload, and what every pool starts from. None where the template has neither or both.
    pub fn base(&self) -> Option<(Document, Value)> {
        let (document, base) = match self.template.template_type()? {
            TemplateType::Deployment => {
                (Document::Deployment, serde_json::to_value(&self.template.deployment_template))
            }
            TemplateType::StatefulSet => {
                (Document::StatefulSet, serde_json::to_value(&self.template.stateful_set_template))
            }
        };
        // It came from JSON and goes back to it.
        Some((document, base.unwrap_or_default()))
    }

    /// What it says of a pool, and where. A YurtAppDaemon says nothing of single pools.
    pub fn pool(&self, name: &str) -> Option<(usize, &Pool)> {
        match &self.pools {
            Pools::Named(topology) => topology.pools.iter().enumerate().find(|(_, pool)| pool.name == name),
            Pools::Selected(_) => None,
        }
    }
}

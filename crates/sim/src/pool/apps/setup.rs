//! Applications in pools as scripts make them, and where everything is that scripts change.

use dapple_api::pool::{NODE_POOL_LABEL, POOL_NAME_LABEL, SubjectKind};
use dapple_edit::document::Document;
use dapple_plan::pool::version::Application;
use dapple_plan::pool::workload::name;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::{KINDS, NAMESPACE};
use crate::nodes::node_comes;
use crate::object::text;
use crate::script::Edit;

/// All pools that there may be. Those that scripts of nodes know are always there.
pub(super) const POOL_NAMES: [&str; 12] = [
    "beijing", "hangzhou", "shanghai", "chengdu", "dalian", "fuzhou", "guilin", "harbin", "jinan", "kunming",
    "lanzhou", "nanjing",
];
/// The label by which daemons select pools, and its value.
pub(super) const SITE: (&str, &str) = ("site", "edge");
/// The variable that replacements set.
pub(super) const VARIABLE: &str = "SITE";

const NODE_POOLS: &str = "/apis/apps.openyurt.io/v1beta1/nodepools";

pub(super) fn create(path: &str, body: Value) -> Edit {
    let what = format!("creates the {} {}: {body}", text(&body["kind"]), text(&body["metadata"]["name"]));
    Edit { what, method: Method::POST, path: path.to_owned(), body: Some(body) }
}

pub(super) fn change(path: &str, body: Value) -> Edit {
    Edit {
        what: format!("changes {}: {body}", last(path)),
        method: Method::PATCH,
        path: path.to_owned(),
        body: Some(body),
    }
}

pub(super) fn delete(path: &str) -> Edit {
    Edit { what: format!("deletes {}", last(path)), method: Method::DELETE, path: path.to_owned(), body: None }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Annotations of an object; null takes one away.
pub(super) fn annotated(path: &str, annotations: Value) -> Edit {
    change(path, json!({"metadata": {"annotations": annotations}}))
}

/// Where a NodePool is.
pub(super) fn pool_path(pool: &str) -> String {
    format!("{NODE_POOLS}/{pool}")
}

/// A NodePool, which daemons select or not.
pub(super) fn pool_comes(pool: &str, is_selected: bool, taints: &Value) -> Edit {
    let (label, value) = SITE;
    let labels = if is_selected { json!({label: value}) } else { json!({}) };
    let body = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool",
        "metadata": {"name": pool, "labels": labels}, "spec": {"type": "Edge", "taints": taints}});
    create(NODE_POOLS, body)
}

/// The first, or the second, node of a pool.
pub(super) fn node_of(pool: &str, number: usize) -> String {
    format!("{pool}-{number}")
}

/// Daemons select a NodePool from now on, or do not.
pub(super) fn pool_is_selected(pool: &str, is_selected: bool) -> Edit {
    let (label, value) = SITE;
    change(&pool_path(pool), json!({"metadata": {"labels": {label: Some(value).filter(|_| is_selected)}}}))
}

/// A node comes into a pool.
pub(super) fn node_comes_to(pool: &str, number: usize, random: &mut fastrand::Rng) -> Edit {
    let mut comes = node_comes(&node_of(pool, number), random);
    if let Some(body) = &mut comes.body {
        body["metadata"]["labels"][NODE_POOL_LABEL] = json!(pool);
    }
    comes
}

/// A node is in a pool from now on, or in none.
pub(super) fn put_into(node: &str, pool: Option<&str>) -> Edit {
    change(&format!("/api/v1/nodes/{node}"), json!({"metadata": {"labels": {NODE_POOL_LABEL: pool}}}))
}

/// What an application says of one of its pools.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) pool: &'static str,
    pub(super) replicas: i64,
    /// The image of its own, if it has one.
    pub(super) image: Option<String>,
}

/// An application, as scripts make and change it.
#[derive(Debug, Clone)]
pub(super) struct App {
    pub(super) name: &'static str,
    pub(super) is_daemon: bool,
    pub(super) is_stateful: bool,
    /// The pools that a set names.
    pub(super) pools: Vec<Said>,
    /// How many pods a daemon has in each pool.
    pub(super) replicas: i64,
    pub(super) image: String,
    /// How long a Deployment may take, in seconds.
    pub(super) deadline: i64,
}

impl App {
    fn kind(&self) -> &'static str {
        KINDS[usize::from(self.is_daemon)]
    }

    fn all_path(&self) -> String {
        let plural = if self.is_daemon { "yurtappdaemons" } else { "yurtappsets" };
        format!("/apis/apps.openyurt.io/v1alpha1/namespaces/{NAMESPACE}/{plural}")
    }

    /// Where it is.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.all_path(), self.name)
    }

    /// Where workloads of its kind are.
    pub(super) fn workloads(&self) -> String {
        let plural = if self.is_stateful { "statefulsets" } else { "deployments" };
        format!("/apis/apps/v1/namespaces/{NAMESPACE}/{plural}")
    }

    /// The name of its workload in a pool.
    pub(super) fn workload(&self, pool: &str) -> String {
        let kind = if self.is_daemon { SubjectKind::YurtAppDaemon } else { SubjectKind::YurtAppSet };
        let document = if self.is_stateful { Document::StatefulSet } else { Document::Deployment };
        let application = Application {
            kind,
            namespace: NAMESPACE.to_owned(),
            name: self.name.to_owned(),
            uid: String::new(),
            selector: LabelSelector::default(),
            history_limit: 0,
        };
        name(&application, document, pool)
    }

    /// Where its workload in a pool is.
    pub(super) fn workload_path(&self, pool: &str) -> String {
        format!("{}/{}", self.workloads(), self.workload(pool))
    }

    /// The kind of its workloads.
    pub(super) fn workload_kind(&self) -> &'static str {
        if self.is_stateful { "StatefulSet" } else { "Deployment" }
    }

    /// Its spec, all of it.
    pub(super) fn spec(&self) -> Value {
        let labels = json!({"app": self.name});
        let mut pods = json!({"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": self.image}]}});
        if !self.is_daemon {
            // Those of a daemon tolerate what their pools have.
            pods["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let mut workload = json!({"selector": {"matchLabels": labels}, "template": pods});
        let field = if self.is_stateful {
            workload["serviceName"] = json!(self.name);
            workload["podManagementPolicy"] = json!("Parallel");
            "statefulSetTemplate"
        } else {
            workload["progressDeadlineSeconds"] = json!(self.deadline);
            "deploymentTemplate"
        };
        if self.is_daemon {
            workload["replicas"] = json!(self.replicas);
        }
        let template = json!({field: {"metadata": {"labels": labels}, "spec": workload}});
        let mut spec = json!({"selector": {"matchLabels": labels}, "workloadTemplate": template});
        if self.is_daemon {
            let (label, value) = SITE;
            spec["nodepoolSelector"] = json!({"matchLabels": {label: value}});
        } else {
            spec["topology"] = json!({"pools": self.pools.iter().map(said).collect::<Vec<Value>>()});
        }
        spec
    }

    /// It comes.
    pub(super) fn comes(&self) -> Edit {
        let body = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": self.kind(),
            "metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": self.spec()});
        create(&self.all_path(), body)
    }

    /// It says something else.
    pub(super) fn changes(&self) -> Edit {
        change(&self.path(), json!({"spec": self.spec()}))
    }

    fn replacements_path(&self) -> String {
        format!("/apis/apps.openyurt.io/v1alpha1/namespaces/{NAMESPACE}/yurtappconfigurationreplacements")
    }

    /// Where its replacement is.
    pub(super) fn replacement_path(&self) -> String {
        format!("{}/differs-{}", self.replacements_path(), self.name)
    }

    /// Its replacement comes.
    pub(super) fn replacement_comes(&self, replacements: &Value) -> Edit {
        let body = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
            "metadata": {"name": format!("differs-{}", self.name), "namespace": NAMESPACE},
            "subject": {"kind": self.kind(), "name": self.name}, "replacements": replacements});
        create(&self.replacements_path(), body)
    }

    /// A workload comes that nobody owns, as if it were this application's in a pool, or somebody else's.
    pub(super) fn orphan_comes(&self, name: &str, pool: &str, is_its_own: bool) -> Edit {
        let app = if is_its_own { self.name } else { "other" };
        let labels = json!({"app": app, POOL_NAME_LABEL: pool});
        let pods =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "orphan:1"}]}});
        let mut spec = json!({"selector": {"matchLabels": labels}, "template": pods});
        if self.is_stateful {
            spec["serviceName"] = json!(self.name);
            spec["podManagementPolicy"] = json!("Parallel");
        }
        // One of somebody else is there for its labels alone, and makes no pods.
        if is_its_own {
            spec["replicas"] = json!(1);
        }
        let body = json!({"apiVersion": "apps/v1", "kind": self.workload_kind(),
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec});
        create(&self.workloads(), body)
    }

    /// Something else has the name of its workload in a pool.
    pub(super) fn name_is_taken(&self, pool: &str) -> Edit {
        let labels = json!({"app": "other"});
        let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "other:1"}]}});
        let body = json!({"apiVersion": "apps/v1", "kind": self.workload_kind(),
            "metadata": {"name": self.workload(pool), "namespace": NAMESPACE, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": pods}});
        create(&self.workloads(), body)
    }

    /// Where autoscalers are.
    pub(super) fn autoscaler_path(&self, pool: &str) -> String {
        format!("/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/scales-{}-{pool}", self.name)
    }

    /// An autoscaler comes for its workload in a pool.
    pub(super) fn autoscaler_comes(&self, pool: &str) -> Edit {
        let path = self.autoscaler_path(pool);
        let (all, name) = path.rsplit_once('/').unwrap_or_default();
        let target = json!({"apiVersion": "apps/v1", "kind": self.workload_kind(), "name": self.workload(pool)});
        let body = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"maxReplicas": 9, "scaleTargetRef": target}});
        create(all, body)
    }
}

fn said(said: &Said) -> Value {
    let place = json!([{"key": NODE_POOL_LABEL, "operator": "In", "values": [said.pool]}]);
    let mut pool =
        json!({"name": said.pool, "replicas": said.replicas, "nodeSelectorTerm": {"matchExpressions": place}});
    if let Some(image) = &said.image {
        let containers = json!([{"name": "c", "image": image}]);
        pool["patch"] = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    }
    pool
}

//! The controllers of kube-controller-manager that make pods: of Deployments, ReplicaSets, StatefulSets and Jobs. They act some
//! time after a change, on a view that may be old, though never older than what they have written themselves: upstream's wait for
//! that, too.

mod deployment;
mod job;
mod order;
mod progress;
mod replicaset;
mod statefulset;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::object::{is_terminating, path_of, text};
use crate::server::Change;
use crate::sim::{Actor, Sim};
use crate::webhook::controller_of;

/// A kind of workload.
struct Kind {
    resource: &'static str,
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// Does what is to be done about one.
    sync: fn(&View<'_>, &Value),
}

const KINDS: [Kind; 4] = [
    Kind {
        resource: "deployments.apps",
        api_version: "apps/v1",
        kind: "Deployment",
        plural: "deployments",
        sync: deployment::sync,
    },
    Kind {
        resource: "replicasets.apps",
        api_version: "apps/v1",
        kind: "ReplicaSet",
        plural: "replicasets",
        sync: replicaset::sync,
    },
    Kind {
        resource: "statefulsets.apps",
        api_version: "apps/v1",
        kind: "StatefulSet",
        plural: "statefulsets",
        sync: statefulset::sync,
    },
    Kind { resource: "jobs.batch", api_version: "batch/v1", kind: "Job", plural: "jobs", sync: job::sync },
];

/// The resources of workloads, as the server names them.
pub const RESOURCES: [&str; 4] = [KINDS[0].resource, KINDS[1].resource, KINDS[2].resource, KINDS[3].resource];

/// What names a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadKey {
    resource: &'static str,
    namespace: String,
    name: String,
}

/// The workloads whose controllers look at them after a change: what has changed, and what controls that.
pub fn concerned(change: &Change) -> impl Iterator<Item = WorkloadKey> {
    let object = &change.object;
    let key = |kind: &Kind, name: &Value| WorkloadKey {
        resource: kind.resource,
        namespace: text(&object["metadata"]["namespace"]).to_owned(),
        name: text(name).to_owned(),
    };
    let itself = KINDS.iter().find(|kind| kind.resource == change.resource);
    let itself = itself.map(|kind| key(kind, &object["metadata"]["name"]));
    let owner = controller_of(object);
    let above = owner.and_then(|owner| {
        let is_it = |kind: &&Kind| owner["kind"] == kind.kind && owner["apiVersion"] == kind.api_version;
        KINDS.iter().find(is_it).map(|kind| key(kind, &owner["name"]))
    });
    itself.into_iter().chain(above)
}

/// A controller looks at a workload.
pub fn look(sim: &Sim, at: &WorkloadKey) {
    let newest = sim.server.version();
    let (age, known) = sim.with_world(|world| world.view_of(at));
    let version = sim.version_at(sim.now().saturating_sub(age)).max(known);
    let view = View { sim, version };
    let name = |object: &Value| text(&object["metadata"]["name"]) == at.name;
    let found = view.list(at.resource).into_iter().find(|object| name(object) && view.is_in(object, &at.namespace));
    let kind = KINDS.iter().find(|kind| kind.resource == at.resource);
    if let Some((kind, workload)) = kind.zip(found).filter(|(_, workload)| !is_terminating(workload)) {
        (kind.sync)(&view, &workload);
    }
    let written = sim.server.version();
    sim.with_world(|world| {
        if written > newest {
            world.wrote(at, written);
        }
        // What it has not seen yet, it is told of later.
        if version < newest {
            world.look_again(at, Instant::now());
        }
    });
}

/// What a controller sees, and what it can do.
struct View<'s> {
    sim: &'s Sim,
    version: u64,
}

impl View<'_> {
    fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.sim.server.list_at(resource, self.version)
    }

    fn is_in(&self, object: &Value, namespace: &str) -> bool {
        text(&object["metadata"]["namespace"]) == namespace
    }

    /// What a workload controls.
    fn owned(&self, resource: &str, owner: &Value) -> Vec<Arc<Value>> {
        let mut all = self.list(resource);
        let is_own = |object: &Value| {
            controller_of(object).is_some_and(|controller| controller["uid"] == owner["metadata"]["uid"])
        };
        all.retain(|object| is_own(object));
        all
    }

    /// Makes an object that a workload controls.
    fn create(&self, path: &str, owner: &Value, mut object: Value) {
        object["metadata"]["ownerReferences"] = json!([reference(owner)]);
        self.sim.ask(Actor::World, Method::POST, path, Some(&object));
    }

    fn create_pod(&self, owner: &Value, pod: Value) {
        let namespace = text(&owner["metadata"]["namespace"]);
        self.create(&format!("/api/v1/namespaces/{namespace}/pods"), owner, pod);
    }

    /// Deletes this very pod.
    fn delete_pod(&self, pod: &Value) {
        let options = json!({"preconditions": {"uid": pod["metadata"]["uid"]}});
        self.sim.ask(Actor::World, Method::DELETE, &path_of(pod), Some(&options));
    }

    fn patch(&self, path: &str, patch: &Value) {
        self.sim.ask(Actor::World, Method::PATCH, path, Some(patch));
    }

    /// Has a workload looked at again after so long.
    fn look_after(&self, workload: &Value, wait: Duration) {
        let Some(kind) = KINDS.iter().find(|kind| workload["kind"] == kind.kind) else { return };
        let metadata = &workload["metadata"];
        let at = WorkloadKey {
            resource: kind.resource,
            namespace: text(&metadata["namespace"]).to_owned(),
            name: text(&metadata["name"]).to_owned(),
        };
        self.sim.with_world(|world| world.look_at(&at, Instant::now() + wait));
    }

    /// Writes those fields of a workload's status that are told, if they say something else.
    fn tell(&self, workload: &Value, mut status: Value) {
        status["observedGeneration"] = workload["metadata"]["generation"].clone();
        let known = &workload["status"];
        if status.as_object().is_some_and(|fields| fields.iter().any(|(field, value)| known[field] != *value)) {
            self.patch(&format!("{}/status", path(workload)), &json!({"status": status}));
        }
    }
}

/// Where a workload is served.
fn path(workload: &Value) -> String {
    let kind = KINDS.iter().find(|kind| workload["kind"] == kind.kind);
    let (api_version, plural) = kind.map_or(("", ""), |kind| (kind.api_version, kind.plural));
    let (namespace, name) = (text(&workload["metadata"]["namespace"]), text(&workload["metadata"]["name"]));
    format!("/apis/{api_version}/namespaces/{namespace}/{plural}/{name}")
}

/// The reference by which something says that a workload controls it.
fn reference(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

/// A pod of a workload's template, without a name.
fn from_template(template: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// The same for the same template.
fn hash(template: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    format!("{:010x}", hasher.finish() & 0xff_ffff_ffff)
}

/// Whether a pod counts for its controller: it has not ended, and is not on its way out.
fn is_active(pod: &Value) -> bool {
    !has_ended(pod) && !is_terminating(pod)
}

fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]))
}

/// A number of a workload's; none if it is not said.
fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

//! Applications that ask for policies, and policies that come and go.

use std::sync::Arc;
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use http::Method;
use serde_json::{Value, json};

use crate::object::text;
use crate::script::{Edit, Event, Script};
use crate::server::Server;
use crate::sim::Write;
use crate::webhook::controller_of;
use crate::workload::RESOURCES;

const PATH: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(super) const POLICIES: [&str; 2] = ["one", "two"];

pub(super) fn resource(pair: Pair) -> String {
    format!("{}.{}", pair.kind().plural, pair.kind().group)
}

/// Applications come that ask for policies, change their minds and go, and so do the policies.
pub(super) fn ask(script: &mut Script, random: &mut fastrand::Rng) {
    let last = script.calm_at.as_millis() as u64;
    let mut events: Vec<(u64, Edit)> = Vec::new();
    for number in 0..random.usize(1..4) {
        let name = format!("web-{number}");
        let came_at = random.u64(0..last);
        events.push((came_at, application(&name, random)));
        for _ in 0..random.usize(0..3) {
            events.push((random.u64(came_at..last), change(&name, random)));
        }
    }
    for pair in Pair::ALL {
        for name in POLICIES {
            for _ in 0..random.usize(0..4) {
                let edit = if random.bool() { policy(pair, name) } else { removal(pair, name) };
                events.push((random.u64(0..last), edit));
            }
        }
    }
    for (at, edit) in events {
        let at = Duration::from_millis(at);
        let place = script.events.partition_point(|(other, _)| *other <= at);
        script.events.insert(place, (at, Event::User(edit)));
    }
}

fn asked(random: &mut fastrand::Rng) -> Value {
    let mut labels = json!({});
    for pair in Pair::ALL {
        let name = POLICIES.get(random.usize(0..POLICIES.len() + 1));
        labels[pair.required()] = json!(name);
    }
    labels
}

fn application(name: &str, random: &mut fastrand::Rng) -> Edit {
    let mut labels = asked(random);
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|_, value| !value.is_null());
    }
    let what = format!("creates the application {name}: {labels}");
    let template =
        json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}});
    Edit { what, method: Method::POST, path: PATH.into(), body: Some(body) }
}

fn change(name: &str, random: &mut fastrand::Rng) -> Edit {
    let labels = asked(random);
    let what = format!("has the application {name} ask otherwise: {labels}");
    let body = json!({"metadata": {"labels": labels}});
    Edit { what, method: Method::PATCH, path: format!("{PATH}/{name}"), body: Some(body) }
}

pub(super) fn path(pair: Pair) -> String {
    format!("/apis/{}/v1alpha1/namespaces/default/{}", pair.kind().group, pair.kind().plural)
}

fn policy(pair: Pair, name: &str) -> Edit {
    let spec = match pair {
        Pair::Propagation => json!({"staticWeightList": [
            {"nodeGroupNames": ["east"], "weight": 1}, {"nodeGroupNames": ["west", "north"], "weight": 2}]}),
        Pair::Override => json!({"overrideRules": []}),
    };
    let body = json!({"apiVersion": pair.kind().api_version(), "kind": pair.kind().kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let what = format!("creates the {} {name}", pair.kind().kind);
    Edit { what, method: Method::POST, path: path(pair), body: Some(body) }
}

fn removal(pair: Pair, name: &str) -> Edit {
    let what = format!("deletes the {} {name}", pair.kind().kind);
    Edit { what, method: Method::DELETE, path: format!("{}/{name}", path(pair)), body: None }
}

/// Whether a policy was written.
pub(super) fn is_policy(write: &Write<'_>) -> bool {
    Pair::ALL.iter().any(|pair| write.change.resource == resource(*pair))
}

/// Whether nothing but the labels of an application was written by which policies are confirmed.
pub(super) fn is_of_binding(write: &Write<'_>) -> bool {
    (write.change.resource == "pods" || RESOURCES.contains(&write.change.resource))
        && super::properties::is_of_labels(write, is_label_of_binding)
}

/// Whether a label confirms a policy.
pub(super) fn is_label_of_binding(key: &str) -> bool {
    Pair::ALL.iter().any(|pair| key == pair.binding())
}

/// Whether a workload asks for policies, or some are confirmed.
pub(super) fn has_labels(workload: &Value) -> bool {
    let labels = &workload["metadata"]["labels"];
    Pair::ALL.iter().any(|pair| !labels[pair.required()].is_null() || !labels[pair.binding()].is_null())
}

/// A policy that is asked for and there is confirmed, and nothing else is.
pub(super) fn is_settled(server: &Server) -> Result<(), String> {
    let workloads: Vec<Arc<Value>> = RESOURCES.iter().flat_map(|resource| server.list(resource)).collect();
    for application in &workloads {
        // What is above it asks in its name, if it asks at all.
        let owner = controller_of(application);
        let above = owner.and_then(|owner| workloads.iter().find(|above| above["metadata"]["uid"] == owner["uid"]));
        let is_below = above.is_some_and(|above| has_labels(above));
        let labels = &application["metadata"]["labels"];
        for pair in Pair::ALL {
            let required = &labels[pair.required()];
            let is_there = server.get(&resource(pair), "default", text(required)).is_some();
            let wanted = if is_there && !is_below { required } else { &Value::Null };
            if labels[pair.binding()] != *wanted {
                let name = &application["metadata"]["name"];
                return Err(format!(
                    "{name} is bound by {} to {}, not {wanted}",
                    pair.binding(),
                    labels[pair.binding()]
                ));
            }
        }
    }
    Ok(())
}

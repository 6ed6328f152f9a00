//! A policy that forbids one kind of request for a while: what does not need it goes on, and what fails is told.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::script::{change, template};
use super::story::nodes_of;
use super::view::{is_as_asked, is_of_set, live_on, name_of, node_of};
use super::{NAME, NAMESPACE, SETS};
use crate::faults::Weather;
use crate::object::text;
use crate::script::{Event, Script};
use crate::server::{FORBIDDEN, Server};

/// When it begins: what was asked for before is done.
const BEGINS: Duration = Duration::from_secs(90);
/// By then everybody has tried everything again.
const LASTS: Duration = Duration::from_secs(150);

const REVISIONS: &str = "controllerrevisions.apps";
const STATUS: &str = "daemonsets.apps.kruise.io/status";

/// Has nothing happen in a script but that.
pub(super) fn forbid(mut script: Script, random: &mut fastrand::Rng) -> Script {
    let nodes = nodes_of(&script.setup);
    script.weather = Weather::CALM;
    script.managers = 1;
    (script.habits.kubelet, script.habits.ending, script.habits.crashes) = (20, 500, 0.0);
    let (method, resource) =
        [(Method::POST, REVISIONS), (Method::PATCH, REVISIONS), (Method::DELETE, REVISIONS), (Method::PATCH, STATUS)]
            [random.usize(0..4)]
        .clone();
    let limit = if method == Method::DELETE { 0 } else { 10 };
    let rolling = json!({"paused": false, "partition": 0, "selector": null});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    let spec = json!({"updateStrategy": strategy, "minReadySeconds": 0, "revisionHistoryLimit": limit});
    let image = |image: &str| {
        change(format!("sets the image to {image}"), json!({"spec": {"template": template(image), "patches": null}}))
    };
    // Where a revision cannot be changed, one returns that was there; else one comes that was not.
    let next = if method == Method::PATCH && resource == REVISIONS { "agent:11" } else { "agent:13" };
    let node = nodes[random.usize(0..nodes.len())].clone();
    let at = |second: u64| Duration::from_secs(second);
    script.events = vec![
        (at(20), change("lets it roll out".into(), json!({"spec": spec}))),
        (at(21), image("agent:11")),
        (at(55), image("agent:12")),
        (BEGINS, Event::Forbid { method, resource }),
        (BEGINS + at(5), image(next)),
        (BEGINS + at(20), Event::DeletePods { node }),
        (BEGINS + LASTS, Event::Checkpoint),
        (BEGINS + LASTS, Event::Allow),
    ];
    script.calm_at = BEGINS + LASTS + at(1);
    script.finish.clear();
    script
}

/// Whether everything that what is forbidden does not concern has gone on.
pub(super) fn has_gone_on(server: &Server) -> Result<(), String> {
    let (Some((method, resource)), Some(set)) = (server.forbidden(), server.get(SETS, NAMESPACE, NAME)) else {
        return Ok(());
    };
    let nodes = server.list("nodes");
    if let Some(empty) = nodes.iter().map(|node| name_of(node)).find(|name| live_on(server, name, is_of_set) == 0) {
        return Err(format!("no pod is made on {empty} while {method} of {resource} is forbidden"));
    }
    let is_blocked = resource == REVISIONS && method != Method::DELETE;
    if !is_blocked {
        let pods = server.list("pods");
        let is_right = |pod: &Value| {
            let node = nodes.iter().find(|node| name_of(node) == node_of(pod));
            node.is_some_and(|node| is_as_asked(pod, &set, node))
        };
        if let Some(pod) = pods.iter().find(|pod| is_of_set(pod) && !is_right(pod)) {
            return Err(format!("{} is not updated while {method} of {resource} is forbidden", name_of(pod)));
        }
    }
    if resource == STATUS {
        return Ok(());
    }
    let status = &set["status"];
    if status["observedGeneration"] != set["metadata"]["generation"] {
        return Err(format!("the status is not written while {method} of {resource} is forbidden"));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is_told = |known: &&Value| known["type"] == "Degraded" && text(&known["message"]).contains(FORBIDDEN);
    match conditions.into_iter().find(is_told) {
        Some(_) => Ok(()),
        None => Err(format!("the status does not say that {method} of {resource} is forbidden")),
    }
}

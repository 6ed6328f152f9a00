//! The revision that nodes are held back at is deleted: they stay held, nothing is made there, and the status says why.

use std::time::Duration;

use serde_json::{Value, json};

use super::script::{change, template};
use super::story::nodes_of;
use super::view::{is_of_set, name_of};
use super::{NAME, NAMESPACE, SETS};
use crate::faults::Weather;
use crate::object::text;
use crate::script::{Event, Script};
use crate::server::Server;

/// The partition that holds all nodes back.
const ALL: &str = "100%";

/// Has nothing happen in a script but that.
pub(super) fn lose(mut script: Script, random: &mut fastrand::Rng) -> Script {
    let nodes = nodes_of(&script.setup);
    script.weather = Weather::CALM;
    script.managers = 1;
    (script.habits.kubelet, script.habits.ending, script.habits.crashes) = (20, 500, 0.0);
    let rolls = |what: &str, image: &str, partition: Value| {
        let rolling = json!({"paused": false, "partition": partition, "selector": null});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let spec =
            json!({"updateStrategy": strategy, "minReadySeconds": 0, "template": template(image), "patches": null});
        change(what.to_owned(), json!({"spec": spec}))
    };
    // Of one node, or of all: then nothing runs any more that would show what they are held back at.
    let lost = if random.bool() { nodes } else { vec![nodes[random.usize(0..nodes.len())].clone()] };
    let at = |second: u64| Duration::from_secs(second);
    script.events = vec![
        (at(20), rolls("lets agent:11 roll out", "agent:11", json!(0))),
        (at(80), rolls("holds all nodes back from agent:12", "agent:12", json!(ALL))),
        (at(90), Event::DeleteOldRevisions),
    ];
    script.events.extend(lost.into_iter().map(|node| (at(100), Event::DeletePods { node })));
    script.events.push((at(160), Event::Checkpoint));
    script.events.push((at(161), rolls("lets agent:12 roll out", "agent:12", json!(0))));
    script.calm_at = at(162);
    script.finish.clear();
    script
}

/// Whether those that are held back at a revision that is gone are left alone, and that is told.
pub(super) fn stays_held(server: &Server) -> Result<(), String> {
    let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Ok(()) };
    if set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] != ALL {
        return Ok(());
    }
    let newest = &set["spec"]["template"]["spec"]["containers"][0]["image"];
    let pods = server.list("pods");
    let is_newest = |pod: &Value| is_of_set(pod) && pod["spec"]["containers"][0]["image"] == *newest;
    if let Some(pod) = pods.iter().find(|pod| is_newest(pod)) {
        return Err(format!(
            "{} is of the newest revision, though all are held back at one that is gone",
            name_of(pod)
        ));
    }
    let conditions = set["status"]["conditions"].as_array().into_iter().flatten();
    let is_told = |known: &Value| known["type"] == "Degraded" && text(&known["message"]).contains("is gone");
    match conditions.into_iter().any(is_told) {
        true => Ok(()),
        false => Err("the status does not say that the revision is gone that nodes are held back at".into()),
    }
}

//! The revision that nodes are held back at is deleted: they stay held, nothing is made there, and the status says why.

use std::time::Duration;

use dapple_plan::daemonset::pod::REVISION_ANNOTATION;
use serde_json::{Value, json};

use super::script::{change, template};
use super::story::nodes_of;
use super::view::{is_of_set, is_owned_by, name_of};
use super::{NAME, NAMESPACE, SETS};
use crate::faults::Weather;
use crate::object::text;
use crate::script::{Event, Script};
use crate::server::Server;

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
    let node = nodes[random.usize(0..nodes.len())].clone();
    let at = |second: u64| Duration::from_secs(second);
    script.events = vec![
        (at(20), rolls("lets agent:11 roll out", "agent:11", json!(0))),
        (at(80), rolls("holds all nodes back from agent:12", "agent:12", json!("100%"))),
        (at(90), Event::DeleteOldRevisions),
        (at(100), Event::DeletePods { node }),
        (at(130), Event::Checkpoint),
        (at(131), rolls("lets agent:12 roll out", "agent:12", json!(0))),
    ];
    script.calm_at = at(132);
    script.finish.clear();
    script
}

/// Whether those that are held back at a revision that is gone are left alone, and that is told.
pub(super) fn stays_held(server: &Server) -> Result<(), String> {
    let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Ok(()) };
    let revisions = server.list("controllerrevisions.apps");
    let own = || revisions.iter().filter(|known| is_owned_by(known, &set));
    let current = text(&set["status"]["currentRevision"]);
    if own().any(|known| name_of(known) == current) {
        return Ok(());
    }
    let newest = own().max_by_key(|known| known["revision"].as_i64()).map_or("", |known| name_of(known));
    let pods = server.list("pods");
    let is_newest = |pod: &Value| pod["metadata"]["annotations"][REVISION_ANNOTATION] == newest;
    if let Some(pod) = pods.iter().find(|pod| is_of_set(pod) && is_newest(pod)) {
        return Err(format!(
            "{} is of the newest revision, though all are held back at {current}, which is gone",
            name_of(pod)
        ));
    }
    let conditions = set["status"]["conditions"].as_array().into_iter().flatten();
    let is_told = |known: &Value| known["type"] == "Degraded" && text(&known["message"]).contains(current);
    match conditions.into_iter().any(is_told) {
        true => Ok(()),
        false => Err(format!("the status does not say that {current} is gone")),
    }
}

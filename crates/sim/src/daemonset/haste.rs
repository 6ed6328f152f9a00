//! Haste: changes that follow each other faster than what was written comes back, over a bad connection, and after the
//! last of them nothing that would wake anybody. What is forgotten then stays forgotten.

use std::time::Duration;

use serde_json::json;

use super::script::{change, template};
use super::story::nodes_of;
use crate::faults::Weather;
use crate::nodes::{node_comes, relabel};
use crate::script::{Event, Script};

/// So many nodes come at once.
const CROWD: usize = 20;
/// When it begins: every node has had its first pod.
const BEGINS: Duration = Duration::from_secs(60);

/// Has nothing happen in a script but that.
pub(super) fn hasten(mut script: Script, random: &mut fastrand::Rng) -> Script {
    let nodes = nodes_of(&script.setup);
    let requests = [0.1, 0.25][random.usize(0..2)];
    script.weather = Weather { requests, lines: 0.4, has_stragglers: false, second: 0.0, calls: 0.0 };
    (script.habits.kubelet, script.habits.ending, script.habits.crashes) = (20, 500, 0.0);
    let mut at = BEGINS;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"paused": false, "partition": 0}});
    let rolls = change("lets it roll out".into(), json!({"spec": {"updateStrategy": strategy}}));
    script.events = vec![(at, rolls)];
    let count = random.usize(4..16);
    for number in 1..=count {
        at += Duration::from_millis(random.u64(100..6_000));
        let node = nodes[random.usize(0..nodes.len())].clone();
        let event = match random.u8(0..6) {
            0 if number < count => Event::DeletePods { node },
            1 if number < count => Event::Node(relabel(&node, random)),
            _ => {
                let image = format!("agent:{number}");
                change(format!("sets the image to {image}"), json!({"spec": {"template": template(&image)}}))
            }
        };
        script.events.push((at, event));
    }
    script.calm_at = at + Duration::from_secs(random.u64(1..30));
    script.finish.clear();
    script
}

/// Has nothing happen in a script but that many nodes come at once, where no more than one pod may be written at once.
pub(super) fn crowd(mut script: Script, random: &mut fastrand::Rng) -> Script {
    script.weather = Weather::CALM;
    script.managers = 1;
    (script.habits.kubelet, script.habits.ending, script.habits.crashes) = (20, 500, 0.0);
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"paused": false, "partition": 0}});
    let spec = json!({"spec": {"burstReplicas": 1, "updateStrategy": strategy}});
    script.events = vec![(BEGINS, change("sets burstReplicas to 1".into(), spec))];
    let at = BEGINS + Duration::from_secs(30);
    let nodes = (0..CROWD).map(|number| (at, Event::Node(node_comes(&format!("crowd-{number}"), random))));
    script.events.extend(nodes);
    script.calm_at = at + Duration::from_secs(1);
    script.finish.clear();
    script
}

//! Haste: changes that follow each other faster than what was written comes back, over a bad connection, and after the
//! last of them nothing that would wake anybody. What is forgotten then stays forgotten.

use std::time::Duration;

use serde_json::json;

use super::script::{change, template};
use super::story::nodes_of;
use crate::faults::Weather;
use crate::nodes::relabel;
use crate::script::{Event, Script};

/// When it begins: every node has had its first pod.
const BEGINS: Duration = Duration::from_secs(60);

/// Has nothing happen in a script but that.
pub(super) fn hasten(mut script: Script, random: &mut fastrand::Rng) -> Script {
    let nodes = nodes_of(&script.setup);
    let requests = [0.1, 0.25][random.usize(0..2)];
    script.weather = Weather { requests, lines: 0.4, has_stragglers: false, second: 0.0 };
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

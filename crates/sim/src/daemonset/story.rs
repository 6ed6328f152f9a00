//! Stories: what happens to a set and its nodes together, beyond what befalls each of them by chance.
//!
//! A bad revision makes nodes fall ill, the next one comes or it is undone; nodes are held back and lose their pods; an
//! outage takes a part of the fleet. They are drawn apart, so that a seed from before there were any can be run as it was.

mod teller;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use self::teller::Teller;
use super::script::change;
use super::{NAME, NAMESPACE};
use crate::faults::Weather;
use crate::hook::HOLD;
use crate::nodes::{DISK, DISKS, node_comes};
use crate::object::text;
use crate::script::{Edit, Event, Script};

/// Adds a story to a script, or has it take the script's place.
pub(super) fn tell(mut script: Script, random: &mut fastrand::Rng) -> Script {
    if random.u8(0..3) > 0 {
        script.events.clear();
        script.habits.kubelet = [20, 500][random.usize(0..2)];
        (script.habits.ending, script.habits.crashes) = (500, 0.0);
        if random.u8(0..4) > 0 {
            script.weather = Weather::CALM;
        }
    }
    // A wrong clock cannot tell what was before and what after.
    script.events.retain(|(_, event)| !matches!(event, Event::ClockJump { .. }));
    script.habits.ails_after = [2_000, 20_000, 50_000][random.usize(0..3)];
    script.habits.heals_after = [1_000, 15_000][random.usize(0..2)];
    (script.habits.marks_pods, script.habits.taints) = (random.bool(), random.bool());
    let more = random.usize(0..6);
    script.setup.splice(0..0, (0..more).map(|number| node_comes(&format!("more-{number}"), random)));
    let features = Features::draw(random);
    let events = script.events.iter_mut().map(|(_, event)| event).chain(&mut script.finish);
    let edits = events.filter_map(|event| if let Event::User(edit) = event { Some(edit) } else { None });
    script.setup.iter_mut().chain(edits).for_each(|edit| features.add_to(edit));
    if random.u8(0..6) == 0 {
        leave_behind(&mut script.setup);
    }
    let mut teller = Teller::new(nodes_of(&script.setup), script.managers, random);
    teller.tell();
    let (events, end) = teller.told();
    script.events.extend(events);
    // Stable: what is told together stays in order.
    script.events.sort_by_key(|(at, _)| *at);
    script.calm_at = script.calm_at.max(end + Duration::from_secs(60));
    script.finish.insert(0, Event::MendNodes);
    let rest = json!({"minReadySeconds": 0, "updateStrategy": {"rollingUpdate": {"selector": null}}});
    script.finish.push(change("leaves no node out".into(), json!({"spec": rest})));
    script
}

/// Names of the nodes that are there at first.
pub(super) fn nodes_of(setup: &[Edit]) -> Vec<String> {
    let bodies = setup.iter().filter_map(|edit| edit.body.as_ref()).filter(|body| body["kind"] == "Node");
    bodies.map(|node| text(&node["metadata"]["name"]).to_owned()).collect()
}

/// What a set has besides what plain scripts give it.
struct Features {
    strategy: Option<Value>,
    min_ready: u8,
    tolerates_all: bool,
    lifecycle: Value,
    scales_partitioned: bool,
    soak: Option<&'static str>,
}

impl Features {
    fn draw(random: &mut fastrand::Rng) -> Self {
        Self {
            strategy: (random.u8(0..4) > 0).then(|| strategy(random)),
            min_ready: [0, 5, 60, 60][random.usize(0..4)],
            tolerates_all: random.bool(),
            lifecycle: lifecycle(random),
            scales_partitioned: random.u8(0..6) == 0,
            soak: [None, None, None, None, Some("2m"), Some("90s")][random.usize(0..6)],
        }
    }

    /// Adds them to a set that somebody creates.
    fn add_to(&self, edit: &mut Edit) {
        let Some(set) = edit.body.as_mut().filter(|body| body["kind"] == "DaemonSet") else { return };
        let spec = &mut set["spec"];
        if let Some(strategy) = &self.strategy {
            spec["updateStrategy"] = strategy.clone();
            // What is null takes something away, and there is nothing yet.
            if let Some(rolling) = spec["updateStrategy"]["rollingUpdate"].as_object_mut() {
                rolling.retain(|_, value| !value.is_null());
            }
        }
        spec["minReadySeconds"] = json!(self.min_ready);
        if self.tolerates_all {
            spec["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
        if !self.lifecycle.is_null() {
            spec["lifecycle"] = self.lifecycle.clone();
            let (key, value) = HOLD;
            spec["template"]["metadata"]["labels"][key] = json!(value);
        }
        if self.scales_partitioned {
            spec["scaleStrategy"] = json!({"partitionedScaling": true});
        }
        if let Some(soak) = self.soak {
            set["metadata"]["annotations"] = json!({SOAK: soak});
        }
        edit.what = format!("creates the set: {set}");
    }
}

/// The annotation that limits for how long a node that is not ready counts.
pub(super) const SOAK: &str = "dapple.dev/soak";

/// Hooks, of some sets.
fn lifecycle(random: &mut fastrand::Rng) -> Value {
    let (key, value) = HOLD;
    let hook = json!({"labelsHandler": {key: value}});
    match random.u8(0..9) {
        0 => json!({"preDelete": hook}),
        1 => json!({"inPlaceUpdate": hook}),
        2 => json!({"preDelete": hook, "inPlaceUpdate": hook}),
        _ => Value::Null,
    }
}

/// An amount of nodes, as a number or in per cent.
fn amount(random: &mut fastrand::Rng) -> Value {
    [json!(1), json!(1), json!(2), json!(3), json!("10%"), json!("34%"), json!("50%")][random.usize(0..7)].clone()
}

/// A partition, as a number or in per cent.
fn partition(random: &mut fastrand::Rng) -> Value {
    [json!(1), json!(2), json!(3), json!("30%"), json!("50%"), json!("70%")][random.usize(0..6)].clone()
}

/// A selector of the strategy.
fn selector(random: &mut fastrand::Rng) -> Value {
    json!({"matchLabels": {DISK: DISKS[random.usize(0..DISKS.len())]}})
}

/// Everything that may be under `rollingUpdate`; what is null is not there.
fn rolling(random: &mut fastrand::Rng) -> Value {
    let kind = ["Standard", "Standard", "InPlaceIfPossible", "Surging"][random.usize(0..4)];
    let amount = amount(random);
    let (unavailable, surge) = if kind == "Surging" { (json!(0), amount) } else { (amount, Value::Null) };
    let partition = if random.u8(0..3) == 0 { partition(random) } else { Value::Null };
    let selector = if random.u8(0..6) == 0 { selector(random) } else { Value::Null };
    json!({
        "rollingUpdateType": if kind == "Surging" { "Standard" } else { kind },
        "maxUnavailable": unavailable, "maxSurge": surge, "partition": partition, "selector": selector, "paused": null,
    })
}

/// A strategy; with OnDelete, what is left in `rollingUpdate` means nothing.
fn strategy(random: &mut fastrand::Rng) -> Value {
    if random.u8(0..6) > 0 {
        return json!({"type": "RollingUpdate", "rollingUpdate": rolling(random)});
    }
    let mut left = rolling(random);
    left["paused"] = json!(random.bool());
    json!({"type": "OnDelete", "rollingUpdate": left})
}

/// Pods and a revision that a controller of another make has left behind, without an owner: the set finds what it asks
/// for, under another hash.
fn leave_behind(setup: &mut Vec<Edit>) {
    const HASH: &str = "5d8f7c9b";
    let nodes = nodes_of(setup);
    let Some(place) = setup.iter().position(|edit| edit.body.as_ref().is_some_and(|body| body["kind"] == "DaemonSet"))
    else {
        return;
    };
    let Some(set) = setup[place].body.as_mut() else { return };
    set["spec"]["patches"] = json!([]);
    let template = set["spec"]["template"].clone();
    let mut labels = template["metadata"]["labels"].clone();
    labels["controller-revision-hash"] = json!(HASH);
    let mut left = template.clone();
    left["$patch"] = json!("replace");
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
        "metadata": {"name": format!("{NAME}-{HASH}"), "labels": labels}, "data": {"spec": {"template": left}}});
    let pods = nodes.iter().enumerate().map(|(number, node)| {
        let mut spec = template["spec"].clone();
        spec["nodeName"] = json!(node);
        let metadata = json!({"name": format!("{NAME}-left{number}"), "labels": labels});
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        ("pods", body)
    });
    let left: Vec<Edit> =
        pods.chain([("controllerrevisions", revision)]).map(|(plural, body)| leave(plural, body)).collect();
    setup.splice(place..place, left);
}

fn leave(plural: &str, body: Value) -> Edit {
    let api = if plural == "pods" { "/api/v1" } else { "/apis/apps/v1" };
    Edit {
        what: format!("leaves {} behind", body["metadata"]["name"]),
        method: Method::POST,
        path: format!("{api}/namespaces/{NAMESPACE}/{plural}"),
        body: Some(body),
    }
}

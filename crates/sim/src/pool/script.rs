//! What happens to NodePools, and to nodes that come into them and leave them.

use std::time::Duration;

use dapple_api::pool::{ALLOW_NO_EXECUTE, CONFIRM_REMOVAL, NODE_POOL_LABEL, SUSPEND_ANNOTATION};
use http::Method;
use serde_json::{Value, json};

use super::POOLS;
use crate::faults::Weather;
use crate::nodes::{DISK, DISKS, Nodes};
use crate::script::{Edit, Event, Script};
use crate::world::Habits;

const PATH: &str = "/apis/apps.openyurt.io/v1beta1/nodepools";
/// The names of all pools.
pub const NAMES: [&str; 3] = ["beijing", "hangzhou", "shanghai"];
/// Labels that nodes have of pools alone.
pub const LABELS: [&str; 2] = ["tier", "zone"];
/// Annotations that nodes have of pools alone.
pub const ANNOTATIONS: [&str; 2] = ["note", "owner"];
/// Taints that nodes have of pools alone.
pub const TAINTS: [&str; 2] = ["edge", "slow"];

/// The script of a seed. Half of them are about applications.
pub fn script(seed: u64) -> Script {
    if fastrand::Rng::with_seed(seed ^ 0x0061_7070).bool() { super::apps::script(seed) } else { nodes(seed) }
}

/// The script of a seed about nodes alone, as it was before there were applications.
pub fn nodes(seed: u64) -> Script {
    let mut script = plain(seed);
    script.weather = script.weather.with_second(&mut fastrand::Rng::with_seed(seed ^ 0x005e_c04d));
    let mut random = fastrand::Rng::with_seed(seed ^ 0x00c4_d000);
    if random.u8(0..4) == 0 {
        lose_crd(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x6578_6563);
    if random.u8(0..6) == 0 {
        meddle(&mut script, &mut random);
    }
    script
}

/// The script of a seed without faults of the second kind.
pub fn plain(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut nodes = Nodes::default();
    let mut setup: Vec<Edit> = Vec::new();
    let all_in_one = random.u8(0..3) == 0;
    for _ in 0..random.usize(3..14) {
        let mut comes = nodes.add(&mut random);
        let pool = if all_in_one { 0 } else { random.usize(0..NAMES.len()) };
        if let (Some(body), true) = (&mut comes.body, all_in_one || random.bool()) {
            body["metadata"]["labels"][NODE_POOL_LABEL] = json!(NAMES[pool]);
        }
        setup.push(comes);
    }
    setup.extend(NAMES.iter().map(|name| create(name, &mut random)));
    let length = Duration::from_secs(random.u64(30..1_500));
    let managers = random.usize(1..3);
    let mut times: Vec<Duration> =
        (0..random.usize(3..20)).map(|_| Duration::from_millis(random.u64(500..length.as_millis() as u64))).collect();
    times.sort();
    let mut events: Vec<(Duration, Event)> = Vec::new();
    for at in times {
        events.extend(happen(&mut nodes, managers, &mut random).into_iter().map(|event| (at, event)));
    }
    if random.u8(0..4) == 0 {
        fight(&mut events, &nodes, length, &mut random);
    }
    let mut finish: Vec<Event> =
        nodes.all().iter().map(|node| Event::NodeReady { node: node.clone(), is_ready: true }).collect();
    finish.extend(NAMES.iter().map(|name| Event::User(create(name, &mut random))));
    let settings = json!({SUSPEND_ANNOTATION: null, CONFIRM_REMOVAL: "*"});
    finish.extend(NAMES.iter().map(|name| annotate(name, &settings)));
    // Half of all runs end with every node out of its pool.
    let is_left = random.bool();
    for node in nodes.all() {
        let pool = (!is_left).then(|| NAMES[random.usize(0..NAMES.len())]);
        finish.push(put_into(node, pool));
    }
    let (weather, habits) = (Weather::draw(&mut random), Habits::draw(&mut random));
    Script { seed, setup, events, calm_at: length, finish, managers, weather, habits }
}

/// Somebody keeps writing what the pool of a node wants otherwise.
fn fight(events: &mut Vec<(Duration, Event)>, nodes: &Nodes, length: Duration, random: &mut fastrand::Rng) {
    let Some(node) = nodes.any(random) else { return };
    let (key, begun) = (LABELS[random.usize(0..LABELS.len())], Duration::from_secs(random.u64(0..length.as_secs())));
    for number in 0..9 {
        let at = begun + Duration::from_secs(12 * number);
        let body = json!({"metadata": {"labels": {key: "theirs"}}});
        let path = format!("/api/v1/nodes/{node}");
        let what = format!("writes {key} to {node} once more");
        if at < length {
            events.push((at, Event::User(Edit { what, method: Method::PATCH, path, body: Some(body) })));
        }
    }
    events.sort_by_key(|(at, _)| *at);
}

/// Has nothing happen in a script but that nodes of a pool get a taint by which pods are deleted, while somebody takes taints off them
/// and some of them fall ill.
fn meddle(script: &mut Script, random: &mut fastrand::Rng) {
    if random.bool() {
        script.weather = Weather::CALM;
    }
    let mut nodes = Vec::new();
    for edit in &mut script.setup {
        let Some(body) = &mut edit.body else { continue };
        if body["kind"] == "Node" {
            body["metadata"]["labels"][NODE_POOL_LABEL] = json!(NAMES[0]);
            nodes.push(body["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        } else if body["metadata"]["name"] == NAMES[0] {
            let taint = |key: &str, effect: &str| json!({"key": key, "value": "x", "effect": effect});
            body["metadata"]["annotations"] = json!({ALLOW_NO_EXECUTE: "true"});
            body["spec"]["taints"] = json!([taint(TAINTS[0], "NoExecute"), taint(TAINTS[1], "NoSchedule")]);
        }
    }
    // A new leader waits before the first of them, and between one and the next.
    script.events.clear();
    for _ in 0..random.usize(2..6) {
        let node = nodes[random.usize(0..nodes.len())].clone();
        let at = Duration::from_millis(random.u64(35_000..240_000));
        if random.bool() {
            script.events.push((at, Event::NodeReady { node, is_ready: false }));
            continue;
        }
        let what = format!("takes all taints off {node}");
        let path = format!("/api/v1/nodes/{node}");
        let body = Some(json!({"spec": {"taints": null}}));
        script.events.push((at, Event::User(Edit { what, method: Method::PATCH, path, body })));
    }
    script.events.sort_by_key(|(at, _)| *at);
    script.calm_at = Duration::from_secs(300);
}

/// The CRD goes, and comes back after a while, or in the end.
fn lose_crd(script: &mut Script, random: &mut fastrand::Rng) {
    let gone_at = Duration::from_millis(random.u64(500..script.calm_at.as_millis() as u64));
    let back_at = gone_at + Duration::from_millis(random.u64(100..300_000));
    for (at, is_there) in [(gone_at, false), (back_at, true)] {
        if at < script.calm_at {
            let place = script.events.partition_point(|(other, _)| *other <= at);
            script.events.insert(place, (at, Event::Crd { name: POOLS, is_there }));
        }
    }
    script.finish.insert(0, Event::Crd { name: POOLS, is_there: true });
}

/// Some of these, with a value each.
fn some(keys: &[&str], random: &mut fastrand::Rng) -> Value {
    let mut map = serde_json::Map::new();
    for key in keys {
        if random.bool() {
            map.insert((*key).to_owned(), json!(["x", "y"][random.usize(0..2)]));
        }
    }
    Value::Object(map)
}

fn spec(random: &mut fastrand::Rng) -> Value {
    let mut labels = some(&LABELS, random);
    // One that nodes have already.
    if random.u8(0..3) == 0 {
        labels[DISK] = json!(DISKS[random.usize(0..DISKS.len())]);
    }
    let mut taints = Vec::new();
    for key in TAINTS {
        if random.bool() {
            let effect = ["NoSchedule", "NoExecute"][random.usize(0..2)];
            let value = ["x", "y"][random.usize(0..2)];
            taints.push(json!({"key": key, "value": value, "effect": effect}));
        }
    }
    json!({"type": "Edge", "labels": labels, "annotations": some(&ANNOTATIONS, random), "taints": taints})
}

fn create(name: &str, random: &mut fastrand::Rng) -> Edit {
    let spec = spec(random);
    let mut annotations = json!({});
    if random.bool() {
        annotations[ALLOW_NO_EXECUTE] = json!("true");
    }
    let what = format!("creates the pool {name}: {spec}, {annotations}");
    let pool = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec});
    Edit { what, method: Method::POST, path: PATH.into(), body: Some(pool) }
}

fn annotate(name: &str, annotations: &Value) -> Event {
    let (what, path) = (format!("annotates the pool {name}: {annotations}"), format!("{PATH}/{name}"));
    let body = Some(json!({"metadata": {"annotations": annotations}}));
    Event::User(Edit { what, method: Method::PATCH, path, body })
}

/// A node is in a pool from now on, or in none.
fn put_into(node: &str, pool: Option<&str>) -> Event {
    let what = match pool {
        Some(pool) => format!("puts {node} into the pool {pool}"),
        None => format!("takes {node} out of its pool"),
    };
    let body = Some(json!({"metadata": {"labels": {NODE_POOL_LABEL: pool}}}));
    Event::User(Edit { what, method: Method::PATCH, path: format!("/api/v1/nodes/{node}"), body })
}

fn happen(nodes: &mut Nodes, managers: usize, random: &mut fastrand::Rng) -> Vec<Event> {
    let name = NAMES[random.usize(0..NAMES.len())];
    let path = format!("{PATH}/{name}");
    let slot = random.usize(0..managers);
    let Some(node) = nodes.any(random) else { return Vec::new() };
    let event = match random.u8(0..22) {
        0..3 => {
            let spec = spec(random);
            let what = format!("changes the pool {name}: {spec}");
            let mut whole = json!({"labels": null, "annotations": null, "taints": null});
            if let (Some(whole), Some(spec)) = (whole.as_object_mut(), spec.as_object()) {
                whole.extend(spec.clone());
            }
            // A merge patch would leave keys that are not named.
            let gone = json!({"spec": {"labels": null, "annotations": null}});
            let clears = Edit {
                what: format!("clears the pool {name}"),
                method: Method::PATCH,
                path: path.clone(),
                body: Some(gone),
            };
            let sets = Edit { what, method: Method::PATCH, path, body: Some(json!({"spec": whole})) };
            return vec![Event::User(clears), Event::User(sets)];
        }
        3 => Event::User(Edit { what: format!("deletes the pool {name}"), method: Method::DELETE, path, body: None }),
        4 => Event::User(create(name, random)),
        5..8 => put_into(&node, Some(name)),
        8 => put_into(&node, None),
        // All leave at once.
        9 => return nodes.all().iter().map(|node| put_into(node, None)).collect(),
        10 => {
            let said = random.bool().then_some("true");
            annotate(name, &json!({SUSPEND_ANNOTATION: said}))
        }
        11 => {
            let said = [Some("*"), Some(&*node), None][random.usize(0..3)];
            annotate(name, &json!({CONFIRM_REMOVAL: said}))
        }
        12 => {
            let body =
                json!({"metadata": {"labels": some(&LABELS, random), "annotations": some(&ANNOTATIONS, random)}});
            let what = format!("writes what pools write, to {node}: {body}");
            Event::User(Edit { what, method: Method::PATCH, path: format!("/api/v1/nodes/{node}"), body: Some(body) })
        }
        13 => Event::Kill { slot, back_after: Duration::from_millis(random.u64(0..60_000)) },
        14 => Event::Compact,
        15 => Event::Stop { slot },
        16 => Event::Isolate { slot, lasts: Duration::from_millis(random.u64(500..120_000)) },
        17 => Event::ClockJump { slot, seconds: random.i64(-120..120) },
        _ => return nodes.event(random).into_iter().collect(),
    };
    vec![event]
}

//! What happens to PodMarkers, and to pods and nodes that they have to do with.

use std::time::Duration;

use dapple_api::marker::PROBER_NAMESPACE;
use dapple_api::metadata::SUSPEND_ANNOTATION;
use http::Method;
use serde_json::{Value, json};

use super::{KEPT, PROBED, probe};
use crate::faults::Weather;
use crate::nodes::{DISK, Nodes};
use crate::script::{Edit, Event, Script};
use crate::world::Habits;

const PATH: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/default/podmarkers";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// The names of markers that anything may happen to.
pub const NAMES: [&str; 2] = ["blue", "green"];
/// The labels that they set.
pub const LABELS: [&str; 2] = ["color", "tier"];
/// The label that the marker of replaced pods sets, and that of the one that goes by a probe.
pub const OWN_LABEL: &str = "marked";

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x6d61_726b);
    let mut script = match random.u8(0..8) {
        0 => replaced(seed, &mut random),
        1 => probed(seed, &mut random),
        2 => braked(seed, &mut random),
        3 => fought(seed, &mut random),
        _ => plain(seed),
    };
    script.weather = script.weather.with_second(&mut fastrand::Rng::with_seed(seed ^ 0x005e_c04d));
    script
}

/// The script of a seed in which anything happens, without faults of the second kind.
pub fn plain(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut nodes = Nodes::default();
    let mut script = empty(seed, &mut random);
    script.setup.extend((0..random.usize(2..5)).map(|_| nodes.add(&mut random)));
    let many = if random.u8(0..8) == 0 { 90 } else { 14 };
    for number in 0..random.usize(3..many) {
        script.setup.push(pod(&format!("pod-{number}"), &node(&nodes, &mut random), &mut random));
    }
    script.setup.extend(NAMES.iter().map(|name| create(name, &any_spec(name, &mut random))));
    let length = script.calm_at.as_millis() as u64;
    let mut times: Vec<u64> = (0..random.usize(3..20)).map(|_| random.u64(500..length)).collect();
    times.sort_unstable();
    let managers = script.managers;
    for (number, at) in times.into_iter().enumerate() {
        let event = happen(&mut nodes, (number, managers), &mut random);
        script.events.extend(event.map(|event| (Duration::from_millis(at), event)));
    }
    script.finish.extend(nodes.mend());
    for name in NAMES {
        script.finish.push(Event::User(create(name, &any_spec(name, &mut random))));
        script.finish.push(suspend(name, false));
    }
    script
}

/// Nothing yet, in some weather.
fn empty(seed: u64, random: &mut fastrand::Rng) -> Script {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROBER_NAMESPACE}});
    let what = format!("creates the namespace {PROBER_NAMESPACE}");
    let setup = vec![Edit { what, method: Method::POST, path: "/api/v1/namespaces".into(), body: Some(namespace) }];
    let (weather, habits) = (Weather::draw(random), Habits::draw(random));
    let (managers, calm_at) = (random.usize(1..3), Duration::from_secs(random.u64(30..1_200)));
    Script { seed, setup, events: Vec::new(), calm_at, finish: Vec::new(), managers, weather, habits }
}

/// Pods of one node, or of some, that live long, and nothing that ends them.
fn steady(seed: u64, pods: usize, random: &mut fastrand::Rng) -> Script {
    let mut script = empty(seed, random);
    script.habits.crashes = 0.0;
    for number in 0..3 {
        let mut comes = crate::nodes::node_comes(&format!("node-{number}"), random);
        if let Some(body) = &mut comes.body {
            body["metadata"]["labels"][DISK] = json!("large");
        }
        script.setup.push(comes);
    }
    for number in 0..pods {
        let mut comes = pod(&format!("pod-{number}"), &format!("node-{}", number % 3), random);
        if let Some(body) = &mut comes.body {
            body["metadata"]["labels"] = json!({"app": "web"});
        }
        script.setup.push(comes);
    }
    script
}

/// Managers die meanwhile.
fn kill_some(script: &mut Script, (from, to): (u64, u64), random: &mut fastrand::Rng) {
    for _ in 0..random.usize(0..3) {
        let slot = random.usize(0..script.managers);
        let kill = Event::Kill { slot, back_after: Duration::from_millis(random.u64(0..90_000)) };
        script.events.push((Duration::from_secs(random.u64(from..to)), kill));
    }
    script.events.sort_by_key(|(at, _)| *at);
}

fn web() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

/// A controller replaces marked pods, again and again.
fn replaced(seed: u64, random: &mut fastrand::Rng) -> Script {
    let mut script = steady(seed, 12, random);
    let spec = json!({"strategy": {"replicas": 2}, "matchRequirements": {"podSelector": web()},
        "markItems": {"labels": {OWN_LABEL: "1"}}});
    script.setup.push(create(KEPT, &spec));
    for round in 0..random.u64(1..5) {
        let event = Event::Replaced { key: OWN_LABEL, value: "1" };
        script.events.push((Duration::from_secs(200 + 120 * round), event));
    }
    script.calm_at = Duration::from_secs(900);
    kill_some(&mut script, (150, 700), random);
    script
}

/// What a probe says changes, and probers fall silent.
fn probed(seed: u64, random: &mut fastrand::Rng) -> Script {
    let mut script = steady(seed, 6, random);
    script.calm_at = Duration::from_secs(900);
    let spec = json!({"matchRequirements": {"podSelector": web(), "podProbes": [
        {"containers": [{"name": "c"}], "probe": probe(), "expectation": "succeeded"}]},
        "markItems": {"labels": {OWN_LABEL: "1"}}});
    script.setup.push(create(PROBED, &spec));
    let silent = random.usize(0..4);
    for number in 0..3 {
        let node = format!("node-{number}");
        for minute in 1..15 {
            // One of them is silent for some minutes.
            if number != silent || !(5..10).contains(&minute) {
                script.events.push((Duration::from_secs(60 * minute), Event::Renewed { node: node.clone() }));
            }
        }
        for _ in 0..random.usize(2..8) {
            let at = Duration::from_secs(random.u64(40..880));
            let state = ["Succeeded", "Succeeded", "Failed", "Unknown"][random.usize(0..4)];
            let is_old = random.u8(0..4) == 0;
            script.events.push((at, Event::Probed { node: node.clone(), state, is_old }));
        }
    }
    kill_some(&mut script, (100, 800), random);
    script
}

/// Nodes are relabelled by mistake, once all pods are old.
fn braked(seed: u64, random: &mut fastrand::Rng) -> Script {
    let mut script = steady(seed, 30, random);
    script.managers = 2;
    let spec = json!({"matchRequirements": {"podSelector": web(), "nodeSelector": {"matchLabels": {DISK: "large"}}},
        "markItems": {"labels": {OWN_LABEL: "1"}}});
    script.setup.push(create(NAMES[0], &spec));
    for number in 0..3 {
        let edit = relabel(&format!("node-{number}"), "small");
        script.events.push((Duration::from_secs(600), Event::Node(edit)));
    }
    script.calm_at = Duration::from_secs(900);
    kill_some(&mut script, (590, 700), random);
    script
}

/// Somebody keeps setting a mark to another value.
fn fought(seed: u64, random: &mut fastrand::Rng) -> Script {
    let mut script = steady(seed, 3, random);
    let spec = json!({"strategy": {"conflictPolicy": "Overwrite"}, "matchRequirements": {"podSelector": web()},
        "markItems": {"labels": {OWN_LABEL: "1"}}});
    script.setup.push(create(NAMES[0], &spec));
    for number in 0..12 {
        let edit = patch_pod("pod-0", "labels", OWN_LABEL, Some("theirs"));
        script.events.push((Duration::from_secs(60 + 15 * number), Event::User(edit)));
    }
    script.calm_at = Duration::from_secs(300);
    script
}

fn node(nodes: &Nodes, random: &mut fastrand::Rng) -> String {
    nodes.any(random).unwrap_or_else(|| "node-0".to_owned())
}

fn pod(name: &str, node: &str, random: &mut fastrand::Rng) -> Edit {
    let app = ["web", "web", "db"][random.usize(0..3)];
    let mut labels = json!({"app": app});
    // A value of somebody else's.
    if random.u8(0..4) == 0 {
        labels[LABELS[random.usize(0..2)]] = json!("theirs");
    }
    let what = format!("{name} comes to {node} with {labels}");
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "c:1"}]}});
    Edit { what, method: Method::POST, path: PODS.into(), body: Some(body) }
}

fn any_spec(name: &str, random: &mut fastrand::Rng) -> Value {
    let mut requirements = json!({});
    match random.u8(0..4) {
        0 => {
            requirements["podSelector"] = json!({"matchExpressions": [{"key": LABELS[0], "operator": "DoesNotExist"}]})
        }
        1 => {}
        _ => requirements["podSelector"] = web(),
    }
    if random.u8(0..3) == 0 {
        requirements["nodeSelector"] = json!({"matchLabels": {DISK: "large"}});
    }
    let mut strategy = json!({"conflictPolicy": ["Ignore", "Overwrite"][random.usize(0..2)]});
    match random.u8(0..4) {
        0 => strategy["replicas"] = json!(random.u8(0..6)),
        1 => strategy["replicas"] = json!("50%"),
        _ => {}
    }
    let mut items = json!({"labels": {LABELS[random.usize(0..2)]: name}});
    if random.bool() {
        items["annotations"] = json!({"note": name});
    }
    json!({"strategy": strategy, "matchRequirements": requirements, "markItems": items})
}

fn create(name: &str, spec: &Value) -> Edit {
    let marker = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodMarker",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let what = format!("creates the marker {name}: {spec}");
    Edit { what, method: Method::POST, path: PATH.into(), body: Some(marker) }
}

fn patch_marker(name: &str, what: String, body: Value) -> Event {
    Event::User(Edit { what, method: Method::PATCH, path: format!("{PATH}/{name}"), body: Some(body) })
}

fn suspend(name: &str, is_suspended: bool) -> Event {
    let said = is_suspended.then_some("true");
    let what = format!("suspends the marker {name}: {is_suspended}");
    patch_marker(name, what, json!({"metadata": {"annotations": {SUSPEND_ANNOTATION: said}}}))
}

fn relabel(node: &str, disk: &str) -> Edit {
    let body = Some(json!({"metadata": {"labels": {DISK: disk}}}));
    let what = format!("{node} has {DISK}={disk} now");
    Edit { what, method: Method::PATCH, path: format!("/api/v1/nodes/{node}"), body }
}

fn patch_pod(name: &str, field: &str, key: &str, value: Option<&str>) -> Edit {
    let what = format!("writes {field} {key}={value:?} to {name}");
    let body = Some(json!({"metadata": {field: {key: value}}}));
    Edit { what, method: Method::PATCH, path: format!("{PODS}/{name}"), body }
}

fn happen(nodes: &mut Nodes, (number, managers): (usize, usize), random: &mut fastrand::Rng) -> Option<Event> {
    let (name, slot) = (NAMES[random.usize(0..NAMES.len())], random.usize(0..managers));
    let any_pod = format!("pod-{}", random.usize(0..14));
    Some(match random.u8(0..20) {
        0..3 => {
            // A merge patch would leave what is not named.
            let mut spec = any_spec(name, random);
            for field in ["strategy", "matchRequirements", "markItems"] {
                if let Some(fields) = spec[field].as_object_mut() {
                    for gone in ["replicas", "podSelector", "nodeSelector", "labels", "annotations"] {
                        fields.entry(gone).or_insert(Value::Null);
                    }
                }
            }
            // Only the labels that it names.
            for label in LABELS {
                if spec["markItems"]["labels"][label].is_null() {
                    spec["markItems"]["labels"][label] = Value::Null;
                }
            }
            patch_marker(name, format!("changes the marker {name}: {spec}"), json!({"spec": spec}))
        }
        3 => {
            let what = format!("deletes the marker {name}");
            Event::User(Edit { what, method: Method::DELETE, path: format!("{PATH}/{name}"), body: None })
        }
        4 => Event::User(create(name, &any_spec(name, random))),
        5 => suspend(name, random.bool()),
        6 | 7 => Event::User(pod(&format!("later-{number}"), &node(nodes, random), random)),
        8 => {
            let (what, path) = (format!("deletes {any_pod}"), format!("{PODS}/{any_pod}"));
            Event::User(Edit { what, method: Method::DELETE, path, body: None })
        }
        9 => {
            let value = [Some("theirs"), Some("blue"), None][random.usize(0..3)];
            Event::User(patch_pod(&any_pod, "labels", LABELS[random.usize(0..2)], value))
        }
        10 => Event::Kill { slot, back_after: Duration::from_millis(random.u64(0..60_000)) },
        11 => Event::Compact,
        12 => Event::Stop { slot },
        13 => Event::Isolate { slot, lasts: Duration::from_millis(random.u64(500..120_000)) },
        14 => Event::ClockJump { slot, seconds: random.i64(-60..60) },
        _ => nodes.event(random)?,
    })
}

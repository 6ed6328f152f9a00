//! What happens to NodeGroups.

use std::time::Duration;

use dapple_plan::group::label::PREFIX;
use http::Method;
use serde_json::{Value, json};

use super::GROUPS;
use crate::faults::Weather;
use crate::nodes::{DISK, DISKS, Nodes};
use crate::script::{Edit, Event, Script};
use crate::world::Habits;

pub(super) const PATH: &str = "/apis/groupmanagement.kubeedge.io/v1alpha1/nodegroups";
/// The names of all groups.
pub const NAMES: [&str; 3] = ["east", "north", "west"];

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let mut script = plain(seed);
    script.habits.schedules = true;
    script.weather = script.weather.with_second(&mut fastrand::Rng::with_seed(seed ^ 0x005e_c04d));
    let mut random = fastrand::Rng::with_seed(seed ^ 0x00c4_d000);
    if random.u8(0..4) == 0 {
        lose_crd(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0070_6f64);
    if random.bool() {
        run_pods(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0061_736b);
    if random.bool() {
        super::binding::ask(&mut script, &mut random);
        super::placing::run_gated(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0077_6f72);
    if random.bool() {
        super::workloads::run_workloads(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0065_6d70);
    if random.u8(0..16) == 0 {
        super::targets::ask_for_nothing(&mut script);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0063_726f);
    if random.u8(0..12) == 0 {
        super::crowd::turn_crowd(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0074_7279);
    if random.u8(0..10) == 0 {
        super::trial::try_editions(&mut script, &mut random);
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7661_696e);
    if random.u8(0..20) == 0 {
        super::vain::move_in_vain(&mut script);
    }
    // The last: its events come after those of all others.
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0068_616c);
    if random.u8(0..20) == 0 {
        super::halted::halt(&mut script, &mut random);
    }
    script
}

/// Pods come that select on the labels of groups, and some of them go.
fn run_pods(script: &mut Script, random: &mut fastrand::Rng) {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    for number in 0..random.usize(1..6) {
        let (pod, node) = (format!("pod-{number}"), format!("node-{}", random.usize(0..4)));
        let label = format!("{PREFIX}{}", NAMES[random.usize(0..NAMES.len())]);
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"},
            "spec": {"nodeName": node, "nodeSelector": {label: "true"}, "containers": [{"name": "c", "image": "c:1"}]}});
        let what = format!("{pod} comes to {node} for {}", body["spec"]["nodeSelector"]);
        let comes = Edit { what, method: Method::POST, path: PODS.into(), body: Some(body) };
        let path = format!("{PODS}/{pod}");
        let goes = Edit { what: format!("{pod} is deleted"), method: Method::DELETE, path, body: None };
        let last = script.calm_at.as_millis() as u64;
        let came_at = random.u64(0..last);
        let mut events = vec![(came_at, comes)];
        if random.bool() {
            events.push((random.u64(came_at..last), goes));
        }
        for (at, edit) in events {
            let at = Duration::from_millis(at);
            let place = script.events.partition_point(|(other, _)| *other <= at);
            script.events.insert(place, (at, Event::User(edit)));
        }
    }
}

/// The CRD goes, and comes back after a while, or in the end.
fn lose_crd(script: &mut Script, random: &mut fastrand::Rng) {
    let gone_at = Duration::from_millis(random.u64(500..script.calm_at.as_millis() as u64));
    let back_at = gone_at + Duration::from_millis(random.u64(100..300_000));
    for (at, is_there) in [(gone_at, false), (back_at, true)] {
        if at < script.calm_at {
            let place = script.events.partition_point(|(other, _)| *other <= at);
            script.events.insert(place, (at, Event::Crd { name: GROUPS, is_there }));
        }
    }
    script.finish.insert(0, Event::Crd { name: GROUPS, is_there: true });
}

/// The script of a seed as it was before there were faults of the second kind.
pub fn plain(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut nodes = Nodes::default();
    let mut setup: Vec<Edit> = (0..random.usize(2..8)).map(|_| nodes.add(&mut random)).collect();
    setup.extend(NAMES.iter().map(|name| create(name, &nodes, &mut random)));
    let length = Duration::from_secs(random.u64(30..300));
    let managers = random.usize(1..3);
    let count = random.usize(2..16);
    let mut times: Vec<Duration> =
        (0..count).map(|_| Duration::from_millis(random.u64(500..length.as_millis() as u64))).collect();
    times.sort();
    let events: Vec<(Duration, Event)> =
        times.into_iter().filter_map(|at| Some((at, event(&mut nodes, managers, &mut random)?))).collect();
    let mut finish = nodes.mend();
    // Those that are gone are made again, and something is left to do.
    finish.extend(NAMES.iter().map(|name| Event::User(create(name, &nodes, &mut random))));
    finish.push(Event::Node(nodes.add(&mut random)));
    let (weather, habits) = (Weather::draw(&mut random), Habits::draw(&mut random));
    Script { seed, setup, events, calm_at: length, finish, managers, weather, habits }
}

fn spec(nodes: &Nodes, random: &mut fastrand::Rng) -> Value {
    let named: Vec<&String> = nodes.all().iter().filter(|_| random.u8(0..3) == 0).collect();
    match random.u8(0..3) {
        0 => json!({"nodes": named}),
        1 => json!({"matchLabels": {DISK: DISKS[random.usize(0..DISKS.len())]}}),
        _ => json!({"nodes": named, "matchLabels": {DISK: DISKS[random.usize(0..DISKS.len())]}}),
    }
}

fn create(name: &str, nodes: &Nodes, random: &mut fastrand::Rng) -> Edit {
    let spec = spec(nodes, random);
    let what = format!("creates the group {name}: {spec}");
    let group = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
        "metadata": {"name": name}, "spec": spec});
    Edit { what, method: Method::POST, path: PATH.into(), body: Some(group) }
}

fn event(nodes: &mut Nodes, managers: usize, random: &mut fastrand::Rng) -> Option<Event> {
    let name = NAMES[random.usize(0..NAMES.len())];
    let path = format!("{PATH}/{name}");
    let slot = random.usize(0..managers);
    Some(match random.u8(0..14) {
        0 | 1 => {
            let mut whole = json!({"nodes": null, "matchLabels": null});
            let spec = spec(nodes, random);
            if let (Some(whole), Some(spec)) = (whole.as_object_mut(), spec.as_object()) {
                whole.extend(spec.clone());
            }
            let what = format!("changes the group {name}: {spec}");
            Event::User(Edit { what, method: Method::PATCH, path, body: Some(json!({"spec": whole})) })
        }
        2 => Event::User(Edit { what: format!("deletes the group {name}"), method: Method::DELETE, path, body: None }),
        3 => Event::User(create(name, nodes, random)),
        4 | 5 => Event::Kill { slot, back_after: Duration::from_millis(random.u64(0..60_000)) },
        6 => Event::Compact,
        8 => Event::Stop { slot },
        9 => Event::Isolate { slot, lasts: Duration::from_millis(random.u64(500..120_000)) },
        7 => Event::ClockJump { slot, seconds: random.i64(-120..120) },
        _ => nodes.event(random)?,
    })
}

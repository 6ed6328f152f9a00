//! What happens to a DaemonSet.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, forbidden, gone, haste, story};
use crate::faults::Weather;
use crate::nodes::{DISK, DISKS, Nodes, node_comes};
use crate::script::{Edit, Event, Script};
use crate::world::Habits;

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x000f_0b1d);
    match random.u8(0..24) {
        0 => return forbidden::forbid(second(seed), &mut random),
        1 => return haste::crowd(second(seed), &mut random),
        2 => return gone::lose(second(seed), &mut random),
        _ => {}
    }
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0057_0217);
    match random.u8(0..8) {
        // Some are as they were before there were stories.
        0 => second(seed),
        1 => haste::hasten(second(seed), &mut random),
        _ => story::tell(second(seed), &mut random),
    }
}

/// The script of a seed as it was before there were stories: what seeds found then, they find still.
pub fn second(seed: u64) -> Script {
    let mut script = plain(seed);
    let mut random = fastrand::Rng::with_seed(seed ^ 0x005e_c04d);
    script.weather = script.weather.with_second(&mut random);
    script.setup.push(namesake());
    let length = script.calm_at.as_millis() as u64;
    for _ in 0..random.usize(0..3) {
        let at = Duration::from_millis(random.u64(1_000..length));
        let more = match random.u8(0..3) {
            0 => roll_back(&script, at).into_iter().map(|event| (at, event)).collect(),
            1 => comes_back(&mut random).map(|event| (at, event)).to_vec(),
            _ => canary(&mut random, at),
        };
        script.events.extend(more.into_iter().filter(|(at, _)| *at < script.calm_at));
        // Stable: what is told together stays in order.
        script.events.sort_by_key(|(at, _)| *at);
    }
    script
}

/// A pod of a DaemonSet of the same name that is not ours, on no node.
fn namesake() -> Edit {
    // Its API is not served here: the garbage collector leaves such alone.
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "uid": "namesake", "controller": true}]);
    pod("creates a pod of a namesake", "namesake", NAME, owner, json!({}))
}

/// A user makes a pod that is none of the set's. `spec` is what it has besides its container.
fn pod(what: &str, name: &str, label: &str, owners: Value, mut spec: Value) -> Edit {
    spec["containers"] = json!([{"name": "main", "image": "other:1"}]);
    let metadata = json!({"name": name, "labels": {"app": label}, "ownerReferences": owners});
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    Edit {
        what: what.into(),
        method: Method::POST,
        path: format!("/api/v1/namespaces/{NAMESPACE}/pods"),
        body: Some(body),
    }
}

/// Back to what the set was before the last change of its template or patches.
fn roll_back(script: &Script, at: Duration) -> Option<Event> {
    let created = script.setup.iter().filter_map(|edit| edit.body.as_ref()).find(|body| body["kind"] == "DaemonSet")?;
    let mut now = json!({"template": created["spec"]["template"], "patches": created["spec"]["patches"]});
    let mut before = None;
    for (_, event) in script.events.iter().filter(|(known, _)| *known <= at) {
        let Event::User(Edit { body: Some(body), method: Method::PATCH, .. }) = event else { continue };
        for field in ["template", "patches"] {
            if let Some(value) = body["spec"].get(field) {
                before = Some(now.clone());
                now[field] = value.clone();
            }
        }
    }
    before.map(|before| change(format!("rolls back to {before}"), json!({"spec": before})))
}

/// A node goes, and is back under its name at once, with another disk perhaps.
fn comes_back(random: &mut fastrand::Rng) -> [Event; 2] {
    let name = format!("node-{}", random.u8(0..2));
    let path = format!("/api/v1/nodes/{name}");
    let goes = Edit { what: format!("{name} goes"), method: Method::DELETE, path, body: None };
    [Event::Node(goes), Event::Node(node_comes(&name, random))]
}

/// A new image for some nodes only, while another one that keeps its pod is not well served.
fn canary(random: &mut fastrand::Rng, at: Duration) -> Vec<(Duration, Event)> {
    let (partition, lasts) = (random.u8(1..3), Duration::from_secs(random.u64(60..300)));
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition, "paused": false}});
    let image = format!("agent:{}", random.u8(6..9));
    vec![
        (at, Event::Unready { node: "node-0".into(), lasts }),
        (at, change(format!("sets the partition to {partition}"), json!({"spec": {"updateStrategy": strategy}}))),
        (
            at + Duration::from_secs(20),
            change(format!("sets the image to {image}"), json!({"spec": {"template": template(&image)}})),
        ),
    ]
}

/// The script of a seed as it was before there were faults of the second kind: what seeds found then, they find still.
pub fn plain(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut nodes = Nodes::default();
    let mut setup: Vec<Edit> = (0..random.usize(2..8)).map(|_| nodes.add(&mut random)).collect();
    setup.extend(bystanders(nodes.all()));
    let strategy = strategy(&mut random);
    let set = set(&mut random, &strategy);
    let counts_age = set["spec"]["minReadySeconds"] != 0;
    setup.push(create(set.clone()));
    let length = Duration::from_secs(random.u64(60..600));
    let managers = random.usize(1..3);
    let mut events = Vec::new();
    let mut author = Author { random, nodes, strategy, counts_age, set };
    for _ in 0..author.random.usize(2..14) {
        let at = Duration::from_millis(author.random.u64(1_000..length.as_millis() as u64));
        if let Some(event) = author.event(managers) {
            events.push((at, event));
        }
    }
    // Told in the order in which they were thought of, so that what is mended later was broken before.
    let mut times: Vec<Duration> = events.iter().map(|(at, _)| *at).collect();
    times.sort();
    let events: Vec<(Duration, Event)> = times.into_iter().zip(events).map(|(at, (_, event))| (at, event)).collect();
    let finish = author.finish();
    let random = &mut author.random;
    let (weather, habits) = (Weather::draw(random), Habits::draw(random));
    Script { seed, setup, events, calm_at: length, finish, managers, weather, habits }
}

struct Author {
    random: fastrand::Rng,
    nodes: Nodes,
    strategy: Value,
    /// Whether pods have to be ready for a while.
    counts_age: bool,
    /// The set as it was made first.
    set: Value,
}

fn path() -> String {
    format!("/apis/apps.kruise.io/v1beta1/namespaces/{NAMESPACE}/daemonsets")
}

fn create(set: Value) -> Edit {
    Edit { what: format!("creates the set: {set}"), method: Method::POST, path: path(), body: Some(set) }
}

pub(super) fn change(what: String, patch: Value) -> Event {
    Event::User(Edit { what, method: Method::PATCH, path: format!("{}/{NAME}", path()), body: Some(patch) })
}

pub(super) fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": NAME}},
        "spec": {"containers": [{"name": "main", "image": image, "env": [{"name": "CACHE", "value": "none"}]}]},
    })
}

/// Patches for some of the disks.
fn patches(random: &mut fastrand::Rng) -> Value {
    let mut patches = Vec::new();
    for disk in DISKS {
        if random.bool() {
            let value = format!("{disk}-{}", random.u8(0..3));
            let containers = json!([{"name": "main", "env": [{"name": "CACHE", "value": value}]}]);
            let selector = json!({"matchLabels": {DISK: disk}});
            patches.push(json!({"selector": selector, "priority": 1, "patch": {"spec": {"containers": containers}}}));
        }
    }
    json!(patches)
}

fn strategy(random: &mut fastrand::Rng) -> Value {
    if random.u8(0..8) == 0 {
        return json!({"type": "OnDelete"});
    }
    let kind = ["Standard", "Standard", "InPlaceIfPossible", "Surging"][random.usize(0..4)];
    let amount = match random.u8(0..4) {
        0 => json!("34%"),
        number => json!(number),
    };
    let mut rolling = json!({"rollingUpdateType": kind, "partition": 0, "paused": false});
    if kind == "Surging" {
        rolling["rollingUpdateType"] = json!("Standard");
        rolling["maxSurge"] = amount;
        rolling["maxUnavailable"] = json!(0);
    } else {
        rolling["maxUnavailable"] = amount;
    }
    json!({"type": "RollingUpdate", "rollingUpdate": rolling})
}

fn image(random: &mut fastrand::Rng) -> String {
    match random.u8(0..6) {
        0 => "agent:bad".to_owned(),
        number => format!("agent:{number}"),
    }
}

fn set(random: &mut fastrand::Rng, strategy: &Value) -> Value {
    let (min_ready, burst) = ([0, 0, 5][random.usize(0..3)], [1, 2, 250][random.usize(0..3)]);
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            "template": template("agent:0"),
            "patches": patches(random),
            "updateStrategy": strategy,
            "minReadySeconds": min_ready,
            "burstReplicas": burst,
            "revisionHistoryLimit": random.u8(1..4),
        },
    })
}

/// What is none of our business: a pod with the same labels that somebody else owns, one of nobody with other labels, and
/// a revision of somebody else.
fn bystanders(nodes: &[String]) -> Vec<Edit> {
    // Of a kind that is not served: the garbage collector leaves such alone.
    let owner =
        json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "w", "controller": true}]);
    let on = json!({"nodeName": nodes.first().cloned().unwrap_or_default()});
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 7, "data": {},
        "metadata": {"name": "agent-foreign", "labels": {"app": NAME}, "ownerReferences": owner}});
    let revision = Edit {
        what: "creates a revision of another owner".into(),
        method: Method::POST,
        path: format!("/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"),
        body: Some(revision),
    };
    vec![
        pod("creates a pod of another owner", "foreign", NAME, owner, on.clone()),
        pod("creates a pod of nobody", "stranger", "other", json!([]), on),
        revision,
    ]
}

impl Author {
    fn event(&mut self, managers: usize) -> Option<Event> {
        let random = &mut self.random;
        let slot = random.usize(0..managers);
        Some(match random.u8(0..24) {
            0..5 => {
                let image = image(random);
                change(format!("sets the image to {image}"), json!({"spec": {"template": template(&image)}}))
            }
            5 | 6 => {
                let patches = patches(random);
                change(format!("sets the patches to {patches}"), json!({"spec": {"patches": patches}}))
            }
            7 => {
                let is_paused = random.bool();
                let what = if is_paused { "pauses the rollout" } else { "resumes the rollout" };
                self.rolling(what.to_owned(), json!({"paused": is_paused}))?
            }
            8 => {
                let partition = random.u8(0..4);
                self.rolling(format!("sets the partition to {partition}"), json!({"partition": partition}))?
            }
            9 => {
                self.strategy = strategy(random);
                // A merge patch leaves what it does not name.
                let fresh = json!({"rollingUpdateType": null, "maxSurge": null, "maxUnavailable": null, "partition": null,
                    "paused": null});
                let mut patch = self.strategy.clone();
                let mut rolling = fresh;
                if let (Some(rolling), Some(given)) =
                    (rolling.as_object_mut(), self.strategy["rollingUpdate"].as_object())
                {
                    rolling.extend(given.clone());
                }
                patch["rollingUpdate"] = if self.strategy["type"] == "OnDelete" { Value::Null } else { rolling };
                change(format!("sets the strategy to {}", self.strategy), json!({"spec": {"updateStrategy": patch}}))
            }
            10 => Event::DeletePods { node: self.nodes.any(random)? },
            11 => {
                let lasts = Duration::from_secs(random.u64(1..120));
                Event::Unready { node: self.nodes.any(random)?, lasts }
            }
            12 => Event::Fail { node: self.nodes.any(random)? },
            13 | 14 => Event::Kill { slot, back_after: Duration::from_millis(random.u64(0..60_000)) },
            15 => Event::Compact,
            18 => Event::Stop { slot },
            19 => Event::Isolate { slot, lasts: Duration::from_millis(random.u64(500..120_000)) },
            17 if random.bool() => self.delete(),
            17 => Event::User(create(self.set.clone())),
            // A clock that is wrong makes pods seem younger than they are, which counts only where their age does.
            16 if !self.counts_age => Event::ClockJump { slot, seconds: random.i64(-120..120) },
            _ => self.nodes.event(random)?,
        })
    }

    fn delete(&mut self) -> Event {
        let policy = if self.random.bool() { "Background" } else { "Orphan" };
        let (what, path) = (format!("deletes the set ({policy})"), format!("{}/{NAME}", path()));
        let options = Some(json!({"propagationPolicy": policy}));
        Event::User(Edit { what, method: Method::DELETE, path, body: options })
    }

    fn rolling(&mut self, what: String, rolling: Value) -> Option<Event> {
        (self.strategy["type"] == "RollingUpdate")
            .then(|| change(what, json!({"spec": {"updateStrategy": {"rollingUpdate": rolling}}})))
    }

    /// A rollout that can end, whatever was asked for before.
    fn finish(&mut self) -> Vec<Event> {
        let image = format!("agent:{}", self.random.u8(1..9));
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"paused": false, "partition": 0}});
        let spec = json!({"spec": {"template": template(&image), "updateStrategy": rolling}});
        let mut finish = self.nodes.mend();
        // If there is none any more.
        finish.push(Event::User(create(self.set.clone())));
        finish.push(change(format!("sets the image to {image}, and lets it roll out"), spec));
        finish
    }
}

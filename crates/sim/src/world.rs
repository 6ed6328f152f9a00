//! Kubelets, the scheduler and the garbage collector, as a list of things to be done at some time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kubelet::{Status, status};
use crate::object::{asked_node, is_ready, is_terminating, path_of, text};
use crate::server::{Change, ChangeKind};
use crate::sim::{Actor, Sim};

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The kubelet, or the scheduler, looks at a pod.
    Pod(String, String),
    /// Garbage is collected.
    Garbage,
    /// Pods of nodes that are gone are taken away.
    Abandoned,
}

/// How fast things are, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// The longest that a kubelet takes for a step.
    pub kubelet: u64,
    /// The longest that a pod takes to end.
    pub ending: u64,
    /// The part of pods that end by themselves, soon after they began.
    pub crashes: f64,
}

impl Habits {
    /// Quick or slow kubelets, by chance.
    pub fn draw(random: &mut fastrand::Rng) -> Self {
        Self {
            kubelet: [20, 500, 10_000][random.usize(0..3)],
            ending: [20, 2_000, 30_000][random.usize(0..3)],
            crashes: [0.0, 0.0, 0.05][random.usize(0..3)],
        }
    }
}

/// The world around the managers.
#[derive(Debug)]
pub struct World {
    random: fastrand::Rng,
    habits: Habits,
    due: BTreeMap<(Instant, u64), Due>,
    /// When what is in `due` is due.
    waiting: BTreeMap<Due, (Instant, u64)>,
    number: u64,
    /// By UID: pods that are not ready before this time.
    unready: BTreeMap<String, Instant>,
    /// UIDs of pods that end by themselves.
    doomed: BTreeSet<String>,
}

impl World {
    /// A world with these habits.
    pub fn new(seed: u64, habits: Habits) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            habits,
            due: BTreeMap::new(),
            waiting: BTreeMap::new(),
            number: 0,
            unready: BTreeMap::new(),
            doomed: BTreeSet::new(),
        }
    }

    /// From now on pods do not end by themselves.
    pub fn calm(&mut self) {
        self.habits.crashes = 0.0;
        self.doomed.clear();
        self.unready.clear();
    }

    /// A pod is not ready for a while.
    pub fn unready(&mut self, pod: &Value, until: Instant) {
        self.unready.insert(text(&pod["metadata"]["uid"]).to_owned(), until);
        self.at(until, due_pod(pod));
    }

    /// Sees what has changed; true if there is something to do about it sooner than anything else.
    pub fn observe(&mut self, change: &Change, now: Instant) -> bool {
        let before = self.next();
        let object = &change.object;
        match (change.resource, change.kind) {
            ("pods", ChangeKind::Deleted) => {
                self.unready.remove(text(&object["metadata"]["uid"]));
                self.doomed.remove(text(&object["metadata"]["uid"]));
            }
            ("pods", kind) => {
                if kind == ChangeKind::Added && self.random.f64() < self.habits.crashes {
                    self.doomed.insert(text(&object["metadata"]["uid"]).to_owned());
                }
                let most = if is_terminating(object) { self.habits.ending } else { self.habits.kubelet };
                self.within(now, most, due_pod(object));
            }
            ("nodes", ChangeKind::Deleted) => self.within(now, 60_000, Due::Abandoned),
            _ => {}
        }
        // Whoever has an owner may have lost it, and whoever goes may leave somebody behind.
        let has_owner = object["metadata"]["ownerReferences"].is_array();
        if change.kind == ChangeKind::Deleted
            || is_terminating(object)
            || (has_owner && change.kind == ChangeKind::Added)
        {
            self.within(now, 2_000, Due::Garbage);
        }
        self.next() != before
    }

    /// Pods are looked at again.
    pub fn wake(&mut self, pods: &[Arc<Value>], now: Instant) {
        for pod in pods {
            self.within(now, self.habits.kubelet, due_pod(pod));
        }
    }

    fn within(&mut self, now: Instant, most: u64, due: Due) {
        let delay = Duration::from_millis(self.random.u64(1..=most.max(1)));
        self.at(now + delay, due);
    }

    /// Does something at this time, unless it is done before anyway.
    fn at(&mut self, at: Instant, due: Due) {
        match self.waiting.get(&due) {
            Some((known, _)) if *known <= at => return,
            Some(known) => _ = self.due.remove(known),
            None => {}
        }
        self.number += 1;
        self.due.insert((at, self.number), due.clone());
        self.waiting.insert(due, (at, self.number));
    }

    /// When there is something to do next.
    pub fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    fn take(&mut self, now: Instant) -> Option<Due> {
        let (at, number) = *self.due.keys().next().filter(|(at, _)| *at <= now)?;
        let due = self.due.remove(&(at, number))?;
        self.waiting.remove(&due);
        Some(due)
    }
}

fn due_pod(pod: &Value) -> Due {
    Due::Pod(text(&pod["metadata"]["namespace"]).to_owned(), text(&pod["metadata"]["name"]).to_owned())
}

/// Does everything that is due.
pub fn turn(sim: &Sim) {
    while let Some(due) = sim.with_world(|world| world.take(Instant::now())) {
        match due {
            Due::Pod(namespace, name) => look_at(sim, &namespace, &name),
            Due::Garbage => while sim.collect_garbage() {},
            Due::Abandoned => {
                for pod in sim.server.list("pods") {
                    let node = text(&pod["spec"]["nodeName"]);
                    if !node.is_empty() && sim.server.get("nodes", "", node).is_none() {
                        remove(sim, &pod);
                    }
                }
            }
        }
    }
}

fn remove(sim: &Sim, pod: &Value) {
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}});
    sim.ask(Actor::World, Method::DELETE, &path_of(pod), Some(&options));
}

fn look_at(sim: &Sim, namespace: &str, name: &str) {
    let Some(pod) = sim.server.get("pods", namespace, name) else { return };
    let node = text(&pod["spec"]["nodeName"]);
    if node.is_empty() {
        return bind(sim, &pod);
    }
    // A node that is not well has no kubelet that does anything.
    if !sim.server.get("nodes", "", node).is_some_and(|node| is_ready(&node)) {
        return;
    }
    if is_terminating(&pod) {
        return remove(sim, &pod);
    }
    let uid = text(&pod["metadata"]["uid"]);
    let now = Instant::now();
    let (is_doomed, is_held) = sim.with_world(|world| {
        let until = world.unready.get(uid).copied().filter(|until| *until > now);
        if let Some(until) = until {
            world.at(until, due_pod(&pod));
        }
        (world.doomed.contains(uid), until.is_some())
    });
    let clock = dapple_control::env::Clock::now(&sim.clock).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match status(&pod, &clock, is_doomed, is_held) {
        Status::Same => {}
        Status::Is { status, again } => {
            sim.ask(
                Actor::World,
                Method::PATCH,
                &format!("{}/status", path_of(&pod)),
                Some(&json!({"status": status})),
            );
            if again {
                sim.with_world(|world| world.within(now, world.habits.kubelet, due_pod(&pod)));
            }
        }
    }
}

/// The scheduler: a pod of a DaemonSet names its node by affinity.
fn bind(sim: &Sim, pod: &Value) {
    let node = asked_node(pod);
    if is_terminating(pod) || sim.server.get("nodes", "", node).is_none() {
        return;
    }
    let target = json!({"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}});
    sim.ask(Actor::World, Method::POST, &format!("{}/binding", path_of(pod)), Some(&target));
}

//! Kubelets, the scheduler, controllers of workloads and the garbage collector, as a list of things to be done at some time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_control::family::RepairLimits;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::health::{self, illness_of};
use crate::hook;
use crate::kubelet::{Status, status};
use crate::object::{is_out_of_service, is_ready, is_terminating, path_of, running_images, text, tolerates_all};
use crate::scheduler;
use crate::server::{Change, ChangeKind};
use crate::sim::{Actor, Sim};
use crate::workload::{self, WorkloadKey};

/// So long after a node was taken out of service its pods are taken away.
const EVICTS_AFTER: Duration = Duration::from_secs(20);

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The kubelet, or the scheduler, looks at a pod.
    Pod(String, String),
    /// Garbage is collected.
    Garbage,
    /// Pods of nodes that are gone, or out of service, are taken away.
    Abandoned,
    /// A node falls ill of what runs there.
    Ails(String),
    /// A node gets well, if what made it ill is gone.
    Heals(String),
    /// Whoever holds pods of a set with hooks looks at one.
    Hook(String, String),
    /// The controller of a workload looks at it.
    Workload(WorkloadKey),
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
    /// So long after what makes it ill runs there a node falls ill.
    pub ails_after: u64,
    /// So long after that is gone it gets well.
    pub heals_after: u64,
    /// Whether pods of nodes that are not ready are set not ready.
    pub marks_pods: bool,
    /// Whether nodes that are not ready get the taints of their condition.
    pub taints: bool,
    /// The longest that a controller of workloads takes for a step, and the oldest that its view is.
    pub controllers: u64,
    /// Whether the scheduler finds nodes for pods that name none.
    pub schedules: bool,
    /// Whether new pods are shown to the webhook.
    pub has_webhook: bool,
    /// From when on it makes them by the editions of groups, if ever.
    pub makes_pods_from: Option<Duration>,
    /// How pods may be moved.
    pub repair: RepairLimits,
    /// Pods with this label are never shown to the webhook.
    pub hides: Option<&'static str>,
}

impl Habits {
    /// Quick or slow kubelets, by chance.
    pub fn draw(random: &mut fastrand::Rng) -> Self {
        Self {
            kubelet: [20, 500, 10_000][random.usize(0..3)],
            ending: [20, 2_000, 30_000][random.usize(0..3)],
            crashes: [0.0, 0.0, 0.05][random.usize(0..3)],
            ails_after: 30_000,
            heals_after: 10_000,
            marks_pods: true,
            taints: false,
            controllers: 500,
            schedules: false,
            has_webhook: false,
            makes_pods_from: None,
            // Soon enough to be seen in the time of a run.
            repair: RepairLimits { after: Duration::from_secs(1), per_minute: 1_000 },
            hides: None,
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
    /// Nodes that are not ready because of what runs there. Their kubelets answer.
    ailing: BTreeSet<String>,
    /// Whether nobody falls ill any more.
    is_calm: bool,
    /// For controllers of workloads: drawn apart, so that runs without any are as they were.
    controllers: fastrand::Rng,
    /// The version that each workload's controller has written last: its view is as new.
    written: BTreeMap<WorkloadKey, u64>,
    /// Pods that no node fits.
    unscheduled: BTreeSet<(String, String)>,
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
            ailing: BTreeSet::new(),
            is_calm: false,
            controllers: fastrand::Rng::with_seed(seed ^ 0xc0),
            written: BTreeMap::new(),
            unscheduled: BTreeSet::new(),
        }
    }

    /// Its habits.
    pub fn habits(&self) -> Habits {
        self.habits
    }

    /// From now on pods do not end by themselves, and nodes do not fall ill.
    pub fn calm(&mut self) {
        self.is_calm = true;
        self.habits.crashes = 0.0;
        self.doomed.clear();
        self.unready.clear();
    }

    /// A pod is not ready for a while.
    pub fn unready(&mut self, pod: &Value, until: Instant) {
        self.unready.insert(text(&pod["metadata"]["uid"]).to_owned(), until);
        self.at(until, due_pod(pod));
    }

    /// A node falls ill; false if nobody does any more.
    pub fn falls_ill(&mut self, node: &str, status: &str) -> bool {
        if !self.is_calm && status == "False" {
            self.ailing.insert(node.to_owned());
        }
        !self.is_calm
    }

    /// Whether a node is ill of what runs there, and its kubelet answers.
    pub fn is_ailing(&self, node: &str) -> bool {
        self.ailing.contains(node)
    }

    /// A node is well, or is ill for another reason.
    pub fn is_well(&mut self, node: &str) {
        self.ailing.remove(node);
    }

    /// Sees what has changed; true if there is something to do about it sooner than anything else.
    pub fn observe(&mut self, change: &Change, now: Instant) -> bool {
        let before = self.next();
        let object = &change.object;
        if change.resource == "pods" {
            self.observe_illness(object, now);
        }
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
            ("nodes", _) if is_out_of_service(object) => self.at(now + EVICTS_AFTER, Due::Abandoned),
            _ => {}
        }
        if change.resource == "nodes" {
            for (namespace, name) in std::mem::take(&mut self.unscheduled) {
                self.soon(now, Due::Pod(namespace, name));
            }
        }
        for at in workload::concerned(change) {
            self.soon(now, Due::Workload(at));
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

    /// What makes a node ill may be gone, and whoever holds a pod may have to let go.
    fn observe_illness(&mut self, pod: &Value, now: Instant) {
        let node = text(&pod["spec"]["nodeName"]);
        if self.ailing.contains(node) {
            self.at(now + Duration::from_millis(self.habits.heals_after), Due::Heals(node.to_owned()));
        }
        if hook::next(pod).is_some() {
            let Due::Pod(namespace, name) = due_pod(pod) else { return };
            self.at(now + hook::TAKES, Due::Hook(namespace, name));
        }
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

    /// Does something as soon as a controller does.
    fn soon(&mut self, now: Instant, due: Due) {
        let delay = Duration::from_millis(self.controllers.u64(1..=self.habits.controllers.max(1)));
        self.at(now + delay, due);
    }

    /// How old the view of a controller is that looks at a workload, and the version that it knows at least.
    pub fn view_of(&mut self, at: &WorkloadKey) -> (Duration, u64) {
        let is_old = self.controllers.bool();
        let age = if is_old { self.controllers.u64(0..=self.habits.controllers) } else { 0 };
        (Duration::from_millis(age), self.written.get(at).copied().unwrap_or_default())
    }

    /// The controller of a workload has written this version.
    pub fn wrote(&mut self, at: &WorkloadKey, version: u64) {
        self.written.insert(at.clone(), version);
    }

    /// A workload is looked at again.
    pub fn look_again(&mut self, at: &WorkloadKey, now: Instant) {
        self.soon(now, Due::Workload(at.clone()));
    }

    /// A workload is looked at at this time, unless it is before anyway.
    pub fn look_at(&mut self, at: &WorkloadKey, time: Instant) {
        self.at(time, Due::Workload(at.clone()));
    }

    /// No node fits a pod, until one changes.
    pub fn is_unscheduled(&mut self, pod: &Value) {
        let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
        self.unscheduled.insert((text(namespace).to_owned(), text(name).to_owned()));
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
                for pod in sim.server.list("pods").iter().filter(|pod| is_abandoned(sim, pod)) {
                    remove(sim, pod);
                }
            }
            Due::Workload(at) => workload::look(sim, &at),
            Due::Ails(node) => health::fall_ill(sim, &node),
            Due::Heals(node) => health::get_well(sim, &node),
            Due::Hook(namespace, name) => {
                let pod = sim.server.get("pods", &namespace, &name);
                if let Some((pod, patch)) = pod.and_then(|pod| hook::next(&pod).map(|patch| (pod, patch))) {
                    sim.ask(Actor::World, Method::PATCH, &path_of(&pod), Some(&patch));
                }
            }
        }
    }
}

/// Whether the node of a pod is gone, or out of service and not tolerated.
fn is_abandoned(sim: &Sim, pod: &Value) -> bool {
    let node = text(&pod["spec"]["nodeName"]);
    let found = sim.server.get("nodes", "", node);
    !node.is_empty() && found.is_none_or(|node| is_out_of_service(&node) && !is_ready(&node) && !tolerates_all(pod))
}

fn remove(sim: &Sim, pod: &Value) {
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}});
    sim.ask(Actor::World, Method::DELETE, &path_of(pod), Some(&options));
}

fn look_at(sim: &Sim, namespace: &str, name: &str) {
    let Some(pod) = sim.server.get("pods", namespace, name) else { return };
    let node = text(&pod["spec"]["nodeName"]);
    if node.is_empty() {
        return scheduler::bind(sim, &pod);
    }
    // A node that is not well has no kubelet that does anything, unless it is ill of what runs there, and says so.
    let is_ailing = sim.with_world(|world| world.is_ailing(node));
    if !sim.server.get("nodes", "", node).is_some_and(|node| is_ready(&node) || is_ailing) {
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
        if running_images(&pod).any(|image| illness_of(image).is_some()) && !is_ailing && !world.is_calm {
            world.at(now + Duration::from_millis(world.habits.ails_after), Due::Ails(node.to_owned()));
        }
        (world.doomed.contains(uid), until.is_some() || (is_ailing && world.habits.marks_pods))
    });
    match status(&pod, &health::now(sim), is_doomed, is_held) {
        Status::Same => {}
        Status::Is { status, again } => {
            health::patch_status(sim, &pod, &status);
            if again {
                sim.with_world(|world| world.within(now, world.habits.kubelet, due_pod(&pod)));
            }
        }
    }
}

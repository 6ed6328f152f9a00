//! Tells one story, event by event.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::super::script::change;
use super::{SOAK, amount, partition, rolling, selector, strategy};
use crate::nodes::{DISK, DISKS, relabel};
use crate::object::OUT_OF_SERVICE;
use crate::script::{Edit, Event};

/// When a story begins: every node has had its first pod for long enough.
const BEGINS: Duration = Duration::from_secs(110);

/// Taints that the control plane, cloud providers and administrators put on nodes in an outage.
const OUTAGES: [(&str, &str); 6] = [
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"),
    ("example.com/maintenance", "NoSchedule"),
];

/// What is told so far, and until when.
pub(super) struct Teller<'r> {
    at: Duration,
    nodes: Vec<String>,
    managers: usize,
    /// Images that the set has had, the newest last.
    images: Vec<String>,
    events: Vec<(Duration, Event)>,
    random: &'r mut fastrand::Rng,
}

impl<'r> Teller<'r> {
    pub(super) fn new(nodes: Vec<String>, managers: usize, random: &'r mut fastrand::Rng) -> Self {
        Self { at: BEGINS, nodes, managers, images: vec!["agent:0".into()], events: Vec::new(), random }
    }

    /// Everything that was told, and when it ends.
    pub(super) fn told(self) -> (Vec<(Duration, Event)>, Duration) {
        (self.events, self.at)
    }

    pub(super) fn tell(&mut self) {
        if self.random.u8(0..3) == 0 {
            self.some_are_down();
        }
        for _ in 0..self.random.usize(1..4) {
            match self.random.u8(0..10) {
                0..4 => self.bad_revisions(),
                4 | 5 => self.held_back(),
                6 => self.selected(),
                7 => self.on_delete(),
                8 => self.same_meaning(),
                _ => self.outage(),
            }
        }
        // Last, so that seeds from before there was this begin as they did.
        if self.random.u8(0..4) == 0 {
            self.shunned();
        }
    }

    /// One of these.
    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.usize(0..all.len())].clone()
    }

    fn push(&mut self, event: Event) {
        self.events.push((self.at, event));
    }

    /// So many seconds pass, give or take; meanwhile something else may happen.
    fn pass(&mut self, seconds: u64) {
        let end = self.at + Duration::from_secs(self.random.u64(seconds / 2..=seconds * 3 / 2));
        if self.random.u8(0..3) == 0 {
            self.at += Duration::from_secs(self.random.u64(1..seconds.max(2)));
            self.incident();
        }
        self.at = self.at.max(end);
    }

    fn node(&mut self) -> String {
        let place = self.random.usize(0..self.nodes.len().max(1));
        self.nodes.get(place).cloned().unwrap_or_default()
    }

    fn image(&mut self, image: String) {
        let template = json!({"spec": {"containers": [
            {"name": "main", "image": image, "env": [{"name": "CACHE", "value": "none"}]}]}});
        self.push(change(format!("sets the image to {image}"), json!({"spec": {"template": template}})));
        self.images.push(image);
    }

    fn good_image(&mut self) {
        self.image(format!("agent:good-{}", self.images.len()));
    }

    fn rolling(&mut self, what: &str, patch: Value) {
        let what = format!("sets {what}: {patch}");
        self.push(change(what, json!({"spec": {"updateStrategy": {"rollingUpdate": patch}}})));
    }

    /// Nodes are down before anything else happens, with the pods that they have, some of them deleted.
    fn some_are_down(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            let node = self.node();
            let down =
                [Event::NodeLost { node: node.clone() }, Event::NodeReady { node: node.clone(), is_ready: false }];
            let event = self.one_of(&down);
            self.push(event);
            if self.random.u8(0..3) == 0 {
                self.push(Event::DeletePods { node });
            }
        }
        self.pass(40);
    }

    /// One or several revisions that nodes fall ill of, and one that is good, or the one before again.
    fn bad_revisions(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            let kind = self.one_of(&["sick", "sick", "lost", "lost", "sick-bad"]);
            let tag = kind.replacen('-', &format!("-{}-", self.images.len()), 1);
            let tag = if tag == kind { format!("{kind}-{}", self.images.len()) } else { tag };
            self.image(format!("agent:{tag}"));
            let waits = self.one_of(&[30, 120, 300]);
            self.pass(waits);
        }
        match self.random.u8(0..3) {
            0 => {
                let before = self.one_of(&self.images.clone());
                self.image(before);
            }
            1 => self.good_image(),
            _ => return,
        }
        self.pass(200);
    }

    /// A revision that has its nodes tainted for good: their pods are evicted, and none may start. The leader may change
    /// meanwhile; another revision like that follows, or one that is good, or the one before again.
    fn shunned(&mut self) {
        // Longer than it takes until a node is shunned, and for as long as it is: nothing else would stop the rollout.
        let patient = json!({"metadata": {"annotations": {SOAK: null}}, "spec": {"minReadySeconds": 60}});
        self.push(change("waits for a minute, and for ever".into(), patient));
        // Pods that have been ready for less are not available any more.
        self.at += Duration::from_secs(150);
        self.rolling("the partition", json!({"partition": 0, "selector": null, "paused": null}));
        let before = self.images.last().cloned().unwrap_or_default();
        for _ in 0..self.random.usize(1..3) {
            self.image(format!("agent:shunned-{}", self.images.len()));
            let waits = self.one_of(&[150, 300, 600]);
            self.pass(waits);
            if self.random.u8(0..3) > 0 {
                for slot in 0..self.managers {
                    let back_after = Duration::from_millis(self.random.u64(0..60_000));
                    self.push(Event::Kill { slot, back_after });
                }
                self.pass(300);
            }
        }
        match self.random.u8(0..3) {
            0 => self.image(before),
            1 => self.good_image(),
            _ => return,
        }
        self.pass(200);
    }

    /// Some nodes are held back, and one of them loses its pod; the others may be in an outage meanwhile.
    fn held_back(&mut self) {
        let partition = partition(self.random);
        self.rolling("the partition", json!({"partition": partition, "selector": null}));
        self.pass(20);
        for _ in 0..self.random.usize(1..3) {
            self.good_image();
            self.pass(200);
            if self.random.u8(0..3) == 0 {
                self.outage();
            }
            // Those at the front are held back.
            let mut names = self.nodes.clone();
            names.sort();
            let place = self.random.usize(0..names.len().clamp(1, 3));
            if let Some(node) = names.get(place) {
                self.push(Event::DeletePods { node: node.clone() });
            }
            self.pass(40);
        }
    }

    /// Only nodes with certain labels are updated, and not all of them.
    fn selected(&mut self) {
        let (selector, partition) = (selector(self.random), partition(self.random));
        self.rolling("the selector", json!({"selector": selector, "partition": partition}));
        self.pass(20);
        self.good_image();
        self.pass(200);
        let node = self.node();
        self.push(Event::DeletePods { node });
        self.pass(40);
    }

    /// Nothing rolls out by itself, whatever else the strategy says.
    fn on_delete(&mut self) {
        let mut left = rolling(self.random);
        left["paused"] = json!(self.random.bool());
        left["partition"] = partition(self.random);
        let patch = json!({"type": "OnDelete", "rollingUpdate": left});
        self.push(change(format!("sets the strategy to {patch}"), json!({"spec": {"updateStrategy": patch}})));
        self.pass(20);
        self.good_image();
        self.pass(60);
        for _ in 0..self.random.usize(1..3) {
            let node = self.node();
            self.push(Event::DeletePods { node });
            self.pass(20);
        }
    }

    /// Somebody writes out what was so before, in the template or in a patch.
    fn same_meaning(&mut self) {
        let defaults =
            json!({"terminationGracePeriodSeconds": 30, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"});
        let patch = match self.random.u8(0..3) {
            0 => json!({"template": {"spec": defaults}}),
            1 => json!({"patches": [{"selector": {}, "patch": {"spec": defaults}}]}),
            _ => {
                let containers = json!([{"name": "main", "env": [{"name": "CACHE", "value": "none"}]}]);
                let selector = json!({"matchLabels": {DISK: self.one_of(&DISKS)}});
                json!({"patches": [{"selector": selector, "patch": {"spec": {"containers": containers}}}]})
            }
        };
        self.push(change(format!("writes out: {patch}"), json!({"spec": patch})));
        self.pass(60);
    }

    /// A part of the fleet is out of order for a while.
    fn outage(&mut self) {
        let lasts = self.one_of(&[30, 120, 650]);
        let mut hit = self.nodes.clone();
        hit.retain(|_| self.random.bool());
        let (key, effect) = self.one_of(&OUTAGES);
        let kind = self.random.u8(0..3);
        let event = |node: &String, is_there: bool| match (kind, is_there) {
            (0, true) => Event::NodeLost { node: node.clone() },
            (1, true) => Event::NodeReady { node: node.clone(), is_ready: false },
            (0 | 1, false) => Event::NodeReady { node: node.clone(), is_ready: true },
            (_, is_there) => Event::Taint { node: node.clone(), key, effect, is_there },
        };
        hit.iter().for_each(|node| self.push(event(node, true)));
        self.pass(lasts);
        if self.random.u8(0..3) > 0 {
            hit.iter().for_each(|node| self.push(event(node, false)));
            self.pass(30);
        }
    }

    /// Something else.
    fn incident(&mut self) {
        let node = self.node();
        let taint = |node: String, (key, effect): (&'static str, &'static str), is_there: bool| Event::Taint {
            node,
            key,
            effect,
            is_there,
        };
        match self.random.u8(0..20) {
            0 | 1 => self.push(Event::NodeLost { node }),
            2 | 3 => self.push(Event::NodeReady { node, is_ready: true }),
            4 => self.push(Event::NodeReady { node, is_ready: false }),
            5 => {
                let (kind, is_there) = (self.one_of(&OUTAGES), self.random.bool());
                self.push(taint(node, kind, is_there));
            }
            6 => {
                self.push(Event::NodeLost { node: node.clone() });
                self.push(taint(node, (OUT_OF_SERVICE, "NoExecute"), true));
            }
            7 => self.push(taint(node, (OUT_OF_SERVICE, "NoExecute"), false)),
            8 if self.nodes.len() > 2 => {
                self.nodes.retain(|known| *known != node);
                let path = format!("/api/v1/nodes/{node}");
                self.push(Event::Node(Edit { what: format!("{node} goes"), method: Method::DELETE, path, body: None }));
            }
            8 | 9 => self.push(Event::DeletePods { node }),
            10 => {
                let lasts = Duration::from_secs(self.random.u64(1..120));
                self.push(Event::Unready { node, lasts });
            }
            11 => {
                let patch = json!({"paused": self.random.bool()});
                self.rolling("the pause", patch);
            }
            12 => {
                let patch = json!({"partition": partition(self.random)});
                self.rolling("the partition", patch);
            }
            13 => self.rolling("the partition", json!({"partition": 0, "selector": null})),
            14 => {
                let patch = json!({"maxUnavailable": amount(self.random), "maxSurge": null});
                self.rolling("the budget", patch);
            }
            15 => {
                let strategy = strategy(self.random);
                let what = format!("sets the strategy to {strategy}");
                self.push(change(what, json!({"spec": {"updateStrategy": strategy}})));
            }
            16 => {
                let soak = self.one_of(&[json!("2m"), Value::Null]);
                let annotations = json!({"metadata": {"annotations": {SOAK: soak}}});
                self.push(change(format!("sets {SOAK} to {soak}"), annotations));
            }
            17 => {
                let edit = relabel(&node, self.random);
                self.push(Event::Node(edit));
            }
            18 => self.push(Event::MendNodes),
            _ => {
                let slot = self.random.usize(0..self.managers.max(1));
                let back_after = Duration::from_millis(self.random.u64(0..60_000));
                self.push(Event::Kill { slot, back_after });
            }
        }
    }
}

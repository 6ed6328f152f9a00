//! Nodes, and what happens to them, for the scripts of every family.

use http::Method;
use serde_json::{Value, json};

use crate::script::{Edit, Event};

/// Nodes that a script knows of.
#[derive(Debug, Default)]
pub struct Nodes {
    names: Vec<String>,
    made: usize,
}

/// The label that scripts change, and go by.
pub const DISK: &str = "disk";
/// Its values.
pub const DISKS: [&str; 3] = ["small", "large", "nvme"];

impl Nodes {
    /// A node that comes.
    pub fn add(&mut self, random: &mut fastrand::Rng) -> Edit {
        let name = format!("node-{}", self.made);
        self.made += 1;
        let edit = node_comes(&name, random);
        self.names.push(name);
        edit
    }

    /// One of the nodes.
    pub fn any(&self, random: &mut fastrand::Rng) -> Option<String> {
        self.names.get(random.usize(0..self.names.len().max(1))).cloned()
    }

    /// All of them.
    pub fn all(&self) -> &[String] {
        &self.names
    }

    /// Something that happens to a node.
    pub fn event(&mut self, random: &mut fastrand::Rng) -> Option<Event> {
        let node = self.any(random)?;
        Some(match random.u8(0..8) {
            0 => Event::Node(self.add(random)),
            1 if self.names.len() > 2 => {
                self.names.retain(|known| *known != node);
                let path = format!("/api/v1/nodes/{node}");
                Event::Node(Edit { what: format!("{node} goes"), method: Method::DELETE, path, body: None })
            }
            2 | 3 => Event::Node(relabel(&node, random)),
            4 => {
                let taint = json!({"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}});
                Event::Node(change(&node, format!("{node} gets a taint"), taint))
            }
            5 => Event::Node(change(&node, format!("{node} loses its taint"), json!({"spec": {"taints": null}}))),
            6 => Event::NodeReady { node, is_ready: false },
            _ => Event::NodeReady { node, is_ready: true },
        })
    }

    /// All nodes are well and without taints.
    pub fn mend(&self) -> Vec<Event> {
        let well = |node: &String| Event::NodeReady { node: node.clone(), is_ready: true };
        let clean = |node: &String| {
            Event::Node(change(node, format!("{node} has no taint"), json!({"spec": {"taints": null}})))
        };
        self.names.iter().flat_map(|node| [well(node), clean(node)]).collect()
    }
}

/// A node of this name comes.
pub fn node_comes(name: &str, random: &mut fastrand::Rng) -> Edit {
    let disk = DISKS[random.usize(0..DISKS.len())];
    let body = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {DISK: disk, "kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let what = format!("{name} comes, with {DISK}={disk}");
    Edit { what, method: Method::POST, path: "/api/v1/nodes".into(), body: Some(body) }
}

/// A node gets another label.
pub fn relabel(node: &str, random: &mut fastrand::Rng) -> Edit {
    let disk = DISKS[random.usize(0..DISKS.len())];
    let labels = json!({"metadata": {"labels": {DISK: disk}}});
    change(node, format!("{node} has {DISK}={disk} now"), labels)
}

fn change(node: &str, what: String, body: Value) -> Edit {
    Edit { what, method: Method::PATCH, path: format!("/api/v1/nodes/{node}"), body: Some(body) }
}

//! What happens in a run besides faults: who edits, deletes, fails and comes back, and when. A script follows from a
//! seed, and can be shortened event by event.

use std::fmt;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::faults::{RECOVERY, SILENCE, Weather};
use crate::world::Habits;

/// A request that somebody sends to the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// In words.
    pub what: String,
    /// How.
    pub method: Method,
    /// Where.
    pub path: String,
    /// What; a merge patch if it is a PATCH.
    pub body: Option<Value>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A user edits something.
    User(Edit),
    /// Something about a node changes.
    Node(Edit),
    /// A node is well, or not. Its pods are not ready while it is not.
    NodeReady {
        /// Which.
        node: String,
        /// Whether it is.
        is_ready: bool,
    },
    /// The kubelet of a node falls silent.
    NodeLost {
        /// Which.
        node: String,
    },
    /// A node gets a taint beside those that it has, or loses it.
    Taint {
        /// Which.
        node: String,
        /// The taint's key.
        key: &'static str,
        /// What it does to pods that do not tolerate it.
        effect: &'static str,
        /// Whether it is there from now on.
        is_there: bool,
    },
    /// All nodes are well, and without taints.
    MendNodes,
    /// A user deletes the pods of a node.
    DeletePods {
        /// Which.
        node: String,
    },
    /// The pods of a node are not ready for a while.
    Unready {
        /// Which.
        node: String,
        /// For how long.
        lasts: Duration,
    },
    /// The pods of a node fail.
    Fail {
        /// Which.
        node: String,
    },
    /// A manager is killed, and started again after a while.
    Kill {
        /// Which.
        slot: usize,
        /// After how long.
        back_after: Duration,
    },
    /// A manager is asked to stop, and started again when it may still be at it.
    Stop {
        /// Which.
        slot: usize,
    },
    /// A manager cannot reach the server for a while, nor be told anything.
    Isolate {
        /// Which.
        slot: usize,
        /// For how long.
        lasts: Duration,
    },
    /// The wall clock of a manager jumps.
    ClockJump {
        /// Which.
        slot: usize,
        /// By how much.
        seconds: i64,
    },
    /// The API server forgets old versions.
    Compact,
    /// A user deletes all revisions but the newest of each owner.
    DeleteOldRevisions,
    /// A policy forbids such requests from now on.
    Forbid {
        /// How they ask.
        method: Method,
        /// For what: a resource, or a subresource of it, such as `controllerrevisions.apps` or `daemonsets.apps.kruise.io/status`.
        resource: &'static str,
    },
    /// Nothing is forbidden any more.
    Allow,
    /// Whoever could go on, whatever is forbidden, has done so.
    Checkpoint,
    /// The prober of a node stores what the probe of the script came to in all of its pods.
    Probed {
        /// Which.
        node: String,
        /// What it came to.
        state: &'static str,
        /// Whether that is of a run of the container that is over.
        is_old: bool,
    },
    /// The prober of a node renews its Lease.
    Renewed {
        /// Which.
        node: String,
    },
    /// A controller deletes the pods with a label, and makes another for each.
    Replaced {
        /// The label.
        key: &'static str,
        /// Its value.
        value: &'static str,
    },
    /// A user deletes a CRD, and with it all of its objects, or installs it, if it is not there.
    Crd {
        /// Its name.
        name: &'static str,
        /// Whether it is there from now on.
        is_there: bool,
    },
}

impl Event {
    /// Its name among faults, if it is one, and for how long managers may have to recover of it.
    pub fn fault(&self) -> Option<(&'static str, Duration)> {
        match self {
            Self::Kill { back_after, .. } => Some(("kill", *back_after + RECOVERY)),
            Self::Stop { .. } => Some(("stop", RECOVERY)),
            Self::Isolate { lasts, .. } => Some(("isolation", *lasts + SILENCE + RECOVERY)),
            Self::ClockJump { .. } => Some(("clock jump", RECOVERY)),
            Self::Compact => Some(("compaction", RECOVERY)),
            Self::Crd { is_there, .. } => Some((if *is_there { "CRD back" } else { "CRD gone" }, RECOVERY)),
            _ => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(edit) => write!(f, "a user {}", edit.what),
            Self::Node(edit) => f.write_str(&edit.what),
            Self::NodeReady { node, is_ready: true } => write!(f, "{node} is well again"),
            Self::NodeReady { node, is_ready: false } => write!(f, "{node} is not well"),
            Self::NodeLost { node } => write!(f, "the kubelet of {node} falls silent"),
            Self::Taint { node, key, effect, is_there: true } => write!(f, "{node} gets the taint {key}:{effect}"),
            Self::Taint { node, key, .. } => write!(f, "{node} loses the taint {key}"),
            Self::MendNodes => f.write_str("all nodes are well, and without taints"),
            Self::DeletePods { node } => write!(f, "a user deletes the pods on {node}"),
            Self::Unready { node, lasts } => write!(f, "the pods on {node} are not ready for {lasts:?}"),
            Self::Fail { node } => write!(f, "the pods on {node} fail"),
            Self::Kill { slot, back_after } => write!(f, "manager {slot} is killed, and back after {back_after:?}"),
            Self::Stop { slot } => write!(f, "manager {slot} is asked to stop, and another is started"),
            Self::Isolate { slot, lasts } => write!(f, "manager {slot} cannot reach the server for {lasts:?}"),
            Self::ClockJump { slot, seconds } => write!(f, "the clock of manager {slot} jumps by {seconds} s"),
            Self::Compact => f.write_str("the API server forgets old versions"),
            Self::DeleteOldRevisions => f.write_str("a user deletes all revisions but the newest"),
            Self::Forbid { method, resource } => write!(f, "a policy forbids {method} of {resource}"),
            Self::Allow => f.write_str("the policy is gone"),
            Self::Probed { node, state, is_old: false } => write!(f, "the prober of {node} says {state}"),
            Self::Probed { node, state, .. } => write!(f, "the prober of {node} says {state} of runs that are over"),
            Self::Renewed { node } => write!(f, "the prober of {node} is heard"),
            Self::Replaced { key, value } => write!(f, "a controller replaces pods with {key}={value}"),
            Self::Crd { name, is_there: false } => write!(f, "a user deletes the CRD {name}"),
            Self::Crd { name, .. } => write!(f, "a user installs the CRD {name}"),
            Self::Checkpoint => f.write_str("whatever can go on has gone on"),
        }
    }
}

/// Everything that a run follows from, besides faults.
#[derive(Debug, Clone)]
pub struct Script {
    /// What it came from.
    pub seed: u64,
    /// What is there at first.
    pub setup: Vec<Edit>,
    /// What happens, in order of time.
    pub events: Vec<(Duration, Event)>,
    /// When nothing goes wrong any more.
    pub calm_at: Duration,
    /// What is mended and asked for in the end.
    pub finish: Vec<Event>,
    /// How many managers there are.
    pub managers: usize,
    /// How rough the way to the server is.
    pub weather: Weather,
    /// How fast the rest of the world is.
    pub habits: Habits,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "managers: {}, weather: {:?}", self.managers, self.weather)?;
        for edit in &self.setup {
            let body = edit.body.as_ref().map(Value::to_string).unwrap_or_default();
            writeln!(f, "{:>9} {} {} {body}", "first", edit.method, edit.path)?;
        }
        for (at, event) in &self.events {
            writeln!(f, "{:>9.3} {event}", at.as_secs_f64())?;
        }
        for event in &self.finish {
            writeln!(f, "{:>9.3} {event}", self.calm_at.as_secs_f64())?;
        }
        Ok(())
    }
}

//! A node and its pods, as a DaemonSet sees them, and what may be done about them.

use std::sync::Arc;

use super::inplace::{Intent, Progress};
use super::lifecycle::State;
use crate::health::Health;

/// Why a rollout leaves a node alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The rollout is paused.
    Paused,
    /// The partition holds it back.
    Partition,
    /// The strategy's selector does not match it.
    Selector,
    /// Its patches do not apply, or nobody knows what it should have.
    Unrendered,
}

/// A node, as a DaemonSet sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    /// Its name.
    pub name: Arc<str>,
    /// Whether a pod may start there.
    pub can_start: bool,
    /// Whether one that runs may stay.
    pub can_stay: bool,
    /// Whether the template is for it, whatever its taints.
    pub is_selected: bool,
    /// Whether nothing but taints that pass, such as that of a node that is not Ready, keeps pods from starting.
    pub is_barred_for_now: bool,
    /// How the Node itself is.
    pub health: Health,
    /// Whether people say that it is lost for good: nobody waits for it.
    pub is_out_of_service: bool,
    /// What a pod that is made now should be, by what its rendering means. On a node that is held back, that of the current
    /// revision.
    pub wanted: Arc<str>,
    /// What the newest revision gives it.
    pub newest: Arc<str>,
    /// Whether the API server has not said yet whether it takes a pod like that: no pod in service is given up for it.
    pub is_unproven: bool,
    /// The number of its variant in the newest revision.
    pub variant: usize,
    /// Why a rollout leaves it alone.
    pub hold: Option<Hold>,
    /// Whether it is held back at a revision that is gone: it keeps what it runs, and gets nothing.
    pub is_left_without: bool,
    /// Whether the partition holds it back, whatever else does.
    pub is_partitioned: bool,
    /// Its place in the order of the rollout.
    pub class: Class,
}

/// Where a node stands in the order of a rollout; within a class nodes stand by name. The last is the first to be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Class {
    /// The template is not for it: it is never updated.
    Placeless,
    /// As most nodes.
    #[default]
    Plain,
    /// Updated before the others.
    Canary,
}

/// A node's place in the order of the rollout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Its class.
    pub class: Class,
    /// The node's name.
    pub name: Arc<str>,
}

impl NodeState {
    /// Its place in the order of the rollout.
    pub fn rank(&self) -> Rank {
        Rank { class: self.class, name: self.name.clone() }
    }
}

/// A readiness gate of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gate {
    /// It has no such gate.
    #[default]
    Absent,
    /// Nobody has opened or closed it yet.
    Unset,
    /// The pod may be ready.
    Open,
    /// The pod is kept from being ready.
    Closed,
}

impl Gate {
    /// From the status of the condition that the gate goes by; nothing if the pod has no such gate.
    pub fn read(status: Option<&str>) -> Self {
        match status {
            None => Self::Absent,
            Some("True") => Self::Open,
            Some("False") => Self::Closed,
            Some(_) => Self::Unset,
        }
    }
}

/// What hooks of the DaemonSet's lifecycle hold a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// It may not be deleted yet.
    pub from_deletion: bool,
    /// It may not be updated in place yet.
    pub from_update: bool,
    /// Everything that holds it between two updates is back.
    pub again: bool,
}

/// A pod of the DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodState {
    /// Its name.
    pub name: Arc<str>,
    /// Which version of it this is: what is decided about it holds for no other.
    pub version: u64,
    /// What it is: names what its rendering means; its label, if nobody knows that.
    pub hash: Arc<str>,
    /// Its label `controller-revision-hash`.
    pub label: Arc<str>,
    /// What its revision's template means, if it names one: what it is apart from patches.
    pub template: Option<Arc<str>>,
    /// The number of its revision, if that is there.
    pub number: Option<i64>,
    /// When it was made.
    pub created: i64,
    /// When it was last changed where it runs.
    pub changed: Option<i64>,
    /// Since when it is ready.
    pub ready_since: Option<i64>,
    /// If it is on its way out: when its deletion was asked for.
    pub leaving_since: Option<i64>,
    /// Whether it ended and will not start again.
    pub has_ended: bool,
    /// How far the last change in place is.
    pub edit: Progress,
    /// Whether that has still to change its cpu and memory.
    pub intent: Intent,
    /// The gate that is closed during a change in place.
    pub gate: Gate,
    /// The gate that a hook with `markPodNotReady` closes.
    pub service: Gate,
    /// Its state in the lifecycle.
    pub state: State,
    /// What holds it.
    pub held: Held,
    /// Why it does not come up, in the kubelet's word.
    pub trouble: Option<Arc<str>>,
}

/// How pods get what is new for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They are deleted and made anew.
    #[default]
    Standard,
    /// They are changed where they run, if that can be.
    InPlace,
    /// A new one is made beside the old one.
    Surge,
    /// They keep what they have until somebody deletes them.
    OnDelete,
}

/// The rollout of the newest revision, as the cluster remembers it: a new leader reads the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rollout {
    /// When the newest revision became that, in seconds since 1970.
    pub began: i64,
    /// From when on pods of the newest revision are a rollout's doing: since it began; or since the current revision did, if
    /// that is another: the newest may have been the newest before, and come to no end.
    pub since: i64,
    /// The number of the newest revision.
    pub newest: i64,
    /// The number of the current revision.
    pub current: i64,
    /// The number that the current revision had when it was complete: those of later ones were left by rollouts that did
    /// not come to their end.
    pub complete: i64,
    /// How many seconds a node that is not Ready counts after its pod was last made, changed or deleted; none: for ever.
    pub soak: Option<i64>,
}

/// What a DaemonSet says about its pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The rollout of the newest revision.
    pub rollout: Rollout,
    /// How pods get what is new.
    pub mode: Mode,
    /// Seconds that a pod must be ready before it counts as available.
    pub min_ready: i64,
    /// How many nodes may be without an available pod.
    pub budget: usize,
    /// How many nodes may have two.
    pub surge: usize,
    /// How many things may be done at once.
    pub burst: usize,
    /// Whether the partition holds back creation too.
    pub partitioned_scaling: bool,
    /// Whether patches are served. If not, a pod of the right template is right.
    pub ignores_patches: bool,
    /// Whether there is a hook around updates in place.
    pub has_update_hook: bool,
    /// Whether pods that are held from deletion, or from an update, are set not ready.
    pub unready: (bool, bool),
}

/// Something to be done to one pod or for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Make a pod.
    Create,
    /// Take it away.
    Delete(Why),
    /// Set its state in the lifecycle, for those who watch it.
    Mark(State),
    /// Open or close a readiness gate.
    Gate {
        /// The gate.
        condition: &'static str,
        /// Whether it is opened.
        opens: bool,
    },
    /// Change it where it runs, but for cpu and memory: these are noted on it.
    Edit,
    /// Give it the cpu and memory that are noted on it.
    Resize,
    /// Take that note away: it has them.
    ClearResize,
}

/// Why a pod is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its node is gone.
    NodeGone,
    /// Pods may not run on its node any more.
    Misplaced,
    /// It ended, and another is to start.
    Ended,
    /// Another pod of the DaemonSet is on the node.
    Double,
    /// It is not what it should be.
    Outdated,
    /// A change in place came to nothing.
    Stuck,
}

//! A DaemonSet and how far its rollout has come, as `dapple get` shows it: for the terminal, the page and JSON.

pub mod history;
mod pod;
pub mod rollout;
mod text;

pub use pod::PodFacts;
pub use text::table;

use dapple_api::daemonset::{DaemonSet, UpdateStrategyType, VariantStatus};
use dapple_plan::daemonset::rollout::{Progress, State, progress};
use jiff::Timestamp;
use serde::Serialize;

/// As many pods that are not available are shown.
const PODS_SHOWN: usize = 5;

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `RollingUpdate` or `OnDelete`.
    pub strategy: &'static str,
    /// The images of its template.
    pub images: Vec<String>,
    /// The state, as a word for programs.
    pub state: &'static str,
    /// The state, in words for people.
    pub state_text: String,
    /// Whether nothing more is to be waited for.
    pub done: bool,
    /// Nodes, counted.
    pub counts: CountsView,
    /// The name of the revision that nodes get which are held back.
    pub current_revision: Option<String>,
    /// The newest revision: the hash of its pods on nodes that no patch is for.
    pub update_revision: Option<String>,
    /// Nodes that match the same patches; none where the controller does not tell them apart.
    pub variants: Vec<VariantView>,
    /// What it waits for.
    pub waiting_for: Vec<String>,
    /// What else the controller says: what is wrong, and why nothing goes on.
    pub notes: Vec<String>,
    /// Pods that are not available, the oldest first, a few of them.
    pub pods: Vec<PodView>,
    /// How many more there are.
    pub more_pods: usize,
    /// The moment it is seen from.
    #[serde(skip)]
    now: Timestamp,
}

/// Nodes, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CountsView {
    /// Those that should run a pod.
    pub desired: i32,
    /// Those whose pod has the newest revision.
    pub updated: i32,
    /// Those with a ready pod.
    pub ready: i32,
    /// Those whose pod has been ready for long enough.
    pub available: i32,
}

/// The nodes that the same patches and rules are for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VariantView {
    /// Its patches and rules, as people call them, or the template.
    pub name: String,
    /// The places of its patches in the list.
    pub patches: Vec<i32>,
    /// The places of its rules in the list of its OverridePolicy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<i32>,
    /// What its pods carry at the newest revision; nothing where that is not known, or its patches do not apply.
    pub hash: Option<String>,
    /// Whether its patches apply.
    pub applies: bool,
    /// Its nodes.
    pub counts: CountsView,
}

/// A pod that is not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Why it is not available.
    pub reason: String,
}

impl DaemonSetView {
    /// The view of a DaemonSet and its pods at a moment.
    pub fn new(set: &DaemonSet, pods: &[PodFacts], now: Timestamp) -> Self {
        let progress = progress(set);
        let status = set.status.as_ref();
        let (state, state_text) = state_of(&progress);
        let mut down: Vec<(&PodFacts, String)> =
            pods.iter().filter_map(|pod| Some((pod, unavailable(pod, set.spec.min_ready_seconds(), now)?))).collect();
        down.sort_by_key(|(pod, _)| (pod.created, &pod.name));
        let shown = down.iter().take(PODS_SHOWN).map(|(pod, reason)| PodView {
            name: pod.name.clone(),
            node: pod.node.clone(),
            created: pod.created,
            reason: reason.clone(),
        });
        Self {
            namespace: set.metadata.namespace.clone().unwrap_or_default(),
            name: set.metadata.name.clone().unwrap_or_default(),
            created: set.metadata.creation_timestamp.as_ref().map(|time| time.0),
            strategy: match set.spec.update_strategy_type() {
                UpdateStrategyType::RollingUpdate => "RollingUpdate",
                UpdateStrategyType::OnDelete => "OnDelete",
            },
            images: images(set),
            state,
            state_text,
            done: progress.is_done,
            counts: CountsView {
                desired: progress.desired,
                updated: progress.updated,
                ready: progress.ready,
                available: progress.available,
            },
            current_revision: status.and_then(|status| status.current_revision.clone()),
            update_revision: status.and_then(|status| status.update_revision.clone()),
            variants: variants(set, &progress),
            pods: shown.collect(),
            more_pods: down.len().saturating_sub(PODS_SHOWN),
            waiting_for: waiting_for(&progress),
            notes: progress.notes,
            now,
        }
    }
}

/// What the conditions say, and what they need not say.
fn waiting_for(progress: &Progress) -> Vec<String> {
    let missing = match progress.missing {
        0 => None,
        1 => Some("a pod on 1 node".to_owned()),
        many => Some(format!("pods on {many} nodes")),
    };
    let missing = missing.filter(|_| progress.state != State::Unseen);
    progress.waiting.iter().cloned().chain(missing).collect()
}

/// A state as a word for programs, and in words for people.
fn state_of(progress: &Progress) -> (&'static str, String) {
    let of = progress.desired;
    match progress.state {
        State::Deleting => ("Deleting", "being deleted".to_owned()),
        State::Unseen => ("NotBegun", "not begun".to_owned()),
        State::Degraded => ("Degraded", "degraded".to_owned()),
        State::OnDelete { waiting } => ("OnDelete", format!("on delete: {waiting} of {of} wait")),
        State::Paused => ("Paused", "paused".to_owned()),
        State::RollingOut => ("RollingOut", "rolling out".to_owned()),
        State::Unavailable { nodes } => ("Unavailable", format!("unavailable: {nodes} of {of}")),
        State::HeldBack { nodes } => ("HeldBack", format!("held back: {nodes} of {of}")),
        State::OutOfReach { nodes } => ("OutOfReach", format!("out of reach: {nodes} of {of}")),
        State::Complete => ("Complete", "complete".to_owned()),
    }
}

/// The variants that the status tells, or the one that there is without patches.
fn variants(set: &DaemonSet, progress: &Progress) -> Vec<VariantView> {
    let told = set.status.as_ref().map(|status| status.variants.as_slice()).unwrap_or_default();
    if told.is_empty() && set.spec.patches.is_empty() {
        let Progress { desired, updated, ready, available, .. } = *progress;
        let counts = CountsView { desired, updated, ready, available };
        return vec![VariantView {
            name: variant_name(&[], &[]),
            patches: Vec::new(),
            rules: Vec::new(),
            hash: None,
            applies: true,
            counts,
        }];
    }
    let view = |variant: &VariantStatus| {
        let desired = variant.desired.max(0);
        let within = |count: i32| count.clamp(0, desired);
        VariantView {
            name: variant_name(&variant.patches, &variant.rules),
            patches: variant.patches.clone(),
            rules: variant.rules.clone(),
            hash: Some(variant.hash.clone()).filter(|hash| !hash.is_empty()),
            applies: !variant.hash.is_empty(),
            counts: CountsView {
                desired,
                updated: within(variant.updated),
                ready: within(variant.ready),
                available: within(variant.available),
            },
        }
    };
    told.iter().map(view).collect()
}

fn variant_name(patches: &[i32], rules: &[i32]) -> String {
    let patches = patches.iter().map(|index| format!("patches[{index}]"));
    let names: Vec<String> = patches.chain(rules.iter().map(|index| format!("overrideRules[{index}]"))).collect();
    if names.is_empty() { "template".to_owned() } else { names.join(", ") }
}

/// Why a pod is not available; nothing if it is.
fn unavailable(pod: &PodFacts, min_ready_seconds: i32, now: Timestamp) -> Option<String> {
    if pod.is_terminating {
        return Some("Terminating".to_owned());
    }
    let Some(since) = pod.ready_since else {
        return Some(pod.waiting.clone().unwrap_or_else(|| "NotReady".to_owned()));
    };
    let needed = i64::from(min_ready_seconds);
    let ready = now.as_second().saturating_sub(since.as_second()).max(0);
    (ready < needed).then(|| format!("ready for {ready} of {needed} seconds"))
}

fn images(set: &DaemonSet) -> Vec<String> {
    let containers = set.spec.template.0["spec"]["containers"].as_array();
    let images = containers.into_iter().flatten().filter_map(|container| container["image"].as_str());
    images.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;

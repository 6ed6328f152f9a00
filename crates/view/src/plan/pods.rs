//! What becomes of the pods of a workload, and how the controller goes about it.

use std::collections::BTreeMap;
use std::fmt::Write;

use dapple_plan::daemonset::cell::Act;
use dapple_plan::daemonset::fleet::ahead::Ahead;
use dapple_plan::fate::{Fate, Fates};
use serde::Serialize;

use crate::paint::{count, few, harmless};

/// What becomes of a workload's pods.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsView {
    /// How many have each fate.
    pub counts: BTreeMap<String, usize>,
    /// Each pod.
    pub each: Vec<PodView>,
}

/// How the controller goes about a rollout.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutView {
    /// So many nodes may be under way at once; nothing where nothing rolls out by itself.
    pub at_once: Option<usize>,
    /// Nodes whose pods are replaced or changed, in the order in which their turn comes.
    pub order: Vec<String>,
    /// What is done at once, before anything has come of it.
    pub now: Vec<StepView>,
}

/// Something that the controller does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// On which node.
    pub node: String,
    /// To which pod; nothing for one that is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// What.
    pub step: &'static str,
}

/// A pod and what becomes of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its name; nothing for one that is to be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its node.
    pub node: String,
    /// What becomes of it.
    pub fate: String,
    /// The group that should have it, if it is moved for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

const LEFT_ALONE: &str = "left alone";
const WAITS: &str = "updated when deleted";
const HELD_BACK: &str = "held back";

impl PodView {
    /// Whether something is done to it: one that is held back, or waits to be deleted, stays as it is.
    pub(super) fn is_touched(&self) -> bool {
        ![LEFT_ALONE, WAITS].contains(&self.fate.as_str()) && !self.fate.starts_with(HELD_BACK)
    }
}

impl PodsView {
    pub(super) fn new(fates: &Fates) -> Self {
        let word = |fate: Fate| match fate {
            Fate::Recreated => "recreated".to_owned(),
            Fate::InPlace => "updated in place".to_owned(),
            Fate::Moved => "moved".to_owned(),
            Fate::Removed => "removed".to_owned(),
            Fate::Waits => WAITS.to_owned(),
            Fate::HeldBack(by) => format!("{HELD_BACK} ({by})"),
            Fate::LeftAlone => LEFT_ALONE.to_owned(),
        };
        let known = fates.pods.iter().map(|(pod, (node, fate))| PodView {
            pod: Some(pod.clone()),
            node: node.clone(),
            fate: word(*fate),
            to: fates.moved_to.get(pod).cloned(),
        });
        let new = fates.created_on.iter().map(|node| PodView {
            pod: None,
            node: node.clone(),
            fate: "created".to_owned(),
            to: None,
        });
        let each: Vec<PodView> = known.chain(new).collect();
        let mut counts = BTreeMap::new();
        for pod in &each {
            *counts.entry(pod.fate.clone()).or_default() += 1;
        }
        Self { counts, each }
    }

    pub(super) fn write(&self, text: &mut String, wide: bool) {
        let counts: Vec<String> = self.counts.iter().map(|(fate, number)| format!("{number} {fate}")).collect();
        let told = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let _ = writeln!(text, "\n  pods: {told}");
        for pod in self.each.iter().filter(|_| wide) {
            let name = pod.pod.as_deref().unwrap_or("a pod");
            let to = pod.to.as_ref().map(|group| format!(" to group {group}")).unwrap_or_default();
            let _ = writeln!(text, "    {}", harmless(&format!("{name} on {}: {}{to}", pod.node, pod.fate)));
        }
    }
}

impl RolloutView {
    pub(super) fn new(ahead: &Ahead) -> Self {
        let now = ahead.first.iter().map(|action| StepView {
            node: action.node.to_string(),
            pod: action.pod.as_ref().map(ToString::to_string),
            step: step(action.act),
        });
        Self { at_once: ahead.at_once, order: ahead.order.clone(), now: now.collect() }
    }

    pub(super) fn write(&self, text: &mut String, wide: bool) {
        let named = |nodes: &[String]| if wide { nodes.join(", ") } else { few(nodes) };
        match self.at_once {
            Some(most) if !self.order.is_empty() => {
                let line = format!("at most {} at a time, in this order: {}", count(most, "node"), named(&self.order));
                let _ = writeln!(text, "  rollout: {}", harmless(&line));
            }
            _ => {}
        }
        let mut steps: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for step in &self.now {
            steps.entry(step.step).or_default().push(step.node.clone());
        }
        for (step, nodes) in steps {
            let line = format!("{} {step} ({})", count(nodes.len(), "pod"), named(&nodes));
            let _ = writeln!(text, "  now: {}", harmless(&line));
        }
    }
}

fn step(act: Act) -> &'static str {
    match act {
        Act::Create => "created",
        Act::Delete(_) => "deleted",
        Act::Mark(_) => "marked for hooks",
        Act::Gate { opens: true, .. } => "put into service",
        Act::Gate { opens: false, .. } => "taken out of service",
        Act::Edit => "changed in place",
        Act::Resize | Act::ClearResize => "resized",
    }
}

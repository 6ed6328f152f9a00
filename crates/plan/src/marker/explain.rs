//! Why a pod matches a marker, does not, or is not known to: the thing that does not hold, in words; and what changes wait for.

use std::borrow::Cow;

use dapple_api::marker::{PodMarker, PodMarkerStatus};
use dapple_api::selector::Selector;

use super::clash::{Cause, Clash};
use super::result::{Container, Doubt, Outcome};
use super::rule::{Asked, ProbeRequirement, Rule, Unusable};
use super::standing::{Matching, Miss, NodeOf, Pod, label};
use super::status::{HELD, MARKED};

const FIELD: &str = "spec.matchRequirements";

/// Why something is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// A word, for programs.
    pub word: Cow<'static, str>,
    /// A sentence, without its end.
    pub text: String,
}

pub(super) fn reason(word: &'static str, text: impl Into<String>) -> Reason {
    Reason { word: Cow::Borrowed(word), text: text.into() }
}

/// A pod that is looked at for a marker.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// What the marker asks for.
    pub rule: &'a Rule,
    /// The pod.
    pub pod: &'a Pod<'a>,
    /// What is known of a probe.
    pub outcome: &'a dyn Fn(&Container, &Asked) -> Outcome,
    /// What the prober says of it.
    pub message: &'a dyn Fn(&Asked) -> Option<String>,
}

impl<'a> Look<'a> {
    /// Why the pod does not match, or why that is not known; nothing if it matches.
    #[must_use]
    pub fn against(&self, matching: &Matching) -> Option<Reason> {
        match matching {
            Matching::Yes => None,
            Matching::No(miss) => Some(self.missed(miss)),
            Matching::Conflict(clash) => Some(clashing(clash)),
            Matching::Unknown { why, .. } => Some(self.doubted(*why)),
        }
    }

    fn missed(&self, miss: &Miss) -> Reason {
        match miss {
            Miss::Labels => {
                let unmet = unmet(&self.rule.pods, |key| label(self.rule, self.pod, key), "it");
                reason("PodLabels", format!("{FIELD}.podSelector asks for {unmet}"))
            }
            Miss::Unbound => reason("NoNode", format!("{FIELD}.nodeSelector asks for a node, and it has none yet")),
            Miss::NodeLabels => {
                let unmet = match (&self.rule.nodes, self.pod.node) {
                    (Some(nodes), NodeOf::There(labels)) => unmet(nodes, |key| labels.get(key), "its node"),
                    _ => "another node".to_owned(),
                };
                reason("NodeLabels", format!("{FIELD}.nodeSelector asks for {unmet}"))
            }
            Miss::Container(name) => {
                let (field, _) = self.probe(|_, asked| asked.container == *name);
                reason("NoContainer", format!("{field}.containers: it has no container {name}"))
            }
            Miss::Port(port) => {
                let (field, asked) = self.probe(|required, asked| {
                    let lacks = |container: &Container| container.ports.iter().all(|(name, _)| name != port);
                    required.port.as_ref() == Some(port) && self.container(asked).is_some_and(lacks)
                });
                let container = asked.map(|asked| format!(" {}", asked.container)).unwrap_or_default();
                reason("NoPort", format!("{field}.probe: its container{container} has no port {port}"))
            }
            Miss::Probe(name) => self.contradicted(name),
        }
    }

    /// A probe has a result, and should have the other.
    fn contradicted(&self, container: &str) -> Reason {
        let (field, asked) = self.probe(|required, asked| {
            let wrong = if required.must_succeed { Outcome::Failed } else { Outcome::Succeeded };
            *asked.container == *container && self.outcome_of(asked) == Some(wrong)
        });
        let has_succeeded = asked.and_then(|asked| self.outcome_of(asked)) == Some(Outcome::Succeeded);
        let (word, text) = match has_succeeded {
            true => ("ProbeSucceeded", "succeeded, and must fail"),
            false => ("ProbeFailed", "failed, and must succeed"),
        };
        let said = self.said(asked).unwrap_or_default();
        reason(word, format!("{field}: the probe in container {container} {text}{said}"))
    }

    /// It is not known whether all probes have the result that they must have.
    fn doubted(&self, why: Doubt) -> Reason {
        let (word, text) = match why {
            Doubt::NotRun => ("ProbeNotRun", "has not run yet since the container was started"),
            Doubt::Error => ("ProbeError", "could not be run"),
            Doubt::Beyond => ("TooManyProbes", "is more than its node runs"),
            Doubt::Silent => ("ProberSilent", "may have another result by now: the prober of its node is not heard"),
            Doubt::NodeUnknown => ("NodeUnknown", "may have another result by now: its node does not answer"),
            Doubt::NodeGone => {
                return reason("NodeGone", "its node is not there, so nobody knows its labels and results");
            }
        };
        let is_it =
            |asked: &Asked| matches!(self.outcome_of(asked), Some(Outcome::Unknown { why: known, .. }) if known == why);
        let (field, asked) = self.probe(|_, asked| is_it(asked));
        let container = asked.map(|asked| format!(" in container {}", asked.container)).unwrap_or_default();
        let said = self.said(asked).filter(|_| why == Doubt::Error).unwrap_or_default();
        reason(word, format!("{field}: the probe{container} {text}{said}"))
    }

    /// What the prober says of a probe, behind what is said of it here.
    fn said(&self, asked: Option<&Asked>) -> Option<String> {
        let said = (self.message)(asked?)?;
        (!said.is_empty()).then(|| format!(" ({said})"))
    }

    fn outcome_of(&self, asked: &Asked) -> Option<Outcome> {
        self.container(asked).map(|container| (self.outcome)(container, asked))
    }

    fn container(&self, asked: &Asked) -> Option<&'a Container> {
        self.pod.containers.iter().find(|container| container.name == asked.container)
    }

    /// The field of the first probe of which this holds, and that probe.
    fn probe(&self, is_it: impl Fn(&ProbeRequirement, &Asked) -> bool) -> (String, Option<&'a Asked>) {
        let found = self.rule.probes.iter().enumerate().find_map(|(index, required)| {
            let asked = required.asked.iter().find(|asked| is_it(required, asked))?;
            Some((index, asked))
        });
        match found {
            Some((index, asked)) => (format!("{FIELD}.podProbes[{index}]"), Some(asked)),
            None => (format!("{FIELD}.podProbes"), None),
        }
    }
}

/// The first thing that a selector asks for and does not get, and what there is.
fn unmet<'v>(selector: &Selector, label: impl Fn(&str) -> Option<&'v str>, who: &str) -> String {
    let Some(asked) = selector.unmet(&label) else { return "something else".to_owned() };
    match label(&asked.key) {
        Some(value) => format!("{asked}, and {who} has {}={value}", asked.key),
        None => format!("{asked}, and {who} has no label {}", asked.key),
    }
}

/// Words are those of the condition Conflict.
fn clashing(clash: &Clash) -> Reason {
    let key = &clash.key;
    match &clash.cause {
        Cause::Marker(older) => reason("OlderMarker", format!("the older marker {older} sets {key} to another value")),
        Cause::Value => reason(
            "OtherValues",
            format!("it has another value at {key}, and spec.strategy.conflictPolicy is not Overwrite"),
        ),
        Cause::OwnersLabel => reason("OwnersLabels", format!("its owner selects on the label {key}")),
        Cause::UnreadOwner => {
            let text = "and its owner, which may select on it, could not be read";
            reason("OwnersUnread", format!("it has another value at the label {key}, {text}"))
        }
        Cause::Policy => reason("DividedPods", format!("the PropagationPolicy by which it is divided sets {key}")),
    }
}

/// What changes that a marker has yet to make wait for, as far as the marker says it. `unusable`: why it cannot be used.
#[must_use]
pub fn hold(marker: &PodMarker, is_suspended: bool, unusable: Option<&Unusable>) -> Reason {
    if let Some(why) = unusable {
        return reason("CannotBeUsed", why.to_string());
    }
    if is_suspended {
        return reason("Suspended", "the marker has the annotation dapple.dev/suspend");
    }
    let generation = marker.metadata.generation.unwrap_or(0);
    let is_seen = |status: &&PodMarkerStatus| status.observed_generation.is_some_and(|seen| seen >= generation);
    let Some(status) = marker.status.as_ref().filter(is_seen) else {
        return reason("NotBegun", "no manager has seen the marker as it is now");
    };
    let said = |kind: &str, is: &str, reasons: &[&str]| {
        let known = status.conditions.iter().find(|known| known.type_ == kind && known.status == is)?;
        let is_asked = reasons.is_empty() || reasons.contains(&known.reason.as_str());
        is_asked.then(|| Reason { word: Cow::Owned(known.reason.clone()), text: known.message.clone() })
    };
    said(HELD, "True", &[]).or_else(|| said(MARKED, "False", &["PodsRefused"])).unwrap_or_else(|| {
        reason("Turn", "its turn comes: a marker begins with one pod, and goes on with more each time")
    })
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;

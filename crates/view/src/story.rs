//! Why a pod waits, or where it should be, as `dapple explain` shows it.

use std::fmt::Write;

use dapple_plan::world::{Stand, Story};
use serde::Serialize;

use crate::paint::{Tone, harmless, paint};

/// How a pod stands with its policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryView {
    /// The pod.
    pub pod: String,
    /// How it stands, in a word.
    pub stand: &'static str,
    /// The policy that it is divided by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The group that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The group that should have it, where that is another, or it is in none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub belongs: Option<String>,
    /// Why, or what is waited for.
    pub reasons: Vec<ReasonView>,
}

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonView {
    /// A word, for programs.
    pub reason: &'static str,
    /// A sentence.
    pub text: String,
}

impl StoryView {
    /// The view of how a pod stands.
    pub fn new(pod: &str, story: Story) -> Self {
        let stand = match story.stand {
            Stand::Anywhere => "Anywhere",
            Stand::Gated => "Gated",
            Stand::Pending => "Pending",
            Stand::Misplaced => "Misplaced",
            Stand::Placed => "Placed",
        };
        let reasons = story.reasons.into_iter().map(|(reason, text)| ReasonView { reason, text }).collect();
        let Story { policy, group, belongs, .. } = story;
        Self { pod: pod.to_owned(), stand, policy, group, belongs, reasons }
    }

    /// Whether a policy says where it goes, or did.
    pub fn has_policy(&self) -> bool {
        self.stand != "Anywhere"
    }

    /// How it stands, in a sentence without its subject.
    pub fn line(&self) -> String {
        let by = self.policy.as_ref().map(|policy| format!(", by {policy}")).unwrap_or_default();
        let group =
            self.group.as_ref().map_or_else(|| "no group of its policy".to_owned(), |name| format!("group {name}"));
        let belongs = self.belongs.as_deref().unwrap_or_default();
        match self.stand {
            "Gated" if belongs.is_empty() => format!("waits behind the scheduling gate{by}"),
            "Gated" => format!("waits behind the scheduling gate for group {belongs}{by}"),
            "Pending" => format!("is placed in {group}{by}, and has no node"),
            "Misplaced" => format!("is in {group} and should be in group {belongs}{by}"),
            "Placed" => format!("is where it belongs, in {group}{by}"),
            _ => "goes anywhere: no policy says where it belongs".to_owned(),
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let tone = if ["Placed", "Anywhere"].contains(&self.stand) { Tone::Good } else { Tone::Warning };
        let mut text = format!("{}\n", paint(&format!("pod {} {}", self.pod, self.line()), tone, colour));
        for known in &self.reasons {
            let _ = writeln!(text, "  {}: {}", known.reason, harmless(&known.text));
        }
        text
    }
}

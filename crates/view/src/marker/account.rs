//! Why each pod is marked, is not, or waits, as `dapple explain` shows it.

use std::fmt::Write;

use dapple_api::kinds::POD_MARKER;
use dapple_plan::marker::choice::Numbers;
use dapple_plan::marker::explain::Reason;
use dapple_plan::marker::seen::{Account, PodAccount, State};
use serde::Serialize;

use crate::cells::plain;
use crate::paint::{Tone, count, few, harmless, paint};
use crate::table::{self, Line, Row};

/// How a marker stands with the pods of its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountView {
    /// The marker, as people name it.
    pub object: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many pods are what.
    #[serde(flatten)]
    pub numbers: NumbersView,
    /// Why changes that are to be made are not made yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<ReasonView>,
    /// Each pod.
    pub pods: Vec<PodView>,
    #[serde(skip)]
    is_unusable: bool,
}

/// Pods, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NumbersView {
    /// Those that should be marked.
    pub desired: usize,
    /// Those that match and have all the marks.
    pub succeeded: usize,
    /// Those that match.
    pub matched: usize,
    /// Those that would match, but for something that stands against it.
    pub conflicting: usize,
    /// Those of which it is not known whether they match.
    pub unknown: usize,
    /// Those whose marks are to be set, changed or taken off.
    pub waiting: usize,
}

/// Why something is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonView {
    /// A word, for programs.
    pub reason: String,
    /// A sentence.
    pub text: String,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its name.
    pub pod: String,
    /// Its node, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `Marked`, `NotMarked` or `Waits`.
    pub state: &'static str,
    /// What is to be done, if it waits for that: `Mark`, `Amend` or `Unmark`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<&'static str>,
    /// Why, as a word for programs.
    pub reason: String,
    /// Why, in a sentence.
    pub text: String,
}

impl AccountView {
    /// The view of how a marker stands with its pods.
    pub fn new(namespace: &str, name: &str, account: Account) -> Self {
        let waits = account.is_unusable || account.numbers.waiting > 0;
        Self {
            object: format!("{} {namespace}/{name}", POD_MARKER.at.kind),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            numbers: account.numbers.into(),
            waits_for: waits.then(|| account.hold.into()),
            pods: account.pods.into_iter().map(PodView::from).collect(),
            is_unusable: account.is_unusable,
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let mut text = format!("{}\n", paint(&self.title(), Tone::Heading, colour));
        if let Some(known) = self.waits_for.as_ref().filter(|_| !self.is_unusable) {
            let line = format!("{} waiting: {}", count(self.numbers.waiting, "change"), known.text);
            let _ = writeln!(text, "{}", paint(&line, Tone::Warning, colour));
        }
        // Of many pods most are of other applications.
        let (strangers, pods): (Vec<&PodView>, Vec<&PodView>) = self.pods.iter().partition(|pod| pod.is_stranger());
        if !pods.is_empty() {
            let lines = pods.into_iter().map(|pod| Line::Row(pod.row())).collect();
            let _ = write!(text, "\n{}", table::text(&["POD", "NODE", "STATE", "WHY"], lines, colour));
        }
        if !strangers.is_empty() {
            let names: Vec<String> = strangers.iter().map(|pod| pod.pod.clone()).collect();
            let line = format!("Not marked for their labels: {} ({})", count(names.len(), "pod"), few(&names));
            let _ = writeln!(text, "\n{}", paint(&line, Tone::Aside, colour));
        }
        text
    }

    fn title(&self) -> String {
        let NumbersView { desired, succeeded, matched, .. } = self.numbers;
        match &self.waits_for {
            Some(known) if self.is_unusable => {
                format!("{} cannot be used, and changes nothing until it is corrected: {}", self.object, known.text)
            }
            _ => {
                let pods = count(desired, "pod");
                format!("{}: {pods} of {matched} that match should be marked; marked by now: {succeeded}", self.object)
            }
        }
    }
}

impl PodView {
    /// Whether it was never meant.
    fn is_stranger(&self) -> bool {
        self.state == "NotMarked" && self.reason == "PodLabels"
    }

    fn row(&self) -> Row {
        let (words, tone) = match (self.state, self.change) {
            ("Marked", _) => ("marked", Tone::Good),
            (_, Some("Mark")) => ("waits to be marked", Tone::Warning),
            (_, Some("Amend")) => ("waits for other marks", Tone::Warning),
            (_, Some(_)) => ("waits to be unmarked", Tone::Warning),
            (_, None) => ("not marked", Tone::Aside),
        };
        let node = harmless(self.node.as_deref().unwrap_or("-"));
        Row::new(vec![
            plain(harmless(&self.pod)),
            plain(node),
            (words.to_owned(), Some(tone)),
            plain(harmless(&self.text)),
        ])
    }
}

impl From<PodAccount> for PodView {
    fn from(account: PodAccount) -> Self {
        let (state, change) = match account.state {
            State::Marked => ("Marked", None),
            State::NotMarked => ("NotMarked", None),
            State::ToMark => ("Waits", Some("Mark")),
            State::ToAmend => ("Waits", Some("Amend")),
            State::ToUnmark => ("Waits", Some("Unmark")),
        };
        let ReasonView { reason, text } = account.reason.into();
        let node = account.node.map(|node| node.to_string());
        Self { pod: account.pod.to_string(), node, state, change, reason, text }
    }
}

impl From<Reason> for ReasonView {
    fn from(Reason { word, text }: Reason) -> Self {
        Self { reason: word.into_owned(), text }
    }
}

impl From<Numbers> for NumbersView {
    fn from(numbers: Numbers) -> Self {
        let Numbers { desired, succeeded, matched, conflicting, unknown, waiting } = numbers;
        Self { desired, succeeded, matched, conflicting, unknown, waiting }
    }
}

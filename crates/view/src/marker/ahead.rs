//! What a marker would mark and unmark, as `dapple plan` shows it.

use std::fmt::Write;

use dapple_api::kinds::POD_MARKER;
use dapple_plan::marker::seen::{Account, State};
use serde::Serialize;

use super::{NumbersView, PodView, ReasonView};
use crate::paint::{Tone, count, few, harmless, paint};

/// What becomes of the pods of a namespace by a marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkerPlanView {
    /// The marker, as people name it.
    pub object: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether the cluster has another one of its name now, or none.
    pub changed: bool,
    /// How many pods are what, as things are.
    #[serde(flatten)]
    pub numbers: NumbersView,
    /// Why nothing of it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<ReasonView>,
    /// Pods that get the marks.
    pub mark: Vec<PodView>,
    /// Pods that are marked, and get other marks.
    pub amend: Vec<PodView>,
    /// Pods that lose the marks.
    pub unmark: Vec<PodView>,
    #[serde(skip)]
    is_unusable: bool,
}

impl MarkerPlanView {
    /// The view of what becomes of pods. `changed`: the cluster has another one of its name now, or none.
    pub fn new(namespace: &str, name: &str, account: Account, changed: bool) -> Self {
        let mut view = Self {
            object: format!("{} {namespace}/{name}", POD_MARKER.at.kind),
            kind: POD_MARKER.at.kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            changed,
            numbers: account.numbers.into(),
            stopped: None,
            mark: Vec::new(),
            amend: Vec::new(),
            unmark: Vec::new(),
            is_unusable: account.is_unusable,
        };
        // All else ends by itself.
        if account.is_unusable || account.hold.word == "Suspended" {
            view.stopped = Some(account.hold.into());
        }
        for pod in account.pods {
            match pod.state {
                State::ToMark => view.mark.push(pod.into()),
                State::ToAmend => view.amend.push(pod.into()),
                State::ToUnmark => view.unmark.push(pod.into()),
                State::Marked | State::NotMarked => {}
            }
        }
        view
    }

    /// Whether something would change in the cluster.
    pub fn differs(&self) -> bool {
        let is_touched = [&self.mark, &self.amend, &self.unmark].iter().any(|pods| !pods.is_empty());
        self.changed || (is_touched && self.stopped.is_none())
    }

    /// Whether it cannot be used.
    pub fn fails(&self) -> bool {
        self.is_unusable
    }

    /// For a terminal: with colour or without, `wide` with every pod and why.
    pub fn text(&self, colour: bool, wide: bool) -> String {
        let NumbersView { desired, matched, conflicting, unknown, .. } = self.numbers;
        let matching = if matched == 1 { "pod matches" } else { "pods match" };
        let heading = match &self.stopped {
            Some(known) if self.is_unusable => format!("{} cannot be used: {}", self.object, known.text),
            _ => format!("{}: {matched} {matching}, {desired} should be marked", self.object),
        };
        let mut text = format!("{}\n", paint(&heading, Tone::Heading, colour));
        if let Some(known) = self.stopped.as_ref().filter(|_| !self.is_unusable) {
            let line = format!("nothing is done for now: {}", known.text);
            let _ = writeln!(text, "  {}", paint(&line, Tone::Warning, colour));
        }
        let kinds = [("marks", &self.mark), ("unmarks", &self.unmark), ("gives other marks to", &self.amend)];
        for (does, pods) in kinds.into_iter().filter(|(_, pods)| !pods.is_empty()) {
            write_pods(&mut text, does, pods, wide);
        }
        if kinds.iter().all(|(_, pods)| pods.is_empty()) && !self.is_unusable {
            text.push_str("  no pod's marks change\n");
        }
        for (pods, why) in [
            (conflicting, "left alone: something stands against their getting the marks"),
            (unknown, "left as they are: it is not known whether they match"),
        ] {
            if pods > 0 {
                let line =
                    format!("{} {why} (`dapple explain` says what of those that the cluster has)", count(pods, "pod"));
                let _ = writeln!(text, "  {}", paint(&line, Tone::Aside, colour));
            }
        }
        text
    }
}

fn write_pods(text: &mut String, does: &str, pods: &[PodView], wide: bool) {
    let names: Vec<String> = pods.iter().map(|pod| pod.pod.clone()).collect();
    let number = count(pods.len(), "pod");
    if !wide {
        let _ = writeln!(text, "  {}", harmless(&format!("{does} {number} ({})", few(&names))));
        return;
    }
    let _ = writeln!(text, "  {does} {number}");
    for pod in pods {
        let on = pod.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let _ = writeln!(text, "    {}", harmless(&format!("{}{on}: {}", pod.pod, pod.text)));
    }
}

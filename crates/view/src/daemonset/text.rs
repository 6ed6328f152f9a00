//! DaemonSets on a terminal: a table, with a tree below each of them.

use super::{CountsView, DaemonSetView, VariantView};
use crate::age::age;
use crate::paint::{Tone, count, harmless};
use crate::table::{self, Line, Row, across, bar};

/// All of them in one table; `wide` with strategy and images.
pub fn table(views: &[DaemonSetView], colour: bool, wide: bool) -> String {
    let mut head = vec!["NAME", "DESIRED", "UPDATED", "READY", "AVAILABLE", "AGE", "REVISION", "STATE"];
    if wide {
        head.extend(["STRATEGY", "IMAGES"]);
    }
    let mut lines = Vec::new();
    for view in views {
        view.write(&mut lines, colour, wide);
    }
    table::text(&head, lines, colour)
}

impl DaemonSetView {
    fn write(&self, lines: &mut Vec<Line>, colour: bool, wide: bool) {
        let tone = match self.state {
            "Complete" => Tone::Good,
            "Degraded" | "Deleting" => Tone::Bad,
            "RollingOut" => Tone::Place,
            "NotBegun" | "OnDelete" => Tone::Aside,
            _ => Tone::Warning,
        };
        // The last version of dapple had the name of the ControllerRevision there.
        let revision = self.update_revision.as_deref().unwrap_or_default();
        let hash = revision.strip_prefix(&format!("{}-", self.name)).unwrap_or(revision);
        let mut cells = vec![(harmless(&format!("{}/{}", self.namespace, self.name)), Some(Tone::Heading))];
        cells.extend(numbers(&self.counts));
        cells.push((self.created.map(|created| age(created, self.now)).unwrap_or_default(), None));
        cells.push((harmless(hash), None));
        cells.push((self.state_text.clone(), Some(tone)));
        if wide {
            cells.push((self.strategy.to_owned(), None));
            cells.push((harmless(&self.images.join(",")), None));
        }
        lines.push(Line::Row(Row::new(cells)));
        let below = self.below();
        // A set with nothing special about it needs no tree: its only variant says what the headline said.
        let is_plain = self.variants.len() < 2
            && self.variants.iter().all(|only| only.patches.is_empty() && only.rules.is_empty());
        let variants = if is_plain { &[][..] } else { &self.variants[..] };
        for (index, variant) in variants.iter().enumerate() {
            let is_last = below.is_empty() && index + 1 == variants.len();
            lines.push(Line::Row(variant.row(is_last)));
        }
        for (index, (text, tone)) in below.iter().enumerate() {
            lines.push(across(index + 1 == below.len(), text, *tone, colour));
        }
    }

    /// What stands below the variants: what the controller says, what it waits for, and pods that are not available.
    fn below(&self) -> Vec<(String, Tone)> {
        let is_bad = self.state == "Degraded";
        let tone = if is_bad { Tone::Bad } else { Tone::Aside };
        let mut told: Vec<(String, Tone)> = self.notes.iter().map(|text| (text.clone(), tone)).collect();
        told.extend(self.waiting_for.iter().map(|text| (format!("waiting for: {text}"), Tone::Warning)));
        for pod in &self.pods {
            let age = pod.created.map(|created| format!(", {}", age(created, self.now))).unwrap_or_default();
            told.push((format!("waiting for: {} on {}{age}: {}", pod.name, pod.node, pod.reason), Tone::Warning));
        }
        if self.more_pods > 0 {
            told.push((format!("waiting for: {} more", count(self.more_pods, "pod")), Tone::Aside));
        }
        told
    }
}

impl VariantView {
    fn row(&self, is_last: bool) -> Row {
        let mut cells = vec![(self.name.clone(), None)];
        cells.extend(numbers(&self.counts));
        cells.push((String::new(), None));
        cells.push((harmless(self.hash.as_deref().unwrap_or_default()), Some(Tone::Aside)));
        cells.push(match self.applies {
            true => (of_counts(&self.counts), Some(if is_whole(&self.counts) { Tone::Good } else { Tone::Place })),
            false => ("does not apply".to_owned(), Some(Tone::Bad)),
        });
        Row::below(is_last, cells)
    }
}

fn is_whole(counts: &CountsView) -> bool {
    counts.updated >= counts.desired && counts.available >= counts.desired
}

fn numbers(counts: &CountsView) -> impl Iterator<Item = (String, Option<Tone>)> {
    [counts.desired, counts.updated, counts.ready, counts.available]
        .map(|number| (number.to_string(), None))
        .into_iter()
}

/// How much is updated.
fn of_counts(counts: &CountsView) -> String {
    bar(counts.updated.into(), counts.desired.into())
}

//! DaemonSets on a terminal: a table, with a tree below each of them.

use std::fmt::Write;

use super::{CountsView, DaemonSetView, VariantView};
use crate::age::age;
use crate::paint::{Tone, count, harmless, paint};

const BAR: i32 = 10;

/// One line of the table: its cells stand below each other, its tree sign before the first.
struct Row {
    branch: &'static str,
    cells: Vec<(String, Option<Tone>)>,
}

/// A line, in the table or across it.
enum Line {
    Row(Row),
    Across(String),
}

/// All of them in one table; `wide` with strategy and images.
pub fn table(views: &[DaemonSetView], colour: bool, wide: bool) -> String {
    let mut head = vec!["NAME", "DESIRED", "UPDATED", "READY", "AVAILABLE", "AGE", "REVISION", "STATE"];
    if wide {
        head.extend(["STRATEGY", "IMAGES"]);
    }
    let cells = head.iter().map(|name| ((*name).to_owned(), None)).collect();
    let mut lines = vec![Line::Row(Row { branch: "", cells })];
    for view in views {
        view.write(&mut lines, colour, wide);
    }
    let mut widths = vec![0; head.len()];
    for line in &lines {
        let Line::Row(row) = line else { continue };
        for (index, (text, _)) in row.cells.iter().enumerate() {
            let branch = if index == 0 { row.branch.chars().count() } else { 0 };
            widths[index] = widths[index].max(text.chars().count() + branch);
        }
    }
    let mut text = String::new();
    for line in lines {
        match line {
            Line::Row(row) => _ = writeln!(text, "{}", row.text(&widths, colour)),
            Line::Across(line) => _ = writeln!(text, "{line}"),
        }
    }
    text
}

impl Row {
    fn text(&self, widths: &[usize], colour: bool) -> String {
        let mut text = paint_branch(self.branch, colour);
        let last = self.cells.iter().rposition(|(cell, _)| !cell.is_empty()).unwrap_or(0);
        for (index, (cell, tone)) in self.cells.iter().enumerate().take(last + 1) {
            text.push_str(&tone.map_or_else(|| cell.clone(), |tone| paint(cell, tone, colour)));
            let branch = if index == 0 { self.branch.chars().count() } else { 0 };
            let gap = widths[index].saturating_sub(cell.chars().count() + branch) + 3;
            if index < last {
                text.push_str(&" ".repeat(gap));
            }
        }
        text
    }
}

fn paint_branch(branch: &str, colour: bool) -> String {
    if branch.is_empty() { String::new() } else { paint(branch, Tone::Aside, colour) }
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
        lines.push(Line::Row(Row { branch: "", cells }));
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
            let branch = paint_branch(if index + 1 == below.len() { "└─ " } else { "├─ " }, colour);
            lines.push(Line::Across(format!("{branch}{}", paint(text, *tone, colour))));
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
            true => (bar(&self.counts), Some(if is_whole(&self.counts) { Tone::Good } else { Tone::Place })),
            false => ("does not apply".to_owned(), Some(Tone::Bad)),
        });
        Row { branch: if is_last { "└─ " } else { "├─ " }, cells }
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

/// How much is updated. Full only when all is: 999 of 1,000 is not.
fn bar(counts: &CountsView) -> String {
    let part = |of: i64| match counts.desired {
        0 => of,
        desired => i64::from(counts.updated) * of / i64::from(desired),
    };
    let full = usize::try_from(part(BAR.into()).clamp(0, BAR.into())).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0) - full;
    format!("{}{} {:>3}%", "█".repeat(full), "░".repeat(empty), part(100))
}

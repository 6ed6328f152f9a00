//! Tables on a terminal, with a tree below each line if need be.

use std::fmt::Write;

use crate::paint::{Tone, paint};

/// One line of a table: its cells stand below each other, its tree sign before the first.
pub(crate) struct Row {
    branch: &'static str,
    cells: Vec<(String, Option<Tone>)>,
}

/// A line, in the table or across it.
pub(crate) enum Line {
    Row(Row),
    Across(String),
}

/// The sign before the last line of a tree, or another.
pub(crate) fn branch(is_last: bool) -> &'static str {
    if is_last { "└─ " } else { "├─ " }
}

/// A line across the table, behind a sign.
pub(crate) fn across(is_last: bool, text: &str, tone: Tone, colour: bool) -> Line {
    Line::Across(format!("{}{}", paint_branch(branch(is_last), colour), paint(text, tone, colour)))
}

impl Row {
    /// A line that stands for itself.
    pub(crate) fn new(cells: Vec<(String, Option<Tone>)>) -> Self {
        Self { branch: "", cells }
    }

    /// A line of a tree.
    pub(crate) fn below(is_last: bool, cells: Vec<(String, Option<Tone>)>) -> Self {
        Self { branch: branch(is_last), cells }
    }

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

/// The lines of a table below its head.
pub(crate) fn text(head: &[&str], lines: Vec<Line>, colour: bool) -> String {
    let cells = head.iter().map(|name| ((*name).to_owned(), None)).collect();
    let lines: Vec<Line> = [Line::Row(Row::new(cells))].into_iter().chain(lines).collect();
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

/// Cells without colour, one column below the other.
pub(crate) fn plain(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let row = |cells: Vec<String>| Line::Row(Row::new(cells.into_iter().map(|cell| (cell, None)).collect()));
    text(head, rows.into_iter().map(row).collect(), false)
}

/// How much of something is done. Full only when all is: 999 of 1,000 is not.
pub(crate) fn bar(done: i64, all: i64) -> String {
    const WIDTH: i64 = 10;
    let part = |of: i64| if all == 0 { of } else { done * of / all };
    let full = usize::try_from(part(WIDTH).clamp(0, WIDTH)).unwrap_or(0);
    let empty = usize::try_from(WIDTH).unwrap_or(0) - full;
    format!("{}{} {:>3}%", "█".repeat(full), "░".repeat(empty), part(100))
}

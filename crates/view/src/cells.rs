//! Cells of tables that several kinds have.

use jiff::Timestamp;

use crate::age::age;
use crate::paint::{Tone, harmless};
use crate::table::{Line, across};

/// A cell, and how it looks.
pub(crate) type Cell = (String, Option<Tone>);

/// A name.
pub(crate) fn named(name: &str) -> Cell {
    (harmless(name), Some(Tone::Heading))
}

/// Anything else.
pub(crate) fn plain(text: impl ToString) -> Cell {
    (text.to_string(), None)
}

/// How long ago something was made.
pub(crate) fn since(created: Option<Timestamp>, now: Timestamp) -> Cell {
    plain(created.map(|created| age(created, now)).unwrap_or_default())
}

/// What is to be said of something stands below it.
pub(crate) fn write_notes(lines: &mut Vec<Line>, notes: &[String], colour: bool) {
    for (index, note) in notes.iter().enumerate() {
        lines.push(across(index + 1 == notes.len(), note, Tone::Warning, colour));
    }
}

//! What two nodes, or two revisions, get that is not the same, as `dapple diff` shows it.

use dapple_api::yaml;
use dapple_edit::document::Document;
use dapple_edit::render::changes;
use serde::Serialize;
use serde_json::Value;

use crate::paint::{Tone, paint, paint_diff, unified};

/// Two renderings, or two revisions, side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffView {
    /// The workload.
    pub object: String,
    /// What is on the left.
    pub left: String,
    /// What is on the right.
    pub right: String,
    /// Every field that differs.
    pub changes: Vec<FieldView>,
    /// The difference, line by line.
    pub diff: String,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldView {
    /// The field.
    pub field: String,
    /// What the left has.
    pub left: Option<Value>,
    /// What the right has.
    pub right: Option<Value>,
}

impl DiffView {
    /// Compares two documents of a kind.
    pub fn new(object: &str, kind: Document, left: (&str, &Value), right: (&str, &Value)) -> Self {
        let field = |change: dapple_edit::render::Changed| FieldView {
            field: change.path.to_string(),
            left: change.before,
            right: change.after,
        };
        Self {
            object: object.to_owned(),
            left: left.0.to_owned(),
            right: right.0.to_owned(),
            changes: changes(kind, left.1, right.1).into_iter().map(field).collect(),
            diff: unified(&yaml::document(left.1), &yaml::document(right.1)),
        }
    }

    /// Whether anything differs.
    pub fn differs(&self) -> bool {
        !self.diff.is_empty()
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        if !self.differs() {
            return format!("{}: {} and {} get the same\n", self.object, self.left, self.right);
        }
        let heading = paint(&self.object, Tone::Heading, colour);
        let left = paint(&format!("--- {}", self.left), Tone::Bad, colour);
        let right = paint(&format!("+++ {}", self.right), Tone::Good, colour);
        format!("{heading}\n{left}\n{right}\n{}", paint_diff(&self.diff, "", colour))
    }
}

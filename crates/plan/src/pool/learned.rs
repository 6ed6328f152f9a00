//! What only the API server can tell, beside what is watched. It is asked when it matters, and not before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dapple_edit::edit::ReferenceKind;

use super::pods::Unwell;

/// What the API server has told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Learned {
    /// Targets of replacements that do not exist.
    pub missing: BTreeSet<Target>,
    /// Pods that are not ready, by pool.
    pub unwell: BTreeMap<String, Unwell>,
    /// Who else changes what is left alone for that, by pool.
    pub changers: BTreeMap<String, Vec<String>>,
}

/// An object that a replacement has pods refer to, and that these do not start without.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// A ConfigMap or a PersistentVolumeClaim: Secrets are not looked for.
    pub kind: ReferenceKind,
    /// Its name, in the namespace of the application.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

/// Targets, as people name them.
pub(super) fn named(targets: &[Target]) -> String {
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

//! Going back to an earlier revision: the template, the pools and the replacements as they were, in both objects.
//!
//! What a revision does not hold stays as it is: one that OpenYurt left has the template alone.

use std::collections::BTreeSet;

use dapple_api::pool::{Pool, Replacement, Topology, YurtAppConfigurationReplacement};
use serde_json::{Value, json};

use super::object::{ApplicationObject, counting, in_force};
use super::revision::{Revision, data_of, meaning_of, version_of};
use super::version::{InForce, Pools, Version};
use crate::world::read::lost;

/// What going back comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Undo {
    /// All is so already.
    Skipped {
        /// The revision.
        number: i64,
    },
    /// This comes back.
    Back(Box<Restored>),
}

/// What a revision brings back.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// The revision.
    pub number: i64,
    /// What the application said.
    pub version: Version,
    /// Whether the application says something else now.
    pub changes_application: bool,
    /// What becomes of the replacements.
    pub replacements: Replacing,
    /// Pools that the application is in then, and is not now.
    pub joining: Vec<String>,
    /// Pools that it is in now, and is not then: their workloads go.
    pub leaving: Vec<String>,
}

/// What becomes of the replacements.
#[derive(Debug, Clone, PartialEq)]
pub enum Replacing {
    /// They are as they were.
    Kept,
    /// The object of this name says this instead.
    Changed {
        /// Its name.
        name: String,
        /// What it says.
        replacements: Vec<Replacement>,
    },
    /// There is none any more: one is made.
    Made {
        /// Its name.
        name: String,
        /// What it says.
        replacements: Vec<Replacement>,
    },
}

/// Why there is no going back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UndoError {
    /// There are no revisions.
    #[error("has no revisions yet: is a dapple manager running?")]
    NoRevisions,
    /// There is one revision only.
    #[error("has only revision {0}: there is nothing before it to go back to")]
    NoneBefore(i64),
    /// The number is not one of a revision.
    #[error("has no revision {number}; it has {known}")]
    Unknown {
        /// The number that was asked for.
        number: i64,
        /// Those that there are.
        known: String,
    },
    /// The newest revision is not the present state, so it is not clear which one is meant.
    #[error(
        "or its replacement has changed since its newest revision {0} was written, so the one before is not clear: wait until \
         the manager has seen the change, or name the revision with --to-revision"
    )]
    Unsettled(i64),
    /// The revision cannot be brought back.
    #[error("has the revision {number} (ControllerRevision {name}), which cannot be read: {reason}")]
    Unreadable {
        /// Its number.
        number: i64,
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The replacements cannot be put back under their name.
    #[error(
        "had its replacements in YurtAppConfigurationReplacement {name}, which is for {subject} by now: give that one another \
         name first"
    )]
    Taken {
        /// The name.
        name: String,
        /// What the object of that name is for.
        subject: String,
    },
}

/// Decides what to go back to: the revision of this number, or else the one before the newest. `replacements` are all that there
/// are in the namespace.
pub fn undo(
    object: &ApplicationObject,
    replacements: &[YurtAppConfigurationReplacement],
    revisions: &[Revision],
    to: Option<i64>,
) -> Result<Undo, UndoError> {
    let mut sorted: Vec<&Revision> = revisions.iter().collect();
    sorted.sort_by_key(|revision| (revision.number, &revision.name));
    let newest = sorted.last().ok_or(UndoError::NoRevisions)?;
    let now = object.version(counting(replacements, object).map(in_force));
    let found = match to {
        Some(number) => find(&sorted, number)?,
        None if !is_of(newest, &now) => return Err(UndoError::Unsettled(newest.number)),
        None => sorted.iter().rev().nth(1).ok_or(UndoError::NoneBefore(newest.number))?,
    };
    let version = read(found, &now)?;
    let replacing = replacing(&version, &now, replacements)?;
    let changes_application = meaning_of(&data_of(&alone(&version))) != meaning_of(&data_of(&alone(&now)));
    if !changes_application && replacing == Replacing::Kept {
        return Ok(Undo::Skipped { number: found.number });
    }
    Ok(Undo::Back(Box::new(Restored {
        number: found.number,
        joining: without(&version, &now),
        leaving: without(&now, &version),
        changes_application,
        replacements: replacing,
        version,
    })))
}

/// The revision of a number, from some in order.
pub fn find<'a>(sorted: &[&'a Revision], number: i64) -> Result<&'a Revision, UndoError> {
    let known = || sorted.iter().map(|revision| revision.number.to_string()).collect::<Vec<_>>().join(", ");
    match sorted.iter().rev().find(|revision| revision.number == number) {
        Some(found) => Ok(found),
        None if sorted.is_empty() => Err(UndoError::NoRevisions),
        None => Err(UndoError::Unknown { number, known: known() }),
    }
}

/// What a revision holds, if all of it is understood: one that a newer version wrote may say more, and half of it brought back is
/// something that never was. What it does not hold is as it is `now`.
pub fn read(revision: &Revision, now: &Version) -> Result<Version, UndoError> {
    let failed =
        |reason: String| UndoError::Unreadable { number: revision.number, name: revision.name.clone(), reason };
    let version = version_of(&revision.data, now)
        .filter(|version| version.template.template_type().is_some())
        .ok_or_else(|| failed("data.spec.workloadTemplate is no template of such an application".to_owned()))?;
    let mut unknown = Vec::new();
    lost(&revision.data, &data_of(&version), "data", &mut unknown);
    match unknown.first() {
        Some(field) => {
            Err(failed(format!("{field} is a field that this version of dapple does not know: use a newer one")))
        }
        None => Ok(version),
    }
}

/// Whether a revision is of what is said now. Of one that holds the template alone, the template is.
fn is_of(revision: &Revision, now: &Version) -> bool {
    let read = version_of(&revision.data, now);
    read.is_some_and(|version| meaning_of(&data_of(&version)) == meaning_of(&data_of(now)))
}

/// What becomes of the replacements. Those in force now are changed, whatever the object was called then: an application has one.
fn replacing(then: &Version, now: &Version, all: &[YurtAppConfigurationReplacement]) -> Result<Replacing, UndoError> {
    let said =
        |version: &Version| version.replacements.as_ref().map(|known| known.replacements.clone()).unwrap_or_default();
    let replacements = said(then);
    if replacements == said(now) {
        return Ok(Replacing::Kept);
    }
    if let Some(InForce { name, .. }) = &now.replacements {
        return Ok(Replacing::Changed { name: name.clone(), replacements });
    }
    let name = then.replacements.as_ref().map(|known| known.name.clone()).unwrap_or_default();
    match all.iter().find(|known| known.metadata.name.as_ref() == Some(&name)) {
        Some(other) => {
            let subject = format!("{:?} {}", other.subject.kind, other.subject.name);
            Err(UndoError::Taken { name, subject })
        }
        None => Ok(Replacing::Made { name, replacements }),
    }
}

/// What the application alone says.
fn alone(version: &Version) -> Version {
    Version { replacements: None, ..version.clone() }
}

/// Pools that one version names and the other does not.
fn without(one: &Version, other: &Version) -> Vec<String> {
    let names = |version: &Version| -> BTreeSet<String> {
        let named: &[Pool] = match &version.pools {
            Pools::Named(Topology { pools }) => pools,
            Pools::Selected(_) => &[],
        };
        named.iter().map(|pool| pool.name.clone()).collect()
    };
    names(one).difference(&names(other)).cloned().collect()
}

impl Restored {
    /// Puts template and pools into an application as the API server has it. The whole object is written then: a merge patch could
    /// not, since the API server drops nulls from the lists in one, and a pool's patch says by null what it deletes.
    pub fn put_into(&self, object: &mut Value) {
        let spec = &mut object["spec"];
        spec["workloadTemplate"] = json!(self.version.template);
        match &self.version.pools {
            Pools::Named(topology) => spec["topology"] = json!(topology),
            Pools::Selected(Some(selector)) => spec["nodepoolSelector"] = json!(selector),
            Pools::Selected(None) => {
                if let Some(spec) = spec.as_object_mut() {
                    spec.remove("nodepoolSelector");
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "rollback_tests.rs"]
mod tests;

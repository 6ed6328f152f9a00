//! Revisions of DaemonSets as the controller keeps them.

use std::ops::Deref;
use std::sync::Arc;

use dapple_plan::daemonset::driven_off::{self, DRIVEN_OFF_ANNOTATION, DrivenOff};
use dapple_plan::daemonset::pod::{HASH_LABEL, is_set};
use dapple_plan::daemonset::revision::{
    FORM_ANNOTATION, REPLACES_ANNOTATION, Revision, SINCE_ANNOTATION, began, form_of, number_of,
};
use jiff::Timestamp;

use super::Set;
use crate::slim;

/// A ControllerRevision, as one of a DaemonSet.
#[derive(Debug, Clone)]
pub(super) struct SetRevision {
    known: Arc<slim::Revision>,
    pub(super) number: i64,
    pub(super) hash: Option<String>,
    /// The form of hash that it notes.
    pub(super) form: u8,
    /// Since when it notes to be the newest again.
    newest_since: Option<String>,
}

impl Deref for SetRevision {
    type Target = slim::Revision;

    fn deref(&self) -> &slim::Revision {
        &self.known
    }
}

impl SetRevision {
    pub(super) fn new(known: Arc<slim::Revision>) -> Arc<Self> {
        Arc::new(Self {
            number: number_of(known.number),
            hash: known.label(HASH_LABEL).map(str::to_owned),
            form: form_of(known.annotation(FORM_ANNOTATION)),
            newest_since: known.annotation(SINCE_ANNOTATION).map(str::to_owned),
            known,
        })
    }

    /// Whether it is the set's own. The policy on authors goes by kind and name, so these count as well as the UID: else one
    /// could name an owner to the policy and another to us.
    pub(super) fn is_of(&self, set: &Set) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            owner.uid == set.meta.uid && owner.name == set.meta.key.name && is_set(&owner.api_version, &owner.kind)
        })
    }

    /// The hash that pods of an unpatched node carry: the revision's own, or the end of its name.
    pub(super) fn hash(&self, set: &Set) -> String {
        let name = &self.meta.key.name;
        let end = || name.strip_prefix(&format!("{}-", set.meta.key.name)).unwrap_or(name).to_owned();
        self.hash.clone().unwrap_or_else(end)
    }

    /// Whether it was made for the one of this name.
    pub(super) fn replaces(&self, name: &str) -> bool {
        self.replaced() == Some(name)
    }

    /// Whether it was made for this one, and says the same.
    pub(super) fn stands_in_for(&self, old: &Self) -> bool {
        self.replaces(&old.meta.key.name) && self.data == old.data && self.number >= old.number
    }

    /// The name of the one that it was made for.
    pub(super) fn replaced(&self) -> Option<&str> {
        self.annotation(REPLACES_ANNOTATION)
    }

    /// The nodes that it notes that taints have driven pods off.
    pub(super) fn driven_off(&self) -> DrivenOff {
        driven_off::read(self.annotation(DRIVEN_OFF_ANNOTATION))
    }

    /// As it is once it has become the newest again.
    pub(super) fn renumbered(&self, number: i64, now: Timestamp) -> Self {
        Self { number, newest_since: Some(now.to_string()), ..self.clone() }
    }

    /// As deciding sees it, now.
    pub(super) fn as_revision(&self, set: &Set, now: Timestamp) -> Revision {
        Revision {
            name: self.meta.key.name.to_string(),
            replaces: self.replaced().map(str::to_owned),
            number: self.number,
            hash: self.hash(set),
            form: self.form,
            began: began(self.created, self.newest_since.as_deref(), now),
            data: self.data.clone(),
        }
    }
}

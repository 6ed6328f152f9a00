//! Editions that were worked out already. They are the same for every pod of an owner's revision, and are rendered once for all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dapple_api::group::OverridePolicySpec;
use dapple_plan::group::editions::Editions;
use serde_json::Value;

use super::editions::shown;
use super::policy::Policy;
use super::versions::Versions;

/// So many are kept.
const MOST_KEPT: usize = 256;

/// The last used last.
#[derive(Default)]
pub(super) struct KnownEditions {
    kept: Mutex<VecDeque<Kept>>,
}

/// What editions were made of, and they.
struct Kept {
    specs: Vec<Arc<OverridePolicySpec>>,
    template: Arc<Value>,
    groups: Vec<Arc<str>>,
    editions: Editions,
}

impl KnownEditions {
    /// What a policy makes of a template for these groups, by each of its versions.
    pub(super) fn of(
        &self,
        versions: &Versions,
        policy: &Policy<OverridePolicySpec>,
        groups: &[Arc<str>],
        template: Option<Arc<Value>>,
    ) -> Editions {
        let (name, specs) = (shown(policy), versions.specs(policy));
        // A pod that is its own template is made once.
        let Some(template) = template else { return Editions::of(&name, &specs, groups, None) };
        if let Some(known) = self.find(&specs, groups, &template) {
            return known;
        }
        let editions = Editions::of(&name, &specs, groups, Some(template.clone()));
        let known = Kept { specs, template, groups: groups.to_vec(), editions: editions.clone() };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(known);
        while kept.len() > MOST_KEPT {
            kept.pop_front();
        }
        editions
    }

    fn find(&self, specs: &[Arc<OverridePolicySpec>], groups: &[Arc<str>], template: &Arc<Value>) -> Option<Editions> {
        // Templates are read once and kept. A policy is another object whenever its status is written.
        let is_same = |known: &Kept| {
            Arc::ptr_eq(&known.template, template)
                && known.specs.len() == specs.len()
                && known.specs.iter().zip(specs).all(|(known, spec)| Arc::ptr_eq(known, spec) || known == spec)
                && known.groups == groups
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(is_same)?;
        let found = kept.remove(index)?;
        let editions = found.editions.clone();
        kept.push_back(found);
        Some(editions)
    }
}

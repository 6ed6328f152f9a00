//! When pods behind the gate may be replaced: what [`dapple_plan::group::replacing`] decides, by owner. A new leader begins anew,
//! with short pauses.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::group::replacing::Replacing;
use tokio::time::Instant;

use super::super::owner::OwnerKey;

/// Steps by owner, as far as they still make a difference.
pub(super) struct Replacements {
    since: Instant,
    by_owner: Mutex<BTreeMap<OwnerKey, Replacing>>,
}

impl Default for Replacements {
    fn default() -> Self {
        Self { since: Instant::now(), by_owner: Mutex::default() }
    }
}

impl Replacements {
    /// Replaces one more pod of an owner, or says how long that has to wait.
    pub(super) fn replace(&self, at: &OwnerKey) -> Result<(), Duration> {
        let now = self.since.elapsed();
        let mut by_owner = self.lock();
        by_owner.retain(|_, steps| !steps.is_over(now));
        let steps = by_owner.entry(at.clone()).or_insert_with(|| Replacing::begun(now));
        steps.replace(now).map_err(|next| next.saturating_sub(now))
    }

    /// A pod of an owner was placed as it was made.
    pub(super) fn placed(&self, at: &OwnerKey) {
        if let Some(steps) = self.lock().get_mut(at) {
            steps.placed();
        }
    }

    /// Whether pods of an owner are replaced again and again.
    pub(super) fn are_in_vain(&self, at: &OwnerKey) -> bool {
        self.lock().get(at).is_some_and(Replacing::is_in_vain)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<OwnerKey, Replacing>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

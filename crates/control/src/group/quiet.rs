//! Since when groups have had the nodes that they have. Pods are not moved for a group whose nodes come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::group::is_member;
use tokio::time::Instant;

use super::Group;
use crate::caches::store::{Change, Store};
use crate::slim::Node;

/// When the nodes of groups last changed. What was before this process began is not known: then counts as changed.
pub(super) struct Quiet {
    began: Instant,
    changed: Mutex<BTreeMap<Arc<str>, Instant>>,
    groups: Arc<Store<Group>>,
}

impl Quiet {
    pub(super) fn new(groups: Arc<Store<Group>>) -> Self {
        Self { began: Instant::now(), changed: Mutex::default(), groups }
    }

    /// How long to wait until the nodes of all these groups have been the same for so long; none if they have.
    pub(super) fn wait(&self, groups: &[Arc<str>], so_long: Duration) -> Option<Duration> {
        let changed = self.changed();
        let last = groups.iter().filter_map(|group| changed.get(group)).max().copied().unwrap_or(self.began);
        let left = so_long.saturating_sub(last.max(self.began).elapsed());
        Some(left).filter(|left| !left.is_zero())
    }

    fn changed(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Instant>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node has come, gone, or got other labels.
    pub(super) fn on_node(&self, change: &Change<Node>) {
        for group in joined_or_left(&self.groups, change) {
            self.changed().insert(group, Instant::now());
        }
    }

    /// A group has come, gone, or asks for other nodes.
    pub(super) fn on_group(&self, change: &Change<Group>) {
        let Change::Object { key, old, new, .. } = change else { return };
        if old.as_ref().map(|group| &group.spec) != new.as_ref().map(|group| &group.spec) {
            self.changed().insert(key.name.clone(), Instant::now());
        }
    }
}

/// The groups that a node has joined or left.
pub(super) fn joined_or_left(groups: &Store<Group>, change: &Change<Node>) -> Vec<Arc<str>> {
    let mut changed = Vec::new();
    let Change::Object { old, new, .. } = change else { return changed };
    if old.as_ref().map(|node| &node.labels) == new.as_ref().map(|node| &node.labels) {
        return changed;
    }
    groups.for_each(|group| {
        let has = |node: &Option<Arc<Node>>| {
            node.as_ref().is_some_and(|node| is_member(&group.spec, node.name(), &node.labels))
        };
        if has(old) != has(new) {
            changed.push(group.meta.key.name.clone());
        }
    });
    changed
}

//! Since when groups have had the nodes that they have. Pods are not moved for a group whose nodes come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Group;
use super::seated::groups_of_node;
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
    let Change::Object { old, new, .. } = change else { return Vec::new() };
    if old.as_ref().map(|node| &node.labels) == new.as_ref().map(|node| &node.labels) {
        return Vec::new();
    }
    let groups_of =
        |node: &Option<Arc<Node>>| node.as_ref().map(|node| groups_of_node(groups, node)).unwrap_or_default();
    groups_of(old).symmetric_difference(&groups_of(new)).cloned().collect()
}

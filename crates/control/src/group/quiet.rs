//! Since when groups have had the nodes that they have, and nodes the groups that they are in. Pods are not moved for a group whose
//! nodes come and go, nor changed on a node that comes and goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::group::is_member;
use dapple_plan::mutant::{Mutant, is_on};
use tokio::time::Instant;

use super::Group;
use super::seated::groups_of_node;
use crate::caches::store::{Change, Store};
use crate::slim::Node;

/// When the nodes of groups last changed. What was before this process began is not known: then counts as changed.
pub(super) struct Quiet {
    began: Instant,
    changed: Mutex<Changed>,
    groups: Arc<Store<Group>>,
    nodes: Arc<Store<Node>>,
}

/// When that was, by name.
#[derive(Default)]
struct Changed {
    groups: BTreeMap<Arc<str>, Instant>,
    /// Of those that have joined a group, or left one.
    nodes: BTreeMap<Arc<str>, Instant>,
}

impl Quiet {
    pub(super) fn new(groups: Arc<Store<Group>>, nodes: Arc<Store<Node>>) -> Self {
        Self { began: Instant::now(), changed: Mutex::default(), groups, nodes }
    }

    /// How long to wait until the nodes of all these groups have been the same for so long; none if they have.
    pub(super) fn wait<'g>(&self, groups: impl IntoIterator<Item = &'g str>, so_long: Duration) -> Option<Duration> {
        let changed = self.changed();
        let last = groups.into_iter().filter_map(|group| changed.groups.get(group)).max().copied();
        self.left(last, so_long)
    }

    /// How long to wait until a node has been in the same groups for so long; none if it has.
    pub(super) fn wait_for_node(&self, node: &str, so_long: Duration) -> Option<Duration> {
        let last = self.changed().nodes.get(node).copied();
        self.left(last, so_long)
    }

    fn left(&self, last: Option<Instant>, so_long: Duration) -> Option<Duration> {
        let left = so_long.saturating_sub(last.map_or(self.began, |last| last.max(self.began)).elapsed());
        Some(left).filter(|left| !left.is_zero() && !is_on(Mutant::QuietForgotten))
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node has come, gone, or got other labels.
    pub(super) fn on_node(&self, change: &Change<Node>) {
        let (Change::Object { key, new, .. }, groups) = (change, joined_or_left(&self.groups, change)) else { return };
        let (mut changed, now) = (self.changed(), Instant::now());
        if new.is_none() {
            changed.nodes.remove(&key.name);
        } else if !groups.is_empty() {
            changed.nodes.insert(key.name.clone(), now);
        }
        changed.groups.extend(groups.into_iter().map(|group| (group, now)));
    }

    /// A group has come, gone, or asks for other nodes.
    pub(super) fn on_group(&self, change: &Change<Group>) {
        let Change::Object { key, old, new, .. } = change else { return };
        if old.as_ref().map(|group| &group.spec) != new.as_ref().map(|group| &group.spec) {
            let mut nodes = Vec::new();
            self.nodes.for_each(|node| {
                let has = |group: &Option<Arc<Group>>| {
                    group.as_ref().is_some_and(|group| is_member(&group.spec, node.name(), &node.labels))
                };
                if has(old) != has(new) {
                    nodes.push(node.meta.key.name.clone());
                }
            });
            let (mut changed, now) = (self.changed(), Instant::now());
            changed.groups.insert(key.name.clone(), now);
            changed.nodes.extend(nodes.into_iter().map(|node| (node, now)));
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::observed::Observed;
    use crate::slim::Cached;

    const FIVE: Duration = Duration::from_secs(300);

    fn observed<T: Cached>(object: &Value) -> Observed<T::Wire> {
        serde_json::from_str(&object.to_string()).expect("metadata is there")
    }

    /// Two groups, and a node that is moved from place to place.
    struct Story {
        quiet: Quiet,
        nodes: Arc<Store<Node>>,
        groups: Arc<Store<Group>>,
        version: u64,
    }

    impl Story {
        fn new() -> Self {
            let (groups, nodes) = (Arc::<Store<Group>>::default(), Arc::<Store<Node>>::default());
            let quiet = Quiet::new(groups.clone(), nodes.clone());
            let mut story = Self { quiet, nodes, groups, version: 0 };
            for place in ["beijing", "hangzhou"] {
                story.set_group(place, place);
            }
            story.set_node(Some("beijing"));
            story
        }

        fn set_group(&mut self, name: &str, place: &str) {
            self.version += 1;
            let group = json!({"metadata": {"name": name, "uid": name, "resourceVersion": self.version.to_string()},
                "spec": {"matchLabels": {"place": place}}});
            let changes = self.groups.apply(Event::Apply(observed::<Group>(&group)));
            changes.iter().for_each(|change| self.quiet.on_group(change));
        }

        fn set_node(&mut self, place: Option<&str>) {
            self.version += 1;
            let labels: BTreeMap<&str, &str> = place.into_iter().map(|place| ("place", place)).collect();
            let node = json!({"metadata": {"name": "node", "uid": "node", "resourceVersion": self.version.to_string(),
                "labels": labels}});
            let changes = self.nodes.apply(Event::Apply(observed::<Node>(&node)));
            changes.iter().for_each(|change| self.quiet.on_node(change));
        }

        /// For how long beijing, hangzhou and the node are to be left alone.
        fn waits(&self) -> [u64; 3] {
            let seconds = |wait: Option<Duration>| wait.map_or(0, |wait| wait.as_secs());
            let group = |name: &str| seconds(self.quiet.wait([name], FIVE));
            [group("beijing"), group("hangzhou"), seconds(self.quiet.wait_for_node("node", FIVE))]
        }

        async fn pass(&self, seconds: u64) {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_has_left_a_group_waits_as_the_group_does() {
        let mut story = Story::new();
        assert_eq!(story.waits(), [300, 300, 300], "what was before is not known");
        story.pass(300).await;
        assert_eq!(story.waits(), [0, 0, 0]);
        story.set_node(None);
        assert_eq!(story.waits(), [300, 0, 300]);
        story.pass(100).await;
        story.set_node(Some("hangzhou"));
        assert_eq!(story.waits(), [200, 300, 300]);
        story.pass(300).await;
        assert_eq!(story.waits(), [0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_asks_for_other_nodes_has_those_wait_that_it_had() {
        let mut story = Story::new();
        story.pass(300).await;
        story.set_group("hangzhou", "nowhere");
        assert_eq!(story.waits(), [0, 300, 0], "the node is of the other");
        story.set_group("beijing", "nowhere");
        assert_eq!(story.waits(), [300, 300, 300]);
    }
}

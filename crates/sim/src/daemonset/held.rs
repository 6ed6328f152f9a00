//! What nodes are held back at, and which get what is new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::properties::STRAGGLER;
use super::rollout::{Place, Rollout, places};
use super::view::{Asked, begins, is_as_asked, is_deletion, is_open, is_owned_by, name_of, node_of};
use super::{NAME, NAMESPACE, SETS};
use crate::object::{is_out_of_service, list, text};
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// A node that is out of reach for so long does not keep a revision from being complete.
const PASSED_OVER: Duration = Duration::from_secs(590);
/// A manager tells what it has found within so long.
const TOLD: Duration = Duration::from_secs(3);

/// What is known of revisions and of those who have them.
#[derive(Default)]
pub(super) struct Held {
    /// The UID of the set.
    set: String,
    /// The last revision that was complete for so long that everybody knows.
    complete: Option<Value>,
    /// Those that may have looked complete to somebody since.
    perhaps: Vec<Value>,
    /// Since when the newest is complete.
    since: Option<Duration>,
    /// By node: what its last pod had.
    had: BTreeMap<String, Value>,
    /// By node: since when no pod can start there, or it is not ready.
    closed: BTreeMap<String, Duration>,
    /// By node: when it came, or its labels or taints changed.
    changed: BTreeMap<String, Duration>,
    /// Nodes whose labels have changed: what they get of an old revision is another rendering.
    relabelled: BTreeSet<String>,
}

/// What of a set makes its revision, in the form of a set.
fn revision_of(set: &Value) -> Value {
    let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
    json!({"spec": {"template": {"spec": {"containers": [{"image": image}]}}, "patches": set["spec"]["patches"]}})
}

/// What of a pod follows from its revision.
fn content_of(pod: &Value) -> Value {
    let container = &pod["spec"]["containers"][0];
    json!([container["image"], container["env"][0]["value"]])
}

impl Held {
    /// Looks at a write. `asked` is all that was asked for of late.
    pub(super) fn see(
        &mut self,
        write: &Write<'_>,
        server: &Server,
        asked: &[(Duration, Asked)],
        rollout: &Rollout,
    ) -> Result<(), String> {
        let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Ok(()) };
        let uid = text(&set["metadata"]["uid"]);
        if self.set != uid {
            let (closed, changed) = (std::mem::take(&mut self.closed), std::mem::take(&mut self.changed));
            *self = Self { set: uid.to_owned(), closed, changed, ..Self::default() };
        }
        self.note(write);
        let places = places(server, &set);
        let said = match places.iter().find(|place| name_of(&place.node) == node_of(&write.change.object)) {
            Some(place) if write.change.resource == "pods" && write.is_ours() && write.under_way < STRAGGLER => {
                self.judge(write, place, &places, asked, rollout)
            }
            _ => Ok(()),
        };
        if write.change.resource == "pods" && is_owned_by(&write.change.object, &set) {
            let pod = &write.change.object;
            self.had.insert(node_of(pod).to_owned(), content_of(pod));
        }
        self.complete(write, &set, &places, asked);
        said
    }

    fn note(&mut self, write: &Write<'_>) {
        if write.change.resource != "nodes" {
            return;
        }
        let (node, before) = (&write.change.object, write.change.previous.as_deref());
        let name = name_of(node).to_owned();
        let labels = |node: &Value| node["metadata"]["labels"].clone();
        if before.is_some_and(|before| labels(before) != labels(node)) || write.change.kind == ChangeKind::Deleted {
            self.relabelled.insert(name.clone());
        }
        let rest = |node: &Value| (labels(node), node["spec"].clone());
        if write.change.kind != ChangeKind::Modified || before.is_none_or(|before| rest(before) != rest(node)) {
            self.changed.insert(name.clone(), write.at);
        }
        if is_open(node) && write.change.kind != ChangeKind::Deleted {
            self.closed.remove(&name);
        } else {
            self.closed.entry(name).or_insert(write.at);
        }
    }

    /// Finds out whether what is asked for is complete.
    fn complete(&mut self, write: &Write<'_>, set: &Value, places: &[Place], asked: &[(Duration, Asked)]) {
        let (now, revision) = (write.at, revision_of(set));
        let is_done = |place: &Place, revision: &Value| place.live().any(|pod| is_as_asked(pod, revision, &place.node));
        let is_sure = |place: &Place| is_done(place, &revision) && place.pods.len() == 1 && place.is_well(set, now);
        if places.iter().all(is_sure) && asked.len() == 1 {
            let since = *self.since.get_or_insert(now);
            if since + write.memory + TOLD < now {
                self.complete = Some(revision);
                self.perhaps.clear();
                return;
            }
        } else {
            self.since = None;
        }
        for set in asked.iter().filter_map(|(_, asked)| asked.set.as_ref()) {
            let revision = revision_of(set);
            let (done, rest): (Vec<&Place>, Vec<&Place>) = places.iter().partition(|place| is_done(place, &revision));
            let is_lately = |place: &Place| self.is_lately(name_of(&place.node), write);
            let is_passed_over = |place: &Place| {
                let since = self.closed.get(name_of(&place.node));
                since.is_some_and(|since| *since + PASSED_OVER + TOLD < now + write.memory)
            };
            let has_no_place = |place: &Place| place.pods.is_empty() && !list(&place.node["spec"]["taints"]).is_empty();
            let may_look_so = rest.iter().all(|place| is_lately(place) || is_passed_over(place) || has_no_place(place))
                && rest.iter().filter(|place| is_passed_over(place)).count() <= done.len();
            if may_look_so && !self.perhaps.contains(&revision) {
                self.perhaps.push(revision);
            }
        }
    }

    /// Whether a node came or changed so lately that somebody may not know.
    fn is_lately(&self, node: &str, write: &Write<'_>) -> bool {
        self.changed.get(node).is_some_and(|when| *when + write.memory >= write.at)
    }

    /// A manager does something to a pod, or makes one.
    fn judge(
        &self,
        write: &Write<'_>,
        place: &Place,
        places: &[Place],
        asked: &[(Duration, Asked)],
        rollout: &Rollout,
    ) -> Result<(), String> {
        let pod = &write.change.object;
        let name = name_of(&place.node);
        if is_out_of_service(&place.node)
            || asked.iter().any(|(_, asked)| asked.set.as_ref().is_none_or(|set| !is_owned_by(pod, set)))
        {
            return Ok(());
        }
        let is_made = write.change.kind == ChangeKind::Added;
        let is_alone = place.live().count() <= usize::from(is_made || !is_deletion(write));
        let before = write.change.previous.as_deref().unwrap_or(pod);
        let is_wanted = |pod: &Value| {
            let mut sets = asked.iter().filter_map(|(_, asked)| asked.set.as_ref());
            sets.all(|set| is_as_asked(pod, set, &place.node))
        };
        if begins(write) && is_alone && !self.is_lately(name, write) && is_wanted(before) && is_deletion(write) {
            return Err(format!("{} on {name} is deleted though it means what is asked for", name_of(pod)));
        }
        if asked.iter().all(|(_, asked)| asked.is_on_delete) {
            return self.obeys_on_delete(write, place, is_alone, asked);
        }
        // Who is held back depends on all that there are.
        let is_any_lately = self.changed.values().any(|when| *when + write.memory >= write.at);
        let holds = |(_, asked): &(Duration, Asked)| is_held(asked, place, places);
        if is_any_lately || asked.iter().any(|(_, asked)| asked.is_on_delete || asked.is_paused) {
            return Ok(());
        }
        if asked.iter().all(holds) && !self.relabelled.contains(name) {
            if is_made && is_alone {
                return self.comes_back(pod, place);
            }
            let is_done = |pod: &Value| {
                asked.iter().any(|(_, asked)| asked.set.as_ref().is_some_and(|set| is_as_asked(pod, set, &place.node)))
            };
            if begins(write) && is_alone && !is_done(before) {
                return Err(format!("an update begins on {name} though it is held back: {}", name_of(pod)));
            }
        }
        self.has_place(write, place, places, asked, rollout)
    }

    /// Whatever is left in `rollingUpdate` means nothing: pods stay as they are, and what is made is what is asked for.
    fn obeys_on_delete(
        &self,
        write: &Write<'_>,
        place: &Place,
        is_alone: bool,
        asked: &[(Duration, Asked)],
    ) -> Result<(), String> {
        let (pod, name) = (&write.change.object, name_of(&place.node));
        // Of a node that had a taint until lately, a manager may have heard of the taint only: there the pod may not stay.
        if begins(write) && is_alone && !self.is_lately(name, write) {
            return Err(format!("{} on {name} is touched though the strategy is OnDelete", name_of(pod)));
        }
        let is_new = |pod: &Value| {
            let mut sets = asked.iter().filter_map(|(_, asked)| asked.set.as_ref());
            sets.any(|set| is_as_asked(pod, set, &place.node))
        };
        if write.change.kind == ChangeKind::Added && !is_new(pod) && !self.is_lately(name, write) {
            return Err(format!("with OnDelete, {name} gets what is not asked for any more: {}", content_of(pod)));
        }
        Ok(())
    }

    /// A node that is held back gets the last revision that was complete, or what it had.
    fn comes_back(&self, pod: &Value, place: &Place) -> Result<(), String> {
        let Some(complete) = &self.complete else { return Ok(()) };
        let mut known = self.perhaps.iter().chain([complete]);
        let had = self.had.get(name_of(&place.node));
        if known.any(|revision| is_as_asked(pod, revision, &place.node)) || had == Some(&content_of(pod)) {
            return Ok(());
        }
        let name = name_of(&place.node);
        let last = text(&complete["spec"]["template"]["spec"]["containers"][0]["image"]);
        Err(format!("{name} is held back and gets what was never complete: {}, not {last}", content_of(pod)))
    }

    /// With a selector and a partition, no more nodes get what is new than the partition leaves.
    fn has_place(
        &self,
        write: &Write<'_>,
        place: &Place,
        places: &[Place],
        asked: &[(Duration, Asked)],
        rollout: &Rollout,
    ) -> Result<(), String> {
        let (pod, name) = (&write.change.object, name_of(&place.node));
        let is_new = write.change.previous.as_ref().is_none_or(|before| content_of(before) != content_of(pod));
        let has_selector = asked.iter().all(|(_, asked)| !asked.selector.is_null());
        // Where the newest revision is the current one, there is no other to be held back at.
        if !is_new || !rollout.is_given(pod) || !has_selector || !rollout.has_other() {
            return Ok(());
        }
        let has_it = |place: &&Place| place.live().any(|pod| rollout.is_given(pod));
        let others: Vec<&str> =
            places.iter().filter(has_it).map(|place| name_of(&place.node)).filter(|other| *other != name).collect();
        let left = asked.iter().map(|(_, asked)| asked.nodes.saturating_sub(asked.partition)).max().unwrap_or(0);
        if others.len() + 1 > left && self.had.get(name) != Some(&content_of(pod)) {
            return Err(format!(
                "{name} gets what is new though the partition leaves {left} nodes: {}",
                others.join(", ")
            ));
        }
        Ok(())
    }
}

/// Whether the strategy holds a node back, for sure.
fn is_held(asked: &Asked, place: &Place, places: &[Place]) -> bool {
    if !asked.selector.is_null() {
        return asked.leaves_alone(&place.node);
    }
    let before = places.iter().filter(|other| name_of(&other.node) < name_of(&place.node)).count();
    before < asked.partition
}

//! How far rollouts may go: nodes that one has touched count until they are well, whatever befalls them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::daemonset::driven_off::{self, DRIVEN_OFF_ANNOTATION};
use dapple_plan::daemonset::pod::REVISION_ANNOTATION;
use serde_json::Value;

use super::properties::STRAGGLER;
use super::view::{
    Asked, begins, has_custom_taint, has_ended, is_available, is_begun, is_changing, is_deletion, is_owned_by, name_of,
    node_of,
};
use super::{NAME, NAMESPACE, SETS};
use crate::health::{BROKEN, illness_of};
use crate::object::{is_out_of_service, is_ready, is_terminating, list, ready_of, running_images, text, tolerates_all};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Write};

/// Longer than any node takes to fall ill: a set that waits for so long sees what its first nodes come to.
const PATIENT: i64 = 60;
/// Whoever is no further behind than this sees a node fall ill before its pod counts as available.
const ATTENTIVE: Duration = Duration::from_secs(6);

/// A node, and the set's pods there.
pub(super) struct Place {
    pub(super) node: Arc<Value>,
    pub(super) pods: Vec<Arc<Value>>,
}

impl Place {
    fn name(&self) -> &str {
        name_of(&self.node)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.pods.iter().filter(|pod| !has_ended(pod))
    }

    /// Whether the node is well: its pod is available, and it is ready itself.
    pub(super) fn is_well(&self, set: &Value, now: Duration) -> bool {
        is_ready(&self.node) && self.is_served(set, now)
    }

    /// Whether its pod is available.
    fn is_served(&self, set: &Value, now: Duration) -> bool {
        self.live().any(|pod| is_available(pod, set, now) && !is_begun(pod))
    }
}

fn is_shunned(node: &Value) -> bool {
    list(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == BROKEN.0)
}

/// All nodes with the pods of a set.
pub(super) fn places(server: &Server, set: &Value) -> Vec<Place> {
    let mut places: Vec<Place> =
        server.list("nodes").into_iter().map(|node| Place { node, pods: Vec::new() }).collect();
    for pod in server.list("pods").into_iter().filter(|pod| is_owned_by(pod, set)) {
        if let Some(place) = places.iter_mut().find(|place| place.name() == node_of(&pod)) {
            place.pods.push(pod);
        }
    }
    places
}

/// What is known of the rollout.
#[derive(Default)]
pub(super) struct Rollout {
    /// The UID of the set.
    set: String,
    /// Name and number of the newest revision.
    newest: (String, i64),
    /// The revision that the status calls current, and the number that it had when it was complete.
    current_name: String,
    current: Option<i64>,
    /// Numbers of all revisions, by name.
    numbers: BTreeMap<String, i64>,
    /// When the newest revision became so.
    began: Duration,
    /// By UID of a pod: when a manager made it or changed it last.
    written: BTreeMap<String, Duration>,
    /// By UID of a pod: the time that a manager noted with its last change, which is when it sent it.
    sent: BTreeMap<String, Duration>,
    /// By UID of a pod: when its deletion was asked for.
    leaving: BTreeMap<String, Duration>,
    /// By node: when a manager last asked for the deletion of a pod there.
    deleted: BTreeMap<String, Duration>,
    /// Nodes that count, since when, and whether that is because a rollout has touched them.
    counted: BTreeMap<String, (Duration, bool)>,
    /// Nodes that count or did, with until when.
    until: BTreeMap<String, Duration>,
    /// Nodes that a manager has begun with and that have not been well since, with who it was, and whether no rollout had
    /// touched them before: where somebody else has deleted a pod, the next one is of the newest revision, whatever the
    /// budget. Besides, when that was.
    begun: BTreeMap<String, (Actor, bool, Duration)>,
    /// Nodes whose kubelets are silent, since when.
    silent: BTreeMap<String, Duration>,
    /// By node: when somebody else last deleted a pod there, or the Node itself. Whoever sees that late, after it has begun
    /// there, takes what it has begun with for gone.
    robbed: BTreeMap<String, Duration>,
    /// When nodes last became ready, or ceased to be.
    turned: BTreeMap<String, Duration>,
    /// When nodes were last given back to service.
    returned: BTreeMap<String, Duration>,
    /// Nodes that are shunned, with which a manager had begun, and since when.
    shunned: BTreeMap<String, Duration>,
    /// Nodes that the newest revision says were driven off, and since when it says so.
    noted: BTreeMap<String, Duration>,
    /// The most that might be under way at once at any time.
    highest: usize,
    /// The most that could be under way at once since no node was ill.
    most: usize,
    /// The longest that anybody may have been behind in this run.
    behind: Duration,
}

impl Rollout {
    /// Looks at a write. `asked` is all that was asked for of late.
    pub(super) fn see(
        &mut self,
        write: &Write<'_>,
        server: &Server,
        asked: &[(Duration, Asked)],
    ) -> Result<(), String> {
        self.behind = self.behind.max(write.memory);
        self.note_node(write);
        let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Ok(()) };
        let uid = text(&set["metadata"]["uid"]);
        if self.set != uid {
            *self = Self {
                set: uid.to_owned(),
                behind: self.behind,
                silent: std::mem::take(&mut self.silent),
                turned: std::mem::take(&mut self.turned),
                returned: std::mem::take(&mut self.returned),
                ..Self::default()
            };
        }
        self.note(write, server, &set);
        let places = places(server, &set);
        self.note_well(write, &set, &places);
        let began = self.slot(write, &set, &places, asked);
        self.count(write.at, &set, &places, asked);
        // Who lowers the budget does not undo what was begun before.
        let limit = asked.iter().map(|(_, asked)| asked.limit()).max().unwrap_or(0);
        self.most = if self.begun.is_empty() { limit } else { self.most.max(limit) };
        self.highest = self.highest.max(limit);
        match write.change.resource {
            "pods" if write.is_ours() && write.under_way < STRAGGLER => {
                self.leaves_the_silent_alone(write, server)?;
                began.map_or(Ok(()), |node| self.is_within_budget(write, &node, &places, asked))
            }
            "nodes" => self.is_no_cascade(&set, &places, asked),
            _ => Ok(()),
        }
    }

    /// Whether a pod is of the newest revision, and has been given it by a manager since that is so.
    pub(super) fn is_given(&self, pod: &Value) -> bool {
        let written = self.written.get(text(&pod["metadata"]["uid"]));
        pod["metadata"]["annotations"][REVISION_ANNOTATION] == self.newest.0.as_str()
            && written.is_some_and(|written| *written > self.began)
    }

    /// Whether nodes may be held back at another revision than the newest.
    pub(super) fn has_other(&self) -> bool {
        !self.current_name.is_empty() && self.current_name != self.newest.0
    }

    /// Remembers what properties of later writes are about.
    fn note(&mut self, write: &Write<'_>, server: &Server, set: &Value) {
        if write.change.resource == "pods" {
            self.note_pod(write);
        }
        if ["controllerrevisions.apps", SETS].contains(&write.change.resource) {
            let number = |revision: &Value| revision["revision"].as_i64().unwrap_or(0);
            let owned: Vec<_> =
                server.list("controllerrevisions.apps").into_iter().filter(|of| is_owned_by(of, set)).collect();
            let newest = owned.iter().map(|of| (number(of), name_of(of))).max();
            let newest = newest.map(|(number, name)| (name.to_owned(), number)).unwrap_or_default();
            if newest != self.newest {
                self.newest = newest;
                self.began = write.at;
            }
            let current = owned.iter().find(|of| set["status"]["currentRevision"] == name_of(of));
            self.current_name = current.map(|of| name_of(of).to_owned()).unwrap_or_default();
            self.current = set["status"]["currentRevisionNumber"].as_i64().or(current.map(|of| number(of)));
            self.numbers = owned.iter().map(|of| (name_of(of).to_owned(), number(of))).collect();
            let newest = owned.iter().find(|of| name_of(of) == self.newest.0);
            let noted =
                driven_off::read(newest.and_then(|of| of["metadata"]["annotations"][DRIVEN_OFF_ANNOTATION].as_str()));
            self.noted.retain(|node, _| noted.contains_key(node.as_str()));
            for node in noted.into_keys() {
                self.noted.entry(node.to_string()).or_insert(write.at);
            }
        }
    }

    /// Remembers what becomes of nodes, whether there is a set or not.
    fn note_node(&mut self, write: &Write<'_>) {
        let node = &write.change.object;
        if write.change.resource != "nodes" {
            return;
        }
        if write.change.previous.as_ref().is_none_or(|before| ready_of(before) != ready_of(node)) {
            self.turned.insert(name_of(node).to_owned(), write.at);
        }
        if write.change.previous.as_ref().is_some_and(|before| is_out_of_service(before)) && !is_out_of_service(node) {
            self.returned.insert(name_of(node).to_owned(), write.at);
        }
        if write.change.kind == ChangeKind::Deleted {
            self.robbed.insert(name_of(node).to_owned(), write.at);
        }
        let is_its_doing = self.begun.get(name_of(node)).is_some_and(|(_, is_its_doing, _)| *is_its_doing);
        if write.change.kind == ChangeKind::Deleted || !is_shunned(node) {
            self.shunned.remove(name_of(node));
        } else if is_its_doing {
            self.shunned.entry(name_of(node).to_owned()).or_insert(write.at);
        }
        if write.change.kind != ChangeKind::Deleted && ready_of(node) == "Unknown" {
            self.silent.entry(name_of(node).to_owned()).or_insert(write.at);
        } else {
            self.silent.remove(name_of(node));
        }
    }

    fn note_pod(&mut self, write: &Write<'_>) {
        let pod = &write.change.object;
        let uid = text(&pod["metadata"]["uid"]).to_owned();
        if write.change.kind == ChangeKind::Deleted {
            self.written.remove(&uid);
            self.sent.remove(&uid);
            self.leaving.remove(&uid);
        } else if is_terminating(pod) {
            self.leaving.entry(uid.clone()).or_insert(write.at);
        }
        if !write.is_ours() {
            if is_deletion(write) {
                self.robbed.insert(node_of(pod).to_owned(), write.at);
            }
            return;
        }
        if is_deletion(write) {
            self.deleted.insert(node_of(pod).to_owned(), write.at);
            return;
        }
        let is_changed = |before: &Arc<Value>| {
            let revision = |pod: &Value| pod["metadata"]["annotations"][REVISION_ANNOTATION].clone();
            pod["spec"]["containers"] != before["spec"]["containers"] || revision(pod) != revision(before)
        };
        if write.change.previous.as_ref().is_none_or(is_changed) {
            // Of one that is made the API server notes the time.
            let under_way = if write.change.previous.is_some() { write.under_way } else { Duration::ZERO };
            self.sent.insert(uid.clone(), write.at.saturating_sub(under_way));
            self.written.insert(uid, write.at);
        }
    }

    /// The node on which a manager begins something with this write, if it takes a slot that the node does not have yet.
    fn slot(
        &mut self,
        write: &Write<'_>,
        set: &Value,
        places: &[Place],
        asked: &[(Duration, Asked)],
    ) -> Option<String> {
        let pod = &write.change.object;
        if write.change.resource != "pods" || !write.is_ours() || !is_owned_by(pod, set) {
            return None;
        }
        let place = places.iter().find(|place| place.name() == node_of(pod))?;
        if is_out_of_service(&place.node) {
            return None;
        }
        let live = place.live().count();
        let is_second = write.change.kind == ChangeKind::Added && live > 1;
        // One that is too many goes whatever the budget, and a change in place that was begun goes on.
        let goes_on = write.change.previous.as_deref().is_some_and(is_changing);
        let is_replaced = begins(write) && !goes_on && live <= usize::from(!is_deletion(write));
        if !is_second && !is_replaced {
            return None;
        }
        let name = place.name().to_owned();
        // A manager may hear of its pod before it hears of the node: then the node counts as one that has lost its pod.
        let is_lately = |when: Option<&Duration>| when.is_some_and(|when| *when + write.memory > write.at);
        // Of a pod that names no revision nobody knows whether the rollout made it: it counts as if it had.
        let is_unknown =
            |pod: &Arc<Value>| !self.numbers.contains_key(text(&pod["metadata"]["annotations"][REVISION_ANNOTATION]));
        let was_unwell = |before: &&Arc<Value>| !is_ready(&place.node) || !is_ready(before);
        let deleted: Option<Arc<Value>> = write.change.previous.as_ref().filter(was_unwell).cloned();
        // A node that is Ready counts without an available pod, whatever taints it has that the set tolerates.
        let was_down = write.change.previous.as_ref().is_some_and(|before| !is_available(before, set, write.at));
        let counts_itself = tolerates_all(&set["spec"]["template"])
            && is_ready(&place.node)
            && was_down
            && !place.is_served(set, write.at);
        let has_slot = self.counted.contains_key(&name)
            || counts_itself
            || is_lately(self.until.get(&name))
            || is_lately(self.turned.get(&name))
            || self.may_count_again(place, write.at, asked)
            || (!place.is_well(set, write.at) && place.live().chain(&deleted).any(is_unknown));
        let was_whole = !self.counted.get(&name).is_some_and(|(_, is_touched)| *is_touched);
        let is_its_doing = self.begun.get(&name).map_or(was_whole, |(_, is_its_doing, _)| *is_its_doing);
        self.begun.insert(name.clone(), (write.actor, is_its_doing, write.at));
        (!has_slot).then_some(name)
    }

    /// Time alone makes pods available: a node may have been well until this very write.
    fn note_well(&mut self, write: &Write<'_>, set: &Value, places: &[Place]) {
        let (object, before) = (&write.change.object, &write.change.previous);
        let (name, is_pod) = match write.change.resource {
            "pods" => (node_of(object), true),
            "nodes" => (name_of(object), false),
            _ => return,
        };
        let (Some(place), Some(before)) = (places.iter().find(|place| place.name() == name), before) else { return };
        let mut place = Place { node: place.node.clone(), pods: place.pods.clone() };
        if is_pod {
            place.pods.retain(|pod| pod["metadata"]["uid"] != object["metadata"]["uid"]);
            place.pods.push(before.clone());
        } else {
            place.node = before.clone();
        }
        if place.is_well(set, write.at) && self.counted.remove(name).is_some() {
            self.until.insert(name.to_owned(), write.at);
            self.begun.remove(name);
        }
    }

    /// Finds out which nodes count.
    fn count(&mut self, now: Duration, set: &Value, places: &[Place], asked: &[(Duration, Asked)]) {
        let counted: BTreeSet<&str> =
            places.iter().filter(|place| self.counts(place, set, now, asked)).map(Place::name).collect();
        for name in self.counted.keys().filter(|name| !counted.contains(name.as_str())) {
            self.until.insert(name.clone(), now);
        }
        // Should one that does not count count again, a manager has to be told first. What is begun this very moment counts from
        // the next on; perhaps not even then, since another rollout may begin in between.
        self.begun.retain(|name, (.., when)| counted.contains(name.as_str()) || *when == now);
        self.counted.retain(|name, _| counted.contains(name.as_str()));
        for place in places.iter().filter(|place| counted.contains(place.name())) {
            let is_touched = self.is_touched(place);
            let known = self.counted.entry(place.name().to_owned()).or_insert((now, is_touched));
            // One that another rollout has touched counts anew if its node has just become ready without a pod in service:
            // a manager that has not heard of that has no reason to count it any more, even if it began there itself.
            let is_anew = known.1 && !is_touched;
            *known = (if is_anew { now } else { known.0 }, is_touched);
            if is_anew {
                self.begun.remove(place.name());
            }
        }
        self.begun.retain(|name, _| places.iter().any(|place| place.name() == *name && !place.is_well(set, now)));
    }

    /// Whether a node counts, for sure.
    fn counts(&self, place: &Place, set: &Value, now: Duration, asked: &[(Duration, Asked)]) -> bool {
        let is_empty = place.pods.is_empty();
        let may_be_kept_empty = is_empty && asked.iter().any(|(_, asked)| asked.scales_partitioned);
        if is_out_of_service(&place.node) || place.is_well(set, now) || may_be_kept_empty {
            return false;
        }
        // A node that is well in itself takes from `maxUnavailable`; from `maxSurge`, once the rollout has touched it.
        if is_ready(&place.node) {
            let is_surge = asked.iter().any(|(_, asked)| asked.surge > 0);
            return (!is_surge && list(&place.node["spec"]["taints"]).is_empty()) || self.is_touched(place);
        }
        self.is_touched(place) && !asked.iter().any(|(_, asked)| self.has_soaked(place, now, asked))
    }

    /// Whether a node that is not Ready has not counted any more, and may since another time is asked for.
    fn may_count_again(&self, place: &Place, now: Duration, asked: &[(Duration, Asked)]) -> bool {
        let is_over = |(_, asked): &(Duration, Asked)| self.has_soaked(place, now, asked);
        !is_ready(&place.node) && self.is_touched(place) && asked.iter().any(is_over) && !asked.iter().all(is_over)
    }

    /// Whether it is so long that a node was touched that it does not count, by what is asked for.
    fn has_soaked(&self, place: &Place, now: Duration, asked: &Asked) -> bool {
        // Of a pod that is gone, nobody can know when that was asked for.
        let uids = || place.pods.iter().map(|pod| text(&pod["metadata"]["uid"]));
        let leaving = uids().filter_map(|uid| self.leaving.get(uid));
        let times = uids().filter_map(|uid| self.sent.get(uid)).chain(leaving);
        // What is written this very moment was decided on what was before.
        let last = times.filter(|at| **at < now).max().copied().unwrap_or_default();
        asked.soak.is_some_and(|soak| last + soak <= now)
    }

    /// Whether the rollout has touched a node, for sure.
    fn is_touched(&self, place: &Place) -> bool {
        let is_since = |when: Option<&Duration>| when.is_some_and(|when| *when > self.began);
        if place.pods.is_empty() {
            return is_since(self.deleted.get(place.name())) && !has_custom_taint(&place.node);
        }
        let uid = |pod: &Value| text(&pod["metadata"]["uid"]).to_owned();
        place.pods.iter().any(|pod| match () {
            () if is_terminating(pod) => is_since(self.leaving.get(&uid(pod))),
            () if has_ended(pod) => false,
            () => is_begun(pod) || self.is_given(pod) || self.is_after_current(pod),
        })
    }

    /// Whether a pod is of a revision after the current one: a rollout that did not end has left it.
    fn is_after_current(&self, pod: &Value) -> bool {
        let revision = text(&pod["metadata"]["annotations"][REVISION_ANNOTATION]);
        // Not while the last complete revision returns: an undo gets past nodes that nobody can reach.
        let is_undo = self.current_name == self.newest.0;
        let is_other = !is_undo && ![&self.current_name, &self.newest.0].iter().any(|known| *known == revision);
        let number = self.numbers.get(revision).filter(|_| is_other);
        self.current.zip(number).is_some_and(|(current, number)| *number > current)
    }

    /// Nodes that a manager must know to count besides this one.
    fn others<'p>(
        &self,
        write: &Write<'_>,
        node: &str,
        places: &'p [Place],
        asked: &[(Duration, Asked)],
    ) -> BTreeSet<&'p str> {
        let sets = || asked.iter().filter_map(|(_, asked)| asked.set.as_ref());
        let is_known = |place: &&Place| {
            let since = self.counted.get(place.name()).map(|(since, _)| since);
            let is_robbed = self.robbed.get(place.name()).is_some_and(|when| *when + write.memory > write.at);
            let has_begun = self.begun.get(place.name()).is_some_and(|(actor, ..)| *actor == write.actor);
            // Whoever sees the pod as it is, and the node as it was, takes it for well.
            let has_turned = self.turned.get(place.name()).is_some_and(|when| *when + write.memory > write.at);
            let may_look_well = has_turned && sets().any(|set| place.is_served(set, write.at));
            let counts = since.is_some_and(|since| *since + write.memory < write.at || (has_begun && !is_robbed));
            (!may_look_well && counts) || self.is_remembered(place, write, asked)
        };
        places.iter().filter(is_known).map(Place::name).filter(|name| *name != node).collect()
    }

    /// Whether every manager must know that this rollout has had a node shunned: the newest revision says so.
    fn is_remembered(&self, place: &Place, write: &Write<'_>, asked: &[(Duration, Asked)]) -> bool {
        let is_since = |when: Option<&Duration>| when.is_some_and(|when| *when > self.began);
        let noted = self.noted.get(place.name());
        // An undo gets past it, and where such nodes count for a while only, others may follow.
        let may_pass = self.current_name == self.newest.0 || asked.iter().any(|(_, asked)| asked.soak.is_some());
        !may_pass
            && noted.is_some_and(|since| *since + write.memory < write.at)
            && is_since(noted)
            && is_since(self.shunned.get(place.name()))
            && place.pods.is_empty()
            && !is_out_of_service(&place.node)
    }

    /// No more nodes are under way than may be.
    fn is_within_budget(
        &self,
        write: &Write<'_>,
        node: &str,
        places: &[Place],
        asked: &[(Duration, Asked)],
    ) -> Result<(), String> {
        let others = self.others(write, node, places, asked);
        let is_double = |place: &&Place| {
            let oldest = place.live().filter_map(|pod| self.written.get(text(&pod["metadata"]["uid"]))).max();
            let since = oldest.max(self.returned.get(place.name()));
            let is_counted = place.live().count() > 1 && !is_out_of_service(&place.node);
            is_counted && oldest.and(since).is_some_and(|since| *since + write.memory < write.at)
        };
        let doubles = places.iter().filter(is_double).map(Place::name).filter(|name| *name != node);
        let with_doubles: BTreeSet<&str> = others.iter().copied().chain(doubles).collect();
        // A second pod takes from `maxSurge`, and nothing from `maxUnavailable`: there it is one too many, and goes.
        let counted = |asked: &Asked| if asked.surge > 0 { &with_doubles } else { &others };
        if asked.iter().any(|(_, asked)| counted(asked).len() < asked.limit()) {
            return Ok(());
        }
        let limit = asked.iter().map(|(_, asked)| asked.limit()).max().unwrap_or(0);
        let others: Vec<&str> = with_doubles.into_iter().collect();
        Err(format!(
            "an update begins on {node} though {limit} may be under way at once: not well yet are {}",
            others.join(", ")
        ))
    }

    /// Deletions would hang there, and all strike once the network is back.
    fn leaves_the_silent_alone(&self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (pod, Some(before)) = (&write.change.object, &write.change.previous) else { return Ok(()) };
        let node = node_of(pod);
        let found = server.get("nodes", "", node).filter(|node| !is_out_of_service(node));
        let is_silent = self.silent.get(node).is_some_and(|since| *since + write.memory < write.at);
        let is_touched = begins(write)
            || (is_deletion(write) && !is_terminating(before))
            || pod["spec"]["containers"] != before["spec"]["containers"];
        if found.is_some() && is_silent && is_touched {
            let what = if is_deletion(write) { "deleted" } else { "changed" };
            return Err(format!("{} is {what} though the kubelet of {node} is silent", name_of(pod)));
        }
        Ok(())
    }

    /// Where a set waits for longer than nodes take to fall ill, no more fall ill than may be under way.
    fn is_no_cascade(&self, set: &Value, places: &[Place], asked: &[(Duration, Asked)]) -> Result<(), String> {
        let is_ill = |place: &&Place| {
            let makes_ill = |pod: &Arc<Value>| running_images(pod).any(|image| illness_of(image).is_some());
            self.counted.contains_key(place.name())
                && self.begun.get(place.name()).is_some_and(|(_, is_its_doing, _)| *is_its_doing)
                && !is_ready(&place.node)
                && place.pods.iter().any(makes_ill)
        };
        let ill: Vec<&str> = places.iter().filter(is_ill).map(Place::name).collect();
        // An undo gets past those that the rollout before has lost.
        let is_undo = self.current_name == self.newest.0;
        let is_hit = !is_undo && !tolerates_all(&set["spec"]["template"]);
        let shunned = self.shunned.iter().filter(|(_, since)| is_hit && **since > self.began);
        let shunned: Vec<&str> = shunned.map(|(name, _)| name.as_str()).collect();
        // Where nodes that are ill count for a while only, others may follow.
        let has_soak = asked.iter().any(|(_, asked)| asked.soak.is_some());
        let waits = set["spec"]["minReadySeconds"].as_i64();
        let is_patient = waits.is_some_and(|waits| waits >= PATIENT) && !has_soak;
        if ill.len() > self.most && is_patient && self.behind < ATTENTIVE {
            return Err(format!(
                "a bad revision has cost more nodes than {} that may be under way: {}",
                self.most,
                ill.join(", ")
            ));
        }
        if shunned.len() > self.highest && is_patient && self.behind < ATTENTIVE {
            return Err(format!(
                "a bad revision has had more nodes shunned than {} that may be under way: {}",
                self.highest,
                shunned.join(", ")
            ));
        }
        Ok(())
    }
}

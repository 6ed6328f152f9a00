//! Where pods are placed, and what becomes of those that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::costs::DELETION_COST;
use dapple_plan::group::division::Division;
use dapple_plan::group::edition::EDITION;
use dapple_plan::group::filter::held_back;
use dapple_plan::group::label::PREFIX;
use dapple_plan::group::placing::GATE;
use serde_json::Value;

use super::GROUPS;
use super::asking::{Asking, Rule};
use super::binding::resource;
use super::placing::is_gated;
use super::properties::{Past, has_ended};
use crate::object::{is_terminating, text};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Write};
use crate::webhook::{controller_of, resource_of};

/// A request that was under way for longer may come from a manager that has given it up, or leads no more.
pub(super) const STRAGGLER: Duration = Duration::from_secs(9);

/// Pods that are divided together: those of one revision of their controller, or of nobody's that ask for one policy.
pub(crate) type Owner = (String, String);

/// The groups, by name, as they are and were.
pub(super) type Groups = BTreeMap<String, Past<Arc<Value>>>;

/// What was seen of pods.
#[derive(Default)]
pub(super) struct Seats {
    /// By UID: which manager has placed a pod, if it knows that it has, and when.
    placed: BTreeMap<String, (Option<Actor>, Duration)>,
    /// The UIDs of an owner's pods that live.
    live: BTreeMap<Owner, BTreeSet<String>>,
    /// The most that there ever were.
    most: BTreeMap<Owner, usize>,
    /// Owners of which a pod was placed by a request that was given up: nobody counted it.
    uncounted: BTreeSet<Owner>,
    /// UIDs of Jobs of which somebody has ended a pod.
    disturbed: BTreeSet<String>,
}

impl Seats {
    /// Takes in a write of a pod.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let pod = &write.change.object;
        let (uid, owner) = (text(&pod["metadata"]["uid"]), owner_of(pod));
        let live = self.live.entry(owner.clone()).or_default();
        if is_live(pod) && write.change.kind != ChangeKind::Deleted {
            live.insert(uid.to_owned());
        } else {
            live.remove(uid);
        }
        let most = self.most.entry(owner).or_default();
        *most = (*most).max(live.len());
        let phase = text(&pod["status"]["phase"]);
        if !write.is_ours() && (phase == "Failed" || is_terminating(pod) && phase != "Succeeded") {
            self.disturbed.extend(controller_of(pod).map(|job| text(&job["uid"]).to_owned()));
        }
    }

    /// A manager has taken the gate off a pod: with the selector of a group of the policy that was asked for, or where nothing
    /// was; and it has given no seat twice.
    pub(super) fn placed(
        &mut self,
        write: &Write<'_>,
        asking: &Asking,
        groups: &Groups,
        server: &Server,
    ) -> Result<(), String> {
        let pod = &write.change.object;
        let Some(before) = write.change.previous.as_ref().filter(|before| is_gated(before) && !is_gated(pod)) else {
            return Ok(());
        };
        let (name, since) = (&pod["metadata"]["name"], write.at.saturating_sub(write.memory));
        let labels: BTreeMap<String, String> =
            serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
        if held_back(&labels, false).is_some() && !asks_by_template(server, pod) {
            return Err(format!("a pod leaves the gate, and its node gateway would hold it back: {name}, {labels:?}"));
        }
        let asked = asking.labels_for(before, since);
        let Some(group) = pod["metadata"]["labels"][GATE].as_str() else {
            let may_go = asked.iter().any(|labels| Rule::of(labels) == Rule::Free);
            return if may_go { Ok(()) } else { Err(format!("a pod is released that has to wait: {name}")) };
        };
        let divided = asked.iter().filter_map(|labels| match Rule::of(labels) {
            Rule::Divided(policy) => Some(policy),
            _ => None,
        });
        let mut versions = divided.flat_map(|policy| asking.policies(policy, since));
        if !versions.any(|policy| allows(policy, before, group, asking, since)) {
            return Err(format!("a pod is placed in a group that nothing asks for: {name} in {group}"));
        }
        let past = groups.get(group).into_iter().flatten().filter(|(until, _)| *until >= since);
        if !past.into_iter().any(|(_, group)| selects(pod, group)) {
            let selector = &pod["spec"]["nodeSelector"];
            return Err(format!("a gate goes off without the selector of the group: {name} in {group}, {selector}"));
        }
        let mut own = before["spec"]["nodeSelector"].as_object().into_iter().flatten();
        if !own.all(|(key, value)| pod["spec"]["nodeSelector"][key] == *value) {
            return Err(format!("a pod loses its own selector: {name} in {group}"));
        }
        let is_given_up = write.under_way > STRAGGLER;
        let by = Some(write.actor).filter(|_| !is_given_up);
        self.placed.insert(text(&pod["metadata"]["uid"]).to_owned(), (by, write.at));
        if is_given_up {
            self.uncounted.insert(owner_of(pod));
            return Ok(());
        }
        self.no_seat_twice(write, since, server)
    }

    /// Nobody has a seat that another of the same owner and group has, as far as whoever gave it could know: what it has placed
    /// itself, and what was placed long ago.
    fn no_seat_twice(&self, write: &Write<'_>, since: Duration, server: &Server) -> Result<(), String> {
        let pod = &write.change.object;
        if number_of(pod).is_some() {
            return Ok(());
        }
        let seat = |pod: &Value| {
            (pod["metadata"]["labels"][GATE].clone(), pod["metadata"]["annotations"][DELETION_COST].clone())
        };
        let is_known = |other: &Value| {
            let placed = self.placed.get(text(&other["metadata"]["uid"]));
            placed.is_some_and(|(by, at)| *by == Some(write.actor) || *at < since)
        };
        let is_same = |other: &Value| {
            other["metadata"]["uid"] != pod["metadata"]["uid"] && owner_of(other) == owner_of(pod) && is_live(other)
        };
        let has_seat = !seat(pod).1.is_null();
        let all = server.list("pods");
        let mut others = all.iter().filter(|other| has_seat && is_same(other) && seat(other) == seat(pod));
        match others.find(|other| is_known(other)) {
            Some(other) => {
                let (name, other) = (&pod["metadata"]["name"], &other["metadata"]["name"]);
                Err(format!("a seat is given twice: {:?} to {name}, which {other} has", seat(pod)))
            }
            None => Ok(()),
        }
    }

    /// Nothing waits that has a place, pods are divided as their policy says, and no Job has lost a pod.
    pub(super) fn is_settled(&self, asking: &Asking, server: &Server) -> Result<(), String> {
        let mut owners: BTreeMap<Owner, Vec<Arc<Value>>> = BTreeMap::new();
        for pod in server.list("pods").into_iter().filter(|pod| is_live(pod)) {
            owners.entry(owner_of(&pod)).or_default().push(pod);
        }
        for (owner, pods) in &owners {
            self.is_divided(owner, pods, asking, server)?;
        }
        for job in server.list("jobs.batch") {
            let failed = job["status"]["failed"].as_u64().unwrap_or(0);
            if failed > 0 && !self.disturbed.contains(text(&job["metadata"]["uid"])) {
                return Err(format!("a Job has failed pods: {}, {failed}", job["metadata"]["name"]));
            }
        }
        Ok(())
    }

    fn is_divided(&self, owner: &Owner, pods: &[Arc<Value>], asking: &Asking, server: &Server) -> Result<(), String> {
        let Some(first) = pods.first() else { return Ok(()) };
        // All pods of an owner have one application, but those of nobody's, which ask alike.
        let labels = asking.labels_for(first, Duration::MAX).pop().unwrap_or_default();
        let waiting: Vec<&Arc<Value>> = pods.iter().filter(|pod| is_gated(pod)).collect();
        let stuck = |why: &str| match waiting.first() {
            Some(pod) => Err(format!("a pod waits behind the gate, and {why}: {}", pod["metadata"]["name"])),
            None => Ok(()),
        };
        let policy = match Rule::of(&labels) {
            Rule::Free => return stuck("nothing asks for a policy"),
            Rule::Held => return Ok(()),
            Rule::Divided(policy) => policy,
        };
        let Some(found) = server.get(&resource(Pair::Propagation), "default", policy) else { return Ok(()) };
        let Some(mut division) = division(&found) else { return Ok(()) };
        let has_all = division.groups().iter().all(|group| server.get(GROUPS, "", group).is_some());
        // A pod with a selector of its own may fit no node of its group, and waits then.
        if !has_all || waiting.iter().any(|pod| pod["spec"]["nodeSelector"].is_object()) {
            return Ok(());
        }
        if pods.iter().any(|pod| is_kept(pod)) {
            return Ok(());
        }
        if pods.iter().any(|pod| number_of(pod).is_some()) {
            let start = start_of(first, asking, Duration::MAX).next().unwrap_or(0);
            let seat = |pod: &Value| number_of(pod).and_then(|number| number.checked_sub(start));
            let has_seat = waiting.iter().any(|pod| seat(pod).is_some_and(|seat| division.group_at(seat).is_some()));
            return if has_seat { stuck("its number has a seat") } else { Ok(()) };
        }
        let shares = division.counts(pods.len());
        let said = |pod: &Arc<Value>| pod["metadata"]["labels"][GATE].as_str().map(str::to_owned);
        if pods.iter().any(|pod| !is_gated(pod) && said(pod).is_none()) {
            // What came without the gate counts where its node is: enough that all who wait have a seat.
            let all_sit = shares.iter().sum::<usize>() == pods.len();
            return if all_sit { stuck("there is a seat for everybody") } else { Ok(()) };
        }
        let count = |group: &str| pods.iter().filter(|pod| said(pod).is_some_and(|said| said == group)).count();
        let counts: Vec<usize> = division.groups().iter().map(|group| count(group)).collect();
        if counts.iter().zip(&shares).any(|(count, share)| count < share) {
            stuck("a group has less than its share")?;
        }
        let has_grown = self.most.get(owner) == Some(&pods.len()) && !self.uncounted.contains(owner);
        // By range, those above the least number go elsewhere while their group has no room for them.
        let is_right = if division.is_by_range() { is_within(&counts, &shares, &division) } else { counts == shares };
        if !is_right && has_grown && asking.is_constant(policy) && is_constant(first, asking) {
            let name = &first["metadata"]["name"];
            return Err(format!("pods are not divided as asked for: {name} and others, {counts:?}, not {shares:?}"));
        }
        Ok(())
    }
}

/// Whether every group has its least number of pods, if that is its share, and none more than its greatest.
fn is_within(counts: &[usize], shares: &[usize], division: &Division) -> bool {
    let is_within =
        |group: usize| (shares[group].min(division.least(group))..=division.most(group)).contains(&counts[group]);
    (0..counts.len()).all(is_within)
}

/// Whether a policy has a pod of this owner go to a group; of one with a number, that very pod.
fn allows(policy: &Value, pod: &Value, group: &str, asking: &Asking, since: Duration) -> bool {
    let Some(mut division) = division(policy) else { return false };
    let Some(place) = division.groups().iter().position(|known| **known == *group) else { return false };
    let Some(number) = number_of(pod).filter(|_| !is_kept(pod)) else { return true };
    start_of(pod, asking, since).any(|start| {
        let seat = number.checked_sub(start);
        // One whose number is below the first has no seat of its own.
        seat.is_none_or(|seat| division.group_at(seat) == Some(place))
    })
}

/// Whether a pod was made by the edition of a group, and goes there for that, since it is a Job's and must not be made anew.
fn is_kept(pod: &Value) -> bool {
    controller_of(pod).is_some_and(|owner| owner["kind"] == "Job")
        && pod["metadata"]["annotations"][EDITION].is_string()
}

/// Whether nothing in the name of a pod has ever asked for something else.
fn is_constant(pod: &Value, asking: &Asking) -> bool {
    let mut at = controller_of(pod);
    while let Some(owner) = at {
        let uid = text(&owner["uid"]);
        if !asking.is_constant(uid) {
            return false;
        }
        at = asking.workloads(uid, Duration::MAX).next().and_then(controller_of);
    }
    true
}

pub(super) fn division(policy: &Value) -> Option<Division> {
    let spec: PropagationPolicySpec = serde_json::from_value(policy["spec"].clone()).ok()?;
    Division::of(&spec)
}

/// The first number that a pod's controller gave, at some time since then.
fn start_of(pod: &Value, asking: &Asking, since: Duration) -> impl Iterator<Item = usize> {
    let owner = controller_of(pod).unwrap_or_default();
    let starts = asking.workloads(text(&owner["uid"]), since).map(|of| of["spec"]["ordinals"]["start"].as_u64());
    let starts: Vec<usize> =
        starts.map(|start| start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0)).collect();
    starts.into_iter()
}

/// Whether pods of an owner have labels of policies by their template: those stay, whatever its application says.
fn asks_by_template(server: &Server, pod: &Value) -> bool {
    let asks =
        |owner: &Value| Pair::labels().any(|label| !owner["spec"]["template"]["metadata"]["labels"][label].is_null());
    let Some(owner) = controller_of(pod) else { return false };
    let known = resource_of(&owner).map(|resource| server.list(&resource)).unwrap_or_default();
    known.iter().find(|known| known["metadata"]["uid"] == owner["uid"]).is_none_or(|found| asks(found))
}

/// The number of a pod, if its controller numbers its pods.
pub(super) fn number_of(pod: &Value) -> Option<usize> {
    let label = match text(&controller_of(pod)?["kind"]) {
        "StatefulSet" => "apps.kubernetes.io/pod-index",
        "Job" => "batch.kubernetes.io/job-completion-index",
        _ => return None,
    };
    text(&pod["metadata"]["labels"][label]).parse().ok()
}

pub(crate) fn owner_of(pod: &Value) -> Owner {
    let labels = &pod["metadata"]["labels"];
    let hash = ["pod-template-hash", "controller-revision-hash"].iter().find_map(|key| labels[key].as_str());
    match controller_of(pod) {
        Some(owner) => (text(&owner["uid"]).to_owned(), hash.unwrap_or_default().to_owned()),
        None => ("nobody".to_owned(), text(&labels[Pair::Propagation.required()]).to_owned()),
    }
}

pub(crate) fn is_live(pod: &Value) -> bool {
    !has_ended(pod) && !is_terminating(pod)
}

/// Whether a pod has the selector of a group: its labels, if it names no nodes, else the label that its nodes are given.
fn selects(pod: &Value, group: &Value) -> bool {
    let selector = &pod["spec"]["nodeSelector"];
    let labels = group["spec"]["matchLabels"].as_object().filter(|labels| !labels.is_empty());
    match labels.filter(|_| crate::object::list(&group["spec"]["nodes"]).is_empty()) {
        Some(labels) => labels.iter().all(|(key, value)| selector[key] == *value),
        None => selector[format!("{PREFIX}{}", text(&group["metadata"]["name"]))] == "true",
    }
}

//! Many applications under one policy, which is turned from a group to another where no pod becomes ready, or whose images are broken
//! where they are: what the budgets of applications do not hold back, since each has one of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dapple_control::family::RepairLimits;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::open::MOST_OPEN;
use http::Method;
use serde_json::{Value, json};

use super::GROUPS;
use super::binding::{path as policy_path, resource};
use super::moves::is_well;
use super::properties::has_ended;
use super::script::PATH as GROUPS_PATH;
use super::seats::is_live;
use crate::kubelet::BAD_IMAGE;
use crate::object::{list, text};
use crate::script::{Edit, Event, Script};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, LEASE, LEASES, Write};

/// So many applications, of one pod each.
const APPLICATIONS: usize = 8;
/// Where they are, and where they are to go.
const GROUP_NAMES: [&str; 2] = ["here", "there"];
const SPREAD: &str = "crowded";
const TAGS: &str = "crowd-tags";
/// The label of their pods.
const LABEL: &str = "crowd";
const SUSPEND: &str = "dapple.dev/suspend";
const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// So few that applications are moved one by one, and so long that it is seen whether it was waited for.
const LIMITS: RepairLimits = RepairLimits { after: Duration::from_secs(60), per_minute: 3 };
/// So long before the policy is turned the group is changed.
const BEFORE: Duration = Duration::from_secs(25);
const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn create(path: String, body: Value) -> Edit {
    let what = format!("creates the {} {}", text(&body["kind"]), text(&body["metadata"]["name"]));
    Edit { what, method: Method::POST, path, body: Some(body) }
}

pub(super) fn change(what: &str, path: String, body: Value) -> Event {
    Event::User(Edit { what: what.to_owned(), method: Method::PATCH, path, body: Some(body) })
}

fn spread_path() -> String {
    format!("{}/{SPREAD}", policy_path(Pair::Propagation))
}

fn tags_path() -> String {
    format!("{}/{TAGS}", policy_path(Pair::Override))
}

fn weights(group: &str) -> Value {
    json!({"staticWeightList": [{"nodeGroupNames": [group], "weight": 1}]})
}

/// All pods of a group get a tag.
pub(super) fn rules(group: &str, tag: &str) -> Value {
    json!([{"targetNodeGroup": [group], "overriders": {"imageOverrider": [
        {"component": "Tag", "operator": "replace", "value": tag}]}}])
}

pub(super) fn named(kind: Pair, name: &str, spec: &Value) -> Edit {
    let (path, kind) = (policy_path(kind), kind.kind());
    create(
        path,
        json!({"apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}),
    )
}

fn application(number: usize) -> Edit {
    let name = format!("crowd-{number}");
    let labels = json!({Pair::Propagation.required(): SPREAD, Pair::Override.required(): TAGS});
    // One of them must never be moved.
    let annotations = if number == 0 { json!({PROTECTED: "false"}) } else { Value::Null };
    let own = json!({LABEL: name});
    let template = json!({"metadata": {"labels": own, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    create(
        "/apis/apps/v1/namespaces/default/replicasets".into(),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"replicas": 1, "selector": {"matchLabels": own}, "template": template}}),
    )
}

/// The applications come first. Their policy is turned in the end, or while managers die; by chance after the other group was
/// changed, or with the word that nobody is to be moved. Or their images are broken where they are, while managers die: drawn apart,
/// so that the others are as they were.
pub(super) fn turn_crowd(script: &mut Script, random: &mut fastrand::Rng) {
    let nodes: Vec<String> = (0..8).map(|number| format!("node-{number}")).collect();
    let group = |name: &str| {
        create(
            GROUPS_PATH.into(),
            json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
                "metadata": {"name": name}, "spec": {"nodes": nodes}}),
        )
    };
    script.setup.extend(GROUP_NAMES.map(group));
    script.setup.push(named(Pair::Propagation, SPREAD, &weights(GROUP_NAMES[0])));
    script.setup.push(named(Pair::Override, TAGS, &json!({"overrideRules": rules(GROUP_NAMES[1], BAD_IMAGE)})));
    script.setup.extend((0..APPLICATIONS).map(application));
    script.habits.has_webhook = true;
    script.habits.repair = LIMITS;
    let suspended =
        change("suspends the policy", spread_path(), json!({"metadata": {"annotations": {SUSPEND: "true"}}}));
    let breaks = fastrand::Rng::with_seed(script.seed ^ 0x0062_726b).u8(0..3) == 0;
    let turned = if breaks {
        // A manager whose clock is wrong cannot tell which pods are available.
        script.events.retain(|(_, event)| !matches!(event, Event::ClockJump { .. }));
        change("breaks the tag", tags_path(), json!({"spec": {"overrideRules": rules(GROUP_NAMES[0], BAD_IMAGE)}}))
    } else {
        change("turns the policy", spread_path(), json!({"spec": weights(GROUP_NAMES[1])}))
    };
    // That the policy is suspended, or the other group changed, holds back moves alone. What is broken is mended in the end.
    let is_suspended = random.u8(0..4) == 0 && !breaks;
    let turns = [Some(suspended).filter(|_| is_suspended), Some(turned)].into_iter().flatten();
    let is_late = random.bool() && !breaks;
    let at = if is_late { script.calm_at } else { Duration::from_millis(random.u64(200_000..300_000)) };
    let mut events: Vec<(Duration, Event)> = Vec::new();
    if random.bool() && !breaks {
        let path = format!("{GROUPS_PATH}/{}", GROUP_NAMES[1]);
        let fewer = change("takes a node from the group", path, json!({"spec": {"nodes": nodes[1..]}}));
        events.push((at.saturating_sub(BEFORE), fewer));
    }
    if is_late {
        script.finish.extend(turns);
    } else {
        events.extend(turns.map(|event| (at, event)));
        die_meanwhile(script, random, at, &mut events);
    }
    for (at, event) in events {
        let place = script.events.partition_point(|(other, _)| *other <= at);
        script.events.insert(place, (at, event));
    }
}

/// A manager dies after the policy is turned. In the end all is mended.
fn die_meanwhile(script: &mut Script, random: &mut fastrand::Rng, at: Duration, events: &mut Vec<(Duration, Event)>) {
    let back_after = Duration::from_millis(random.u64(0..20_000));
    let slot = random.usize(0..script.managers);
    events.push((at + Duration::from_millis(random.u64(0..90_000)), Event::Kill { slot, back_after }));
    script.calm_at = script.calm_at.max(at + Duration::from_secs(200));
    let mended = json!({"spec": {"overrideRules": rules(GROUP_NAMES[1], "2")}});
    script.finish.push(change("mends the tag", tags_path(), mended));
    let resumed = json!({"metadata": {"annotations": {SUSPEND: null}}});
    script.finish.push(change("lets the policy go on", spread_path(), resumed));
}

/// What was seen of the crowd.
#[derive(Default)]
pub(super) struct Crowd {
    /// Applications whose pod a manager took away, or restarted, and that have had no pod that is well since.
    lost: BTreeMap<Actor, BTreeSet<String>>,
    /// When each manager did so lately.
    lately: BTreeMap<Actor, VecDeque<Duration>>,
    /// Since when the policy is suspended.
    suspended: Option<Duration>,
    /// When each manager last came to hold the lease.
    leads_since: BTreeMap<Actor, Duration>,
    /// When the group that they are to go to was last changed, after it was made.
    changed: Option<Duration>,
}

impl Crowd {
    /// Takes in a write.
    pub(super) fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (object, before) = (&write.change.object, write.change.previous.as_deref());
        let name = text(&object["metadata"]["name"]);
        if write.change.resource == resource(Pair::Propagation) && name == SPREAD {
            let is_suspended = object["metadata"]["annotations"][SUSPEND] == "true";
            self.suspended = is_suspended.then(|| self.suspended.unwrap_or(write.at));
        }
        if write.change.resource == GROUPS && name == GROUP_NAMES[1] {
            let is_other = before.is_some_and(|before| before["spec"] != object["spec"]);
            self.changed = Some(write.at).filter(|_| is_other).or(self.changed);
        }
        if is_elected(write) {
            // It leads from now on at the soonest.
            self.leads_since.insert(write.actor, write.at);
        }
        let Some(application) = object["metadata"]["labels"][LABEL].as_str() else { return Ok(()) };
        if write.change.resource != "pods" {
            return Ok(());
        }
        if let Some(before) = before.filter(|before| write.is_ours() && is_disturbed(write, before)) {
            self.disturbed(write, application, before)?;
        }
        let pods = server.list("pods");
        let has_one = pods.iter().any(|pod| {
            pod["metadata"]["labels"][LABEL] == application && is_live(pod) && !has_ended(pod) && is_well(pod)
        });
        if has_one {
            self.lost.values_mut().for_each(|lost| _ = lost.remove(application));
        }
        Ok(())
    }

    /// A manager takes away a pod that is well, or restarts it.
    fn disturbed(&mut self, write: &Write<'_>, application: &str, before: &Value) -> Result<(), String> {
        let since = write.at.saturating_sub(write.memory);
        if before["metadata"]["annotations"][PROTECTED] == "false" {
            return Err(format!("a protected pod is moved: {application}"));
        }
        if self.suspended.is_some_and(|at| at < since) {
            return Err(format!("a pod is moved while its policy is suspended: {application}"));
        }
        // What it had sent before it came to hold the lease, it sent when it held it last.
        let sent = write.at.saturating_sub(write.under_way);
        let led = self.leads_since.get(&write.actor).and_then(|since| sent.checked_sub(*since));
        if led.is_some_and(|led| led < LIMITS.after) {
            return Err(format!("a pod is moved in the first minute of a leader: {application}, after {led:?}"));
        }
        let quiet_since = write.at.saturating_sub(LIMITS.after);
        if self.changed.is_some_and(|at| quiet_since < at && at < since) {
            return Err(format!("a pod is moved to a group whose nodes were others a moment ago: {application}"));
        }
        let lost = self.lost.entry(write.actor).or_default();
        // What it has done itself it knows, however old its view is.
        if lost.len() >= MOST_OPEN {
            return Err(format!("a pod is moved to where all applications lose theirs: {application} after {lost:?}"));
        }
        lost.insert(application.to_owned());
        let lately = self.lately.entry(write.actor).or_default();
        lately.push_back(write.at);
        lately.retain(|at| write.at.saturating_sub(*at) < MINUTE);
        // Counted anew after a change of leader, also if it leads again itself.
        if lately.len() > 2 * LIMITS.per_minute {
            return Err(format!("{} pods are moved in a minute, at last of {application}", lately.len()));
        }
        Ok(())
    }
}

/// Whether a manager comes to hold the lease.
pub(super) fn is_elected(write: &Write<'_>) -> bool {
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].clone();
    let (lease, before) = (&write.change.object, write.change.previous.as_deref());
    write.change.resource == LEASES
        && lease["metadata"]["name"] == LEASE
        && before.map(holder).as_ref() != Some(&holder(lease))
        && holder(lease) == write.actor.to_string()
}

/// Whether a pod that was well is taken away, or gets another image.
pub(super) fn is_disturbed(write: &Write<'_>, before: &Value) -> bool {
    let pod = &write.change.object;
    let images = |pod: &Value| -> Vec<Value> {
        list(&pod["spec"]["containers"]).iter().map(|container| container["image"].clone()).collect()
    };
    let is_gone = write.change.kind == ChangeKind::Deleted || !is_live(pod);
    is_live(before) && is_well(before) && (is_gone || images(before) != images(pod))
}

//! One application whose pods get other editions, several at a time: groups come in the order that the policy says, of a broken edition
//! one pod shows the harm, and no more are restarted than a PodDisruptionBudget has room for.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use dapple_plan::group::placing::GATE;
use dapple_plan::group::repair::ROLLOUT_MAX;
use http::Method;
use serde_json::{Value, json};

use super::binding::path as policy_path;
use super::crowd::{change, create, named};
use super::moves::{images, is_well};
use super::placing::is_gated;
use super::script::PATH as GROUPS_PATH;
use super::seats::is_live;
use crate::kubelet::BAD_IMAGE;
use crate::object::text;
use crate::script::{Edit, Event, Script};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Write};

/// The label of its pods.
const LABEL: &str = "trial";
/// PodDisruptionBudgets, as the server names them.
pub(super) const BUDGETS: &str = "poddisruptionbudgets.policy";
const BUDGETS_PATH: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const NAME: &str = "trial";
const TAGS: &str = "trial-tags";
/// Its groups, in the order in which they are to come: not that of their names.
const ORDER: [&str; 2] = ["trial-b", "trial-a"];
const ROLLOUT_ORDER: &str = "dapple.dev/rollout-order";
const REPLICAS: usize = 6;
/// So many pods may be away at once, once one of the group has shown that its edition is good.
const MOST_AWAY: usize = 3;

/// All pods get this tag.
fn rules(tag: &str) -> Value {
    let rule = |group: &str| {
        json!({"targetNodeGroup": [group], "overriders": {"imageOverrider": [
            {"component": "Tag", "operator": "replace", "value": tag}]}})
    };
    ORDER.map(rule).to_vec().into()
}

fn retag(tag: &str) -> Event {
    let path = format!("{}/{TAGS}", policy_path(Pair::Override));
    change(&format!("gives {NAME} the tag {tag}"), path, json!({"spec": {"overrideRules": rules(tag)}}))
}

fn tags() -> Edit {
    let mut tags = named(Pair::Override, TAGS, &json!({"overrideRules": rules("1")}));
    if let Some(body) = &mut tags.body {
        body["metadata"]["annotations"] = json!({ROLLOUT_MAX: MOST_AWAY.to_string(), ROLLOUT_ORDER: ORDER.join(",")});
    }
    tags
}

fn application() -> Edit {
    let labels = json!({Pair::Propagation.required(): NAME, Pair::Override.required(): TAGS});
    let own = json!({LABEL: NAME});
    let template = json!({"metadata": {"labels": own}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    create(
        "/apis/apps/v1/namespaces/default/replicasets".into(),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": NAME, "namespace": "default", "labels": labels},
            "spec": {"replicas": REPLICAS, "selector": {"matchLabels": own}, "template": template}}),
    )
}

/// A budget that lets one pod be away. Nobody counts pods for it after that: as slow as its controller may be.
fn budget() -> [Edit; 2] {
    let spec = json!({"minAvailable": REPLICAS - 1, "selector": {"matchLabels": {LABEL: NAME}}});
    let made = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": "default"}, "spec": spec});
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": REPLICAS,
        "desiredHealthy": REPLICAS - 1, "expectedPods": REPLICAS});
    let counted = Edit {
        what: format!("counts the pods of {NAME}"),
        method: Method::PATCH,
        path: format!("{BUDGETS_PATH}/{NAME}/status"),
        body: Some(json!({"status": status})),
    };
    [create(BUDGETS_PATH.into(), made), counted]
}

/// The application is there first. Then its tag changes twice, the second time perhaps to one that breaks it, and managers may die.
pub(super) fn try_editions(script: &mut Script, random: &mut fastrand::Rng) {
    // A manager whose clock is wrong cannot tell which pods are available.
    script.events.retain(|(_, event)| !matches!(event, Event::ClockJump { .. }));
    let nodes: Vec<String> = (0..8).map(|number| format!("node-{number}")).collect();
    let group = |name: &str| {
        create(
            GROUPS_PATH.into(),
            json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
                "metadata": {"name": name}, "spec": {"nodes": nodes}}),
        )
    };
    let weights = ORDER.map(|group| json!({"nodeGroupNames": [group], "weight": 1}));
    script.setup.extend(ORDER.map(&group));
    // They go with their CRD, if that goes.
    script.finish.extend(ORDER.map(|name| Event::User(group(name))));
    script.setup.push(named(Pair::Propagation, NAME, &json!({"staticWeightList": weights})));
    script.setup.push(tags());
    script.setup.push(application());
    if random.bool() {
        script.setup.extend(budget());
        let path = format!("{BUDGETS_PATH}/{NAME}");
        let what = format!("deletes the PodDisruptionBudget {NAME}");
        // Since nobody counts for it, pods that were moved would hold up the others for ever.
        script.finish.push(Event::User(Edit { what, method: Method::DELETE, path, body: None }));
    }
    script.finish.push(retag("4"));
    script.habits.has_webhook = true;
    let first = random.u64(60_000..120_000);
    let second = first + random.u64(0..60_000);
    let last = if random.bool() { BAD_IMAGE } else { "3" };
    for (at, tag) in [(first, "2"), (second, last)] {
        let mut events = vec![(at, retag(tag))];
        if random.u8(0..4) == 0 {
            let back_after = Duration::from_millis(random.u64(0..20_000));
            let slot = random.usize(0..script.managers);
            events.push((at + random.u64(0..20_000), Event::Kill { slot, back_after }));
        }
        for (at, event) in events {
            let at = Duration::from_millis(at);
            let place = script.events.partition_point(|(other, _)| *other <= at);
            script.events.insert(place, (at, event));
        }
    }
    script.calm_at = script.calm_at.max(Duration::from_millis(second + 120_000));
}

/// A pod, as it was seen.
struct Seen {
    /// Since when it has these images to run.
    unchanged: Duration,
    /// Since when it is well, if it is.
    well: Option<Duration>,
}

/// What was seen of the application.
#[derive(Default)]
pub(super) struct Trial {
    /// When a pod last came, went or got a group.
    placed: Duration,
    /// Pods that live, by UID.
    pods: BTreeMap<String, Seen>,
    /// By UID, pods that each manager has restarted and that have not been well since, and whether what they run is broken.
    open: BTreeMap<Actor, BTreeMap<String, bool>>,
}

impl Trial {
    /// Takes in a write.
    pub(super) fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        if write.change.resource != "pods" || !is_own(&write.change.object) {
            return Ok(());
        }
        let before = write.change.previous.as_deref().filter(|before| write.is_ours() && is_restarted(write, before));
        if before.is_some() {
            self.restarted(write, server)?;
        }
        self.note(write);
        Ok(())
    }

    /// A manager gives a pod another image that is well.
    fn restarted(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let pod: &Value = &write.change.object;
        let since = write.at.saturating_sub(write.memory);
        let (uid, name) = (text(&pod["metadata"]["uid"]), &pod["metadata"]["name"]);
        let is_broken = images(pod).into_iter().any(|image| text(image).ends_with(BAD_IMAGE));
        let was_well = self.pods.get(uid).and_then(|seen| seen.well).is_some_and(|at| at < since);
        // One that may have been down, as far as the manager knew, waits for nothing but what it has restarted itself.
        if was_well {
            self.is_in_turn(pod, since, server)?;
        }
        // What it has done itself it knows, however old its view is.
        let open = self.open.entry(write.actor).or_default();
        if was_well && is_broken && open.values().any(|is_broken| *is_broken) {
            return Err(format!("a second pod gets an edition that is broken: {name}"));
        }
        if was_well && !open.is_empty() && server.get(BUDGETS, "default", NAME).is_some() {
            return Err(format!("a pod is restarted though its PodDisruptionBudget has no room: {name}"));
        }
        open.insert(uid.to_owned(), is_broken);
        Ok(())
    }

    /// No pod of a group is changed while one of a group before it lacks what it is given. Where pods have come, gone or got a group
    /// too lately for the manager to know, or where some may have to be moved, nothing is asked.
    fn is_in_turn(&self, pod: &Value, since: Duration, server: &Server) -> Result<(), String> {
        let place = |pod: &Value| ORDER.iter().position(|group| pod["metadata"]["labels"][GATE] == **group);
        let all = server.list("pods");
        let own: Vec<&Value> = all.iter().map(|pod| &**pod).filter(|pod| is_own(pod) && is_live(pod)).collect();
        let count = |group: usize| own.iter().filter(|pod| place(pod) == Some(group)).count();
        let is_even = (0..ORDER.len()).all(|group| count(group) == REPLICAS / ORDER.len());
        if self.placed >= since || own.len() != REPLICAS || !is_even {
            return Ok(());
        }
        let is_known = |other: &Value| {
            let seen = self.pods.get(text(&other["metadata"]["uid"]));
            seen.is_some_and(|seen| seen.unchanged < since)
        };
        let is_behind = |other: &&&Value| place(other) < place(pod) && images(other) != images(pod) && is_known(other);
        match own.iter().find(is_behind) {
            Some(other) => {
                let (name, other) = (&pod["metadata"]["name"], &other["metadata"]["name"]);
                Err(format!("a group comes before its turn: {name} is changed, and {other} is not"))
            }
            None => Ok(()),
        }
    }

    fn note(&mut self, write: &Write<'_>) {
        let pod: &Value = &write.change.object;
        let before = write.change.previous.as_deref();
        let uid = text(&pod["metadata"]["uid"]);
        let is_gone = write.change.kind == ChangeKind::Deleted || !is_live(pod);
        let place = |pod: &Value| (is_live(pod), is_gated(pod), pod["metadata"]["labels"][GATE].clone());
        if is_gone || before.map(place) != Some(place(pod)) {
            self.placed = write.at;
        }
        if is_gone || is_well(pod) {
            self.open.values_mut().for_each(|open| _ = open.remove(uid));
        }
        if is_gone {
            self.pods.remove(uid);
            return;
        }
        let seen = self.pods.entry(uid.to_owned()).or_insert(Seen { unchanged: write.at, well: None });
        if before.is_some_and(|before| images(before) != images(pod)) {
            seen.unchanged = write.at;
        }
        seen.well = is_well(pod).then(|| seen.well.unwrap_or(write.at));
    }
}

/// Whether a pod is of this application.
pub(super) fn is_own(pod: &Value) -> bool {
    pod["metadata"]["labels"][LABEL] == NAME
}

/// Whether a pod that was well gets another image where it runs.
fn is_restarted(write: &Write<'_>, before: &Value) -> bool {
    is_live(before) && !is_gated(before) && is_well(before) && images(before) != images(&write.change.object)
}

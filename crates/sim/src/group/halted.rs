//! A StatefulSet whose rollout halts, since its pods are made anew only once somebody deletes them. Meanwhile none that is well gets
//! another edition, or is moved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use serde_json::{Value, json};

use super::binding::path as policy_path;
use super::crowd::{change, create, is_disturbed, named, rules};
use super::moves::is_well;
use super::script::PATH as GROUPS_PATH;
use super::seats::is_live;
use crate::faults::Weather;
use crate::object::text;
use crate::script::{Event, Script};
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// The StatefulSet, the label of its pods, the policy that divides them, and its group.
const NAME: &str = "halted";
const TAGS: &str = "halted-tags";
/// The annotation of its template by which one rollout differs from the next.
const ROUND: &str = "round";
/// As the server names them.
const SETS: &str = "statefulsets.apps";
const SETS_PATH: &str = "/apis/apps/v1/namespaces/default/statefulsets";
/// So long after the last event everybody knows what is true.
const KNOWN_AFTER: Duration = Duration::from_secs(340);
/// So long it is looked what comes of another edition.
const LOOKED_FOR: Duration = Duration::from_secs(60);

/// The workload is there first. After all else its rollout begins, and halts; then its tag changes. In the end it goes on.
pub(super) fn halt(script: &mut Script, random: &mut fastrand::Rng) {
    let nodes: Vec<String> = (0..8).map(|number| format!("node-{number}")).collect();
    let group = || {
        create(
            GROUPS_PATH.into(),
            json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
                "metadata": {"name": NAME}, "spec": {"nodes": nodes}}),
        )
    };
    let own = json!({NAME: "yes"});
    let template = json!({"metadata": {"labels": own, "annotations": {ROUND: "1"}},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let labels = json!({Pair::Propagation.required(): NAME, Pair::Override.required(): TAGS});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": NAME, "namespace": "default", "labels": labels},
        "spec": {"replicas": 2, "selector": {"matchLabels": own}, "template": template,
            "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}});
    script.setup.extend([
        group(),
        named(Pair::Propagation, NAME, &json!({"staticWeightList": [{"nodeGroupNames": [NAME], "weight": 1}]})),
        named(Pair::Override, TAGS, &json!({"overrideRules": rules(NAME, "1")})),
        create(SETS_PATH.into(), set),
    ]);
    script.habits.has_webhook = true;
    // Where much goes wrong, nobody can be blamed for what they do not know.
    if random.bool() {
        script.weather = Weather { calls: script.weather.calls, ..Weather::CALM };
    }
    let (set_path, tags_path) = (format!("{SETS_PATH}/{NAME}"), format!("{}/{TAGS}", policy_path(Pair::Override)));
    let next = json!({"spec": {"template": {"metadata": {"annotations": {ROUND: "2"}}}}});
    let begins = change("begins the rollout of halted", set_path.clone(), next);
    let retagged = json!({"spec": {"overrideRules": rules(NAME, "2")}});
    let retags = change("gives halted another tag", tags_path, retagged);
    let (begun_at, retagged_at) = (script.calm_at, script.calm_at + KNOWN_AFTER);
    script.events.extend([(begun_at, begins), (retagged_at, retags)]);
    script.calm_at = retagged_at + LOOKED_FOR;
    let goes_on = json!({"spec": {"updateStrategy": null}});
    script.finish.push(change("lets the rollout of halted go on", set_path, goes_on));
    // It goes with its CRD, if that goes.
    script.finish.push(Event::User(group()));
}

/// What was seen of the workload.
#[derive(Default)]
pub(super) struct Halted {
    /// Since when its rollout has not ended, and does not go on.
    since: Option<Duration>,
    /// Since when pods of it are well, by UID.
    well: BTreeMap<String, Duration>,
}

impl Halted {
    /// Takes in a write.
    pub(super) fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (object, before) = (&write.change.object, write.change.previous.as_deref());
        let is_pod = write.change.resource == "pods" && is_own(object);
        let is_set = write.change.resource == SETS && object["metadata"]["name"] == NAME;
        if !is_pod && !is_set {
            return Ok(());
        }
        if is_pod && write.is_ours() && before.is_some_and(|before| is_disturbed(write, before)) {
            let known_since = write.at.saturating_sub(write.memory);
            let well = self.well.get(text(&object["metadata"]["uid"])).copied();
            if [self.since, well].into_iter().all(|at| at.is_some_and(|at| at < known_since)) {
                let name = text(&object["metadata"]["name"]);
                return Err(format!("a pod that is well is changed or moved while its workload rolls out: {name}"));
            }
        }
        self.since = is_halted(server).then(|| self.since.unwrap_or(write.at));
        if is_pod {
            let uid = text(&object["metadata"]["uid"]).to_owned();
            if write.change.kind != ChangeKind::Deleted && is_live(object) && is_well(object) {
                self.well.entry(uid).or_insert(write.at);
            } else {
                self.well.remove(&uid);
            }
        }
        Ok(())
    }
}

fn is_own(pod: &Value) -> bool {
    pod["metadata"]["labels"][NAME].is_string()
}

/// Whether a pod lives that is of the template before, and nobody makes it anew.
fn is_halted(server: &Server) -> bool {
    let Some(set) = server.get(SETS, "default", NAME) else { return false };
    let is_old = |pod: &Arc<Value>| {
        let round = &pod["metadata"]["annotations"][ROUND];
        is_own(pod) && is_live(pod) && *round != set["spec"]["template"]["metadata"]["annotations"][ROUND]
    };
    set["spec"]["updateStrategy"]["type"] == "OnDelete" && server.list("pods").iter().any(is_old)
}

//! Taking DaemonSets over from another product: what was found, what stands in the way, and what will be done. What belongs to
//! pools is taken over in [`pool`].
//!
//! Nothing may restart, and no object may be lost. So everything that could go wrong is looked for first, and told all
//! at once; whoever stops the other controller is the person who runs it, never dapple.

pub mod crd;
pub mod hooks;
pub mod pool;
pub mod product;
pub mod sets;
pub mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dapple_api::kinds;
use serde_json::Value;

use self::hooks::Edited;
use self::product::{Holder, Product, SeenLease, Workload};
use self::sets::{OwnedPod, Set};

/// The resource that is taken over.
pub const RESOURCE: &str = kinds::DAEMON_SET.at.plural;
/// Its CustomResourceDefinition.
pub const CRD: &str = "daemonsets.apps.kruise.io";

/// Why nothing is adopted yet, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whose fault it is: kind, namespace and name.
    pub object: String,
    /// Where in the object.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}; {}", self.object, self.field, self.problem, self.remedy)
    }
}

/// What was found in the cluster, as the API server gave it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The CRD.
    pub crd: Value,
    /// Deployments of any namespace that may run the other product.
    pub deployments: Vec<Value>,
    /// Leases that the other product's controllers elect their leader by.
    pub leases: Vec<SeenLease>,
    /// Mutating- and ValidatingWebhookConfigurations, with their `kind`.
    pub hooks: Vec<Value>,
    /// The DaemonSets as v1beta1, or why they cannot be listed.
    pub sets: Result<Vec<Result<Set, Refusal>>, String>,
    /// ControllerRevisions that belong to DaemonSets of this group.
    pub revisions: Vec<Value>,
    /// Pods that belong to DaemonSets of this group.
    pub pods: Vec<OwnedPod>,
    /// What the API server would refuse of the pods that dapple would make.
    pub refused: Vec<Refusal>,
}

/// What taking over means here.
#[derive(Debug, Clone, PartialEq)]
pub struct Adoption {
    /// What the CRD says of itself.
    pub crd: crd::Facts,
    /// The other product's Deployments.
    pub workloads: Vec<Workload>,
    /// Who leads among its controllers, or did last.
    pub holders: Vec<Holder>,
    /// Whether the API server lists DaemonSets at all.
    pub is_listed: bool,
    /// The DaemonSets that can be read, as v1beta1.
    pub sets: Vec<Set>,
    /// Their pods, by UID.
    pub pods: BTreeMap<String, String>,
    /// How many revisions they have.
    pub revisions: usize,
    /// Webhook configurations as they will be.
    pub hooks: Vec<Edited>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// What stands in the way. Empty: it can be done.
    pub refusals: Vec<Refusal>,
}

/// Judges what was found. `now` is in seconds since 1970.
pub fn judge(observed: &Observed, allow_restarts: bool, now: i64) -> Adoption {
    let crd = crd::facts(&observed.crd);
    let workloads: Vec<Workload> = observed.deployments.iter().filter_map(product::workload).collect();
    let holders: Vec<Holder> = observed.leases.iter().filter_map(|seen| product::holder(seen, now)).collect();
    let product = Product::new(&workloads, &holders, &crd);
    let mut refusals: Vec<Refusal> = workloads.iter().filter_map(Workload::refusal).collect();
    refusals.extend(holders.iter().filter_map(Holder::refusal));
    refusals.extend(crd::refusals(&crd));
    let mut notes: Vec<String> = crd::notes(CRD, kinds::DAEMON_SET.at.kind, &crd).into_iter().collect();

    let mut edited = Vec::new();
    for configuration in &observed.hooks {
        let looked = hooks::look(configuration, &product);
        edited.extend(looked.edited);
        refusals.extend(looked.refusals);
        notes.extend(looked.notes);
    }

    let mut sets = Vec::new();
    match &observed.sets {
        Ok(found) => {
            for set in found {
                match set {
                    Ok(set) => sets.push(set.clone()),
                    Err(refusal) => refusals.push(refusal.clone()),
                }
            }
        }
        Err(error) => refusals.push(crd::unlisted(error, &workloads)),
    }
    for set in &sets {
        let told = sets::compare(set, &observed.revisions, &observed.pods);
        if !allow_restarts {
            refusals.extend(told.refusal);
        } else if let Some(refusal) = told.refusal {
            notes.push(format!("{}: {} {}, as allowed", refusal.object, refusal.field, refusal.problem));
        }
        notes.extend(told.note);
    }
    // What ran before is excused, and goes on: it stands in nobody's way.
    notes.extend(observed.refused.iter().map(ToString::to_string));
    let uids: BTreeSet<&str> = sets.iter().map(|set| set.uid.as_str()).collect();
    let is_theirs = |pod: &&OwnedPod| uids.contains(pod.owner.as_str());
    let pods = observed.pods.iter().filter(is_theirs).map(|pod| (pod.uid.clone(), pod.to_string())).collect();
    let revisions =
        observed.revisions.iter().filter(|found| sets::owner_of(found).is_some_and(|uid| uids.contains(uid))).count();
    let is_listed = observed.sets.is_ok();
    Adoption { crd, workloads, holders, is_listed, sets, pods, revisions, hooks: edited, notes, refusals }
}

impl Adoption {
    /// Whether objects may be stored in an older version, so that each has to be written once.
    pub fn migrates(&self) -> bool {
        !self.crd.is_stored_only_as_v1beta1()
    }

    /// What will be done, in order.
    pub fn steps(&self) -> Vec<String> {
        let mut steps: Vec<String> = self.hooks.iter().flat_map(|edited| edited.steps.clone()).collect();
        steps.push(format!("replace the spec of CRD {CRD}; the CRD stays, and so do its objects"));
        if self.migrates() {
            let count = self.sets.len();
            steps.push(format!("write each of {count} DaemonSets once, so that it is stored as v1beta1"));
            steps.push("set status.storedVersions of the CRD to v1beta1 alone".to_owned());
        }
        let (sets, pods) = (self.sets.len(), self.pods.len());
        steps.push(format!("check that all of {sets} DaemonSets can be read and none of {pods} pods changed"));
        steps.push("label the CRD as dapple's: a manager of dapple serves it from then on".to_owned());
        steps
    }
}

/// `namespace/name` of an object.
pub(crate) fn name_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    match text("namespace").as_str() {
        "" => text("name"),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

/// The texts of a list; what is no text is passed over.
pub(crate) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adopt::crd::Reading;

    fn set(name: &str, image: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": image}]}}}})
    }

    fn observed(objects: Vec<Value>) -> Observed {
        let reading = Reading { version: "v1beta1", is_relabelled: false };
        let owner = |uid: &str| json!([{"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "controller": true, "uid": uid}]);
        let revision = |set: &Value| {
            let name = set["metadata"]["name"].as_str().unwrap_or_default();
            json!({"metadata": {"name": format!("{name}-1"), "ownerReferences": owner(name)}, "revision": 1,
                "data": {"spec": {"template": set["spec"]["template"]}}})
        };
        let pod = |set: &Value| {
            let name = set["metadata"]["name"].as_str().unwrap_or_default();
            sets::pod(&json!({"metadata": {"name": format!("{name}-x"), "uid": format!("{name}-uid"),
                "labels": {"controller-revision-hash": "1"}, "ownerReferences": owner(name)}}))
        };
        Observed {
            crd: json!({"metadata": {"uid": "u"}, "status": {"storedVersions": ["v1beta1"]}}),
            deployments: Vec::new(),
            leases: Vec::new(),
            hooks: Vec::new(),
            revisions: objects.iter().map(revision).collect(),
            pods: objects.iter().filter_map(pod).collect(),
            refused: Vec::new(),
            sets: Ok(objects.into_iter().map(|object| sets::read(object, reading)).collect()),
        }
    }

    #[test]
    fn what_is_taken_over_is_a_kind_of_ours() {
        assert_eq!(CRD, kinds::DAEMON_SET.crd());
    }

    #[test]
    fn what_can_be_adopted_is_told_step_by_step() {
        let found = judge(&observed(vec![set("a", "x:1"), set("b", "x:1")]), false, 0);
        assert_eq!((found.refusals.len(), found.notes.len(), found.revisions, found.pods.len()), (0, 0, 2, 2));
        assert!(!found.migrates());
        assert_eq!(found.steps().len(), 3, "{:?}", found.steps());
        let mut older = observed(vec![set("a", "x:1")]);
        older.crd["status"]["storedVersions"] = json!(["v1alpha1", "v1beta1"]);
        assert_eq!(judge(&older, false, 0).steps().len(), 5);
    }

    #[test]
    fn everything_that_stands_in_the_way_is_told_at_once() {
        let mut found = observed(vec![
            set("a", "x:1"),
            set("b", "x:1"),
            json!({"metadata": {"name": "c"}, "spec": {"template": 7}}),
        ]);
        found.revisions.remove(0);
        found.crd["status"]["storedVersions"] = json!(["v1beta2"]);
        found.deployments.push(json!({"metadata": {"name": "kruise-controller-manager", "namespace": "kruise-system",
            "labels": {"control-plane": "controller-manager"}}}));
        found
            .hooks
            .push(json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "kruise-all"}, "webhooks": [
            {"name": "all", "rules": [{"apiGroups": ["apps.kruise.io"], "resources": ["*"]}]}]}));
        let told = |allow_restarts: bool| -> Vec<String> {
            judge(&found, allow_restarts, 0).refusals.iter().map(ToString::to_string).collect()
        };
        let all = told(false);
        let parts = [
            ("Deployment kruise-system/kruise-controller-manager: spec.replicas is 1", "--replicas=0"),
            ("status.storedVersions has v1beta2", "v1beta1"),
            ("webhooks[0].rules[0].resources is a wildcard", "list what the webhook is for"),
            ("DaemonSet c: spec", "correct or delete it"),
            ("DaemonSet default/a: spec.template is in no revision", "--allow-restarts"),
        ];
        assert_eq!(all.len(), parts.len(), "{all:#?}");
        for ((what, remedy), line) in parts.iter().zip(&all) {
            assert!(line.contains(what) && line.contains(remedy), "{line} has not {what} and {remedy}");
        }
        assert_eq!(told(true).len(), 4);
        assert!(judge(&found, true, 0).notes.iter().any(|note| note.ends_with("as allowed")));
    }

    #[test]
    fn what_would_be_refused_is_told_and_stops_nothing() {
        let mut found = observed(vec![set("a", "x:1")]);
        found.refused.push(Refusal {
            object: "DaemonSet default/a".to_owned(),
            field: "spec.template.spec.x".to_owned(),
            problem: "would be refused".to_owned(),
            remedy: "correct it".to_owned(),
        });
        let judged = judge(&found, false, 0);
        assert_eq!(judged.refusals, []);
        assert_eq!(judged.notes, ["DaemonSet default/a: spec.template.spec.x would be refused; correct it"]);
    }

    #[test]
    fn sets_that_cannot_be_listed_are_no_sets() {
        let mut found = observed(Vec::new());
        found.sets = Err("conversion webhook failed".to_owned());
        let judged = judge(&found, false, 0);
        let told = judged.refusals;
        assert_eq!((told.len(), judged.is_listed), (1, false));
        assert!(told[0].to_string().contains("conversion webhook failed"), "{}", told[0]);
    }
}

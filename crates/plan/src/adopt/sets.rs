//! The DaemonSets that are taken over: whether they can be read, and whether any pod would restart.

use std::fmt;

use dapple_api::daemonset::v1alpha1::PROGRESSIVE_CREATE_ANNOTATION;
use dapple_api::daemonset::{DaemonSetSpec, DaemonSetStatus, GROUP, convert};
use dapple_api::reading;
use serde::Deserialize;
use serde_json::Value;

use super::crd::{ALPHA, BETA, Reading};
use super::{Refusal, name_of};
use crate::daemonset::pod::HASH_LABEL;
use crate::daemonset::revision::{FORM_ANNOTATION, REPLACES_ANNOTATION, Revision, Settled, form_of, settle};

/// A DaemonSet that can be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The whole object as v1beta1.
    pub object: Value,
    /// What it says.
    pub spec: DaemonSetSpec,
    collisions: i32,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DaemonSet {}/{}", self.namespace, self.name)
    }
}

/// A pod of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// UID of its DaemonSet.
    pub owner: String,
    /// What it was made from.
    pub hash: String,
}

impl fmt::Display for OwnedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The pod, from its metadata, if it belongs to a DaemonSet of this group.
pub fn pod(object: &Value) -> Option<OwnedPod> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    Some(OwnedPod {
        owner: owner_of(object)?.to_owned(),
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        hash: text(&metadata["labels"][HASH_LABEL]),
    })
}

/// UID of the DaemonSet of this group that controls an object.
pub fn owner_of(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_it = |owner: &&Value| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split('/').next());
        owner["controller"] == true && owner["kind"] == "DaemonSet" && group == Some(GROUP)
    };
    owners.into_iter().flatten().find(is_it)?["uid"].as_str()
}

#[derive(Deserialize)]
struct Wire {
    spec: DaemonSetSpec,
    #[serde(default)]
    status: Option<DaemonSetStatus>,
}

/// Reads a DaemonSet as the API server gave it.
pub fn read(object: Value, reading: Reading) -> Result<Set, Refusal> {
    let name = format!("DaemonSet {}", name_of(&object));
    let refuse = |field: String, problem: String| Refusal {
        object: name.clone(),
        field,
        problem,
        remedy: "correct or delete it, and run this again".to_owned(),
    };
    let object = as_v1beta1(object, reading).map_err(|(field, problem)| refuse(field, problem))?;
    let wire: Wire =
        reading::read(&object).map_err(|error| refuse(error.field, format!("cannot be read: {}", error.text)))?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Ok(Set {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        collisions: wire.status.and_then(|status| status.collision_count).unwrap_or(0),
        spec: wire.spec,
        object,
    })
}

fn as_v1beta1(mut object: Value, reading: Reading) -> Result<Value, (String, String)> {
    let version = |version: &str| format!("{GROUP}/{version}");
    // Items of a list need not say what they are.
    object["kind"] = "DaemonSet".into();
    let is_alpha = reading.version == ALPHA || (reading.is_relabelled && speaks_v1alpha1(&object));
    object["apiVersion"] = version(if is_alpha { ALPHA } else { BETA }).into();
    convert(object, &version(BETA)).map_err(|error| ("as v1alpha1".to_owned(), format!("cannot be converted: {error}")))
}

/// Whether an object says what only v1alpha1 says. Once converted it does not any more, so that a second run changes
/// nothing: the annotation stays, but `scaleStrategy` is there then.
fn speaks_v1alpha1(object: &Value) -> bool {
    let spec = &object["spec"];
    let is_surging = spec["updateStrategy"]["rollingUpdate"]["rollingUpdateType"] == "Surging";
    let is_progressive = object["metadata"]["annotations"][PROGRESSIVE_CREATE_ANNOTATION] == "true";
    is_surging || (is_progressive && spec["scaleStrategy"].is_null())
}

/// What was found when a set was held against its revisions and pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Told {
    pub(super) refusal: Option<Refusal>,
    pub(super) note: Option<String>,
}

/// Whether pods would restart: they do if no revision says what the set says, or one that is not the newest.
pub(super) fn compare(set: &Set, revisions: &[Value], pods: &[OwnedPod]) -> Told {
    let is_its_own = |object: &&Value| owner_of(object) == Some(set.uid.as_str());
    let known: Vec<Revision> = revisions.iter().filter(is_its_own).map(|found| revision(set, found)).collect();
    let pods: Vec<&OwnedPod> = pods.iter().filter(|pod| pod.owner == set.uid).collect();
    let problem = match settle(&set.name, &set.spec, &known, set.collisions) {
        Settled::Keep { name } => return Told { note: rollout(set, &name, &known, &pods), ..Told::default() },
        Settled::Renumber { name, .. } => format!("is what the older revision {name} says"),
        Settled::Create(_) if known.is_empty() => "is in no revision, since there is none".to_owned(),
        Settled::Create(_) => "is not what any of its revisions says".to_owned(),
    };
    if pods.is_empty() {
        return Told::default();
    }
    let refusal = Refusal {
        object: set.to_string(),
        field: "spec.template".to_owned(),
        problem: format!("{problem}: adopting it would roll it out to {} pods", pods.len()),
        remedy: "let the other product finish its rollout first, or add --allow-restarts".to_owned(),
    };
    Told { refusal: Some(refusal), note: None }
}

/// A rollout that is under way goes on, within the strategy's limits.
fn rollout(set: &Set, newest: &str, known: &[Revision], pods: &[&OwnedPod]) -> Option<String> {
    let hash = &known.iter().find(|revision| revision.name == newest)?.hash;
    let older = pods.iter().filter(|pod| pod.hash != *hash).count();
    // With patches, pods of one revision have several hashes.
    (older > 0 && set.spec.patches.is_empty()).then(|| {
        format!("{set}: {older} of {} pods are of an older revision; dapple goes on with the rollout", pods.len())
    })
}

fn revision(set: &Set, object: &Value) -> Revision {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let label = object["metadata"]["labels"][HASH_LABEL].as_str();
    let end = || name.strip_prefix(&format!("{}-", set.name)).unwrap_or(name);
    Revision {
        name: name.to_owned(),
        replaces: object["metadata"]["annotations"][REPLACES_ANNOTATION].as_str().map(str::to_owned),
        number: object["revision"].as_i64().unwrap_or_default(),
        hash: label.unwrap_or_else(end).to_owned(),
        form: form_of(object["metadata"]["annotations"][FORM_ANNOTATION].as_str()),
        began: 0,
        data: object["data"].clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AS_IT_IS: Reading = Reading { version: BETA, is_relabelled: false };
    const RELABELLED: Reading = Reading { version: BETA, is_relabelled: true };
    const OLD: Reading = Reading { version: ALPHA, is_relabelled: false };

    fn object(strategy: Value) -> Value {
        json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {
            "selector": {"matchLabels": {"app": "a"}}, "updateStrategy": strategy,
            "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "a"}}, "spec": {"containers": [
                {"name": "agent", "image": "agent:2", "resources": {}}]}}}})
    }

    fn set() -> Set {
        read(object(json!({"type": "RollingUpdate"})), AS_IT_IS).unwrap()
    }

    fn owned(name: &str, more: Value) -> Value {
        let mut object = more;
        object["metadata"] = json!({"name": name, "uid": name, "labels": object["labels"], "ownerReferences": [
            {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "controller": true, "uid": "u"}]});
        object
    }

    fn revision_of(number: i64, image: &str) -> Value {
        let template = json!({"$patch": "replace", "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "agent", "image": image}]}});
        owned(&format!("a-{number}"), json!({"revision": number, "data": {"spec": {"template": template}}}))
    }

    fn pods(hashes: &[&str]) -> Vec<OwnedPod> {
        hashes.iter().filter_map(|hash| pod(&owned("p", json!({"labels": {HASH_LABEL: hash}})))).collect()
    }

    #[test]
    fn a_set_whose_newest_revision_says_the_same_restarts_nothing() {
        let revisions = [revision_of(1, "agent:1"), revision_of(2, "agent:2")];
        assert_eq!(compare(&set(), &revisions, &pods(&["2", "2"])), Told::default());
        let under_way = compare(&set(), &revisions, &pods(&["1", "2", "1"]));
        assert_eq!(under_way.refusal, None);
        assert!(under_way.note.unwrap().starts_with("DaemonSet n/a: 2 of 3 pods are of an older revision"));
    }

    #[test]
    fn a_set_that_would_be_rolled_out_is_refused() {
        for (revisions, part) in [
            (vec![revision_of(1, "agent:1")], "is not what any"),
            (vec![revision_of(1, "agent:2"), revision_of(2, "agent:3")], "older revision a-1"),
            (vec![], "there is none"),
        ] {
            let told = compare(&set(), &revisions, &pods(&["1"])).refusal.unwrap().to_string();
            assert!(told.contains(part) && told.contains("1 pods") && told.contains("--allow-restarts"), "{told}");
            assert_eq!(compare(&set(), &revisions, &[]), Told::default(), "no pods, no restarts");
        }
        let mut elsewhere = revision_of(3, "agent:2");
        elsewhere["metadata"]["ownerReferences"][0]["uid"] = "another".into();
        assert!(compare(&set(), &[elsewhere], &pods(&["3"])).refusal.is_some(), "not its own");
    }

    #[test]
    fn what_only_v1alpha1_says_is_converted_once() {
        let surging = json!({"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "Surging"}});
        for reading in [OLD, RELABELLED] {
            let set = read(object(surging.clone()), reading).unwrap();
            let update = &set.object["spec"]["updateStrategy"]["rollingUpdate"];
            assert_eq!((&update["rollingUpdateType"], &update["maxSurge"]), (&json!("Standard"), &json!(1)));
            assert_eq!(read(set.object.clone(), RELABELLED).unwrap(), set, "a second run changes nothing");
        }
        let mut progressive = object(Value::Null);
        progressive["metadata"]["annotations"] = json!({PROGRESSIVE_CREATE_ANNOTATION: "true"});
        let scaling = |reading| read(progressive.clone(), reading).unwrap().object["spec"]["scaleStrategy"].clone();
        assert_eq!(scaling(RELABELLED), json!({"partitionedScaling": true}));
        assert_eq!(scaling(AS_IT_IS), Value::Null, "as v1beta1 it means nothing");
        let converted = read(progressive.clone(), RELABELLED).unwrap();
        assert_eq!(read(converted.object.clone(), RELABELLED).unwrap(), converted);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_field() {
        let told = read(object(json!({"type": "Sometimes"})), AS_IT_IS).unwrap_err();
        assert_eq!((told.object.as_str(), told.field.as_str()), ("DaemonSet n/a", "spec.updateStrategy.type"));
        let mut patched = object(Value::Null);
        patched["spec"]["patches"] = json!([{"selector": {}, "patch": {}}]);
        let told = read(patched, OLD).unwrap_err().to_string();
        assert!(told.contains("cannot be converted") && told.contains("spec.patches"), "{told}");
    }

    #[test]
    fn only_daemonsets_of_this_group_own() {
        let mut pod = owned("p", json!({}));
        assert_eq!(owner_of(&pod), Some("u"));
        for (field, value) in
            [("kind", json!("CloneSet")), ("apiVersion", json!("apps/v1")), ("controller", json!(false))]
        {
            let before = pod["metadata"]["ownerReferences"][0][field].take();
            pod["metadata"]["ownerReferences"][0][field] = value;
            assert_eq!(owner_of(&pod), None, "{field}");
            pod["metadata"]["ownerReferences"][0][field] = before;
        }
    }
}

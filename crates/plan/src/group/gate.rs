//! What becomes of a new pod when it is admitted: whether it has to wait behind the gate until it is placed.

use serde_json::{Value, json};

use super::binding::Pair;
use super::placing::{GATE, PodRule};
use super::standing::is_gated;
use crate::node::Labels;
use crate::operations::replace;

/// Annotation of a pod that an edition has made before its group was decided: the group that it was made for, and what tells this
/// pod from others that were asked about then. A new pod has no UID yet, and mostly no name. Also of a pod that is changed where it
/// runs by the edition of its node's groups: the node may leave them.
pub const MADE_FOR: &str = "dapple.dev/made-for";

/// So much of what names a question of the API server tells one pod from another.
const TOLD_APART_BY: usize = 8;

/// What [`MADE_FOR`] says of a pod that was made for a group, by the UID of the question that the API server asked about it.
#[must_use]
pub fn made_for(group: &str, question: &str) -> String {
    let end = question.char_indices().nth(TOLD_APART_BY).map_or(question.len(), |(end, _)| end);
    format!("{group}/{}", &question[..end])
}

/// The group in what [`MADE_FOR`] says.
#[must_use]
pub fn group_made_for(text: &str) -> &str {
    text.rsplit_once('/').map_or(text, |(group, _)| group)
}

/// What is known of what asks for policies in a pod's name.
#[derive(Clone, Copy)]
pub enum Applicant<'l> {
    /// Nothing asks for any.
    None,
    /// Its owner is not known here yet: whoever places pods finds out, and releases it if nothing asks.
    Unknown,
    /// Something with these labels does.
    Of(&'l dyn Labels),
}

/// The operations of a JSON patch that puts a pod behind the gate, with the four labels of its application; none if it need
/// not wait. A pod that is on a node already cannot, and one that has the gate does.
#[must_use]
pub fn patch(pod: &Value, applicant: Applicant<'_>) -> Vec<Value> {
    if !can_wait(pod) {
        return Vec::new();
    }
    let mut operations = match applicant {
        Applicant::None => return Vec::new(),
        Applicant::Of(labels) if PodRule::of(labels) == PodRule::Release => return Vec::new(),
        Applicant::Unknown => Vec::new(),
        Applicant::Of(labels) => copy_labels(pod, labels),
    };
    let gate = json!({"name": GATE});
    operations.push(match pod["spec"]["schedulingGates"].as_array() {
        Some(_) => json!({"op": "add", "path": "/spec/schedulingGates/-", "value": gate}),
        None => json!({"op": "add", "path": "/spec/schedulingGates", "value": [gate]}),
    });
    operations
}

/// Whether a pod can be put behind the gate: it is not there yet, nor on a node.
fn can_wait(pod: &Value) -> bool {
    let is_bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    !is_gated(pod) && !is_bound && pod["spec"].is_object() && pod["metadata"].is_object()
}

/// A pod behind the gate, if it can be there: what webhooks and validation are shown in place of one that will be.
#[must_use]
pub fn gated(mut pod: Value) -> Value {
    if can_wait(&pod) {
        match pod["spec"]["schedulingGates"].as_array_mut() {
            Some(gates) => gates.push(json!({"name": GATE})),
            None => pod["spec"]["schedulingGates"] = json!([{"name": GATE}]),
        }
    }
    pod
}

/// As [`patch`], of a pod that an edition makes another of: labels, annotations and spec are replaced as a whole where they
/// differ.
#[must_use]
pub fn patch_made(pod: &Value, made: &Value, application: &dyn Labels) -> Vec<Value> {
    let mut operations = replace(pod, made, &MADE);
    operations.extend(patch(made, Applicant::Of(application)));
    operations
}

/// As [`patch_made`], of a pod that need not wait.
#[must_use]
pub fn patch_ungated(pod: &Value, made: &Value, application: &dyn Labels) -> Vec<Value> {
    let mut operations = replace(pod, made, &MADE);
    operations.extend(copy_labels(made, application));
    operations
}

/// The parts of a pod that an edition may make others.
const MADE: [&str; 3] = ["/metadata/labels", "/metadata/annotations", "/spec"];

/// Gives a pod those of the four labels of its application that it lacks. What it has by its template stays: its owner may
/// select on it, and would make another pod for one that it has lost.
fn copy_labels(pod: &Value, application: &dyn Labels) -> Vec<Value> {
    let own = pod["metadata"]["labels"].as_object();
    let mut operations = Vec::new();
    if own.is_none() {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
    }
    for key in Pair::labels() {
        let path = format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"));
        let is_lacking = own.is_none_or(|labels| !labels.contains_key(key));
        if let Some(value) = application.get(key).filter(|_| is_lacking) {
            operations.push(json!({"op": "add", "path": path, "value": value}));
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::group::filter::tests::situations;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// The pod as it is after the patch.
    fn admitted(mut pod: Value, applicant: Applicant<'_>) -> Value {
        let operations: json_patch::Patch = serde_json::from_value(patch(&pod, applicant).into()).expect("a patch");
        json_patch::patch(&mut pod, &operations).expect("it applies");
        pod
    }

    #[test]
    fn a_pod_is_put_behind_the_gate_once_and_not_when_it_has_a_node() {
        let pod = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
        let gates = |spec: Value| gated(pod(spec))["spec"]["schedulingGates"].clone();
        assert_eq!(gates(json!({})), json!([{"name": GATE}]));
        assert_eq!(gates(json!({"schedulingGates": [{"name": "other"}]})), json!([{"name": "other"}, {"name": GATE}]));
        assert_eq!(gates(json!({"schedulingGates": [{"name": GATE}]})), json!([{"name": GATE}]));
        assert_eq!(gates(json!({"nodeName": "n"})), Value::Null, "Kubernetes refuses both");
    }

    #[test]
    fn a_pod_waits_with_the_labels_of_its_application() {
        let (spread, images) = (Pair::Propagation, Pair::Override);
        let asks = labels(&[(spread.required(), "a"), (spread.binding(), "a"), ("other", "x")]);
        let bare = json!({"metadata": {"generateName": "web-"}, "spec": {"containers": []}});
        let there = admitted(bare.clone(), Applicant::Of(&asks));
        assert_eq!(there["spec"]["schedulingGates"], json!([{"name": GATE}]));
        assert_eq!(there["metadata"]["labels"], json!({spread.required(): "a", spread.binding(): "a"}));

        // What its template has of them stays.
        let labelled = json!({"metadata": {"labels": {"app": "web", spread.required(): "b", images.required(): "o"}},
            "spec": {"schedulingGates": [{"name": "others"}]}});
        let there = admitted(labelled, Applicant::Of(&asks));
        assert_eq!(there["spec"]["schedulingGates"], json!([{"name": "others"}, {"name": GATE}]));
        assert_eq!(
            there["metadata"]["labels"],
            json!({"app": "web", spread.required(): "b", spread.binding(): "a", images.required(): "o"})
        );
        let there = admitted(bare, Applicant::Unknown);
        assert_eq!(there["spec"]["schedulingGates"], json!([{"name": GATE}]));
        assert!(there["metadata"]["labels"].is_null());
    }

    #[test]
    fn a_pod_waits_as_its_edition_has_it() {
        let spread = Pair::Propagation;
        let asks = labels(&[(spread.required(), "a"), (spread.binding(), "a")]);
        let pod = json!({"metadata": {"annotations": {"note": "x"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
        let mut made = pod.clone();
        made["spec"]["containers"][0]["image"] = "b.io/c:1".into();
        made["metadata"]["labels"] = json!({"site": "b"});
        made["metadata"].as_object_mut().unwrap().remove("annotations");
        let patch: json_patch::Patch = serde_json::from_value(patch_made(&pod, &made, &asks).into()).expect("a patch");
        let mut there = pod;
        json_patch::patch(&mut there, &patch).expect("it applies");
        made["spec"]["schedulingGates"] = json!([{"name": GATE}]);
        made["metadata"]["labels"] = json!({"site": "b", spread.required(): "a", spread.binding(): "a"});
        assert_eq!(there, made);
    }

    #[test]
    fn a_pod_says_which_group_it_was_made_for() {
        let text = made_for("hangzhou", "6f1c2a9b-0000-4000-8000-000000000000");
        assert_eq!(text, "hangzhou/6f1c2a9b");
        assert_eq!(group_made_for(&text), "hangzhou");
        assert_eq!(group_made_for(&made_for("hangzhou", "")), "hangzhou");
        assert_eq!(group_made_for("written by somebody"), "written by somebody");
    }

    #[test]
    fn nothing_waits_that_nothing_is_asked_for() {
        let pod = json!({"metadata": {}, "spec": {}});
        let of = |pairs: &[(&str, &str)]| patch(&pod, Applicant::Of(&labels(pairs))).len();
        let (spread, images) = (Pair::Propagation, Pair::Override);
        assert_eq!(patch(&pod, Applicant::None), Vec::<Value>::new());
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(spread.binding(), "a")]), 0, "a confirmation that is left over");
        assert_eq!(of(&[(images.required(), "o"), (images.binding(), "o")]), 0, "only images differ");
        assert!(of(&[(images.required(), "o")]) > 0, "until it is confirmed");
    }

    #[test]
    fn in_every_situation_a_pod_waits_for_its_policies_and_its_group() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": []}});
        for (spread, _) in situations(Pair::Propagation) {
            let is_divided = spread.contains_key(Pair::Propagation.required());
            for (images, holds_images) in situations(Pair::Override) {
                let both: BTreeMap<String, String> = spread.clone().into_iter().chain(images).collect();
                // Confirmed rules for images alone hold nobody back.
                let waits = is_divided || holds_images;
                let there = admitted(pod.clone(), Applicant::Of(&both));
                assert_eq!(is_gated(&there), waits, "{both:?}");
                let copied = if waits { json!(both) } else { Value::Null };
                assert_eq!(there["metadata"]["labels"], copied, "{both:?}");
            }
        }
    }

    #[test]
    fn what_cannot_wait_or_does_already_is_left_alone() {
        for spec in [json!({"nodeName": "n"}), json!({"schedulingGates": [{"name": GATE}]}), json!(null), json!([])] {
            let pod = json!({"metadata": {}, "spec": spec});
            assert!(patch(&pod, Applicant::Unknown).is_empty(), "{pod}");
        }
        assert!(patch(&json!({}), Applicant::Unknown).is_empty());
    }
}

//! In-place changes, case by case.

use super::*;
use crate::daemonset::inplace::edit;
use crate::daemonset::lifecycle;
use crate::daemonset::pod::{HASH_LABEL, REVISION_ANNOTATION};

const NOW: &str = "2026-11-15T03:53:16Z";

/// As OpenKruise wrote it to a pod that it was updating.
const REAL: &str = r#"{"revision":"bf48c86c8","updateTimestamp":"2026-11-15T03:53:16Z","lastContainerStatuses":{"agent":{}},"updateImages":true,"containerBatchesRecord":[{"timestamp":"2026-11-15T03:53:16Z","containers":["agent"]}]}"#;

fn template(container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("agent");
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container, {"name": "side", "image": "side:1"}]}})
}

fn with(template: &Value, pointer: &str, field: &str, value: Value) -> Value {
    let mut changed = template.clone();
    changed.pointer_mut(pointer).unwrap()[field] = value;
    changed
}

pub(super) fn running<'a>(name: &'a str, image: &'a str, status_image: &'a str, image_id: &'a str) -> Running<'a> {
    Running { name, image, status_image, image_id }
}

pub(super) fn target<'a>(state: Option<&'a str>, containers: &'a [Running<'a>]) -> Target<'a> {
    let pending = None;
    Target {
        uid: "u",
        version: 7,
        hash: "h2",
        revision: "agent-2",
        now: NOW,
        state,
        pending,
        containers,
        lifecycle: None,
    }
}

pub(super) fn images(changed: &[(&str, &str)]) -> Difference {
    let images = changed.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned()));
    Difference { images: images.collect(), ..Difference::default() }
}

pub(super) fn state_of(patch: &Value) -> &str {
    patch["metadata"]["annotations"][STATE_ANNOTATION].as_str().unwrap()
}

fn judged(state: &str, containers: &[Running<'_>]) -> Progress {
    progress(Some(state), Intent::None, containers, Resize::None, 0)
}

#[test]
fn images_and_metadata_change_in_place() {
    let before = template(json!({"image": "agent:1"}));
    let mut after = template(json!({"image": "agent:2", "imagePullPolicy": "IfNotPresent", "resources": {}}));
    after["metadata"] = json!({"labels": {"tier": "x"}, "annotations": {"note": ""}});
    let found = difference(&before, &after).unwrap();
    assert_eq!(found.images, BTreeMap::from([("agent".to_owned(), "agent:2".to_owned())]));
    let labels = [("app".to_owned(), None), ("tier".to_owned(), Some("x".to_owned()))];
    assert_eq!(found.labels, BTreeMap::from(labels));
    assert_eq!(found.annotations, BTreeMap::from([("note".to_owned(), Some(String::new()))]));
    assert!(found.resources.is_empty());
    assert_eq!(difference(&before, &before), Some(Difference::default()));
}

#[test]
fn anything_else_replaces_the_pod() {
    let before = template(json!({"image": "agent:1"}));
    for (pointer, field, value) in [
        ("/spec/containers/0", "args", json!(["x"])),
        ("/spec/containers/0", "image", Value::Null),
        ("/spec/containers/0", "imagePullPolicy", json!("Always")),
        ("/spec/containers/0", "resources", json!({"limits": {"nvidia.com/gpu": 1}})),
        ("/spec/containers/0", "resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])),
        ("/spec/containers/0", "name", json!("other")),
        ("/spec", "hostNetwork", json!(true)),
        ("/spec", "initContainers", json!([{"name": "first", "image": "first:1"}])),
        ("/metadata", "finalizers", json!(["x/y"])),
        ("/metadata/labels", "app", json!(7)),
    ] {
        assert_eq!(difference(&before, &with(&before, pointer, field, value)), None, "{pointer} {field}");
    }
    let first = |image: &str| with(&before, "/spec", "initContainers", json!([{"name": "first", "image": image}]));
    assert_eq!(difference(&first("first:1"), &first("first:2")), None);
    let mut turned = before.clone();
    turned["spec"]["containers"].as_array_mut().unwrap().reverse();
    assert_eq!(difference(&before, &turned), None, "containers start in order");
}

/// A pod keeps the pull policy that it was made with: where the new image implies another, only a new pod has it.
#[test]
fn the_pull_policy_cannot_follow_the_image() {
    let possible = |before: Value, after: Value| difference(&template(before), &template(after)).is_some();
    assert!(!possible(json!({"image": "a:1"}), json!({"image": "a"})));
    assert!(possible(json!({"image": "a:latest"}), json!({"image": "b"})));
    assert!(possible(
        json!({"image": "a:1", "imagePullPolicy": "Always"}),
        json!({"image": "a", "imagePullPolicy": "Always"})
    ));
    assert!(possible(json!({"image": "a:1", "imagePullPolicy": "Always"}), json!({"image": "a"})));
}

#[test]
fn resizes_keep_the_class_and_take_nothing_away() {
    let sized = |resources: Value| template(json!({"image": "agent:1", "resources": resources}));
    let found = |before: &Value, after: &Value| {
        let found = difference(&sized(before.clone()), &sized(after.clone()))?;
        Some(found.resources.get("agent").cloned().unwrap_or(Value::Null))
    };
    let few = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}});
    for (before, after, expected) in [
        (&few, json!({"requests": {"cpu": "0.1"}, "limits": {"memory": "1024Mi"}}), Some(Value::Null)),
        (
            &few,
            json!({"requests": {"cpu": "200m"}, "limits": {"memory": "1Gi"}}),
            Some(json!({"requests": {"cpu": "200m"}})),
        ),
        // Requests that are not written follow the limits, also in the pod that runs.
        (
            &few,
            json!({"requests": {"cpu": "100m"}, "limits": {"memory": "2Gi"}}),
            Some(json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}})),
        ),
        (&few, json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}), Some(Value::Null)),
        (
            &few,
            json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi", "cpu": 1}}),
            Some(json!({"limits": {"cpu": 1}})),
        ),
        (&few, json!({"limits": {"memory": "1Gi"}}), None),
        (&few, json!({}), None),
        (&few, json!({"requests": {"cpu": "much"}, "limits": {"memory": "1Gi"}}), None),
        (&json!({}), few.clone(), None),
    ] {
        assert_eq!(found(before, &after), expected, "{after}");
    }
    for (field, value) in [("os", json!({"name": "windows"})), ("resources", json!({"limits": {"cpu": "4"}}))] {
        let sized = |cpu: &str| with(&sized(json!({"requests": {"cpu": cpu}})), "/spec", field, value.clone());
        assert_eq!(difference(&sized("1"), &sized("2")), None, "{field}");
    }
}

#[test]
fn a_container_that_read_it_at_its_start_must_start_anew() {
    let label = |path: &str| json!([{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
    let amount = |of: Value| json!([{"name": "E", "valueFrom": {"resourceFieldRef": of}}]);
    let possible = |env: &Value, change: fn(&mut Value)| {
        let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        let mut before = template(json!({"image": "agent:1", "resources": resources, "env": env}));
        before["metadata"]["labels"]["tier"] = json!("x");
        let mut after = before.clone();
        change(&mut after);
        difference(&before, &after).is_some()
    };
    let relabel: fn(&mut Value) = |template| template["metadata"]["labels"]["tier"] = json!("y");
    let unlabel: fn(&mut Value) = |template| template["metadata"]["labels"] = json!({"app": "a"});
    let annotate: fn(&mut Value) = |template| template["metadata"]["annotations"] = json!({"tier": "y"});
    let grow: fn(&mut Value) =
        |template| template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    for (env, change, expected) in [
        (label("metadata.labels['tier']"), relabel, false),
        (label("metadata.labels['tier']"), unlabel, false),
        (label("metadata.labels['tier']"), annotate, true),
        (label("metadata.labels['app']"), relabel, true),
        (label("metadata.annotations['tier']"), annotate, false),
        (label("metadata.name"), relabel, true),
        (amount(json!({"resource": "requests.cpu"})), grow, false),
        (amount(json!({"resource": "requests.cpu", "containerName": "agent"})), grow, false),
        (amount(json!({"resource": "requests.cpu", "containerName": "side"})), grow, true),
        (amount(json!({"resource": "requests.memory"})), grow, true),
        (amount(json!({"resource": "limits.cpu"})), grow, true),
    ] {
        assert_eq!(possible(&env, change), expected, "{env}");
    }
}

#[test]
fn files_follow_the_pod_unless_they_are_mounted_each_by_itself() {
    let items = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    let plain = json!({"name": "v", "downwardAPI": {"items": items}});
    let projected =
        json!({"name": "v", "projected": {"sources": [{"configMap": {}}, {"downwardAPI": {"items": items}}]}});
    for volume in [plain, projected] {
        let possible = |mount: Value| {
            let before = template(json!({"image": "agent:1", "volumeMounts": [mount]}));
            let before = with(&before, "/spec", "volumes", json!([volume]));
            difference(&before, &with(&before, "/metadata/labels", "tier", json!("y"))).is_some()
        };
        assert!(possible(json!({"name": "v", "mountPath": "/v"})));
        assert!(!possible(json!({"name": "v", "mountPath": "/v", "subPath": "labels"})));
        assert!(possible(json!({"name": "w", "mountPath": "/v", "subPath": "labels"})));
    }
}

#[test]
fn what_openkruise_left_half_done_goes_on() {
    let side = running("side", "side:1.0", "side:1.0", "");
    let at = |image| [running("agent", "agent:2.0", image, ""), side.clone()];
    assert_eq!(judged(REAL, &at("agent:1.0")), Progress::Waiting);
    assert_eq!(judged(REAL, &at("agent:2.0")), Progress::Done);
    assert_eq!(judged(REAL, &at("docker.io/library/agent:2.0")), Progress::Done);
    assert_eq!(judged(REAL, &[running("agent", "agent:2.0", "sha256:ab", "agent@sha256:ab")]), Progress::Done);
    assert_eq!(judged(REAL, std::slice::from_ref(&side)), Progress::Waiting, "the node says nothing of it");
    for none in ["", "{", "7", r#"{"lastContainerStatuses": 7}"#] {
        assert_eq!(judged(none, &at("agent:1.0")), Progress::Done, "{none}");
    }
    assert_eq!(progress(None, Intent::None, &at("agent:1.0"), Resize::Infeasible, 0), Progress::Done);
}

#[test]
fn the_annotation_is_written_as_openkruise_writes_it() {
    let containers = [running("agent", "agent:1.0", "agent:1.0", ""), running("side", "side:1.0", "side:1.0", "")];
    let target = Target { hash: "bf48c86c8", ..target(None, &containers) };
    let patch = edit(&images(&[("agent", "agent:2.0")]), &target);
    assert_eq!(state_of(&patch), REAL);
    let annotations = json!({
        REVISION_ANNOTATION: "agent-2", STATE_ANNOTATION: REAL, GRACE_ANNOTATION: null, RESIZE_ANNOTATION: null,
    });
    let metadata =
        json!({"uid": "u", "resourceVersion": "7", "labels": {HASH_LABEL: "bf48c86c8"}, "annotations": annotations});
    let containers = json!([{"name": "agent", "image": "agent:2.0"}]);
    assert_eq!(patch, json!({"metadata": metadata, "spec": {"containers": containers}}));

    let relabelled = Difference { labels: BTreeMap::from([("a".to_owned(), None)]), ..Difference::default() };
    let patch = edit(&relabelled, &Target { lifecycle: Some("Updating"), ..target });
    let labels = json!({"a": null, HASH_LABEL: "bf48c86c8", lifecycle::STATE_LABEL: "Updating"});
    assert_eq!(patch["metadata"]["labels"], labels);
    assert_eq!(patch["metadata"]["annotations"][lifecycle::TIMESTAMP_ANNOTATION], NOW);
    assert_eq!(patch.get("spec"), None);
    let nothing = r#"{"revision":"bf48c86c8","updateTimestamp":"2026-11-15T03:53:16Z","lastContainerStatuses":null,"containerBatchesRecord":[{"timestamp":"2026-11-15T03:53:16Z","containers":[]}]}"#;
    assert_eq!(state_of(&patch), nothing);
    assert_eq!(judged(nothing, &[]), Progress::Done);
}

#[test]
fn a_change_on_top_of_another_forgets_no_container() {
    let before = [running("agent", "agent:1", "agent:1", "id1"), running("side", "side:1", "side:1", "id3")];
    let first = edit(&images(&[("agent", "agent:2")]), &target(None, &before));
    let under_way = [running("agent", "agent:2", "agent:1", "id1"), running("side", "side:1", "side:1", "id3")];
    let second = edit(&images(&[("side", "side:2")]), &target(Some(state_of(&first)), &under_way));
    let state: Value = serde_json::from_str(state_of(&second)).unwrap();
    assert_eq!(state["lastContainerStatuses"], json!({"agent": {"imageID": "id1"}, "side": {"imageID": "id3"}}));
    assert_eq!(state["containerBatchesRecord"][0]["containers"], json!(["side"]));
    let behind = [running("agent", "agent:2", "agent:1", "id1"), running("side", "side:2", "side:2", "id4")];
    assert_eq!(judged(state_of(&second), &behind), Progress::Waiting);
    let back = edit(&images(&[("agent", "agent:1")]), &target(Some(state_of(&first)), &under_way));
    let reverted = [running("agent", "agent:1", "agent:1", "id1"), before[1].clone()];
    assert_eq!(judged(state_of(&back), &reverted), Progress::Done, "it never left");
    // Between two starts the node says nothing of the container.
    let restarting = [running("agent", "agent:2", "", ""), before[1].clone()];
    assert_eq!(judged(state_of(&first), &restarting), Progress::Waiting);
    let third = edit(&images(&[("agent", "agent:3")]), &target(Some(state_of(&first)), &restarting));
    let restarted = [running("agent", "agent:3", "agent:1", "id1"), before[1].clone()];
    assert_eq!(judged(state_of(&third), &restarted), Progress::Waiting, "it still is what ran before the first change");
    let arrived = [running("agent", "agent:2", "agent:2", "id2"), before[1].clone()];
    let next = edit(&images(&[("agent", "agent:3")]), &target(Some(state_of(&first)), &arrived));
    let state: Value = serde_json::from_str(state_of(&next)).unwrap();
    assert_eq!(state["lastContainerStatuses"], json!({"agent": {"imageID": "id2"}}));
}

#[test]
fn what_openkruise_put_off_is_not_forgotten() {
    let later = r#"{"revision":"h","nextContainerImages":{"side":"side:2"},"lastContainerStatuses":{}}"#;
    assert_eq!(judged(later, &[]), Progress::Stuck);
    assert_eq!(judged(r#"{"nextContainerRefMetadata":{"side":{"labels":{}}}}"#, &[]), Progress::Stuck);
    assert_eq!(judged(r#"{"nextContainerImages":{},"nextContainerRefMetadata":null}"#, &[]), Progress::Done);
    let containers = [running("side", "side:1", "side:1", "id")];
    let patch = edit(&images(&[("agent", "agent:2")]), &target(Some(later), &containers));
    let given = json!([{"name": "agent", "image": "agent:2"}, {"name": "side", "image": "side:2"}]);
    assert_eq!(patch["spec"]["containers"], given);
    assert_eq!(
        judged(
            state_of(&patch),
            &[running("agent", "agent:2", "agent:2", "b"), running("side", "side:2", "side:1", "id")]
        ),
        Progress::Waiting
    );
}

/// A difference in the amounts of the container `agent`.
fn amounts(changed: Value) -> Difference {
    Difference { resources: BTreeMap::from([("agent".to_owned(), changed)]), ..Difference::default() }
}

fn note_of(patch: &Value) -> Option<&str> {
    patch["metadata"]["annotations"][RESIZE_ANNOTATION].as_str()
}

/// A pod of a container `agent` with these resources.
fn sized_pod(resources: Value) -> Value {
    json!({"spec": {"containers": [{"name": "side"}, {"name": "agent", "resources": resources}]}})
}

#[test]
fn a_resize_is_noted_before_it_is_asked_for() {
    let wanted = json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}});
    let patch = edit(&amounts(wanted.clone()), &target(None, &[]));
    assert_eq!(patch.get("spec"), None, "only the subresource takes amounts");
    let note = note_of(&patch).unwrap();
    let agent = r#"{"limits":{"memory":"1Gi"},"requests":{"cpu":"2"}}"#;
    assert_eq!(note, format!(r#"{{"revision":"h2","containers":{{"agent":{agent}}}}}"#));
    let containers = json!([{"name": "agent", "resources": wanted}]);
    let exactly = json!({"uid": "u", "resourceVersion": "7"});
    assert_eq!(resize(note, "u", 7), Some(json!({"metadata": exactly, "spec": {"containers": containers}})));
    let told = |resources: Value| intent(Some(note), "h2", &sized_pod(resources));
    assert_eq!(told(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}})), Intent::Pending);
    assert_eq!(told(json!({"requests": {"cpu": "2"}})), Intent::Pending);
    assert_eq!(told(json!({})), Intent::Pending);
    // Requests that follow limits are in the pod, and in the difference where they change.
    assert_eq!(
        told(json!({"requests": {"cpu": "2000m", "memory": "1"}, "limits": {"memory": "1024Mi"}})),
        Intent::Done
    );
    let cleared = json!({"metadata": {"uid": "u", "resourceVersion": "8", "annotations": {RESIZE_ANNOTATION: null}}});
    assert_eq!(clear("u", 8), cleared);
    // As the API server keeps it.
    let note = edit(&amounts(json!({"requests": {"cpu": "0.2m"}})), &target(None, &[]));
    assert_eq!(intent(note_of(&note), "h2", &sized_pod(json!({"requests": {"cpu": "1m"}}))), Intent::Done);
}

#[test]
fn a_note_that_says_nothing_to_this_pod_asks_for_nothing_and_goes_with_the_next_change() {
    let pod = sized_pod(json!({"requests": {"cpu": "1"}}));
    let good = r#"{"revision":"h","containers":{"agent":{"requests":{"cpu":"2"}}}}"#;
    assert_eq!(intent(Some(good), "h", &pod), Intent::Pending);
    assert_eq!(intent(Some(good), "other", &pod), Intent::None, "somebody who does not know of it changed the pod");
    assert_eq!(intent(None, "h", &pod), Intent::None);
    let ghost = r#"{"revision":"h","containers":{"ghost":{"requests":{"cpu":"2"}}}}"#;
    assert_eq!(intent(Some(ghost), "h", &pod), Intent::None);
    for unread in [
        "",
        "{",
        "7",
        r#"{"revision":"h"}"#,
        r#"{"revision":"h","containers":{}}"#,
        r#"{"revision":"h","containers":{"agent":{"requests":{"cpu":"much"}}}}"#,
        r#"{"revision":"h","containers":{"agent":{"requests":{"gpu":"1"}}}}"#,
        r#"{"revision":"h","containers":{"agent":{"claims":{"cpu":"1"}}}}"#,
        r#"{"revision":"h","containers":{"agent":{"requests":{"cpu":"2"}}},"more":1}"#,
    ] {
        assert_eq!(intent(Some(unread), "h", &pod), Intent::None, "{unread}");
        let patch = edit(&images(&[("agent", "agent:2")]), &Target { pending: Some(unread), ..target(None, &[]) });
        assert_eq!(patch["metadata"]["annotations"][RESIZE_ANNOTATION], Value::Null, "{unread}");
    }
}

#[test]
fn a_change_on_top_of_another_forgets_no_amount() {
    let first = edit(&amounts(json!({"requests": {"cpu": "2"}})), &target(None, &[]));
    let next = |difference: &Difference| {
        let patch = edit(difference, &Target { hash: "h3", pending: note_of(&first), ..target(None, &[]) });
        let note: Value = serde_json::from_str(note_of(&patch).unwrap()).unwrap();
        assert_eq!(note["revision"], "h3");
        note["containers"].clone()
    };
    let asked = |resources: Value| json!({"agent": resources});
    assert_eq!(next(&images(&[("agent", "agent:3")])), asked(json!({"requests": {"cpu": "2"}})));
    assert_eq!(next(&amounts(json!({"requests": {"cpu": "1"}}))), asked(json!({"requests": {"cpu": "1"}})), "and back");
    let more = amounts(json!({"requests": {"memory": "2Gi"}, "limits": {"cpu": "4"}}));
    assert_eq!(next(&more), asked(json!({"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "4"}})));
}

#[test]
fn a_resize_is_waited_for_with_patience() {
    let sized = amounts(json!({"requests": {"cpu": "2"}}));
    let containers = [running("agent", "agent:1", "agent:1", "id")];
    let first = edit(&sized, &target(None, &containers));
    let second = edit(&images(&[("agent", "agent:1")]), &target(Some(state_of(&first)), &containers));
    for patch in [first, second] {
        let judged = |resize, now| progress(Some(state_of(&patch)), Intent::Done, &containers, resize, now);
        assert_eq!(judged(Resize::None, 0), Progress::Done);
        assert_eq!(judged(Resize::InProgress, 0), Progress::Waiting);
        assert_eq!(judged(Resize::Infeasible, 0), Progress::Stuck);
        assert_eq!(judged(Resize::Deferred { since: 10 }, 309), Progress::Until(310));
        assert_eq!(judged(Resize::Deferred { since: 10 }, 310), Progress::Stuck);
        // What the kubelet says of an earlier one does not matter, nor whether the state can be read.
        for state in [Some(state_of(&patch)), Some("{"), None] {
            assert_eq!(progress(state, Intent::Pending, &containers, Resize::Infeasible, 0), Progress::Waiting);
        }
    }
    assert_eq!(
        progress(Some(REAL), Intent::None, &[running("agent", "a", "a", "")], Resize::Infeasible, 0),
        Progress::Done,
        "not ours"
    );
    let pod = |given: Value| {
        let containers = json!([{"name": "agent", "resources": {"requests": {"cpu": "2"}}}]);
        json!({"spec": {"containers": containers}, "status": {"containerStatuses": [{"name": "agent", "resources": given}]}})
    };
    assert!(is_resized(&pod(json!({"requests": {"cpu": "2000m"}}))));
    assert!(!is_resized(&pod(json!({"requests": {"cpu": "1"}}))));
    assert!(!is_resized(&pod(json!({}))));
    assert!(is_resized(&pod(Value::Null)) && is_resized(&json!({})), "a node that does not say");
}

#[test]
fn gates_open_and_close() {
    let condition = |condition: &str, is_open| {
        let patch = gate(condition, is_open, "u", 7, NOW);
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        patch["status"]["conditions"].clone()
    };
    let written = |kind: &str, status: &str, reason: Value| json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": NOW});
    assert_eq!(condition(GATE, false), json!([written(GATE, "False", json!("StartInPlaceUpdate"))]));
    let mut open = written(GATE, "True", json!("InPlaceUpdateComplete"));
    open["message"] = Value::Null;
    assert_eq!(condition(GATE, true), json!([open]));
    let other = lifecycle::NOT_READY_GATE;
    assert_eq!(condition(other, false), json!([written(other, "False", json!("LifecycleHook"))]));
    assert_eq!(condition(other, true)[0]["reason"], Value::Null);
}

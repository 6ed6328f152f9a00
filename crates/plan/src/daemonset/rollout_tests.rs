use super::*;

/// A set of ten nodes with this strategy and status, seen unless the status says otherwise.
fn set(strategy: Value, status: Value) -> DaemonSet {
    let mut whole = json!({"observedGeneration": 2, "desiredNumberScheduled": 10, "currentNumberScheduled": 10,
        "updatedNumberScheduled": 10, "numberReady": 10, "numberAvailable": 10});
    whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 2},
        "spec": {"selector": {}, "template": {}, "updateStrategy": strategy}, "status": whole,
    }))
    .unwrap()
}

fn rolling(more: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": more})
}

fn condition_of(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "message": message, "reason": "R",
        "lastTransitionTime": "2026-11-15T10:00:00Z"})
}

#[test]
fn counts_alone_say_how_far_it_is() {
    let on_delete = json!({"type": "OnDelete"});
    for (strategy, status, state, is_done) in [
        (json!({}), json!({}), State::Complete, true),
        (json!({}), json!({"observedGeneration": 1}), State::Unseen, false),
        (json!({}), json!({"observedGeneration": null}), State::Unseen, false),
        (json!({}), json!({"updatedNumberScheduled": 3}), State::RollingOut, false),
        (json!({}), json!({"numberAvailable": 9}), State::Unavailable { nodes: 1 }, false),
        (json!({}), json!({"numberAvailable": null}), State::Unavailable { nodes: 10 }, false),
        (json!({}), json!({"desiredNumberScheduled": 0}), State::Complete, true),
        (json!({}), json!({"updatedNumberScheduled": -5, "numberAvailable": 99}), State::RollingOut, false),
        (rolling(json!({"partition": 4})), json!({"updatedNumberScheduled": 5}), State::RollingOut, false),
        (rolling(json!({"partition": 4})), json!({"updatedNumberScheduled": 6}), State::HeldBack { nodes: 4 }, true),
        (rolling(json!({"partition": 4})), json!({}), State::Complete, true),
        (rolling(json!({"partition": "45%"})), json!({"updatedNumberScheduled": 5}), State::RollingOut, false),
        (
            rolling(json!({"partition": "45%"})),
            json!({"updatedNumberScheduled": 6}),
            State::HeldBack { nodes: 4 },
            true,
        ),
        (
            rolling(json!({"partition": "half"})),
            json!({"updatedNumberScheduled": 0}),
            State::HeldBack { nodes: 10 },
            true,
        ),
        (
            rolling(json!({"partition": 4})),
            json!({"updatedNumberScheduled": 6, "numberAvailable": 9}),
            State::Unavailable { nodes: 1 },
            false,
        ),
        (rolling(json!({"paused": true})), json!({"updatedNumberScheduled": 3}), State::Paused, false),
        (rolling(json!({"paused": true})), json!({}), State::Paused, true),
        (on_delete.clone(), json!({"updatedNumberScheduled": 3}), State::OnDelete { waiting: 7 }, true),
        (on_delete.clone(), json!({}), State::Complete, true),
        (on_delete, json!({"numberAvailable": 9}), State::Unavailable { nodes: 1 }, false),
    ] {
        let found = progress(&set(strategy.clone(), status.clone()));
        assert_eq!((found.state, found.is_done), (state, is_done), "{strategy} {status}");
    }
}

#[test]
fn conditions_say_more() {
    let outdated = |conditions: Value| json!({"updatedNumberScheduled": 3, "conditions": conditions});
    let of = |strategy: Value, conditions: Value| progress(&set(strategy, outdated(conditions)));

    // A rollout that the controller calls over has updated all that the selector lets it.
    let selective = rolling(json!({"selector": {"matchLabels": {"rack": "1"}}}));
    let found = of(selective.clone(), json!([condition_of("Progressing", "False", "7 nodes are not selected")]));
    assert_eq!((found.state, found.is_done), (State::HeldBack { nodes: 7 }, true));
    let found = of(selective, json!([]));
    assert_eq!(found.state, State::RollingOut);
    assert!(found.notes[0].contains("rollingUpdate.selector"), "{:?}", found.notes);

    let found = of(
        json!({}),
        json!([
            condition_of("Progressing", "True", "pod a-1 on n1"),
            condition_of("Available", "False", "2 of 10 nodes have no available pod"),
            condition_of("Degraded", "True", "patches[0] does not apply"),
            condition_of("Paused", "False", "updates proceed"),
        ]),
    );
    assert_eq!((found.state, found.is_done), (State::Degraded, false));
    assert_eq!(found.waiting, ["pod a-1 on n1"]);
    assert_eq!(found.notes, ["patches[0] does not apply", "2 of 10 nodes have no available pod"]);

    // What our own controller writes begins with the counts.
    let mut ours =
        condition_of("Progressing", "True", "3 of 10 nodes have revision r; waiting for n1, n2; out of reach: n3");
    ours["reason"] = json!("RollingOut");
    let found = of(json!({}), json!([ours]));
    assert_eq!((found.waiting, found.notes), (vec!["n1, n2".to_owned()], vec!["out of reach: n3".to_owned()]));
    let mut over = condition_of("Progressing", "False", "all 10 nodes have revision r");
    over["reason"] = json!("Complete");
    assert_eq!(of(json!({}), json!([over])).notes, Vec::<String>::new());

    // One that is stuck is not over, whatever else is said.
    let stuck = json!([condition_of("Progressing", "False", ""), condition_of("Degraded", "True", "no")]);
    assert!(!of(json!({}), stuck).is_done);

    // One of an earlier generation says nothing about this one.
    let mut old = condition_of("Degraded", "True", "?");
    old["observedGeneration"] = json!(1);
    assert_eq!(of(json!({}), json!([old])).state, State::RollingOut);
}

#[test]
fn nodes_without_a_pod_are_counted() {
    for (scheduled, missing) in [(9, 1), (10, 0), (99, 0), (-1, 10)] {
        assert_eq!(progress(&set(json!({}), json!({"currentNumberScheduled": scheduled}))).missing, missing);
    }
}

#[test]
fn one_that_is_being_deleted_is_never_done() {
    let mut going = set(json!({}), json!({}));
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-15T10:00:00Z")).unwrap();
    let found = progress(&going);
    assert_eq!((found.state, found.is_done), (State::Deleting, false));
}

#[test]
fn pausing_twice_is_refused() {
    let (runs, stands) = (set(json!({}), json!({})), set(rolling(json!({"paused": true})), json!({})));
    let patch = pause(&runs, true).unwrap();
    assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    assert_eq!(patch["spec"], json!({"updateStrategy": {"rollingUpdate": {"paused": true}}}));
    assert_eq!(pause(&stands, false).unwrap()["spec"]["updateStrategy"]["rollingUpdate"]["paused"], false);
    assert_eq!(pause(&stands, true), Err(ChangeError::AlreadyPaused));
    assert_eq!(pause(&runs, false), Err(ChangeError::NotPaused));
    let on_delete = set(json!({"type": "OnDelete"}), json!({}));
    assert_eq!(pause(&on_delete, true), Err(ChangeError::OnDelete));
    assert_eq!(pause(&on_delete, false), Err(ChangeError::OnDelete));
}

#[test]
fn a_restart_needs_a_rollout_that_goes_on() {
    let at = "2026-11-15T10:00:00Z";
    let mut runs = set(json!({}), json!({}));
    let patch = restart(&runs, at).unwrap();
    assert_eq!(patch["spec"], json!({"template": {"metadata": {"annotations": {RESTARTED_ANNOTATION: at}}}}));
    assert_eq!(restart(&set(rolling(json!({"paused": true})), json!({})), at), Err(ChangeError::Paused));
    runs.spec.template.0 = json!({"metadata": {"annotations": {RESTARTED_ANNOTATION: at}}});
    assert_eq!(restart(&runs, at), Err(ChangeError::JustRestarted));
    assert!(restart(&runs, "2026-11-15T10:00:01Z").is_ok());
}

#[test]
fn a_rollout_that_has_stalled_is_not_over() {
    let mut stalled = condition_of("Progressing", "False", "no progress for 10 minutes: waiting for n1");
    stalled["reason"] = json!("Stalled");
    let progress = progress(&set(json!({}), json!({"updatedNumberScheduled": 3, "conditions": [stalled]})));
    assert_eq!((progress.state, progress.is_done), (State::RollingOut, false));
    assert_eq!(progress.notes, ["no progress for 10 minutes: waiting for n1"]);
}

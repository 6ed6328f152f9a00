//! Workloads as the API server stores them, and as others leave them.

use super::*;
use std::sync::Arc;

const DEPLOYMENT: Document = Document::Deployment;

fn rendered(workload: Value) -> Rendered {
    let workload = Arc::new(workload);
    Rendered { document: DEPLOYMENT, workload, hash: Arc::from("hash"), targets: Vec::new(), unused: Vec::new() }
}

fn rendering() -> Value {
    json!({
        "metadata": {"namespace": "default", "labels": {"app": "demo", "apps.openyurt.io/pool-name": "edge"},
            "annotations": {"apps.openyurt.io/ref-nodepool": "edge", "dapple.dev/replicas": "2", "dapple.dev/rendered": "hash"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "demo", "apps.openyurt.io/pool-name": "edge"}}, "strategy": {},
            "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "demo", "apps.openyurt.io/pool-name": "edge"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:1.18.0", "resources": {}}],
                    "nodeSelector": {"apps.openyurt.io/nodepool": "edge"},
                    "tolerations": [{"key": "edge", "operator": "Exists", "effect": "NoSchedule"}]}}},
    })
}

/// As OpenYurt 1.4 left it on Kubernetes 1.36.
fn stored() -> Value {
    json!({
        "metadata": {"name": "demo-edge-f8gvf", "uid": "u", "resourceVersion": "7", "generation": 1,
            "annotations": {"apps.openyurt.io/ref-nodepool": "edge", "deployment.kubernetes.io/revision": "1"},
            "labels": {"app": "demo", "apps.openyurt.io/controller-revision-hash": "demo-67d6f99b64",
                "apps.openyurt.io/pool-name": "edge"}},
        "spec": {"progressDeadlineSeconds": 600, "replicas": 2, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "demo", "apps.openyurt.io/pool-name": "edge"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "demo", "apps.openyurt.io/controller-revision-hash": "demo-67d6f99b64",
                    "apps.openyurt.io/pool-name": "edge"}},
                "spec": {"containers": [{"image": "nginx:1.18.0", "imagePullPolicy": "IfNotPresent", "name": "nginx", "resources": {},
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                    "dnsPolicy": "ClusterFirst", "nodeSelector": {"apps.openyurt.io/nodepool": "edge"}, "restartPolicy": "Always",
                    "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
                    "tolerations": [{"effect": "NoSchedule", "key": "edge", "operator": "Exists"}]}}},
    })
}

fn changed(pointer: &[&str], value: Value) -> Value {
    let mut workload = stored();
    put(&mut workload, pointer, value);
    workload
}

fn compared(stored: &Value, beside: Beside<'_>) -> (Value, Difference) {
    let wanted = wanted(&rendered(rendering()), stored, beside);
    let difference = difference(DEPLOYMENT, stored, &wanted);
    (wanted, difference)
}

fn applied(to: &Value, patch: &Value) -> Value {
    let mut result = to.clone();
    json_patch::merge(&mut result, patch);
    result
}

#[test]
fn what_openyurt_left_is_as_it_should_be_but_for_a_note() {
    let (wanted, difference) = compared(&stored(), Beside::default());
    assert!(!difference.concerns_pods() && difference.fixed.is_empty(), "{difference:?}");
    assert_eq!(difference.field, Some(place(&["metadata", "annotations", DECLARED_REPLICAS])));
    let patch = patch((DEPLOYMENT, &stored()), &wanted, "demo-new", (None, &BTreeMap::new()));
    assert_eq!(patch.get("spec"), None, "no pod is touched: {patch}");
    let after = applied(&stored(), &patch);
    assert!(!compared(&after, Beside::default()).1.is_some(), "then it is at rest");
}

#[test]
fn a_change_is_found_and_the_patch_makes_it_as_it_should_be() {
    let template = ["spec", "template", "spec"];
    for (at, value) in [
        (&[&template[..], &["containers"]].concat()[..], json!([{"name": "nginx", "image": "other"}])),
        (&[&template[..], &["hostNetwork"]].concat()[..], json!(true)),
        (&[&template[..], &["tolerations"]].concat()[..], json!([])),
        (&["spec", "template", "metadata", "annotations", "x"][..], json!("y")),
        (&["spec", "minReadySeconds"][..], json!(5)),
        (&["spec", "strategy"][..], json!({"type": "Recreate"})),
        (&["metadata", "labels", "app"][..], json!("other")),
    ] {
        let there = changed(at, value);
        let (wanted, found) = compared(&there, Beside::default());
        assert_eq!(found.template, at.starts_with(&["spec", "template"]), "{at:?}: {found:?}");
        assert!(found.is_some() && found.field.is_some());
        let patch = patch((DEPLOYMENT, &there), &wanted, "demo-new", (None, &BTreeMap::new()));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let has_revision = patch["spec"]["template"]["metadata"]["labels"][POOL_REVISION_LABEL] == "demo-new";
        assert_eq!(has_revision, found.template, "the label changes with the template, and never alone");
        let after = applied(&there, &patch);
        assert!(!compared(&after, Beside::default()).1.is_some(), "{at:?} becomes {after}");
    }
}

#[test]
fn of_two_restarts_the_later_one_counts() {
    let at = ["spec", "template", "metadata", "annotations", RESTARTED_AT];
    let (early, late) = ("2026-11-15T10:00:00Z", "2026-11-15T12:00:00+01:00");
    for (declared, there, kept) in [
        (None, Some(early), Some(early)),
        (Some(late), None, Some(late)),
        (Some(late), Some(early), Some(late)),
        (Some(early), Some(late), Some(late)),
        (Some(early), Some("garbled"), Some(early)),
        (Some("garbled"), Some(early), Some(early)),
        (None, None, None),
    ] {
        let (mut asked, mut stored) = (rendering(), stored());
        for (workload, time) in [(&mut asked, declared), (&mut stored, there)] {
            if let Some(time) = time {
                put(workload, &at, time.into());
            }
        }
        let wanted = wanted(&rendered(asked), &stored, Beside::default());
        assert_eq!(restart_of(&wanted), kept.map(Value::from).as_ref(), "{declared:?} {there:?}");
        assert_eq!(difference(DEPLOYMENT, &stored, &wanted).template, kept != there, "{declared:?} {there:?}");
    }
}

#[test]
fn the_revision_is_in_no_comparison() {
    for path in [&["metadata"][..], &["spec", "template", "metadata"][..]] {
        let there = changed(&[path, &["labels", POOL_REVISION_LABEL]].concat(), json!("another"));
        let note = Some(place(&["metadata", "annotations", DECLARED_REPLICAS]));
        assert_eq!(compared(&there, Beside::default()).1.field, note);
    }
}

#[test]
fn the_number_of_pods_is_written_when_another_is_declared() {
    let noted = |live: i64, noted: &str| {
        let mut there = changed(&["spec", "replicas"], live.into());
        put(&mut there, &["metadata", "annotations", DECLARED_REPLICAS], noted.into());
        there
    };
    let number = |there: &Value, is_autoscaled| {
        let (wanted, difference) = compared(there, Beside { is_autoscaled, own: None });
        (declared_replicas(&wanted), difference.fewer)
    };
    assert_eq!(number(&noted(7, "2"), false), (7, false), "kubectl scale is left alone");
    assert_eq!(number(&noted(7, "3"), false), (2, true), "another number is declared");
    assert_eq!(number(&noted(7, "3"), true), (7, false), "an autoscaler has the say");
    assert!(!compared(&noted(7, "3"), Beside { is_autoscaled: true, own: None }).1.is_some(), "and nothing is written");
    assert_eq!(number(&noted(7, "many"), false), (7, false), "what nobody can read declares nothing");
    let unnoted = changed(&["spec", "replicas"], 7.into());
    assert_eq!(number(&unnoted, false), (7, false), "what was taken over keeps its number");
    assert_eq!(number(&noted(1, "1"), false), (2, false), "more pods need no place in the budget");
}

#[test]
fn a_restart_and_a_pause_that_somebody_asked_for_stay() {
    let restarted =
        changed(&["spec", "template", "metadata", "annotations", RESTARTED_AT], json!("2026-11-15T04:06:02Z"));
    assert!(!compared(&restarted, Beside::default()).1.template);
    let paused = changed(&["spec", "paused"], json!(true));
    assert_eq!(compared(&paused, Beside::default()).0["spec"]["paused"], true);
    let own = json!({"spec": {"paused": true}});
    assert_eq!(compared(&paused, Beside { own: Some(&own), is_autoscaled: false }).0["spec"].get("paused"), None);
}

#[test]
fn what_has_pods_made_anew_without_another_template_concerns_pods() {
    let of = |kind, there: Value, asked: Value| {
        let found = difference(kind, &json!({"metadata": {}, "spec": there}), &json!({"metadata": {}, "spec": asked}));
        assert!(found.is_some() && !found.template && found.field.is_some(), "{found:?}");
        (found.released, found.concerns_pods())
    };
    let (yes, no) = ((true, true), (false, false));
    let deployment = |there, asked| of(DEPLOYMENT, there, asked);
    assert_eq!(deployment(json!({"paused": true}), json!({})), yes, "pods are made of what was held back");
    assert_eq!(deployment(json!({}), json!({"paused": true})), no);
    assert_eq!(deployment(json!({}), json!({"strategy": {"type": "Recreate"}})), no, "that is for the next template");
    let set = |there, asked| of(Document::StatefulSet, there, asked);
    let strategy = |of: &str| json!({"updateStrategy": {"type": of}});
    let partition = |of: i64| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": of}}});
    assert_eq!(set(strategy("OnDelete"), json!({})), yes);
    assert_eq!(set(strategy("OnDelete"), strategy("RollingUpdate")), yes);
    assert_eq!(set(strategy("OnDelete"), partition(3)), yes);
    assert_eq!(set(strategy("RollingUpdate"), strategy("OnDelete")), no);
    assert_eq!(set(partition(3), partition(2)), yes);
    assert_eq!(set(partition(3), json!({})), yes);
    assert_eq!(set(partition(2), partition(3)), no);
    assert_eq!(set(json!({"ordinals": {"start": 0}}), json!({"ordinals": {"start": 3}})), yes);
    assert_eq!(set(json!({"ordinals": {"start": 3}}), json!({})), yes);
    assert_eq!(set(json!({"minReadySeconds": 5}), json!({})), no);
}

#[test]
fn a_toleration_of_a_taint_that_is_gone_goes_with_the_next_change() {
    let spare = json!({"key": "old", "operator": "Exists", "effect": "NoSchedule"});
    let needed = json!({"effect": "NoSchedule", "key": "edge", "operator": "Exists"});
    let there = changed(&["spec", "template", "spec", "tolerations"], json!([spare, needed]));
    let without = json!({"spec": {"template": {"spec": {}}}});
    let beside = Beside { own: Some(&without), is_autoscaled: false };
    assert!(!compared(&there, beside).1.template, "it stays while nothing else changes");
    let mut other = there.clone();
    put(&mut other, &["spec", "template", "spec", "hostNetwork"], true.into());
    let (wanted, difference) = compared(&other, beside);
    assert!(difference.template);
    assert_eq!(wanted["spec"]["template"]["spec"]["tolerations"], json!([needed]));
    let own = json!({"spec": {"template": {"spec": {"tolerations": [spare]}}}});
    assert!(compared(&there, Beside { own: Some(&own), is_autoscaled: false }).1.template, "the application had it");
}

#[test]
fn what_kubernetes_does_not_change_is_named() {
    let selector = json!({"matchLabels": {"app": "other", "apps.openyurt.io/pool-name": "edge"}});
    assert_eq!(compared(&changed(&["spec", "selector"], selector), Beside::default()).1.fixed, ["spec.selector"]);
    let set = |spec: Value| json!({"metadata": {}, "spec": spec});
    let claims = |size: &str| {
        json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}}])
    };
    let mut filled = claims("1Gi");
    for (field, value) in
        [("apiVersion", json!("v1")), ("kind", json!("PersistentVolumeClaim")), ("status", json!({"phase": "Pending"}))]
    {
        filled[0][field] = value;
    }
    filled[0]["spec"]["volumeMode"] = json!("Filesystem");
    let there = set(json!({"serviceName": "a", "podManagementPolicy": "OrderedReady", "volumeClaimTemplates": filled,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}));
    let same = set(json!({"serviceName": "a", "volumeClaimTemplates": claims("1Gi")}));
    assert!(!difference(Document::StatefulSet, &there, &same).is_some());
    let other = set(json!({"serviceName": "b", "volumeClaimTemplates": claims("2Gi"), "minReadySeconds": 5}));
    let fixed = difference(Document::StatefulSet, &there, &other).fixed;
    assert_eq!(fixed, ["spec.serviceName", "spec.volumeClaimTemplates"]);
}

#[test]
fn what_another_webhook_makes_of_it_is_told_by_a_dry_run() {
    let pinned =
        changed(&["spec", "template", "spec", "containers"], json!([{"name": "nginx", "image": "nginx@sha256:1"}]));
    let mut answer = pinned.clone();
    put(&mut answer, &["metadata", "annotations", RENDERED], json!("hash"));
    put(&mut answer, &["spec", "template", "metadata", "labels", POOL_REVISION_LABEL], json!("demo-new"));
    assert!(is_as_stored(DEPLOYMENT, &pinned, &answer));
    put(&mut answer, &["spec", "template", "spec", "hostNetwork"], json!(true));
    assert!(!is_as_stored(DEPLOYMENT, &pinned, &answer));
}

#[test]
fn what_the_application_does_not_say_any_more_goes_with_the_next_write() {
    let there = changed(&["metadata", "labels", "once"], json!("x"));
    let there = {
        let mut there = there;
        put(&mut there, &["metadata", "labels", "foreign"], json!("y"));
        there
    };
    let own = json!({"metadata": {"labels": {"once": "x", "app": "demo"}}});
    let wanted = wanted(&rendered(rendering()), &there, Beside::default());
    let notes = BTreeMap::from([(LEAVING_SINCE, None), (CHANGED, Some("{}".to_owned()))]);
    let after = applied(&there, &patch((DEPLOYMENT, &there), &wanted, "r", (Some(&own), &notes)));
    assert_eq!((after["metadata"]["labels"].get("once"), &after["metadata"]["labels"]["foreign"]), (None, &json!("y")));
    assert_eq!(after["metadata"]["annotations"][CHANGED], "{}");
}

use dapple_edit::marker::OwnerKeys;
use dapple_plan::marker::result::Run;
use serde_json::{Value, json};

use super::*;
use crate::slim::{Interner, read};

fn pod(mut object: Value) -> Arc<Pod> {
    object["metadata"]["name"] = json!("p");
    object["metadata"]["resourceVersion"] = json!("1");
    Arc::new(read(&object, &mut Interner::default()).unwrap())
}

fn rules(items: Value) -> Rules {
    let marker = json!({"metadata": {"name": "m"}, "spec": {"markItems": items}});
    let rule = Rule::of(&serde_json::from_value(marker).unwrap()).unwrap();
    Rules::from([(rule.age.name.clone(), Arc::new(rule))])
}

/// What a pod has at annotations, as these markers see it.
fn annotations(rules: &Rules, annotations: Value, keys: &[&str]) -> Vec<Option<String>> {
    let pod = pod(json!({"metadata": {"annotations": annotations}}));
    let text = pod.annotations.get(MARKS_ANNOTATION);
    let record = Record::read(text, &OwnerKeys::None);
    let annotations = Annotations { pod: &pod, record: &record, rules };
    keys.iter().map(|key| annotations.get(key).map(str::to_owned)).collect()
}

#[test]
fn values_that_markers_know_are_told_from_others_though_no_text_is_kept() {
    let rules = rules(json!({"annotations": {"wanted": "1"}}));
    let record = json!([{"marker": "gone", "annotation": "marked", "set": "2", "found": "0", "at": 1}]).to_string();
    let known = json!({"wanted": "1", "marked": "2", "other": "3", MARKS_ANNOTATION: record});
    let found = annotations(&rules, known, &["wanted", "marked", "absent", MARKS_ANNOTATION]);
    assert_eq!(found[..3], [Some("1".to_owned()), Some("2".to_owned()), None]);
    assert_eq!(found[3], Some(record.clone()), "what dapple reads is kept as it is");
    let put_back = annotations(&rules, json!({"marked": "0", MARKS_ANNOTATION: record}), &["marked"]);
    assert_eq!(put_back, [Some("0".to_owned())]);
    let others = annotations(&rules, json!({"wanted": "another", "other": "3"}), &["wanted", "other"]);
    assert!(others.iter().all(|value| is_not_read(value.as_deref())), "{others:?}");
}

#[test]
fn pods_that_end_neither_count_nor_are_patched() {
    let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
    for (object, lives) in [
        (json!({}), true),
        (json!({"status": {"phase": "Running"}}), true),
        (json!({"status": {"phase": "Succeeded"}}), false),
        (json!({"status": {"phase": "Failed"}}), false),
        (json!({"metadata": leaving}), false),
    ] {
        assert_eq!(is_live(&pod(object.clone())), lives, "{object}");
    }
}

#[test]
fn a_marker_has_to_do_with_pods_that_it_selects_or_that_have_marks() {
    let marker = json!({"metadata": {"name": "m"}, "spec": {"markItems": {"labels": {"k": "1"}},
        "matchRequirements": {"podSelector": {"matchLabels": {"app": "web"}}}}});
    let rule = Rule::of(&serde_json::from_value(marker).unwrap()).unwrap();
    let rules = Rules::from([(rule.age.name.clone(), Arc::new(rule))]);
    let is_concerned = |metadata: Value| concerns(&rules, &pod(json!({"metadata": metadata})));
    assert!(is_concerned(json!({"labels": {"app": "web"}})));
    assert!(is_concerned(json!({"annotations": {MARKS_ANNOTATION: "[]"}})));
    assert!(!is_concerned(json!({"labels": {"app": "db"}})));
}

#[test]
fn containers_are_probed_that_run_as_long_as_the_pod() {
    let spec = json!({
        "containers": [{"name": "a", "ports": [{"name": "web", "containerPort": 80}, {"containerPort": 81}]},
            {"name": "b"}, {"name": "c"}, {"name": "d"}],
        "initContainers": [{"name": "first"}, {"name": "beside", "restartPolicy": "Always"}],
    });
    let runs =
        |id: &str| json!({"name": id, "containerID": id, "state": {"running": {"startedAt": "1970-01-01T00:00:07Z"}}});
    let ended = json!({"terminated": {"exitCode": 1}});
    let status = json!({
        "containerStatuses": [runs("a"), {"name": "b", "state": ended},
            {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended}],
        "initContainerStatuses": [runs("beside")],
    });
    let pod = pod(json!({"spec": spec, "status": status}));
    let names: Vec<&str> = pod.probed.iter().map(|known| &*known.name).collect();
    assert_eq!(names, ["a", "b", "c", "d", "beside"]);
    assert_eq!(pod.probed[0].ports, [(Arc::from("web"), 80)]);
    let run = |id: &str| Run::Runs { id: Arc::from(id), since: 7 };
    let found: Vec<&Run> = pod.probed.iter().map(|known| &known.run).collect();
    assert_eq!(found, [&run("a"), &Run::Stopped, &Run::Stopped, &Run::NotYet, &run("beside")]);
}

#[test]
fn a_pod_is_on_the_node_that_it_is_bound_to_and_not_on_one_that_it_waits_for() {
    let view = View::new(Env::system(), Arc::default(), Arc::default(), Arc::default());
    let is_there = |spec: Value| {
        let seen = Seen::new(&view, pod(json!({"spec": spec})), Arc::default());
        seen.show(&Rules::new(), |pod| match pod.node {
            NodeOf::Unbound => "unbound",
            NodeOf::Gone => "gone",
            NodeOf::There(_) => "there",
        })
    };
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    let waits =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    assert_eq!(is_there(json!({"affinity": waits})), "unbound");
    assert_eq!(is_there(json!({"nodeName": "n"})), "gone");
}

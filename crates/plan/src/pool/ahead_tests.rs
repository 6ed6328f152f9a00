//! What is foretold of a few pools. That the controller does it is a test of `application`.

use dapple_api::pool::{DECLARED_REPLICAS, POOL_NAME_LABEL, Stopped};
use dapple_edit::edit::ReferenceKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::pool::version::InForce;
use crate::pool::workload::tests::set;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn said(annotations: &[(&str, &str)]) -> Said {
    let of = |key: &str| annotations.iter().find(|(known, _)| *known == key).map(|(_, text)| *text);
    Said::of(of, |_| None)
}

/// A workload that runs and is well, of a rendering.
fn running(application: &Application, version: &Version, pool: &str) -> Existing {
    let rendered = render(application, version, pool, &[]).unwrap();
    let mut workload = rendered.new_workload(&format!("demo-{pool}"), "demo-1", &BTreeMap::new());
    let replicas = declared_replicas(&workload);
    workload["metadata"]["generation"] = json!(1);
    workload["status"] = json!({"observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas,
        "updatedReplicas": replicas, "availableReplicas": replicas});
    Existing::new(pool.to_owned(), workload.into())
}

/// Every pool runs two pods of the template, and is to run `more`.
fn seen(pools: &[&str], more: &Value, annotations: &[(&str, &str)]) -> Seen {
    let of = |name: &str, more: &Value| {
        let mut pool = json!({"name": name, "replicas": 2});
        for (field, value) in more.as_object().into_iter().flatten() {
            pool[field] = value.clone();
        }
        pool
    };
    let all = |more: &Value| set(json!(pools.iter().map(|name| of(name, more)).collect::<Vec<_>>()));
    let ((application, before), (_, version)) = (all(&json!({})), all(more));
    let Settled::Create(first) = settle(&application, &before, &[], 0) else { panic!("there is none yet") };
    Seen {
        said: said(annotations),
        status: ApplicationStatus::default(),
        revisions: vec![first],
        pools: pools.iter().map(|name| AskedPool { name: (*name).to_owned(), taints: Vec::new() }).collect(),
        workloads: pools.iter().map(|pool| running(&application, &before, pool)).collect(),
        missing: BTreeSet::new(),
        application,
        version,
    }
}

fn image() -> Value {
    json!({"patch": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}}}})
}

fn turns(seen: &Seen) -> Vec<(String, Turn, Option<usize>)> {
    let ahead = seen.ahead(now()).unwrap();
    ahead.pools.into_iter().map(|pool| (pool.name, pool.turn, pool.wave)).collect()
}

fn waves(seen: &Seen) -> Vec<Option<usize>> {
    turns(seen).into_iter().map(|(.., wave)| wave).collect()
}

#[test]
fn pools_come_in_waves_by_budget_and_order() {
    let all = ["a", "b", "c", "d"];
    let one_by_one = seen(&all, &image(), &[]);
    assert_eq!(waves(&one_by_one), [Some(1), Some(2), Some(3), Some(4)]);
    assert!(turns(&one_by_one).iter().all(|(_, turn, _)| *turn == Turn::Restarted));
    assert_eq!(one_by_one.ahead(now()).unwrap().at_once, (1, 1));
    let two = [("dapple.dev/rollout-max", "2"), ("dapple.dev/rollout-order", "d *")];
    assert_eq!(waves(&seen(&all, &image(), &two)), [Some(1), Some(2), Some(2), Some(1)]);
    assert_eq!(waves(&seen(&all, &json!({}), &[])), [None; 4], "nothing is to be done");
    let first = &one_by_one.ahead(now()).unwrap().pools[0];
    assert_eq!((first.pods, first.workload.as_deref()), (2, Some("demo-a")));
    assert_eq!(first.field.as_deref(), Some("spec.template.spec.containers[name=c].image"));
}

#[test]
fn what_makes_no_pod_anew_waits_for_no_turn() {
    let more = seen(&["a"], &json!({"replicas": 5}), &[]);
    assert_eq!(turns(&more), [("a".to_owned(), Turn::Changed, None)]);
    let fewer = seen(&["a"], &json!({"replicas": 1}), &[]);
    assert_eq!(turns(&fewer), [("a".to_owned(), Turn::Shrunk, Some(1))]);
    let mut paused = seen(&["a"], &image(), &[]);
    let mut workload = Value::clone(&paused.workloads[0].object);
    workload["spec"]["paused"] = json!(true);
    paused.workloads[0].object = workload.into();
    assert_eq!(turns(&paused), [("a".to_owned(), Turn::Noted, Some(1))]);
    let mut new = seen(&["a", "b"], &json!({}), &[]);
    new.workloads.truncate(1);
    assert_eq!(turns(&new), [("a".to_owned(), Turn::LeftAlone, None), ("b".to_owned(), Turn::Made, None)]);
}

#[test]
fn pools_stay_as_they_are_while_something_keeps_them() {
    let keeps = |seen: &Seen| turns(seen).into_iter().map(|(_, turn, _)| turn).collect::<Vec<_>>();
    let paused = seen(&["a"], &image(), &[("dapple.dev/suspend", "true")]);
    assert_eq!(keeps(&paused), [Turn::HeldBack(HeldBy::Pause)]);
    assert_eq!(keeps(&seen(&["a"], &image(), &[("dapple.dev/rollout-max", "x")])), [Turn::HeldBack(HeldBy::Pause)]);

    let mut stopped = seen(&["a"], &image(), &[]);
    stopped.status.stopped = Some(Stopped { revision: 2, since: Time(now()) });
    assert_eq!(keeps(&stopped), [Turn::HeldBack(HeldBy::Stop)]);
    stopped.status.stopped = Some(Stopped { revision: 1, since: Time(now()) });
    assert_eq!(keeps(&stopped), [Turn::Restarted], "that was a rollout before");

    let broken = json!({"patch": {"spec": {"template": {"spec": {"containers": [{"image": "no name"}]}}}}});
    let found = seen(&["a"], &broken, &[]).ahead(now()).unwrap();
    assert_eq!(found.pools[0].turn, Turn::HeldBack(HeldBy::Rendering));
    assert!(found.pools[0].message.contains("an item has no \"name\""), "{found:?}");

    // Two of four that leave at once.
    let mut leaving = seen(&["a", "b", "c", "d"], &json!({}), &[]);
    leaving.pools.truncate(2);
    for existing in &mut leaving.workloads[2..] {
        let mut workload = Value::clone(&existing.object);
        workload["metadata"]["annotations"]["dapple.dev/leaving-since"] = json!("1970-01-01T00:00:00Z");
        existing.object = workload.into();
    }
    assert_eq!(keeps(&leaving)[2..], [Turn::HeldBack(HeldBy::Removal); 2]);
    leaving.said = said(&[("dapple.dev/confirm-removal", "c")]);
    assert_eq!(keeps(&leaving)[2..], [Turn::Leaves, Turn::HeldBack(HeldBy::Removal)]);
}

#[test]
fn a_pool_whose_target_is_missing_is_passed_over() {
    let mut found = seen(
        &["a", "b"],
        &json!({"patch": {"spec": {"template": {"spec": {"volumes": [
        {"name": "v", "configMap": {"name": "from"}}]}}}}}),
        &[],
    );
    let replacements = json!([{"pools": "*", "items": [{"configMap": {"configMapSource": "from", "configMapTarget": "to-{{nodepool}}"}}]}]);
    let replacements = serde_json::from_value(replacements).unwrap();
    found.version.replacements = Some(InForce { name: "r".to_owned(), replacements });
    let target = |name: &str| Target { kind: ReferenceKind::ConfigMap, name: name.to_owned() };
    assert_eq!(found.targets(), BTreeSet::from([target("to-a"), target("to-b")]));
    assert_eq!(waves(&found), [Some(1), Some(2)]);
    found.missing.insert(target("to-a"));
    assert_eq!(waves(&found), [None, Some(1)]);
    let ahead = found.ahead(now()).unwrap();
    assert_eq!((ahead.pools[0].turn, ahead.pools[0].missing.len()), (Turn::HeldBack(HeldBy::Target), 1));
    found.workloads.clear();
    let made = &found.ahead(now()).unwrap().pools[0];
    assert_eq!((made.turn, made.missing.len()), (Turn::Made, 1), "it is made all the same, and its pods wait");
}

#[test]
fn pods_share_the_fate_of_their_pool() {
    let mut found = seen(&["a", "b", "c"], &image(), &[]);
    found.pools.truncate(2);
    found.said = said(&[("dapple.dev/suspend", "true")]);
    let pods = || ["a", "b", "c", "x"].map(|pool| (format!("pod-{pool}"), format!("node-{pool}"), pool.to_owned()));
    let fates = |seen: &Seen| {
        let fates = seen.ahead(now()).unwrap().fates(pods());
        fates.pods.into_values().map(|(_, fate)| fate).collect::<Vec<_>>()
    };
    let paused = Fate::HeldBack(HeldBy::Pause);
    assert_eq!(fates(&found), [paused, paused, paused, Fate::LeftAlone]);
    found.said = said(&[]);
    assert_eq!(fates(&found), [Fate::Recreated, Fate::Recreated, Fate::Removed, Fate::LeftAlone]);
}

#[test]
fn a_switched_template_is_told() {
    let mut found = seen(&["a"], &image(), &[]);
    let mut workload = Value::clone(&found.workloads[0].object);
    workload["kind"] = json!("StatefulSet");
    found.workloads[0].object = workload.into();
    assert_eq!(found.ahead(now()), Err(Unforetold::OtherKind("demo-a".to_owned())));
    let labels = &found.workloads[0].object["metadata"];
    assert_eq!(
        (&labels["labels"][POOL_NAME_LABEL], &labels["annotations"][DECLARED_REPLICAS]),
        (&json!("a"), &json!("2"))
    );
}

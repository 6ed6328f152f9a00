use jiff::Timestamp;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;
use crate::env::{Env, SystemClock};
use crate::slim::{Interner, read};

fn view() -> View {
    View::new(Env::new(SystemClock, 1), Arc::default(), Arc::default(), Arc::default())
}

fn text(text: &str) -> Arc<str> {
    Arc::from(text)
}

/// A pod that is in the view from now on.
fn put(view: &View, name: &str, version: u64, metadata: Value) {
    let mut object = json!({"metadata": metadata});
    for (field, value) in [("name", name), ("namespace", "default"), ("uid", name)] {
        object["metadata"][field] = json!(value);
    }
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    view.pods.apply(Event::Apply(serde_json::from_str(&object.to_string()).unwrap()));
}

/// One that is made now, so that it does not count.
fn young() -> Value {
    json!({"creationTimestamp": Timestamp::now().to_string()})
}

fn marker(replicas: u32, status: Value) -> Marker {
    let metadata = json!({"name": "m", "namespace": "default", "uid": "m", "resourceVersion": "1", "generation": 1});
    let spec = json!({"strategy": {"replicas": replicas}, "markItems": {"labels": {"k": "1"}}});
    let object = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodMarker", "metadata": metadata, "spec": spec,
        "status": status});
    read(&object, &mut Interner::default()).unwrap()
}

/// With this marker alone, as after a look has begun.
fn site(view: &View, marker: &Marker) -> Site {
    let rule = Rule::of(&marker.object).unwrap();
    let mut site = Site::new(Arc::from("default"), (0, Duration::ZERO));
    assert!(
        site.ask(&marker.meta.key.name, Some(rule.clone())) && !site.ask(&marker.meta.key.name, Some(rule.clone()))
    );
    site.prepare(view, marker).unwrap();
    let memory = site.memory("m").unwrap();
    memory.look_back(marker, view.second(), view.now());
    memory.carry(marker, &rule, view.now());
    site
}

fn begin(site: &mut Site, view: &View, marker: &Marker) -> Option<Job> {
    site.begin(view, marker, Limit::default())
}

fn pod_of(job: &Job) -> &str {
    &job.seen.pod.meta.key.name
}

#[test]
fn a_patch_counts_as_done_from_its_sending_until_it_is_seen() {
    let (view, marker) = (view(), marker(1, Value::Null));
    for name in ["a", "b", "c"] {
        put(&view, name, 1, young());
    }
    let mut site = site(&view, &marker);
    let job = begin(&mut site, &view, &marker).unwrap();
    assert_eq!(pod_of(&job), "a");
    assert!(begin(&mut site, &view, &marker).is_none(), "no other is marked meanwhile");
    view.pods.wrote(&job.seen.pod.meta.key, 5);
    site.answered(&view, "m", &job, Answered::Done);
    assert!(begin(&mut site, &view, &marker).is_none(), "it is not seen yet");
    assert_eq!(site.memory("m").unwrap().choice.numbers().succeeded, 1);
    // Somebody takes the mark off in the same moment: what is seen counts.
    put(&view, "a", 6, young());
    site.tell_again(&view, &[text("a")]);
    assert_eq!(begin(&mut site, &view, &marker).as_ref().map(pod_of), Some("a"));
}

#[test]
fn a_patch_of_which_nobody_knows_counts_as_done_until_it_is_asked_for() {
    let (view, marker) = (view(), marker(1, Value::Null));
    for name in ["a", "b"] {
        put(&view, name, 1, young());
    }
    let mut site = site(&view, &marker);
    let job = begin(&mut site, &view, &marker).unwrap();
    site.answered(&view, "m", &job, Answered::Unknown);
    assert!(begin(&mut site, &view, &marker).is_none());
    let memory = site.memory("m").unwrap();
    assert_eq!(memory.doubts(), [(text("a"), text("a"), 1)]);
    memory.cleared("a", false);
    site.tell_again(&view, &[text("a")]);
    assert_eq!(begin(&mut site, &view, &marker).as_ref().map(pod_of), Some("a"), "nothing was done");
}

#[test]
fn a_pod_that_is_refused_is_passed_over_and_one_that_has_changed_waits_for_the_view() {
    let (view, marker) = (view(), marker(1, Value::Null));
    for name in ["a", "b"] {
        put(&view, name, 1, young());
    }
    let mut site = site(&view, &marker);
    let job = begin(&mut site, &view, &marker).unwrap();
    site.answered(&view, "m", &job, Answered::Refused);
    let job = begin(&mut site, &view, &marker).unwrap();
    assert_eq!(pod_of(&job), "b");
    assert_eq!(site.memory("m").unwrap().refusals.len(), 1);
    site.answered(&view, "m", &job, Answered::Late);
    let next = site.next(&view, "m", Limit::default());
    assert!(next.found.is_none() && next.is_behind);
    put(&view, "b", 2, young());
    site.tell_again(&view, &[text("b")]);
    assert_eq!(begin(&mut site, &view, &marker).as_ref().map(pod_of), Some("b"));
}

#[test]
fn what_is_no_change_of_the_spec_waits_for_the_allowance() {
    let view = view();
    for name in ["a", "b"] {
        put(&view, name, 1, json!({"creationTimestamp": "2020-01-01T00:00:00Z"}));
    }
    let known = marker(1, json!({"observedGeneration": 1}));
    let next = site(&view, &known).next(&view, "m", Limit::default());
    assert!(next.found.is_none() && next.is_held, "a new leader begins with nothing");
    let new = marker(1, json!({"observedGeneration": 0}));
    assert!(begin(&mut site(&view, &new), &view, &new).is_some(), "it is carried out");
}

#[test]
fn pods_are_told_of_once_their_owner_was_read() {
    let (view, marker) = (view(), marker(1, Value::Null));
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true});
    put(&view, "a", 1, json!({"creationTimestamp": Timestamp::now().to_string(), "ownerReferences": [owner]}));
    let mut site = site(&view, &marker);
    assert_eq!(site.unread().into_keys().collect::<Vec<_>>(), [text("o")]);
    assert!(begin(&mut site, &view, &marker).is_none());
    assert_eq!(site.memory("m").unwrap().choice.numbers().matched, 0);
}

#[test]
fn a_marker_that_asks_for_something_else_is_told_of_all_pods_before_it_goes_on() {
    let (view, known) = (view(), marker(2, Value::Null));
    put(&view, "a", 1, young());
    let mut site = site(&view, &known);
    let other =
        json!({"metadata": {"name": "other", "namespace": "default"}, "spec": {"markItems": {"labels": {"l": "1"}}}});
    let other = Rule::of(&serde_json::from_value(other).unwrap()).unwrap();
    assert!(site.ask(&text("other"), Some(other)));
    assert!(begin(&mut site, &view, &known).is_none(), "what stands against its marks may be another");
    site.prepare(&view, &known).unwrap();
    assert!(begin(&mut site, &view, &known).is_some());
}

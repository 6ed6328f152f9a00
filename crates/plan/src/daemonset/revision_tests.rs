//! Which revision a set is at, which are dropped, and what they are called.

use super::*;

fn spec(image: &str, patches: Value) -> DaemonSetSpec {
    serde_json::from_value(json!({
        "selector": {"matchLabels": {"app": "a"}}, "patches": patches,
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "agent", "image": image}]}},
    }))
    .unwrap()
}

/// As OpenKruise writes it.
fn foreign(name: &str, number: i64, image: &str) -> Revision {
    let template = json!({"$patch": "replace", "metadata": {"creationTimestamp": null, "labels": {"app": "a"}},
        "spec": {"containers": [{"image": image, "name": "agent", "resources": {}}]}});
    Revision {
        name: name.to_owned(),
        replaces: None,
        number,
        hash: format!("hash-of-{image}"),
        form: 1,
        began: 0,
        data: json!({"spec": {"template": template}}),
    }
}

fn created(step: Settled) -> Revision {
    match step {
        Settled::Create(revision) => revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_another_product_left_is_adopted() {
    let revisions = [foreign("a-old", 1, "agent:1"), foreign("a-new", 2, "agent:2")];
    let step = |image: &str| settle("a", &spec(image, json!([])), &revisions, 0);
    assert_eq!(step("agent:2"), Settled::Keep { name: "a-new".to_owned() });
    assert_eq!(step("agent:1"), Settled::Renumber { name: "a-old".to_owned(), number: 3 }, "a rollback");
    let new = created(step("agent:3"));
    assert_eq!(new.number, 3);
    assert!(new.name.starts_with("a-"), "{}", new.name);
}

#[test]
fn a_patch_makes_a_revision_and_its_name_is_its_own() {
    let patch = |priority: Value| json!([{"selector": {}, "patch": {"spec": {"priority": 1}}, "priority": priority}]);
    let plain = created(settle("a", &spec("agent:1", json!([])), &[], 0));
    let patched = created(settle("a", &spec("agent:1", patch(json!(0))), std::slice::from_ref(&plain), 0));
    assert_ne!(plain.name, patched.name);
    // Priority 0 is the default: saying so is nothing new.
    let said = settle("a", &spec("agent:1", patch(Value::Null)), std::slice::from_ref(&patched), 0);
    assert_eq!(said, Settled::Keep { name: patched.name.clone() });
    let collided = created(settle("a", &spec("agent:1", json!([])), &[], 1));
    assert_ne!(collided.name, plain.name);
}

#[test]
fn pods_that_no_patch_is_for_keep_their_hash() {
    let patch = json!([{"selector": {}, "patch": {"spec": {"priority": 1}}}]);
    let left = [foreign("a-old", 1, "agent:1"), foreign("a-new", 2, "agent:2")];
    assert_eq!(created(settle("a", &spec("agent:2", patch.clone()), &left, 0)).hash, "hash-of-agent:2");
    let first = created(settle("a", &spec("agent:3", json!([])), &[], 0));
    let patched = created(settle("a", &spec("agent:3", patch), std::slice::from_ref(&first), 0));
    assert_eq!(first.hash, patched.hash);
    assert_ne!(first.name, patched.name);
}

#[test]
fn a_revision_is_called_by_its_hash_where_that_is_free() {
    let patch = |value: i64| json!([{"selector": {}, "patch": {"spec": {"priority": value}}}]);
    let first = created(settle("a", &spec("agent:1", json!([])), &[], 0));
    assert_eq!(first.name, format!("a-{}", first.hash));
    let second = created(settle("a", &spec("agent:1", patch(1)), std::slice::from_ref(&first), 0));
    let both = [first.clone(), second.clone()];
    let third = created(settle("a", &spec("agent:1", patch(2)), &both, 0));
    assert_eq!((&second.hash, &third.hash), (&first.hash, &first.hash), "they differ in patches alone");
    let names: std::collections::BTreeSet<&str> = [&first, &second, &third].map(|known| known.name.as_str()).into();
    assert_eq!(names.len(), 3, "{names:?}");
    let name_after = |name: &str, hash: String| {
        let left = [Revision { hash: hash.clone(), ..foreign(name, 1, "agent:2") }];
        let patched = created(settle("a", &spec("agent:2", patch(1)), &left, 0));
        assert_eq!(patched.hash, hash, "pods keep it");
        patched.name
    };
    assert_eq!(name_after("a-renamed", "6b5cc6bb78".to_owned()), "a-6b5cc6bb78");
    for (name, hash) in [("a-6b5cc6bb78", "6b5cc6bb78".to_owned()), ("x", "A_b".to_owned()), ("x", "b".repeat(253))] {
        let made = name_after(name, hash);
        assert!(made != name && made.len() == "a-".len() + 16, "{made}");
    }
}

#[test]
fn names_are_never_too_long() {
    for set in ["a".repeat(253), format!("{}-.{}", "a".repeat(235), "b".repeat(16)), "a.".repeat(126)] {
        for collisions in [0, 1] {
            let made = created(settle(&set, &spec("agent:1", json!([])), &[], collisions));
            let (start, end) = made.name.rsplit_once('-').unwrap();
            assert!(made.name.len() <= 253 && end.len() == 16, "{}", made.name);
            assert!(set.starts_with(start) && start.ends_with(|last: char| last.is_alphanumeric()), "{start}");
        }
    }
}

#[test]
fn going_back_brings_template_and_patches() {
    let before =
        spec("agent:1", json!([{"selector": {"matchLabels": {"x": "y"}}, "patch": {"spec": {}}, "priority": 3}]));
    let (template, patches) = spec_of(&data_of(&before)).unwrap();
    assert_eq!(template, before.template.0);
    assert_eq!(patches, before.patches);
    assert_eq!(spec_of(&foreign("a", 1, "agent:1").data).unwrap().1, []);
    assert_eq!(spec_of(&json!({"spec": {"template": 7}})), None);
}

#[test]
fn what_nobody_can_change_is_replaced_by_what_means_the_same() {
    let old = json!({
        "metadata": {"name": "a-1", "uid": "u1", "labels": {"x": "y"}, "annotations": {CHANGE_CAUSE: "why"},
            "resourceVersion": "7", "finalizers": ["f"]},
        "revision": 5, "data": {"spec": {"template": {}}},
    });
    let new = replacement(&old, ("a", "u"), 60);
    assert_eq!(
        new["metadata"]["annotations"],
        json!({
            REPLACES_ANNOTATION: "a-1", SINCE_ANNOTATION: "1970-01-01T00:01:00Z", CHANGE_CAUSE: "why",
        })
    );
    assert_eq!((&new["revision"], &new["data"]), (&old["revision"], &old["data"]));
    assert_eq!(new["metadata"]["labels"], old["metadata"]["labels"]);
    assert_eq!(new["metadata"]["ownerReferences"][0]["uid"], "u");
    assert!(new["metadata"]["resourceVersion"].is_null() && new["metadata"]["finalizers"].is_null(), "{new}");
    assert_ne!(new["metadata"]["name"], "a-1");
    assert_eq!(new, replacement(&old, ("a", "u"), 60), "safe to repeat");
    // While both are there, the name is the older one's.
    let next = Revision { replaces: Some("a-1".to_owned()), ..foreign("a-x", 1, "agent:1") };
    let both = [next.clone(), foreign("a-1", 1, "agent:1")];
    assert_eq!(find(&both, "a-1").map(|found| found.name.as_str()), Some("a-1"));
    let next = [next];
    assert_eq!(current(Some("a-1"), "a-2", &next, [].into_iter()), Current::Known(&next[0]));
    // What the status names and nobody has is gone, whatever pods have.
    assert_eq!(current(Some("a-3"), "a-2", &next, [(Some("a-x"), "")].into_iter()), Current::Gone);
    assert_eq!(current(None, "a-2", &next, [(Some("a-x"), "")].into_iter()), Current::Known(&next[0]));
    assert_eq!(current(None, "a-2", &next, [(Some("a-2"), "")].into_iter()), Current::Newest);
}

#[test]
fn only_what_nobody_needs_is_surplus() {
    let revisions: Vec<Revision> = (1..=5).map(|number| foreign(&format!("a-{number}"), number, "x:1")).collect();
    let names = |limit: usize, needed: &[&str]| -> Vec<String> {
        let spare = surplus(&revisions, limit, |revision| needed.contains(&revision.name.as_str()));
        spare.into_iter().map(|revision| revision.name.clone()).collect()
    };
    assert_eq!(names(2, &["a-1", "a-5"]), ["a-2"]);
    assert_eq!(names(10, &[]), Vec::<String>::new());
    assert_eq!(names(0, &["a-5"]), ["a-1", "a-2", "a-3", "a-4"]);
}

#[test]
fn one_that_cannot_be_read_is_like_no_other() {
    let broken = Revision {
        name: "a-x".to_owned(),
        replaces: None,
        number: 9,
        hash: String::new(),
        form: 1,
        began: 0,
        data: json!({"spec": {"template": "?"}}),
    };
    assert_eq!(created(settle("a", &spec("agent:1", json!([])), std::slice::from_ref(&broken), 0)).number, 10);
    let last = Revision { number: HIGHEST_NUMBER, ..broken };
    let new = created(settle("a", &spec("agent:1", json!([])), std::slice::from_ref(&last), 0));
    assert_eq!(new.number, HIGHEST_NUMBER);
    assert_eq!([-1, 0, HIGHEST_NUMBER, HIGHEST_NUMBER + 1].map(number_of), [0, 0, HIGHEST_NUMBER, 0]);
    let name = new.name.clone();
    assert_eq!(settle("a", &spec("agent:1", json!([])), &[new, last], 0), Settled::Keep { name });
}

#[test]
fn a_revision_notes_its_form_of_hash() {
    let spec = spec("agent:1", json!([]));
    let new = created(settle("a", &spec, &[], 0));
    let noted = |cause: Option<&str>| object(&new, ("a", "u"), &spec, cause)["metadata"]["annotations"].clone();
    assert_eq!(noted(None), json!({FORM_ANNOTATION: "2"}));
    assert_eq!(noted(Some("why")), json!({FORM_ANNOTATION: "2", CHANGE_CAUSE: "why"}));
    for (annotation, form) in [
        (None, 1),
        (Some("2"), 2),
        (Some("3"), 3),
        (Some("0"), 1),
        (Some("1000"), u8::MAX),
        (Some("-1"), 1),
        (Some("two"), 1),
    ] {
        assert_eq!(form_of(annotation), form, "{annotation:?}");
    }
}

#[test]
fn a_revision_is_the_newest_since_it_was_made_or_returned() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let began = |noted: Option<&str>| began(Some(at(1000)), noted, at(3000));
    assert_eq!(began(None), 1000);
    assert_eq!(began(Some(&at(2000).to_string())), 2000);
    assert_eq!(began(Some(&at(3000).to_string())), 3000);
    assert_eq!(began(Some(&at(900).to_string())), 900, "made for one that nobody could change");
    assert_eq!(began(Some(&at(3001).to_string())), 1000, "not yet");
    assert_eq!(began(Some("yesterday")), 1000);
}

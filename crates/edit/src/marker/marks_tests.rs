use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A pod, as far as marks are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pod {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Pod {
    fn with(labels: &[(&str, &str)]) -> Self {
        Self { labels: map(labels), annotations: BTreeMap::new() }
    }

    fn value(&self, place: Place, key: &str) -> Option<&str> {
        let keys = match place {
            Place::Label => &self.labels,
            Place::Annotation => &self.annotations,
        };
        keys.get(key).map(String::as_str)
    }

    fn record(&self) -> Record {
        Record::read(self.value(Place::Annotation, MARKS_ANNOTATION), &OwnerKeys::None)
    }

    fn marking(&self, marker: &str, items: &MarkItems) -> Change {
        mark(&self.record(), &|place, key| self.value(place, key), marker, items, &OwnerKeys::None, 100)
    }

    fn mark(&mut self, marker: &str, items: &MarkItems) {
        let change = self.marking(marker, items);
        self.apply(&change);
        assert!(self.marking(marker, items).is_empty(), "once more changes nothing");
    }

    fn unmark(&mut self, marker: &str) {
        let change = unmark(&self.record(), &|place, key| self.value(place, key), marker);
        self.apply(&change);
        assert_eq!(self.record().of(marker).count(), 0);
    }

    /// As the API server applies a merge patch.
    fn apply(&mut self, change: &Change) {
        for (keys, changed) in [(&mut self.labels, &change.labels), (&mut self.annotations, &change.annotations)] {
            for (key, value) in changed {
                match value {
                    Some(value) => _ = keys.insert(key.clone(), value.clone()),
                    None => _ = keys.remove(key),
                }
            }
        }
    }

    fn names(&self) -> Option<&str> {
        self.value(Place::Annotation, MARKED_BY_ANNOTATION)
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn items(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> MarkItems {
    MarkItems { labels: map(labels), annotations: map(annotations) }
}

#[test]
fn marks_are_set_and_what_was_found_is_put_back() {
    let mut pod = Pod::with(&[("app", "web"), ("mode", "slow")]);
    let before = pod.clone();
    pod.mark("m", &items(&[("mode", "fast"), ("new", "1")], &[("why", "a test")]));
    assert_eq!(pod.labels, map(&[("app", "web"), ("mode", "fast"), ("new", "1")]));
    assert_eq!((pod.names(), pod.value(Place::Annotation, "why")), (Some("m"), Some("a test")));
    pod.unmark("m");
    assert_eq!(pod, before, "names and record are gone too");
}

#[test]
fn what_was_there_already_is_not_owned() {
    let mut pod = Pod::with(&[("mode", "fast")]);
    let marks = items(&[("mode", "fast")], &[]);
    assert!(pod.marking("m", &marks).is_empty(), "it gets no annotation of ours");
    let both = items(&[("mode", "fast"), ("new", "1")], &[]);
    pod.mark("m", &both);
    pod.unmark("m");
    assert_eq!(pod, Pod::with(&[("mode", "fast")]));
}

#[test]
fn another_value_stays_when_marks_are_taken_off() {
    let mut pod = Pod::with(&[("a", "0")]);
    pod.mark("m", &items(&[("a", "1"), ("b", "1")], &[]));
    pod.labels.insert("a".to_owned(), "mine".to_owned());
    pod.labels.remove("b");
    pod.unmark("m");
    assert_eq!(pod, Pod::with(&[("a", "mine")]));
}

#[test]
fn equal_values_are_shared_and_the_last_to_leave_takes_them_off() {
    let marks = items(&[("a", "1")], &[]);
    for first_to_leave in ["m", "n"] {
        let mut pod = Pod::default();
        pod.mark("n", &marks);
        pod.mark("m", &marks);
        assert_eq!(pod.names(), Some("m,n"), "sorted, with commas");
        pod.unmark(first_to_leave);
        assert_eq!(pod.labels, map(&[("a", "1")]));
        pod.unmark(if first_to_leave == "m" { "n" } else { "m" });
        assert_eq!(pod, Pod::default());
    }
}

#[test]
fn one_that_is_taken_out_hands_what_it_found_to_the_next() {
    let mut pod = Pod::with(&[("a", "0")]);
    pod.mark("m", &items(&[("a", "1")], &[]));
    pod.mark("n", &items(&[("a", "2")], &[]));
    pod.unmark("m");
    assert_eq!((pod.value(Place::Label, "a"), pod.names()), (Some("2"), Some("n")));
    pod.unmark("n");
    assert_eq!(pod, Pod::with(&[("a", "0")]));
}

#[test]
fn new_items_change_marked_pods_where_they_are() {
    let mut pod = Pod::with(&[("a", "0"), ("c", "0")]);
    let before = pod.clone();
    pod.mark("m", &items(&[("a", "1"), ("b", "1")], &[]));
    pod.mark("m", &items(&[("a", "2"), ("c", "2")], &[]));
    assert_eq!(pod.labels, map(&[("a", "2"), ("c", "2")]), "b is gone, c is new");
    pod.unmark("m");
    assert_eq!(pod, before);
}

#[test]
fn a_mark_that_is_to_be_what_was_found_is_nobodys() {
    let mut pod = Pod::with(&[("a", "0")]);
    pod.mark("m", &items(&[("a", "1"), ("b", "1")], &[]));
    pod.mark("m", &items(&[("a", "0"), ("b", "1")], &[]));
    assert_eq!(pod.record().of("m").map(|entry| entry.key.clone()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(pod.value(Place::Label, "a"), Some("0"));
}

#[test]
fn a_key_that_somebody_sets_back_is_set_again_and_theirs_is_put_back() {
    let mut pod = Pod::with(&[("a", "0")]);
    let marks = items(&[("a", "1")], &[]);
    pod.mark("m", &marks);
    pod.labels.insert("a".to_owned(), "theirs".to_owned());
    pod.mark("m", &marks);
    pod.unmark("m");
    assert_eq!(pod, Pod::with(&[("a", "theirs")]));
}

#[test]
fn keys_that_no_marker_sets_are_left_alone() {
    let pod = Pod::with(&[("app", "web"), ("pod-template-hash", "h")]);
    let owner = OwnerKeys::Known(BTreeSet::from(["app".to_owned()]));
    let marks = items(&[("app", "x"), ("pod-template-hash", "x"), ("fine", "1")], &[("dapple.dev/marks", "x")]);
    let change = mark(&Record::default(), &|place, key| pod.value(place, key), "m", &marks, &owner, 1);
    assert_eq!(change.labels.keys().collect::<Vec<_>>(), ["fine"]);
    // A forged record takes off nothing that the owner selects on.
    let forged = r#"[{"marker":"m","at":1,"label":"app","set":"web"},{"marker":"m","at":1,"label":"pod-template-hash","set":"h"}]"#;
    let change = unmark(&Record::read(Some(forged), &owner), &|place, key| pod.value(place, key), "m");
    assert!(change.labels.is_empty(), "{change:?}");
}

#[test]
fn marks_of_a_record_that_is_lost_are_nobodys() {
    let mut pod = Pod::default();
    let marks = items(&[("a", "1")], &[]);
    pod.mark("m", &marks);
    pod.annotations.insert(MARKS_ANNOTATION.to_owned(), "gone".to_owned());
    pod.unmark("m");
    assert_eq!(pod.labels, map(&[("a", "1")]));
}

#[test]
fn a_marker_of_the_same_name_owns_what_the_last_one_left() {
    let mut pod = Pod::with(&[("a", "0")]);
    pod.mark("m", &items(&[("a", "1")], &[]));
    // The marker is deleted: marks, names and records are left. Another comes that asks for something else.
    pod.mark("m", &items(&[("a", "2")], &[]));
    pod.unmark("m");
    assert_eq!(pod, Pod::with(&[("a", "0")]));
}

#[test]
fn a_patch_is_for_this_pod_as_it_was_seen() {
    let pod = Pod::with(&[("a", "0")]);
    let change = pod.marking("m", &items(&[("a", "1")], &[]));
    let record = r#"[{"at":100,"found":"0","label":"a","marker":"m","set":"1"}]"#;
    let mut patch = change.patch("u-1", 17);
    let written = patch["metadata"]["annotations"][MARKS_ANNOTATION].take();
    let written: Value = serde_json::from_str(written.as_str().expect("a text")).expect("JSON");
    assert_eq!(written, serde_json::from_str::<Value>(record).expect("JSON"));
    let annotations = json!({MARKED_BY_ANNOTATION: "m", MARKS_ANNOTATION: null});
    let metadata = json!({"uid": "u-1", "resourceVersion": "17", "labels": {"a": "1"}, "annotations": annotations});
    assert_eq!(patch, json!({"metadata": metadata}));
    assert_eq!(Change::default().patch("u", 1), json!({"metadata": {"uid": "u", "resourceVersion": "1"}}));
}

fn some_items() -> impl Strategy<Value = MarkItems> {
    let some = || prop::collection::btree_map("[ab]", "[123]", 0..3);
    (some(), some()).prop_map(|(labels, annotations)| MarkItems { labels, annotations })
}

fn some_pod() -> impl Strategy<Value = Pod> {
    let some = || prop::collection::btree_map("[abc]", "[0123]", 0..3);
    (some(), some()).prop_map(|(labels, annotations)| Pod { labels, annotations })
}

const MARKERS: [&str; 4] = ["m", "n", "o", "p"];

#[derive(Debug, Clone)]
enum Step {
    Mark(usize, MarkItems),
    Unmark(usize),
    /// Somebody else writes a label.
    Write(String, usize),
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..4, some_items()).prop_map(|(marker, items)| Step::Mark(marker, items)),
        1 => (0_usize..4).prop_map(Step::Unmark),
        1 => ("[ab]", 0_usize..1000).prop_map(|(key, value)| Step::Write(key, value)),
    ]
}

proptest! {
    /// Several markers, each of which changes its mind, taken out in any order.
    #[test]
    fn what_several_set_over_each_other_is_undone_in_any_order(
        pod in some_pod(),
        steps in vec((0_usize..4, some_items()), 0..12),
        order in Just(MARKERS).prop_shuffle(),
    ) {
        let mut marked = pod.clone();
        for (marker, items) in &steps {
            marked.mark(MARKERS[*marker], items);
            for (place, key, value) in wanted(items) {
                prop_assert_eq!(marked.value(place, key), Some(value));
            }
        }
        for marker in order {
            marked.unmark(marker);
        }
        prop_assert_eq!(marked, pod);
    }

    /// Others write in between: what they wrote last is there in the end, whatever was set over it.
    #[test]
    fn what_others_wrote_is_never_lost(
        pod in some_pod(),
        steps in vec(some_step(), 0..16),
        order in Just(MARKERS).prop_shuffle(),
    ) {
        let mut marked = pod.clone();
        let mut expected = pod;
        for step in steps {
            match step {
                Step::Mark(marker, items) => marked.mark(MARKERS[marker], &items),
                Step::Unmark(marker) => marked.unmark(MARKERS[marker]),
                Step::Write(key, value) => {
                    // No marker sets such a value.
                    let value = format!("theirs-{value}");
                    marked.labels.insert(key.clone(), value.clone());
                    expected.labels.insert(key, value);
                }
            }
        }
        for marker in order {
            marked.unmark(marker);
        }
        prop_assert_eq!(marked, expected);
    }
}

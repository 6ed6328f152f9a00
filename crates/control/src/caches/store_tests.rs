use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::slim::{Node, Pod};

const BY_NODE: Index<Pod> = Index { name: "node", values: |pod, add| pod.node.iter().cloned().for_each(add) };

fn observed<T: Cached>(object: &Value) -> Observed<T::Wire> {
    serde_json::from_str(&object.to_string()).expect("metadata is there")
}

fn node(name: &str, version: u64, zone: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "labels": {"zone": zone}}})
}

fn pod(namespace: &str, name: &str, version: u64, owner: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "namespace": namespace, "name": name, "uid": name, "resourceVersion": version.to_string(),
            "ownerReferences": [{"uid": "not-this", "controller": false}, {"uid": owner, "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i:1"}]},
    })
}

fn names<T: Cached>(objects: &[Arc<T>]) -> Vec<&str> {
    objects.iter().map(|object| object.meta().key.name.as_ref()).collect()
}

fn list(store: &Store<Node>, nodes: &[Value]) -> Vec<Change<Node>> {
    let mut changes = store.apply(Event::Init);
    for node in nodes {
        changes.extend(store.apply(Event::InitApply(observed::<Node>(node))));
    }
    changes.extend(store.apply(Event::InitDone));
    changes
}

#[test]
fn the_view_is_full_after_the_first_list_and_not_before() {
    let store = Store::<Node>::default();
    store.apply(Event::Init);
    store.apply(Event::InitApply(observed::<Node>(&node("a", 1, "1"))));
    assert!(!store.is_synced());
    store.apply(Event::InitDone);
    assert!(store.is_synced());
}

#[test]
fn a_new_list_removes_what_it_does_not_name() {
    let store = Store::<Node>::default();
    list(&store, &[node("a", 1, "1"), node("b", 2, "1")]);
    let changes = list(&store, &[node("b", 2, "1"), node("c", 9, "1")]);
    assert_eq!(names(&store.all()), ["b", "c"]);
    let gone: Vec<_> = changes.iter().filter(|change| matches!(change, Change::Object { new: None, .. })).collect();
    assert!(matches!(gone[..], [Change::Object { key, .. }] if key.name.as_ref() == "a"));
}

#[test]
fn a_late_event_does_not_turn_back_time_but_a_list_may() {
    let store = Store::<Node>::default();
    list(&store, &[node("a", 5, "new")]);
    assert!(store.apply(Event::Apply(observed::<Node>(&node("a", 4, "old")))).is_empty());
    assert_eq!(store.all()[0].labels.get("zone"), Some("new"));
    list(&store, &[node("a", 3, "restored")]);
    assert_eq!(store.all()[0].labels.get("zone"), Some("restored"));
}

#[test]
fn objects_are_found_by_index_declared_or_not() {
    let (store, undeclared) = (Store::<Pod>::default(), Store::<Pod>::default());
    let is_alike = |index: Index<Pod>, value: &str| {
        let (found, looked_for) = (store.find(index, value), undeclared.find(index, value));
        assert_eq!(names(&found), names(&looked_for), "{} {value}", index.name);
        for store in [&store, &undeclared] {
            assert_eq!(store.count(index, value), found.len(), "{} {value}", index.name);
            let last = found.last().map(|pod| pod.meta.key.clone());
            let some = store.find_some(index, value, 1, |pod| Some(&pod.meta.key) == last.as_ref());
            assert_eq!(names(&some), names(&found[found.len().saturating_sub(1)..]));
            assert_eq!(names(&store.find_some(index, value, 1, |_| true)), names(&found[..found.len().min(1)]));
        }
        found.iter().map(|pod| pod.meta.key.name.to_string()).collect::<Vec<_>>()
    };
    let apply = |object: &Value| {
        for store in [&store, &undeclared] {
            store.apply(Event::Apply(observed::<Pod>(object)));
        }
    };
    store.declare(Pod::BY_OWNER);
    for (namespace, name, owner, node) in
        [("x", "p1", "o1", "n1"), ("x", "p2", "o2", "n1"), ("y", "p3", "o1", "n2"), ("xy", "p4", "o3", "n3")]
    {
        apply(&pod(namespace, name, 1, owner, node));
    }
    // What was there before is found as well.
    store.declare(BY_NODE);
    assert_eq!(is_alike(Pod::BY_OWNER, "o1"), ["p1", "p3"]);
    assert_eq!(is_alike(BY_NODE, "n1"), ["p1", "p2"]);
    assert_eq!(names(&store.in_namespace("x")), ["p1", "p2"]);
    apply(&pod("x", "p1", 2, "o2", "n2"));
    assert_eq!(is_alike(Pod::BY_OWNER, "o1"), ["p3"]);
    assert_eq!(is_alike(BY_NODE, "n2"), ["p1", "p3"]);
    for store in [&store, &undeclared] {
        store.apply(Event::Delete(observed::<Pod>(&pod("x", "p1", 3, "o2", "n2"))));
    }
    assert_eq!(is_alike(BY_NODE, "n2"), ["p3"]);
}

#[test]
fn a_malformed_object_is_named_and_changes_nothing() {
    let store = Store::<Node>::default();
    list(&store, &[node("good", 1, "1"), node("turned", 2, "1")]);
    let mut bad = node("turned", 3, "1");
    bad["spec"] = json!({"taints": "all of them"});
    let changes = store.apply(Event::Apply(observed::<Node>(&bad)));
    assert!(
        matches!(&changes[..], [Change::Malformed { reason, .. }] if reason == "spec.taints: this must be a list, and it is text"),
        "{changes:?}"
    );
    assert_eq!(names(&store.all()), ["good", "turned"], "forgetting it would look like a deletion");
    assert_eq!(store.malformed().len(), 1);
    list(&store, &[node("good", 1, "1"), bad]);
    assert_eq!(names(&store.all()), ["good", "turned"]);
    store.apply(Event::Apply(observed::<Node>(&node("turned", 4, "2"))));
    assert!(store.malformed().is_empty());
}

#[test]
fn a_version_that_is_no_number_is_malformed() {
    let store = Store::<Node>::default();
    let mut bad = node("a", 1, "1");
    bad["metadata"]["resourceVersion"] = json!("newest");
    let changes = store.apply(Event::Apply(observed::<Node>(&bad)));
    assert!(matches!(&changes[..], [Change::Malformed { reason, .. }] if reason.contains("newest")), "{changes:?}");
}

#[test]
fn nothing_is_decided_before_our_own_write_is_seen() {
    let store = Store::<Node>::default();
    list(&store, &[node("a", 1, "1")]);
    let key = Key::new("", "a");
    assert!(store.caught_up(&key));
    store.wrote(&key, 5);
    assert!(!store.caught_up(&key));
    store.apply(Event::Apply(observed::<Node>(&node("a", 4, "1"))));
    assert!(!store.caught_up(&key), "that was somebody else's write, before ours");
    store.apply(Event::Apply(observed::<Node>(&node("a", 5, "1"))));
    assert!(store.caught_up(&key));
}

#[test]
fn what_is_being_written_and_what_is_not_seen_yet_is_told() {
    let store = Arc::new(Store::<Node>::default());
    list(&store, &[node("a", 1, "1"), node("b", 2, "1")]);
    let (a, b) = (Key::new("", "a"), Key::new("", "b"));
    assert_eq!(store.behind(), []);
    let under_way = store.begin_write(&a);
    store.wrote(&b, 7);
    store.wrote(&b, 5);
    assert_eq!(store.behind(), [b.clone(), a.clone()]);
    store.wrote(&a, 6);
    drop(under_way);
    assert_eq!(store.behind(), [a, b.clone()]);
    store.apply(Event::Apply(observed::<Node>(&node("a", 6, "1"))));
    assert_eq!(store.behind(), [b], "of two answers the newer write counts");
    list(&store, &[node("a", 6, "1"), node("b", 3, "1")]);
    assert_eq!(store.behind(), [], "a list that was begun later has it, whatever its versions say");
}

#[test]
fn after_a_restored_backup_older_versions_count() {
    let store = Store::<Node>::default();
    list(&store, &[node("a", 1000, "1")]);
    list(&store, &[node("a", 3, "1")]);
    let key = Key::new("", "a");
    store.wrote(&key, 5);
    assert!(!store.caught_up(&key));
    store.apply(Event::Apply(observed::<Node>(&node("a", 5, "1"))));
    assert!(store.caught_up(&key));
}

#[test]
fn a_list_under_way_does_not_count_as_seen() {
    let store = Store::<Node>::default();
    list(&store, &[node("y", 1, "1"), node("z", 2, "old")]);
    let key = Key::new("", "z");
    store.wrote(&key, 5);
    store.apply(Event::Init);
    store.apply(Event::InitApply(observed::<Node>(&node("y", 9, "1"))));
    assert!(!store.caught_up(&key), "a newer object was listed, but ours was not yet");
    store.apply(Event::InitApply(observed::<Node>(&node("z", 5, "new"))));
    store.apply(Event::InitDone);
    assert!(store.caught_up(&key));
}

#[test]
fn what_a_later_list_has_told_of_is_seen_before_the_list_is_done() {
    let store = Store::<Node>::default();
    list(&store, &[node("y", 1, "1"), node("z", 2, "old")]);
    let [early, late] = ["y", "z"].map(|name| Key::new("", name));
    store.wrote(&early, 5);
    store.apply(Event::Init);
    store.wrote(&late, 6);
    store.apply(Event::InitApply(observed::<Node>(&node("y", 5, "new"))));
    assert!(store.caught_up(&early), "this is told of once, and never again where nothing changes");
    assert_eq!(store.behind(), std::slice::from_ref(&late));
    store.apply(Event::InitApply(observed::<Node>(&node("z", 2, "old"))));
    assert!(!store.caught_up(&late), "that list began before the write");
    assert_eq!(store.behind(), [late]);
}

#[tokio::test(start_paused = true)]
async fn lists_of_which_nothing_comes_are_in_vain_until_a_page_does() {
    let store = Store::<Node>::default();
    let minute = Duration::from_secs(60);
    store.apply(Event::Init);
    tokio::time::advance(minute).await;
    store.apply(Event::Init);
    assert_eq!(store.listed_in_vain(), minute, "it counts from the first of them");
    store.apply(Event::InitApply(observed::<Node>(&node("a", 1, "1"))));
    assert_eq!(store.listed_in_vain(), Duration::ZERO);
    store.apply(Event::Init);
    assert_eq!(store.listed_in_vain(), Duration::ZERO, "of the one before something came");
    tokio::time::advance(minute).await;
    assert_eq!(store.listed_in_vain(), minute);
    store.apply(Event::InitDone);
    assert_eq!(store.listed_in_vain(), Duration::ZERO, "there is nothing, and that is known");
}

#[test]
fn a_write_whose_object_was_deleted_while_we_were_away_does_not_block_for_ever() {
    let store = Store::<Node>::default();
    list(&store, &[node("a", 1, "1")]);
    let key = Key::new("", "a");
    store.apply(Event::Init);
    store.wrote(&key, 5);
    store.apply(Event::InitDone);
    assert!(!store.caught_up(&key), "that list began before the write");
    list(&store, &[]);
    assert!(store.caught_up(&key));
}

proptest! {
    /// Whatever events come in whatever order, the indexes say what a scan says.
    #[test]
    fn indexes_equal_a_scan(events in proptest::collection::vec((0..8u8, 0..4u8, 0..4u8, 0..5u8), 1..80)) {
        let store = Store::<Pod>::default();
        [Pod::BY_OWNER, BY_NODE].into_iter().for_each(|index| store.declare(index));
        for (version, (name, owner, node, what)) in events.into_iter().enumerate() {
            let pod = pod("x", &format!("p{name}"), version as u64, &format!("o{owner}"), &format!("n{node}"));
            let event = match what {
                0 => Event::Delete(observed::<Pod>(&pod)),
                1 => Event::Init,
                2 => Event::InitDone,
                3 => Event::InitApply(observed::<Pod>(&pod)),
                _ => Event::Apply(observed::<Pod>(&pod)),
            };
            store.apply(event);
            let all = store.all();
            for number in 0..4 {
                let (owner, node) = (format!("o{number}"), format!("n{number}"));
                let by_owner = all.iter().filter(|pod| pod.owner.as_deref() == Some(&owner)).cloned().collect::<Vec<_>>();
                let found = store.find(Pod::BY_OWNER, &owner);
                prop_assert_eq!(names(&found), names(&by_owner));
                prop_assert_eq!(store.count(Pod::BY_OWNER, &owner), by_owner.len());
                let by_node = all.iter().filter(|pod| pod.node.as_deref() == Some(&node)).cloned().collect::<Vec<_>>();
                let found = store.find(BY_NODE, &node);
                prop_assert_eq!(names(&found), names(&by_node));
                prop_assert_eq!(store.count(BY_NODE, &node), by_node.len());
            }
            prop_assert_eq!(all.len(), store.len());
        }
    }
}

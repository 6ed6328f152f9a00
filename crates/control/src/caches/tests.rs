//! Subscribers of one cache, with a watch that is told by hand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::block_in_place;

use super::*;
use crate::slim::{Node, NodeWire};

fn observed(name: &str, version: u64, zone: &str) -> Observed<NodeWire> {
    let metadata = serde_json::json!({"name": name, "uid": name, "resourceVersion": version.to_string(),
        "labels": {"zone": zone}});
    serde_json::from_str(&serde_json::json!({"metadata": metadata}).to_string()).unwrap()
}

fn cache() -> Arc<Cache<Node>> {
    cache_until(&CancellationToken::new())
}

/// A cache whose watch ends with it, by this.
fn cache_until(stop: &CancellationToken) -> Arc<Cache<Node>> {
    Arc::new(Cache {
        kind: NodeWire::KIND,
        name: Arc::from("Node"),
        store: Arc::new(Store::default()),
        subscribers: Mutex::new(Subscribers { next: 0, is_missing: false, all: BTreeMap::new() }),
        _watch: stop.clone().drop_guard(),
    })
}

/// The name of a node with its zone, or nothing where it is gone.
type Zone = (String, Option<String>);

/// What a subscriber has seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Zone>>>);

impl Seen {
    fn note(&self, change: &Change<Node>) {
        let Change::Object { key, new, .. } = change else { return };
        let zone = new.as_ref().map(|node| node.labels.get("zone").unwrap_or_default().to_owned());
        lock(&self.0).push((key.name.to_string(), zone));
    }

    fn all(&self) -> Vec<Zone> {
        lock(&self.0).clone()
    }
}

fn subscribe(cache: &Arc<Cache<Node>>, life: &CancellationToken) -> (Subscription<Node>, Seen) {
    let seen = Seen::default();
    let noting = seen.clone();
    (Opened(cache.clone()).subscribe(life, move |change| noting.note(change)), seen)
}

fn zone(name: &str, zone: &str) -> Zone {
    (name.to_owned(), Some(zone.to_owned()))
}

#[tokio::test]
async fn one_who_comes_late_is_told_what_is_there_and_then_every_change_once() {
    let (cache, life) = (cache(), CancellationToken::new());
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(observed("a", 1, "east")));
    let (early, seen_early) = subscribe(&cache, &life);
    cache.take_in(Event::InitApply(observed("b", 2, "east")));
    let (middle, seen_middle) = subscribe(&cache, &life);
    tokio::task::yield_now().await;
    assert!(!early.is_known() && !middle.is_known(), "in the middle of a list nobody knows everything");
    cache.take_in(Event::InitDone);
    cache.take_in(Event::Apply(observed("a", 3, "west")));
    let (late, seen_late) = subscribe(&cache, &life);
    cache.take_in(Event::Delete(observed("b", 4, "east")));
    for known in [&early, &middle, &late] {
        known.synced(0).await;
    }
    tokio::task::yield_now().await;
    let gone = ("b".to_owned(), None);
    let all = [zone("a", "east"), zone("b", "east"), zone("a", "west"), gone.clone()];
    assert_eq!((seen_early.all(), seen_middle.all()), (all.to_vec(), all.to_vec()));
    assert_eq!(seen_late.all(), [zone("a", "west"), zone("b", "east"), gone]);
}

#[tokio::test]
async fn a_new_term_waits_for_a_list_of_its_own() {
    let (cache, life) = (cache(), CancellationToken::new());
    let list = |cache: &Cache<Node>| {
        cache.take_in(Event::Init);
        cache.take_in(Event::InitDone);
    };
    list(&cache);
    cache.store.begin(3);
    let (subscription, _) = subscribe(&cache, &life);
    subscription.synced(0).await;
    let waits = tokio::time::timeout(Duration::from_millis(20), subscription.synced(3)).await;
    assert!(waits.is_err(), "the list is of a term before");
    list(&cache);
    subscription.synced(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_is_slow_or_panics_harms_no_other() {
    let (cache, life, other_life) = (cache(), CancellationToken::new(), CancellationToken::new());
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    // It comes back from the first change when nobody can release it any more. Its thread takes no other task with it.
    let slow = Opened(cache.clone()).subscribe(&life, move |_| _ = block_in_place(|| is_released.recv()));
    let panicking = Opened(cache.clone()).subscribe(&other_life, |_| panic!("meant"));
    let (subscription, seen) = subscribe(&cache, &life);
    cache.take_in(Event::Init);
    for number in 0..1_000 {
        cache.take_in(Event::InitApply(observed(&format!("n{number}"), number + 1, "east")));
    }
    cache.take_in(Event::InitDone);
    subscription.synced(0).await;
    assert_eq!(seen.all().len(), 1_000);
    other_life.cancelled().await;
    assert!(!life.is_cancelled() && !slow.is_known() && !panicking.is_known());
    drop(release);
    slow.synced(0).await;
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_not_empty_but_unknown() {
    let (cache, life) = (cache(), CancellationToken::new());
    let (subscription, _) = subscribe(&cache, &life);
    cache.note_missing();
    subscription.settled().await;
    assert!(!subscription.is_known());
    for _ in 0..2 {
        cache.take_in(Event::Init);
        cache.take_in(Event::InitDone);
        tokio::task::yield_now().await;
        assert!(subscription.is_known(), "its CRD came");
        cache.note_missing();
        tokio::task::yield_now().await;
        assert!(!subscription.is_known(), "and went");
    }
    let (late, _) = subscribe(&cache, &life);
    late.settled().await;
    assert!(!late.is_known(), "what was known before it went is no view of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_counts_as_seen_once_the_subscriber_was_told() {
    let (cache, life) = (cache(), CancellationToken::new());
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let slow = Opened(cache.clone()).subscribe(&life, move |_| _ = block_in_place(|| is_released.recv()));
    cache.take_in(Event::Init);
    cache.take_in(Event::InitDone);
    let key = Key::new("", "a");
    cache.store.wrote(&key, 5);
    cache.take_in(Event::Apply(observed("a", 5, "east")));
    assert!(cache.store.caught_up(&key) && !slow.caught_up(&key), "it is in the store, and was not told yet");
    drop(release);
    while !slow.caught_up(&key) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_watch_ends_with_the_last_who_reads() {
    let stop = CancellationToken::new();
    let cache = cache_until(&stop);
    let ended = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let life = CancellationToken::new();
    let counted = |ended: &Arc<AtomicUsize>| {
        let counted = Counted(ended.clone());
        Opened(cache.clone()).subscribe(&life, move |_| _ = &counted)
    };
    let (one, other) = (counted(&ended), counted(&ended));
    drop(cache);
    drop(one);
    tokio::task::yield_now().await;
    assert_eq!(ended.load(Ordering::SeqCst), 1, "what it was for is let go of");
    assert!(!stop.is_cancelled() && other.get(&Key::new("", "a")).is_none());
    drop(other);
    assert!(stop.is_cancelled() && !life.is_cancelled());
}

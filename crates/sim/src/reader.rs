//! A reader beside a manager. It subscribes to what the manager's caches keep, at any time and over and over, and looks on:
//! whether it is told everything once and in order, and whether what is not installed counts as known.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_control::caches::store::Change;
use dapple_control::caches::{Caches, Subscription};
use dapple_control::group::Group;
use dapple_control::manager::Shared;
use dapple_control::observed::KindWire;
use dapple_control::slim::{Cached, Key, Node};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::group::GROUPS;
use crate::object::text;
use crate::sim::Sim;

/// So often it comes and goes at once, so that it comes in the middle of lists. After that it stays for longer.
const BRIEF_VISITS: u32 = 10;
/// The longest pause of a watch that finds nothing to watch, and as much again to be told.
const SLACK: Duration = Duration::from_secs(60);

/// Reads until the manager stops.
pub async fn read(sim: Arc<Sim>, shared: Shared, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for visit in 0.. {
        let nodes = Follower::<Node>::start(&sim, "nodes", &shared.caches);
        let groups = Follower::<Group>::start(&sim, GROUPS, &shared.caches);
        let longest = if visit < BRIEF_VISITS { 50 } else { 400_000 };
        let stay = Duration::from_millis(random.u64(0..longest));
        tokio::select! { biased; () = shared.stop.cancelled() => return, () = tokio::time::sleep(stay) => {} }
        for what in [nodes.check(), groups.check()].into_iter().filter_map(Result::err) {
            sim.violate(what);
        }
    }
}

/// One kind, followed.
struct Follower<T: Cached> {
    sim: Arc<Sim>,
    resource: &'static str,
    since: Duration,
    subscription: Subscription<T>,
    /// The versions that it was told of.
    told: Arc<Mutex<BTreeMap<Key, u64>>>,
}

impl<T: Cached<Wire: KindWire>> Follower<T> {
    fn start(sim: &Arc<Sim>, resource: &'static str, caches: &Caches) -> Self {
        let told = Arc::new(Mutex::new(BTreeMap::new()));
        let (noted, watched) = (told.clone(), sim.clone());
        let on_change = move |change: &Change<T>| {
            if let Err(what) = note(&mut lock(&noted), change) {
                watched.violate(format!("{what}: {resource}"));
            }
        };
        let subscription = caches.open().subscribe(&CancellationToken::new(), on_change);
        Self { sim: sim.clone(), resource, since: sim.now(), subscription, told }
    }

    /// What must hold once nothing has happened for a while.
    fn check(&self) -> Result<(), String> {
        let is_long_ago = |at: Duration| self.sim.now() > at + self.sim.memory() + SLACK;
        let (is_served, changed) = self.sim.server_knows(self.resource);
        if !is_long_ago(self.since) || !is_long_ago(changed) {
            return Ok(());
        }
        if self.subscription.is_known() != is_served {
            let resource = self.resource;
            return Err(format!("what is not installed counts as known, or the other way round: {resource}"));
        }
        let objects = self.sim.server.list(self.resource);
        let version = |object: &Value| text(&object["metadata"]["resourceVersion"]).parse().unwrap_or(0);
        let key = |object: &Value| {
            let meta = &object["metadata"];
            Key::new(text(&meta["namespace"]), text(&meta["name"]))
        };
        let there: BTreeMap<Key, u64> = objects.iter().map(|object| (key(object), version(object))).collect();
        if is_served && *lock(&self.told) != there {
            return Err(format!("a subscriber was not told everything: {}", self.resource));
        }
        Ok(())
    }
}

/// Takes in a change: it must follow on what was told before.
fn note<T: Cached>(told: &mut BTreeMap<Key, u64>, change: &Change<T>) -> Result<(), String> {
    let Change::Object { key, old, new, .. } = change else { return Ok(()) };
    let version = |object: &Arc<T>| object.meta().version;
    let before = match new {
        Some(new) => told.insert(key.clone(), version(new)),
        None => told.remove(key),
    };
    if before == old.as_ref().map(version) { Ok(()) } else { Err("a subscriber has missed a change".to_owned()) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

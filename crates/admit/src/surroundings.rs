//! What webhooks know of the cluster beside the object they are asked about: names and labels of nodes, names of groups
//! and pools, and which replacements there are. It is what the manager's caches know.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use dapple_control::caches::store::Change;
use dapple_control::caches::{Caches, Subscription};
use dapple_control::group::Group;
use dapple_control::pool::{Pool, Replacement};
use dapple_control::slim::{Cached, Key, Node};
use dapple_plan::census::Census;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// A first view that takes longer is worth a line.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// What is known.
pub struct Surroundings {
    census: Arc<RwLock<Census>>,
    nodes: Subscription<Node>,
    groups: Subscription<Group>,
    pools: Subscription<Pool>,
    replacements: Subscription<Replacement>,
}

impl Surroundings {
    /// Subscribes to all that webhooks ask about. If that breaks, `life` is cancelled.
    pub fn start(caches: &Caches, life: &CancellationToken) -> Self {
        let census = Arc::new(RwLock::new(Census::default()));
        let counted = census.clone();
        let on_node = move |change: &Change<Node>| {
            let Change::Object { key, new, .. } = change else { return };
            match new {
                Some(node) => write(&counted).put(&key.name, node.labels.iter_shared()),
                None => write(&counted).remove(&key.name),
            }
        };
        Self {
            census,
            nodes: caches.open().subscribe(life, on_node),
            groups: caches.open().subscribe(life, |_| {}),
            pools: caches.open().subscribe(life, |_| {}),
            replacements: caches.open().subscribe(life, |_| {}),
        }
    }

    /// Waits until everything was read once, or is known not to be installed, for as long as it takes: who judges without it
    /// takes what another replica would refuse.
    pub async fn read_once(&self) {
        let all_read = async || {
            self.nodes.settled().await;
            self.groups.settled().await;
            self.pools.settled().await;
            self.replacements.settled().await;
        };
        while tokio::time::timeout(READ_WITHIN, all_read()).await.is_err() {
            warn!("nodes, groups, pools or replacements could not be read yet; webhooks are not served without them");
        }
    }

    /// Nodes and their labels.
    pub fn census(&self) -> RwLockReadGuard<'_, Census> {
        self.census.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there may be a group of this name: there is, or the kind is not installed, so that nobody knows.
    pub fn may_have_group(&self, name: &str) -> bool {
        may_have(&self.groups, name)
    }

    /// Whether there may be a pool of this name.
    pub fn may_have_pool(&self, name: &str) -> bool {
        may_have(&self.pools, name)
    }

    /// The replacements of a namespace that can be read, by name; none where the kind is not installed any more.
    pub fn replacements(&self, namespace: &str) -> Vec<Arc<Replacement>> {
        if self.replacements.is_known() { self.replacements.in_namespace(namespace) } else { Vec::new() }
    }
}

/// Names are compared without case; those of objects have none. One that cannot be read is there all the same.
fn may_have<T: Cached>(known: &Subscription<T>, name: &str) -> bool {
    let key = Key::new("", &name.to_lowercase());
    !known.is_known() || known.get(&key).is_some() || known.is_malformed(&key)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

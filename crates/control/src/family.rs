//! What a family of APIs is, as data: [`crate::families`] has all of them, and the manager runs any.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::kinds::{KindInfo, OwnKind};
use dapple_plan::marker::allowance::Limit;
use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::env::Env;
use crate::gates::{Gate, Gates};
use crate::metrics::Metrics;
use crate::retry::Recovery;
use crate::signal::Signal;
use crate::writes::events::Recorder;

/// A family of APIs: kinds that belong together, with controllers of their own.
pub struct Family {
    /// Its name, as in `--families`: that of its module in every layer.
    pub name: &'static str,
    /// The kinds that `dapple adopt` can take over from another product.
    pub adoptable: &'static [&'static OwnKind],
    /// What is served together. Most families are one part.
    pub parts: &'static [Part],
    /// Features of it that can be switched.
    pub gates: &'static [&'static Gate],
    /// Makes metrics known that are its alone.
    pub register: fn(&Metrics),
}

/// Kinds of a family that are served together. If one of them is another product's, this part stays off, and no other does.
pub struct Part {
    /// Its name in logs, metrics and readiness: that of its family, with the kind where kinds are served one by one.
    pub name: &'static str,
    /// The kinds that have to be dapple's to serve before its controllers begin.
    pub needs: &'static [&'static OwnKind],
    /// What works on its objects.
    pub controllers: &'static [Controller],
    /// Tells those who wait for it why it is off. Begun after each look that finds it so, and dropped at the next.
    pub tell_off: fn(ControllerContext, String) -> BoxFuture<'static, ()>,
}

impl Family {
    /// The kinds that its parts need.
    pub fn needs(&self) -> impl Iterator<Item = &'static OwnKind> + use<> {
        self.parts.iter().flat_map(|part| part.needs).copied()
    }

    /// What works on its objects.
    pub fn controllers(&self) -> impl Iterator<Item = &'static Controller> + use<> {
        self.parts.iter().flat_map(|part| part.controllers)
    }
}

/// A controller of a family.
pub struct Controller {
    /// The kinds that it subscribes to.
    pub reads: &'static [KindInfo],
    /// Subscribes, and begins.
    pub start: fn(&ControllerContext) -> Started,
}

/// A controller that has subscribed.
pub struct Started {
    /// Ends once it has its first full view.
    pub ready: BoxFuture<'static, ()>,
    /// Works until it is stopped, or breaks.
    pub work: BoxFuture<'static, ()>,
}

/// What the controllers of a family are made of.
#[derive(Clone)]
pub struct ControllerContext {
    /// A client whose writes are sent only while this process leads.
    pub client: Client,
    /// Wall time and randomness.
    pub env: Env,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Where to report.
    pub recorder: Arc<Recorder>,
    /// What is switched on.
    pub gates: Gates,
    /// The term in which pods are placed behind the gate, 0 before; the lease tells it.
    pub places: Signal,
    /// How pods may be moved to where they belong.
    pub repair: RepairLimits,
    /// How nodes of pools may be written.
    pub pool: PoolLimits,
    /// How pods may be marked.
    pub marker: MarkerLimits,
    /// dapple's own namespace.
    pub namespace: Arc<str>,
    /// Keys that each controller works on at once.
    pub workers: usize,
    /// The term in which this process leads.
    pub leading: Signal,
    /// When the API server is back.
    pub recovery: Recovery,
    /// What is known of the cluster.
    pub caches: Caches,
    /// Ends the family.
    pub stop: CancellationToken,
}

/// How nodes of pools may be written.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// So many writes of nodes a second, in the whole cluster.
    pub node_writes_per_second: u16,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { node_writes_per_second: 5 }
    }
}

/// How pods may be marked.
#[derive(Debug, Clone, Copy)]
pub struct MarkerLimits {
    /// So many pods a second, for all markers together.
    pub patches_per_second: u16,
    /// How many pods a marker may change in a minute, but for a change of its spec.
    pub in_a_minute: Limit,
}

impl Default for MarkerLimits {
    fn default() -> Self {
        Self { patches_per_second: 50, in_a_minute: Limit::default() }
    }
}

/// How pods may be moved to where they belong.
#[derive(Debug, Clone, Copy)]
pub struct RepairLimits {
    /// So many in the cluster in a minute.
    pub per_minute: usize,
    /// Only to and from groups whose nodes have been the same for so long.
    pub after: Duration,
}

impl Default for RepairLimits {
    fn default() -> Self {
        Self { per_minute: 30, after: Duration::from_secs(300) }
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

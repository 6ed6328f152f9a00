//! Pools: what nodes get of their NodePool, the workloads of applications in pools, and what is told of both.
//!
//! Kinds are served one by one: that another product serves one of them keeps no other from being dapple's. A NodePool that is
//! another product's is read by whoever asks for pools; neither it nor a node is written for it.

use std::sync::Arc;
use std::time::Duration;

use dapple_api::kinds;
use dapple_api::pool::{YurtAppDaemonSpec, YurtAppSetSpec};
use futures::future::BoxFuture;

use crate::env::Backoff;
use crate::family::{Controller, ControllerContext, Family, Part, Started};
use crate::worker::started;

mod adder;
mod apps;
mod blueprints;
mod cache;
mod execution;
mod fights;
mod kept;
mod metrics;
mod nodes;
mod seen;
mod standings;
mod status;
mod subscribe;

pub use apps::is_there;
pub use blueprints::Blueprints;
pub(crate) use cache::{BY_LEFT, BY_POOL, BY_POOL_WITH_ATTRIBUTES, BY_REMEMBERED};
pub use cache::{Pool, Replacement, Settings};

use adder::Adder;
use apps::{Applications, tell_unserved};
use metrics::PoolMetrics;
use nodes::PoolNodes;
use standings::Standings;
use status::{POOL_STATUS, PoolStatuses};

/// The family.
pub const FAMILY: Family = Family {
    name: "pool",
    adoptable: &[&kinds::NODE_POOL, &kinds::YURT_APP_SET, &kinds::YURT_APP_DAEMON],
    parts: &[
        Part {
            name: "pool/nodepools",
            needs: &[&kinds::NODE_POOL],
            controllers: &[Controller { reads: &[kinds::NODE_POOL.at, kinds::NODE], start }],
            tell_off: nobody_waits,
        },
        Part {
            name: "pool/yurtappsets",
            needs: &[&kinds::YURT_APP_SET, &kinds::REPLACEMENT],
            controllers: &[Controller {
                reads: &[
                    kinds::YURT_APP_SET.at,
                    kinds::REPLACEMENT.at,
                    kinds::NODE_POOL.at,
                    kinds::NODE,
                    kinds::CONTROLLER_REVISION,
                    kinds::NATIVE_DEPLOYMENT.at,
                    kinds::NATIVE_STATEFUL_SET.at,
                ],
                start: |context| started(Applications::<YurtAppSetSpec>::start(context), context),
            }],
            tell_off: |context, why| Box::pin(tell_unserved::<YurtAppSetSpec>(context, why)),
        },
        Part {
            name: "pool/yurtappdaemons",
            needs: &[&kinds::YURT_APP_DAEMON, &kinds::REPLACEMENT],
            controllers: &[Controller {
                reads: &[
                    kinds::YURT_APP_DAEMON.at,
                    kinds::REPLACEMENT.at,
                    kinds::NODE_POOL.at,
                    kinds::NODE,
                    kinds::CONTROLLER_REVISION,
                    kinds::NATIVE_DEPLOYMENT.at,
                    kinds::NATIVE_STATEFUL_SET.at,
                ],
                start: |context| started(Applications::<YurtAppDaemonSpec>::start(context), context),
            }],
            tell_off: |context, why| Box::pin(tell_unserved::<YurtAppDaemonSpec>(context, why)),
        },
    ],
    gates: &[],
    register: |metrics| _ = metrics.of_family::<PoolMetrics>(),
};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };

/// Nothing is held back while nodes are not written.
fn nobody_waits(_: ControllerContext, _: String) -> BoxFuture<'static, ()> {
    Box::pin(std::future::ready(()))
}

/// Two controllers that share what they know of nodes: one writes them, the other tells of it.
fn start(context: &ControllerContext) -> Started {
    let standings = Arc::new(Standings::new(Adder::new(POOL_STATUS, context)));
    let statuses = started(PoolStatuses::start(context, standings.clone()), context);
    let nodes = started(PoolNodes::start(context, standings), context);
    Started {
        ready: Box::pin(async { _ = tokio::join!(statuses.ready, nodes.ready) }),
        work: Box::pin(async { _ = tokio::join!(statuses.work, nodes.work) }),
    }
}

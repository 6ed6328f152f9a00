//! Pools: what nodes get of their NodePool, and what is told of it.
//!
//! Kinds are served one by one: that another product serves one of them keeps no other from being dapple's. A NodePool that is
//! another product's is read by whoever asks for pools; neither it nor a node is written for it.

use std::time::Duration;

use dapple_api::kinds;

use crate::env::Backoff;
use crate::family::{Controller, Family, Part};
use crate::worker::started;

mod apps;
mod cache;
mod kept;
mod status;

pub(crate) use cache::BY_POOL;
pub use cache::{Pool, Replacement, Settings};

use apps::Applications;
use dapple_api::pool::{YurtAppDaemonSpec, YurtAppSetSpec};
use status::PoolStatuses;

/// The family.
pub const FAMILY: Family = Family {
    name: "pool",
    is_adoptable: false,
    parts: &[
        Part {
            name: "pool/nodepools",
            needs: &[&kinds::NODE_POOL],
            controllers: &[Controller {
                reads: &[kinds::NODE_POOL.at, kinds::NODE],
                start: |context| started(PoolStatuses::start(context), context),
            }],
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
        },
    ],
    gates: &[],
    register: |_| {},
};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };

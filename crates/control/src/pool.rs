//! Pools: what nodes get of their NodePool, and what is told of it.
//!
//! Kinds are served one by one: that another product serves one of them keeps no other from being dapple's. A NodePool that is
//! another product's is read by whoever asks for pools; neither it nor a node is written for it.

use std::time::Duration;

use dapple_api::kinds;

use crate::env::Backoff;
use crate::family::{Controller, Family, Part};
use crate::worker::started;

mod cache;
mod status;

pub(crate) use cache::BY_POOL;
pub use cache::{Pool, Replacement, Settings};

use status::PoolStatuses;

/// The family.
pub const FAMILY: Family = Family {
    name: "pool",
    is_adoptable: false,
    parts: &[Part {
        name: "pool/nodepools",
        needs: &[&kinds::NODE_POOL],
        controllers: &[Controller {
            reads: &[kinds::NODE_POOL.at, kinds::NODE],
            start: |context| started(PoolStatuses::start(context), context),
        }],
        // Nothing is held back for it.
        tell_off: |_, _| Box::pin(std::future::ready(())),
    }],
    gates: &[],
    register: |_| {},
};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };

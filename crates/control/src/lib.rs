//! Controllers: slim caches, a work queue, leases and writes. Thin shells around the decisions of `dapple-plan`.

pub mod env;
pub mod observed;
pub mod queue;
pub mod slim;
pub mod store;

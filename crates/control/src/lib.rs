//! Controllers: slim caches, a work queue, leases and writes. Thin shells around the decisions of `dapple-plan`.
//!
//! The rules that every controller keeps, because the simulator relies on them: wall time and randomness are passed in
//! ([`env`]), selects are `biased`, maps are ordered wherever order escapes, every write names the version it replaces,
//! and nothing is decided on a view that is not complete or has not seen our own last write ([`caches`]).

pub mod adopt;
pub mod caches;
pub mod claims;
pub mod daemonset;
pub mod env;
pub mod failing;
pub mod families;
pub mod family;
pub mod gates;
pub mod group;
pub mod history;
pub mod install;
pub mod lease;
pub mod manager;
pub mod marker;
pub mod metrics;
pub mod observed;
mod overriding;
mod pacer;
pub mod partition;
pub mod pool;
pub mod port;
pub mod proof;
pub mod queue;
pub mod retry;
pub mod serve;
mod served;
pub mod signal;
pub mod slim;
pub mod uninstall;
pub mod worker;
pub mod writes;

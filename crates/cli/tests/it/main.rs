//! The `dapple` program as people run it, on real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod lease;
mod plan;
mod plan_live;
mod proxy;
mod snapshots;
mod support;
mod up;

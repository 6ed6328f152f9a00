//! The `dapple` program as people run it, on real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adopt;
mod authors;
mod commands;
mod fake;
mod forgers;
mod lease;
mod newer;
mod openkruise;
mod plan;
mod plan_live;
mod proxy;
mod reinvocation;
mod rollout;
mod rollout_live;
mod snapshots;
mod support;
mod tables;
mod tenancy;
mod up;
mod users;
mod webhooks;
mod webhooks_files;
mod webhooks_pools;
mod webhooks_rotation;
mod words;

//! The simulator: its server held against a real kube-apiserver, and every family under faults. One binary, one cluster.
#![allow(clippy::unwrap_used, clippy::expect_used)]

/// As in the program: most of a run is small pieces of JSON.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

mod case;
mod conformance;
mod foretold;
mod forgotten;
mod illness;
mod malformed;
mod mutants;
mod normal;
mod pools;
mod quiet;
mod same;
mod seeds;
mod workloads;

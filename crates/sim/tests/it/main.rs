//! The simulator: its server held against a real kube-apiserver, and every family under faults. One binary, one cluster.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod case;
mod conformance;
mod foretold;
mod forgotten;
mod illness;
mod malformed;
mod mutants;
mod normal;
mod same;
mod seeds;
mod workloads;

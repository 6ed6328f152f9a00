//! Runs the real managers against an API server in memory, with faults, under a clock that nobody waits for. For tests
//! only: see docs/simulation.md.
#![cfg(feature = "mutants")]
#![allow(missing_docs, reason = "no other crate imports it")]

pub mod clock;
pub mod daemonset;
pub mod faults;
pub mod group;
pub mod health;
pub mod hook;
pub mod hunt;
pub mod kubelet;
pub mod marker;
pub mod network;
pub mod nodes;
pub mod object;
pub mod past;
pub mod pool;
pub mod reader;
pub mod run;
pub mod scenario;
pub mod scheduler;
pub mod script;
pub mod server;
pub mod shrink;
pub mod sim;
pub mod sweep;
pub mod trace;
pub mod webhook;
pub mod workload;
pub mod world;

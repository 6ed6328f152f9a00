//! What the benchmarks share: objects as a cluster has them, and ways to measure.
//!
//! The machines that run these are noisy, so no absolute figure means much: each benchmark measures us and the peer, or
//! us and the limit, in one run, and prints the ratio.

#![allow(missing_docs, reason = "no other crate imports it")]

pub mod audit;
pub mod fleet;
pub mod goals;
pub mod hooked;
pub mod kinds;
pub mod load;
pub mod measure;
pub mod objects;
pub mod restart;

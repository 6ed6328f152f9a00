//! Deciding: an observed world in, actions out. No I/O, no clock, no randomness.
//!
//! One module per family, named as in every other layer.

pub mod adopt;
pub mod apart;
pub mod backoff;
pub mod cause;
pub mod census;
pub mod certificate;
mod condition;
pub mod daemonset;
pub mod fate;
pub mod fit;
pub mod group;
pub mod health;
pub mod inplace;
pub mod marker;
pub mod mutant;
pub mod native;
pub mod node;
pub mod operations;
pub mod overrides;
pub mod overriding;
pub mod partition;
pub mod pool;
pub mod proof;
pub mod room;
pub mod variant;
pub mod world;

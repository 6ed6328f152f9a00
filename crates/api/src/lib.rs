//! What users write: the types, schemas, defaults and validation of every kind that dapple serves. No I/O.
//!
//! One module per family, as in every layer: [`daemonset`], [`marker`], [`group`], [`pool`], [`partition`]. Pod templates
//! and patches are JSON values end to end, so that a field Kubernetes adds next year passes through untouched.

pub mod crd;
pub mod daemonset;
pub mod group;
pub mod kinds;
pub mod manifest;
pub mod marker;
pub mod metadata;
pub mod object;
pub mod partition;
pub mod pool;
pub mod reading;
mod schema;
pub mod selector;
mod structural;
pub mod syntax;
pub mod template;
pub mod verdict;
pub mod yaml;

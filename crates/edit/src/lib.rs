//! Changing a pod template: every override form compiles to edits, and every edit remembers where it came from. No I/O.
//!
//! [`daemonset`], [`group`] and [`pool`] compile what users write to [`edit::Edit`]s; [`render`] applies them in order and
//! says who set what. [`marker`] sets marks on pods that run, and takes them off. [`admission`] judges what users write before
//! any of it is applied.

pub mod admission;
pub mod amount;
pub mod authored;
pub mod blame;
pub mod carry;
pub mod check;
mod compact;
mod container;
pub mod daemonset;
pub mod differing;
pub mod document;
pub mod edit;
pub mod field;
pub mod go_json;
pub mod group;
pub mod image;
mod leaves;
mod lookup;
pub mod marker;
pub mod meaning;
pub mod merge;
mod overruled;
pub mod path;
mod placement;
mod plain;
pub mod pool;
mod references;
pub mod render;
pub mod schema;

pub use container::ContainerError;
pub use plain::PlainError;

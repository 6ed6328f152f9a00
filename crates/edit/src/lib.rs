//! Changing a pod template: every override form compiles to edits, and every edit remembers where it came from. No I/O.

mod container;
pub mod edit;
pub mod image;
mod leaves;
pub mod merge;
pub mod path;
mod plain;
mod references;
pub mod render;
pub mod schema;

pub use container::ContainerError;
pub use plain::PlainError;

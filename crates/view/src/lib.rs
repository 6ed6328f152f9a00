//! What people are shown: one model for the page, the terminal and JSON. No I/O.

pub mod adopt;
mod age;
mod cells;
pub mod cluster;
pub mod daemonset;
pub mod diff;
pub mod explain;
pub mod marker;
mod object;
mod paint;
pub mod partition;
pub mod plan;
pub mod pool;
pub mod step;
pub mod story;
mod table;

pub use paint::harmless;

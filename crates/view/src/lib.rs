//! What people are shown: one model for the page, the terminal and JSON. No I/O.

pub mod cluster;
pub mod diff;
pub mod explain;
mod paint;
pub mod plan;

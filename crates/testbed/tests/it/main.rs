//! The testbed against the real programs. Needs them built or found: the first run may take ten minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

mod helper;
mod lifecycle;
mod node;
mod ownership;
mod stages;
mod support;

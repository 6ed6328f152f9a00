//! What the crate promises as a whole, checked without a cluster.
#![allow(clippy::expect_used)]

mod cases;
mod convert;
mod convert_properties;
mod defaults;
mod drift;
mod examples;
mod files;
mod structure;

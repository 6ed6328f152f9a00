//! The override engine, held against Kubernetes' own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admission;
mod cases;
mod differential;
mod encoding;
mod generate;
mod rendering;
mod stories;

//! Webhooks as callers see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod hostile;
mod served;
mod surrounded;

//! Webhooks as callers see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod hostile;
mod judged;
mod served;
mod strangers;
mod surrounded;

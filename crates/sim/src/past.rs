//! Objects as they were, for as long as somebody may believe that they are so.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::server::ChangeKind;
use crate::sim::Write;

/// An object, and until when it was so; none while it was not there.
pub type Past = Vec<(Duration, Option<Arc<Value>>)>;

/// Takes in what becomes of an object, and drops what nobody can still believe.
pub fn note(past: &mut Past, write: &Write<'_>) {
    if past.is_empty() {
        past.push((write.at, None));
    }
    if let Some((until, _)) = past.last_mut() {
        *until = (*until).min(write.at);
    }
    let is_there = write.change.kind != ChangeKind::Deleted;
    past.push((Duration::MAX, is_there.then(|| write.change.object.clone())));
    past.retain(|(until, _)| until.saturating_add(write.memory) >= write.at);
}

/// What whoever wrote this may have believed of an object.
pub fn believed(past: &Past, write: &Write<'_>) -> Past {
    past.iter().filter(|(until, _)| until.saturating_add(write.memory) >= write.at).cloned().collect()
}

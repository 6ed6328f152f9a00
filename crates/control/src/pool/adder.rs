//! Adds nodes or pools to the queue of a controller.

use std::sync::Arc;

use super::BACKOFF;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::slim::Key;

/// A queue of names.
#[derive(Clone)]
pub(super) struct Adder {
    controller: &'static str,
    pub(super) queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
}

impl Adder {
    /// To an empty queue of this controller.
    pub(super) fn new(controller: &'static str, context: &ControllerContext) -> Self {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        Self { controller, queue, metrics: context.metrics.clone() }
    }

    pub(super) fn add(&self, name: &Arc<str>, urgency: Urgency) {
        if self.queue.add(Key { namespace: Arc::from(""), name: name.clone() }, urgency) {
            self.metrics.queue_added(self.controller);
        }
    }
}

/// What was listed may wait; what has changed is more urgent.
pub(super) fn urgency(listed: bool) -> Urgency {
    if listed { Urgency::Sweep } else { Urgency::Change }
}

//! Metrics of markers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::FamilyMetrics;
use crate::slim::Key;

/// What is counted.
pub(super) struct MarkerMetrics {
    pub(super) patches: Counter,
    pub(super) refusals: Counter,
    held: Gauge,
    unknown: Gauge,
    /// By marker, as of the last look at each.
    markers: Mutex<BTreeMap<Key, Numbers>>,
}

/// What is counted of a marker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Pods whose change is held back.
    pub(super) held: usize,
    /// Pods of which it is not known whether they match.
    pub(super) unknown: usize,
}

impl FamilyMetrics for MarkerMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            patches: Counter::default(),
            refusals: Counter::default(),
            held: Gauge::default(),
            unknown: Gauge::default(),
            markers: Mutex::default(),
        };
        registry.register("marker_patches", "Pods that were patched for markers", metrics.patches.clone());
        registry.register("marker_refusals", "Patches of pods that were refused", metrics.refusals.clone());
        let help = "Pods of markers whose change is held back";
        registry.register("marker_held_pods", help, metrics.held.clone());
        let help = "Pods of which it is not known whether they match a marker, once for each";
        registry.register("marker_unknown_pods", help, metrics.unknown.clone());
        metrics
    }
}

impl MarkerMetrics {
    /// How a marker is; none if it is gone.
    pub(super) fn note(&self, key: &Key, numbers: Option<Numbers>) {
        let mut known = self.markers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match numbers {
            Some(numbers) => known.insert(key.clone(), numbers),
            None => known.remove(key),
        };
        if before != numbers {
            self.count(&known);
        }
    }

    /// Nothing is known of markers any more: another process leads, or did.
    pub(super) fn forget_all(&self) {
        let mut known = self.markers.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        self.count(&known);
    }

    fn count(&self, known: &BTreeMap<Key, Numbers>) {
        let sum = |number: fn(&Numbers) -> usize| {
            i64::try_from(known.values().map(number).sum::<usize>()).unwrap_or(i64::MAX)
        };
        self.held.set(sum(|numbers| numbers.held));
        self.unknown.set(sum(|numbers| numbers.unknown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_over_markers_until_they_are_gone() {
        let mut registry = Registry::default();
        let metrics = MarkerMetrics::register(&mut registry);
        let says = |held: usize, unknown: usize| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            for line in [format!("marker_held_pods {held}"), format!("marker_unknown_pods {unknown}")] {
                assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
            }
        };
        says(0, 0);
        let (one, other) = (Key::new("a", "m"), Key::new("b", "m"));
        metrics.note(&one, Some(Numbers { held: 3, unknown: 1 }));
        metrics.note(&other, Some(Numbers { held: 0, unknown: 4 }));
        says(3, 5);
        metrics.note(&one, None);
        says(0, 4);
        metrics.forget_all();
        says(0, 0);
    }
}

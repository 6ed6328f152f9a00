//! Metrics of patches, by DaemonSet.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics::FamilyMetrics;
use crate::slim::Key;

/// A patch is applied in microseconds.
const SECONDS: [f64; 11] = [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 0.01, 0.1, 1.0];

/// Namespace and name of a set.
type OfSet = [(&'static str, String); 2];

fn of_set(set: &Key) -> OfSet {
    [("namespace", set.namespace.to_string()), ("name", set.name.to_string())]
}

/// What is counted and measured of patches.
pub(super) struct PatchMetrics {
    applied: Family<OfSet, Counter>,
    errors: Family<OfSet, Counter>,
    seconds: Family<OfSet, Histogram>,
}

impl FamilyMetrics for PatchMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            applied: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        let help = "Patches applied to pods that were made or changed";
        registry.register("daemonset_patches_applied", help, metrics.applied.clone());
        let help = "Times a node could not be given its patched pod: a patch does not apply, or the pod is refused";
        registry.register("daemonset_patches_errors", help, metrics.errors.clone());
        let help = "Time to apply the patches of one kind of node to the template";
        registry.register_with_unit("daemonset_patches_duration", help, Unit::Seconds, metrics.seconds.clone());
        metrics
    }
}

impl PatchMetrics {
    /// So many patches went into a pod.
    pub(super) fn applied(&self, set: &Key, patches: usize) {
        if patches > 0 {
            self.applied.get_or_create(&of_set(set)).inc_by(patches as u64);
        }
    }

    /// So many nodes could not be given what patches make of the template.
    pub(super) fn failed(&self, set: &Key, nodes: usize) {
        if nodes > 0 {
            self.errors.get_or_create(&of_set(set)).inc_by(nodes as u64);
        }
    }

    /// Patches were applied to the template.
    pub(super) fn rendered(&self, set: &Key, took: Duration) {
        self.seconds.get_or_create(&of_set(set)).observe(took.as_secs_f64());
    }

    /// A set is gone, and its metrics with it.
    pub(super) fn forget(&self, set: &Key) {
        let labels = of_set(set);
        self.applied.remove(&labels);
        self.errors.remove(&labels);
        self.seconds.remove(&labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn patches_are_counted_by_set_and_gone_with_it() {
        let all = Metrics::new();
        let metrics = all.of_family::<PatchMetrics>();
        let (one, other) = (Key::new("default", "one"), Key::new("default", "other"));
        for set in [&one, &other] {
            metrics.applied(set, 2);
            metrics.failed(set, 3);
            metrics.rendered(set, Duration::from_micros(20));
        }
        let lines = |set: &Key| -> Vec<String> {
            let label = format!(r#"name="{}""#, set.name);
            let text = all.text().expect("it encodes");
            text.lines().filter(|line| line.contains(&label)).map(str::to_owned).collect()
        };
        let found = lines(&one);
        for line in [
            r#"daemonset_patches_applied_total{namespace="default",name="one"} 2"#,
            r#"daemonset_patches_errors_total{namespace="default",name="one"} 3"#,
            r#"daemonset_patches_duration_seconds_count{namespace="default",name="one"} 1"#,
            r#"daemonset_patches_duration_seconds_bucket{le="0.000025",namespace="default",name="one"} 1"#,
        ] {
            assert!(found.iter().any(|found| found == line), "{line} is not in\n{found:#?}");
        }
        metrics.forget(&one);
        assert_eq!(lines(&one), Vec::<String>::new());
        assert!(!lines(&other).is_empty());
        metrics.applied(&one, 0);
        metrics.failed(&one, 0);
        assert_eq!(lines(&one), Vec::<String>::new(), "nothing is nothing to tell");
    }
}

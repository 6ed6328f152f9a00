//! What a node is asked to probe, as hashes: enough to know whether that is what it should be. All of it would be hundreds of
//! kilobytes for a node.

use std::hash::{DefaultHasher, Hash, Hasher};

use dapple_api::marker::NodePodProbeSpec;

/// The probes of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AskedProbes {
    whole: u64,
    /// Of each probe, by its pod's UID and its name; sorted.
    each: Box<[u64]>,
    has_beyond: bool,
}

impl AskedProbes {
    pub(super) fn of(spec: &NodePodProbeSpec) -> Self {
        let probes =
            spec.pod_probes.iter().flat_map(|pod| pod.probes.iter().map(|probe| hash(&(&pod.uid, &probe.name))));
        let mut each: Vec<u64> = probes.collect();
        each.sort_unstable();
        // Equal values have one text: keys are in order.
        let whole = hash(&serde_json::to_string(spec).unwrap_or_default());
        Self { whole, each: each.into(), has_beyond: spec.beyond.is_some_and(|beyond| beyond > 0) }
    }

    /// Whether a probe of a pod is asked for.
    pub(super) fn has(&self, uid: &str, probe: &str) -> bool {
        self.each.binary_search(&hash(&(uid, probe))).is_ok()
    }

    /// Whether more is asked for than a node runs.
    pub(super) fn has_beyond(&self) -> bool {
        self.has_beyond
    }
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(spec: Value) -> AskedProbes {
        AskedProbes::of(&serde_json::from_value(spec).unwrap())
    }

    fn spec(name: &str, period: u32) -> Value {
        let probe = json!({"exec": {"command": ["a"]}, "periodSeconds": period});
        let probe = json!({"name": name, "containerName": "c", "containerID": "containerd://c", "probe": probe});
        json!({"podProbes": [{"name": "p", "namespace": "default", "uid": "u", "probes": [probe]}]})
    }

    #[test]
    fn what_is_equal_is_equal_and_what_differs_is_not() {
        assert_eq!(asked(spec("x", 5)), asked(spec("x", 5)));
        for other in [spec("y", 5), spec("x", 6), json!({})] {
            assert_ne!(asked(spec("x", 5)), asked(other.clone()), "{other}");
        }
    }

    #[test]
    fn probes_are_known_by_pod_and_name() {
        let mut spec = spec("x", 5);
        let known = asked(spec.clone());
        assert!(known.has("u", "x") && !known.has("u", "y") && !known.has("v", "x") && !known.has_beyond());
        spec["beyond"] = json!(3);
        assert!(asked(spec).has_beyond());
    }
}

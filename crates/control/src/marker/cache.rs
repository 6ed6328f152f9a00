//! PodMarkers, the results of probes by node, and the Leases of probers.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::kinds;
use dapple_api::marker::{ContainerProbeState, NodePodProbeSpec, NodePodProbeStatus, PROBER_NAMESPACE, PodMarker};
use serde::Deserialize;

use super::asked::AskedProbes;
use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{Cached, Interner, Key, Meta};

/// A cached PodMarker. Markers are few: they are kept whole.
#[derive(Debug)]
pub(super) struct Marker {
    /// What names it.
    pub(super) meta: Meta,
    /// All of it, but for who wrote which field.
    pub(super) object: Arc<PodMarker>,
}

impl Marker {
    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }
}

impl Wire for PodMarker {}

impl KindWire for PodMarker {
    const KIND: KindInfo = kinds::POD_MARKER.at;
}

impl Cached for Marker {
    type Wire = PodMarker;

    fn slim(meta: Meta, mut wire: PodMarker, _: &mut Interner) -> Self {
        wire.metadata.managed_fields = None;
        Self { meta, object: Arc::new(wire) }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The results of a node's probes, as its NodePodProbe has them, and what it asks for.
#[derive(Debug)]
pub(super) struct NodeResults {
    pub(super) meta: Meta,
    /// UIDs of its owners.
    pub(super) owners: Box<[Arc<str>]>,
    pub(super) asked: AskedProbes,
    /// By UID of the pod.
    pods: BTreeMap<Arc<str>, PodResults>,
}

/// The results of a pod's probes.
#[derive(Debug, PartialEq)]
struct PodResults {
    pod: Key,
    /// By name of the probe.
    states: BTreeMap<Arc<str>, ContainerProbeState>,
}

impl NodeResults {
    /// The result of a probe of a pod.
    pub(super) fn of(&self, uid: &str, probe: &str) -> Option<&ContainerProbeState> {
        self.pods.get(uid)?.states.get(probe)
    }

    /// Whether a probe of a pod is among those that are more than the node runs.
    pub(super) fn is_beyond(&self, uid: &str, probe: &str) -> bool {
        self.asked.has_beyond() && !self.asked.has(uid, probe)
    }

    /// Whether other probes are more than the node runs by one of these than by the other: what was beyond may not be, and the other
    /// way round.
    pub(super) fn has_other_beyond(old: Option<&Self>, new: Option<&Self>) -> bool {
        let is_full = |results: &&Self| results.asked.has_beyond();
        old.filter(is_full).map(|results| &results.asked) != new.filter(is_full).map(|results| &results.asked)
    }

    /// The pods of which one of these says something else than the other.
    pub(super) fn changed<'r>(old: Option<&'r Self>, new: Option<&'r Self>) -> Vec<&'r Key> {
        let of = |results: Option<&'r Self>, uid: &str| results.and_then(|results| results.pods.get(uid));
        let pods = [old, new].into_iter().flatten().flat_map(|results| &results.pods);
        let differing = pods.filter(|(uid, _)| of(old, uid) != of(new, uid));
        differing.map(|(_, results)| &results.pod).collect()
    }
}

/// The fields of a NodePodProbe that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodeResultsWire {
    metadata: Owned,
    #[serde(default)]
    spec: NodePodProbeSpec,
    #[serde(default)]
    status: Option<NodePodProbeStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owned {
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Debug, Clone, Deserialize)]
struct Owner {
    uid: String,
}

impl Wire for NodeResultsWire {}

impl KindWire for NodeResultsWire {
    const KIND: KindInfo = kinds::NODE_POD_PROBE.at;
}

impl Cached for NodeResults {
    type Wire = NodeResultsWire;

    fn slim(meta: Meta, wire: NodeResultsWire, strings: &mut Interner) -> Self {
        let told = wire.status.unwrap_or_default().pod_probe_statuses;
        let pods = told.into_iter().map(|told| {
            let pod = Key { namespace: strings.share(&told.namespace), name: Arc::from(told.name) };
            let states = told.probe_states.into_iter().map(|state| (strings.share(&state.name), state)).collect();
            (Arc::from(told.uid), PodResults { pod, states })
        });
        let owners = wire.metadata.owner_references.iter().map(|owner| Arc::from(owner.uid.as_str())).collect();
        Self { pods: pods.collect(), owners, asked: AskedProbes::of(&wire.spec), meta }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The Lease of a prober, which has the name of its node.
#[derive(Debug)]
pub(super) struct ProberLease {
    meta: Meta,
    /// What it says of the last renewal.
    pub(super) renewal: Arc<str>,
}

/// The fields of a Lease that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ProberLeaseWire {
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    /// By the prober's own clock: only that it changes matters.
    #[serde(default)]
    renew_time: Option<String>,
}

impl ProberLease {
    /// The node of its prober.
    pub(super) fn node(&self) -> &Arc<str> {
        &self.meta.key.name
    }
}

impl Wire for ProberLeaseWire {
    // The kubelets' Leases, of which there is one for each node, are renewed every few seconds.
    const NAMESPACE: Option<&'static str> = Some(PROBER_NAMESPACE);
}

impl KindWire for ProberLeaseWire {
    const KIND: KindInfo = kinds::LEASE;
}

impl Cached for ProberLease {
    type Wire = ProberLeaseWire;

    fn slim(meta: Meta, wire: ProberLeaseWire, _: &mut Interner) -> Self {
        Self { meta, renewal: Arc::from(wire.spec.renew_time.unwrap_or_default()) }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::slim::read;

    fn results(pods: Value) -> NodeResults {
        let object = json!({"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {},
            "status": {"podProbeStatuses": pods}});
        read(&object, &mut Interner::default()).unwrap()
    }

    fn pod(name: &str, state: &str) -> Value {
        let states = json!([{"name": "p", "containerID": "containerd://1", "state": state}]);
        json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"), "probeStates": states})
    }

    #[test]
    fn results_are_found_by_pod_and_probe_and_only_what_changed_is_told() {
        let old = results(json!([pod("a", "Succeeded"), pod("b", "Succeeded"), pod("c", "Failed")]));
        let new = results(json!([pod("a", "Succeeded"), pod("b", "Failed"), pod("d", "Failed")]));
        assert!(old.of("uid-a", "p").is_some() && old.of("uid-a", "q").is_none() && old.of("a", "p").is_none());
        let names = |keys: Vec<&Key>| keys.iter().map(|key| key.to_string()).collect::<Vec<_>>();
        // One that both have is named twice: telling it twice changes nothing.
        let changed = names(NodeResults::changed(Some(&old), Some(&new)));
        assert_eq!(changed, ["default/b", "default/c", "default/b", "default/d"]);
        assert_eq!(names(NodeResults::changed(None, Some(&new))).len(), 3);
        assert!(NodeResults::changed(Some(&old), Some(&old)).is_empty());
    }

    #[test]
    fn it_is_told_where_other_probes_are_more_than_a_node_runs() {
        let asked = |name: &str, beyond: Option<i64>| {
            let probe = json!({"name": name, "containerName": "c", "containerID": "containerd://c", "probe": {}});
            let pod = json!({"name": "p", "namespace": "default", "uid": "u", "probes": [probe]});
            let object = json!({"metadata": {"name": "n", "resourceVersion": "1"},
                "spec": {"podProbes": [pod], "beyond": beyond}});
            read::<NodeResults>(&object, &mut Interner::default()).unwrap()
        };
        let (full, other, all, more) = (asked("a", Some(1)), asked("b", Some(1)), asked("a", None), asked("b", None));
        assert!(full.is_beyond("u", "b") && !full.is_beyond("u", "a") && !all.is_beyond("u", "b"));
        for (old, new) in
            [(None, Some(&full)), (Some(&full), None), (Some(&full), Some(&other)), (Some(&all), Some(&full))]
        {
            assert!(NodeResults::has_other_beyond(old, new));
        }
        for (old, new) in [(None, Some(&all)), (Some(&all), Some(&more)), (Some(&full), Some(&full))] {
            assert!(!NodeResults::has_other_beyond(old, new));
        }
    }

    #[test]
    fn a_lease_without_a_renewal_is_read() {
        let lease = |spec: Value| {
            let object = json!({"metadata": {"name": "n", "namespace": PROBER_NAMESPACE, "resourceVersion": "1"},
                "spec": spec});
            read::<ProberLease>(&object, &mut Interner::default()).unwrap().renewal
        };
        assert_eq!(&*lease(json!({"renewTime": "2026-01-01T00:00:00.000000Z"})), "2026-01-01T00:00:00.000000Z");
        assert_eq!(&*lease(json!({})), "");
    }
}

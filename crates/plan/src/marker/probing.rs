//! What a node is to probe: the spec of its NodePodProbe, from the pods that run on it.
//!
//! Invariants:
//! - It says nothing but what the node's prober needs, so that the prober reads nothing else.
//! - Equal probes of a container are one, whichever markers ask for them.
//! - At the limits, what is asked for already stays, so that no pod that comes takes another's results away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::marker::{ContainerProbe, NodePodProbeSpec, PodProbe};
use dapple_api::template::Probe;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::probe;
use super::result::{Container, Run};
use super::rule::Rule;

/// The most probes of a node.
pub const MOST_PROBES: usize = 1_000;
/// The most bytes that all of them may have, as JSON.
pub const MOST_BYTES: usize = 512 * 1024;

/// A pod on a node, that some markers probe.
#[derive(Debug, Clone, Copy)]
pub struct Probed<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its address, if it has one yet.
    pub ip: Option<&'a str>,
    /// Its containers, and its init containers that run as long as these do.
    pub containers: &'a [Container],
}

/// What a node is to probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeProbes {
    /// The spec of its NodePodProbe. A node without any needs none.
    pub spec: NodePodProbeSpec,
    /// What is more than a node runs: UIDs of pods and names of probes.
    pub beyond: BTreeSet<(Arc<str>, Arc<str>)>,
}

/// What a node is to probe, with the markers that probe each pod ([`super::standing::is_probed`]). `is_known` tells, by the UID of
/// the pod and the name of the probe, what its NodePodProbe asks for now.
#[must_use]
pub fn node_probes<'a>(
    pods: impl IntoIterator<Item = (Probed<'a>, Vec<&'a Rule>)>,
    is_known: &dyn Fn(&str, &str) -> bool,
) -> NodeProbes {
    let mut asked: Vec<(bool, Probed<'a>, ContainerProbe)> = Vec::new();
    for (pod, rules) in pods {
        let probes = probes(&pod, &rules).into_values();
        asked.extend(probes.map(|probe| (!is_known(pod.uid, &probe.name), pod, probe)));
    }
    asked.sort_by(|(is_new, pod, probe), (is_other_new, other_pod, other)| {
        (is_new, pod.place(), &probe.name).cmp(&(is_other_new, other_pod.place(), &other.name))
    });
    let mut found = NodeProbes::default();
    let mut by_pod: BTreeMap<(&str, &str, &str), PodProbe> = BTreeMap::new();
    let (mut count, mut bytes) = (0, 0);
    for (_, pod, probe) in asked {
        let head = if by_pod.contains_key(&pod.place()) { 0 } else { size(&pod.head()) };
        let more = head + size(&probe);
        if count >= MOST_PROBES || bytes + more > MOST_BYTES {
            found.beyond.insert((Arc::from(pod.uid), Arc::from(probe.name)));
            continue;
        }
        (count, bytes) = (count + 1, bytes + more);
        by_pod.entry(pod.place()).or_insert_with(|| pod.head()).probes.push(probe);
    }
    for pod in by_pod.values_mut() {
        pod.probes.sort_by(|one, other| one.name.cmp(&other.name));
    }
    found.spec.pod_probes = by_pod.into_values().collect();
    found.spec.beyond = i64::try_from(found.beyond.len()).ok().filter(|beyond| *beyond > 0);
    found
}

impl<'a> Probed<'a> {
    fn place(&self) -> (&'a str, &'a str, &'a str) {
        (self.namespace, self.name, self.uid)
    }

    /// Without its probes.
    fn head(&self) -> PodProbe {
        PodProbe {
            name: self.name.to_owned(),
            namespace: self.namespace.to_owned(),
            uid: self.uid.to_owned(),
            ip: self.ip.map(str::to_owned),
            probes: Vec::new(),
        }
    }
}

/// The probes of a pod that can be run now, by name. A container that does not run has none: what its status says is enough.
fn probes(pod: &Probed<'_>, rules: &[&Rule]) -> BTreeMap<Arc<str>, ContainerProbe> {
    let mut found = BTreeMap::new();
    for requirement in rules.iter().flat_map(|rule| &rule.probes) {
        for asked in &requirement.asked {
            let container = pod.containers.iter().find(|container| container.name == asked.container);
            if let Some(probe) = container.and_then(|container| run(&asked.name, container, &requirement.probe, pod)) {
                found.insert(asked.name.clone(), probe);
            }
        }
    }
    found
}

fn run(name: &str, container: &Container, definition: &Value, pod: &Probed<'_>) -> Option<ContainerProbe> {
    let Run::Runs { id, since } = &container.run else { return None };
    if pod.ip.is_none() && probe::needs_address(definition) {
        return None;
    }
    Some(ContainerProbe {
        name: name.to_owned(),
        container_name: container.name.to_string(),
        container_id: id.to_string(),
        started_at: Timestamp::from_second(*since).ok().map(Time),
        probe: Probe(probe::resolved(definition, &container.ports)?),
    })
}

fn size<T: serde::Serialize>(value: &T) -> usize {
    serde_json::to_string(value).map_or(MOST_BYTES, |text| text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{container, rule};
    use super::*;

    fn probing(name: &str, probe: Value) -> Rule {
        let probes = json!([{"containers": [{"name": "a"}], "probe": probe}]);
        rule(name, 1, json!({"markItems": {"labels": {"k": "1"}}, "matchRequirements": {"podProbes": probes}}))
    }

    fn exec(word: &str) -> Value {
        json!({"exec": {"command": [word]}})
    }

    fn pod<'a>(name: &'a str, containers: &'a [Container]) -> Probed<'a> {
        Probed { namespace: "default", name, uid: name, ip: Some("10.0.0.1"), containers }
    }

    /// Pods of these names, each probed by a marker.
    fn all<'a>(names: &'a [String], containers: &'a [Container], marker: &'a Rule) -> Vec<(Probed<'a>, Vec<&'a Rule>)> {
        names.iter().map(|name| (pod(name, containers), vec![marker])).collect()
    }

    /// What a node is to probe that was asked for this before.
    fn after(pods: Vec<(Probed<'_>, Vec<&Rule>)>, before: &NodePodProbeSpec) -> NodeProbes {
        let of_pod =
            |pod: &PodProbe, uid: &str, name: &str| pod.uid == uid && pod.probes.iter().any(|probe| probe.name == name);
        node_probes(pods, &|uid, name| before.pod_probes.iter().any(|pod| of_pod(pod, uid, name)))
    }

    fn spec(pods: Vec<(Probed<'_>, Vec<&Rule>)>) -> NodePodProbeSpec {
        let found = after(pods, &NodePodProbeSpec::default());
        assert!(found.beyond.is_empty() && found.spec.beyond.is_none());
        found.spec
    }

    #[test]
    fn it_has_all_that_the_prober_needs() {
        let marker = probing("m", json!({"httpGet": {"port": "web"}}));
        let containers = [container("a"), container("b")];
        let spec = spec(vec![(pod("p", &containers), vec![&marker])]);
        let probe = json!({"httpGet": {"port": 8080, "path": "/", "scheme": "HTTP"}, "initialDelaySeconds": 0,
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
        let probe = json!({"name": &*marker.probes[0].asked[0].name, "containerName": "a", "containerID": "containerd://a",
            "startedAt": "1970-01-01T00:01:40Z", "probe": probe});
        let expected = json!({"podProbes": [{"name": "p", "namespace": "default", "uid": "p", "IP": "10.0.0.1", "probes": [probe]}]});
        assert_eq!(serde_json::to_value(spec).expect("JSON"), expected);
    }

    #[test]
    fn equal_probes_are_one_and_others_beside_it() {
        let markers = [probing("m", exec("x")), probing("n", exec("x")), probing("o", exec("y"))];
        let containers = [container("a")];
        let spec = spec(vec![(pod("p", &containers), markers.iter().collect())]);
        let names: Vec<&str> = spec.pod_probes[0].probes.iter().map(|probe| probe.name.as_str()).collect();
        assert_eq!(names.len(), 2);
        assert!(names.is_sorted());
    }

    #[test]
    fn what_cannot_be_run_now_is_left_out() {
        let (network, command) = (probing("m", json!({"tcpSocket": {"port": 80}})), probing("n", exec("x")));
        let stopped = [Container { run: Run::Stopped, ..container("a") }];
        let other = [container("b")];
        let running = [container("a")];
        let without_ip = Probed { ip: None, ..pod("p", &running) };
        for (pod, marker, count) in [
            (pod("p", &stopped), &command, 0),
            (pod("p", &other), &command, 0),
            (without_ip, &network, 0),
            (without_ip, &command, 1),
            (pod("p", &running), &network, 1),
        ] {
            let spec = spec(vec![(pod, vec![marker])]);
            assert_eq!(spec.pod_probes.len(), count, "a pod without probes is not named");
        }
        let no_port = probing("m", json!({"tcpSocket": {"port": "none"}}));
        assert_eq!(spec(vec![(pod("p", &running), vec![&no_port])]), NodePodProbeSpec::default());
    }

    #[test]
    fn a_node_has_a_thousand_probes_and_those_that_come_later_are_beyond() {
        let marker = probing("m", exec("x"));
        let containers = [container("a")];
        let names: Vec<String> = (0..1_003).map(|number| format!("p{number:04}")).collect();
        let first = after(all(&names[3..], &containers, &marker), &NodePodProbeSpec::default());
        assert_eq!((first.spec.pod_probes.len(), first.beyond.len()), (MOST_PROBES, 0));
        let more = after(all(&names, &containers, &marker), &first.spec);
        assert_eq!(more.spec.pod_probes, first.spec.pod_probes, "no pod that comes takes the place of another");
        assert_eq!((first.spec.beyond, more.spec.beyond), (None, Some(3)), "and that is said");
        let beyond: Vec<&str> = more.beyond.iter().map(|(uid, _)| &**uid).collect();
        assert_eq!(beyond, ["p0000", "p0001", "p0002"]);
    }

    #[test]
    fn probes_of_a_node_have_a_limit_in_bytes() {
        let marker = probing("m", exec(&"x".repeat(100_000)));
        let containers = [container("a")];
        let pods = ["a", "b", "c", "d", "e", "f"].map(|name| (pod(name, &containers), vec![&marker]));
        let found = after(pods.into(), &NodePodProbeSpec::default());
        assert_eq!((found.spec.pod_probes.len(), found.beyond.len()), (5, 1));
        assert!(size(&found.spec) < MOST_BYTES + 1_000 && found.spec.beyond == Some(1));
    }

    #[test]
    fn equal_pods_give_an_equal_spec() {
        let markers = [probing("m", exec("x")), probing("n", exec("y"))];
        let containers = [container("a")];
        let one = vec![(pod("p", &containers), markers.iter().collect()), (pod("q", &containers), vec![&markers[0]])];
        let mut other = one.clone();
        other.reverse();
        other[1].1.reverse();
        let first = after(one, &NodePodProbeSpec::default());
        assert_eq!(after(other, &first.spec), first, "nothing is written when nothing changed");
    }
}

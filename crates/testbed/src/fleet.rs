//! Fleets: kinds of nodes and how many of each, written in YAML.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    error::{Result, kube_error},
};

mod written;

/// The most nodes of one kind: names have room for more, but nothing here is made for it.
const MOST: u32 = 100_000;

/// A description of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    kinds: Vec<Kind>,
}

/// A kind of nodes.
#[derive(Debug, Clone, PartialEq)]
struct Kind {
    name: String,
    count: u32,
    labels: BTreeMap<String, Vec<String>>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Taint>,
    capacity: BTreeMap<String, String>,
}

/// A taint as Kubernetes writes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taint {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

impl Fleet {
    /// The example: 60 nodes with large and standard disks, x86 and arm, GPUs, three locations and pools.
    pub fn example() -> Result<Self> {
        Self::from_yaml(include_str!("../../../fleets/example.yaml"), "fleets/example.yaml")
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.kinds.iter().map(|kind| kind.count as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same mixture with `n` nodes: by largest remainder, and every kind keeps a node where there are enough.
    pub fn scaled_to(&self, n: usize) -> Self {
        let total = self.len().max(1);
        let at_least = usize::from(n >= self.kinds.len());
        let mut counts: Vec<usize> =
            self.kinds.iter().map(|kind| (kind.count as usize * n / total).max(at_least)).collect();
        let remainder = |index: usize| self.kinds[index].count as usize * n % total;
        let mut by_remainder: Vec<usize> = (0..self.kinds.len()).collect();
        by_remainder.sort_by_key(|index| (std::cmp::Reverse(remainder(*index)), *index));
        let mut turn = by_remainder.iter().cycle();
        while counts.iter().sum::<usize>() < n
            && let Some(index) = turn.next()
        {
            counts[*index] += 1;
        }
        // Kinds lifted to one node may have made it too many: the largest kinds give them up.
        while counts.iter().sum::<usize>() > n
            && let Some(most) = counts.iter_mut().max()
        {
            *most -= 1;
        }
        let kinds = self.kinds.iter().zip(counts);
        Self {
            kinds: kinds
                .map(|(kind, count)| Kind { count: u32::try_from(count).unwrap_or(MOST), ..kind.clone() })
                .collect(),
        }
    }

    /// The Node objects, always the same for the same description.
    pub fn nodes(&self) -> Vec<Value> {
        let in_kinds = self.kinds.iter().flat_map(|kind| (0..kind.count as usize).map(move |index| (kind, index)));
        in_kinds.enumerate().map(|(number, (kind, index))| kind.node(index, number)).collect()
    }
}

impl Kind {
    fn node(&self, index: usize, number: usize) -> Value {
        let name = format!("{}-{index:03}", self.name);
        // By the number in the whole fleet: small fleets have a node or two of each kind, and would all be in one place.
        let mut labels: BTreeMap<&str, &str> =
            self.labels.iter().map(|(key, values)| (key.as_str(), values[number % values.len()].as_str())).collect();
        let architecture = labels.get("kubernetes.io/arch").copied().unwrap_or("amd64").to_owned();
        labels.entry("kubernetes.io/arch").or_insert(&architecture);
        labels.entry("kubernetes.io/os").or_insert("linux");
        labels.insert("kubernetes.io/hostname", &name);
        let mut annotations: BTreeMap<&str, &str> =
            self.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        annotations.insert("kwok.x-k8s.io/node", "fake");
        let mut capacity: BTreeMap<&str, &str> =
            self.capacity.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        for (resource, usual) in [("cpu", "8"), ("memory", "32Gi"), ("pods", "110")] {
            capacity.entry(resource).or_insert(usual);
        }
        let taints: Vec<Value> = self
            .taints
            .iter()
            .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect}))
            .collect();
        // 10.128.0.0/9 has room for eight million nodes.
        let address = std::net::Ipv4Addr::from(0x0A80_0001 + u32::try_from(number).unwrap_or_default());
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"taints": taints},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
                "nodeInfo": {
                    "architecture": architecture, "operatingSystem": "linux", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "osImage": "",
                    "systemUUID": "",
                },
            },
        })
    }
}

impl Cluster {
    /// Creates the nodes of a fleet; those that are there get their labels, annotations and taints as described.
    pub async fn apply_fleet(&self, fleet: &Fleet) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        // Eight connections keep both cores of a small machine busy and no more.
        stream::iter(fleet.nodes()).map(|node| apply(&nodes, node)).buffer_unordered(8).try_collect().await
    }
}

async fn apply(nodes: &Api<Node>, node: Value) -> Result<()> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed = || kube_error(format!("cannot create node {name}"));
    let typed: Node = serde_json::from_value(node.clone()).map_err(|error| failed()(kube::Error::SerdeError(error)))?;
    match nodes.create(&PostParams::default(), &typed).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = json!({"metadata": node["metadata"], "spec": node["spec"]});
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ()).map_err(failed())
        }
        other => other.map(|_| ()).map_err(failed()),
    }
}

#[cfg(test)]
mod tests;

//! Whether a group has a node for a pod of an application: one that is Ready, takes new pods, fits the template, has room beside the
//! pods that are coming, and runs none that keeps such a pod away.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_api::kinds::{NODE, POD};
use dapple_plan::apart::Company;
use dapple_plan::room::{Requests, Room, has_room};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use super::rooms::{Known, UNBOUND, fitting, left_on};
use super::seated::Stores;
use crate::caches::store::Store;
use crate::observed::Observed;
use crate::slim::{Node, Pod};

/// Of so many nodes it is asked what runs on them: each takes two questions.
const MOST_ASKED: usize = 10;
/// What was read of a node is believed for so long, where nothing is done before it is read again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// A node, and the pods on it.
struct Occupied {
    /// What it has for pods in all.
    room: Room,
    pods: Vec<Neighbour>,
}

/// A pod on a node.
struct Neighbour {
    uid: String,
    requests: Requests,
    company: Company,
}

/// What was read of nodes a moment ago, by name: many applications may look for nodes of one group.
#[derive(Default)]
pub(super) struct Read(Mutex<BTreeMap<String, (Instant, Arc<Occupied>)>>);

impl Read {
    fn get(&self, node: &str) -> Option<Arc<Occupied>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| at.elapsed() < BELIEVED_FOR);
        known.get(node).map(|(_, found)| found.clone())
    }

    fn keep(&self, node: &str, found: Arc<Occupied>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(node.to_owned(), (Instant::now(), found));
    }
}

/// Looks for one.
pub(super) struct Targets<'a> {
    pub(super) client: &'a Client,
    pub(super) stores: &'a Stores,
    pub(super) read: &'a Read,
    /// The namespace of the pods.
    pub(super) namespace: &'a str,
    /// Whether what was read a moment ago will do: something is done only after another look.
    pub(super) is_preview: bool,
    /// What pods ask for that were disrupted for the group, and that have not come back yet.
    pub(super) on_their_way: Vec<Requests>,
}

impl Targets<'_> {
    /// Whether a group has one, once this pod is gone.
    pub(super) async fn has_node_for(&self, group: &str, template: &Value, leaving: &Pod) -> Result<bool, kube::Error> {
        let mut nodes = fitting(self.stores, group, template);
        // Nobody knows which nodes they will take: the first ones, for us.
        let unbound = self.stores.pods.find(UNBOUND, group);
        let mut coming = self.on_their_way.clone();
        let others = unbound.iter().filter(|pod| pod.meta.uid != leaving.meta.uid);
        coming.extend(others.map(|pod| Requests::of(&pod.asking_spec())));
        let (wanted, own) = (Requests::of(&template["spec"]), Company::of(self.namespace, template));
        sort_by_room(&mut nodes, &self.stores.pods, &wanted, leaving.node.as_deref());
        for node in nodes.iter().take(MOST_ASKED) {
            let Some(known) = self.look(node).await? else { continue };
            let there = known.pods.iter().filter(|pod| *pod.uid != *leaving.meta.uid);
            let has_room = has_room(known.room.clone(), there.clone().map(|pod| &pod.requests), &mut coming, &wanted);
            if has_room && there.clone().all(|pod| own.bears(&pod.company)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A node, and the pods on it, as the API server has them, or had them a moment ago.
    async fn look(&self, node: &Node) -> Result<Option<Arc<Occupied>>, kube::Error> {
        if let Some(known) = self.read.get(node.name()).filter(|_| self.is_preview) {
            return Ok(Some(known));
        }
        let nodes = Api::<Observed<Value>>::all_with(self.client.clone(), &NODE);
        let Some(known) = nodes.get_opt(node.name()).await?.and_then(|found| found.object.ok()) else {
            return Ok(None);
        };
        let pods = Api::<Observed<Value>>::all_with(self.client.clone(), &POD);
        let there = pods.list(&ListParams::default().fields(&format!("spec.nodeName={}", node.name()))).await?;
        let there = there.items.into_iter().filter_map(|found| found.object.ok()).filter(is_there);
        let pods = there.map(|pod| Neighbour::of(&pod)).collect();
        let found = Arc::new(Occupied { room: Room::of(&known["status"]["allocatable"]), pods });
        self.read.keep(node.name(), found.clone());
        Ok(Some(found))
    }
}

/// Puts the node first that is left, then those that have room for most such pods, by our view. How many pods are there says nothing
/// about that: one may be as large as its node.
fn sort_by_room(nodes: &mut [Arc<Node>], pods: &Store<Pod>, wanted: &Requests, left: Option<&str>) {
    let mut known = Known::default();
    nodes.sort_by_cached_key(|node| {
        let room = left_on(node, pods, &mut known).holds(wanted);
        (left != Some(node.name()), Reverse(room), node.meta.key.name.clone())
    });
}

impl Neighbour {
    fn of(pod: &Value) -> Self {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let company = Company::of(text("namespace"), pod);
        Self { uid: text("uid").to_owned(), requests: Requests::of(&pod["spec"]), company }
    }
}

/// Whether a pod counts on its node: one that has ended does not.
fn is_there(pod: &Value) -> bool {
    !["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::slim::{Cached, Interner, read};

    #[test]
    fn a_node_with_many_small_pods_comes_before_those_that_a_large_one_fills() {
        let spec = |cpu: &str| {
            let resources = json!({"requests": {"cpu": cpu}});
            json!({"containers": [{"name": "c", "image": "c:1", "resources": resources}]})
        };
        let pods = Store::<Pod>::default();
        let add = |name: String, node: &str, cpu: &str| {
            let mut pod = json!({"metadata": {"namespace": "d", "name": name, "uid": name, "resourceVersion": "1"}});
            pod["spec"] = spec(cpu);
            pod["spec"]["nodeName"] = json!(node);
            let wire: Observed<<Pod as Cached>::Wire> = serde_json::from_str(&pod.to_string()).expect("a pod");
            pods.apply(Event::Apply(wire));
        };
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for number in 0..=MOST_ASKED {
            let name = format!("n{number:02}");
            let object = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "status": {"allocatable": {"cpu": "4", "pods": "110"}}});
            nodes.push(Arc::new(read(&object, &mut Interner::default()).expect("a node")));
            if number < MOST_ASKED {
                add(format!("large-{number}"), &name, "4");
            } else {
                (0..20).for_each(|small| add(format!("small-{small}"), &name, "100m"));
            }
        }
        let mut first = |left: Option<&str>| {
            sort_by_room(&mut nodes, &pods, &Requests::of(&spec("1")), left);
            nodes[0].name().to_owned()
        };
        assert_eq!(first(None), "n10", "it has room for two");
        assert_eq!(first(Some("n03")), "n03", "it has room once the pod is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_of_a_node_is_believed_for_a_second() {
        let read = Read::default();
        let found = Arc::new(Occupied { room: Room::of(&json!({"pods": "1"})), pods: Vec::new() });
        read.keep("n", found);
        tokio::time::sleep(Duration::from_millis(999)).await;
        assert!(read.get("n").is_some() && read.get("m").is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(read.get("n").is_none());
    }

    #[test]
    fn a_pod_that_has_ended_takes_no_room() {
        assert!(is_there(&json!({"status": {"phase": "Running"}})) && is_there(&json!({})));
        assert!(!is_there(&json!({"status": {"phase": "Succeeded"}})));
    }
}

//! Whether a group has a node for a pod of an application: one that is Ready, takes new pods, fits the template, has room beside the
//! pods that are coming, and runs none that keeps such a pod away.

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

use super::rooms::{UNBOUND, fitting};
use super::seated::Stores;
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
        let is_left = |node: &Node| leaving.node.as_deref() == Some(node.name());
        // Nobody knows which nodes they will take: the first ones, for us.
        let unbound = self.stores.pods.find(UNBOUND, group);
        let mut coming = self.on_their_way.clone();
        let others = unbound.iter().filter(|pod| pod.meta.uid != leaving.meta.uid);
        coming.extend(others.map(|pod| Requests::of(&pod.asking_spec())));
        // Those first that probably have most room.
        nodes.sort_by_key(|node| (!is_left(node), self.pods_on(node), node.meta.key.name.clone()));
        let (wanted, own) = (Requests::of(&template["spec"]), Company::of(self.namespace, template));
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

    fn pods_on(&self, node: &Node) -> usize {
        self.stores.pods.find(Pod::BY_NODE, node.name()).len()
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
    use serde_json::json;

    use super::*;

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

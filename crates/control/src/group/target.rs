//! Whether a group has a node for a pod of an application: one that is Ready, takes new pods, fits the template, and has room beside
//! the pods that are coming.

use dapple_api::kinds::{NODE, POD};
use dapple_plan::room::{Requests, has_room};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::rooms::{UNBOUND, fitting};
use super::seated::Stores;
use crate::observed::Observed;
use crate::slim::{Node, Pod};

/// Of so many nodes it is asked what runs on them: each takes two questions.
const MOST_ASKED: usize = 10;

/// Looks for one.
pub(super) struct Targets<'a> {
    pub(super) client: &'a Client,
    pub(super) stores: &'a Stores,
    /// What pods ask for that were disrupted for the group, and that have not come back yet.
    pub(super) on_their_way: Vec<Requests>,
}

impl Targets<'_> {
    /// Whether a group has one, once this pod is gone, if any is to go.
    pub(super) async fn has_node_for(
        &self,
        group: &str,
        template: &Value,
        leaving: Option<&Pod>,
    ) -> Result<bool, kube::Error> {
        let mut nodes = fitting(self.stores, group, template);
        let is_left = |node: &Node| leaving.is_some_and(|pod| pod.node.as_deref() == Some(node.name()));
        // Nobody knows which nodes they will take: the first ones, for us.
        let unbound = self.stores.pods.find(UNBOUND, group);
        let mut coming = self.on_their_way.clone();
        coming.extend(unbound.iter().map(|pod| Requests::of(&pod.asking_spec())));
        // Those first that probably have most room.
        nodes.sort_by_key(|node| (!is_left(node), self.pods_on(node), node.meta.key.name.clone()));
        for node in nodes.iter().take(MOST_ASKED) {
            let Some((known, mut pods)) = self.read(node).await? else { continue };
            pods.retain(|pod| leaving.is_none_or(|leaving| pod["metadata"]["uid"] != *leaving.meta.uid));
            if has_room(&known, &pods, &mut coming, template) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn pods_on(&self, node: &Node) -> usize {
        self.stores.pods.find(Pod::BY_NODE, node.name()).len()
    }

    /// A node, and the pods on it, as the API server has them.
    async fn read(&self, node: &Node) -> Result<Option<(Value, Vec<Value>)>, kube::Error> {
        let nodes = Api::<Observed<Value>>::all_with(self.client.clone(), &NODE);
        let Some(known) = nodes.get_opt(node.name()).await?.and_then(|found| found.object.ok()) else {
            return Ok(None);
        };
        let pods = Api::<Observed<Value>>::all_with(self.client.clone(), &POD);
        let there = pods.list(&ListParams::default().fields(&format!("spec.nodeName={}", node.name()))).await?;
        Ok(Some((known, there.items.into_iter().filter_map(|found| found.object.ok()).collect())))
    }
}

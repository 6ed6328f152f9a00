//! The groups that the volumes of a pod allow: those with a node that all its bound PersistentVolumes can be used on. A claim that is
//! bound only when its pod has a node allows all; of one that is bound before, it is not known until then.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::kinds::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS};
use dapple_plan::fit;
use dapple_plan::group::is_member;
use dapple_plan::group::volumes::{claims_of, terms_of, waits_for_consumer};
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use super::Group;
use crate::caches::store::Store;
use crate::observed::Observed;
use crate::slim::{Key, Node};

/// Where a pod can go by its volumes.
pub(super) enum Reach {
    /// To any group.
    All,
    /// Only to groups at these places of the list.
    Only(BTreeSet<usize>),
    /// This claim is yet to be bound.
    Unbound(Arc<str>),
}

/// What a claim says of nodes.
enum Claimed {
    Terms(Vec<Value>),
    AnyNode,
    Unbound,
}

/// Finds them out.
pub(super) struct Volumes<'a> {
    pub(super) client: &'a Client,
    pub(super) nodes: &'a Store<Node>,
    pub(super) groups: &'a Store<Group>,
}

impl Volumes<'_> {
    /// Where a pod can go.
    pub(super) async fn reach(&self, namespace: &str, pod: &Value, groups: &[Arc<str>]) -> Result<Reach, kube::Error> {
        let claims: Vec<Arc<str>> = claims_of(pod).into_iter().map(Arc::from).collect();
        self.reach_by(namespace, &claims, groups).await
    }

    /// The same, by the names of a pod's claims.
    pub(super) async fn reach_by(
        &self,
        namespace: &str,
        claims: &[Arc<str>],
        groups: &[Arc<str>],
    ) -> Result<Reach, kube::Error> {
        let mut bound: Vec<Vec<Value>> = Vec::new();
        for claim in claims {
            match self.claimed(namespace, claim).await? {
                Claimed::Terms(terms) => bound.push(terms),
                Claimed::AnyNode => {}
                Claimed::Unbound => return Ok(Reach::Unbound(claim.clone())),
            }
        }
        if bound.is_empty() {
            return Ok(Reach::All);
        }
        let has_node = |group: &Arc<str>| {
            let Some(found) = self.groups.get(&Key::new("", group)) else { return false };
            self.nodes.all().iter().any(|node| {
                let seen = fit::Node { name: node.name(), labels: &node.labels, taints: &[] };
                is_member(&found.spec, node.name(), &node.labels)
                    && bound.iter().all(|terms| terms.iter().any(|term| fit::term_matches(term, seen)))
            })
        };
        Ok(Reach::Only(
            groups.iter().enumerate().filter(|(_, group)| has_node(group)).map(|(number, _)| number).collect(),
        ))
    }

    /// What a claim says of nodes.
    async fn claimed(&self, namespace: &str, claim: &str) -> Result<Claimed, kube::Error> {
        let claims = Api::<Observed<Value>>::namespaced_with(self.client.clone(), namespace, &PERSISTENT_VOLUME_CLAIM);
        let claim = claims.get_opt(claim).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        let name_of = |field: &str| claim["spec"][field].as_str().filter(|name| !name.is_empty());
        let Some(volume) = name_of("volumeName") else {
            let classes = Api::<Observed<Value>>::all_with(self.client.clone(), &STORAGE_CLASS);
            let Some(class) = name_of("storageClassName") else { return Ok(Claimed::Unbound) };
            let class = classes.get_opt(class).await?.and_then(|found| found.object.ok()).unwrap_or_default();
            return Ok(if waits_for_consumer(&class) { Claimed::AnyNode } else { Claimed::Unbound });
        };
        let volumes = Api::<Observed<Value>>::all_with(self.client.clone(), &PERSISTENT_VOLUME);
        let volume = volumes.get_opt(volume).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        Ok(terms_of(&volume).map_or(Claimed::AnyNode, Claimed::Terms))
    }
}

//! The groups that the volumes of a pod allow: those with a node that all its bound PersistentVolumes can be used on. A claim that is
//! not bound yet allows all.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::kinds::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM};
use dapple_plan::fit;
use dapple_plan::group::is_member;
use dapple_plan::group::volumes::{claims_of, terms_of};
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use super::Group;
use crate::caches::store::Store;
use crate::observed::Observed;
use crate::slim::{Key, Node};

/// Finds them out.
pub(super) struct Volumes<'a> {
    pub(super) client: &'a Client,
    pub(super) nodes: &'a Store<Node>,
    pub(super) groups: &'a Store<Group>,
}

impl Volumes<'_> {
    /// The places of those groups in the list that a pod's volumes allow. None if they allow all.
    pub(super) async fn allowed(
        &self,
        namespace: &str,
        pod: &Value,
        groups: &[Arc<str>],
    ) -> Result<Option<BTreeSet<usize>>, kube::Error> {
        let claims: Vec<Arc<str>> = claims_of(pod).into_iter().map(Arc::from).collect();
        self.allowed_by(namespace, &claims, groups).await
    }

    /// The same, by the names of a pod's claims.
    pub(super) async fn allowed_by(
        &self,
        namespace: &str,
        claims: &[Arc<str>],
        groups: &[Arc<str>],
    ) -> Result<Option<BTreeSet<usize>>, kube::Error> {
        let mut bound: Vec<Vec<Value>> = Vec::new();
        for claim in claims {
            bound.extend(self.terms(namespace, claim).await?);
        }
        if bound.is_empty() {
            return Ok(None);
        }
        let has_node = |group: &Arc<str>| {
            let Some(found) = self.groups.get(&Key::new("", group)) else { return false };
            self.nodes.all().iter().any(|node| {
                let seen = fit::Node { name: node.name(), labels: &node.labels, taints: &[] };
                is_member(&found.spec, node.name(), &node.labels)
                    && bound.iter().all(|terms| terms.iter().any(|term| fit::term_matches(term, seen)))
            })
        };
        Ok(Some(groups.iter().enumerate().filter(|(_, group)| has_node(group)).map(|(number, _)| number).collect()))
    }

    /// The node selector terms of the volume that a claim is bound to; none if it is not bound, or can be used on every node.
    async fn terms(&self, namespace: &str, claim: &str) -> Result<Option<Vec<Value>>, kube::Error> {
        let claims = Api::<Observed<Value>>::namespaced_with(self.client.clone(), namespace, &PERSISTENT_VOLUME_CLAIM);
        let claim = claims.get_opt(claim).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        let Some(volume) = claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let volumes = Api::<Observed<Value>>::all_with(self.client.clone(), &PERSISTENT_VOLUME);
        let volume = volumes.get_opt(volume).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        Ok(terms_of(&volume))
    }
}

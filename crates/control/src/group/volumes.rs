//! The groups that the volumes of a pod allow: those with a node that all its bound PersistentVolumes can be used on. A claim that is
//! bound only when its pod has a node allows all; of one that is bound before, it is not known until then.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::kinds::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS};
use dapple_plan::fit;
use dapple_plan::group::is_member;
use dapple_plan::group::volumes::{Claimed, Claims, Reach, earlier_claims, reach, terms_of, waits_for_consumer};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use super::Group;
use crate::caches::store::Store;
use crate::observed::Observed;
use crate::slim::{Key, Node};

/// So many claims are asked about at once.
const AT_ONCE: usize = 16;

/// What these claims of a namespace say of nodes.
pub async fn read_claims(client: &Client, namespace: &str, claims: BTreeSet<Arc<str>>) -> Result<Claims, kube::Error> {
    let read = async |claim: Arc<str>| {
        let claimed = claimed(client, namespace, &claim).await?;
        Ok((claim, claimed))
    };
    futures::stream::iter(claims).map(read).buffer_unordered(AT_ONCE).try_collect().await
}

/// What a claim says of nodes.
async fn claimed(client: &Client, namespace: &str, claim: &str) -> Result<Claimed, kube::Error> {
    let claims = Api::<Observed<Value>>::namespaced_with(client.clone(), namespace, &PERSISTENT_VOLUME_CLAIM);
    let claim = claims.get_opt(claim).await?.and_then(|found| found.object.ok()).unwrap_or_default();
    let name_of = |field: &str| claim["spec"][field].as_str().filter(|name| !name.is_empty());
    let Some(volume) = name_of("volumeName") else {
        let classes = Api::<Observed<Value>>::all_with(client.clone(), &STORAGE_CLASS);
        let Some(class) = name_of("storageClassName") else { return Ok(Claimed::Unbound) };
        let class = classes.get_opt(class).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        return Ok(if waits_for_consumer(&class) { Claimed::AnyNode } else { Claimed::Unbound });
    };
    let volumes = Api::<Observed<Value>>::all_with(client.clone(), &PERSISTENT_VOLUME);
    let volume = volumes.get_opt(volume).await?.and_then(|found| found.object.ok()).unwrap_or_default();
    Ok(terms_of(&volume).map_or(Claimed::AnyNode, Claimed::Terms))
}

/// Finds them out.
pub(super) struct Volumes<'a> {
    pub(super) client: &'a Client,
    pub(super) nodes: &'a Store<Node>,
    pub(super) groups: &'a Store<Group>,
}

impl Volumes<'_> {
    /// Where a pod can go that is yet to be made.
    pub(super) async fn reach_of_new(
        &self,
        namespace: &str,
        pod: &Value,
        groups: &[Arc<str>],
    ) -> Result<Reach, kube::Error> {
        let claims: Vec<Arc<str>> = earlier_claims(pod).into_iter().map(Arc::from).collect();
        let known = self.ask(namespace, claims.iter().cloned().collect()).await?;
        Ok(self.reach(&claims, &known, groups))
    }

    /// What these claims say of nodes.
    pub(super) async fn ask(&self, namespace: &str, claims: BTreeSet<Arc<str>>) -> Result<Claims, kube::Error> {
        read_claims(self.client, namespace, claims).await
    }

    /// Where a pod with these claims can go.
    pub(super) fn reach(&self, claims: &[Arc<str>], known: &Claims, groups: &[Arc<str>]) -> Reach {
        reach(claims, known, |are_usable| {
            let found: Vec<Option<Arc<Group>>> =
                groups.iter().map(|group| self.groups.get(&Key::new("", group))).collect();
            let mut allowed = BTreeSet::new();
            self.nodes.for_each(|node| {
                if are_usable(fit::Node { name: node.name(), labels: &node.labels, taints: &[] }) {
                    let is_in = |group: &Group| is_member(&group.spec, node.name(), &node.labels);
                    let there = found.iter().enumerate().filter(|(_, group)| group.as_deref().is_some_and(is_in));
                    allowed.extend(there.map(|(number, _)| number));
                }
            });
            allowed
        })
    }
}

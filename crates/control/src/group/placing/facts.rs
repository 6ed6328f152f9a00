//! What is found out about pods that wait, before it is decided where they go: what their volumes allow, and which groups have room.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dapple_plan::group::volumes::Reach;
use dapple_plan::group::why::Why;
use dapple_plan::room::Requests;
use serde_json::Value;

use super::super::editions::EditionsOfOwner;
use super::super::gates::whole;
use super::super::owner::OwnerKey;
use super::super::rooms::Rooms;
use super::super::volumes::Volumes;
use super::{Placements, Waiting};

/// Of so many pods it is asked in one look where their volumes are.
const MOST_ASKED: usize = 100;

/// Where pods can go by their volumes.
#[derive(Default)]
pub(super) struct Reaches {
    /// The only groups that those of some pods allow.
    pub(super) allowed: BTreeMap<Arc<str>, BTreeSet<usize>>,
    /// Pods with a claim that is yet to be bound.
    pub(super) unbound: BTreeMap<Arc<str>, Why>,
    /// Pods that nothing is known of yet: they are asked about at the next looks.
    pub(super) later: BTreeSet<Arc<str>>,
}

impl Placements {
    /// Where pods can go by their volumes.
    pub(super) async fn reaches(
        &self,
        at: &OwnerKey,
        pods: &BTreeMap<Arc<str>, Waiting<'_>>,
        groups: &[Arc<str>],
    ) -> Result<Reaches, kube::Error> {
        let stores = &self.seatings.stores;
        let volumes = Volumes { client: &self.client, nodes: &stores.nodes, groups: &stores.groups };
        let mut reaches = Reaches::default();
        let mut pods: Vec<_> = pods.iter().filter(|(_, waiting)| !waiting.pod.claims.is_empty()).collect();
        let first = self.asked.fetch_add(MOST_ASKED, Ordering::Relaxed).checked_rem(pods.len()).unwrap_or(0);
        pods.rotate_left(first);
        let later = pods.split_off(pods.len().min(MOST_ASKED));
        reaches.later = later.into_iter().map(|(name, _)| name.clone()).collect();
        let asked = pods.iter().flat_map(|(_, waiting)| waiting.pod.claims.iter().cloned());
        let claims = volumes.ask(&at.namespace, asked.collect()).await?;
        for (name, waiting) in pods {
            match volumes.reach(&waiting.pod.claims, &claims, groups) {
                Reach::All => {}
                Reach::Only(groups) => _ = reaches.allowed.insert(name.clone(), groups),
                Reach::Unbound(claim) => _ = reaches.unbound.insert(name.clone(), Why::Unbound { claim }),
            }
        }
        Ok(reaches)
    }

    /// What pods are made of: their owner's template, or, of those that nothing owns, each itself. None of those that are gone.
    pub(super) async fn templates(
        &self,
        at: &OwnerKey,
        pods: &BTreeMap<Arc<str>, Waiting<'_>>,
    ) -> Result<BTreeMap<Arc<str>, Arc<Value>>, kube::Error> {
        let mut templates = BTreeMap::new();
        if at.is_nobody() {
            for (name, waiting) in pods {
                templates.extend(whole(&self.client, &waiting.pod).await?.map(|pod| (name.clone(), Arc::new(pod))));
            }
        } else if let Some(template) = self.editions.templates.get(&self.client, &self.applications, at).await? {
            templates.extend(pods.keys().map(|name| (name.clone(), template.value.clone())));
        }
        Ok(templates)
    }
}

/// Whether groups have room for pods, in one decision.
pub(super) struct RoomFor<'a> {
    rooms: &'a Rooms,
    at: &'a OwnerKey,
    pods: &'a BTreeMap<Arc<str>, Waiting<'a>>,
    templates: &'a BTreeMap<Arc<str>, Arc<Value>>,
    groups: &'a [Arc<str>],
    editions: &'a EditionsOfOwner,
    /// Most pods of an owner are alike, and are counted once.
    counted: RefCell<Vec<Counted>>,
}

/// How many more of such pods a group has room for.
struct Counted {
    group: usize,
    template: Arc<Value>,
    wanted: Requests,
    count: usize,
}

impl<'a> RoomFor<'a> {
    pub(super) fn new(
        rooms: &'a Rooms,
        at: &'a OwnerKey,
        pods: &'a BTreeMap<Arc<str>, Waiting<'a>>,
        templates: &'a BTreeMap<Arc<str>, Arc<Value>>,
        (groups, editions): (&'a [Arc<str>], &'a EditionsOfOwner),
    ) -> Self {
        Self { rooms, at, pods, templates, groups, editions, counted: RefCell::default() }
    }

    /// Whether a group has room for a pod, beside so many others of this decision. One of which nothing is known waits nowhere
    /// else than in its own group.
    pub(super) fn is_there(&self, pod: &str, group: usize, besides: usize) -> bool {
        let (Some(waiting), Some(template), Some(name)) =
            (self.pods.get(pod), self.templates.get(pod), self.groups.get(group))
        else {
            return true;
        };
        let wanted = Requests::of(&waiting.pod.asking_spec());
        let mut counted = self.counted.borrow_mut();
        let is_same =
            |known: &&Counted| known.group == group && Arc::ptr_eq(&known.template, template) && known.wanted == wanted;
        if let Some(known) = counted.iter().find(is_same) {
            return besides < known.count;
        }
        let rendered = self.editions.template_in(&waiting.asking.labels, name, template);
        let count = self.rooms.count(self.at, name, (&rendered, &wanted), self.pods.len());
        counted.push(Counted { group, template: template.clone(), wanted, count });
        besides < count
    }
}

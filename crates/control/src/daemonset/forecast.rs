//! What the controller would do were a DaemonSet as given: the same view of the cluster, the same fleet, the same decisions,
//! and not one write.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_plan::daemonset::fleet::ahead::Ahead;
use dapple_plan::daemonset::layout::Proof;
use dapple_plan::daemonset::revision::{Settled, object, settle};
use dapple_plan::daemonset::status::Problem;
use dapple_plan::fit;
use dapple_plan::overriding::Overriding;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::claim::{is_adoptable, is_orphan, is_released, is_selected, with_hashes_of_their_own};
use super::known::{Past, Sources, VariantsOfRevisions, current, variants};
use super::{NODE_LABEL_PATCHES, Set, SetRevision};
use crate::gates::Gates;
use crate::overriding::{Asked, WAITING};
use crate::slim::{Interner, Node, Pod, Revision, read};

/// The part of a cluster that the rollout of a DaemonSet follows from. What belongs to others is passed over.
#[derive(Default)]
pub struct Cluster {
    strings: Interner,
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    revisions: Vec<Arc<Revision>>,
}

/// What OverridePolicies make of a DaemonSet's pods.
#[derive(Default)]
pub struct Overridden {
    /// As it is.
    pub before: Overriding,
    /// As it is to be.
    pub after: Overriding,
    /// Whether the policy is suspended.
    pub is_suspended: bool,
}

/// What the controller would do.
pub struct Forecast {
    /// What becomes of the pods, and in which order.
    pub ahead: Ahead,
    /// What it could not use, and would say in the status.
    pub problems: Vec<Problem>,
    /// By what a rendering means: the `controller-revision-hash` that its pods carry.
    pub hashes: BTreeMap<Arc<str>, Arc<str>>,
}

impl Cluster {
    /// Takes in a Node, a Pod or a ControllerRevision, as the API server tells of it.
    pub fn add(&mut self, object: &Value) -> Result<(), String> {
        match object["kind"].as_str() {
            Some("Node") => self.nodes.push(Arc::new(read(object, &mut self.strings)?)),
            Some("Pod") => self.pods.push(Arc::new(read(object, &mut self.strings)?)),
            Some("ControllerRevision") => self.revisions.push(Arc::new(read(object, &mut self.strings)?)),
            kind => return Err(format!("{kind:?} has no part in the rollout of a DaemonSet")),
        }
        Ok(())
    }

    /// Takes over the nodes of another, and nothing else.
    pub fn with_nodes_of(other: &Self) -> Self {
        Self { nodes: other.nodes.clone(), ..Self::default() }
    }

    /// What the controller would do about a DaemonSet, from now on. Of renderings that the API server refuses it knows
    /// nothing here: all count as taken.
    pub fn forecast(&self, set: &Value, policy: Overridden, gates: &Gates, now: Timestamp) -> Result<Forecast, String> {
        let set: Set = read(&numbered(set), &mut Interner::default())?;
        if set.is_terminating {
            let text = "it is being deleted: nothing is done about it any more".to_owned();
            let problems = vec![Problem::new("Deleted", text)];
            return Ok(Forecast { ahead: Ahead::default(), problems, hashes: BTreeMap::new() });
        }
        let is_its = |owner: Option<&Arc<str>>| owner == Some(&set.meta.uid);
        let revisions = self.revisions.iter().cloned().map(SetRevision::new);
        let revisions = revisions.filter(|known| known.is_of(&set) || is_adoptable(&set, known, &self.pods));
        let mut revisions = with_hashes_of_their_own(&set, revisions.collect());
        let pods = self.pods.iter();
        let pods = pods.filter(|pod| {
            let is_owned = is_its(pod.owner.as_ref()) && !is_released(&set, &revisions, pod);
            is_owned || (is_orphan(pod) && is_selected(&set, pod))
        });
        let pods: Vec<Arc<Pod>> = pods.cloned().collect();
        let update = newest(&set, &mut revisions, now)?;
        let (current, is_gone) = current(&set, &revisions, &update, &pods, now);
        let ignores_patches = !gates.is_on(&NODE_LABEL_PATCHES);
        let past = self.past(&set, &revisions, ignores_patches, &policy.before);
        let asked = Asked { overriding: policy.after, is_suspended: policy.is_suspended, is_unserved: false };
        let mut rendered = VariantsOfRevisions::new();
        for revision in [&update, &current] {
            let (name, version) = (revision.meta.key.name.clone(), revision.meta.version);
            let rendered = rendered.entry(name);
            rendered.or_insert_with(|| (version, variants(&set, revision, ignores_patches, &asked.overriding)));
        }
        let sources = Sources {
            set: &set,
            revisions: &revisions,
            update: &update,
            current: &current,
            pods: &pods,
            nodes: &self.nodes,
            ignores_patches,
            asked: &asked,
            past: &past,
            is_gone,
            is_blocked: false,
            now,
        };
        let known = sources.known(&mut rendered, |_| Proof::Taken, |_| false);
        let newest = rendered.get(&update.meta.key.name).into_iter().flat_map(|(_, variants)| variants.all());
        let renderings = newest.filter_map(|variant| variant.rendering.as_ref().ok());
        let hashes = renderings.map(|known| (known.meaning.clone(), known.hash.clone())).collect();
        let mut problems = known.problems;
        if let Overriding::Waits(why) = &asked.overriding {
            problems.push(Problem::new(WAITING, why.clone()));
        }
        Ok(Forecast { ahead: known.fleet.run_ahead(now.as_second()), problems, hashes })
    }

    /// What nodes have by a policy as it is.
    fn past(&self, set: &Set, revisions: &[Arc<SetRevision>], ignores_patches: bool, by: &Overriding) -> Past {
        let mut past = Past::new();
        for revision in revisions.iter().filter(|_| by.rules().is_some()) {
            let mut variants = variants(set, revision, ignores_patches, by);
            for node in &self.nodes {
                variants.of(fit::Node { name: node.name(), labels: &node.labels, taints: &[] });
            }
            let rendered = variants.into_all().into_iter().filter_map(|variant| variant.rendering.ok());
            past.extend(rendered.map(|known| (known.hash.clone(), known)));
        }
        past
    }
}

/// One that is yet to be made has no version, and no UID that anything could belong to.
fn numbered(set: &Value) -> Value {
    let mut set = set.clone();
    if set["metadata"]["resourceVersion"].is_null() {
        set["metadata"]["resourceVersion"] = json!("0");
        set["metadata"]["uid"] = json!("not made yet");
    }
    set
}

/// The newest revision, as it would be written.
fn newest(set: &Set, revisions: &mut Vec<Arc<SetRevision>>, now: Timestamp) -> Result<Arc<SetRevision>, String> {
    let known: Vec<_> = revisions.iter().map(|known| known.as_revision(set, now)).collect();
    let collisions = set.status.collision_count.unwrap_or(0);
    let place_of = |name: &str| known.iter().position(|known| known.name == name).ok_or("a revision is lost");
    let place = match settle(&set.meta.key.name, &set.spec, &known, collisions) {
        Settled::Keep { name } => place_of(&name)?,
        Settled::Renumber { name, number } => {
            let place = place_of(&name)?;
            revisions[place] = Arc::new(revisions[place].renumbered(number, now));
            place
        }
        Settled::Create(revision) => {
            let mut made = object(&revision, (&set.meta.key.name, &set.meta.uid), &set.spec, None);
            made["metadata"]["namespace"] = json!(&*set.meta.key.namespace);
            made["metadata"]["resourceVersion"] = json!("0");
            made["metadata"]["creationTimestamp"] = json!(now);
            revisions.push(SetRevision::new(Arc::new(read(&made, &mut Interner::default())?)));
            revisions.len() - 1
        }
    };
    Ok(revisions[place].clone())
}

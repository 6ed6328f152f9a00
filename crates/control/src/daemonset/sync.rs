//! One look at a DaemonSet: revision, pods, status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dapple_api::daemonset::{DaemonSet, DaemonSetStatus, UpdateStrategyType};
use dapple_plan::daemonset::desired::{Desired, desired};
use dapple_plan::daemonset::order::{CANARY_ANNOTATION, Canary, order};
use dapple_plan::daemonset::pod::{HASH_LABEL, Wanted, pod};
use dapple_plan::daemonset::pods::{Action, NodeState, PodState, place, replace};
use dapple_plan::daemonset::revision::{Revision, Step, settle, spec_of};
use dapple_plan::daemonset::status::{Facts, is_settled, status};
use dapple_plan::fit;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tracing::info;

use super::{DaemonSets, SETTLE, Set, SetRevision, SetWire};
use crate::events::Report;
use crate::observed::Wire;
use crate::queue::Ended;
use crate::slim::{Node, Pod, TaintEffect};
use crate::store::{Index, Key, Meta};

/// Requests under way at once for one set.
const AT_ONCE: usize = 16;
/// Writes of one look: the next look sees what they did.
const BURST: usize = 250;

/// Everything that one look is about.
struct View {
    /// In the order of a rollout, the last first.
    nodes: Vec<NodeState>,
    pods: Vec<PodState>,
    objects: BTreeMap<String, Arc<Pod>>,
    newest: Desired,
    /// What nodes that are held back should have.
    held: Option<(Arc<SetRevision>, Desired)>,
    update: Arc<SetRevision>,
    /// When the next pod will have been ready long enough.
    next_available: Option<Duration>,
}

impl DaemonSets {
    pub(super) async fn sync(&self, set: &Set) -> Result<Ended, kube::Error> {
        let revisions = self.revisions.find(Index::Owner, &set.meta.uid);
        let Some(update) = self.settle(set, &revisions).await? else { return Ok(Ended::Again(SETTLE)) };
        let view = self.view(set, &revisions, update);
        for (error, nodes) in view.newest.failures() {
            self.report(set, "PatchFailed", format!("{error}; {nodes} nodes keep what they run"));
        }
        let mut actions = place(&view.nodes, &view.pods);
        if actions.is_empty() && set.spec.update_strategy_type() == UpdateStrategyType::RollingUpdate {
            let eligible = view.nodes.iter().filter(|node| node.can_start).count();
            let budget = share(&set.spec.rolling_update().max_unavailable(), eligible);
            let outdated = replace(&view.nodes, &view.pods, budget).delete.into_iter();
            actions =
                outdated.map(|pod| Action::Delete { pod, why: dapple_plan::daemonset::pods::Why::Outdated }).collect();
        }
        let is_busy = !actions.is_empty();
        actions.truncate(BURST);
        let requests: Vec<_> = actions.iter().map(|action| self.act(set, &view, action)).collect();
        stream::iter(requests).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if is_busy {
            return Ok(Ended::Again(SETTLE));
        }
        self.tell(set, &view).await?;
        Ok(view.next_available.map_or(Ended::Done, Ended::Again))
    }

    /// Sees to it that the newest revision is what the set says. Nothing if it was written just now.
    async fn settle(&self, set: &Set, revisions: &[Arc<SetRevision>]) -> Result<Option<Arc<SetRevision>>, kube::Error> {
        let known: Vec<Revision> = revisions
            .iter()
            .map(|known| Revision {
                name: known.meta.key.name.to_string(),
                number: known.number,
                hash: hash_of(set, known),
                data: known.data.clone(),
            })
            .collect();
        let find = |name: &str| revisions.iter().find(|known| *known.meta.key.name == *name).cloned();
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &set.meta.key.namespace);
        let collisions = set.status.collision_count.unwrap_or(0);
        let written = match settle(&set.meta.key.name, &set.spec, &known, collisions) {
            Step::Keep { name } => return Ok(find(&name)),
            Step::Renumber { name, number } => {
                let version = find(&name).map(|known| known.meta.version.to_string());
                let patch = json!({"metadata": {"resourceVersion": version}, "revision": number});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?
            }
            Step::Create(revision) => {
                let created = api.create(&PostParams::default(), &revision_object(set, &revision)?).await;
                match created {
                    Err(kube::Error::Api(error)) if error.code == 409 => {
                        // Something else has the name: another one is taken from now on.
                        let status = DaemonSetStatus { collision_count: Some(collisions + 1), ..set.status.clone() };
                        self.write_status(set, &status).await?;
                        return Ok(None);
                    }
                    other => other?,
                }
            }
        };
        let key = Key::new(&set.meta.key.namespace, &written.name_any());
        info!(set = %set.meta.key, revision = %key.name, "revision written");
        self.revisions.wrote(&key, version_of(&written.metadata.resource_version));
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(set.meta.key.clone())
            .or_default()
            .revisions
            .insert(key);
        Ok(None)
    }

    fn view(&self, set: &Set, revisions: &[Arc<SetRevision>], update: Arc<SetRevision>) -> View {
        let nodes = self.nodes.all();
        let taints: Vec<Vec<fit::Taint>> = nodes.iter().map(|node| taints_of(node)).collect();
        let facts: Vec<fit::Node<'_>> = nodes
            .iter()
            .zip(&taints)
            .map(|(node, taints)| fit::Node { name: node.name(), labels: &node.labels, taints })
            .collect();
        let object = format!("DaemonSet {}", set.meta.key);
        let of = |revision: &SetRevision| {
            let (template, patches) = spec_of(&revision.data).unwrap_or_default();
            desired(&object, (&template, &patches), &hash_of(set, revision), facts.iter().copied())
        };
        let newest = of(&update);
        let current = set.status.current_revision.as_ref().filter(|name| **name != *update.meta.key.name);
        let held = current
            .and_then(|name| revisions.iter().find(|known| *known.meta.key.name == **name))
            .map(|revision| (revision.clone(), of(revision)));
        let canary: Option<Canary> = set.annotations.get(CANARY_ANNOTATION).and_then(|text| match text.parse() {
            Ok(canary) => Some(canary),
            Err(error) => {
                self.report(set, "BadCanary", format!("{error}"));
                None
            }
        });
        let fitting: Vec<(fit::Node<'_>, usize)> = facts
            .iter()
            .filter_map(|node| {
                newest.nodes.get(node.name).filter(|(_, misfit)| misfit.is_none()).map(|(variant, _)| (*node, *variant))
            })
            .collect();
        // A selector that cannot be used selects nothing: everything is held back.
        let placed = order(&fitting, set.spec.rolling_update(), canary.as_ref()).unwrap_or_default();
        let place_of: BTreeMap<&str, (usize, bool)> =
            placed.iter().enumerate().map(|(place, node)| (node.name.as_str(), (place, node.is_held))).collect();
        let mut states: Vec<NodeState> = nodes
            .iter()
            .map(|node| {
                let is_held = place_of.get(node.name()).is_none_or(|(_, is_held)| *is_held);
                let source = held.as_ref().filter(|_| is_held).map_or(&newest, |(_, desired)| desired);
                state_of(node, source, is_held)
            })
            .collect();
        states.sort_by_key(|node| std::cmp::Reverse(place_of.get(node.name.as_str()).copied()));
        let (pods, objects, next_available) = self.pods_of(set);
        View { nodes: states, pods, objects, newest, held, update, next_available }
    }

    fn pods_of(&self, set: &Set) -> (Vec<PodState>, BTreeMap<String, Arc<Pod>>, Option<Duration>) {
        let now = self.env.now().as_second();
        let min_ready = i64::from(set.spec.min_ready_seconds());
        let (mut states, mut objects, mut next) = (Vec::new(), BTreeMap::new(), None);
        for pod in self.pods.find(Index::Owner, &set.meta.uid) {
            // One that belongs to no node is none of a DaemonSet's.
            let Some(node) = pod.node.clone() else { continue };
            let left = pod.ready_since.map(|since| since + min_ready - now);
            if let Some(seconds) = left.and_then(|left| u64::try_from(left).ok()).filter(|seconds| *seconds > 0) {
                let wait = Duration::from_secs(seconds);
                next = Some(next.map_or(wait, |known: Duration| known.min(wait)));
            }
            states.push(PodState {
                name: pod.meta.key.name.to_string(),
                node: node.to_string(),
                hash: pod.labels.get(HASH_LABEL).unwrap_or_default().to_owned(),
                is_available: left.is_some_and(|left| left <= 0),
                is_terminating: pod.terminating,
                has_ended: ["Failed", "Succeeded"].contains(&pod.phase.as_ref()),
                created: pod.created,
            });
            objects.insert(pod.meta.key.name.to_string(), pod);
        }
        (states, objects, next)
    }

    async fn act(&self, set: &Set, view: &View, action: &Action) -> Result<(), kube::Error> {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &set.meta.key.namespace, &resource);
        let written = match action {
            Action::Create { node } => match self.create(set, view, node, &api).await? {
                Some(created) => created.metadata,
                None => return Ok(()),
            },
            Action::Delete { pod, why } => {
                let Some(Meta { uid, version, .. }) = view.objects.get(pod).map(|pod| &pod.meta) else { return Ok(()) };
                let only = Preconditions { uid: Some(uid.to_string()), resource_version: Some(version.to_string()) };
                let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
                info!(set = %set.meta.key, pod, ?why, "deleting");
                match api.delete(pod, &params).await {
                    Ok(answer) => answer.left().map(|pod| pod.metadata).unwrap_or_default(),
                    Err(kube::Error::Api(error)) if error.code == 404 => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        let Some(name) = &written.name else { return Ok(()) };
        let key = Key::new(&set.meta.key.namespace, name);
        self.pods.wrote(&key, version_of(&written.resource_version));
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(set.meta.key.clone())
            .or_default()
            .pods
            .insert(key);
        Ok(())
    }

    async fn create(
        &self,
        set: &Set,
        view: &View,
        node: &str,
        api: &Api<DynamicObject>,
    ) -> Result<Option<DynamicObject>, kube::Error> {
        let is_held = view.nodes.iter().any(|known| known.name == node && known.is_held);
        let (revision, desired) = match view.held.as_ref().filter(|_| is_held) {
            Some((revision, desired)) => (revision, desired),
            None => (&view.update, &view.newest),
        };
        let Some((template, hash)) = desired.of(node) else { return Ok(None) };
        let wanted = Wanted {
            set: &set.meta.key.name,
            uid: &set.meta.uid,
            node,
            template,
            hash,
            revision: &revision.meta.key.name,
        };
        let object = serde_json::from_value(pod(&wanted)).map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &object).await {
            // Made before, and on its way in or out: the next look sees it.
            Err(kube::Error::Api(error)) if error.code == 409 => Ok(None),
            Err(error) => {
                self.report(set, "FailedCreate", format!("cannot create a pod on {node}: {error}"));
                Err(error)
            }
            Ok(created) => Ok(Some(created)),
        }
    }

    async fn tell(&self, set: &Set, view: &View) -> Result<(), kube::Error> {
        let newest: BTreeMap<String, String> =
            view.newest.nodes.keys().filter_map(|node| Some((node.clone(), view.newest.of(node)?.1.clone()))).collect();
        let is_ready = |pod: &&Arc<Pod>| pod.ready_since.is_some();
        let ready: BTreeSet<String> =
            view.objects.values().filter(is_ready).map(|pod| pod.meta.key.name.to_string()).collect();
        let facts = Facts { nodes: &view.nodes, pods: &view.pods, newest: &newest, ready: &ready };
        let mut wanted = status(facts, &set.status, set.generation);
        let update = view.update.meta.key.name.to_string();
        if wanted.current_revision.is_none() || is_settled(facts) {
            wanted.current_revision = Some(update.clone());
        }
        wanted.update_revision = Some(update);
        if wanted != set.status {
            self.write_status(set, &wanted).await?;
        }
        Ok(())
    }

    async fn write_status(&self, set: &Set, status: &DaemonSetStatus) -> Result<(), kube::Error> {
        let Meta { key, uid, version } = &set.meta;
        let whole =
            json!({"metadata": {"uid": uid.as_ref(), "resourceVersion": version.to_string()}, "status": status});
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&whole)).await?;
        self.sets.wrote(key, version_of(&written.metadata.resource_version));
        Ok(())
    }

    fn report(&self, set: &Set, reason: &'static str, note: String) {
        let (key, uid) = (set.meta.key.clone(), set.meta.uid.to_string());
        self.recorder.report(Report { about: SetWire::KIND, key, uid, reason, note });
    }
}

fn state_of(node: &Node, desired: &Desired, is_held: bool) -> NodeState {
    let misfit = desired.nodes.get(node.name()).and_then(|(_, misfit)| misfit.as_ref());
    let name = node.name().to_owned();
    match desired.of(node.name()) {
        Some((_, hash)) => NodeState {
            name,
            can_start: misfit.is_none(),
            can_stay: misfit.is_none_or(fit::Misfit::lets_stay),
            is_ready: node.ready,
            wanted: hash.clone(),
            is_held,
        },
        // Patches that do not apply hold up their own nodes only, which keep what they run.
        None => NodeState {
            name,
            can_start: false,
            can_stay: true,
            is_ready: node.ready,
            wanted: String::new(),
            is_held: true,
        },
    }
}

fn taints_of(node: &Node) -> Vec<fit::Taint> {
    let effect = |effect: TaintEffect| match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
        TaintEffect::Unknown => "",
    };
    let taint = |taint: &crate::slim::Taint| fit::Taint {
        key: taint.key.to_string(),
        value: taint.value.to_string(),
        effect: effect(taint.effect).to_owned(),
    };
    node.taints.iter().map(taint).collect()
}

/// The hash that pods of an unpatched node carry: the revision's own, or the end of its name.
fn hash_of(set: &Set, revision: &SetRevision) -> String {
    let name = &revision.meta.key.name;
    let end = || name.strip_prefix(&format!("{}-", set.meta.key.name)).unwrap_or(name).to_owned();
    revision.hash.clone().unwrap_or_else(end)
}

fn revision_object(set: &Set, revision: &Revision) -> Result<ControllerRevision, kube::Error> {
    let mut labels = json!(set.spec.selector.match_labels);
    if !labels.is_object() {
        labels = json!({});
    }
    labels[HASH_LABEL] = json!(revision.hash);
    let owner = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": set.meta.key.name.as_ref(),
        "uid": set.meta.uid.as_ref(), "controller": true, "blockOwnerDeletion": true,
    });
    let metadata = json!({"name": revision.name, "labels": labels, "ownerReferences": [owner]});
    let object: Value = json!({"metadata": metadata, "revision": revision.number, "data": revision.data});
    serde_json::from_value(object).map_err(kube::Error::SerdeError)
}

/// A number, or a percentage rounded up.
fn share(value: &IntOrString, of: usize) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: usize = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).unwrap_or(0);
            of.saturating_mul(percent).div_ceil(100)
        }
    }
}

fn version_of(version: &Option<String>) -> u64 {
    version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

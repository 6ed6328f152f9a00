//! One look at a DaemonSet: take in what changed, decide, write, tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::daemonset::cell::{Held, PodState};
use dapple_plan::daemonset::desired::Variants;
use dapple_plan::daemonset::fleet::Fleet;
use dapple_plan::daemonset::inplace::{Intent, Progress, Running, STATE_ANNOTATION, progress};
use dapple_plan::daemonset::layout::{Layout, Seen, Sources, layout};
use dapple_plan::daemonset::lifecycle::{STATE_LABEL, State, is_fully_held, is_held};
use dapple_plan::daemonset::order::{CANARY_ANNOTATION, Canary};
use dapple_plan::daemonset::pod::{HASH_LABEL, REVISION_ANNOTATION};
use dapple_plan::daemonset::renderings::Renderings;
use dapple_plan::daemonset::revision::{Revision, current, spec_of};
use dapple_plan::daemonset::status::Problem;
use dapple_plan::fit;
use tracing::warn;

use super::memory::{Known, Memory};
use super::news::Changes;
use super::{DaemonSets, Set, SetRevision};
use crate::queue::Ended;
use crate::slim::{Node, Pod, TaintEffect};
use crate::store::{Index, Key};

/// How soon to look again for our own writes, should their echo not wake us.
pub(super) const ECHO: Duration = Duration::from_secs(1);

impl DaemonSets {
    pub(super) async fn look(&self, set: &Set, memory: &mut Memory) -> Result<Ended, kube::Error> {
        if memory.is_behind(set.meta.version) {
            return Ok(Ended::Again(ECHO));
        }
        // First of all, since they may be about the set: it was read just before.
        let changes = self.take_news(set, memory);
        memory.is_stale |= memory.asks_again(self.env.now().as_second());
        if !memory.is_stale {
            self.take_in(set, memory, &changes);
        }
        if memory.is_stale || memory.known.is_none() {
            if !self.renew(set, memory).await? {
                return Ok(Ended::Again(ECHO));
            }
            // While answers were waited for, the world went on. Invariant: what is decided is decided on what is known now.
            let changes = self.take_news(set, memory);
            if changes.is_stale {
                return Ok(Ended::Again(Duration::ZERO));
            }
            self.take_in(set, memory, &changes);
        }
        let now = self.env.now().as_second();
        let Some(known) = memory.known.as_mut() else { return Ok(Ended::Again(ECHO)) };
        let decision = known.fleet.decide(now);
        let is_tried = |node: &Arc<str>| decision.actions.iter().any(|action| action.node == *node);
        memory.refusals.retain(|node, refusal| refusal.until > now || is_tried(node));
        let acted = self.act(set, memory, decision).await;
        let Some(standing) = self.standing(set, memory) else { return Ok(Ended::Again(ECHO)) };
        if let Err(error) = self.pull(set, memory).await {
            // A help, which must not keep anything from being done.
            warn!(set = %set.meta.key, %error, "images could not be asked for; trying again later");
        }
        let told = self.tell(set, memory, &standing).await?;
        let pruned = self.prune(set, memory).await?;
        if let Some(soon) = acted? {
            return Ok(Ended::Again(soon));
        }
        Ok(self.next(memory, told.into_iter().chain(pruned).min(), now))
    }

    /// When to look again, unless something happens before.
    fn next(&self, memory: &Memory, told: Option<Duration>, now: i64) -> Ended {
        let known = memory.known.as_ref();
        let fleet = known.and_then(|known| known.fleet.next_wake());
        // Of a node that came and went between two lists, no watch tells.
        let stray = known.is_some_and(|known| known.fleet.has_strays()).then_some(ECHO);
        let asked = memory.proven.values().filter_map(|proof| proof.as_ref().err()).map(|refusal| refusal.ask_again);
        let at = fleet.into_iter().chain(asked).min();
        let wake = at.map(|at| Duration::from_secs(u64::try_from(at - now).unwrap_or(0).max(1)));
        let echo = memory.awaits_writes().then_some(ECHO);
        // A write taught us something that no watch will tell.
        let taught = memory.is_stale.then_some(ECHO);
        [wake, echo, stray, told, taught].into_iter().flatten().min().map_or(Ended::Done, Ended::Again)
    }

    /// Takes what has changed since, our own writes that have come back among it.
    pub(super) fn take_news(&self, set: &Set, memory: &mut Memory) -> Changes {
        let mut changes = self.news.take(&set.meta.key);
        memory.is_stale |= changes.is_stale;
        memory.settle_gone(|pod| self.pods.get(pod).is_some());
        changes.pods.extend(memory.see(|pod| self.pods.caught_up(pod)));
        memory.doubt_overdue();
        changes
    }

    /// Takes in the changes of single pods and nodes. Anything that is not known makes everything to be looked at anew.
    pub(super) fn take_in(&self, set: &Set, memory: &mut Memory, changes: &Changes) {
        let Some(mut known) = memory.known.take() else { return };
        memory.may_prune |= !changes.pods.is_empty();
        for name in &changes.nodes {
            if let Some(node) = self.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() }) {
                known.fleet.observe_node(name, node.ready);
            }
        }
        for name in &changes.pods {
            let key = Key { namespace: set.meta.key.namespace.clone(), name: name.clone() };
            let pod = self.pods.get(&key).filter(|pod| pod.owner.as_ref() == Some(&set.meta.uid));
            let Some((node, pod)) = pod.as_ref().and_then(|pod| Some((pod.node.as_ref()?, pod))) else {
                known.fleet.observe(name, None);
                continue;
            };
            let state = pod_state(set, pod, &known.templates, memory);
            let is_known = known.fleet.knows(&state.hash) || known.unknown.contains(&state.hash);
            memory.is_stale |= !is_known || !self.is_selected(set, pod);
            known.fleet.observe(name, Some((node, state)));
        }
        memory.known = Some(known);
    }

    /// Looks at everything anew. False if something was written that must be seen first.
    async fn renew(&self, set: &Set, memory: &mut Memory) -> Result<bool, kube::Error> {
        memory.is_stale = true;
        if !memory.sees_revisions(|revision| self.revisions.caught_up(revision)) || !self.sets.caught_up(&set.meta.key)
        {
            return Ok(false);
        }
        let is_all_owned = self.own(set, memory).await?;
        if !memory.sees_revisions(|revision| self.revisions.caught_up(revision)) {
            // One that was just taken in may say what the set says: none is made before it is seen.
            return Ok(false);
        }
        let revisions = self.revisions.find(Index::Owner, &set.meta.uid);
        let Some(update) = self.settle(set, memory, &revisions).await? else { return Ok(false) };
        let pods = self.pods.find(Index::Owner, &set.meta.uid);
        let current = self.current(set, &revisions, &update, &pods);
        self.render(set, memory, [&update, &current]);
        let nodes = self.nodes.all();
        let is_there =
            |name: &Arc<str>| self.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() }).is_some();
        memory.refusals.retain(|name, _| is_there(name));
        memory.collisions.retain(|name, _| is_there(name));
        memory.unchangeable.retain(|uid| pods.iter().any(|pod| pod.meta.uid == *uid));
        self.prove(set, memory, &update, &nodes).await?;
        let known = self.known(set, memory, &revisions, (update, current), (&pods, &nodes));
        for problem in &known.problems {
            if memory.reported.insert((problem.reason, problem.text.clone())) {
                self.report(set, problem.reason, problem.text.clone());
            }
        }
        memory.known = Some(known);
        memory.is_stale = !is_all_owned;
        memory.may_prune = true;
        Ok(true)
    }

    fn current(
        &self,
        set: &Set,
        revisions: &[Arc<SetRevision>],
        update: &Arc<SetRevision>,
        pods: &[Arc<Pod>],
    ) -> Arc<SetRevision> {
        let named = set.status.current_revision.as_deref();
        let all: Vec<Revision> = revisions.iter().map(|known| known.as_revision(set)).collect();
        let of_pods = pods.iter().filter(|pod| !pod.terminating);
        let of_pods = of_pods.map(|pod| (pod.annotations.get(REVISION_ANNOTATION), hash_label(pod)));
        let found = current(named, &update.meta.key.name, &all, of_pods);
        let found = found.and_then(|found| revisions.iter().find(|known| *known.meta.key.name == *found.name));
        found.unwrap_or(update).clone()
    }

    /// Makes sure that the variants of these revisions are in memory, and forgets those of others.
    fn render(&self, set: &Set, memory: &mut Memory, revisions: [&Arc<SetRevision>; 2]) {
        if memory.selector.as_ref() != Some(&set.spec.selector) {
            memory.selector = Some(set.spec.selector.clone());
            memory.variants.clear();
        }
        memory.variants.retain(|name, (version, _)| {
            revisions.iter().any(|known| known.meta.key.name == *name && known.meta.version == *version)
        });
        for revision in revisions {
            let (name, version) = (revision.meta.key.name.clone(), revision.meta.version);
            memory.variants.entry(name).or_insert_with(|| (version, self.variants(set, revision)));
        }
    }

    fn variants(&self, set: &Set, revision: &SetRevision) -> Variants {
        let (template, patches) = spec_of(&revision.data).unwrap_or_default();
        let patches = if self.ignores_patches { &[] } else { patches.as_slice() };
        let object = format!("DaemonSet {}", set.meta.key);
        Variants::new(&object, (template, patches), &set.spec, &revision.hash(set))
    }

    /// The fleet as it is now.
    fn known(
        &self,
        set: &Set,
        memory: &mut Memory,
        revisions: &[Arc<SetRevision>],
        (update, current): (Arc<SetRevision>, Arc<SetRevision>),
        (pods, nodes): (&[Arc<Pod>], &[Arc<Node>]),
    ) -> Known {
        let mut problems = Vec::new();
        let Layout { rules, nodes: states, bad_selector } =
            self.lay_out(set, memory, &update, &current, nodes, &mut problems);
        if let Some(error) = bad_selector {
            let text = format!("spec.updateStrategy.rollingUpdate.selector.{error}; everything is held back");
            problems.push(Problem::new("BadSelector", text));
        }
        problems.extend(self.rendering_problems(memory, &update, nodes));
        let templates: BTreeMap<Arc<str>, Arc<str>> =
            revisions.iter().map(|known| (known.meta.key.name.clone(), Arc::from(known.hash(set)))).collect();
        let (renderings, unknown) = self.renderings(set, memory, revisions, pods);
        let mut fleet = Fleet::new(rules, states, renderings);
        if let Some(before) = memory.known.as_ref().filter(|before| before.generation == set.generation) {
            fleet = fleet.remembering(&before.fleet);
        }
        for pod in pods {
            if let Some(node) = &pod.node {
                fleet.observe(&pod.meta.key.name, Some((node, pod_state(set, pod, &templates, memory))));
            }
        }
        for node in memory.unseen.values().map(|unseen| &unseen.node).chain(memory.doubtful_nodes()) {
            fleet.wrote(node);
        }
        for (node, refusal) in &memory.refusals {
            fleet.set_back(node, refusal.until);
        }
        Known { fleet, generation: set.generation, update, current, templates, problems, unknown }
    }

    fn lay_out(
        &self,
        set: &Set,
        memory: &mut Memory,
        update: &SetRevision,
        current: &SetRevision,
        nodes: &[Arc<Node>],
        problems: &mut Vec<Problem>,
    ) -> Layout {
        let canary: Option<Canary> = set.annotations.get(CANARY_ANNOTATION).and_then(|text| match text.parse() {
            Ok(canary) => Some(canary),
            Err(error) => {
                problems.push(Problem::new("BadCanary", format!("metadata.annotations: {error}")));
                None
            }
        });
        let taints: Vec<Vec<fit::Taint>> = nodes.iter().map(|node| taints_of(node)).collect();
        let seen: Vec<Seen<'_>> = nodes
            .iter()
            .zip(&taints)
            .map(|(node, taints)| Seen {
                node: fit::Node { name: node.name(), labels: &node.labels, taints },
                name: &node.meta.key.name,
                is_ready: node.ready,
            })
            .collect();
        // Two revisions at most are in memory: the newest, and the one that nodes are held back at.
        let mut newest = None;
        let mut held = None;
        for (name, (_, variants)) in &mut memory.variants {
            if *name == update.meta.key.name {
                newest = Some(variants);
            } else if *name == current.meta.key.name {
                held = Some(variants);
            }
        }
        let mut nothing = Variants::new("", Default::default(), &set.spec, "");
        let newest = newest.unwrap_or(&mut nothing);
        let refused = memory.proven.iter().filter(|(_, proof)| proof.is_err()).map(|(hash, _)| hash.clone()).collect();
        let sources = Sources {
            spec: &set.spec,
            newest,
            current: held,
            canary: canary.as_ref(),
            refused: &refused,
            ignores_patches: self.ignores_patches,
        };
        layout(sources, &seen)
    }

    /// What every hash stands for that a pod or a node has, and hashes that stand for nothing known.
    fn renderings(
        &self,
        set: &Set,
        memory: &mut Memory,
        revisions: &[Arc<SetRevision>],
        pods: &[Arc<Pod>],
    ) -> (Renderings, BTreeSet<Arc<str>>) {
        let mut renderings = Renderings::default();
        for (_, variants) in memory.variants.values() {
            for rendered in variants.all().iter().filter_map(|variant| variant.rendering.as_ref().ok()) {
                renderings.add(&rendered.hash, &rendered.template);
            }
        }
        let mut unknown = BTreeSet::new();
        for pod in pods {
            let hash = hash_label(pod);
            if renderings.knows(hash) || unknown.contains(hash) {
                continue;
            }
            let found = revision_of(set, revisions, pod).and_then(|revision| self.variants(set, revision).find(hash));
            match found {
                Some(rendered) => renderings.add(&rendered.hash, &rendered.template),
                None => _ = unknown.insert(Arc::from(hash)),
            }
        }
        (renderings, unknown)
    }
}

/// The hash that a pod carries.
pub(super) fn hash_label(pod: &Pod) -> &str {
    pod.labels.get(HASH_LABEL).unwrap_or_default()
}

/// The revision that a pod was made from: the one that it names, or the one whose hash it carries.
pub(super) fn revision_of<'a>(set: &Set, revisions: &'a [Arc<SetRevision>], pod: &Pod) -> Option<&'a Arc<SetRevision>> {
    let named = pod.annotations.get(REVISION_ANNOTATION);
    revisions
        .iter()
        .find(|known| named.map_or_else(|| known.hash(set) == hash_label(pod), |name| *known.meta.key.name == *name))
}

/// A pod as deciding sees it.
fn pod_state(set: &Set, pod: &Pod, templates: &BTreeMap<Arc<str>, Arc<str>>, memory: &Memory) -> PodState {
    let hooks = set.spec.lifecycle.as_ref();
    let (deletion, update) =
        (hooks.and_then(|hooks| hooks.pre_delete.as_ref()), hooks.and_then(|hooks| hooks.in_place_update.as_ref()));
    let label = |key: &str| pod.labels.get(key);
    let edit = match pod.annotations.get(STATE_ANNOTATION) {
        _ if memory.unchangeable.contains(&pod.meta.uid) => Progress::Stuck,
        None if pod.intent != Intent::Pending => Progress::Done,
        // At the beginning of time nothing has waited too long: when it will have is part of the answer.
        state => progress(state, pod.intent, &running(pod), pod.resize, i64::MIN),
    };
    PodState {
        name: pod.meta.key.name.clone(),
        version: pod.meta.version,
        hash: pod.labels.get_shared(HASH_LABEL).unwrap_or_else(|| Arc::from("")),
        template: pod.annotations.get(REVISION_ANNOTATION).and_then(|name| templates.get(name)).cloned(),
        created: pod.created,
        ready_since: pod.ready_since,
        is_terminating: pod.terminating,
        has_ended: ["Failed", "Succeeded"].contains(&pod.phase.as_ref()),
        edit,
        intent: pod.intent,
        gate: pod.gate,
        service: pod.service,
        state: State::parse(label(STATE_LABEL)),
        held: Held {
            from_deletion: deletion.is_some_and(|hook| is_held(hook, label, &pod.finalizers)),
            from_update: update.is_some_and(|hook| is_held(hook, label, &pod.finalizers)),
            again: update.is_some_and(|hook| is_fully_held(hook, label, &pod.finalizers)),
        },
        trouble: pod.trouble.clone(),
    }
}

/// Its containers as they run.
pub(super) fn running(pod: &Pod) -> Vec<Running<'_>> {
    let containers = pod.containers.iter();
    containers
        .map(|known| Running {
            name: &known.name,
            image: &known.image,
            status_image: &known.status_image,
            image_id: &known.image_id,
        })
        .collect()
}

pub(super) fn taints_of(node: &Node) -> Vec<fit::Taint> {
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

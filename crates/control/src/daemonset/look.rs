//! One look at a DaemonSet: take in what changed, decide, write, tell.

use std::sync::Arc;
use std::time::Duration;

use dapple_plan::daemonset::fleet::Fleet;
use dapple_plan::daemonset::layout::Revisions;
use dapple_plan::daemonset::placement::Prospect;
use dapple_plan::daemonset::reads::Reads;
use dapple_plan::daemonset::stale::{self, Stale};
use dapple_plan::daemonset::status::{Problem, failed, stalls_at};
use dapple_plan::daemonset::wake::{ECHO, Wakes};
use dapple_plan::proof::ask_again_at;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tracing::debug;

use super::known::{Sources, current, prospect, revisions, variants};
use super::memory::Memory;
use super::mend::NEWEST;
use super::news::Changes;
use super::own::is_selected;
use super::pod::pod_state;
use super::proof::proof_of;
use super::steps::Step;
use super::{DaemonSets, Set, SetRevision};
use crate::caches::store::Key;
use crate::queue::Ended;
use crate::slim::{Node, Pod};

/// What looking at everything anew has come to.
enum Renewed {
    /// It is known what follows.
    Done,
    /// Something was written that must be seen first.
    Waits,
    /// A step failed that everything else needs.
    Impossible,
}

impl DaemonSets {
    pub(super) async fn look(&self, set: &Arc<Set>, memory: &mut Memory) -> Result<Ended, kube::Error> {
        if memory.is_behind(set.meta.version) {
            return Ok(Ended::Again(ECHO));
        }
        // First of all, since they may be about the set: it was read just before.
        let changes = self.take_news(set, memory);
        // The set is read from the store, which may be ahead of the news.
        let is_asked_for = memory.set.as_ref().is_some_and(|known| set.asks_as(known));
        memory.make_stale((!is_asked_for).then_some(Stale::Changed));
        let is_due = memory.is_due(self.env.now().as_second());
        memory.make_stale(is_due.then_some(Stale::Due));
        if !memory.is_stale() {
            self.take_in(set, memory, &changes);
        }
        if memory.is_stale() || memory.known.is_none() {
            match self.renew(set, memory).await? {
                Renewed::Done => {}
                Renewed::Waits => return Ok(Ended::Again(ECHO)),
                Renewed::Impossible => return self.tell_failures(set, memory).await,
            }
            // While answers were waited for, the world went on. Invariant: what is decided is decided on what is known now.
            let changes = self.take_news(set, memory);
            if changes.is_stale {
                return Ok(Ended::Again(Duration::ZERO));
            }
            let was_stale = memory.is_stale();
            self.take_in(set, memory, &changes);
            // Once, not for ever: on a large fleet some node changes during every look, and nothing would be done or told.
            memory.is_put_off = memory.is_stale() && !was_stale && !memory.is_put_off;
            if memory.is_put_off {
                return Ok(Ended::Again(Duration::ZERO));
            }
        }
        let now = self.env.now().as_second();
        let Some(known) = memory.known.as_mut() else { return Ok(Ended::Again(ECHO)) };
        let decision = known.fleet.decide(now);
        let is_tried = |node: &Arc<str>| decision.actions.iter().any(|action| action.node == *node);
        memory.refusals.retain(|node, refusal| refusal.until > now || is_tried(node));
        // Whatever becomes of a step, the others are done, and the status is told: errors wait until the end.
        let acted = self.act(set, memory, decision).await;
        let pulled = self.pull(set, memory).await;
        let pulled = self.stepped(set, memory, (Step::Images, "ImagePullJob"), pulled);
        let pruned = self.prune(set, memory).await;
        if acted.is_ok() && pulled.is_ok() && pruned.is_ok() {
            memory.failure = None;
        }
        let Some(standing) = self.standing(set, memory) else { return Ok(Ended::Again(ECHO)) };
        let told = self.tell(set, memory, &standing).await?;
        let (acted, pruned, _) = (acted?, pruned?, pulled?);
        if let Some(soon) = acted {
            return Ok(Ended::Again(soon));
        }
        let stalls = memory.known.as_ref().and_then(|known| stalls_at(&standing, &known.fleet));
        Ok(self.next(memory, told.into_iter().chain(pruned).min(), stalls, now))
    }

    /// Says what fails where nothing can be decided. Looks again when it is to be tried again.
    pub(super) async fn tell_failures(&self, set: &Set, memory: &mut Memory) -> Result<Ended, kube::Error> {
        let problems: Vec<Problem> = memory.failures().collect();
        let status = failed(&set.status, set.generation, &problems, &Time(self.env.now()));
        let told = self.tell(set, memory, &status).await?;
        Ok(self.next(memory, told, None, self.env.now().as_second()))
    }

    /// When to look again, unless something happens before.
    fn next(&self, memory: &Memory, told: Option<Duration>, stalls: Option<i64>, now: i64) -> Ended {
        let fleet = memory.known.as_ref().map(|known| &known.fleet);
        let wakes = Wakes {
            fleet: fleet.and_then(Fleet::next_wake),
            asked: ask_again_at(&memory.answers),
            retried: memory.retry_at(),
            stalls,
            told,
            has_strays: fleet.is_some_and(Fleet::has_strays),
            has_open_writes: !memory.ledger.is_empty(),
            is_stale: memory.is_stale(),
        };
        let again = wakes.next(now);
        match memory.failing() {
            Some(reason) => Ended::Failing { reason, again: again.unwrap_or(ECHO) },
            None => again.map_or(Ended::Done, Ended::Again),
        }
    }

    /// Takes what has changed since, our own writes that have come back among it.
    pub(super) fn take_news(&self, set: &Set, memory: &mut Memory) -> Changes {
        // First: what counts as seen was told, and is news by then.
        let settled = memory.see(|pod| self.pods.caught_up(pod), |pod| self.pods.get(pod).is_some());
        let mut changes = self.news.take(&set.meta.key);
        memory.make_stale(changes.is_stale.then_some(Stale::Changed));
        for pod in settled {
            let key = Key { namespace: set.meta.key.namespace.clone(), name: pod.clone() };
            changes.pods.entry(pod).or_insert_with(|| self.pods.get(&key));
        }
        changes
    }

    /// Takes in the changes of single pods and nodes. Anything that is not known makes everything to be looked at anew.
    pub(super) fn take_in(&self, set: &Set, memory: &mut Memory, changes: &Changes) {
        memory.may_prune |= !changes.pods.is_empty();
        for name in &changes.nodes {
            self.take_in_node(memory, name);
        }
        let Some(mut known) = memory.known.take() else { return };
        for (name, told) in &changes.pods {
            // What was told before everything was looked at last is known, and maybe more.
            let is_known = |pod: &Arc<Pod>| known.fleet.pod(name).is_some_and(|seen| seen.version > pod.meta.version);
            if told.as_ref().is_some_and(is_known) {
                continue;
            }
            let pod = told.as_ref().filter(|pod| pod.owner.as_ref() == Some(&set.meta.uid));
            let Some((node, pod)) = pod.and_then(|pod| Some((pod.node.as_ref()?, pod))) else {
                known.fleet.observe(name, None);
                continue;
            };
            let state = pod_state(set, pod, &known.names, memory.unchangeable.contains(&pod.meta.uid));
            memory.make_stale(stale::of_pod(known.names.has(&state.label), is_selected(set, pod)));
            known.fleet.observe(name, Some((node, state)));
        }
        memory.known = Some(known);
    }

    /// Takes in a node that came, went or changed: that costs this node, not the fleet.
    fn take_in_node(&self, memory: &mut Memory, name: &Arc<str>) {
        let Some(known) = memory.known.as_mut() else { return };
        let Some(node) = self.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() }) else {
            known.fleet.drop_node(name);
            memory.refusals.remove(name);
            memory.collisions.remove(name);
            return;
        };
        let answers = &memory.answers;
        let mut found = revisions(&mut memory.variants, &known.update, &known.current);
        let before = found.as_ref().map(Revisions::count);
        let prospect = prospect(&known.strategy, found.as_mut(), &node, |meaning| proof_of(answers, meaning));
        // What no node had before is to be shown to the API server first.
        let is_new = before != found.as_ref().map(Revisions::count);
        // How many nodes a problem concerns is told, and whether it concerns any.
        let is_problem = |found: &Prospect| found.next.rendering.is_none() || found.next.is_unproven;
        let are_told = known.problems.iter().any(|problem| !problem.extent.is_empty());
        let why = stale::of_node(is_new, prospect.as_ref().is_some_and(is_problem), are_told);
        let was_known = known.fleet.node(name).is_some();
        if let Some(prospect) = prospect.filter(|_| !is_new) {
            known.fleet.put(prospect);
            if !was_known {
                // It may have gone and come back while writes of ours were under way there.
                memory.freeze_again(name);
            }
        }
        memory.make_stale(why);
    }

    /// Looks at everything anew.
    async fn renew(&self, set: &Arc<Set>, memory: &mut Memory) -> Result<Renewed, kube::Error> {
        memory.make_stale(Some(Stale::Unseen));
        debug!(set = %set.meta.key, why = ?memory.stale(), "looking at everything anew");
        // Before nodes are read. Invariant: no change of a node that comes while answers are waited for is passed over
        // because the revision before did not read it.
        self.news.forget_reads(&set.meta.key);
        if !memory.sees_revisions(|revision| self.revisions.caught_up(revision)) || !self.sets.caught_up(&set.meta.key)
        {
            return Ok(Renewed::Waits);
        }
        let is_all_owned = self.own(set, memory).await?;
        if !memory.sees_revisions(|revision| self.revisions.caught_up(revision)) {
            // One that was just taken in may say what the set says: none is made before it is seen.
            return Ok(Renewed::Waits);
        }
        let mut revisions = self.own_revisions(set);
        if self.mend(set, memory, &revisions).await? {
            return Ok(Renewed::Waits);
        }
        let all = revisions.clone();
        revisions.retain(|old| !all.iter().any(|known| known.stands_in_for(old)));
        let settled = self.settle(set, memory, &revisions).await;
        let settled = self.stepped(set, memory, (Step::Revisions, NEWEST), settled)?;
        let Some(update) = settled.unwrap_or_else(|| newest(&revisions)) else {
            // Nothing is known that a pod could be made of, or what was written is still to be seen.
            return Ok(if memory.failing().is_some() { Renewed::Impossible } else { Renewed::Waits });
        };
        memory.is_blocked = memory.has_failed(Step::Revisions, NEWEST);
        let pods = self.pods.find(Pod::BY_OWNER, &set.meta.uid);
        let (current, is_gone) = current(set, &revisions, &update, &pods, self.env.now());
        memory.is_gone = is_gone;
        self.render(set, memory, [&update, &current]);
        let nodes = self.nodes.all();
        let is_there =
            |name: &Arc<str>| self.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() }).is_some();
        memory.refusals.retain(|name, _| is_there(name));
        memory.collisions.retain(|name, _| is_there(name));
        memory.unchangeable.retain(|uid| pods.iter().any(|pod| pod.meta.uid == *uid));
        self.prove(set, memory, &update, (&nodes, &pods)).await?;
        self.know(set, memory, (&revisions, &update, &current), (&pods, &nodes));
        memory.set = Some(set.clone());
        memory.set_stale((!is_all_owned).then_some(Stale::NotOwned));
        memory.may_prune = true;
        Ok(Renewed::Done)
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
        let variants = |revision: &SetRevision| variants(set, revision, self.ignores_patches);
        for revision in revisions {
            let (name, version) = (revision.meta.key.name.clone(), revision.meta.version);
            memory.variants.entry(name).or_insert_with(|| (version, variants(revision)));
        }
    }

    /// Brings memory up to date with what there is.
    fn know(
        &self,
        set: &Set,
        memory: &mut Memory,
        (revisions, update, current): (&[Arc<SetRevision>], &Arc<SetRevision>, &Arc<SetRevision>),
        (pods, nodes): (&[Arc<Pod>], &[Arc<Node>]),
    ) {
        let (ignores_patches, now) = (self.ignores_patches, self.env.now());
        let (is_gone, is_blocked) = (memory.is_gone, memory.is_blocked);
        let sources =
            Sources { set, revisions, update, current, pods, nodes, ignores_patches, is_gone, is_blocked, now };
        let (answers, unchangeable) = (&memory.answers, &memory.unchangeable);
        let is_unchangeable = |pod: &Pod| unchangeable.contains(&pod.meta.uid);
        let mut known = sources.known(&mut memory.variants, |meaning| proof_of(answers, meaning), is_unchangeable);
        if let Some(before) = memory.known.as_ref().filter(|before| before.generation == set.generation) {
            known.fleet = known.fleet.remembering(&before.fleet);
        }
        memory.ledger.about().for_each(|node| known.fleet.wrote(node));
        for (node, refusal) in &memory.refusals {
            known.fleet.set_back(node, refusal.until);
        }
        known.problems.extend(self.rendering_problems(memory, update, nodes));
        for problem in &known.problems {
            if memory.reported.insert((problem.reason, problem.text.clone())) {
                self.report(set, problem.reason, problem.text.clone());
            }
        }
        // What is over may be told again, should it come back.
        memory.reported.retain(|(reason, text)| {
            known.problems.iter().any(|problem| (problem.reason, &problem.text) == (*reason, text))
        });
        let reads = Reads::of(&known.strategy, memory.variants.values().map(|(_, variants)| variants));
        self.news.reads(&set.meta.key, reads);
        memory.known = Some(known);
    }
}

/// The newest of the revisions that are there.
fn newest(revisions: &[Arc<SetRevision>]) -> Option<Arc<SetRevision>> {
    revisions.iter().max_by_key(|known| (known.number, &known.meta.key.name)).cloned()
}

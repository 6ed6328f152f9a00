//! Writing what was decided.
//!
//! Every write is harmless if it is repeated, late, or meant for a pod that is another one by now: pods are made under a
//! name that follows from what they are, and changed or deleted at the version that was decided on. A write whose answer
//! did not come is a doubt: nothing is decided about its node before the API server was asked what became of it.

use std::collections::VecDeque;
use std::time::Duration;

use dapple_plan::daemonset::cell::{Act, Why};
use dapple_plan::daemonset::consequence::{Answered, Consequence, Open, Refusal, Remedy, is_in_vain};
use dapple_plan::daemonset::fleet::{Action, Decision};
use dapple_plan::daemonset::stale::Stale;
use dapple_plan::daemonset::wake::ECHO;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::proof::Answer;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::memory::Memory;
use super::send::{Request, Sent};
use super::{DaemonSets, Set};
use crate::caches::store::Key;
use crate::writes::client::in_words;
use crate::writes::outcome::version_of;

/// Requests under way at once for one set.
const AT_ONCE: usize = 16;
/// How long pods are made on end, before the status is told and other sets have their turn.
const LONGEST_FLOW: Duration = Duration::from_secs(3);

impl DaemonSets {
    /// Does all of it. Returns when to look again, if there is more to do.
    pub(super) async fn act(
        &self,
        set: &Set,
        memory: &mut Memory,
        decision: Decision,
    ) -> Result<Option<Duration>, kube::Error> {
        let (begun, written) = (Instant::now(), memory.written);
        let (creations, mut others): (VecDeque<Action>, VecDeque<Action>) =
            decision.actions.into_iter().partition(|action| action.act == Act::Create);
        // Invariant: what is sent was decided just now. The others would wait for these, and the world does not.
        let is_all = others.len() <= AT_ONCE;
        others.truncate(AT_ONCE);
        let acted = self.batch(set, memory, others).await;
        let made = self.create_all(set, memory, creations, begun).await;
        acted?;
        // After a refusal there is no hurry. What came to nothing would be decided again, and come to nothing again, for
        // as long as our view is behind.
        let has_more = made? || ((decision.has_more || !is_all) && memory.refusals.is_empty());
        Ok(has_more.then_some(if memory.written > written || is_on(Mutant::HurriesInVain) {
            Duration::ZERO
        } else {
            ECHO
        }))
    }

    /// Does several things at once; the first error is told.
    async fn batch(&self, set: &Set, memory: &mut Memory, actions: VecDeque<Action>) -> Result<(), kube::Error> {
        let mut under_way = FuturesUnordered::new();
        for action in actions {
            if let Some((key, request)) = self.prepare(set, memory, &action) {
                memory.begin(key.clone(), &action.node);
                under_way.push(self.sent(set, action, key, request));
            }
        }
        let mut result = Ok(());
        while let Some((action, key, sent)) = under_way.next().await {
            result = result.and(self.record(set, memory, &action, key, sent));
        }
        result
    }

    /// Makes pods, and goes on to the next ones without a pause for as long as there is nothing else to do and nobody
    /// waits to be told: requests that end one by one keep the API server busy, where rounds of them would end in a wait
    /// for the last. Should pods be refused, a few are enough to know: the first is made alone unless the last ones were
    /// taken, and none is begun after a refusal, or too long after it was decided (`begun`). Returns whether there is
    /// something else to do.
    async fn create_all(
        &self,
        set: &Set,
        memory: &mut Memory,
        mut waiting: VecDeque<Action>,
        begun: Instant,
    ) -> Result<bool, kube::Error> {
        let (mut is_stopped, mut found_more, mut result) = (false, false, Ok(()));
        let mut under_way = FuturesUnordered::new();
        loop {
            if !waiting.is_empty() && begun.elapsed() >= LONGEST_FLOW {
                waiting.clear();
                found_more = true;
            }
            let burst = memory.known.as_ref().map_or(1, |known| known.fleet.rules().burst);
            let most = if memory.is_flowing { AT_ONCE.min(burst) } else { 1 };
            while under_way.len() < most
                && let Some(action) = waiting.pop_front()
            {
                if let Some((key, request)) = self.prepare(set, memory, &action) {
                    memory.begin(key.clone(), &action.node);
                    under_way.push(self.sent(set, action, key, request));
                }
            }
            let Some((action, key, sent)) = under_way.next().await else { break };
            is_stopped |= is_in_vain(sent.answered());
            result = result.and(self.record(set, memory, &action, key, sent));
            memory.is_flowing = !is_stopped;
            if is_stopped {
                waiting.clear();
            } else if waiting.is_empty() && !found_more && begun.elapsed() < LONGEST_FLOW {
                (waiting, found_more) = self.next_creations(set, memory);
            }
        }
        result.map(|()| found_more)
    }

    /// The next pods to be made, and whether there is anything else to do, which comes first.
    fn next_creations(&self, set: &Set, memory: &mut Memory) -> (VecDeque<Action>, bool) {
        let changes = self.take_news(set, memory);
        if !memory.is_stale() {
            self.take_in(set, memory, &changes);
        }
        let is_stale = memory.is_stale();
        let Some(known) = memory.known.as_mut().filter(|_| !is_stale) else { return (VecDeque::new(), true) };
        let decision = known.fleet.decide(self.env.now().as_second());
        if decision.actions.iter().all(|action| action.act == Act::Create) {
            (decision.actions.into(), false)
        } else {
            (VecDeque::new(), true)
        }
    }

    async fn sent(&self, set: &Set, action: Action, key: Key, request: Request) -> (Action, Key, Sent) {
        let sent = self.send(set, &key, request).await;
        (action, key, sent)
    }

    /// Notes what has come of a request.
    fn record(&self, set: &Set, memory: &mut Memory, action: &Action, key: Key, sent: Sent) -> Result<(), kube::Error> {
        let (answered, now) = (sent.answered(), self.env.now().as_second());
        let follows = Consequence::of(action.act, answered);
        if matches!(answered, Answered::Written | Answered::Gone) {
            memory.written += 1;
            self.say_done(set, memory, action, &key.name);
            if let (Act::Delete(Why::Ended), Some(known)) = (action.act, memory.known.as_mut()) {
                known.fleet.took_ended(&action.node, now);
            }
        }
        match follows.remedy {
            Remedy::None => {}
            Remedy::Forget => {
                memory.refusals.remove(&action.node);
                let is_news = action.act == Act::Create && answer_by_doing(memory, &action.node);
                memory.make_stale(is_news.then_some(Stale::Taken));
            }
            Remedy::Rename => *memory.collisions.entry(action.node.clone()).or_default() += 1,
            Remedy::Replace => {
                sent.error().into_iter().for_each(|error| self.say_unchangeable(set, &key.name, error));
                memory.unchangeable.extend(self.pods.get(&key).map(|pod| pod.meta.uid.clone()));
            }
            Remedy::SetBack => self.refuse(set, memory, action, sent.error()),
        }
        match follows.open {
            Open::Unconfirmed => {
                sent.version().into_iter().for_each(|version| self.pods.wrote(&key, version));
                memory.wrote(key.clone(), &action.node);
            }
            Open::InDoubt if answered == Answered::Unknown && is_on(Mutant::DoubtDropped) => {}
            Open::InDoubt => memory.doubt(key.clone(), &action.node),
            Open::No => {}
        }
        memory.make_stale(follows.stale);
        memory.abandon(&key);
        sent.into_error().filter(|_| follows.is_error).map_or(Ok(()), Err)
    }

    /// The API server refuses something on one node: it is left alone for a while, the others go on, and it is told.
    fn refuse(&self, set: &Set, memory: &mut Memory, action: &Action, error: Option<&kube::Error>) {
        let error = error.map(|error| in_words(error)).unwrap_or_default();
        let (before, now) = (memory.refusals.get(&action.node), self.env.now().as_second());
        let refusal = Refusal::after(before, (action.act, &action.node), &error, now);
        self.report(set, refusal.reason, refusal.text.clone());
        if action.act == Act::Create {
            self.count_refused_pod(&set.meta.key, memory, &action.node);
        }
        if let Some(known) = memory.known.as_mut() {
            known.fleet.set_back(&action.node, refusal.until);
            if let (Act::Create, Some(node)) = (action.act, known.fleet.node(&action.node)) {
                memory.answers.remove(&node.wanted);
            }
        }
        memory.refusals.insert(action.node.clone(), refusal);
    }

    /// Asks what became of writes whose answer did not come, or was that the pod is another one by now. Until then, and
    /// until our view includes it, nothing is done on their nodes.
    pub(super) async fn resolve_doubts(&self, set: &Key, memory: &mut Memory) -> Result<(), kube::Error> {
        for (key, node) in memory.ledger.to_ask() {
            match self.pods_api(&set.namespace).get_opt(&key.name).await? {
                Some(found) => {
                    self.pods.wrote(&key, version_of(&found.metadata));
                    memory.wrote(key, &node);
                }
                None if self.pods.get(&key).is_none() => memory.settle(&key),
                None => memory.ledger.ask_later(&key),
            }
        }
        Ok(())
    }
}

/// A pod was made of which the API server had not said whether it takes it: now it has. True if that is news.
fn answer_by_doing(memory: &mut Memory, node: &str) -> bool {
    let Some(node) = memory.known.as_ref().and_then(|known| known.fleet.node(node)) else { return false };
    let answer = memory.answers.get_mut(&node.wanted).filter(|answer| matches!(answer, Answer::None { .. }));
    answer.map(|answer| *answer = Answer::Taken).is_some()
}

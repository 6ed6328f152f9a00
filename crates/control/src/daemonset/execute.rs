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
use tracing::info;

use super::Set;
use super::io::Io;
use super::memory::Memory;
use super::send::{Request, Sent, patches_on, prepare, send};
use crate::slim::Key;
use crate::writes::client::in_words;
use crate::writes::outcome::version_of;

/// Requests under way at once for one set.
const AT_ONCE: usize = 16;
/// How long pods are made on end, before the status is told and other sets have their turn.
const LONGEST_FLOW: Duration = Duration::from_secs(3);

/// Does all of it. `decide_again` is what is to be done next, once pods were made, or nothing if everything has to be
/// looked at anew first. Returns when to look again, if there is more to do.
pub(super) async fn execute(
    io: &Io,
    set: &Set,
    memory: &mut Memory,
    decision: Decision,
    decide_again: impl FnMut(&mut Memory) -> Option<Decision>,
) -> Result<Option<Duration>, kube::Error> {
    let (begun, written) = (Instant::now(), memory.pods.written);
    let (creations, mut others): (VecDeque<Action>, VecDeque<Action>) =
        decision.actions.into_iter().partition(|action| action.act == Act::Create);
    // Invariant: what is sent was decided just now. The others would wait for these, and the world does not.
    let is_all = others.len() <= AT_ONCE;
    others.truncate(AT_ONCE);
    let acted = batch(io, set, memory, others).await;
    let made = create_all(io, set, memory, (creations, begun), decide_again).await;
    acted?;
    // After a refusal there is no hurry. What came to nothing would be decided again, and come to nothing again, for
    // as long as our view is behind.
    let has_more = made? || ((decision.has_more || !is_all) && memory.pods.refusals.is_empty());
    Ok(has_more.then_some(if memory.pods.written > written || is_on(Mutant::HurriesInVain) {
        Duration::ZERO
    } else {
        ECHO
    }))
}

/// Makes a request ready and notes that it is under way; nothing if there is nothing to be done any more.
fn begin(io: &Io, set: &Set, memory: &mut Memory, action: &Action) -> Option<(Key, Request)> {
    let (key, request) = prepare(io, set, &mut memory.view, &memory.pods, action)?;
    memory.pods.begin(&mut memory.view, key.clone(), &action.node);
    Some((key, request))
}

async fn sent(io: &Io, set: &Set, action: Action, (key, request): (Key, Request)) -> (Action, Key, Sent) {
    let sent = send(io, set, &key, request).await;
    (action, key, sent)
}

/// Does several things at once; the first error is told.
async fn batch(io: &Io, set: &Set, memory: &mut Memory, actions: VecDeque<Action>) -> Result<(), kube::Error> {
    let mut in_flight = FuturesUnordered::new();
    for action in actions {
        if let Some(request) = begin(io, set, memory, &action) {
            in_flight.push(sent(io, set, action, request));
        }
    }
    let mut result = Ok(());
    while let Some((action, key, sent)) = in_flight.next().await {
        result = result.and(record(io, set, memory, &action, key, sent));
    }
    result
}

/// Makes pods, and goes on to the next ones without a pause for as long as there is nothing else to do and nobody
/// waits to be told: requests that end one by one keep the API server busy, where rounds of them would end in a wait
/// for the last. Should pods be refused, a few are enough to know: the first is made alone unless the last ones were
/// taken, and none is begun after a refusal, or too long after it was decided (`begun`). Returns whether there is
/// something else to do.
async fn create_all(
    io: &Io,
    set: &Set,
    memory: &mut Memory,
    (mut waiting, begun): (VecDeque<Action>, Instant),
    mut decide_again: impl FnMut(&mut Memory) -> Option<Decision>,
) -> Result<bool, kube::Error> {
    let (mut is_stopped, mut found_more, mut result) = (false, false, Ok(()));
    let mut in_flight = FuturesUnordered::new();
    loop {
        if !waiting.is_empty() && begun.elapsed() >= LONGEST_FLOW {
            waiting.clear();
            found_more = true;
        }
        let burst = memory.view.known.as_ref().map_or(1, |known| known.fleet.rules().burst);
        let most = if memory.pods.is_flowing { AT_ONCE.min(burst) } else { 1 };
        while in_flight.len() < most
            && let Some(action) = waiting.pop_front()
        {
            if let Some(request) = begin(io, set, memory, &action) {
                in_flight.push(sent(io, set, action, request));
            }
        }
        let Some((action, key, sent)) = in_flight.next().await else { break };
        is_stopped |= is_in_vain(sent.answered());
        result = result.and(record(io, set, memory, &action, key, sent));
        memory.pods.is_flowing = !is_stopped;
        if is_stopped {
            waiting.clear();
        } else if waiting.is_empty() && !found_more && begun.elapsed() < LONGEST_FLOW {
            // Whatever else there is to do comes first.
            let is_creation = |action: &Action| action.act == Act::Create;
            match decide_again(memory).filter(|next| next.actions.iter().all(is_creation)) {
                Some(next) => waiting = next.actions.into(),
                None => found_more = true,
            }
        }
    }
    result.map(|()| found_more)
}

/// Notes what has come of a request.
fn record(io: &Io, set: &Set, memory: &mut Memory, action: &Action, key: Key, sent: Sent) -> Result<(), kube::Error> {
    let answered = sent.answered();
    let follows = Consequence::of(action.act, answered);
    if matches!(answered, Answered::Written | Answered::Gone) {
        memory.pods.written += 1;
        io.reporter.say_done(set, action.act, &key.name, patches_on(&memory.view, &action.node).unwrap_or(0));
        if let (Act::Delete(Why::Ended), Some(known)) = (action.act, memory.view.known.as_mut()) {
            known.fleet.took_ended(&action.node, io.now());
        }
    }
    match follows.remedy {
        Remedy::None => {}
        Remedy::Forget => {
            memory.pods.refusals.remove(&action.node);
            let is_news = action.act == Act::Create && answer_by_doing(memory, &action.node);
            memory.view.make_stale(is_news.then_some(Stale::Taken));
        }
        Remedy::Rename => *memory.pods.collisions.entry(action.node.clone()).or_default() += 1,
        Remedy::Replace => {
            let pod = &key.name;
            match sent.error() {
                Some(error) => {
                    info!(set = %set.meta.key, %pod, error = in_words(error), "cannot be changed where it runs");
                    io.reporter.say_unchangeable(set, pod, error);
                }
                None => info!(set = %set.meta.key, %pod, "somebody keeps it from being resized"),
            }
            memory.pods.unchangeable.extend(io.pods.get(&key).map(|pod| pod.meta.uid.clone()));
        }
        Remedy::SetBack => refuse(io, set, memory, action, sent.error()),
    }
    match follows.open {
        Open::Unconfirmed => {
            sent.version().into_iter().for_each(|version| io.pods.wrote(&key, version));
            memory.pods.wrote(&mut memory.view, key.clone(), &action.node);
        }
        Open::InDoubt if answered == Answered::Unknown && is_on(Mutant::DoubtDropped) => {}
        Open::InDoubt => memory.pods.doubt(&mut memory.view, key.clone(), &action.node),
        Open::No => {}
    }
    memory.view.make_stale(follows.stale);
    memory.pods.abandon(&mut memory.view, &key);
    sent.into_error().filter(|_| follows.is_error).map_or(Ok(()), Err)
}

/// The API server refuses something on one node: it is left alone for a while, the others go on, and it is told.
fn refuse(io: &Io, set: &Set, memory: &mut Memory, action: &Action, error: Option<&kube::Error>) {
    let error = error.map(|error| in_words(error)).unwrap_or_default();
    let before = memory.pods.refusals.get(&action.node);
    let refusal = Refusal::after(before, (action.act, &action.node), &error, io.now());
    io.reporter.report(set, refusal.reason, refusal.text.clone());
    if action.act == Act::Create {
        io.reporter.count_refused_pod(&set.meta.key, patches_on(&memory.view, &action.node).unwrap_or(0));
    }
    if let Some(known) = memory.view.known.as_mut() {
        known.fleet.set_back(&action.node, refusal.until);
        if let (Act::Create, Some(node)) = (action.act, known.fleet.node(&action.node)) {
            memory.answers.remove(&node.wanted);
        }
    }
    memory.pods.refusals.insert(action.node.clone(), refusal);
}

/// A pod was made of which the API server had not said whether it takes it: now it has. True if that is news.
fn answer_by_doing(memory: &mut Memory, node: &str) -> bool {
    let Some(node) = memory.view.known.as_ref().and_then(|known| known.fleet.node(node)) else { return false };
    let answer = memory.answers.get_mut(&node.wanted).filter(|answer| matches!(answer, Answer::None { .. }));
    answer.map(|answer| *answer = Answer::Taken).is_some()
}

/// Asks what became of writes whose answer did not come, or was that the pod is another one by now. Until then, and
/// until our view includes it, nothing is done on their nodes.
pub(super) async fn resolve_doubts(io: &Io, set: &Key, memory: &mut Memory) -> Result<(), kube::Error> {
    for (key, node) in memory.pods.to_ask() {
        match io.pods_api(&set.namespace).get_opt(&key.name).await? {
            Some(found) => {
                io.pods.wrote(&key, version_of(&found.metadata));
                memory.pods.wrote(&mut memory.view, key, &node);
            }
            None if io.pods.get(&key).is_none() => memory.pods.settle(&mut memory.view, &key),
            None => memory.pods.ask_later(&key),
        }
    }
    Ok(())
}

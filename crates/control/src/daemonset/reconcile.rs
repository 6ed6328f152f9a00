//! One look at a DaemonSet: take in what changed, decide, write, tell.

use std::sync::Arc;
use std::time::Duration;

use dapple_plan::daemonset::failure::Step;
use dapple_plan::daemonset::fleet::{Decision, Fleet};
use dapple_plan::daemonset::stale::Stale;
use dapple_plan::daemonset::status::{Problem, failed, stalls_at};
use dapple_plan::daemonset::wake::{ECHO, Wakes};
use dapple_plan::proof::ask_again_at;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tracing::debug;

use super::claim::{claim, own_revisions};
use super::execute::execute;
use super::history::{note_driven_off, prune, settle_newest};
use super::io::Io;
use super::known::current;
use super::memory::Memory;
use super::mend::{NEWEST, mend};
use super::observe::{know, render, take_in, take_news, take_policy};
use super::pull::pull;
use super::status::{next_status, tell};
use super::steps::note;
use super::subscribe::News;
use super::{Set, SetRevision};
use crate::queue::Ended;
use crate::slim::{Key, Pod};

/// After so many seconds it is looked again whether the kinds are served that a set asks for.
const SERVED_AGAIN: i64 = 10;

/// What looking at everything anew has come to.
enum Renewed {
    /// It is known what follows.
    Done,
    /// Something was written that must be seen first.
    Waits,
    /// A step failed that everything else needs.
    Impossible,
}

/// Looks at a set.
pub(super) async fn reconcile(io: &Io, news: &News, set: &Arc<Set>, memory: &mut Memory) -> Result<Ended, kube::Error> {
    if memory.said.is_behind(set.meta.version) {
        return Ok(Ended::Again(ECHO));
    }
    // First of all, since they may be about the set: it was read just before.
    let changes = take_news(io, news, set, memory);
    // The set is read from the store, which may be ahead of the news.
    let is_asked_for = memory.view.set.as_ref().is_some_and(|known| set.asks_as(known));
    memory.view.make_stale((!is_asked_for).then_some(Stale::Changed));
    let due = ask_again_at(&memory.answers).into_iter().chain(memory.failures.retry_at());
    let due = due.chain(memory.view.served_at).min();
    let is_due = due.is_some_and(|at| at <= io.now());
    memory.view.make_stale(is_due.then_some(Stale::Due));
    if !memory.view.is_stale() {
        take_in(io, set, memory, &changes);
    }
    if memory.view.is_stale() || memory.view.known.is_none() {
        match renew(io, news, set, memory).await? {
            Renewed::Done => {}
            Renewed::Waits => return Ok(Ended::Again(ECHO)),
            Renewed::Impossible => return tell_failures(io, set, memory).await,
        }
        // While answers were waited for, the world went on. Invariant: what is decided is decided on what is known now.
        let changes = take_news(io, news, set, memory);
        if changes.is_stale {
            return Ok(Ended::Again(Duration::ZERO));
        }
        let was_stale = memory.view.is_stale();
        take_in(io, set, memory, &changes);
        // Once, not for ever: on a large fleet some node changes during every look, and nothing would be done or told.
        memory.view.is_put_off = memory.view.is_stale() && !was_stale && !memory.view.is_put_off;
        if memory.view.is_put_off {
            return Ok(Ended::Again(Duration::ZERO));
        }
    }
    let now = io.now();
    let Some(known) = memory.view.known.as_mut() else { return Ok(Ended::Again(ECHO)) };
    let decision = known.fleet.decide(now);
    let is_tried = |node: &Arc<str>| decision.actions.iter().any(|action| action.node == *node);
    memory.pods.refusals.retain(|node, refusal| refusal.until > now || is_tried(node));
    // Before anything else is begun.
    let noted = note_driven_off(io, set, memory).await;
    // Whatever becomes of a step, the others are done, and the status is told: errors wait until the end.
    let acted = execute(io, set, memory, decision, |memory| decide_again(io, news, set, memory)).await;
    let known = memory.view.known.as_ref();
    let pulled = pull(io, set, known, &mut memory.said).await;
    let pulled = note(&mut memory.failures, (io, set), (Step::Images, "ImagePullJob"), pulled);
    let pruned = prune(io, set, known, &mut memory.revisions, &mut memory.failures).await;
    if acted.is_ok() && pulled.is_ok() && pruned.is_ok() {
        memory.failures.whole = None;
    }
    let Some(next_status) = next_status(io, set, memory) else { return Ok(Ended::Again(ECHO)) };
    let told = tell(io, set, &mut memory.said, &next_status).await?;
    let (acted, pruned, _, ()) = (acted?, pruned?, pulled?, noted?);
    if let Some(soon) = acted {
        return Ok(Ended::Again(soon));
    }
    let stalls = memory.view.known.as_ref().and_then(|known| stalls_at(&next_status, &known.fleet));
    Ok(next(memory, told.into_iter().chain(pruned).min(), stalls, now))
}

/// Says what fails where nothing can be decided. Looks again when it is to be tried again.
pub(super) async fn tell_failures(io: &Io, set: &Set, memory: &mut Memory) -> Result<Ended, kube::Error> {
    let problems: Vec<Problem> = memory.failures.problems().collect();
    let status = failed(&set.status, set.generation, &problems, &Time(io.env.now()));
    let told = tell(io, set, &mut memory.said, &status).await?;
    Ok(next(memory, told, None, io.now()))
}

/// When to look again, unless something happens before.
fn next(memory: &Memory, told: Option<Duration>, stalls: Option<i64>, now: i64) -> Ended {
    let fleet = memory.view.known.as_ref().map(|known| &known.fleet);
    let wakes = Wakes {
        fleet: fleet.and_then(Fleet::next_wake),
        asked: ask_again_at(&memory.answers).into_iter().chain(memory.view.served_at).min(),
        retried: memory.failures.retry_at(),
        stalls,
        told,
        has_strays: fleet.is_some_and(Fleet::has_strays),
        has_open_writes: memory.pods.has_open(),
        is_stale: memory.view.is_stale(),
    };
    let again = wakes.next(now);
    match memory.failures.reason() {
        Some(reason) => Ended::Failing { reason, again: again.unwrap_or(ECHO) },
        None => again.map_or(Ended::Done, Ended::Again),
    }
}

/// Looks at everything anew.
async fn renew(io: &Io, news: &News, set: &Arc<Set>, memory: &mut Memory) -> Result<Renewed, kube::Error> {
    memory.view.make_stale(Some(Stale::Unseen));
    debug!(set = %set.meta.key, why = ?memory.view.stale(), "looking at everything anew");
    // Before nodes are read. Invariant: no change of a node that comes while answers are waited for is passed over
    // because the revision before did not read it.
    news.forget_reads(&set.meta.key);
    if !memory.revisions.take_seen(|revision| io.revisions.caught_up(revision)) || !io.sets.caught_up(&set.meta.key) {
        return Ok(Renewed::Waits);
    }
    // Before anything is done for a set that asks for a policy.
    let Some(asked) = io.policies.of(set) else { return Ok(Renewed::Waits) };
    memory.view.served_at = asked.is_unserved.then(|| io.now() + SERVED_AGAIN);
    take_policy(&mut memory.view, asked);
    let is_all_owned = claim(io, set, memory).await?;
    if !memory.revisions.take_seen(|revision| io.revisions.caught_up(revision)) {
        // One that was just taken in may say what the set says: none is made before it is seen.
        return Ok(Renewed::Waits);
    }
    let mut revisions = own_revisions(io, set);
    if mend(io, set, &mut memory.revisions, &mut memory.failures, &revisions).await? {
        return Ok(Renewed::Waits);
    }
    let all = revisions.clone();
    revisions.retain(|old| !all.iter().any(|known| known.stands_in_for(old)));
    let settled = settle_newest(io, set, (&mut memory.revisions, &mut memory.said), &revisions).await;
    let settled = note(&mut memory.failures, (io, set), (Step::Newest, NEWEST), settled)?;
    let Some(update) = settled.unwrap_or_else(|| newest(&revisions)) else {
        // Nothing is known that a pod could be made of, or what was written is still to be seen.
        return Ok(if memory.failures.reason().is_some() { Renewed::Impossible } else { Renewed::Waits });
    };
    memory.view.is_blocked = memory.failures.has(Step::Newest, NEWEST);
    let pods = io.pods.find(Pod::BY_OWNER, &set.meta.uid);
    let (current, is_gone) = current(set, &revisions, &update, &pods, io.env.now());
    memory.view.is_gone = is_gone;
    render(io, set, &mut memory.view, [&update, &current]);
    let nodes = io.nodes.all();
    let is_there = |name: &Arc<str>| io.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() }).is_some();
    memory.pods.refusals.retain(|name, _| is_there(name));
    memory.pods.collisions.retain(|name, _| is_there(name));
    memory.pods.unchangeable.retain(|uid| pods.iter().any(|pod| pod.meta.uid == *uid));
    know(io, news, set, memory, (&revisions, &update, &current), (&pods, &nodes)).await?;
    memory.view.set = Some(set.clone());
    memory.view.set_stale((!is_all_owned).then_some(Stale::NotOwned));
    memory.revisions.may_prune = true;
    Ok(Renewed::Done)
}

/// What is to be done next, after pods were made; nothing if everything has to be looked at anew first.
fn decide_again(io: &Io, news: &News, set: &Set, memory: &mut Memory) -> Option<Decision> {
    let changes = take_news(io, news, set, memory);
    if !memory.view.is_stale() {
        take_in(io, set, memory, &changes);
    }
    let is_stale = memory.view.is_stale();
    memory.view.known.as_mut().filter(|_| !is_stale).map(|known| known.fleet.decide(io.now()))
}

/// The newest of the revisions that are there.
fn newest(revisions: &[Arc<SetRevision>]) -> Option<Arc<SetRevision>> {
    revisions.iter().max_by_key(|known| (known.number, &known.meta.key.name)).cloned()
}

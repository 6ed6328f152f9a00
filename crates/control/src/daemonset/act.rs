//! Writing what was decided.
//!
//! Every write is harmless if it is repeated, late, or meant for a pod that is another one by now: pods are made under a
//! name that follows from what they are, and changed or deleted at the version that was decided on. A write whose answer
//! did not come is a doubt: nothing is decided about its node before the API server was asked what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dapple_plan::daemonset::cell::{Act, Why};
use dapple_plan::daemonset::fleet::Action;
use futures::{StreamExt, stream};
use tracing::info;

use super::memory::{Memory, NodeRefusal};
use super::news::Changes;
use super::send::{Outcome, patches_on};
use super::{DaemonSets, Set, version_of};
use crate::client::is_not_leading;
use crate::store::Key;

/// Requests under way at once for one set.
const AT_ONCE: usize = 16;
/// How long a node is left alone after a refusal, at first and at most, in seconds.
const SET_BACK: (i64, i64) = (10, 300);

impl DaemonSets {
    /// Does all of it. Should pods be refused, a few are enough to know: the first is made alone unless the last ones were
    /// taken, and none is begun after a refusal.
    pub(super) async fn act(&self, set: &Set, memory: &mut Memory, actions: Vec<Action>) -> Result<(), kube::Error> {
        let (creations, others): (Vec<Action>, Vec<Action>) =
            actions.into_iter().partition(|action| action.act == Act::Create);
        let acted = self.batch(set, memory, others, false).await;
        if creations.is_empty() {
            return acted;
        }
        let alone = if memory.is_flowing { 0 } else { 1 };
        memory.is_flowing = true;
        let (first, rest) = creations.split_at(alone);
        let mut made = self.batch(set, memory, first.to_vec(), true).await;
        if made.is_ok() && memory.is_flowing {
            made = self.batch(set, memory, rest.to_vec(), true).await;
        }
        memory.is_flowing &= made.is_ok();
        acted.and(made)
    }

    /// Does several things at once; the first error is told. If it `stops`, nothing is begun after something was refused.
    async fn batch(
        &self,
        set: &Set,
        memory: &mut Memory,
        actions: Vec<Action>,
        stops: bool,
    ) -> Result<(), kube::Error> {
        let mut requests = Vec::new();
        for action in actions {
            if let Some((key, request)) = self.prepare(set, memory, &action) {
                requests.push((action, key, request));
            }
        }
        let is_stopped = &AtomicBool::new(false);
        let sent = requests.into_iter().map(|(action, key, request)| async move {
            if is_stopped.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = self.send(set, &key, request).await;
            Some((action, key, outcome))
        });
        let mut outcomes = stream::iter(sent).buffer_unordered(AT_ONCE);
        let mut result = Ok(());
        while let Some(done) = outcomes.next().await {
            let Some((action, key, outcome)) = done else { continue };
            if stops && matches!(outcome, Outcome::Refused(_) | Outcome::Doubt(_)) {
                is_stopped.store(true, Ordering::Relaxed);
                memory.is_flowing = false;
            }
            result = result.and(self.record(set, memory, &action, key, outcome));
        }
        result
    }

    fn record(
        &self,
        set: &Set,
        memory: &mut Memory,
        action: &Action,
        key: Key,
        outcome: Outcome,
    ) -> Result<(), kube::Error> {
        let is_done = matches!(outcome, Outcome::Wrote(_) | Outcome::Gone);
        if let (true, Act::Delete(Why::Ended), Some(known)) = (is_done, action.act, memory.known.as_mut()) {
            known.fleet.took_ended(&action.node, self.env.now().as_second());
        }
        match outcome {
            Outcome::Wrote(version) => {
                self.pods.wrote(&key, version);
                memory.wrote(key, &action.node);
                memory.refusals.remove(&action.node);
                if matches!(action.act, Act::Create | Act::Edit) {
                    self.metrics.patches_applied(patches_on(memory, &action.node).unwrap_or(0));
                }
                Ok(())
            }
            Outcome::Gone => {
                // At no version that a watch could be held against: until it is out of our view, it is asked for.
                memory.doubt(key, &action.node);
                Ok(())
            }
            Outcome::Moved => {
                // Of a pod the watch will tell. That one was not made, or a node not found, nobody tells.
                memory.is_stale |= matches!(action.act, Act::Create | Act::Delete(Why::NodeGone));
                Ok(())
            }
            Outcome::Taken => {
                *memory.collisions.entry(action.node.clone()).or_default() += 1;
                memory.is_stale = true;
                Ok(())
            }
            Outcome::Doubt(error) => {
                memory.doubt(key, &action.node);
                Err(error)
            }
            Outcome::Refused(error) => {
                if is_not_leading(&error) || matches!(&error, kube::Error::Api(error) if error.code == 429) {
                    return Err(error);
                }
                if action.act == Act::Edit {
                    // It looked as if it could be changed where it runs. The API server knows better: it is replaced.
                    info!(set = %set.meta.key, pod = %key.name, %error, "cannot be changed where it runs");
                    memory.unchangeable.extend(self.pods.get(&key).map(|pod| pod.meta.uid.clone()));
                    memory.is_stale = true;
                    return Ok(());
                }
                self.refuse(set, memory, action, &error);
                Ok(())
            }
        }
    }

    /// The API server refuses something on one node: it is left alone for a while, the others go on, and it is told.
    fn refuse(&self, set: &Set, memory: &mut Memory, action: &Action, error: &kube::Error) {
        let (reason, what) = match action.act {
            Act::Create => ("FailedCreate", "made"),
            Act::Delete(_) => ("FailedDelete", "deleted"),
            Act::Mark(_) | Act::Gate { .. } | Act::Edit => ("FailedUpdate", "changed"),
        };
        let times = memory.refusals.get(&action.node).map_or(0, |known| known.times) + 1;
        let wait = SET_BACK.0.checked_shl(times - 1).unwrap_or(SET_BACK.1).clamp(SET_BACK.0, SET_BACK.1);
        let until = self.env.now().as_second() + wait;
        let text = format!("the pod on {} cannot be {what}: {error}", action.node);
        self.report(set, reason, text.clone());
        if let Some(known) = memory.known.as_mut() {
            known.fleet.set_back(&action.node, until);
            // Perhaps it is not the node: what is refused there may be refused everywhere by now.
            if let (Act::Create, Some(node)) = (action.act, known.fleet.node(&action.node)) {
                memory.proven.remove(&node.wanted);
                memory.is_stale = true;
            }
        }
        memory.refusals.insert(action.node.clone(), NodeRefusal { reason, text, times, until });
    }

    /// Asks what became of writes whose answer did not come. False while somebody still has to be asked.
    pub(super) async fn resolve_doubts(
        &self,
        set: &Set,
        memory: &mut Memory,
        changes: &mut Changes,
    ) -> Result<bool, kube::Error> {
        let doubts: Vec<(Key, Arc<str>)> =
            memory.doubts.iter().map(|(key, node)| (key.clone(), node.clone())).collect();
        for (key, node) in doubts {
            match self.pods_api(set).get_opt(&key.name).await? {
                Some(found) => {
                    self.pods.wrote(&key, version_of(&found.metadata.resource_version));
                    memory.wrote(key.clone(), &node);
                    memory.settle(&key);
                }
                None if self.pods.get(&key).is_none() => {
                    // It may be out of our view, and not among the news yet.
                    changes.pods.insert(key.name.clone());
                    memory.settle(&key);
                }
                None => {}
            }
        }
        Ok(memory.doubts.is_empty())
    }
}

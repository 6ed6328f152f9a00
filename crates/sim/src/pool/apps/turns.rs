//! Whose turn it is in a rollout: as many pools as the budget says are in change, or were changed by it and are not available,
//! whatever has made them so; and none is changed once one that was well was not done in time. A pool that was well takes from the
//! budget until it is done, however many changes have reached it since.
//!
//! A pool counts here only where it is certain that whoever writes knew of it.

use std::time::Duration;

use dapple_api::pool::{Max, POOL_REVISION_LABEL, Rules};
use serde_json::Value;

use super::known::{App, Known, Said};
use super::named;
use super::rendering::{rendered, stored};
use super::workloads::{
    Seen, Turn, Workloads, is_available, is_complete, is_held, newest, restarts, shrinks, template,
};
use crate::object::text;
use crate::server::Server;
use crate::sim::{Actor, Write};

/// A pool is not done sooner than this after its pods are. It is less than what is promised: times are whole seconds, and who looks may
/// have begun to count a little before.
const NOT_SOONER: Duration = Duration::from_secs(5);
/// By then whoever looks has counted a pool as done.
const SURELY_DONE: Duration = Duration::from_secs(15);
/// Without progress for so long a StatefulSet is late. It is more than what is promised.
const STATEFUL_LATE: Duration = Duration::from_secs(630);

/// A rollout, as whoever changes a pool may see it.
pub(super) struct Round<'a> {
    pub(super) uid: &'a str,
    pub(super) app: &'a App,
    pub(super) said: Vec<Said>,
    /// What may be said of rollouts.
    pub(super) rules: Vec<Rules>,
    pub(super) number: i64,
    pub(super) known: &'a Known,
}

impl<'a> Round<'a> {
    /// The rollout of this application's newest revision.
    pub(super) fn of((uid, app): (&'a str, &'a App), number: i64, known: &'a Known, write: &Write<'_>) -> Self {
        let said = known.said(app, write);
        let rules = said.iter().map(Said::rules).collect();
        Self { uid, app, said, rules, number, known }
    }

    fn is_skipped(&self, pool: &str) -> bool {
        self.rules.iter().any(|rules| rules.skip.contains(pool))
    }

    /// Whether a workload takes from the budget for certain, and whoever writes knows that.
    pub(super) fn counts(&self, seen: &Seen, write: &Write<'_>) -> bool {
        let is_of_it = |turn: &&Turn| turn.rollout == self.number || turn.was_available && turn.complete.is_none();
        let Some(turn) = seen.turn.as_ref().filter(|turn| turn.is_start).filter(is_of_it) else { return false };
        let is_its_own = turn.by == write.actor && write.is_calm();
        // What is left alone while its NodePool is gone is no part of the rollout.
        let is_part = !self.app.is_daemon || self.known.has_pool(&seen.pool, write);
        if !(is_its_own || write.knows(turn.at)) || !is_part || self.is_skipped(&seen.pool) {
            return false;
        }
        let is_down = seen.unavailable.is_some_and(|since| write.knows(since));
        let is_new = match turn.complete {
            None => true,
            Some(at) => !is_held(&seen.object) && write.at < at + NOT_SOONER,
        };
        is_down || is_new
    }

    /// Whether a workload may be believed to take from the budget already: then it takes no more of it.
    pub(super) fn may_count(&self, seen: &Seen, write: &Write<'_>) -> bool {
        let Some(turn) = &seen.turn else { return false };
        let is_done = |at: Duration| write.knows(at + SURELY_DONE) && seen.unavailable.is_none();
        let is_of_it = turn.rollout == self.number || turn.was_available;
        is_of_it && !turn.complete.is_some_and(is_done)
    }

    /// Whether a workload is being deleted by a manager for certain, since its pool has left.
    pub(super) fn is_leaving(&self, seen: &Seen, write: &Write<'_>) -> bool {
        let is_known = |(by, since): (Actor, Duration)| by == write.actor && write.is_calm() || write.knows(since);
        seen.going.is_some_and(is_known) && !self.app.may_be_in(&seen.pool, write)
    }

    /// How many pools may be in change at most.
    pub(super) fn budget(&self, workloads: &Workloads, write: &Write<'_>) -> usize {
        let pools = workloads.pools((self.uid, self.app), write);
        let is_done =
            |seen: &Seen| seen.turn.as_ref().is_some_and(|turn| turn.rollout == self.number && turn.complete.is_some());
        let is_first_done = workloads.of_app(self.uid).any(is_done);
        let budget = |rules: &Rules| match rules.max {
            Some(Max::Pools(number)) => number,
            Some(Max::Percent(percent)) => (pools * percent).div_ceil(100),
            None if is_first_done => pools.div_ceil(10),
            None => 1,
        };
        self.rules.iter().map(budget).max().unwrap_or(1).max(1)
    }

    /// How many others use the budget up for certain.
    pub(super) fn used(&self, own: &Seen, workloads: &Workloads, write: &Write<'_>) -> usize {
        let others = workloads.of_app(self.uid).filter(|other| !std::ptr::eq(*other, own));
        let there = others.filter(|other| self.counts(other, write) || self.is_leaving(other, write)).count();
        let is_part = |pool: &str| !self.app.is_daemon || self.known.has_pool(pool, write);
        let lost = workloads.lost((self.uid, self.app), self.known, write);
        let lost = lost.filter(|(pool, turn)| turn.rollout == self.number && is_part(pool) && !self.is_skipped(pool));
        there + lost.count()
    }
}

impl Workloads {
    /// A manager changes a workload that is an application's.
    pub(super) fn may_be_changed(
        &self,
        before: &Value,
        write: &Write<'_>,
        known: &Known,
        server: &Server,
    ) -> Result<(), String> {
        let after = &write.change.object;
        let (is_restarted, is_shrunk) = (restarts(before, after), shrinks(before, after));
        let Some(own) = self.of(write).filter(|_| is_restarted || is_shrunk) else { return Ok(()) };
        let (Some(app), Some((number, newest))) = (known.app(&own.app), newest(server, &own.app)) else {
            return Ok(());
        };
        let round = Round::of((own.app.as_str(), app), number, known, write);
        if is_restarted && !is_shrunk {
            is_needed(before, own, &round)?;
        }
        // Whoever does not know of the newest revision yet decides by another rollout.
        if after["metadata"]["labels"][POOL_REVISION_LABEL] != newest || !write.knows(app.revised) && !write.is_calm() {
            return Ok(());
        }
        self.keeps_still(own, &round, write)?;
        if round.may_count(own, write) {
            return Ok(());
        }
        let (used, budget) = (round.used(own, self, write), round.budget(self, write));
        if used >= budget {
            let own = named(after);
            return Err(format!("a pool is changed while the budget is used up: {own}, beside {used} of {budget}"));
        }
        if write.is_calm() && budget == 1 && is_available(before) && !known.was_forbidden {
            self.is_in_order(own, &round, write)?;
        }
        Ok(())
    }

    /// Nothing is changed once the rollout is stopped, or one that was well is not done in time.
    fn keeps_still(&self, own: &Seen, round: &Round<'_>, write: &Write<'_>) -> Result<(), String> {
        if round.known.is_resumed(round.app, write) {
            return Ok(());
        }
        if round.app.stopped.is_some_and(|(of, since)| of == round.number && write.knows(since)) {
            return Err(format!("a pool is changed after its rollout was stopped: {}", named(&own.object)));
        }
        let is_stuck = |seen: &&Seen| {
            let Some(turn) = seen.turn.as_ref().filter(|turn| turn.is_start && turn.rollout == round.number) else {
                return false;
            };
            let is_idle = seen.object["kind"] == "StatefulSet"
                && !is_complete(&seen.object)
                && write.knows(seen.moved.max(turn.at) + STATEFUL_LATE);
            let is_late = seen.late.is_some_and(|since| write.knows(since)) || is_idle;
            let is_part = !round.app.is_daemon || round.known.has_pool(&seen.pool, write);
            is_late && turn.was_available && is_part && !round.is_skipped(&seen.pool)
        };
        match self.of_app(round.uid).find(is_stuck) {
            Some(stuck) => {
                let (own, stuck) = (named(&own.object), named(&stuck.object));
                Err(format!("a pool is changed though another was not done in time: {own}, beside {stuck}"))
            }
            None => Ok(()),
        }
    }

    /// A newer change goes first to pools that one broke which never came to all.
    fn is_in_order(&self, own: &Seen, round: &Round<'_>, write: &Write<'_>) -> Result<(), String> {
        let is_due = |seen: &Seen| {
            let has = stored(&seen.object);
            round.said.iter().all(|said| rendered(&said.app, said.replacement.as_deref(), &seen.pool) != has)
        };
        let is_broken = |seen: &&Seen| {
            let is_older = |turn: &Turn| {
                let is_unfinished = round.app.whole.is_none_or(|whole| turn.rollout > whole);
                let is_known = write.knows(turn.at);
                turn.is_start && turn.was_available && turn.rollout < round.number && is_unfinished && is_known
            };
            let is_there = !round.app.is_daemon || round.known.has_pool(&seen.pool, write);
            seen.turn.as_ref().is_some_and(is_older)
                && seen.unavailable.is_some_and(|since| write.knows(since))
                && round.app.is_in(&seen.pool, write)
                && is_there
                && !seen.is_touched
                && seen.going.is_none()
                && !round.is_skipped(&seen.pool)
                && is_due(seen)
        };
        match self.of_app(round.uid).filter(|other| !std::ptr::eq(*other, own)).find(is_broken) {
            Some(broken) => {
                let (own, broken) = (named(&own.object), named(&broken.object));
                Err(format!("a fix goes elsewhere before it goes where it is needed: {own}, before {broken}"))
            }
            None => Ok(()),
        }
    }
}

/// No pods are made anew for nothing: what a pool is to get differs from what it has. Of daemons it may be the taints of their pools that
/// differ.
fn is_needed(before: &Value, own: &Seen, round: &Round<'_>) -> Result<(), String> {
    let has = stored(before);
    let is_the_same = |said: &Said| rendered(&said.app, said.replacement.as_deref(), &own.pool) == has;
    let is_own = own.turn.is_some() && !own.is_touched;
    if is_own && !round.app.is_daemon && round.said.iter().all(is_the_same) {
        let image = text(&before["spec"]["template"]["spec"]["containers"][0]["image"]);
        let what = named(before);
        return Err(format!(
            "pods are made anew though nothing of them has changed: {what}, {image}, {}",
            template(before)
        ));
    }
    Ok(())
}

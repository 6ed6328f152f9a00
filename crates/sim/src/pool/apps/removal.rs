//! Pools that leave an application: their workloads stay for the time of grace, on a view that may be partial, and where many leave at
//! once, also when some of these are gone; and no more go at a time than the budget of rollouts leaves room for.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_api::pool::CONFIRM_REMOVAL;

use super::super::POOLS;
use super::known::{App, Asked, Known, Said, annotation};
use super::named;
use super::turns::Round;
use super::workloads::{Seen, Workloads, newest};
use crate::object::text;
use crate::server::Server;
use crate::sim::Write;

/// Times that are noted are whole seconds.
const ROUNDED: Duration = Duration::from_secs(2);

impl Workloads {
    /// A manager deletes a workload that is an application's.
    pub(super) fn is_removed(&mut self, write: &Write<'_>, known: &Known, server: &Server) -> Result<(), String> {
        self.may_be_removed(write, known, server)?;
        let held = self.held_beside(write, known);
        held.into_iter().for_each(|uid| _ = self.held.entry(uid).or_insert(write.at));
        Ok(())
    }

    fn may_be_removed(&self, write: &Write<'_>, known: &Known, server: &Server) -> Result<(), String> {
        let Some(own) = self.of(write) else { return Ok(()) };
        let Some(app) = known.app(&own.app) else { return Ok(()) };
        let what = named(&own.object);
        let asked = app.asked.get(&own.pool);
        if app.is_in(&own.pool, write) || asked.is_none_or(|asked| asked.left.is_none()) {
            return Err(format!("a workload is deleted though its pool has not left: {what}"));
        }
        let said = known.said(app, write);
        if app.is_daemon {
            has_left_for_long(own, asked, (known, said.as_slice()), write)?;
        }
        if !is_confirmed(&said, &own.pool) {
            self.is_one_of_few(own, app, known, write)?;
            let held = self.held.get(text(&own.object["metadata"]["uid"]));
            if held.is_some_and(|held| asked.is_some_and(|asked| asked.since <= *held)) {
                return Err(format!("a workload is deleted since those are gone that left with it: {what}"));
            }
        }
        let Some((number, _)) = newest(server, &own.app) else { return Ok(()) };
        // Whoever does not know of the newest revision yet decides by another rollout.
        if !write.knows(app.revised) && !write.is_calm() {
            return Ok(());
        }
        let round = Round::of((own.app.as_str(), app), number, known, write);
        let (used, budget) = (round.used(own, self, write), round.budget(self, write));
        if !round.may_count(own, write) && used >= budget {
            return Err(format!(
                "a workload is deleted while the budget is used up: {what}, beside {used} of {budget}"
            ));
        }
        Ok(())
    }

    /// No more than a third of an application's pools leave with this one, or it is the only one.
    fn is_one_of_few(&self, own: &Seen, app: &App, known: &Known, write: &Write<'_>) -> Result<(), String> {
        let (count, all) = (self.leaving(own, app, known, write).len(), self.pools((own.app.as_str(), app), write));
        if are_many(count, all) {
            let what = named(&own.object);
            return Err(format!("a workload is deleted though many pools leave at once: {what}, {count} of {all}"));
        }
        Ok(())
    }

    /// The workloads of pools that leave with this one, if these are many: nobody has confirmed that they may go.
    fn held_beside(&self, write: &Write<'_>, known: &Known) -> Vec<String> {
        let Some(own) = self.of(write) else { return Vec::new() };
        let Some(app) = known.app(&own.app) else { return Vec::new() };
        let (leaving, said) = (self.leaving(own, app, known, write), known.said(app, write));
        if !are_many(leaving.len(), self.pools((own.app.as_str(), app), write)) {
            return Vec::new();
        }
        let is_held = |seen: &&Seen| {
            let is_other = seen.pool != own.pool && leaving.contains(seen.pool.as_str());
            // Of two for a pool one is left alone, and says nothing of the pool.
            let is_only = self.of_app(&own.app).filter(|other| other.pool == seen.pool).count() == 1;
            is_other && is_only && seen.going.is_none() && !is_confirmed(&said, &seen.pool)
        };
        let held = self.of_app(&own.app).filter(is_held);
        held.map(|seen| text(&seen.object["metadata"]["uid"]).to_owned()).collect()
    }

    /// The pools that leave an application with this one, as whoever wrote this knew for certain.
    fn leaving<'w>(&'w self, own: &'w Seen, app: &App, known: &Known, write: &Write<'_>) -> BTreeSet<&'w str> {
        let left = app.asked.get(&own.pool).and_then(|asked| asked.left);
        let has_left = |seen: &&Seen| {
            // Whoever knows that this one has left knows of those that left before it.
            let is_known = |since: Duration| write.knows(since) || left.is_some_and(|left| since <= left);
            let asked = app.asked.get(&seen.pool);
            let is_out = asked.is_none_or(|asked| !asked.is_so && is_known(asked.since));
            // Those of a NodePool that is gone may be left alone since nodes have its label: they do not leave then.
            is_out && (!app.is_daemon || known.has_pool(&seen.pool, write)) && write.knows(seen.owned)
        };
        let mut leaving: BTreeSet<&str> =
            self.of_app(&own.app).filter(has_left).map(|seen| seen.pool.as_str()).collect();
        leaving.insert(own.pool.as_str());
        leaving
    }
}

/// Whether more than one leave, and more than a third of all.
fn are_many(leaving: usize, all: usize) -> bool {
    leaving > 1 && leaving * 3 > all
}

/// A daemon's pool has left for as long as its workload outlives it, and that is known.
fn has_left_for_long(
    own: &Seen,
    asked: Option<&Asked>,
    (known, said): (&Known, &[Said]),
    write: &Write<'_>,
) -> Result<(), String> {
    let what = named(&own.object);
    let left = asked.and_then(|asked| asked.left).unwrap_or(write.at);
    let Some(grace) = said.iter().filter_map(Said::grace).min() else {
        return Err(format!("a workload is deleted though nobody can tell how long it is to stay: {what}"));
    };
    let passed = write.at.saturating_sub(left);
    if passed + ROUNDED < grace {
        return Err(format!("a workload is deleted in the time of grace: {what}, after {passed:?} of {grace:?}"));
    }
    if known.is_unserved(POOLS, write) {
        return Err(format!("a workload is deleted while nobody knows which pools there are: {what}"));
    }
    if known.is_left_to_nodes(&own.pool, write) {
        return Err(format!("a workload is deleted though nodes have the label of its pool: {what}"));
    }
    Ok(())
}

fn is_confirmed(said: &[Said], pool: &str) -> bool {
    let names = said.iter().filter_map(|said| annotation(&said.app, CONFIRM_REMOVAL));
    names.flat_map(|names| names.split([' ', ','])).any(|name| ["*", pool].contains(&name))
}

//! Pools that leave an application: their workloads stay for the time of grace, on a view that may be partial, and where many leave at
//! once; and no more go at a time than the budget of rollouts leaves room for.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_api::pool::CONFIRM_REMOVAL;

use super::super::POOLS;
use super::known::{App, Asked, Known, Said, annotation};
use super::named;
use super::turns::Round;
use super::workloads::{Seen, Workloads, newest};
use crate::server::Server;
use crate::sim::Write;

/// Times that are noted are whole seconds.
const ROUNDED: Duration = Duration::from_secs(2);

impl Workloads {
    /// A manager deletes a workload that is an application's.
    pub(super) fn may_be_removed(&self, write: &Write<'_>, known: &Known, server: &Server) -> Result<(), String> {
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
        let (count, all) = (leaving.len(), self.pools((own.app.as_str(), app), write));
        if count > 1 && count * 3 > all {
            let what = named(&own.object);
            return Err(format!("a workload is deleted though many pools leave at once: {what}, {count} of {all}"));
        }
        Ok(())
    }
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

//! What is changed of a workload: numbers of pods only where another is declared, nothing that people asked for by other means, and what
//! somebody else keeps changing only three times.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_api::pool::DECLARED_REPLICAS;
use serde_json::Value;

use super::known::{Known, annotation};
use super::named;
use super::rendering::declared;
use super::workloads::{newest, owner_of, pool_of, replicas};
use crate::object::text;
use crate::server::Server;
use crate::sim::Write;

/// The annotation of a template by which people have its pods made anew.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// So often within this time a workload is put right.
const REPAIRS: usize = 3;
const WITHIN: Duration = Duration::from_secs(600);

/// When each workload was put right, by UID, with the number of the revision that it had then.
#[derive(Default)]
pub(super) struct Repairs {
    all: BTreeMap<String, (i64, Vec<Duration>)>,
}

impl Repairs {
    /// A manager changes a workload: if the application has said nothing new since it did so last, it gives way to whoever keeps changing
    /// the workload. Of daemons it may be the taints of their pools that are new.
    pub(super) fn see(
        &mut self,
        before: &Value,
        write: &Write<'_>,
        known: &Known,
        server: &Server,
    ) -> Result<(), String> {
        let after = &write.change.object;
        let owner = owner_of(after).unwrap_or_default();
        let app = text(&owner["uid"]);
        if known.app(app).is_none_or(|app| app.is_daemon) || before["spec"] == after["spec"] {
            return Ok(());
        }
        let Some((number, _)) = newest(server, app) else { return Ok(()) };
        let uid = text(&after["metadata"]["uid"]).to_owned();
        match self.all.get_mut(&uid).filter(|(of, _)| *of == number) {
            Some((_, repairs)) => {
                repairs.retain(|at| write.at.saturating_sub(*at) < WITHIN);
                repairs.push(write.at);
                if repairs.len() > REPAIRS {
                    let (what, count) = (named(after), repairs.len());
                    return Err(format!("a workload is put right again and again: {what}, {count} times"));
                }
            }
            // The first gives it what is new.
            None => _ = self.all.insert(uid, (number, Vec::new())),
        }
        Ok(())
    }
}

/// What a manager changes of a workload is its own to change.
pub(super) fn are_own(before: &Value, after: &Value, write: &Write<'_>, known: &Known) -> Result<(), String> {
    let restarted = |workload: &Value| workload["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT].clone();
    if !restarted(before).is_null() && restarted(before) != restarted(after) {
        return Err(format!("a restart that somebody asked for is undone: {}", named(after)));
    }
    if before["spec"]["paused"] == true && after["spec"]["paused"] != true {
        return Err(format!("a pause that somebody asked for is undone: {}", named(after)));
    }
    let noted = |workload: &Value| annotation(workload, DECLARED_REPLICAS).and_then(|text| text.parse::<i64>().ok());
    let (was, is) = (noted(before), noted(after));
    if was.is_some() && was != is && is != Some(replicas(after)) {
        let number = replicas(after);
        return Err(format!("another number of pods is noted than there is: {}, {is:?}, not {number}", named(after)));
    }
    if replicas(before) == replicas(after) {
        return Ok(());
    }
    let change = format!("{}, {} to {}", named(after), replicas(before), replicas(after));
    if was == is || was.is_none() {
        return Err(format!("a number of pods is written that was not declared anew: {change}"));
    }
    if known.is_autoscaled(before, write) {
        return Err(format!("a number of pods is written that an autoscaler sets: {change}"));
    }
    let owner = owner_of(after).unwrap_or_default();
    let Some(app) = known.app(text(&owner["uid"])) else { return Ok(()) };
    let mut said = known.said(app, write).into_iter();
    let is_declared =
        said.any(|said| declared(&said.app, said.replacement.as_deref(), pool_of(after)) == replicas(after));
    if is_declared { Ok(()) } else { Err(format!("a number of pods is written that nobody declared: {change}")) }
}

//! Applications in pools in the simulator: YurtAppSets and YurtAppDaemons, what replaces things in them, and their workloads.

mod author;
mod changes;
mod end;
mod known;
mod removal;
mod rendering;
mod script;
mod setup;
mod story;
mod turns;
mod workloads;

use std::time::Duration;

use dapple_api::pool::POOL_NAME_LABEL;
use serde_json::Value;

use self::changes::Repairs;
use self::known::Known;
use self::workloads::{Workloads, is_going, owner_of, pool_of};
use crate::object::{list, text};
use crate::script::Script;
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

pub(super) use self::end::is_settled;

/// YurtAppSets, as the server names them.
const SETS: &str = "yurtappsets.apps.openyurt.io";
/// YurtAppDaemons.
const DAEMONS: &str = "yurtappdaemons.apps.openyurt.io";
/// What replaces things in them.
const REPLACEMENTS: &str = "yurtappconfigurationreplacements.apps.openyurt.io";
/// What their revisions are kept in.
const REVISIONS: &str = "controllerrevisions.apps";
/// What sets the number of pods of workloads.
const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";
/// Kinds of workloads.
const WORKLOADS: [&str; 2] = ["deployments.apps", "statefulsets.apps"];
/// Kinds of applications, as objects name them.
const KINDS: [&str; 2] = ["YurtAppSet", "YurtAppDaemon"];
/// Where all of this is.
const NAMESPACE: &str = "default";

/// A request that was under way for longer may come from a manager that leads no more.
const STRAGGLER: Duration = Duration::from_secs(9);

/// The script of a seed.
pub(super) fn script(seed: u64) -> Script {
    script::script(seed)
}

/// Whether this is of what managers write for applications.
pub(super) fn is_of_apps(write: &Write<'_>) -> bool {
    let object = &write.change.object;
    match write.change.resource {
        SETS | DAEMONS | REPLACEMENTS => write.is_of_status(),
        REVISIONS => {
            let mut owners = list(&object["metadata"]["ownerReferences"]).iter();
            owners.any(|owner| owner["controller"] == true && KINDS.contains(&text(&owner["kind"])))
        }
        resource => WORKLOADS.contains(&resource) && object["metadata"]["labels"][POOL_NAME_LABEL].is_string(),
    }
}

/// What was seen of applications.
#[derive(Default)]
pub(super) struct Apps {
    known: Known,
    workloads: Workloads,
    repairs: Repairs,
}

impl Apps {
    /// Takes in a write. An error is a violation.
    pub(super) fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        self.known.see(write, server);
        let resource = write.change.resource;
        let is_judged = write.is_ours() && write.under_way < STRAGGLER;
        if resource == REVISIONS && is_judged {
            return self.known.may_revise(write);
        }
        if !WORKLOADS.contains(&resource) {
            return Ok(());
        }
        if is_judged {
            self.judge(write, server)?;
        }
        self.workloads.see(write, &self.known, server);
        Ok(())
    }

    /// What a manager does to a workload is right.
    fn judge(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        self.known.may_touch(write)?;
        let (before, after) = (write.change.previous.as_deref(), &*write.change.object);
        let Some(before) = before.filter(|before| owner_of(before).is_some()) else {
            return match write.change.kind {
                ChangeKind::Added => self.workloads.may_be_made(write, &self.known, server),
                // It was taken in.
                ChangeKind::Modified | ChangeKind::Deleted => Ok(()),
            };
        };
        let is_deleted = write.change.kind == ChangeKind::Deleted || is_going(after);
        if is_deleted && !is_going(before) {
            return self.workloads.is_removed(write, &self.known, server);
        }
        changes::are_own(before, after, write, &self.known)?;
        self.repairs.see(before, write, &self.known, server)?;
        self.workloads.may_be_changed(before, write, &self.known, server)
    }
}

/// What a workload is called in messages: its name and its pool.
fn named(workload: &Value) -> String {
    format!("{}, of the pool {}", text(&workload["metadata"]["name"]), pool_of(workload))
}

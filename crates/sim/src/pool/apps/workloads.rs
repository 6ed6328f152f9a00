//! Workloads of applications: how each is, and what has become of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::pool::{POOL_NAME_LABEL, POOL_REVISION_LABEL};
use serde_json::Value;

use super::known::{App, Known};
use super::{DAEMONS, KINDS, REVISIONS, SETS, named};
use crate::object::{is_terminating, list, text};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Write};
use crate::webhook::controller_of;

/// What was seen of workloads, by UID.
#[derive(Default)]
pub(super) struct Workloads {
    pub(super) all: BTreeMap<String, Seen>,
    /// Those that somebody has deleted in the middle of a rollout, by application and pool, for as long as the pool has no other.
    lost: BTreeMap<(String, String), Lost>,
    /// Those whose pools left with many others, of which one was deleted since, by UID, and when.
    pub(super) held: BTreeMap<String, Duration>,
}

/// A workload that was deleted, but not by a manager.
struct Lost {
    turn: Turn,
    /// The revision that it named.
    revision: String,
    at: Duration,
}

/// A workload of an application.
pub(super) struct Seen {
    /// The UID of the application.
    pub(super) app: String,
    pub(super) pool: String,
    /// As it is now.
    pub(super) object: Arc<Value>,
    /// Since when it is the application's.
    pub(super) owned: Duration,
    /// What a manager last gave it.
    pub(super) turn: Option<Turn>,
    /// Since when not all of its pods are available.
    pub(super) unavailable: Option<Duration>,
    /// Since when its own controller says that it takes too long.
    pub(super) late: Option<Duration>,
    /// When its numbers of pods were last others.
    pub(super) moved: Duration,
    /// Which manager has it deleted, and since when.
    pub(super) going: Option<(Actor, Duration)>,
    /// Whether somebody else has changed its template since a manager wrote that.
    pub(super) is_touched: bool,
}

/// What a manager last gave a workload.
pub(super) struct Turn {
    /// The number that the revision had which it names: each rollout has its own.
    pub(super) rollout: i64,
    /// Whether it was there already, and had its pods made anew or taken away.
    pub(super) is_start: bool,
    pub(super) by: Actor,
    pub(super) at: Duration,
    /// Whether all pods were available before it was changed, or before what it was never done with.
    pub(super) was_available: bool,
    /// When it was first done with that.
    pub(super) complete: Option<Duration>,
}

impl Workloads {
    /// Takes in a write to a workload.
    pub(super) fn see(&mut self, write: &Write<'_>, known: &Known, server: &Server) {
        let object = &write.change.object;
        let uid = text(&object["metadata"]["uid"]).to_owned();
        let owner = owner_of(object).filter(|_| write.change.kind != ChangeKind::Deleted);
        let Some(app) = owner.map(|owner| text(&owner["uid"]).to_owned()) else {
            if let Some(seen) = self.all.remove(&uid) {
                self.lose(seen, write);
            }
            return;
        };
        let is_new = !self.all.contains_key(&uid);
        let lost = is_new.then(|| self.lost.remove(&(app.clone(), pool_of(object).to_owned()))).flatten();
        let seen = self.all.entry(uid).or_insert_with(|| Seen {
            app: app.clone(),
            pool: pool_of(object).to_owned(),
            object: object.clone(),
            owned: write.at,
            turn: None,
            unavailable: None,
            late: None,
            moved: write.at,
            going: None,
            // One that was taken in has what somebody else gave it.
            is_touched: write.change.kind != ChangeKind::Added,
        });
        let none = Value::Null;
        let before = write.change.previous.as_deref().unwrap_or(&none);
        let is_given = write.change.kind == ChangeKind::Added || restarts(before, object) || shrinks(before, object);
        if write.is_ours() && is_given {
            let rollout = number_of(server, &app, text(&object["metadata"]["labels"][POOL_REVISION_LABEL]));
            let is_added = write.change.kind == ChangeKind::Added;
            // One that comes back in the middle of a rollout is as much a part of it as before.
            let back = lost.filter(|lost| lost.comes_back(&app, known, write, server));
            let is_start = !is_added || back.is_some();
            // What it was never done with has done it no good: it is to be as well as it was before that.
            let unfinished = seen.turn.as_ref().filter(|turn| turn.complete.is_none());
            let unfinished = unfinished.or(back.as_ref().map(|lost| &lost.turn));
            let was_available = !is_added && is_available(before) || unfinished.is_some_and(|turn| turn.was_available);
            let (by, at) = (write.actor, write.at);
            seen.turn = Some(Turn { rollout, is_start, by, at, was_available, complete: None });
            seen.is_touched = false;
        } else if !write.is_ours() && restarts(before, object) {
            seen.is_touched = true;
        }
        if is_going(object) && write.is_ours() {
            seen.going = seen.going.or(Some((write.actor, write.at)));
        }
        if write.is_ours() && is_given || numbers(before) != numbers(object) {
            seen.moved = write.at;
        }
        let since = |known: Option<Duration>, is_so: bool| is_so.then(|| known.unwrap_or(write.at));
        seen.unavailable = since(seen.unavailable, !is_available(object));
        seen.late = since(seen.late, is_late(object));
        if let Some(turn) = &mut seen.turn {
            turn.complete = turn.complete.or_else(|| is_complete(object).then_some(write.at));
        }
        seen.object = object.clone();
    }

    /// A workload is there no more. It is missed if nobody's rollout or removal was to have it so.
    fn lose(&mut self, seen: Seen, write: &Write<'_>) {
        let is_deleted = write.change.kind == ChangeKind::Deleted && seen.going.is_none();
        if let Some(turn) = seen.turn.filter(|turn| turn.is_start && is_deleted) {
            let revision = text(&seen.object["metadata"]["labels"][POOL_REVISION_LABEL]).to_owned();
            self.lost.insert((seen.app, seen.pool), Lost { turn, revision, at: write.at });
        }
    }

    /// The pools of an application that were lost, and that whoever wrote this knew to be.
    pub(super) fn lost<'w>(
        &'w self,
        (uid, app): (&'w str, &'w App),
        known: &'w Known,
        write: &'w Write<'_>,
    ) -> impl Iterator<Item = (&'w str, &'w Turn)> {
        let is_its = move |(of, pool): &(String, String), lost: &Lost| {
            *of == *uid
                && write.knows(lost.at)
                && app.is_in(pool, write)
                && lost.is_told((app, pool.as_str()), known, write)
        };
        let its = self.lost.iter().filter(move |(key, lost)| is_its(key, lost));
        its.map(|((_, pool), lost)| (pool.as_str(), &lost.turn))
    }

    /// The workload that a write is about, as it was before.
    pub(super) fn of(&self, write: &Write<'_>) -> Option<&Seen> {
        self.all.get(text(&write.change.object["metadata"]["uid"]))
    }

    /// All workloads of an application.
    pub(super) fn of_app<'w>(&'w self, app: &'w str) -> impl Iterator<Item = &'w Seen> {
        self.all.values().filter(move |seen| seen.app == app)
    }

    /// How many pools an application has at most, as far as whoever wrote this knew: those that are leaving count.
    pub(super) fn pools(&self, (uid, app): (&str, &App), write: &Write<'_>) -> usize {
        let mut pools: BTreeSet<&str> = app.pools(write);
        pools.extend(self.of_app(uid).map(|seen| seen.pool.as_str()));
        pools.len()
    }

    /// A manager makes a workload.
    pub(super) fn may_be_made(&self, write: &Write<'_>, known: &Known, server: &Server) -> Result<(), String> {
        let made = &write.change.object;
        let uid = owner_of(made).map(|owner| text(&owner["uid"]).to_owned()).unwrap_or_default();
        let (Some(app), pool) = (known.app(&uid), pool_of(made)) else { return Ok(()) };
        if !app.may_be_in(pool, write) {
            return Err(format!("a workload is made for a pool that the application is not in: {}", named(made)));
        }
        if let Some(other) = self.of_app(&uid).find(|other| other.pool == pool && write.knows(other.owned)) {
            return Err(format!("a second workload is made: {}, beside {}", named(made), named(&other.object)));
        }
        let revisions = server.list(REVISIONS);
        let is_there = |name: &str| revisions.iter().any(|revision| revision["metadata"]["name"] == name);
        let statuses = known.told(app, write);
        let had = |status: &Arc<Value>| {
            let known = list(&status["status"]["pools"]).iter().find(|known| known["name"] == pool)?;
            known["revision"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
        };
        let all: BTreeSet<Option<String>> = statuses.iter().map(had).collect();
        let given = text(&made["metadata"]["labels"][POOL_REVISION_LABEL]);
        let one = all.first().filter(|_| all.len() == 1);
        match one {
            Some(Some(had)) if is_there(had) && had != given => Err(format!(
                "a workload does not come back at its pool's revision: {}, {given}, not {had}",
                named(made)
            )),
            Some(None) => self.may_join(write, (uid.as_str(), app), given, server),
            _ => Ok(()),
        }
    }

    /// A pool that joins while a rollout is stopped does not begin with what has stopped it.
    fn may_join(
        &self,
        write: &Write<'_>,
        (uid, app): (&str, &App),
        given: &str,
        server: &Server,
    ) -> Result<(), String> {
        let Some((number, newest)) = newest(server, uid) else { return Ok(()) };
        let is_stopped = app.stopped.is_some_and(|(of, since)| of == number && write.knows(since));
        let is_down = |seen: &Seen| {
            let is_of_it = seen.turn.as_ref().is_some_and(|turn| turn.is_start && turn.rollout == number);
            is_of_it && app.is_in(&seen.pool, write) && seen.unavailable.is_some_and(|since| write.knows(since))
        };
        let told = server.list(if app.is_daemon { DAEMONS } else { SETS });
        let told = told.iter().find(|known| known["metadata"]["uid"] == *uid);
        let has_other = told.is_some_and(|known| {
            let current = known["status"]["currentRevision"].as_str();
            let revisions = server.list(REVISIONS);
            let is_there = revisions.iter().any(|revision| revision["metadata"]["name"].as_str() == current);
            current.is_some_and(|current| current != newest) && is_there
        });
        if is_stopped && has_other && given == newest && self.of_app(uid).any(is_down) {
            let made = &write.change.object;
            return Err(format!("a pool joins with what its rollout was stopped for: {}", named(made)));
        }
        Ok(())
    }
}

impl Lost {
    /// Whether a manager makes its pool's workload again as it was, and the rollout is still the same.
    fn comes_back(&self, uid: &str, known: &Known, write: &Write<'_>, server: &Server) -> bool {
        let made = &write.change.object;
        let label = text(&made["metadata"]["labels"][POOL_REVISION_LABEL]);
        let is_newest = newest(server, uid).is_some_and(|(_, name)| name == label);
        let is_told = |app: &App| self.is_told((app, pool_of(made)), known, write);
        self.revision == label && is_newest && known.app(uid).is_some_and(is_told)
    }

    /// Whether the status tells, as far as whoever wrote this knew it, that the pool had a revision which was not rolled out whole, and
    /// was well before.
    fn is_told(&self, (app, pool): (&App, &str), known: &Known, write: &Write<'_>) -> bool {
        let told = known.told(app, write);
        let has_it = |status: &Arc<Value>| {
            let status = &status["status"];
            let mut pools = list(&status["pools"]).iter().filter(|known| known["name"] == *pool);
            let is_it = |known: &Value| known["revision"] == *self.revision && known["wasUnavailable"] != true;
            status["currentRevision"] != *self.revision && pools.any(is_it)
        };
        !told.is_empty() && told.iter().all(has_it)
    }
}

/// The number of an application's revision of this name; zero if it is not there.
pub(super) fn number_of(server: &Server, app: &str, name: &str) -> i64 {
    let is_it = |known: &&Arc<Value>| {
        known["metadata"]["name"] == name && controller_of(known).is_some_and(|owner| owner["uid"] == app)
    };
    server.list(REVISIONS).iter().find(is_it).and_then(|known| known["revision"].as_i64()).unwrap_or(0)
}

/// The number and the name of an application's newest revision.
pub(super) fn newest(server: &Server, app: &str) -> Option<(i64, String)> {
    let all = server.list(REVISIONS);
    let own = all.iter().filter(|known| controller_of(known).is_some_and(|owner| owner["uid"] == *app));
    let numbered =
        own.map(|known| (known["revision"].as_i64().unwrap_or(0), text(&known["metadata"]["name"]).to_owned()));
    numbered.max()
}

/// The application that controls a workload, as the workload names it.
pub(super) fn owner_of(workload: &Value) -> Option<Value> {
    controller_of(workload).filter(|owner| KINDS.contains(&text(&owner["kind"])))
}

/// The pool that a workload is for.
pub(super) fn pool_of(workload: &Value) -> &str {
    text(&workload["metadata"]["labels"][POOL_NAME_LABEL])
}

/// Whether its deletion was asked for.
pub(super) fn is_going(workload: &Value) -> bool {
    is_terminating(workload)
}

fn count(workload: &Value, field: &str) -> i64 {
    workload["status"][field].as_i64().unwrap_or(0)
}

/// How many pods a workload is to have.
pub(super) fn replicas(workload: &Value) -> i64 {
    workload["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn numbers(workload: &Value) -> [i64; 4] {
    ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"].map(|field| count(workload, field))
}

/// Whether all its pods are available.
pub(super) fn is_available(workload: &Value) -> bool {
    count(workload, "availableReplicas") >= replicas(workload)
}

/// Whether its own controller does nothing about what is written of its pods, or has none to do it to.
pub(super) fn is_held(workload: &Value) -> bool {
    let spec = &workload["spec"];
    replicas(workload) == 0 || spec["paused"] == true || spec["updateStrategy"]["type"] == "OnDelete"
}

/// Whether its own controller has seen what was written last, and all its pods are of that, and available.
pub(super) fn is_complete(workload: &Value) -> bool {
    let wanted = replicas(workload);
    let is_observed = count(workload, "observedGeneration") >= workload["metadata"]["generation"].as_i64().unwrap_or(0);
    let updated = count(workload, "updatedReplicas");
    let are_all = updated >= wanted && is_available(workload) && count(workload, "replicas") <= updated;
    is_observed && (is_held(workload) || are_all)
}

/// Whether its own controller says that it takes too long.
fn is_late(workload: &Value) -> bool {
    let is_observed = count(workload, "observedGeneration") >= workload["metadata"]["generation"].as_i64().unwrap_or(0);
    let mut conditions = list(&workload["status"]["conditions"]).iter();
    is_observed
        && !is_complete(workload)
        && conditions.any(|known| known["type"] == "Progressing" && known["reason"] == "ProgressDeadlineExceeded")
}

/// Its template without the revision that it names.
pub(super) fn template(workload: &Value) -> Value {
    let mut template = workload["spec"]["template"].clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POOL_REVISION_LABEL);
    }
    template
}

/// Whether pods are made anew.
pub(super) fn restarts(before: &Value, after: &Value) -> bool {
    before["spec"]["template"] != after["spec"]["template"]
}

/// Whether pods are taken away.
pub(super) fn shrinks(before: &Value, after: &Value) -> bool {
    replicas(after) < replicas(before)
}

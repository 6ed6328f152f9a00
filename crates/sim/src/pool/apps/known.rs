//! What is said of applications in pools, and was lately: whoever writes may believe any of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::pool::{
    NODE_POOL_LABEL, POOL_GRACE, ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_RESUMED, ROLLOUT_SKIP, Rules, SUSPEND_ANNOTATION,
};
use jiff::SignedDuration;
use serde_json::Value;

use super::super::POOLS;
use super::rendering::is_for;
use super::workloads::{number_of, owner_of, pool_of};
use super::{AUTOSCALERS, DAEMONS, KINDS, REPLACEMENTS, REVISIONS, SETS, named};
use crate::object::{list, text};
use crate::past::{Past, believed, note};
use crate::server::{CRDS, ChangeKind, Server};
use crate::sim::Write;
use crate::webhook::controller_of;

/// How long a workload outlives its pool if nothing is said.
const GRACE: Duration = Duration::from_secs(300);

/// What is known.
#[derive(Default)]
pub(super) struct Known {
    /// Applications by UID, those that are gone among them.
    apps: BTreeMap<String, App>,
    replacements: BTreeMap<String, Past>,
    pools: BTreeMap<String, Past>,
    /// CRDs that are gone, and since when.
    unserved: BTreeMap<String, Duration>,
    /// By name: the workload whose number of pods an autoscaler sets, and since when.
    autoscalers: BTreeMap<String, (Value, Duration)>,
    /// By node: the pool that its label names, and since when.
    labelled: BTreeMap<String, (String, Duration)>,
    /// Whether requests were ever forbidden.
    pub(super) was_forbidden: bool,
}

/// An application.
pub(super) struct App {
    pub(super) is_daemon: bool,
    /// What it says, status aside.
    said: Past,
    /// All of it.
    told: Past,
    /// The pools that it is in, or was.
    pub(super) asked: BTreeMap<String, Asked>,
    /// The number of the revision whose rollout was last told to be stopped, and since when that is told.
    pub(super) stopped: Option<(i64, Duration)>,
    /// The number that the revision had which was last told to be rolled out whole.
    pub(super) whole: Option<i64>,
    /// When a revision of it was last made, or got another number.
    pub(super) revised: Duration,
}

/// Whether an application is in a pool.
pub(super) struct Asked {
    pub(super) is_so: bool,
    pub(super) since: Duration,
    /// When it last left the pool, as far as anybody can have seen that it had been in it.
    pub(super) left: Option<Duration>,
}

/// What an application said at some time, with its replacement.
pub(super) struct Said {
    pub(super) app: Arc<Value>,
    pub(super) replacement: Option<Arc<Value>>,
}

impl Said {
    /// What annotations say of rollouts: its own, or else its replacement's.
    pub(super) fn rules(&self) -> Rules {
        let own = |key: &str| annotation(&self.app, key);
        let of_replacement = |key: &str| self.replacement.as_deref().and_then(|known| annotation(known, key));
        let says_itself = [ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_SKIP].iter().any(|key| own(key).is_some());
        let rules = if says_itself { Rules::of(own) } else { Rules::of(of_replacement) };
        rules.unwrap_or_default()
    }

    fn is_suspended(&self) -> bool {
        let is_so = |object: &Value| annotation(object, SUSPEND_ANNOTATION) == Some("true");
        is_so(&self.app) || self.replacement.as_deref().is_some_and(is_so)
    }

    /// How long a workload outlives its pool; none if that cannot be understood.
    pub(super) fn grace(&self) -> Option<Duration> {
        let Some(text) = annotation(&self.app, POOL_GRACE) else { return Some(GRACE) };
        Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()
    }
}

/// An annotation of an object.
pub(super) fn annotation<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object["metadata"]["annotations"][key].as_str()
}

impl Known {
    /// Takes in a write.
    pub(super) fn see(&mut self, write: &Write<'_>, server: &Server) {
        self.was_forbidden |= server.forbidden().is_some();
        let object = &write.change.object;
        let name = text(&object["metadata"]["name"]).to_owned();
        let is_gone = write.change.kind == ChangeKind::Deleted;
        match write.change.resource {
            resource @ (SETS | DAEMONS) => self.see_app(write, resource == DAEMONS, server),
            REPLACEMENTS if !write.is_of_status() => note(self.replacements.entry(name).or_default(), write),
            POOLS => self.see_pool(name, write, server),
            REVISIONS => self.see_revision(write),
            CRDS if is_gone => _ = self.unserved.insert(name, write.at),
            CRDS => _ = self.unserved.remove(&name),
            AUTOSCALERS if is_gone => _ = self.autoscalers.remove(&name),
            AUTOSCALERS => {
                let target = &object["spec"]["scaleTargetRef"];
                self.autoscalers.entry(name).or_insert((target.clone(), write.at));
            }
            "nodes" => {
                let label = text(&object["metadata"]["labels"][NODE_POOL_LABEL]).to_owned();
                if is_gone {
                    self.labelled.remove(&name);
                } else if self.labelled.get(&name).is_none_or(|(known, _)| *known != label) {
                    self.labelled.insert(name, (label, write.at));
                }
            }
            _ => {}
        }
    }

    fn see_app(&mut self, write: &Write<'_>, is_daemon: bool, server: &Server) {
        let object = &write.change.object;
        let uid = text(&object["metadata"]["uid"]).to_owned();
        let current = |app: &Value| app["status"]["currentRevision"].as_str().map(str::to_owned);
        let told =
            current(object).filter(|name| write.change.previous.as_deref().and_then(current).as_ref() != Some(name));
        let whole = told.map(|name| number_of(server, &uid, &name));
        let app = self.apps.entry(uid).or_insert_with(|| App {
            is_daemon,
            said: Past::new(),
            told: Past::new(),
            asked: BTreeMap::new(),
            stopped: None,
            whole: None,
            revised: write.at,
        });
        app.whole = whole.or(app.whole);
        note(&mut app.told, write);
        if !write.is_of_status() {
            note(&mut app.said, write);
        }
        let stopped = object["status"]["stopped"]["revision"].as_i64();
        if let Some(number) = stopped.filter(|number| app.stopped.is_none_or(|(known, _)| known != *number)) {
            app.stopped = Some((number, write.at));
        }
        let before = write.change.previous.as_ref();
        if before.is_none_or(|before| before["spec"] != object["spec"]) {
            app.ask(object, write, server);
        }
    }

    fn see_pool(&mut self, name: String, write: &Write<'_>, server: &Server) {
        note(self.pools.entry(name).or_default(), write);
        let labels = |pool: &Value| pool["metadata"]["labels"].clone();
        let before = write.change.previous.as_deref().filter(|_| write.change.kind == ChangeKind::Modified);
        if before.is_some_and(|before| labels(before) == labels(&write.change.object)) {
            return;
        }
        for app in self.apps.values_mut().filter(|app| app.is_daemon) {
            if let Some(object) = app.now() {
                app.ask(&object, write, server);
            }
        }
    }

    fn see_revision(&mut self, write: &Write<'_>) {
        let owner = controller_of(&write.change.object).unwrap_or_default();
        let number = |revision: &Value| revision["revision"].clone();
        let before = write.change.previous.as_deref();
        let is_news = before.is_none_or(|before| number(before) != number(&write.change.object));
        if let Some(app) = self.apps.get_mut(text(&owner["uid"])).filter(|_| is_news) {
            app.revised = write.at;
        }
    }

    /// The application of this UID.
    pub(super) fn app(&self, uid: &str) -> Option<&App> {
        self.apps.get(uid)
    }

    /// What an application may have said, as far as whoever wrote this knew.
    pub(super) fn said(&self, app: &App, write: &Write<'_>) -> Vec<Said> {
        let mut all = Vec::new();
        for (_, object) in believed(&app.said, write) {
            let Some(object) = object else { continue };
            for replacement in self.replacements_of(&object, write) {
                all.push(Said { app: object.clone(), replacement });
            }
        }
        all
    }

    fn replacements_of(&self, app: &Value, write: &Write<'_>) -> Vec<Option<Arc<Value>>> {
        let is_its_own = |known: &Arc<Value>| is_for(known, app);
        let of_any = |past: &Past| past.iter().any(|(_, known)| known.as_ref().is_some_and(is_its_own));
        let mut pasts = self.replacements.values().filter(|past| of_any(past)).peekable();
        if pasts.peek().is_none() {
            return vec![None];
        }
        pasts.flat_map(|past| believed(past, write)).map(|(_, known)| known.filter(is_its_own)).collect()
    }

    /// Whether somebody had a rollout go on.
    pub(super) fn is_resumed(&self, app: &App, write: &Write<'_>) -> bool {
        self.said(app, write).iter().any(|said| annotation(&said.app, ROLLOUT_RESUMED).is_some())
    }

    /// Statuses of an application that whoever wrote this may have known.
    pub(super) fn told(&self, app: &App, write: &Write<'_>) -> Vec<Arc<Value>> {
        believed(&app.told, write).into_iter().filter_map(|(_, object)| object).collect()
    }

    /// Whether a NodePool is there for certain.
    pub(super) fn has_pool(&self, pool: &str, write: &Write<'_>) -> bool {
        let is_there = |past: &Past| believed(past, write).iter().all(|(_, known)| known.is_some());
        self.pools.get(pool).is_some_and(is_there)
    }

    /// Whether a NodePool is gone for certain, while nodes have its label.
    pub(super) fn is_left_to_nodes(&self, pool: &str, write: &Write<'_>) -> bool {
        let is_gone = |past: &Past| believed(past, write).iter().all(|(_, known)| known.is_none());
        self.pools.get(pool).is_none_or(is_gone)
            && self.labelled.values().any(|(label, since)| label == pool && write.knows(*since))
    }

    /// Whether a CRD is gone for certain.
    pub(super) fn is_unserved(&self, crd: &str, write: &Write<'_>) -> bool {
        self.unserved.get(crd).is_some_and(|since| write.knows(*since))
    }

    /// Whether an autoscaler sets the number of a workload's pods for certain.
    pub(super) fn is_autoscaled(&self, workload: &Value, write: &Write<'_>) -> bool {
        let is_it =
            |target: &Value| target["kind"] == workload["kind"] && target["name"] == workload["metadata"]["name"];
        self.autoscalers.values().any(|(target, since)| is_it(target) && write.knows(*since))
    }

    /// Revisions are written of applications that are there, and not suspended.
    pub(super) fn may_revise(&self, write: &Write<'_>) -> Result<(), String> {
        let name = text(&write.change.object["metadata"]["name"]);
        self.is_live(write, &format!("a revision, {name}"))
    }

    /// A workload is an application's that is there, and not suspended; one that nobody owned has its labels, and one of its pools.
    pub(super) fn may_touch(&self, write: &Write<'_>) -> Result<(), String> {
        let (before, after) = (write.change.previous.as_deref(), &*write.change.object);
        let owner = |workload: &Value| owner_of(workload).map(|owner| text(&owner["uid"]).to_owned());
        let had = before.and_then(owner);
        let Some(has) = owner(after) else {
            return Err(format!("a workload is written that is no application's: {}", named(after)));
        };
        if had.is_some_and(|had| had != has) {
            return Err(format!("a workload of another is taken: {}", named(after)));
        }
        self.is_live(write, &format!("a workload, {}", named(after)))?;
        match before.filter(|before| owner_of(before).is_none()) {
            Some(before) => self.may_take_in(before, &has, write),
            None => Ok(()),
        }
    }

    /// Nobody owned a workload, and it is what the application would make.
    fn may_take_in(&self, before: &Value, uid: &str, write: &Write<'_>) -> Result<(), String> {
        let stranger = || Err(format!("a stranger is taken in: {}", named(before)));
        let Some(app) = self.apps.get(uid) else { return stranger() };
        if controller_of(before).is_some() || !app.may_be_in(pool_of(before), write) {
            return stranger();
        }
        let has_labels = |said: &Said| {
            let mut labels = said.app["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
            labels.all(|(key, value)| before["metadata"]["labels"][key] == *value)
        };
        if self.said(app, write).iter().any(has_labels) { Ok(()) } else { stranger() }
    }

    /// The application that owns what is written is there and not suspended, and it is known what replaces things in it.
    fn is_live(&self, write: &Write<'_>, what: &str) -> Result<(), String> {
        let owner = controller_of(&write.change.object).unwrap_or_default();
        let Some(app) = self.apps.get(text(&owner["uid"])) else {
            return Err(format!("what is of no application is written: {what}"));
        };
        let said = self.said(app, write);
        if said.is_empty() {
            return Err(format!("what is of an application that is gone is written: {what}"));
        }
        if said.iter().all(Said::is_suspended) {
            return Err(format!("what is of a suspended application is written: {what}"));
        }
        if self.is_unserved(REPLACEMENTS, write) {
            return Err(format!("something is written while nobody knows which replacements there are: {what}"));
        }
        Ok(())
    }
}

impl App {
    /// As it is now.
    fn now(&self) -> Option<Arc<Value>> {
        self.said.last().and_then(|(_, object)| object.clone())
    }

    /// Notes which pools it is in from now on.
    fn ask(&mut self, object: &Value, write: &Write<'_>, server: &Server) {
        let now = if self.is_daemon { selected(object, server) } else { named_by(object) };
        for pool in &now {
            let known = self.asked.entry(pool.clone());
            let known = known.or_insert(Asked { is_so: false, since: write.at, left: None });
            if !known.is_so {
                *known = Asked { is_so: true, since: write.at, left: known.left };
            }
        }
        for (_, known) in self.asked.iter_mut().filter(|(pool, known)| known.is_so && !now.contains(*pool)) {
            // If it was so for a moment only, nobody needs to have seen it.
            let left = known.left.filter(|_| !write.knows(known.since));
            *known = Asked { is_so: false, since: write.at, left: left.or(Some(write.at)) };
        }
    }

    /// Whether it may be believed to be in a pool.
    pub(super) fn may_be_in(&self, pool: &str, write: &Write<'_>) -> bool {
        self.asked.get(pool).is_some_and(|known| known.is_so || !write.knows(known.since))
    }

    /// Whether it is in a pool for certain.
    pub(super) fn is_in(&self, pool: &str, write: &Write<'_>) -> bool {
        self.asked.get(pool).is_some_and(|known| known.is_so && write.knows(known.since))
    }

    /// The pools that it may be believed to be in.
    pub(super) fn pools<'a>(&'a self, write: &Write<'_>) -> BTreeSet<&'a str> {
        let names = self.asked.keys().map(String::as_str);
        names.filter(|pool| self.may_be_in(pool, write)).collect()
    }
}

/// The pools that a set names.
fn named_by(app: &Value) -> BTreeSet<String> {
    list(&app["spec"]["topology"]["pools"]).iter().map(|pool| text(&pool["name"]).to_owned()).collect()
}

/// The pools that a daemon selects: none without a selector.
fn selected(app: &Value, server: &Server) -> BTreeSet<String> {
    let Some(selector) = app["spec"].get("nodepoolSelector").filter(|selector| selector.is_object()) else {
        return BTreeSet::new();
    };
    let is_selected = |pool: &&Arc<Value>| {
        let mut labels = selector["matchLabels"].as_object().into_iter().flatten();
        labels.all(|(key, value)| pool["metadata"]["labels"][key] == *value)
    };
    let pools = server.list(POOLS);
    pools.iter().filter(is_selected).map(|pool| text(&pool["metadata"]["name"]).to_owned()).collect()
}

/// The pools that an application is in now.
pub(super) fn asked_now(app: &Value, server: &Server) -> BTreeSet<String> {
    if app["kind"] == KINDS[1] { selected(app, server) } else { named_by(app) }
}

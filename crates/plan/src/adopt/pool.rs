//! Taking NodePools, YurtAppSets and YurtAppDaemons over from OpenYurt 1.4: what was found, what stands in the way, and what
//! will be done.
//!
//! OpenYurt's manager does much else and goes on: whoever runs it switches off the controllers of these kinds alone. No spec of
//! any object is written, so that whatever is adopted says what it said before, and what runs goes on running.

pub mod applications;
pub mod manager;
pub mod nodes;
pub mod overrider;

use std::collections::{BTreeMap, BTreeSet};

use dapple_api::kinds::{self, Name, OwnKind};
use dapple_api::pool::{GROUP, NodePool, SubjectKind, YurtAppDaemon, YurtAppSet};
use dapple_api::reading::read;
use dapple_edit::render::hash;
use serde_json::Value;

use self::applications::{Answer, Found};
use self::manager::{Controller, Manager};
use super::hooks::{self, Edited};
use super::product::{Product, SeenLease};
use super::{Refusal, crd, name_of, texts};

/// A kind that is taken over.
#[derive(Debug)]
pub struct Taken {
    /// The kind.
    pub kind: &'static OwnKind,
    /// Versions that its objects may be stored in, the one that dapple stores first: the API server reads each as that one.
    pub readable: &'static [&'static str],
    /// OpenYurt's controllers that act on it.
    pub controllers: &'static [Controller],
    /// How replacements name it, if it is an application.
    pub subject: Option<SubjectKind>,
}

/// Renders the workloads of both kinds of applications anew.
const OVERRIDER: Controller = Controller { name: "yurt-app-overrider-controller", alias: "yurtappoverrider" };

/// Pools of nodes.
pub const NODE_POOLS: Taken = Taken {
    kind: &kinds::NODE_POOL,
    readable: &["v1beta1", "v1alpha1"],
    controllers: &[Controller { name: "nodepool-controller", alias: "nodepool" }],
    subject: None,
};

/// Applications in pools that they name.
pub const YURT_APP_SETS: Taken = Taken {
    kind: &kinds::YURT_APP_SET,
    readable: &["v1alpha1"],
    controllers: &[Controller { name: "yurt-app-set-controller", alias: "yurtappset" }, OVERRIDER],
    subject: Some(SubjectKind::YurtAppSet),
};

/// Applications in pools that they select.
pub const YURT_APP_DAEMONS: Taken = Taken {
    kind: &kinds::YURT_APP_DAEMON,
    readable: &["v1alpha1"],
    controllers: &[Controller { name: "yurt-app-daemon-controller", alias: "yurtappdaemon" }, OVERRIDER],
    subject: Some(SubjectKind::YurtAppDaemon),
};

/// All of them. Replacements are dapple's alone.
pub const ALL: [&Taken; 3] = [&NODE_POOLS, &YURT_APP_SETS, &YURT_APP_DAEMONS];

/// OpenYurt's webhook that renders Deployments of applications anew at each write.
const RENDERING_HOOK: &str = "mutate.apps.v1.deployment";
/// Annotations of its configurations that have its own copy of them.
const TEMPLATES: [&str; 2] = ["template", "yurt-manager-template"];

impl Taken {
    /// Its objects, as people name them.
    pub fn objects(&self) -> String {
        format!("{}s", self.kind.at.kind)
    }
}

/// A kind whose CRD is another product's.
#[derive(Debug, Clone)]
pub struct SeenKind {
    /// Which one.
    pub taken: &'static Taken,
    /// The CRD.
    pub crd: Value,
    /// Its objects in the version that dapple stores, or why they cannot be listed.
    pub objects: Result<Vec<Value>, String>,
    /// Namespaces and names of its objects, in whatever version they can be listed.
    pub names: Vec<String>,
}

/// What was found in the cluster, as the API server gave it. What is of no concern to the kinds is left out.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The kinds that can be taken over.
    pub kinds: Vec<SeenKind>,
    /// What is to be said of those that were asked for and cannot.
    pub others: Vec<String>,
    /// Deployments: those that run OpenYurt's manager, and those of applications.
    pub deployments: Vec<Value>,
    /// StatefulSets of applications.
    pub stateful_sets: Vec<Value>,
    /// Leases that OpenYurt's manager elects its leader by.
    pub leases: Vec<SeenLease>,
    /// Mutating- and ValidatingWebhookConfigurations, with their `kind`.
    pub hooks: Vec<Value>,
    /// All NodePools, or why they cannot be listed.
    pub pools: Result<Vec<Value>, String>,
    /// Nodes that are, or were, in a pool.
    pub nodes: Vec<Value>,
    /// ControllerRevisions of applications.
    pub revisions: Vec<Value>,
    /// YurtAppOverriders.
    pub overriders: Vec<Value>,
    /// YurtAppConfigurationReplacements.
    pub replacements: Vec<Value>,
    /// What the API server said of the workloads that it was asked about, by UID.
    pub answers: BTreeMap<String, Answer>,
}

/// A kind, as it is taken over.
#[derive(Debug, Clone)]
pub struct AdoptedKind {
    /// Which one.
    pub taken: &'static Taken,
    /// What its CRD says of itself.
    pub crd: crd::Facts,
    /// Whether its objects can be listed at all.
    pub is_listed: bool,
    /// Its objects, by UID.
    pub objects: BTreeMap<String, String>,
}

/// A workload of an application that is taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWorkload {
    /// Kind, namespace and name.
    pub object: String,
    /// Names its pod template.
    template: String,
    /// How many pods it has.
    pub pods: i64,
}

/// What taking over means here.
#[derive(Debug, Clone)]
pub struct Adoption {
    /// The kinds.
    pub kinds: Vec<AdoptedKind>,
    /// Deployments of OpenYurt's manager.
    pub managers: Vec<Manager>,
    /// What is taken out of webhooks.
    pub product: Product,
    /// Webhook configurations as they will be.
    pub hooks: Vec<Edited>,
    /// The workloads of applications, by UID.
    pub workloads: BTreeMap<String, KeptWorkload>,
    /// Replacements that do what YurtAppOverriders did: a person's to apply.
    pub replacements: Vec<Value>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// What stands in the way. Empty: it can be done.
    pub refusals: Vec<Refusal>,
}

/// What there is to be said.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) notes: Vec<String>,
    pub(super) refusals: Vec<Refusal>,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.notes.extend(other.notes);
        self.refusals.extend(other.refusals);
    }
}

/// Judges what was found. `now` is in seconds since 1970.
pub fn judge(observed: &Observed, allow_restarts: bool, now: i64) -> Adoption {
    let taken: Vec<&'static Taken> = observed.kinds.iter().map(|seen| seen.taken).collect();
    let managers: Vec<Manager> = observed.deployments.iter().filter_map(manager::read).collect();
    let product = product(&taken);
    let mut told = Told { notes: observed.others.clone(), ..Told::default() };
    told.add(manager::look(&managers, &observed.leases, &taken, now));
    let kinds = observed.kinds.iter().map(|seen| kind(seen, &mut told)).collect();
    let mut edited = Vec::new();
    for configuration in &observed.hooks {
        let looked = hooks::look(configuration, &product);
        edited.extend(looked.edited);
        told.refusals.extend(looked.refusals);
        told.notes.extend(looked.notes);
    }
    told.refusals.extend(unlisted_pools(observed));
    let found = applications::read_all(observed);
    let overriding = overrider::look(&observed.overriders, &found);
    told.add(overriding.told);
    for application in &found {
        told.add(application.look(&observed.answers, allow_restarts));
    }
    told.add(applications::unreadable_replacements(observed));
    told.notes.extend(nodes::look(observed));
    Adoption {
        kinds,
        managers,
        product,
        hooks: edited,
        workloads: kept(&found),
        replacements: overriding.replacements,
        notes: told.notes,
        refusals: told.refusals,
    }
}

/// What is OpenYurt's, and what goes of its webhooks. Its namespace is one that many products share.
fn product(taken: &[&'static Taken]) -> Product {
    let objects: Vec<String> = taken.iter().map(|taken| taken.objects()).collect();
    let has_applications = taken.iter().any(|taken| taken.subject.is_some());
    Product {
        prefix: "yurt-manager-",
        namespaces: BTreeSet::new(),
        group: GROUP,
        resources: taken.iter().map(|taken| taken.kind.at.plural).collect(),
        objects: objects.join(" or "),
        whole: if has_applications { &[RENDERING_HOOK] } else { &[] },
        templates: &TEMPLATES,
        note: note_on_nodes,
    }
}

/// One of OpenYurt's webhooks forbids what dapple allows: that a node goes from one pool to another.
fn note_on_nodes(object: &str, hook: &str, entry: &Value) -> Option<String> {
    let is_of_nodes = |rule: &Value| {
        texts(&rule["apiGroups"]).any(str::is_empty) && texts(&rule["resources"]).any(|resource| resource == "nodes")
    };
    let mut rules = entry["rules"].as_array().into_iter().flatten();
    if !object.starts_with("Validating") || !rules.any(is_of_nodes) {
        return None;
    }
    Some(format!(
        "{object}: {hook} concerns nodes and stays: while it answers, the pool of a node cannot be changed. To move nodes, start \
         OpenYurt's manager with --disable-independent-webhooks=node"
    ))
}

/// What a kind is, and whether its objects can be read.
fn kind(seen: &SeenKind, told: &mut Told) -> AdoptedKind {
    let (taken, facts) = (seen.taken, crd::facts(&seen.crd));
    let name = taken.kind.crd();
    told.notes.extend(crd::notes(&name, taken.kind.at.kind, &facts));
    let mut objects = BTreeMap::new();
    let in_the_way = crd::unaccepted(&name, &facts).or_else(|| unserved(seen, &facts));
    match (&seen.objects, in_the_way) {
        (_, Some(refusal)) => told.refusals.push(refusal),
        (Err(error), None) => told.refusals.push(unlisted(taken, error)),
        (Ok(found), None) => {
            for object in found {
                match unread(taken, object) {
                    Some(refusal) => told.refusals.push(refusal),
                    None => _ = objects.insert(uid(object).to_owned(), shown(taken, object)),
                }
            }
        }
    }
    AdoptedKind { taken, crd: facts, is_listed: seen.objects.is_ok(), objects }
}

/// Versions that objects may be stored in and that dapple does not serve.
fn unserved(seen: &SeenKind, facts: &crd::Facts) -> Option<Refusal> {
    let taken = seen.taken;
    let unknown: Vec<&str> =
        facts.stored.iter().map(String::as_str).filter(|name| !taken.readable.contains(name)).collect();
    if unknown.is_empty() {
        return None;
    }
    let unknown = unknown.join(", ");
    let objects = match seen.names.as_slice() {
        [] => format!("there are no {}", taken.objects()),
        names => format!("{} may be stored so", names.join(", ")),
    };
    Some(Refusal {
        object: format!("CRD {}", taken.kind.crd()),
        field: "status.storedVersions".to_owned(),
        problem: format!("has {unknown}, which dapple does not serve: {objects}"),
        remedy: format!(
            "dapple takes over from OpenYurt 1.4: with a CRD that stores {}, write each of them once, then take {unknown} out of \
             status.storedVersions",
            taken.readable.first().copied().unwrap_or_default()
        ),
    })
}

fn unlisted(taken: &Taken, error: &str) -> Refusal {
    Refusal {
        object: format!("CRD {}", taken.kind.crd()),
        field: "spec.versions".to_owned(),
        problem: format!("does not let {} be listed as {}: {error}", taken.objects(), taken.kind.at.version),
        remedy: "if OpenYurt converts them, let its manager run and answer, and run this again".to_owned(),
    }
}

/// That YurtAppDaemons cannot be told the pools they select.
fn unlisted_pools(observed: &Observed) -> Option<Refusal> {
    let is_about = |name: Name| observed.kinds.iter().any(|seen| seen.taken.kind.name == name);
    let error = observed.pools.as_ref().err()?;
    (is_about(Name::YurtAppDaemon) && !is_about(Name::NodePool)).then(|| unlisted(&NODE_POOLS, error))
}

/// Why an object cannot be taken over, if it cannot be read.
pub fn unread(taken: &Taken, object: &Value) -> Option<Refusal> {
    let error = match taken.kind.name {
        Name::NodePool => read::<NodePool>(object).err(),
        Name::YurtAppSet => read::<YurtAppSet>(object).err(),
        _ => read::<YurtAppDaemon>(object).err(),
    }?;
    Some(Refusal {
        object: shown(taken, object),
        field: error.field,
        problem: format!("cannot be read: {}", error.text),
        remedy: "correct or delete it, and run this again".to_owned(),
    })
}

fn shown(taken: &Taken, object: &Value) -> String {
    format!("{} {}", taken.kind.at.kind, name_of(object))
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// UID of what controls an object, if it is an application in pools.
pub fn application_of(object: &Value) -> Option<&str> {
    let is_it = |owner: &&Value| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split('/').next());
        let kinds = ALL.into_iter().filter(|taken| taken.subject.is_some()).map(|taken| taken.kind.at.kind);
        owner["controller"] == true && group == Some(GROUP) && { kinds }.any(|kind| owner["kind"] == kind)
    };
    object["metadata"]["ownerReferences"].as_array()?.iter().find(is_it)?["uid"].as_str()
}

fn kept(found: &[Found<'_>]) -> BTreeMap<String, KeptWorkload> {
    let all = found.iter().flat_map(Found::workloads);
    all.map(|workload| (uid(workload).to_owned(), KeptWorkload::of(workload))).collect()
}

impl KeptWorkload {
    fn of(workload: &Value) -> Self {
        let kind = workload["kind"].as_str().unwrap_or_default();
        Self {
            object: format!("{kind} {}", name_of(workload)),
            template: hash(&workload["spec"]["template"]),
            pods: workload["status"]["replicas"].as_i64().unwrap_or(0),
        }
    }
}

impl Adoption {
    /// What will be done, in order.
    pub fn steps(&self) -> Vec<String> {
        let mut steps: Vec<String> = self.hooks.iter().flat_map(|edited| edited.steps.clone()).collect();
        for kind in &self.kinds {
            let name = kind.taken.kind.crd();
            steps.push(format!("replace the spec of CRD {name}; the CRD stays, and so do its objects"));
        }
        let (objects, workloads) = (self.count(), self.workloads.len());
        steps.push(format!(
            "check that all of {objects} objects can be read and no pod template of {workloads} workloads has changed"
        ));
        for kind in &self.kinds {
            let name = kind.taken.kind.crd();
            steps.push(format!("label CRD {name} as dapple's: a manager of dapple serves it from then on"));
        }
        steps
    }

    /// How many objects are taken over.
    pub fn count(&self) -> usize {
        self.kinds.iter().map(|kind| kind.objects.len()).sum()
    }

    /// How many pods the workloads have.
    pub fn pods(&self) -> i64 {
        self.workloads.values().map(|workload| workload.pods).sum()
    }

    /// What has changed since this was judged, of the objects of the kinds, in their order, and of workloads: whatever changes them
    /// still acts on them, and would fight.
    pub fn changed(&self, objects: &[Vec<Value>], workloads: &[Value]) -> Vec<String> {
        let mut problems = Vec::new();
        for (kind, found) in self.kinds.iter().zip(objects) {
            let unread = found.iter().filter_map(|object| unread(kind.taken, object));
            problems.extend(unread.map(|refusal| refusal.to_string()));
            let uids: BTreeSet<&str> = found.iter().map(uid).collect();
            let gone = kind.objects.iter().filter(|(known, _)| !uids.contains(known.as_str()));
            problems.extend(gone.map(|(_, name)| format!("{name} is gone")));
        }
        let of_kinds: BTreeSet<&str> =
            self.kinds.iter().flat_map(|kind| kind.objects.keys()).map(String::as_str).collect();
        let is_its = |workload: &&Value| application_of(workload).is_some_and(|owner| of_kinds.contains(owner));
        let now: BTreeMap<&str, KeptWorkload> =
            workloads.iter().filter(is_its).map(|workload| (uid(workload), KeptWorkload::of(workload))).collect();
        for (known, before) in &self.workloads {
            match now.get(known.as_str()) {
                None => problems.push(format!("{} is gone", before.object)),
                Some(after) if after.template != before.template => {
                    problems.push(format!("the pod template of {} has changed", before.object));
                }
                Some(_) => {}
            }
        }
        let new = now.iter().filter(|(known, _)| !self.workloads.contains_key(**known));
        problems.extend(new.map(|(_, after)| format!("{} is new", after.object)));
        problems
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;

//! The revisions of a DaemonSet, as `dapple rollout history` shows them.

use dapple_api::daemonset::{DaemonSet, DaemonSetPatch};
use dapple_api::yaml;
use dapple_plan::cause::CHANGE_CAUSE;
use dapple_plan::daemonset::revision::Revision;
use dapple_plan::daemonset::rollback::Restored;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::PodFacts;
use crate::age::age;
use crate::paint::{Tone, harmless, paint};
use crate::table::plain;

/// A revision, and what its object says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionFacts {
    /// The revision.
    pub revision: Revision,
    /// When its object was made. One that became the newest again is older than its number.
    pub created: Option<Timestamp>,
    /// Its own annotation that says why.
    pub change_cause: Option<String>,
}

/// All revisions of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryView {
    /// The namespace of the DaemonSet.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its revisions, the newest last.
    pub revisions: Vec<RevisionView>,
    #[serde(skip)]
    now: Timestamp,
}

/// A revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionView {
    /// Its number.
    pub revision: i64,
    /// The name of its ControllerRevision.
    pub name: String,
    /// Why it was made.
    pub change_cause: Option<String>,
    /// When it was first made.
    pub created: Option<Timestamp>,
    /// Whether nodes that are held back get it.
    pub is_current: bool,
    /// Whether it is the one that is rolled out.
    pub is_update: bool,
    /// How many live pods have it.
    pub pods: usize,
}

impl HistoryView {
    /// The history of a DaemonSet with these revisions and pods.
    pub fn new(set: &DaemonSet, revisions: &[RevisionFacts], pods: &[PodFacts], now: Timestamp) -> Self {
        let mut sorted: Vec<&RevisionFacts> = revisions.iter().collect();
        sorted.sort_by_key(|facts| (facts.revision.number, &facts.revision.name));
        let status = set.status.as_ref();
        let current = status.and_then(|status| status.current_revision.as_deref());
        let update = newest(&sorted, status.and_then(|status| status.update_revision.as_deref()));
        let carried: Vec<Option<&str>> = pods.iter().map(|pod| revision_of(pod, &sorted, set, update)).collect();
        let view = |facts: &&RevisionFacts| {
            let Revision { name, number, .. } = &facts.revision;
            let is_update = update == Some(name);
            RevisionView {
                revision: *number,
                name: name.clone(),
                change_cause: change_cause(facts, is_update.then_some(set)),
                created: facts.created,
                is_current: current == Some(name),
                is_update,
                pods: carried.iter().filter(|carried| **carried == Some(name)).count(),
            }
        };
        Self {
            namespace: set.metadata.namespace.clone().unwrap_or_default(),
            name: set.metadata.name.clone().unwrap_or_default(),
            revisions: sorted.iter().map(view).collect(),
            now,
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let heading = format!("daemonset.apps.kruise.io/{}", self.name);
        let rows = self.revisions.iter().map(|row| self.row(row)).collect();
        let table = plain(&["REVISION", "CHANGE-CAUSE", "AGE", "PODS", "ROLE"], rows);
        format!("{}\n{table}", paint(&heading, Tone::Heading, colour))
    }

    fn row(&self, row: &RevisionView) -> Vec<String> {
        let role = match (row.is_current, row.is_update) {
            (_, true) => "newest",
            (true, false) => "held back",
            (false, false) => "",
        };
        vec![
            row.revision.to_string(),
            harmless(row.change_cause.as_deref().unwrap_or("<none>")),
            row.created.map(|created| age(created, self.now)).unwrap_or_else(|| "<unknown>".to_owned()),
            row.pods.to_string(),
            role.to_owned(),
        ]
    }
}

/// The revision that is rolled out: the newest of those with the hash that the status names, since a change of patches
/// alone leaves it as it is. Before a controller says so, the newest of all. The last version of dapple named it by name.
fn newest<'a>(sorted: &[&'a RevisionFacts], told: Option<&str>) -> Option<&'a str> {
    let is_it = |facts: &&&RevisionFacts| match told {
        Some(told) => facts.revision.hash == told || facts.revision.name == told,
        None => true,
    };
    sorted.iter().rev().find(is_it).map(|facts| facts.revision.name.as_str())
}

/// The revision that a pod has. One that the newest revision would make just so has that, whatever it was made from: a
/// change of patches leaves alone whom no patch is for.
fn revision_of<'a>(
    pod: &PodFacts,
    sorted: &[&'a RevisionFacts],
    set: &DaemonSet,
    update: Option<&str>,
) -> Option<&'a str> {
    if pod.is_terminating {
        return None;
    }
    let named = |name: Option<&str>| sorted.iter().find(|facts| Some(facts.revision.name.as_str()) == name);
    let has_hash = |facts: &&&RevisionFacts| !pod.hash.is_empty() && facts.revision.hash == pod.hash;
    let variants = set.status.iter().flat_map(|status| &status.variants);
    let is_variant = variants.into_iter().any(|variant| !pod.hash.is_empty() && variant.hash == pod.hash);
    let newest = named(update).filter(|facts| is_variant || has_hash(facts));
    let by_name = || named(pod.revision.as_deref());
    let by_hash = || sorted.iter().rev().find(has_hash);
    newest.or_else(by_name).or_else(by_hash).map(|facts| facts.revision.name.as_str())
}

/// Why a revision was made: what its object says, else its template, else, of the newest, the DaemonSet.
fn change_cause(facts: &RevisionFacts, set: Option<&DaemonSet>) -> Option<String> {
    let template = || {
        let annotations = facts.revision.data.pointer("/spec/template/metadata/annotations")?;
        Some(annotations.get(CHANGE_CAUSE)?.as_str()?.to_owned())
    };
    let of_set = || set?.metadata.annotations.as_ref()?.get(CHANGE_CAUSE).cloned();
    let found = facts.change_cause.clone().or_else(template).or_else(of_set);
    found.filter(|text| !text.trim().is_empty())
}

/// One revision in full.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RevisionDetailView {
    /// The namespace of the DaemonSet.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The number.
    pub revision: i64,
    /// The template.
    pub template: Value,
    /// The patches.
    pub patches: Vec<DaemonSetPatch>,
}

impl RevisionDetailView {
    /// What a revision of a DaemonSet holds.
    pub fn new(set: &DaemonSet, restored: Restored) -> Self {
        Self {
            namespace: set.metadata.namespace.clone().unwrap_or_default(),
            name: set.metadata.name.clone().unwrap_or_default(),
            revision: restored.number,
            template: restored.template,
            patches: restored.patches,
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let heading = format!("daemonset.apps.kruise.io/{} with revision #{}", self.name, self.revision);
        let mut document = json!({"template": self.template});
        if !self.patches.is_empty() {
            document["patches"] = json!(self.patches);
        }
        let lines = yaml::document(&document);
        lines
            .lines()
            .fold(format!("{}\n", paint(&heading, Tone::Heading, colour)), |text, line| text + &harmless(line) + "\n")
    }
}

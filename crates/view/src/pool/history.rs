//! The revisions of an application, as `dapple rollout history` shows them.

use dapple_api::pool::SubjectKind;
use dapple_api::yaml;
use dapple_plan::cause::CHANGE_CAUSE;
use dapple_plan::pool::object::ApplicationObject;
use dapple_plan::pool::revision::{Revision, data_of};
use dapple_plan::pool::version::Version;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::kind_of;
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

/// All revisions of an application.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryView {
    /// YurtAppSet or YurtAppDaemon.
    pub kind: &'static str,
    /// The namespace of the application.
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
    /// Whether it is the last one that was rolled out whole.
    pub is_current: bool,
    /// Whether it is the one that is rolled out.
    pub is_update: bool,
    /// The pools of which it last changed what they get.
    pub pools: Vec<String>,
}

impl HistoryView {
    /// The history of an application with these revisions.
    pub fn new(object: &ApplicationObject, revisions: &[RevisionFacts], now: Timestamp) -> Self {
        let mut sorted: Vec<&RevisionFacts> = revisions.iter().collect();
        sorted.sort_by_key(|facts| (facts.revision.number, &facts.revision.name));
        let status = &object.status;
        let view = |facts: &&RevisionFacts| {
            let Revision { name, number, .. } = &facts.revision;
            let is_update = status.update_revision.as_ref() == Some(name);
            let pools = status.pools.iter().filter(|pool| pool.revision == *name);
            RevisionView {
                revision: *number,
                name: name.clone(),
                change_cause: change_cause(facts, is_update.then_some(object)),
                created: facts.created,
                is_current: status.current_revision.as_ref() == Some(name),
                is_update,
                pools: pools.map(|pool| pool.name.clone()).collect(),
            }
        };
        Self {
            kind: kind_of(object.kind()),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            revisions: sorted.iter().map(view).collect(),
            now,
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let rows = self.revisions.iter().map(|row| self.row(row)).collect();
        let table = plain(&["REVISION", "CHANGE-CAUSE", "AGE", "POOLS", "ROLE"], rows);
        format!("{}\n{table}", paint(&heading(self.kind, &self.name), Tone::Heading, colour))
    }

    fn row(&self, row: &RevisionView) -> Vec<String> {
        let role = match (row.is_current, row.is_update) {
            (true, true) => "newest, rolled out whole",
            (false, true) => "newest",
            (true, false) => "last rolled out whole",
            (false, false) => "",
        };
        vec![
            row.revision.to_string(),
            harmless(row.change_cause.as_deref().unwrap_or("<none>")),
            row.created.map(|created| age(created, self.now)).unwrap_or_else(|| "<unknown>".to_owned()),
            row.pools.len().to_string(),
            role.to_owned(),
        ]
    }
}

fn heading(kind: &str, name: &str) -> String {
    format!("{}.apps.openyurt.io/{name}", kind.to_lowercase())
}

/// Why a revision was made: what its object says, else its template, else, of the newest, the application.
fn change_cause(facts: &RevisionFacts, object: Option<&ApplicationObject>) -> Option<String> {
    let template = || {
        let templates = &facts.revision.data["spec"]["workloadTemplate"];
        let found = ["deploymentTemplate", "statefulSetTemplate"].iter().find_map(|field| templates.get(*field))?;
        let annotations = found.pointer("/spec/template/metadata/annotations")?;
        Some(annotations.get(CHANGE_CAUSE)?.as_str()?.to_owned())
    };
    let of_object = || Some(object?.annotation(CHANGE_CAUSE)?.to_owned());
    let found = facts.change_cause.clone().or_else(template).or_else(of_object);
    found.filter(|text| !text.trim().is_empty())
}

/// One revision in full.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionDetailView {
    /// YurtAppSet or YurtAppDaemon.
    pub kind: &'static str,
    /// The namespace of the application.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The number.
    pub revision: i64,
    /// The template, the pools, and the replacements that were in force.
    pub says: Value,
}

impl RevisionDetailView {
    /// What a revision of an application holds.
    pub fn new(object: &ApplicationObject, number: i64, version: &Version) -> Self {
        Self {
            kind: kind_of(object.kind()),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            revision: number,
            says: says(version),
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let heading = format!("{} with revision #{}", heading(self.kind, &self.name), self.revision);
        let lines = yaml::document(&self.says);
        lines
            .lines()
            .fold(format!("{}\n", paint(&heading, Tone::Heading, colour)), |text, line| text + &harmless(line) + "\n")
    }
}

/// What a version says, field by field as the two objects have it.
pub fn says(version: &Version) -> Value {
    let mut data = data_of(version);
    if let Some(template) = data.pointer_mut("/spec/workloadTemplate").and_then(Value::as_object_mut) {
        // That it replaces what there is, is no part of it.
        template.remove("$patch");
    }
    let mut says = json!({"spec": data["spec"]});
    if !data["replacements"].is_null() {
        says["replacement"] = data["replacements"].take();
    }
    says
}

/// How the kind is written in what commands print, as kubectl does.
pub fn resource(kind: SubjectKind) -> String {
    format!("{}.apps.openyurt.io", kind_of(kind).to_lowercase())
}

//! Revisions of an application: what it and its replacements said, so that a pool can be kept at it and people can go back.
//!
//! A revision holds the template, the pools and the replacements in force. One that OpenYurt left holds the template alone: of
//! what it does not hold, what is said now counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::pool::Topology;
use dapple_edit::document::Document;
use dapple_edit::meaning::meaning;
use dapple_edit::render::{canonical, hash};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::version::{Application, Pools, Version};

/// Its name is the value of a label.
const LONGEST_NAME: usize = 63;

/// Nobody counts further.
const HIGHEST_NUMBER: i64 = 1 << 53;

/// A revision that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Its name.
    pub name: String,
    /// Its number: the newest has the highest, and each rollout has its own.
    pub number: i64,
    /// What it holds.
    pub data: Value,
}

/// What is to be done so that the newest revision is what the application says.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// Nothing: this one is it.
    Keep(String),
    /// An older one says the same: it becomes the newest, as after going back.
    Renumber {
        /// Its name.
        name: String,
        /// Its new number.
        number: i64,
    },
    /// None says so: make one.
    Create(Revision),
}

/// What a revision holds of a version.
pub fn data_of(version: &Version) -> Value {
    let mut template = json!(version.template);
    if let Some(map) = template.as_object_mut() {
        // As OpenYurt writes it: going back replaces the template, it does not merge.
        map.insert("$patch".to_owned(), json!("replace"));
    }
    let mut spec = json!({"workloadTemplate": template});
    match &version.pools {
        Pools::Named(topology) => spec["topology"] = json!(topology),
        Pools::Selected(selector) => spec["nodepoolSelector"] = json!(selector),
    }
    json!({"spec": spec, "replacements": version.replacements})
}

/// The version that a revision holds. What it does not hold is as `now` says; nothing if it is no revision of such an
/// application.
pub fn version_of(data: &Value, now: &Version) -> Option<Version> {
    let mut template = data.pointer("/spec/workloadTemplate")?.clone();
    template.as_object_mut()?.remove("$patch");
    let template = serde_json::from_value(template).ok()?;
    let pools = match &now.pools {
        Pools::Named(_) => data
            .pointer("/spec/topology")
            .map(|topology| serde_json::from_value::<Topology>(topology.clone()).map(Pools::Named)),
        Pools::Selected(_) => data
            .pointer("/spec/nodepoolSelector")
            .map(|selector| serde_json::from_value::<Option<LabelSelector>>(selector.clone()).map(Pools::Selected)),
    };
    let replacements = data.get("replacements").map(|said| serde_json::from_value(said.clone()));
    Some(Version {
        template,
        pools: pools.transpose().ok()?.unwrap_or_else(|| now.pools.clone()),
        replacements: replacements.transpose().ok()?.unwrap_or_else(|| now.replacements.clone()),
        history_limit: now.history_limit,
    })
}

/// Whether a revision holds all that decides what pools get: one that OpenYurt left does not.
pub fn is_whole(data: &Value) -> bool {
    data.get("replacements").is_some()
}

/// A version, with what is said now of all pools that joined later.
pub(super) fn with_joined(version: &Arc<Version>, now: &Version) -> Arc<Version> {
    let (Pools::Named(topology), Pools::Named(all)) = (&version.pools, &now.pools) else { return version.clone() };
    let known: BTreeSet<&str> = topology.pools.iter().map(|pool| pool.name.as_str()).collect();
    let mut joined = all.pools.iter().filter(|pool| !known.contains(pool.name.as_str())).peekable();
    if joined.peek().is_none() {
        return version.clone();
    }
    let pools = topology.pools.iter().chain(joined).cloned().collect();
    Arc::new(Version { pools: Pools::Named(Topology { pools }), ..Version::clone(version) })
}

/// The version of a revision, with what is said now of a pool that joined later.
pub fn version_for(data: &Value, now: &Version, pool: &str) -> Option<Version> {
    let mut version = version_of(data, now)?;
    if let (Pools::Named(topology), None, Some((_, said))) = (&version.pools, version.pool(pool), now.pool(pool)) {
        let mut topology = topology.clone();
        topology.pools.push(said.clone());
        version.pools = Pools::Named(topology);
    }
    Some(version)
}

/// Decides which revision is the newest. `collisions` is how often a name was taken by something else.
pub fn settle(application: &Application, version: &Version, revisions: &[Revision], collisions: i32) -> Settled {
    let wanted = data_of(version);
    let newest = revisions.iter().map(|revision| revision.number).max().unwrap_or(0);
    let next = newest.saturating_add(1).min(HIGHEST_NUMBER);
    let same = revisions.iter().filter(|revision| says_the_same(&revision.data, &wanted));
    match same.max_by_key(|revision| (revision.number, &revision.name)) {
        Some(found) if found.number == newest => Settled::Keep(found.name.clone()),
        Some(found) => Settled::Renumber { name: found.name.clone(), number: next },
        None => Settled::Create(made(application, wanted, (revisions, next), collisions)),
    }
}

/// A newest revision in place of one that says the same, and which the API server does not let anybody number anew.
pub fn stand_in(
    application: &Application,
    version: &Version,
    revisions: &[Revision],
    (number, collisions): (i64, i32),
) -> Revision {
    made(application, data_of(version), (revisions, number), collisions)
}

/// A revision of this number, under a name that none of these has.
fn made(application: &Application, data: Value, (revisions, number): (&[Revision], i64), collisions: i32) -> Revision {
    let is_taken = |name: &str| revisions.iter().any(|revision| revision.name == name);
    let meaning = meaning_of(&data);
    let named = |tried: i32| name_of(application, &meaning, tried);
    let tries = collisions.max(0)..;
    // There are fewer revisions than names to try.
    let name = tries.map(named).find(|name| !is_taken(name)).unwrap_or_default();
    Revision { name, number, data }
}

fn name_of(application: &Application, wanted: &Value, tried: i32) -> String {
    let digits = hash(&json!([format!("{:?}", application.kind), application.name, wanted, tried]));
    let ending = digits.get(..10).unwrap_or_default();
    let mut start = application.name.clone();
    start.truncate(LONGEST_NAME - 1 - ending.len());
    format!("{}-{ending}", start.trim_end_matches(['-', '.']))
}

/// The number of a revision. One that no counting can have come to is none: what comes after it would have no number left.
pub fn number_of(written: i64) -> i64 {
    if (0..=HIGHEST_NUMBER).contains(&written) { written } else { 0 }
}

/// The ControllerRevision of an application.
pub fn object(revision: &Revision, application: &Application) -> Value {
    let labels = application.selector.match_labels.clone().unwrap_or_default();
    json!({
        "metadata": {"name": revision.name, "labels": labels, "ownerReferences": [application.owner()]},
        "revision": revision.number, "data": revision.data,
    })
}

/// Revisions that may go: the oldest beyond the limit, but none that is still needed.
pub fn surplus(revisions: &[Revision], limit: usize, is_needed: impl Fn(&Revision) -> bool) -> Vec<&Revision> {
    let mut spare: Vec<&Revision> = revisions.iter().filter(|revision| !is_needed(revision)).collect();
    spare.sort_by_key(|revision| (revision.number, &revision.name));
    spare.truncate(spare.len().saturating_sub(limit));
    spare
}

/// Whether two revisions say the same, whoever wrote them. What is written alike is not looked at more closely.
fn says_the_same(one: &Value, other: &Value) -> bool {
    let is_written_alike = |place: &str| {
        let (one, other) = (one.pointer(place), other.pointer(place));
        one == other || one.map(canonical) == other.map(canonical)
    };
    let means_the_same = |place: &str, kind: Document| {
        let one = one.pointer(place).filter(|template| !template.is_null());
        let other = other.pointer(place).filter(|template| !template.is_null());
        let mean = |template: &Value| meaning(kind, template);
        one == other || one.map(mean) == other.map(mean)
    };
    ["/replacements", "/spec/nodepoolSelector", "/spec/topology"].into_iter().all(is_written_alike)
        && means_the_same("/spec/workloadTemplate/deploymentTemplate", Document::Deployment)
        && means_the_same("/spec/workloadTemplate/statefulSetTemplate", Document::StatefulSet)
}

/// What a revision says, whoever wrote it.
pub(super) fn meaning_of(data: &Value) -> Value {
    use dapple_edit::document::Document::{Deployment, StatefulSet};
    let templates = [("deploymentTemplate", Deployment), ("statefulSetTemplate", StatefulSet)];
    let said = |(field, kind)| {
        let template = data["spec"]["workloadTemplate"].get(field).filter(|template| !template.is_null());
        template.map(|template| meaning(kind, template))
    };
    let rest = [data["spec"].get("topology"), data["spec"].get("nodepoolSelector"), data.get("replacements")];
    json!([templates.map(said), rest.map(|value| value.map(canonical))])
}

#[cfg(test)]
#[path = "revision_tests.rs"]
mod tests;

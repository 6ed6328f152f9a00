//! Pools, the applications in them and the replacements for these, as `dapple get` shows them: for the terminal, the page and
//! JSON.

pub mod history;
pub mod rollout;
mod text;

pub use text::{applications, node_pools, replacements};

use dapple_api::pool::{
    NodePool, NodePoolType, PoolState, PoolStatus, SubjectKind, TemplateType, YurtAppConfigurationReplacement,
};
use dapple_plan::pool::health::Counts;
use dapple_plan::pool::object::ApplicationObject;
use dapple_plan::pool::progress::{Progress, State, progress};
use dapple_plan::pool::report;
use dapple_plan::pool::said::Said;
use dapple_plan::pool::status::{APPLIED, HELD, SUSPENDED};
use jiff::Timestamp;
use serde::Serialize;

use crate::object::{created, fresh};

/// An application.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationView {
    /// YurtAppSet or YurtAppDaemon.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// The kind of workload that each pool gets.
    pub workload: Option<&'static str>,
    /// The state, as a word for programs.
    pub state: &'static str,
    /// The state, in words for people.
    pub state_text: String,
    /// Whether nothing more is to be waited for.
    pub done: bool,
    /// How many pools it should be in.
    pub pool_count: usize,
    /// How many of them are as they should be.
    pub pools_done: usize,
    /// The pods of all pools.
    pub counts: CountsView,
    /// The last revision that was rolled out whole.
    pub current_revision: Option<String>,
    /// The newest revision.
    pub update_revision: Option<String>,
    /// The object whose replacements are in force.
    pub replacement: Option<String>,
    /// Each pool.
    pub pools: Vec<PoolView>,
    /// What is wrong, and why nothing goes on.
    pub notes: Vec<String>,
    /// The moment it is seen from.
    #[serde(skip)]
    now: Timestamp,
}

/// Pods, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CountsView {
    /// How many there should be.
    pub desired: i64,
    /// How many are of the newest template.
    pub updated: i64,
    /// How many are ready.
    pub ready: i64,
    /// How many are available.
    pub available: i64,
}

/// A pool of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its workload.
    pub workload: String,
    /// Its pods.
    pub counts: CountsView,
    /// The revision that last changed what it gets.
    pub revision: String,
    /// How far it is.
    pub state: PoolState,
    /// Why it is not done.
    pub message: String,
}

/// A pool of nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolView {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `Edge` or `Cloud`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its nodes, sorted.
    pub nodes: Vec<String>,
    /// How many of them are ready.
    pub ready: i32,
    /// How many are not.
    pub not_ready: i32,
    /// The state, as a word for programs.
    pub state: String,
    /// What keeps nodes from having what the pool gives.
    pub notes: Vec<String>,
    #[serde(skip)]
    now: Timestamp,
}

/// Replacements for an application.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementView {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// The application, as people name it.
    pub subject: String,
    /// How many pools of the application it changes.
    pub matched_pools: i32,
    /// How many of them have what it says.
    pub pools_in_effect: i32,
    /// How many of them wait for their turn, or are being changed.
    pub pools_waiting: i32,
    /// How many of them cannot be given what it says.
    pub pools_failed: i32,
    /// The state, as a word for programs.
    pub state: String,
    /// What keeps it from being in effect.
    pub notes: Vec<String>,
    #[serde(skip)]
    now: Timestamp,
}

impl ApplicationView {
    /// The view of an application at a moment.
    pub fn new(object: &ApplicationObject, now: Timestamp) -> Self {
        // Whether its replacement pauses it, a condition tells.
        let progress = progress(object, &Said::by(object, None));
        let status = &object.status;
        let (state, state_text) = state_of(&progress);
        Self {
            kind: kind_of(object.kind()),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            created: created(&object.metadata),
            workload: object.template().template_type().map(|kind| match kind {
                TemplateType::Deployment => "Deployment",
                TemplateType::StatefulSet => "StatefulSet",
            }),
            state,
            state_text,
            done: progress.is_done,
            pool_count: progress.pools,
            pools_done: progress.done,
            counts: progress.counts.into(),
            current_revision: status.current_revision.clone(),
            update_revision: status.update_revision.clone(),
            replacement: status.overrider_ref.clone(),
            pools: status.pools.iter().map(PoolView::new).collect(),
            notes: progress.notes,
            now,
        }
    }
}

impl From<Counts> for CountsView {
    fn from(counts: Counts) -> Self {
        let Counts { desired, updated, ready, available } = counts;
        Self { desired, updated, ready, available }
    }
}

impl PoolView {
    fn new(pool: &PoolStatus) -> Self {
        let PoolStatus { desired, updated, ready, available, .. } = *pool;
        Self {
            name: pool.name.clone(),
            workload: pool.workload.clone(),
            counts: CountsView { desired, updated, ready, available },
            revision: pool.revision.clone(),
            state: pool.state,
            message: pool.message.clone(),
        }
    }
}

impl NodePoolView {
    /// The view of a pool of nodes at a moment.
    pub fn new(pool: &NodePool, now: Timestamp) -> Self {
        let status = pool.status.clone().unwrap_or_default();
        let fresh = |kind: &str| fresh(&status.conditions, &pool.metadata, kind);
        let applied = fresh(APPLIED);
        let told =
            [applied.filter(|known| known.status == "False"), fresh(HELD).filter(|known| known.status == "True")];
        let notes = told.into_iter().flatten().map(|known| known.message.clone()).collect();
        let is_suspended = fresh(SUSPENDED).is_some_and(|known| known.status == "True");
        let reason = applied.map_or("NotBegun", |known| known.reason.as_str());
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            created: created(&pool.metadata),
            kind: match pool.spec.pool_type() {
                NodePoolType::Edge => "Edge",
                NodePoolType::Cloud => "Cloud",
            },
            ready: status.ready_node_num,
            not_ready: status.unready_node_num,
            state: if is_suspended { "Suspended" } else { reason }.to_owned(),
            notes,
            nodes: status.nodes.clone(),
            now,
        }
    }
}

impl ReplacementView {
    /// The view of replacements at a moment.
    pub fn new(replacement: &YurtAppConfigurationReplacement, now: Timestamp) -> Self {
        let (metadata, subject) = (&replacement.metadata, &replacement.subject);
        let status = replacement.status.clone().unwrap_or_default();
        let ready = fresh(&status.conditions, metadata, report::READY);
        let wrong = ready.filter(|known| known.status != "True");
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            created: created(metadata),
            subject: format!("{} {}", kind_of(subject.kind), subject.name),
            matched_pools: status.matched_pools,
            pools_in_effect: status.pools_in_effect,
            pools_waiting: status.pools_waiting,
            pools_failed: status.pools_failed,
            state: ready.map_or("NotBegun", |known| known.reason.as_str()).to_owned(),
            notes: wrong.map(|known| known.message.clone()).into_iter().collect(),
            now,
        }
    }
}

/// A kind of applications, as manifests have it.
pub(crate) fn kind_of(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::YurtAppSet => "YurtAppSet",
        SubjectKind::YurtAppDaemon => "YurtAppDaemon",
    }
}

/// A state as a word for programs, and in words for people.
fn state_of(progress: &Progress) -> (&'static str, String) {
    let (done, of) = (progress.done, progress.pools);
    match progress.state {
        State::Deleting => ("Deleting", "being deleted".to_owned()),
        State::Unseen => ("NotBegun", "not begun".to_owned()),
        State::Degraded => ("Degraded", "degraded".to_owned()),
        State::Stopped => ("Stopped", format!("stopped: {done} of {of} pools done")),
        State::Paused => ("Paused", "paused".to_owned()),
        State::RollingOut => ("RollingOut", format!("rolling out: {done} of {of} pools done")),
        State::Late { pools } => ("Late", format!("late: {pools} of {of} pools")),
        State::Unavailable { pools } => ("Unavailable", format!("unavailable: {pools} of {of} pools")),
        State::NoPools => ("NoPools", "no pools".to_owned()),
        State::Complete => ("Complete", "complete".to_owned()),
    }
}

#[cfg(test)]
mod tests;

//! What is known of an application: its pools, its workloads, its replacement and its revisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::pool::Rules;
use dapple_api::selector::Selector;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::pool::application::{AskedPool, Existing};
use dapple_plan::pool::learned::Learned;
use dapple_plan::pool::removal::Confirmed;
use dapple_plan::pool::renderings::Renderings;
use dapple_plan::pool::revision::{self, number_of};
use dapple_plan::pool::said::Said;
use dapple_plan::pool::version::{Application, InForce, Pools, Version};
use jiff::Timestamp;
use serde_json::Value;

use super::super::cache::BY_POOL;
use super::super::kept::{ApplicationSpec, Kept, Workload};
use super::super::{Pool, Replacement};
use super::io::{Io, WorkloadKind};
use super::recalled::Recalled;
use crate::caches::Subscription;
use crate::slim::{Key, Revision};

const POOLS_UNKNOWN: &str = "it is not known which NodePools there are: nothing is done";

/// What is known of an application.
pub(super) struct View {
    pub(super) application: Application,
    pub(super) version: Arc<Version>,
    pub(super) renderings: Arc<Renderings>,
    pub(super) kind: WorkloadKind,
    pub(super) replacement: Option<Arc<Replacement>>,
    /// Others for the same application, which do not count.
    pub(super) others: Vec<Arc<Replacement>>,
    /// Those for one of this name in another namespace.
    pub(super) astray: Vec<Arc<Replacement>>,
    pub(super) revisions: Arc<Vec<revision::Revision>>,
    /// The revision that holds what is said now, once it is there.
    pub(super) newest: Option<revision::Revision>,
    /// Stands for it before.
    pub(super) nothing: revision::Revision,
    pub(super) pools: Vec<AskedPool>,
    pub(super) workloads: Vec<Existing>,
    /// Whether it is known of each if its number of pods is autoscaled.
    pub(super) numbers: Numbers,
    pub(super) refused: BTreeMap<String, String>,
    pub(super) learned: Learned,
    pub(super) rules: Rules,
    pub(super) grace: Option<i64>,
    pub(super) confirmed: Confirmed,
    pub(super) resumed: Option<Timestamp>,
    pub(super) is_suspended: bool,
    /// What is to be told of besides.
    pub(super) failures: Vec<String>,
}

/// Whether it is known which numbers of pods autoscalers set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// It did not matter yet.
    Unknown,
    /// As of a moment ago: that is enough for whoever waits, and not for a write.
    Recalled,
    /// The API server was asked in this look.
    Asked,
}

impl Numbers {
    /// Whether it is to be found out, if numbers are written, or lowered once it is a pool's turn.
    pub(super) fn are_asked(self, are_written: bool, is_lowered: bool) -> bool {
        match self {
            Self::Unknown => are_written || is_lowered,
            Self::Recalled => are_written,
            Self::Asked => false,
        }
    }
}

/// What can be said of an application just now.
pub(super) enum Situation {
    /// All that decides.
    Known(Box<View>),
    /// Our own last writes were not seen yet.
    Behind,
    /// Something that decides is not known: nothing is done.
    Unknown(String),
}

/// What is known of an application.
pub(super) fn observe<S: ApplicationSpec>(io: &Io<S>, kept: &Kept<S>, recalled: &mut Recalled) -> Situation {
    let (namespace, uid) = (&kept.meta.key.namespace, &kept.meta.uid);
    let is_lost = || io.replacements.malformed().keys().any(|key| key.namespace == *namespace);
    if !io.replacements.is_known() {
        return Situation::Unknown("it is not known which replacements there are".to_owned());
    } else if is_lost() {
        return Situation::Unknown("a replacement of its namespace cannot be read, and may be its own".to_owned());
    }
    let (mut counted, astray) = addressed::<S>(&io.replacements, &kept.meta.key);
    let others = counted.split_off(counted.len().min(1));
    let replacement = counted.pop();
    let version = recalled.version(kept, replacement.as_deref());
    let Some(document) = version.document() else {
        let text = "spec.workloadTemplate must have one of deploymentTemplate and statefulSetTemplate";
        return Situation::Unknown(text.to_owned());
    };
    let kind = WorkloadKind::of(document);
    if let Some(other) = io.workloads(kind.other()).find(Workload::BY_OWNER, uid).first() {
        let name = &other.meta.key.name;
        let text =
            format!("its template is of another kind than its workload {name}: nothing is done until it is put back");
        return Situation::Unknown(text);
    }
    let known = io.workloads(kind).find(Workload::BY_OWNER, uid);
    let mut revisions = io.revisions.find(Revision::BY_OWNER, uid);
    revisions.retain(|revision| revision.is_of(S::KIND, &kept.meta));
    let are_seen = known.iter().all(|workload| io.workloads(kind).caught_up(&workload.meta.key))
        && revisions.iter().all(|revision| io.revisions.caught_up(&revision.meta.key));
    if !are_seen || !io.applications.caught_up(&kept.meta.key) {
        return Situation::Behind;
    }
    if matches!(version.pools, Pools::Selected(_)) && !io.knows_pools() && !is_on(Mutant::UnknownPoolsAreNone) {
        return Situation::Unknown(POOLS_UNKNOWN.to_owned());
    }
    let pools = match asked(&io.pools, &version) {
        Ok(pools) => pools,
        Err(reason) => return Situation::Unknown(reason),
    };
    let names: BTreeSet<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    let existing = |known: &Arc<Workload>| Existing {
        is_left_alone: !names.contains(&*known.pool) && is_untouchable(io, &version, &known.pool),
        ..Existing::new(known.pool.clone(), known.object.clone())
    };
    let workloads = known.iter().map(existing).collect();
    let mut view = View {
        failures: Vec::new(),
        application: kept.application(),
        version,
        renderings: recalled.renderings(),
        kind,
        others,
        astray,
        revisions: recalled.revisions(&revisions),
        newest: None,
        nothing: revision::Revision { name: String::new(), number: 0, data: Value::Null },
        pools,
        workloads,
        numbers: Numbers::Unknown,
        refused: BTreeMap::new(),
        learned: Learned::default(),
        rules: Rules::default(),
        grace: None,
        confirmed: Confirmed::default(),
        resumed: None,
        is_suspended: false,
        replacement,
    };
    view.heed(&kept.annotations);
    Situation::Known(Box::new(view))
}

impl View {
    /// Does as annotations say: the application's own, and of its replacement's those about rollouts if it has none.
    fn heed(&mut self, annotations: &BTreeMap<String, String>) {
        let replacement = self.replacement.clone();
        let own = |key: &str| annotations.get(key).map(String::as_str);
        let of_replacement = |key: &str| replacement.as_ref()?.annotations.get(key).map(String::as_str);
        let said = Said::of(own, of_replacement);
        self.is_suspended = said.is_suspended && !is_on(Mutant::SuspendedAppWritten) || said.wrong.is_some();
        self.failures.extend(said.wrong.map(|wrong| format!("{wrong}; nothing is written until it is right")));
        (self.rules, self.grace, self.confirmed, self.resumed) = (said.rules, said.grace, said.confirmed, said.resumed);
    }
}

/// A revision as decisions know it.
pub(in crate::pool) fn plain(known: &Revision) -> revision::Revision {
    let name = known.meta.key.name.to_string();
    revision::Revision { name, number: number_of(known.number), data: known.data.clone() }
}

/// A replacement that counts, as decisions know it.
pub(in crate::pool) fn in_force(known: &Replacement) -> InForce {
    InForce { name: known.meta.key.name.to_string(), replacements: Vec::clone(&known.replacements) }
}

/// The replacements for an application, the oldest first: that one counts. And those for one of this name in another namespace.
pub(in crate::pool) fn addressed<S: ApplicationSpec>(
    known: &Subscription<Replacement>,
    key: &Key,
) -> (Vec<Arc<Replacement>>, Vec<Arc<Replacement>>) {
    let mut all = known.in_namespace(&key.namespace);
    all.retain(|known| known.subject.kind == S::SUBJECT && *known.subject.name == *key.name);
    all.sort_by_key(|known| (known.created.as_ref().map(|time| time.0), known.meta.key.name.clone()));
    let is_here =
        |known: &Arc<Replacement>| known.subject.namespace().is_none_or(|namespace| namespace == &*key.namespace);
    all.into_iter().partition(is_here)
}

/// The pools that an application should be in.
pub(in crate::pool) fn asked(known: &Subscription<Pool>, version: &Version) -> Result<Vec<AskedPool>, String> {
    let selector = match &version.pools {
        Pools::Named(topology) => {
            let pools = topology.pools.iter().map(|pool| AskedPool { name: pool.name.clone(), taints: Vec::new() });
            return Ok(pools.collect());
        }
        Pools::Selected(selector) => selector.as_ref(),
    };
    if !known.is_known() && !is_on(Mutant::UnknownPoolsAreNone) {
        return Err(POOLS_UNKNOWN.to_owned());
    }
    let selector =
        selector.map(Selector::new).transpose().map_err(|error| format!("spec.nodepoolSelector: {error}"))?;
    let is_selected = |pool: &Arc<Pool>| {
        let is_readable = !known.is_malformed(&pool.meta.key);
        is_readable && selector.as_ref().is_some_and(|selector| selector.matches(|key| pool.labels.get(key)))
    };
    let selected = known.all().into_iter().filter(is_selected);
    Ok(selected
        .map(|pool| AskedPool { name: pool.meta.key.name.to_string(), taints: pool.spec.taints.clone() })
        .collect())
}

/// Whether nothing may be changed in a pool of a YurtAppDaemon: its NodePool cannot be read, or it is gone while nodes carry its
/// label.
fn is_untouchable<S: ApplicationSpec>(io: &Io<S>, version: &Version, pool: &str) -> bool {
    let key = Key::new("", pool);
    let is_gone = || io.pools.get(&key).is_none() && io.nodes.count(BY_POOL, pool) > 0;
    matches!(version.pools, Pools::Selected(_))
        && (io.pools.is_malformed(&key) || is_gone() && !is_on(Mutant::GonePoolsLeave))
}

#[cfg(test)]
mod tests {
    use super::Numbers::{Asked, Recalled, Unknown};

    #[test]
    fn who_waits_is_told_what_was_said_before_and_no_number_is_written_by_that() {
        for (numbers, are_written, is_lowered, are_asked) in [
            (Unknown, false, false, false),
            (Unknown, false, true, true),
            (Unknown, true, false, true),
            (Recalled, false, true, false),
            (Recalled, true, true, true),
            (Asked, true, true, false),
        ] {
            assert_eq!(numbers.are_asked(are_written, is_lowered), are_asked, "{numbers:?} {are_written} {is_lowered}");
        }
    }
}

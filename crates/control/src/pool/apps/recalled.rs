//! What is kept of an application from one look to the next since it costs much to find out: it follows from what is cached, and is found
//! out anew as soon as that is another.

use std::sync::Arc;

use dapple_plan::pool::renderings::Renderings;
use dapple_plan::pool::revision::{self, Settled, settle};
use dapple_plan::pool::version::{Application, Version};

use super::super::Replacement;
use super::super::kept::{ApplicationSpec, Kept};
use super::observe::{in_force, plain};
use crate::slim::Revision;

/// A UID with a generation: what an object says follows from them.
type Said = (Arc<str>, Option<i64>);
/// UIDs with versions of revisions.
type Cached = Vec<(Arc<str>, u64)>;
type Revisions = Arc<Vec<revision::Revision>>;

/// What was found out.
#[derive(Default)]
pub(super) struct Recalled {
    version: Option<(Said, Option<Said>, Arc<Version>)>,
    revisions: Option<(Cached, Revisions)>,
    newest: Option<Newest>,
    renderings: Arc<Renderings>,
    /// How many of the renderings are counted.
    counted: u64,
}

/// Which revision holds what is said.
struct Newest {
    version: Arc<Version>,
    revisions: Revisions,
    name: String,
}

impl Recalled {
    /// What an application says, with its replacement.
    pub(super) fn version<S: ApplicationSpec>(
        &mut self,
        kept: &Kept<S>,
        replacement: Option<&Replacement>,
    ) -> Arc<Version> {
        let own = (kept.meta.uid.clone(), kept.generation);
        let with = replacement.map(|known| (known.meta.uid.clone(), known.generation));
        let are_counted = own.1.is_some() && with.as_ref().is_none_or(|(_, generation)| generation.is_some());
        if let Some((known, known_with, version)) = &self.version
            && are_counted
            && (known, known_with) == (&own, &with)
        {
            return version.clone();
        }
        let version = Arc::new(kept.spec.version(replacement.map(in_force)));
        self.version = Some((own, with, version.clone()));
        version
    }

    /// Its revisions, as decisions know them.
    pub(super) fn revisions(&mut self, cached: &[Arc<Revision>]) -> Revisions {
        let of: Cached = cached.iter().map(|known| (known.meta.uid.clone(), known.meta.version)).collect();
        if let Some((known, revisions)) = &self.revisions
            && *known == of
        {
            return revisions.clone();
        }
        let revisions: Revisions = Arc::new(cached.iter().map(|known| plain(known)).collect());
        self.revisions = Some((of, revisions.clone()));
        revisions
    }

    /// Which revision is to be the newest.
    pub(super) fn settle(
        &mut self,
        application: &Application,
        (version, revisions): (&Arc<Version>, &Revisions),
        collisions: i32,
    ) -> Settled {
        let is_it = |known: &&Newest| Arc::ptr_eq(&known.version, version) && Arc::ptr_eq(&known.revisions, revisions);
        if let Some(known) = self.newest.as_ref().filter(is_it) {
            return Settled::Keep(known.name.clone());
        }
        let settled = settle(application, version, revisions, collisions);
        self.newest = match &settled {
            Settled::Keep(name) => {
                Some(Newest { version: version.clone(), revisions: revisions.clone(), name: name.clone() })
            }
            Settled::Renumber { .. } | Settled::Create(_) => None,
        };
        settled
    }

    /// What its pools got.
    pub(super) fn renderings(&self) -> Arc<Renderings> {
        self.renderings.clone()
    }

    /// How often a pool was rendered since this was asked.
    pub(super) fn rendered(&mut self) -> u64 {
        let made = self.renderings.made();
        let before = std::mem::replace(&mut self.counted, made);
        made.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dapple_api::pool::{YurtAppSetSpec, YurtAppSetStatus};
    use serde_json::json;

    use super::*;
    use crate::slim::{Key, Meta};

    fn kept(uid: &str, generation: Option<i64>) -> Kept<YurtAppSetSpec> {
        let spec = json!({
            "selector": {"matchLabels": {"app": "web"}}, "topology": {"pools": [{"name": "edge"}]},
            "workloadTemplate": {"deploymentTemplate": {"spec": {"selector": {}, "template": {}}}},
        });
        Kept {
            meta: Meta { key: Key::new("default", "web"), uid: Arc::from(uid), version: 1 },
            generation,
            annotations: BTreeMap::new(),
            is_terminating: false,
            spec: serde_json::from_value(spec).unwrap(),
            status: YurtAppSetStatus::default(),
        }
    }

    #[test]
    fn what_is_said_is_read_once_and_anew_with_each_generation() {
        let mut recalled = Recalled::default();
        let first = recalled.version(&kept("a", Some(1)), None);
        assert!(Arc::ptr_eq(&first, &recalled.version(&kept("a", Some(1)), None)));
        for (uid, generation) in [("a", Some(2)), ("b", Some(2)), ("b", None), ("b", None)] {
            let before = recalled.version(&kept("a", Some(1)), None);
            assert!(!Arc::ptr_eq(&before, &recalled.version(&kept(uid, generation), None)), "{uid} {generation:?}");
        }
    }

    #[test]
    fn the_newest_revision_is_found_once() {
        let mut recalled = Recalled::default();
        let of = kept("a", Some(1));
        let (application, version) = (of.application(), recalled.version(&of, None));
        let Settled::Create(made) = recalled.settle(&application, (&version, &Arc::default()), 0) else {
            panic!("there is none yet")
        };
        let all = Arc::new(vec![made.clone()]);
        for _ in 0..2 {
            let settled = recalled.settle(&application, (&version, &all), 0);
            assert_eq!(settled, Settled::Keep(made.name.clone()));
        }
        // Somebody has made one with a higher number meanwhile.
        let other = revision::Revision { name: "other".to_owned(), number: 2, data: json!({}) };
        let all = Arc::new(vec![made.clone(), other]);
        let settled = recalled.settle(&application, (&version, &all), 0);
        assert_eq!(settled, Settled::Renumber { name: made.name, number: 3 });
    }
}

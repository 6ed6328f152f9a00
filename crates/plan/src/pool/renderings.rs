//! What pools of one application get, kept from one look to the next by what it is made of: a change of one pool renders that pool
//! and no other, and an event that changes nothing renders nothing.
//!
//! Invariants:
//! - What is kept is what [`render`] would say: all that it reads is compared, by value. Where only the place of an item or of a pool
//!   in its list is another, what is kept counts if it names no place.
//! - It is forgotten with the process, and so with the version of dapple that rendered it.
//! - No more is kept than was asked for in the last two looks, and of one pool no more than a few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::pool::{Item, Pool, Taint, TaintEffect, WorkloadTemplate};
use serde_json::Value;

use super::revision::{Revision, version_of, with_joined};
use super::stored::Difference;
use super::version::{Application, Pools, Version};
use super::workload::{Rendered, Unrendered, render};

/// So many renderings of one pool are kept: of what is said now, of what its workload's revision said with and without taints, of the
/// revision before, and of the last one that was rolled out whole.
const OF_ONE_POOL: usize = 5;
/// So many versions are kept taken apart.
const VERSIONS: usize = 16;

/// What pools of one application get.
#[derive(Debug, Default)]
pub struct Renderings(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The number of this look.
    look: u64,
    /// How often a pool was rendered.
    made: u64,
    versions: Vec<Parts>,
    older: BTreeMap<String, Older>,
    pools: BTreeMap<String, Vec<Made>>,
}

/// What every pool of a version starts from.
#[derive(Debug, PartialEq)]
struct Basis {
    application: Application,
    template: WorkloadTemplate,
    history_limit: Option<i32>,
    is_selected: bool,
}

/// A version, taken apart.
#[derive(Debug)]
struct Parts {
    version: Arc<Version>,
    basis: Arc<Basis>,
    /// What a YurtAppSet says of its pools, and where.
    own: BTreeMap<String, (usize, Arc<Pool>)>,
    replacements: Vec<Items>,
    used: u64,
}

/// One of the replacements.
#[derive(Debug)]
struct Items {
    is_for_all: bool,
    pools: BTreeSet<String>,
    items: Arc<Vec<Item>>,
}

/// What a revision says.
#[derive(Debug)]
struct Older {
    revision: Revision,
    /// What was said when it was read: what the revision does not hold is taken from there.
    now: Arc<Version>,
    version: Option<Arc<Version>>,
    /// The same, with what was said of pools that joined later.
    with_joined: Option<Arc<Version>>,
    /// In which look it was last held against the revision of its name.
    compared: u64,
}

/// All that decides what one pool gets.
#[derive(Debug)]
struct Ingredients {
    basis: Arc<Basis>,
    own: Option<Arc<Pool>>,
    items: Vec<Arc<Vec<Item>>>,
    taints: Vec<(String, TaintEffect)>,
    /// Where the pool and the items stand, and in which object.
    places: Places,
}

#[derive(Debug, PartialEq)]
struct Places {
    own: Option<usize>,
    items: Vec<usize>,
    object: Option<String>,
}

#[derive(Debug)]
struct Made {
    of: Ingredients,
    result: Result<Rendered, Unrendered>,
    /// How the pool's workload compared with it, as it was then.
    compared: Option<Compared>,
    used: u64,
}

/// How a workload, as it is stored, compares with a rendering.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The workload.
    pub stored: Arc<Value>,
    /// Whether the number of its pods is autoscaled.
    pub is_autoscaled: bool,
    /// How it differs.
    pub difference: Difference,
    /// What should be stored, and what its own revision said; none if it is as it should be whatever that said.
    pub beside: Option<(Arc<Value>, Option<Arc<Value>>)>,
}

impl Renderings {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a pool was rendered so far.
    pub fn made(&self) -> u64 {
        self.kept().made
    }

    /// Another look begins: what the last one did not ask for is dropped.
    pub fn begin(&self) {
        let mut kept = self.kept();
        let last = kept.look;
        kept.look += 1;
        kept.versions.retain(|parts| parts.used >= last);
        kept.older.retain(|_, older| older.compared >= last);
        kept.pools.retain(|_, made| {
            made.retain(|made| made.used >= last);
            !made.is_empty()
        });
    }

    /// What a pool gets of a version of its application.
    pub fn render(
        &self,
        application: &Application,
        version: &Arc<Version>,
        pool: &str,
        taints: &[Taint],
    ) -> Result<Rendered, Unrendered> {
        let mut kept = self.kept();
        let Kept { look, made: count, versions, pools, .. } = &mut *kept;
        let parts = parts_of(versions, application, version, *look);
        let asked = parts.ingredients(pool, taints);
        let known = pools.entry(pool.to_owned()).or_default();
        if let Some(found) = known.iter_mut().find(|made| made.is_of(&asked)) {
            found.used = *look;
            return found.result.clone();
        }
        *count += 1;
        let result = render(application, version, pool, taints);
        if known.len() >= OF_ONE_POOL
            && let Some(oldest) = (0..known.len()).min_by_key(|place| known[*place].used)
        {
            known.remove(oldest);
        }
        known.push(Made { of: asked, result: result.clone(), compared: None, used: *look });
        result
    }

    /// What a revision says.
    pub fn version_of(&self, revision: &Revision, now: &Arc<Version>) -> Option<Arc<Version>> {
        self.older(revision, now, |known| known.version.clone())
    }

    /// What a revision says, with what is said now of pools that joined later.
    pub fn version_for(&self, revision: &Revision, now: &Arc<Version>) -> Option<Arc<Version>> {
        self.older(revision, now, |known| known.with_joined.clone())
    }

    fn older<R>(&self, revision: &Revision, now: &Arc<Version>, told: impl FnOnce(&Older) -> R) -> R {
        let mut kept = self.kept();
        let Kept { look, older, .. } = &mut *kept;
        // In one look there is one of a name. Where looks are not told apart, it is compared each time.
        let is_compared = |known: &Older| *look > 0 && known.compared == *look;
        if let Some(known) = older.get_mut(&revision.name).filter(|known| Arc::ptr_eq(&known.now, now))
            && (is_compared(known) || known.revision == *revision)
        {
            known.compared = *look;
            return told(known);
        }
        let version = version_of(&revision.data, now).map(Arc::new);
        let with_joined = version.as_ref().map(|version| with_joined(version, now));
        let known = Older { revision: revision.clone(), now: now.clone(), version, with_joined, compared: *look };
        let answer = told(&known);
        older.insert(revision.name.clone(), known);
        answer
    }

    /// How a workload compares with this rendering, if nobody has written it since that was found out.
    pub fn compared(
        &self,
        pool: &str,
        rendered: &Rendered,
        (stored, is_autoscaled): (&Arc<Value>, bool),
    ) -> Option<Compared> {
        let kept = self.kept();
        let compared = kept.pools.get(pool)?.iter().find(|made| made.has(rendered))?.compared.as_ref()?;
        let is_it = Arc::ptr_eq(&compared.stored, stored) && compared.is_autoscaled == is_autoscaled;
        is_it.then(|| compared.clone())
    }

    /// Keeps how a workload compares with a rendering.
    pub fn note(&self, pool: &str, rendered: &Rendered, compared: Compared) {
        let mut kept = self.kept();
        let made = kept.pools.get_mut(pool).and_then(|known| known.iter_mut().find(|made| made.has(rendered)));
        if let Some(made) = made {
            made.compared = Some(compared);
        }
    }
}

/// A version taken apart, as it was before or anew.
fn parts_of<'k>(known: &'k mut Vec<Parts>, application: &Application, version: &Arc<Version>, look: u64) -> &'k Parts {
    let is_it = |parts: &Parts| Arc::ptr_eq(&parts.version, version) && parts.basis.application == *application;
    let place = match known.iter().position(is_it) {
        Some(place) => place,
        None => {
            if known.len() >= VERSIONS
                && let Some(oldest) = (0..known.len()).min_by_key(|place| known[*place].used)
            {
                known.remove(oldest);
            }
            let parts = Parts::new(application, version, known);
            known.push(parts);
            known.len() - 1
        }
    };
    known[place].used = look;
    &known[place]
}

impl Parts {
    fn new(application: &Application, version: &Arc<Version>, known: &[Self]) -> Self {
        let basis = Basis {
            application: application.clone(),
            template: version.template.clone(),
            history_limit: version.history_limit,
            is_selected: matches!(version.pools, Pools::Selected(_)),
        };
        let same = known.iter().find(|parts| *parts.basis == basis).map(|parts| parts.basis.clone());
        let mut own = BTreeMap::new();
        if let Pools::Named(topology) = &version.pools {
            // Of two of a name the first counts.
            for (place, pool) in topology.pools.iter().enumerate() {
                own.entry(pool.name.clone()).or_insert_with(|| (place, Arc::new(pool.clone())));
            }
        }
        let replacements = version.replacements.iter().flat_map(|in_force| &in_force.replacements);
        let replacements = replacements.map(|said| {
            let names = said.pools.names();
            Items {
                is_for_all: names.contains("*"),
                pools: names.into_iter().map(str::to_owned).collect(),
                items: Arc::new(said.items.clone()),
            }
        });
        Self {
            replacements: replacements.collect(),
            version: version.clone(),
            basis: same.unwrap_or_else(|| Arc::new(basis)),
            own,
            used: 0,
        }
    }

    /// All that decides what a pool gets.
    fn ingredients(&self, pool: &str, taints: &[Taint]) -> Ingredients {
        let own = self.own.get(pool);
        let all = self.replacements.iter().enumerate();
        let its = all.filter(|(_, known)| known.is_for_all || known.pools.contains(pool));
        let (places, items): (Vec<usize>, Vec<Arc<Vec<Item>>>) =
            its.map(|(place, known)| (place, known.items.clone())).unzip();
        let object = self.version.replacements.as_ref().map(|in_force| in_force.name.clone());
        Ingredients {
            basis: self.basis.clone(),
            own: own.map(|(_, said)| said.clone()),
            items,
            taints: taints.iter().map(|taint| (taint.key.clone(), taint.effect)).collect(),
            places: Places { own: own.map(|(place, _)| *place), items: places, object },
        }
    }
}

impl Ingredients {
    fn is_same(&self, other: &Self) -> bool {
        same(&self.basis, &other.basis)
            && match (&self.own, &other.own) {
                (Some(one), Some(other)) => same(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
            && self.items.len() == other.items.len()
            && self.items.iter().zip(&other.items).all(|(one, other)| same(one, other))
            && self.taints == other.taints
    }
}

fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || **one == **other
}

impl Made {
    /// Whether it is what these make. What an error or a warning says of places must be so still.
    fn is_of(&self, asked: &Ingredients) -> bool {
        let names_no_place = self.result.as_ref().is_ok_and(|rendered| rendered.unused.is_empty());
        self.of.is_same(asked) && (names_no_place || self.of.places == asked.places)
    }

    fn has(&self, rendered: &Rendered) -> bool {
        self.result.as_ref().is_ok_and(|made| Arc::ptr_eq(&made.workload, &rendered.workload))
    }
}

#[cfg(test)]
#[path = "renderings_tests.rs"]
mod tests;

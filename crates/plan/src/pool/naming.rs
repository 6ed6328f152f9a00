//! Which revision a workload names: the one that last changed what its pool gets. A newer one that gives the pool the same is not
//! named, or each revision would make the pods of every pool anew.

use super::application::Facts;
use super::revision::{Revision, is_whole};

/// The revision that last changed what a pool gets, as of one that gives it a rendering of this hash. The one that its workload names
/// already stays, if it gives the same.
pub(super) fn named(facts: &Facts<'_>, pool: &str, (newest, hash): (&Revision, &str), known: Option<&str>) -> String {
    let asked = facts.pools.iter().find(|asked| asked.name == pool);
    let taints = asked.map(|asked| asked.taints.as_slice()).unwrap_or_default();
    let gives_the_same = |revision: &Revision| {
        // What one does not hold is taken from what is said now: it is not known what it gave.
        let whole = Some(revision).filter(|revision| is_whole(&revision.data));
        let version = whole.and_then(|revision| facts.renderings.version_of(revision, facts.version));
        let rendered =
            version.and_then(|version| facts.renderings.render(facts.application, &version, pool, taints).ok());
        rendered.is_some_and(|rendered| *rendered.hash == *hash)
    };
    let mut older: Vec<&Revision> = facts.revisions.iter().filter(|revision| revision.number < newest.number).collect();
    older.sort_by_key(|revision| (revision.number, &revision.name));
    let mut named = newest;
    while known != Some(&*named.name)
        && let Some(revision) = older.pop()
        && gives_the_same(revision)
    {
        named = revision;
    }
    named.name.clone()
}

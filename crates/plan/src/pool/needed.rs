//! Which revisions of an application are needed still: those are never dropped.

use std::collections::BTreeSet;

use dapple_api::pool::{ApplicationStatus, POOL_REVISION_LABEL};
use serde_json::Value;

use super::application::{Action, Existing};

/// The names of the revisions that the status names, that workloads have, or that they will have once all this is written: a write
/// may name an older one, which gives its pool the same.
pub fn needed<'a>(
    status: &'a ApplicationStatus,
    actions: &'a [Action],
    workloads: &'a [Existing],
) -> BTreeSet<&'a str> {
    let told = [&status.current_revision, &status.update_revision].into_iter().flatten().map(String::as_str);
    let of_pools = status.pools.iter().map(|pool| pool.revision.as_str());
    let had = workloads.iter().filter_map(|workload| named_by(&workload.object));
    let written = actions.iter().filter_map(|action| match action {
        Action::Create { workload, .. } => named_by(workload),
        Action::Patch { patch, .. } => named_by(patch),
        Action::Delete { .. } => None,
    });
    told.chain(of_pools).chain(had).chain(written).collect()
}

fn named_by(workload: &Value) -> Option<&str> {
    workload["metadata"]["labels"].get(POOL_REVISION_LABEL)?.as_str()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dapple_api::pool::PoolStatus;
    use serde_json::json;

    use super::*;

    fn labelled(revision: &str) -> Value {
        json!({"metadata": {"labels": {POOL_REVISION_LABEL: revision}}})
    }

    #[test]
    fn a_revision_is_needed_by_whoever_names_it_now_or_once_all_is_written() {
        let pool = PoolStatus { revision: "of-a-pool".to_owned(), ..PoolStatus::default() };
        let status = ApplicationStatus {
            current_revision: Some("current".to_owned()),
            update_revision: Some("newest".to_owned()),
            pools: vec![pool],
            ..ApplicationStatus::default()
        };
        let (pool, name) = ("p".to_owned(), "w".to_owned());
        let deleted = (pool.clone(), name.clone(), String::new(), String::new());
        let actions = vec![
            Action::Create { pool: pool.clone(), workload: labelled("of-a-create") },
            Action::Patch { pool: pool.clone(), name: name.clone(), patch: labelled("of-a-patch"), repaired: None },
            Action::Patch { pool, name, patch: json!({"spec": {"replicas": 2}}), repaired: None },
            Action::Delete { pool: deleted.0, name: deleted.1, uid: deleted.2, version: deleted.3 },
        ];
        let workloads = [
            Existing::new("p".to_owned(), Arc::new(labelled("of-a-workload"))),
            Existing::new("q".to_owned(), Arc::new(json!({"metadata": {}}))),
        ];
        let wanted = ["current", "newest", "of-a-pool", "of-a-workload", "of-a-create", "of-a-patch"];
        assert_eq!(needed(&status, &actions, &workloads), BTreeSet::from(wanted));
    }
}

//! PodDisruptionBudgets and pods that are restarted where they run.
//!
//! An eviction is counted by the API server at once. A restart is not: the budget goes on counting the pod as healthy until its node has
//! begun, so that several in a row would pass under a budget that allows one. Invariant: as many pods that a budget selects are well
//! without the one that is restarted as the budget wants healthy, whatever its status has seen so far.

use dapple_api::selector::Selector;
use serde_json::Value;

use crate::node::Labels;

/// A pod that a budget may count.
pub struct Guarded<'p> {
    /// Its name.
    pub name: &'p str,
    /// Its labels.
    pub labels: &'p dyn Labels,
    /// Whether it is ready, is not leaving, and has done what was last changed of it.
    pub is_well: bool,
}

/// The name of a budget that has no room for the disruption of a pod with these labels which is well; none if all have. `pods` are those
/// of its namespace, this one among them.
#[must_use]
pub fn without_room<'b>(budgets: &'b [Value], labels: &dyn Labels, pods: &[Guarded<'_>]) -> Option<&'b str> {
    let is_full = |budget: &&Value| {
        let Some(selector) = selector(budget).filter(|selector| selector.matches(|key| labels.get(key))) else {
            return false;
        };
        let status = &budget["status"];
        // Those whose eviction the API server has let pass, and that are still there.
        let evicted = status["disruptedPods"].as_object();
        let counts = |pod: &&Guarded<'_>| {
            pod.is_well
                && selector.matches(|key| pod.labels.get(key))
                && !evicted.is_some_and(|evicted| evicted.contains_key(pod.name))
        };
        let well = pods.iter().filter(counts).count();
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        let room = number("disruptionsAllowed").min(i64::try_from(well).unwrap_or(i64::MAX) - number("desiredHealthy"));
        room < 1
    };
    budgets.iter().find(is_full).map(|full| full["metadata"]["name"].as_str().unwrap_or_default())
}

/// None if it selects nothing.
fn selector(budget: &Value) -> Option<Selector> {
    let selector = serde_json::from_value(budget["spec"]["selector"].clone()).ok()?;
    Selector::new(&selector).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn web() -> BTreeMap<String, String> {
        BTreeMap::from([("app".to_owned(), "web".to_owned())])
    }

    /// Of five pods, as the controller of budgets has counted them.
    fn budget(allowed: i64, desired: i64) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": allowed, "desiredHealthy": desired, "currentHealthy": 5, "expectedPods": 5}})
    }

    fn refused(budgets: &[Value], well: &[bool]) -> Option<String> {
        let labels = web();
        let names: Vec<String> = (0..well.len()).map(|number| format!("p{number}")).collect();
        let pods: Vec<Guarded<'_>> = names
            .iter()
            .zip(well)
            .map(|(name, is_well)| Guarded { name, labels: &labels, is_well: *is_well })
            .collect();
        without_room(budgets, &labels, &pods).map(str::to_owned)
    }

    #[test]
    fn five_restarts_in_a_row_do_not_pass_under_a_budget_of_one() {
        // Nothing of the restarts is in its status: they are told by the pods.
        let budget = [budget(1, 4)];
        assert_eq!(refused(&budget, &[true; 5]), None);
        assert_eq!(refused(&budget, &[false, true, true, true, true]), Some("web".to_owned()));
    }

    #[test]
    fn what_the_budget_has_seen_already_counts_once() {
        // Two may be away. One is, and the status has seen it.
        let mut seen = budget(1, 3);
        seen["status"]["currentHealthy"] = 4.into();
        assert_eq!(refused(&[seen], &[false, true, true, true, true]), None);
        assert_eq!(refused(&[budget(2, 3)], &[false, false, true, true, true]), Some("web".to_owned()));
        assert_eq!(refused(&[budget(0, 3)], &[true; 5]), Some("web".to_owned()), "it knows of others");
    }

    #[test]
    fn pods_that_are_being_evicted_are_not_counted_on() {
        let mut evicting = budget(1, 4);
        evicting["status"]["disruptedPods"] = json!({"p3": "2026-01-01T00:00:00Z"});
        assert_eq!(refused(&[evicting], &[true; 5]), Some("web".to_owned()));
    }

    #[test]
    fn other_budgets_and_other_pods_do_not_matter() {
        let mut other = budget(0, 5);
        other["spec"]["selector"] = json!({"matchLabels": {"app": "db"}});
        assert_eq!(refused(&[other.clone()], &[true; 5]), None);
        other["spec"]["selector"] = json!(null);
        assert_eq!(refused(&[other.clone()], &[true; 5]), None, "it selects nothing");
        other["spec"]["selector"] = json!({});
        assert_eq!(refused(&[budget(1, 4), other], &[true; 5]), Some("web".to_owned()), "it selects everything");
        let (labels, db) = (web(), BTreeMap::from([("app".to_owned(), "db".to_owned())]));
        let pods =
            [Guarded { name: "a", labels: &labels, is_well: true }, Guarded { name: "b", labels: &db, is_well: true }];
        assert_eq!(without_room(&[budget(1, 1)], &labels, &pods), Some("web"), "the other is none of its pods");
    }
}

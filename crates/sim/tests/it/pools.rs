//! Runs about applications in pools meet what they are there for: one in which nothing happens proves nothing.

use std::collections::BTreeSet;

use dapple_sim::run::run;
use dapple_sim::scenario::POOL;
use dapple_sim::trace::Trace;

/// So many seeds are looked at.
const SEEDS: u64 = 100;

/// What managers send, each in one of them at least: how, where, and what the answer is.
const MET: [(&str, &str, &str); 13] = [
    ("POST", "/apis/apps/v1/namespaces/default/controllerrevisions?", "201"),
    ("POST", "/apis/apps/v1/namespaces/default/deployments?", "201"),
    ("PATCH", "/apis/apps/v1/namespaces/default/deployments/", "200"),
    ("PATCH", "/apis/apps/v1/namespaces/default/deployments/orphan?", "200"),
    ("DELETE", "/apis/apps/v1/namespaces/default/deployments/", "200"),
    ("POST", "/apis/apps/v1/namespaces/default/statefulsets?", "201"),
    ("PATCH", "/apis/apps/v1/namespaces/default/statefulsets/", "200"),
    ("DELETE", "/apis/apps/v1/namespaces/default/statefulsets/", "200"),
    ("GET", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", "200"),
    ("PATCH", "/apis/apps.openyurt.io/v1alpha1/namespaces/default/yurtappsets/web/status", "200"),
    ("PATCH", "/apis/apps.openyurt.io/v1alpha1/namespaces/default/yurtappdaemons/agent/status", "200"),
    ("PATCH", "/apis/apps.openyurt.io/v1alpha1/namespaces/default/yurtappconfigurationreplacements/", "200"),
    ("PATCH", "dryRun=All", "200"),
];

#[test]
fn what_applications_in_pools_come_to_is_met() {
    let mut missing: BTreeSet<(&str, &str, &str)> = MET.into_iter().collect();
    for seed in 1..=SEEDS {
        let outcome = run(&POOL, &(POOL.script)(seed), &BTreeSet::new(), Trace::kept()).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        for line in outcome.trace.lines().iter().filter(|line| line.contains(" manager-")) {
            missing.retain(|(method, place, code)| {
                let is_it = line.contains(&format!(" {method} ")) && line.contains(place);
                !(is_it && line.ends_with(&format!("-> {code}")))
            });
        }
    }
    assert!(missing.is_empty(), "no manager has sent these: {missing:?}");
}

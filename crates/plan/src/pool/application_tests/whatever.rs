//! What holds whatever happens.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::pool::change::Changed;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever people and nodes do meanwhile: no more pools are in change than the budget says, no number of pods is written
    /// that is not declared anew, and in the end all is as it should be and nothing is written any more.
    #[test]
    fn budgets_hold_at_every_step_and_in_the_end_there_is_silence(
        count in 1_usize..15,
        happens in vec((0_u8..8, 0_usize..15, 1_u8..4), 1..25),
    ) {
        let mut cluster = settled(count);
        for (what, who, version) in happens {
            let pool = cluster.pools[who % cluster.pools.len()].clone();
            match what {
                0 | 1 => cluster.say(&format!("c:{version}"), 1),
                2 => cluster.say("c:1", i32::from(version)),
                3 => cluster.workload(&pool)["spec"]["replicas"] = json!(version),
                4 => cluster.workload(&pool)["spec"]["template"]["spec"]["hostNetwork"] = json!(true),
                5 => { cluster.workload(&pool)["status"]["availableReplicas"] = json!(0); }
                _ => {}
            }
            let number = cluster.settle().number;
            let completed = |workload: &Value| {
                let pool = &workload["metadata"]["labels"]["apps.openyurt.io/pool-name"];
                let told = cluster.status.pools.iter().find(|told| *pool == *told.name);
                told.and_then(|told| told.completed.as_ref()).map(|completed| completed.0)
            };
            let is_counted = |workload: &Value| {
                let newest = Revision { name: String::new(), number, data: Value::Null };
                // One that an earlier change has begun with, and that was well, counts until it is done.
                let takes = |changed: Changed| {
                    changed.rollout == number || changed.was_available && completed(workload) != Some(changed.at)
                };
                let is_changed = Changed::of(workload, &newest).is_some_and(takes);
                is_changed && workload["status"]["availableReplicas"].as_i64() < Some(declared_replicas(workload))
            };
            let before: BTreeMap<String, bool> = cluster.workloads.iter()
                .map(|workload| (workload["metadata"]["name"].as_str().unwrap_or_default().to_owned(), is_counted(workload)))
                .collect();
            let counted = before.values().filter(|is_counted| **is_counted).count();
            let budget = count.div_ceil(10).max(1);
            let actions = cluster.look();
            let started = actions.iter().filter(|action| match action {
                Action::Patch { name, patch, .. } => patch["spec"].get("template").is_some() && before.get(name) == Some(&false),
                _ => false,
            });
            let started = started.count();
            prop_assert!(started == 0 || counted + started <= budget, "{counted} and {started} more of {budget}");
            for action in &actions {
                if let Action::Patch { patch, .. } = action {
                    let number = patch["spec"]["replicas"].as_i64();
                    let noted = patch["metadata"]["annotations"][DECLARED_REPLICAS].as_str().map(str::to_owned);
                    prop_assert!(number.is_none() || noted == number.map(|number| number.to_string()));
                }
            }
            cluster.pass(15, good);
        }
        // Whoever fought has stopped, and an hour later nothing is held back.
        cluster.run(2, good);
        cluster.pass(3700, good);
        cluster.resumed = Some(cluster.now);
        cluster.run(80, good);
        prop_assert_eq!(cluster.look(), vec![]);
        let pools = cluster.pools.clone();
        prop_assert!(pools.iter().all(|pool| cluster.state(pool) == State::Done), "{:?}", cluster.status.pools);
    }
}

//! What is foretold is what is done.

use super::*;
use crate::pool::ahead::Seen;
use crate::pool::said::Said;

/// In which order the pools get their pods anew, wave by wave, as it is foretold.
fn foretold(cluster: &mut Cluster) -> Vec<Vec<String>> {
    let ahead = cluster.with_facts(|facts| {
        let said = Said {
            rules: facts.rules.clone(),
            wrong: None,
            grace: facts.grace,
            confirmed: facts.confirmed.clone(),
            resumed: facts.resumed,
            is_suspended: facts.is_suspended,
        };
        let seen = Seen {
            application: facts.application.clone(),
            version: Version::clone(facts.version),
            said,
            status: facts.status.clone(),
            revisions: facts.revisions.to_vec(),
            pools: facts.pools.to_vec(),
            workloads: facts.workloads.to_vec(),
            missing: facts.learned.missing.clone(),
        };
        seen.ahead(facts.now).expect("it is foretold")
    });
    let mut waves = BTreeMap::<usize, Vec<String>>::new();
    for pool in ahead.pools {
        if let Some(wave) = pool.wave {
            waves.entry(wave).or_default().push(pool.name);
        }
    }
    waves.into_values().collect()
}

/// The same, as it comes.
fn done(cluster: &mut Cluster) -> Vec<Vec<String>> {
    let mut waves = Vec::new();
    for _ in 0..40 {
        let changed = cluster.look().into_iter().filter_map(|action| match action {
            Action::Patch { pool, patch, .. } => (!patch["spec"]["template"].is_null()).then_some(pool),
            _ => None,
        });
        let mut changed: Vec<String> = changed.collect();
        changed.sort();
        waves.extend(Some(changed).filter(|changed| !changed.is_empty()));
        cluster.pass(15, good);
    }
    waves
}

#[test]
fn what_is_foretold_is_what_is_done() {
    let mut cluster = settled(25);
    cluster.say("c:2", 1);
    let waves = foretold(&mut cluster);
    assert_eq!(waves.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(done(&mut cluster), waves);
    assert!(foretold(&mut cluster).is_empty(), "then nothing is to be done");

    // In the middle of it, with pools that are under way, in an order of its own and with a pool that has to wait.
    cluster.rules = Rules::of(|key| match key {
        "dapple.dev/rollout-max" => Some("4"),
        "dapple.dev/rollout-order" => Some("p24, p03, *"),
        _ => None,
    })
    .expect("rules");
    cluster.say("c:3", 1);
    cluster.look();
    let waves = foretold(&mut cluster);
    assert_eq!((waves.len(), waves.concat().len()), (6, 21));
    assert_eq!(done(&mut cluster), waves);
}

//! What is put right, what is left alone, and what is remembered with a write.

use dapple_api::pool::{CHANGED, RENDERED};

use super::*;
use crate::pool::version::Pools;

#[test]
fn what_somebody_else_changes_is_put_right_three_times() {
    let mut cluster = settled(3);
    let mut repaired = 0;
    for _ in 0..20 {
        cluster.workload("p01")["spec"]["template"]["spec"]["containers"][0]["image"] = json!("foreign");
        let actions = cluster.look();
        repaired += actions.iter().filter(|action| matches!(action, Action::Patch { repaired: Some(_), .. })).count();
        cluster.pass(15, good);
    }
    assert_eq!(repaired, 3);
    assert_eq!(cluster.state("p01"), State::Failed);
    let field = "spec.template.spec.containers[name=c].image";
    let told = |cluster: &Cluster| cluster.status.pools[1].message.clone();
    assert!(told(&cluster).starts_with(&format!("somebody else keeps changing {field}: ")), "{}", told(&cluster));
    cluster.learned.changers.insert("p01".to_owned(), vec!["yurt-manager".to_owned()]);
    cluster.look();
    assert!(told(&cluster).starts_with(&format!("yurt-manager keeps changing {field}: ")), "{}", told(&cluster));
    cluster.say("c:2", 1);
    cluster.run(20, good);
    assert_eq!(cluster.with("c:2").len(), 3, "a newer change ends the pause");
}

#[test]
fn scaling_is_left_alone_and_a_declared_number_is_written_once() {
    let mut cluster = settled(3);
    cluster.workload("p01")["spec"]["replicas"] = json!(7);
    cluster.autoscaled.insert("p02".to_owned());
    cluster.workload("p02")["spec"]["replicas"] = json!(9);
    cluster.run(3, good);
    assert_eq!(cluster.look(), []);
    cluster.say("c:1", 4);
    cluster.run(10, good);
    let number = |cluster: &mut Cluster, pool: &str| declared_replicas(cluster.workload(pool));
    assert_eq!(["p00", "p01", "p02"].map(|pool| number(&mut cluster, pool)), [4, 4, 9]);
    assert_eq!(cluster.look(), []);
}

#[test]
fn what_is_remembered_is_stored_before_what_depends_on_it() {
    let mut cluster = settled(3);
    cluster.workload("p01")["spec"]["template"]["spec"]["containers"][0]["image"] = json!("foreign");
    let decision = cluster.decide();
    assert!(decision.must_be_stored_first && decision.actions.len() == 1, "{:?}", decision.actions);
    let mut taken_over = settled(3);
    for pool in ["p00", "p01", "p02"] {
        for note in [CHANGED, RENDERED] {
            if let Some(notes) = taken_over.workload(pool)["metadata"]["annotations"].as_object_mut() {
                notes.remove(note);
            }
        }
    }
    assert_eq!(taken_over.look(), [], "that notes are gone changes nothing");
}

/// The revisions that a pool's workload and its pods name.
fn named_in(cluster: &mut Cluster, pool: &str) -> [String; 2] {
    let workload = cluster.workload(pool);
    let metadata = [&workload["metadata"], &workload["spec"]["template"]["metadata"]];
    metadata.map(|metadata| metadata["labels"][POOL_REVISION_LABEL].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_workload_names_the_revision_that_last_changed_what_its_pool_gets() {
    let declare = |cluster: &mut Cluster, pool: usize, replicas: i32| {
        if let Pools::Named(topology) = &mut cluster.version.pools {
            topology.pools[pool].replicas = Some(replicas);
        }
    };
    let newest = |cluster: &Cluster| cluster.status.update_revision.clone().expect("there is one");
    let mut cluster = settled(3);
    let first = newest(&cluster);
    let both = |name: &String| [name.clone(), name.clone()];
    declare(&mut cluster, 1, 2);
    cluster.run(4, good);
    let second = newest(&cluster);
    assert_eq!(named_in(&mut cluster, "p01"), [second.clone(), first.clone()], "its pods stay as they are");
    assert_eq!(named_in(&mut cluster, "p00"), both(&first), "a revision that changes nothing there is not named");
    // What is put right is what it was: Kubernetes finds the pods of before.
    let before = cluster.workload("p00")["spec"]["template"].clone();
    cluster.workload("p00")["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    cluster.run(4, good);
    assert_eq!(cluster.workload("p00")["spec"]["template"], before);
    assert_eq!(named_in(&mut cluster, "p00"), both(&first));
    // One that waits for its turn is changed by the revision that says so, though a newer one is about another pool.
    cluster.say("c:2", 1);
    cluster.look();
    let third = newest(&cluster);
    declare(&mut cluster, 1, 3);
    cluster.run(20, good);
    let fourth = newest(&cluster);
    assert_eq!(
        ["p00", "p01", "p02"].map(|pool| named_in(&mut cluster, pool)),
        [both(&third), both(&fourth), both(&third)]
    );
    // One that comes back names what it had.
    cluster.workloads.retain(|workload| workload["metadata"]["labels"]["apps.openyurt.io/pool-name"] != "p02");
    cluster.run(4, good);
    assert_eq!(named_in(&mut cluster, "p02"), both(&third));
    assert_eq!(cluster.look(), []);
}

#[test]
fn who_keeps_putting_an_older_workload_in_its_place_is_put_right_three_times() {
    let was_taken_over = |known: &mut Value| {
        known["metadata"]["labels"][POOL_REVISION_LABEL] = json!("of-before");
        if let Some(notes) = known["metadata"]["annotations"].as_object_mut() {
            notes.retain(|key, _| !key.starts_with("dapple.dev/"));
        }
    };
    let had_no_label = |known: &mut Value| {
        if let Some(labels) = known["metadata"]["labels"].as_object_mut() {
            labels.remove(POOL_REVISION_LABEL);
        }
        if let Some(notes) = known["metadata"]["annotations"].as_object_mut() {
            notes.remove(RENDERED);
            notes.remove(CHANGED);
        }
    };
    let mut cluster = settled(3);
    let first = cluster.workload("p01").clone();
    cluster.say("c:2", 1);
    cluster.run(20, good);
    let was_ours = |known: &mut Value| {
        for part in ["labels", "annotations"] {
            known["metadata"][part] = first["metadata"][part].clone();
        }
    };
    let exports: [&dyn Fn(&mut Value); 3] = [&was_taken_over, &had_no_label, &was_ours];
    for export in exports {
        let mut repaired = Vec::new();
        for _ in 0..20 {
            cluster.workload("p01")["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c:1");
            export(cluster.workload("p01"));
            repaired.extend(cluster.look().into_iter().filter_map(|action| match action {
                Action::Patch { repaired, .. } => Some(repaired.is_some()),
                _ => None,
            }));
            cluster.pass(15, good);
        }
        assert_eq!(repaired, [true; 3]);
        assert_eq!(cluster.state("p01"), State::Failed);
        assert!(cluster.status.pools[1].message.starts_with("somebody else keeps changing"));
        cluster.pass(3700, good);
        cluster.run(10, good);
        assert_eq!((cluster.with("c:2").len(), cluster.state("p01")), (3, State::Done));
        cluster.pass(700, good);
    }
}

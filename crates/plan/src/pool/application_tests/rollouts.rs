//! Rollouts over pools that are well, fall ill, or may have been changed.

use dapple_api::pool::{LEAVING_SINCE, Max};

use super::*;

#[test]
fn it_is_made_in_every_pool_and_then_falls_silent() {
    let mut cluster = settled(20);
    assert_eq!(cluster.status.current_revision, cluster.status.update_revision);
    let status = cluster.status.clone();
    assert_eq!(cluster.look(), []);
    assert_eq!(cluster.status, status, "and the status says the same");
    assert_eq!((status.pool_count, status.available_pools, status.updated_pools), (20, 20, 20));
}

#[test]
fn a_change_comes_to_one_pool_first_and_then_to_a_tenth_of_them() {
    let mut cluster = settled(20);
    cluster.say("c:2", 1);
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00"]);
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00"]);
    cluster.run(1, good);
    cluster.run(1, good);
    assert_eq!(cluster.with("c:2"), ["p00"], "it is seen to be well, and has to stay so for a while");
    cluster.look();
    assert_eq!(cluster.with("c:2").len(), 3);
    cluster.run(60, good);
    assert_eq!(cluster.with("c:2").len(), 20);
    assert_eq!(cluster.status.current_revision, cluster.status.update_revision);
    assert_eq!(cluster.look(), []);
}

#[test]
fn a_bad_image_reaches_one_pool_and_a_fix_goes_there_first() {
    let mut cluster = settled(20);
    cluster.say("c:2", 1);
    cluster.run(5, bad_two);
    cluster.pass(600, bad_two);
    cluster.run(5, bad_two);
    assert_eq!(cluster.with("c:2"), ["p00"]);
    assert!(cluster.status.stopped.is_some());
    let old = cluster.status.current_revision.clone();
    // One that is gone comes back as it was.
    cluster.workloads.retain(|workload| workload["metadata"]["labels"]["apps.openyurt.io/pool-name"] != "p07");
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00"]);
    assert_eq!(cluster.with("c:1").len(), 19);
    assert_eq!(cluster.status.current_revision, old);
    cluster.pass(15, bad_two);
    cluster.say("c:3", 1);
    cluster.look();
    assert_eq!(cluster.with("c:3"), ["p00"]);
    cluster.run(60, bad_two);
    assert_eq!(cluster.with("c:3").len(), 20);
    assert_eq!(cluster.status.stopped, None);
}

#[test]
fn a_stopped_rollout_goes_on_when_somebody_says_so_and_not_by_itself() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    cluster.look();
    cluster.pass(600, bad_two);
    cluster.look();
    assert!(cluster.status.stopped.is_some());
    cluster.run(10, good);
    assert_eq!(cluster.with("c:2").len(), 1, "it is well again, and still stopped");
    cluster.resumed = Some(cluster.now);
    cluster.run(30, good);
    assert_eq!(cluster.with("c:2").len(), 5);
}

#[test]
fn that_somebody_will_have_a_rollout_go_on_is_not_believed_before_it_is_so() {
    let mut cluster = settled(5);
    let resumed = Timestamp::from_second(cluster.now.as_second() + 700).expect("a time");
    cluster.resumed = Some(resumed);
    cluster.say("c:2", 1);
    cluster.look();
    cluster.pass(600, bad_two);
    cluster.look();
    assert!(cluster.status.stopped.is_some(), "it is late by now");
    cluster.pass(15, bad_two);
    cluster.look();
    assert_eq!(cluster.decide().wake, Some(resumed));
    cluster.run(5, good);
    assert_eq!(cluster.with("c:2").len(), 1);
    cluster.pass(15, good);
    cluster.run(30, good);
    assert_eq!(cluster.with("c:2").len(), 5, "now it is so");
}

#[test]
fn a_version_that_takes_every_pool_down_stays_where_it_is() {
    let mut cluster = settled(20);
    cluster.say("c:2", 1);
    cluster.run(100, harmful_two);
    assert!(cluster.with("c:2").len() <= 3, "{:?}", cluster.with("c:2"));
}

#[test]
fn a_pool_whose_node_pool_is_gone_is_left_alone_and_counts_as_before() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    cluster.run(1, bad_two);
    assert_eq!(cluster.with("c:2"), ["p00"]);
    cluster.left_alone.insert(cluster.pools.remove(0));
    cluster.run(10, bad_two);
    assert!(cluster.with("c:2").is_empty(), "the one that is down still uses the budget up");
    assert_eq!((cluster.workloads.len(), cluster.state("p00")), (5, State::Failed));
    assert!(cluster.workload("p00")["metadata"]["annotations"][LEAVING_SINCE].is_null());
    assert!(cluster.decide().is_to_be_polled(), "nobody says when the last node has lost its label");
    cluster.run(60, good);
    assert_eq!(cluster.with("c:2").len(), 4, "it is well again");
    assert!(cluster.decide().is_to_be_polled());
    cluster.left_alone.clear();
    assert!(!cluster.decide().is_to_be_polled(), "now it leaves");
}

#[test]
fn a_pool_that_may_have_been_changed_counts_and_goes_first() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    // It was written, and nobody knows what came of it; then another order is asked for.
    cluster.in_doubt.insert("p00".to_owned());
    cluster.rules.order = vec!["p03".to_owned()];
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00"]);
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00"], "its part of the budget is used up");
    cluster.in_doubt.clear();
    cluster.pass(15, good);
    cluster.run(1, good);
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00", "p03"]);
}

#[test]
fn the_end_of_a_pause_in_the_template_comes_to_one_pool_after_another() {
    let mut cluster = settled(5);
    let containers = json!([{"name": "c", "image": "c:2"}]);
    let patch = json!({"spec": {"paused": true, "template": {"spec": {"containers": containers}}}});
    let pools = cluster.pools.iter().map(|pool| json!({"name": pool, "replicas": 1, "patch": patch}));
    cluster.version = set(json!(pools.collect::<Vec<_>>())).1;
    cluster.run(20, good);
    let paused = |cluster: &Cluster| cluster.workloads.iter().filter(|known| known["spec"]["paused"] == true).count();
    assert_eq!((cluster.with("c:2").len(), paused(&cluster)), (5, 5), "they wait for a word");
    cluster.say("c:2", 1);
    for _ in 0..2 {
        cluster.look();
        assert_eq!(paused(&cluster), 4, "each would make its pods anew");
    }
    cluster.run(20, good);
    assert_eq!(paused(&cluster), 0);
    assert_eq!(cluster.look(), []);
}

/// The pods of a pool are down, and stay so.
fn is_offline(cluster: &mut Cluster, pool: &str) {
    let desired = declared_replicas(cluster.workload(pool));
    let generation = cluster.workload(pool)["metadata"]["generation"].clone();
    cluster.workload(pool)["status"] = json!({"observedGeneration": generation, "replicas": desired, "updatedReplicas": desired,
        "readyReplicas": 0, "availableReplicas": 0});
}

#[test]
fn a_pool_that_fell_ill_after_a_rollout_came_to_all_pools_comes_last_in_the_next() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    cluster.run(20, good);
    assert_eq!(cluster.status.current_revision, cluster.status.update_revision);
    cluster.say("c:3", 1);
    for _ in 0..30 {
        is_offline(&mut cluster, "p01");
        cluster.look();
        let changed = cluster.with("c:3");
        assert!(!changed.contains(&"p01") || changed.len() == 5, "{changed:?}");
        cluster.pass(15, good);
    }
    assert_eq!(cluster.with("c:3").len(), 5);
}

#[test]
fn who_goes_back_mends_first_what_the_rollout_broke() {
    let mut cluster = settled(6);
    cluster.rules.max = Some(Max::Pools(2));
    cluster.say("c:2", 1);
    for _ in 0..10 {
        if cluster.with("c:2").len() < 4 {
            cluster.look();
            cluster.pass(15, good);
        }
    }
    assert_eq!(cluster.with("c:2"), ["p00", "p01", "p02", "p03"]);
    // Two are done, and then one of them falls ill. All had this before: its revision gets another number.
    cluster.rules.max = Some(Max::Pools(1));
    cluster.say("c:1", 1);
    for _ in 0..30 {
        if cluster.with("c:2").contains(&"p01") {
            is_offline(&mut cluster, "p01");
        }
        cluster.look();
        let left = cluster.with("c:2");
        assert!(left.contains(&"p00") || !left.contains(&"p01"), "{left:?}");
        cluster.pass(15, good);
    }
    assert_eq!(cluster.with("c:1").len(), 6);
    assert_eq!(cluster.look(), []);
}

#[test]
fn a_pool_that_two_changes_broke_uses_the_budget_up_until_the_third_has_mended_it() {
    let bad = |image: &str| if ["c:2", "c:3"].contains(&image) { Image::Bad } else { Image::Good };
    let mut cluster = settled(5);
    for image in ["c:2", "c:3"] {
        cluster.say(image, 1);
        cluster.run(3, bad);
        assert_eq!(cluster.with(image), ["p00"]);
    }
    cluster.rules.order = vec!["p04".to_owned()];
    cluster.say("c:4", 1);
    cluster.look();
    assert_eq!((cluster.with("c:3").len(), cluster.with("c:4")), (0, vec!["p00"]), "it comes where it is needed");
    // So it is if that cannot be written: nobody else gets what may do harm, too.
    let mut refused = settled(5);
    for image in ["c:2", "c:3"] {
        refused.say(image, 1);
        refused.run(3, bad);
    }
    refused.refused.insert("p00".to_owned(), "no".to_owned());
    refused.say("c:4", 1);
    refused.run(10, bad);
    assert_eq!((refused.with("c:3"), refused.with("c:4").len()), (vec!["p00"], 0));
}

#[test]
fn what_made_no_revision_stops_where_it_breaks_a_pool() {
    let mut cluster = settled(4);
    for pool in ["p00", "p01"] {
        cluster.workload(pool)["spec"]["template"]["spec"]["containers"][0]["image"] = json!("foreign");
    }
    cluster.look();
    assert_eq!(cluster.with("foreign"), ["p01"], "one is put right first");
    // Their notes were of when they were made, and said that nothing was there before.
    cluster.pass(600, |image| if image == "c:1" { Image::Bad } else { Image::Good });
    cluster.look();
    assert!(cluster.status.stopped.is_some());
    assert_eq!(cluster.with("foreign"), ["p01"]);
}

#[test]
fn who_takes_over_counts_from_when_a_pool_turned_well() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    // Whoever leads writes the pool, and tells nothing more. It is down for a while, and well when somebody else looks.
    for action in cluster.decide().actions {
        cluster.write(&action);
    }
    cluster.pass(60, good);
    for seconds in [9, 1] {
        cluster.look();
        assert_eq!(cluster.with("c:2"), ["p00"]);
        cluster.pass(seconds, good);
    }
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00", "p01"]);
}

#[test]
fn a_pool_whose_numbers_never_change_is_done_some_time_after_its_old_pods_are_gone() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    cluster.look();
    let status = |cluster: &mut Cluster, replicas: i64| {
        let generation = cluster.workload("p00")["metadata"]["generation"].clone();
        cluster.workload("p00")["status"] = json!({"observedGeneration": generation, "replicas": replicas,
            "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1});
    };
    // The new pod starts slowly, and the old one is there as long.
    for _ in 0..5 {
        cluster.pass(20, good);
        status(&mut cluster, 2);
        cluster.look();
        assert_eq!(cluster.with("c:2"), ["p00"]);
    }
    for seconds in [9, 1] {
        status(&mut cluster, 1);
        cluster.look();
        assert_eq!(cluster.with("c:2"), ["p00"], "it has been well for a moment");
        cluster.pass(seconds, good);
    }
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00", "p01"]);
}

/// Somebody deletes the workload of a pool.
fn is_deleted(cluster: &mut Cluster, pool: &str) {
    cluster.workloads.retain(|known| known["metadata"]["labels"]["apps.openyurt.io/pool-name"] != *pool);
}

#[test]
fn a_pool_that_a_rollout_has_changed_counts_on_when_its_workload_is_deleted() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    cluster.run(2, bad_two);
    // It cannot be made anew at first.
    cluster.refused.insert("p00".to_owned(), "no".to_owned());
    is_deleted(&mut cluster, "p00");
    for _ in 0..5 {
        assert_eq!(cluster.look(), []);
        cluster.pass(15, bad_two);
    }
    cluster.refused.clear();
    for _ in 0..3 {
        cluster.look();
        assert_eq!(cluster.with("c:2"), ["p00"], "it comes back as it was, and nobody else gets that");
        cluster.pass(15, bad_two);
    }
    cluster.pass(600, bad_two);
    cluster.look();
    assert!(cluster.status.stopped.is_some(), "it was well before the rollout came");
}

#[test]
fn a_pool_that_was_down_before_its_change_stops_nothing_when_its_workload_is_deleted() {
    let mut cluster = settled(2);
    for image in ["c:2", "c:3"] {
        is_offline(&mut cluster, "p00");
        cluster.say(image, 1);
        cluster.look();
        for _ in 0..5 {
            cluster.pass(15, good);
            is_offline(&mut cluster, "p00");
            cluster.look();
        }
        assert_eq!(cluster.with(image).len(), 2);
        is_deleted(&mut cluster, "p00");
        cluster.look();
    }
    assert_eq!(cluster.status.stopped, None);
    assert_eq!(cluster.state("p01"), State::Done);
}

#[test]
fn a_revision_that_another_webhook_changes_everywhere_is_rolled_out_whole_all_the_same() {
    let mut cluster = settled(3);
    cluster.say("c:2", 1);
    cluster.run(20, good);
    cluster.say("c:3", 1);
    for _ in 0..20 {
        cluster.look();
        // Whatever is written gets the digest of its image, and the API server says so when it is asked.
        let changed: Vec<String> = cluster.with("c:3").into_iter().map(str::to_owned).collect();
        for pool in changed {
            cluster.workload(&pool)["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c@sha256:3");
            cluster.others_doing.insert(pool);
        }
        cluster.pass(15, good);
    }
    assert_eq!(cluster.with("c@sha256:3").len(), 3);
    assert_eq!(cluster.status.current_revision, cluster.status.update_revision);
}

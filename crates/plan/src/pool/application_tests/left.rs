//! Pools that leave, and come back.

use dapple_api::pool::{LEAVING_SINCE, REMOVAL_HELD};

use super::*;

#[test]
fn a_pool_that_is_dropped_goes_and_many_wait_for_a_word() {
    let mut cluster = settled(6);
    cluster.pools.remove(5);
    cluster.say("c:1", 1);
    cluster.run(3, good);
    assert_eq!(cluster.workloads.len(), 5);
    cluster.pools.truncate(2);
    cluster.say("c:1", 1);
    cluster.run(5, good);
    assert_eq!(cluster.workloads.len(), 5, "three of five are held");
    assert_eq!(cluster.state("p03"), State::Leaving);
    cluster.confirmed = Confirmed::new("p03");
    cluster.run(5, good);
    assert_eq!(cluster.workloads.len(), 4);
    cluster.pools = vec!["p00".into(), "p01".into(), "p02".into(), "p04".into()];
    cluster.say("c:1", 1);
    cluster.run(5, good);
    assert!(cluster.workloads.iter().all(|workload| workload["metadata"]["annotations"].get(LEAVING_SINCE).is_none()));
    assert_eq!(cluster.look(), []);
}

#[test]
fn of_many_that_left_at_once_each_stays_until_it_is_named() {
    let mut cluster = settled(5);
    cluster.pools = vec!["p02".into(), "p03".into(), "p04".into()];
    cluster.say("c:1", 1);
    cluster.run(3, good);
    assert_eq!(cluster.workloads.len(), 5, "two of five are held");
    cluster.confirmed = Confirmed::new("p01");
    cluster.run(3, good);
    assert_eq!(cluster.workloads.len(), 4);
    cluster.confirmed = Confirmed::default();
    cluster.run(5, good);
    assert!(cluster.workload("p00")["metadata"]["annotations"].get(REMOVAL_HELD).is_some());
    assert_eq!(cluster.state("p00"), State::Leaving, "one of four would go by itself");
    // Back in time it is as if it had never left.
    cluster.pools.push("p00".to_owned());
    cluster.say("c:1", 1);
    cluster.run(3, good);
    let notes = cluster.workload("p00")["metadata"]["annotations"].clone();
    assert!(notes.get(REMOVAL_HELD).is_none() && notes.get(LEAVING_SINCE).is_none(), "{notes}");
    cluster.pools.retain(|pool| pool != "p00");
    cluster.say("c:1", 1);
    cluster.run(3, good);
    assert_eq!(cluster.workloads.len(), 3);
}

#[test]
fn that_many_leave_is_noted_on_each_before_one_of_them_goes() {
    let mut cluster = settled(5);
    cluster.pools = vec!["p02".into(), "p03".into(), "p04".into()];
    cluster.say("c:1", 1);
    cluster.look();
    // As an older leader left it.
    for pool in ["p00", "p01"] {
        let since = cluster.now.to_string();
        cluster.workload(pool)["metadata"]["annotations"][LEAVING_SINCE] = json!(since);
        if let Some(notes) = cluster.workload(pool)["metadata"]["annotations"].as_object_mut() {
            notes.remove(REMOVAL_HELD);
        }
    }
    cluster.confirmed = Confirmed::new("p01");
    let actions = cluster.look();
    assert!(matches!(&actions[..], [Action::Patch { pool, .. }] if pool == "p00"), "{actions:?}");
    let actions = cluster.look();
    assert!(matches!(&actions[..], [Action::Delete { pool, .. }] if pool == "p01"), "{actions:?}");
}

#[test]
fn pools_that_come_with_the_same_change_make_those_that_leave_no_fewer() {
    let mut cluster = settled(10);
    cluster.pools = (0..25).map(|number| format!("q{number:02}")).collect();
    cluster.say("c:1", 1);
    cluster.run(10, good);
    assert_eq!(cluster.workloads.len(), 35, "ten of ten have left");
}

#[test]
fn a_pool_that_is_back_and_was_changed_meanwhile_is_written_once() {
    let mut cluster = settled(3);
    cluster.pools.remove(2);
    cluster.say("c:1", 1);
    cluster.look();
    assert!(cluster.workload("p02")["metadata"]["annotations"].get(LEAVING_SINCE).is_some());
    cluster.workload("p02")["spec"]["template"]["spec"]["containers"][0]["image"] = json!("foreign");
    cluster.pools.push("p02".to_owned());
    cluster.say("c:1", 1);
    let actions = cluster.look();
    assert!(matches!(&actions[..], [Action::Patch { pool, repaired: Some(_), .. }] if pool == "p02"), "{actions:?}");
    assert!(cluster.workload("p02")["metadata"]["annotations"].get(LEAVING_SINCE).is_none());
    cluster.run(3, good);
    assert_eq!(cluster.look(), []);
    assert_eq!(cluster.with("c:1").len(), 3);
}

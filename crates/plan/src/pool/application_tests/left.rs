//! Pools that leave, and come back.

use dapple_api::pool::LEAVING_SINCE;

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

//! What an application says of its pools.

use super::*;
use crate::pool::pods::{Unwell, are_asked};

#[test]
fn a_status_of_512_pools_is_small() {
    let mut cluster = settled(512);
    let size = |status: &ApplicationStatus| serde_json::to_vec(status).expect("it is JSON").len();
    let at_rest = size(&cluster.status);
    let reason = |pool: &String| (pool.clone(), "somebody's policy has much to say about it. ".repeat(9));
    cluster.refused = cluster.pools.iter().map(reason).collect();
    cluster.say("c:2", 1);
    let status = cluster.decide().status;
    assert!(status.pools.iter().all(|pool| pool.state == State::Failed && pool.message.ends_with('…')));
    assert!(at_rest < size(&status) && size(&status) < 190_000, "{at_rest} and {}", size(&status));
    cluster.refused.retain(|pool, _| pool == "p07");
    let status = cluster.decide().status;
    let told = status.pools.iter().find(|pool| pool.name == "p07").map(|pool| pool.message.chars().count());
    assert_eq!(told, Some(200), "of one alone there is room for more");
}

#[test]
fn a_pool_that_is_not_done_says_what_its_pods_say() {
    let mut cluster = settled(2);
    cluster.say("c:2", 1);
    cluster.look();
    cluster.pass(15, bad_two);
    cluster.look();
    let asked = |cluster: &mut Cluster| {
        cluster.with_facts(|facts| {
            let seats = decide(facts).seats;
            let asked = seats.iter().filter(|seat| are_asked(seat, facts.now));
            asked.map(|seat| seat.pool.clone()).collect::<Vec<_>>()
        })
    };
    assert!(asked(&mut cluster).is_empty(), "it may pass");
    cluster.pass(15, bad_two);
    assert_eq!(asked(&mut cluster), ["p00"]);
    let mut told = |is_stuck| {
        let unwell = Unwell { pod: "web-0".to_owned(), reason: "ImagePullBackOff".to_owned(), is_stuck };
        cluster.learned.unwell.insert("p00".to_owned(), unwell);
        cluster.look();
        cluster.status.pools[0].message.clone()
    };
    assert_eq!(told(false), "0 of 1 pods are available; pod web-0: ImagePullBackOff");
    assert!(told(true).starts_with("delete the pod web-0: Kubernetes waits for it, and does not replace it"));
}

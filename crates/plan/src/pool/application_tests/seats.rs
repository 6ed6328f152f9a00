//! What each pool has and is to get.

use super::*;
use crate::pool::learned::Target;
use crate::pool::replacement;
use crate::pool::version::{InForce, Pools};

#[test]
fn what_concerns_one_pool_renders_and_writes_one_pool() {
    let mut cluster = settled(20);
    let mut made = cluster.renderings.made();
    let mut rendered = |cluster: &Cluster| {
        let before = std::mem::replace(&mut made, cluster.renderings.made());
        made - before
    };
    let item = json!({"image": {"containerName": "c", "imageClaim": "c:7"}});
    let replacements = serde_json::from_value(json!([{"pools": ["p07"], "items": [item]}])).expect("replacements");
    cluster.version.replacements = Some(InForce { name: "far".to_owned(), replacements });
    let actions = cluster.look();
    assert!(matches!(&actions[..], [Action::Patch { pool, .. }] if pool == "p07"), "{actions:?}");
    assert_eq!(rendered(&cluster), 1);
    for _ in 0..3 {
        cluster.pass(15, good);
        assert_eq!(cluster.look(), []);
    }
    assert_eq!(rendered(&cluster), 0, "pods come and go, and nothing else is said");
    assert_eq!(cluster.state("p07"), State::Done);
    cluster.workload("p03")["metadata"]["labels"]["app"] = json!("stray");
    assert_eq!(cluster.look().len(), 1);
    assert_eq!(rendered(&cluster), 0, "what others change is put right");
    cluster.version.replacements = None;
    assert_eq!(cluster.look().len(), 1);
    assert_eq!(rendered(&cluster), 1, "it is taken back");
}

#[test]
fn a_pool_that_joins_meanwhile_starts_as_the_others_were() {
    let mut cluster = settled(5);
    cluster.say("c:2", 1);
    cluster.look();
    cluster.pools.push("p99".to_owned());
    cluster.say("c:2", 1);
    cluster.look();
    // What is said of it is said now for the first time; and nobody else begins because it came.
    assert_eq!(cluster.with("c:2"), ["p00", "p99"]);
    cluster.run(30, good);
    assert_eq!(cluster.with("c:2").len(), 6);
}

#[test]
fn what_is_wrong_with_one_pool_holds_up_no_other() {
    let mut cluster = settled(3);
    cluster.say("c:2", 1);
    if let Pools::Named(topology) = &mut cluster.version.pools {
        let broken = json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}});
        topology.pools[0].patch = serde_json::from_value(broken).ok();
    }
    cluster.refused.insert("p01".to_owned(), "no".to_owned());
    cluster.run(10, good);
    assert_eq!(cluster.with("c:2"), ["p02"]);
    assert_eq!((cluster.state("p00"), cluster.state("p01")), (State::Failed, State::Failed));
    assert_eq!(cluster.workloads.len(), 3, "nothing is deleted for it");
}

#[test]
fn of_two_workloads_for_a_pool_the_older_counts_and_the_other_is_left_alone() {
    let mut cluster = settled(2);
    let mut double = cluster.workload("p00").clone();
    double["metadata"]["name"] = json!("double");
    double["metadata"]["creationTimestamp"] = json!("2099-01-01T00:00:00Z");
    cluster.workloads.insert(0, double);
    cluster.say("c:2", 1);
    cluster.run(20, good);
    let image = |workload: &Value| workload["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(cluster.workloads.iter().map(image).collect::<Vec<_>>(), ["c:1", "c:2", "c:2"]);
}

/// Every pool's pods need a ConfigMap, and a replacement gives each pool one of its own.
fn with_own_config_maps(cluster: &mut Cluster, replicas: i32) {
    let volumes = json!([{"name": "settings", "configMap": {"name": "from"}}]);
    let patch = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
    let pools: Vec<Value> =
        cluster.pools.iter().map(|pool| json!({"name": pool, "replicas": replicas, "patch": patch})).collect();
    cluster.version = set(json!(pools)).1;
    let item = json!({"configMap": {"configMapSource": "from", "configMapTarget": "to-{{nodepool}}"}});
    let replacements = serde_json::from_value(json!([{"pools": "*", "items": [item]}])).expect("replacements");
    cluster.version.replacements = Some(InForce { name: "web".to_owned(), replacements });
}

fn config_map(name: &str) -> Target {
    Target { kind: dapple_edit::edit::ReferenceKind::ConfigMap, name: name.to_owned() }
}

#[test]
fn a_pool_that_runs_is_not_made_to_refer_to_what_does_not_exist() {
    let mut cluster = settled(3);
    with_own_config_maps(&mut cluster, 1);
    cluster.learned.missing = BTreeSet::from([config_map("to-p01")]);
    cluster.run(20, good);
    let has = |cluster: &mut Cluster, pool: &str| {
        cluster.workload(pool)["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"].clone()
    };
    let all = |cluster: &mut Cluster| ["p00", "p01", "p02"].map(|pool| has(cluster, pool));
    assert_eq!(all(&mut cluster), [json!("to-p00"), Value::Null, json!("to-p02")]);
    let of_pool = cluster.status.pools.iter().find(|pool| pool.name == "p01").expect("it is told").clone();
    assert_eq!(of_pool.state, State::Waiting);
    assert_eq!(of_pool.message, "it stays as it is until this exists: ConfigMap to-p01");
    let progressing = &cluster.conditions()[1];
    assert_eq!((progressing.1, progressing.2), (false, "TargetsMissing"));
    assert!(progressing.3.contains("p01 (ConfigMap to-p01)"), "{}", progressing.3);
    let in_force = cluster.version.replacements.clone().expect("there is one");
    let (told, found) = replacement::in_force(&in_force, &cluster.decide());
    assert_eq!((told.matched_pools, told.pools_in_effect, told.pools_waiting, found.2), (3, 2, 1, "TargetsMissing"));
    cluster.learned = Learned::default();
    cluster.run(20, good);
    assert_eq!(all(&mut cluster), ["to-p00", "to-p01", "to-p02"].map(|name| json!(name)));
}

#[test]
fn what_runs_nowhere_yet_is_made_though_its_targets_do_not_exist() {
    let missing = BTreeSet::from([config_map("to-p00"), config_map("to-p01")]);
    let mut first = Cluster::new(2);
    with_own_config_maps(&mut first, 1);
    first.learned.missing = missing.clone();
    first.look();
    assert_eq!(first.workloads.len(), 2, "they are made");
    let mut without_pods = Cluster::new(2);
    without_pods.say("c:1", 0);
    without_pods.run(4, good);
    with_own_config_maps(&mut without_pods, 0);
    without_pods.learned.missing = missing;
    without_pods.run(10, good);
    let volume = |workload: &Value| workload["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"].clone();
    assert_eq!(without_pods.workloads.iter().map(volume).collect::<Vec<_>>(), ["to-p00", "to-p01"]);
}

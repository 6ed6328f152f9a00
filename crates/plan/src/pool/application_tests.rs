//! An application from one look to the next, in a cluster of plain values: all that is remembered is in there.

use std::collections::BTreeSet;

use dapple_api::pool::{CHANGED, PoolState as State, RENDERED};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::pool::ahead::Seen;
use crate::pool::pods::{Unwell, are_asked};
use crate::pool::replacement;
use crate::pool::report::{Found, conditions};
use crate::pool::revision::{Settled, settle};
use crate::pool::said::Said;
use crate::pool::version::InForce;
use crate::pool::workload::tests::set;

/// What becomes of pods with an image: whether they turn ready, and when all pods are taken down by it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Image {
    Good,
    Bad,
    /// It turns ready, and then it takes down every pool, changed or not.
    Harmful,
}

struct Cluster {
    application: Application,
    version: Version,
    revisions: Vec<Revision>,
    status: ApplicationStatus,
    workloads: Vec<Value>,
    pools: Vec<String>,
    now: Timestamp,
    resumed: Option<Timestamp>,
    autoscaled: BTreeSet<String>,
    left_alone: BTreeSet<String>,
    in_doubt: BTreeSet<String>,
    rules: Rules,
    grace: i64,
    confirmed: Confirmed,
    refused: BTreeMap<String, String>,
    learned: Learned,
    renderings: Renderings,
    made: u64,
}

impl Cluster {
    fn new(count: usize) -> Self {
        let pools: Vec<String> = (0..count).map(|number| format!("p{number:02}")).collect();
        let (application, version) = set(json!([]));
        let mut cluster = Self {
            application,
            version,
            revisions: Vec::new(),
            status: ApplicationStatus::default(),
            workloads: Vec::new(),
            pools,
            now: Timestamp::from_second(1_000_000).expect("a time"),
            resumed: None,
            autoscaled: BTreeSet::new(),
            left_alone: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            rules: Rules::default(),
            grace: 300,
            confirmed: Confirmed::default(),
            refused: BTreeMap::new(),
            learned: Learned::default(),
            renderings: Renderings::default(),
            made: 0,
        };
        cluster.say("c:1", 1);
        cluster
    }

    /// The application says this image and number in every pool.
    fn say(&mut self, image: &str, replicas: i32) {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        let pools: Vec<Value> =
            self.pools.iter().map(|pool| json!({"name": pool, "replicas": replicas, "patch": patch})).collect();
        self.version = set(json!(pools)).1;
    }

    fn settle(&mut self) -> Revision {
        match settle(&self.application, &self.version, &self.revisions, 0) {
            Settled::Keep(name) => self.revisions.iter().find(|known| known.name == name).expect("it is there").clone(),
            Settled::Renumber { name, number } => {
                let known = self.revisions.iter_mut().find(|known| known.name == name).expect("it is there");
                known.number = number;
                known.clone()
            }
            Settled::Create(revision) => {
                self.revisions.push(revision.clone());
                revision
            }
        }
    }

    fn decide(&mut self) -> Decision {
        self.with_facts(decide)
    }

    /// What it says of itself.
    fn conditions(&mut self) -> [Found; 3] {
        self.with_facts(|facts| conditions(&decide(facts), facts, &[]))
    }

    fn with_facts<R>(&mut self, look: impl FnOnce(&Facts<'_>) -> R) -> R {
        let newest = self.settle();
        let pools: Vec<AskedPool> =
            self.pools.iter().map(|name| AskedPool { name: name.clone(), taints: Vec::new() }).collect();
        let existing = |object: &Value| {
            let pool = object["metadata"]["labels"]["apps.openyurt.io/pool-name"].as_str().unwrap_or_default();
            Existing {
                is_autoscaled: self.autoscaled.contains(pool),
                is_left_alone: self.left_alone.contains(pool),
                is_in_doubt: self.in_doubt.contains(pool),
                ..Existing::new(pool.to_owned(), Arc::new(object.clone()))
            }
        };
        let workloads: Vec<Existing> = self.workloads.iter().map(existing).collect();
        let version = Arc::new(self.version.clone());
        look(&Facts {
            application: &self.application,
            version: &version,
            renderings: &self.renderings,
            newest: &newest,
            revisions: &self.revisions,
            status: &self.status,
            pools: &pools,
            workloads: &workloads,
            refused: &self.refused,
            learned: &self.learned,
            rules: &self.rules,
            grace: Some(self.grace),
            confirmed: &self.confirmed,
            resumed: self.resumed,
            is_suspended: false,
            now: self.now,
        })
    }

    /// One look, with all that it writes.
    fn look(&mut self) -> Vec<Action> {
        let decision = self.decide();
        self.status = decision.status;
        for action in &decision.actions {
            self.write(action);
        }
        decision.actions
    }

    fn write(&mut self, action: &Action) {
        self.made += 1;
        match action {
            Action::Create { workload, .. } => {
                let mut workload = workload.clone();
                assert!(self.workloads.iter().all(|known| known["metadata"]["name"] != workload["metadata"]["name"]));
                workload["metadata"]["uid"] = json!(format!("u{}", self.made));
                workload["metadata"]["resourceVersion"] = json!(self.made.to_string());
                workload["metadata"]["generation"] = json!(1);
                workload["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                self.workloads.push(workload);
            }
            Action::Patch { name, patch, .. } => {
                let known =
                    self.workloads.iter_mut().find(|known| known["metadata"]["name"] == **name).expect("it is there");
                assert_eq!(patch["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]);
                json_patch::merge(known, patch);
                known["metadata"]["resourceVersion"] = json!(self.made.to_string());
                let generation = known["metadata"]["generation"].as_i64().unwrap_or_default();
                known["metadata"]["generation"] = json!(generation + 1);
            }
            Action::Delete { name, .. } => self.workloads.retain(|known| known["metadata"]["name"] != **name),
        }
    }

    /// Kubernetes does its work for a while.
    fn pass(&mut self, seconds: i64, of: impl Fn(&str) -> Image) {
        self.now = Timestamp::from_second(self.now.as_second() + seconds).expect("a time");
        let image = |workload: &Value| {
            let image = &workload["spec"]["template"]["spec"]["containers"][0]["image"];
            of(image.as_str().unwrap_or_default())
        };
        let are_down = self.workloads.iter().any(|workload| {
            image(workload) == Image::Harmful
                && workload["status"]["availableReplicas"].as_i64().is_some_and(|number| number > 0)
        });
        for workload in &mut self.workloads {
            let desired = declared_replicas(workload);
            let is_bad = image(workload) == Image::Bad;
            let available = if is_bad || are_down { 0 } else { desired };
            let mut status = json!({"observedGeneration": workload["metadata"]["generation"], "replicas": desired,
                "updatedReplicas": desired, "readyReplicas": available, "availableReplicas": available});
            if is_bad && seconds >= 600 {
                status["conditions"] =
                    json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
            }
            workload["status"] = status;
        }
    }

    /// Looks and passes time until nothing is written any more.
    fn run(&mut self, looks: usize, of: impl Fn(&str) -> Image + Copy) {
        for _ in 0..looks {
            self.look();
            self.pass(15, of);
        }
    }

    fn with(&self, image: &str) -> Vec<&str> {
        let has = |workload: &&Value| workload["spec"]["template"]["spec"]["containers"][0]["image"] == *image;
        let pool = |workload: &'_ Value| {
            workload["metadata"]["labels"]["apps.openyurt.io/pool-name"].as_str().map(str::to_owned)
        };
        let names: Vec<String> = self.workloads.iter().filter(has).filter_map(pool).collect();
        self.pools.iter().map(String::as_str).filter(|pool| names.iter().any(|name| name == pool)).collect()
    }

    fn state(&self, pool: &str) -> State {
        self.status.pools.iter().find(|known| known.name == pool).map(|known| known.state).unwrap_or_default()
    }

    fn workload(&mut self, pool: &str) -> &mut Value {
        let is_it = |known: &&mut Value| known["metadata"]["labels"]["apps.openyurt.io/pool-name"] == *pool;
        self.workloads.iter_mut().find(is_it).expect("the pool has one")
    }
}

fn good(_: &str) -> Image {
    Image::Good
}

fn bad_two(image: &str) -> Image {
    if image == "c:2" { Image::Bad } else { Image::Good }
}

fn harmful_two(image: &str) -> Image {
    if image == "c:2" { Image::Harmful } else { Image::Good }
}

fn settled(count: usize) -> Cluster {
    let mut cluster = Cluster::new(count);
    cluster.run(4, good);
    assert_eq!(cluster.with("c:1").len(), count);
    assert!(cluster.pools.clone().iter().all(|pool| cluster.state(pool) == State::Done), "{:?}", cluster.status);
    cluster
}

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
    cluster.pass(15, good);
    cluster.look();
    assert_eq!(cluster.with("c:2").len(), 3);
    cluster.run(60, good);
    assert_eq!(cluster.with("c:2").len(), 20);
    assert_eq!(cluster.status.current_revision, cluster.status.update_revision);
    assert_eq!(cluster.look(), []);
}

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
fn a_version_that_takes_every_pool_down_stays_where_it_is() {
    let mut cluster = settled(20);
    cluster.say("c:2", 1);
    cluster.run(100, harmful_two);
    assert!(cluster.with("c:2").len() <= 3, "{:?}", cluster.with("c:2"));
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
fn what_is_wrong_with_one_pool_holds_up_no_other() {
    let mut cluster = settled(3);
    cluster.say("c:2", 1);
    if let super::super::version::Pools::Named(topology) = &mut cluster.version.pools {
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
    cluster.run(60, good);
    assert_eq!(cluster.with("c:2").len(), 4, "it is well again");
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
    cluster.look();
    assert_eq!(cluster.with("c:2"), ["p00", "p03"]);
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
        if let super::super::version::Pools::Named(topology) = &mut cluster.version.pools {
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
            let is_counted = |workload: &Value| {
                let newest = Revision { name: String::new(), number, data: Value::Null };
                let changed = Changed::of(workload, &newest).is_some_and(|changed| changed.rollout == number);
                changed && workload["status"]["availableReplicas"].as_i64() < Some(declared_replicas(workload))
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

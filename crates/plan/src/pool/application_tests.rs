//! An application from one look to the next, in a cluster of plain values: all that is remembered is in there.

use std::collections::BTreeSet;

use dapple_api::pool::PoolState as State;
use serde_json::json;

use super::*;
use crate::pool::report::{Found, conditions};
use crate::pool::revision::{Settled, settle};
use crate::pool::workload::tests::set;

#[path = "application_tests/foretold.rs"]
mod foretold;
#[path = "application_tests/left.rs"]
mod left;
#[path = "application_tests/rollouts.rs"]
mod rollouts;
#[path = "application_tests/seats.rs"]
mod seats;
#[path = "application_tests/told.rs"]
mod told;
#[path = "application_tests/whatever.rs"]
mod whatever;
#[path = "application_tests/written.rs"]
mod written;

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
    others_doing: BTreeSet<String>,
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
            others_doing: BTreeSet::new(),
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
                is_others_doing: self.others_doing.contains(pool),
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

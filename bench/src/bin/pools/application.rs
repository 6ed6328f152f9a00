//! A YurtAppSet in many pools, in process: all that there is of it is here, and what is decided is done at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use dapple_api::pool::{ApplicationStatus, Max, Rules, SubjectKind, YurtAppSetSpec};
use dapple_bench::objects::pod_template;
use dapple_plan::pool::application::{Action, AskedPool, Decision, Existing, Facts, decide};
use dapple_plan::pool::learned::Learned;
use dapple_plan::pool::removal::Confirmed;
use dapple_plan::pool::renderings::Renderings;
use dapple_plan::pool::revision::{Revision, Settled, settle};
use dapple_plan::pool::version::{Application, InForce, Version};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

const BEGUN: i64 = 1_800_000_000;

/// The spec of a YurtAppSet in so many pools, without pods.
pub(crate) fn spec(pools: usize) -> Value {
    let labels = json!({"app": "web"});
    let mut template = pod_template(2);
    template["metadata"]["labels"]["app"] = json!("web");
    // Containers with one port do not go together in the network of a node.
    template["spec"]["hostNetwork"] = json!(false);
    let workload = json!({"selector": {"matchLabels": labels}, "template": template});
    let said = |number: usize| {
        let here = json!({"key": "apps.openyurt.io/nodepool", "operator": "In", "values": [pool(number)]});
        json!({"name": pool(number), "replicas": 0, "nodeSelectorTerm": {"matchExpressions": [here]}})
    };
    json!({
        "selector": {"matchLabels": labels}, "topology": {"pools": (0..pools).map(said).collect::<Value>()},
        "workloadTemplate": {"deploymentTemplate": {"metadata": {"labels": labels}, "spec": workload}},
    })
}

/// The name of a pool.
pub(crate) fn pool(number: usize) -> String {
    format!("pool-{number:03}")
}

/// Replacements: a variable in all pools, and an image in one.
pub(crate) fn replacements(number: usize, image: &str) -> Value {
    let env = json!({"env": {"containerName": "c0", "envClaim": {"SITE": "{{nodepool}}"}}});
    let item = json!({"image": {"containerName": "c1", "imageClaim": image}});
    json!([{"pools": "*", "items": [env]}, {"pools": [pool(number)], "items": [item]}])
}

/// The application, and what there is of it.
pub(crate) struct Made {
    pub(crate) application: Application,
    spec: YurtAppSetSpec,
    pub(crate) version: Arc<Version>,
    pub(crate) revisions: Vec<Revision>,
    pub(crate) status: ApplicationStatus,
    pub(crate) pools: Vec<AskedPool>,
    pub(crate) workloads: Vec<Existing>,
    pub(crate) renderings: Renderings,
    now: i64,
    written: u64,
}

impl Made {
    /// In so many pools, as it should be in each.
    pub(crate) fn new(pools: usize) -> anyhow::Result<Self> {
        let spec: YurtAppSetSpec = serde_json::from_value(spec(pools))?;
        let asked = |number: usize| AskedPool { name: pool(number), taints: Vec::new() };
        let mut made = Self {
            application: Application {
                kind: SubjectKind::YurtAppSet,
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                uid: "of-web".to_owned(),
                selector: spec.selector.clone(),
                history_limit: 10,
            },
            version: Arc::new(Version::of_set(&spec, None)),
            spec,
            revisions: Vec::new(),
            status: ApplicationStatus::default(),
            pools: (0..pools).map(asked).collect(),
            workloads: Vec::new(),
            renderings: Renderings::default(),
            now: BEGUN,
            written: 0,
        };
        made.say(&replacements(0, "c1:0"))?;
        made.rest()?;
        Ok(made)
    }

    /// The application says this from now on, by its replacement.
    pub(crate) fn say(&mut self, replacements: &Value) -> anyhow::Result<()> {
        let replacements = serde_json::from_value(replacements.clone())?;
        let in_force = InForce { name: "differs".to_owned(), replacements };
        self.version = Arc::new(Version::of_set(&self.spec, Some(in_force)));
        Ok(())
    }

    /// Has the newest revision say what the application says.
    pub(crate) fn revise(&mut self) {
        match settle(&self.application, &self.version, &self.revisions, 0) {
            Settled::Keep(_) => {}
            Settled::Renumber { name, number } => {
                self.revisions.iter_mut().filter(|known| known.name == name).for_each(|known| known.number = number);
            }
            Settled::Create(revision) => {
                self.revisions.push(revision);
                // As many as are kept, and the first, which most pools have.
                while self.revisions.len() > self.application.history_limit + 2 {
                    self.revisions.remove(1);
                }
            }
        }
    }

    /// What is decided now.
    pub(crate) fn decide(&self) -> anyhow::Result<Decision> {
        let newest = self.revisions.iter().max_by_key(|known| known.number).context("there is a revision")?;
        let rules = Rules { max: Some(Max::Percent(100)), ..Rules::default() };
        Ok(decide(&Facts {
            application: &self.application,
            version: &self.version,
            renderings: &self.renderings,
            newest,
            revisions: &self.revisions,
            status: &self.status,
            pools: &self.pools,
            workloads: &self.workloads,
            refused: &BTreeMap::new(),
            learned: &Learned::default(),
            rules: &rules,
            grace: Some(0),
            confirmed: &Confirmed::default(),
            resumed: None,
            is_suspended: false,
            now: Timestamp::from_second(self.now)?,
        }))
    }

    /// Does what was decided, and what Kubernetes does about it. How many writes that were.
    pub(crate) fn take(&mut self, decision: Decision) -> anyhow::Result<usize> {
        let writes = decision.actions.len();
        self.status = decision.status;
        for action in decision.actions {
            self.written += 1;
            match action {
                Action::Create { pool, mut workload } => {
                    let written = self.written;
                    merge(
                        &mut workload,
                        &json!({"metadata": {"uid": format!("u{written}"), "resourceVersion": written.to_string(),
                            "generation": 1, "creationTimestamp": "2027-01-15T08:00:00Z"},
                            "status": {"observedGeneration": 1}}),
                    );
                    let object = Arc::new(workload);
                    self.workloads.push(Existing::new(pool, object));
                }
                Action::Patch { name, patch, .. } => {
                    let version = self.written.to_string();
                    let known = self.workloads.iter_mut().find(|known| known.name() == name);
                    let known = known.context("it is there")?;
                    let mut object = Value::clone(&known.object);
                    merge(&mut object, &patch);
                    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
                    merge(
                        &mut object,
                        &json!({"metadata": {"resourceVersion": version, "generation": generation},
                            "status": {"observedGeneration": generation}}),
                    );
                    known.object = Arc::new(object);
                }
                Action::Delete { name, .. } => bail!("{name} is deleted"),
            }
        }
        Ok(writes)
    }

    /// Something is told of a workload that changes nothing for its application.
    pub(crate) fn touch(&mut self, place: usize) {
        self.written += 1;
        let mut object = Value::clone(&self.workloads[place].object);
        merge(&mut object, &json!({"metadata": {"resourceVersion": self.written.to_string()}}));
        self.workloads[place].object = Arc::new(object);
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += seconds;
    }

    /// Looks until nothing is written any more and the status stays as it is.
    fn rest(&mut self) -> anyhow::Result<()> {
        for _ in 0..10 {
            self.revise();
            let decision = self.decide()?;
            let before = self.status.clone();
            if self.take(decision)? == 0 && before == self.status {
                return Ok(());
            }
            self.pass(15);
        }
        bail!("it does not come to rest: {:?}", self.status.pools.first())
    }
}

/// A merge patch.
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            if let Some(map) = object.as_object_mut() {
                map.remove(field);
            }
        } else {
            merge(&mut object[field.as_str()], value);
        }
    }
}

//! Controllers of workloads, one story each, without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use dapple_plan::group::costs::DELETION_COST;
use dapple_plan::group::placing::GATE;
use dapple_sim::faults::Weather;
use dapple_sim::nodes::node_comes;
use dapple_sim::run::run;
use dapple_sim::scenario::{GROUP, Scenario};
use dapple_sim::script::{Edit, Event, Script};
use dapple_sim::server::Server;
use dapple_sim::sim::{Properties, Write};
use dapple_sim::trace::Trace;
use dapple_sim::world::Habits;
use http::Method;
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What must be so in the end.
struct End(fn(&Server) -> Result<(), String>);

impl Properties for End {
    fn see(&mut self, _: &Write<'_>, _: &Server) -> Result<(), String> {
        Ok(())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        (self.0)(server)
    }
}

fn edit(method: Method, path: &str, body: Value) -> Edit {
    Edit {
        what: format!("{method} {path}"),
        method,
        path: path.to_owned(),
        body: Some(body).filter(|body| !body.is_null()),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?}, not {wanted:?}")) }
}

/// Runs a story on two nodes, each in a group of its own: at these seconds, these things happen.
fn play(events: Vec<(u64, Edit)>, properties: fn() -> Box<dyn Properties>) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut setup = vec![node_comes("node-0", &mut random), node_comes("node-1", &mut random)];
    for (group, node) in [("east", "node-0"), ("west", "node-1")] {
        let body = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
            "metadata": {"name": group}, "spec": {"nodes": [node]}});
        setup.push(edit(Method::POST, "/apis/groupmanagement.kubeedge.io/v1alpha1/nodegroups", body));
    }
    let kind = Pair::Propagation.kind();
    let weights = json!([{"nodeGroupNames": ["east"], "weight": 1}, {"nodeGroupNames": ["west"], "weight": 2}]);
    let policy = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "spread"},
        "spec": {"staticWeightList": weights}});
    let path = format!("/apis/{}/v1alpha1/namespaces/default/{}", kind.group, kind.plural);
    setup.push(edit(Method::POST, &path, policy));
    let habits = Habits { kubelet: 500, ending: 500, crashes: 0.0, ..Habits::draw(&mut random) };
    let script = Script {
        seed: 7,
        setup,
        events: events.into_iter().map(|(at, edit)| (Duration::from_secs(at), Event::User(edit))).collect(),
        calm_at: Duration::from_secs(120),
        finish: Vec::new(),
        managers: 1,
        weather: Weather::CALM,
        habits: Habits { schedules: true, has_webhook: true, ..habits },
    };
    let scenario = Scenario { properties, ..GROUP };
    let outcome = run(&scenario, &script, &BTreeSet::new(), Trace::kept()).unwrap();
    assert!(outcome.violation.is_none(), "{:?}\n{}", outcome.violation, outcome.trace.lines().join("\n"));
}

fn template(policy: &str) -> (Value, Value) {
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    (json!({"name": "web", "labels": {Pair::Propagation.required(): policy}}), template)
}

fn replicas(number: usize) -> Value {
    json!({"spec": {"replicas": number}})
}

#[test]
fn a_deployment_is_divided_and_shrinks_from_its_last_seats() {
    let (metadata, template) = template("spread");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let web = format!("{APPS}/deployments/web");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}}});
    let events = vec![
        (1, edit(Method::POST, &format!("{APPS}/deployments"), deployment)),
        (20, edit(Method::PATCH, &web, image)),
        (60, edit(Method::PATCH, &web, replicas(9))),
        (90, edit(Method::PATCH, &web, replicas(4))),
    ];
    play(events, || {
        Box::new(End(|server| {
            let pods = server.list("pods");
            let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
            for pod in &pods {
                *groups.entry(pod["metadata"]["labels"][GATE].as_str().unwrap_or_default()).or_default() += 1;
            }
            equal(&groups, &BTreeMap::from([("east", 1), ("west", 3)]))?;
            let costs = pods.iter().filter_map(|pod| pod["metadata"]["annotations"][DELETION_COST].as_str());
            equal(&costs.collect(), &BTreeSet::from(["0", "-1", "-2", "-3"]))?;
            let images = pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default());
            equal(&images.collect(), &BTreeSet::from(["c:2"]))
        }))
    });
}

#[test]
fn a_stateful_set_gives_its_names_back_and_counts_from_its_start() {
    let (metadata, template) = template("spread");
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": 3,
        "ordinals": {"start": 2}, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}}});
    let events = vec![
        (1, edit(Method::POST, &format!("{APPS}/statefulsets"), set)),
        (30, edit(Method::DELETE, &format!("{PODS}/web-3"), Value::Null)),
        (60, edit(Method::PATCH, &format!("{APPS}/statefulsets/web"), image)),
    ];
    play(events, || {
        Box::new(End(|server| {
            let pods = server.list("pods");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let found: Vec<[String; 3]> = pods
                .iter()
                .map(|pod| {
                    let meta = &pod["metadata"];
                    [&meta["name"], &meta["labels"][GATE], &pod["spec"]["containers"][0]["image"]].map(text)
                })
                .collect();
            let wanted = [["web-2", "west", "c:2"], ["web-3", "east", "c:2"], ["web-4", "west", "c:2"]];
            equal(&found, &wanted.map(|pod| pod.map(str::to_owned)).to_vec())
        }))
    });
}

#[test]
fn a_deleted_pod_of_a_job_has_failed_and_its_index_comes_again() {
    // Nobody confirms the policy, so that pods wait until they are deleted.
    let (metadata, mut template) = template("missing");
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2,
        "completions": 3, "completionMode": "Indexed", "backoffLimit": 4, "template": template}});
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let labels = json!({"metadata": {"labels": {Pair::Propagation.required(): "spread"}}});
    let events = vec![
        (1, edit(Method::POST, path, job)),
        (30, edit(Method::DELETE, PODS, Value::Null)),
        (60, edit(Method::PATCH, &format!("{path}/web"), labels)),
    ];
    play(events, || {
        Box::new(End(|server| {
            let jobs = server.list("jobs.batch");
            let status = &jobs[0]["status"];
            equal(&status["failed"], &json!(2))?;
            equal(&status["succeeded"], &json!(3))?;
            equal(&status["conditions"][0]["type"], &json!("Complete"))?;
            let index = "batch.kubernetes.io/job-completion-index";
            let pods = server.list("pods");
            let indexes = pods.iter().filter_map(|pod| pod["metadata"]["annotations"][index].as_str());
            equal(&indexes.collect(), &BTreeSet::from(["0", "1", "2"]))?;
            let groups = pods.iter().filter_map(|pod| pod["metadata"]["labels"][GATE].as_str());
            equal(&groups.collect(), &BTreeSet::from(["east", "west"]))
        }))
    });
}

/// A Deployment that asks for no policy.
fn deployment(image: &str, deadline: u8) -> Value {
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "progressDeadlineSeconds": deadline, "selector": {"matchLabels": {"app": "web"}},
            "template": template}})
}

#[test]
fn a_deployment_that_does_not_get_on_in_time_says_so() {
    let events = vec![(1, edit(Method::POST, &format!("{APPS}/deployments"), deployment("c:bad", 20)))];
    play(events, || {
        Box::new(End(|server| {
            let deployments = server.list("deployments.apps");
            let condition = &deployments[0]["status"]["conditions"][0];
            equal(&condition["reason"], &json!("ProgressDeadlineExceeded"))?;
            equal(&condition["status"], &json!("False"))
        }))
    });
}

#[test]
fn a_paused_deployment_keeps_its_pods_and_one_that_has_come_through_is_never_late() {
    let web = format!("{APPS}/deployments/web");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}}});
    let events = vec![
        (1, edit(Method::POST, &format!("{APPS}/deployments"), deployment("c:1", 20))),
        (30, edit(Method::PATCH, &web, json!({"spec": {"paused": true}}))),
        (40, edit(Method::PATCH, &web, image)),
    ];
    play(events, || {
        Box::new(End(|server| {
            let pods = server.list("pods");
            let images = pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default());
            equal(&images.collect::<Vec<_>>(), &vec!["c:1", "c:1"])?;
            let deployments = server.list("deployments.apps");
            equal(&deployments[0]["status"]["conditions"][0]["reason"], &json!("DeploymentPaused"))
        }))
    });
}

//! Revisions that nodes fall ill of: no more are lost than the budget allows.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_sim::faults::Weather;
use dapple_sim::nodes::node_comes;
use dapple_sim::run::run;
use dapple_sim::scenario::DAEMON_SET;
use dapple_sim::script::{Edit, Event, Script};
use dapple_sim::trace::Trace;
use dapple_sim::world::Habits;
use http::Method;
use serde_json::{Value, json};

const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets";

fn patch(spec: Value) -> Event {
    let what = format!("sets {spec}");
    Event::User(Edit { what, method: Method::PATCH, path: format!("{SETS}/agent"), body: Some(json!({"spec": spec})) })
}

fn template(image: &str) -> Value {
    let env = json!([{"name": "CACHE", "value": "none"}]);
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {
        "containers": [{"name": "main", "image": image, "env": env}], "tolerations": [{"operator": "Exists"}]}})
}

/// Ten nodes, an image that they fall ill of, and another one in the end.
fn story(rolling: &Value, bad: &str, habits: Habits) -> Script {
    let mut random = fastrand::Rng::with_seed(1);
    let mut setup: Vec<Edit> = (0..10).map(|number| node_comes(&format!("node-{number}"), &mut random)).collect();
    let set = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "template": template("agent:0"), "minReadySeconds": 60,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        },
    });
    setup.push(Edit { what: "creates the set".into(), method: Method::POST, path: SETS.into(), body: Some(set) });
    Script {
        seed: 1,
        setup,
        events: vec![(Duration::from_secs(120), patch(json!({"template": template(bad)})))],
        calm_at: Duration::from_secs(900),
        finish: vec![Event::MendNodes, patch(json!({"template": template("agent:good")}))],
        managers: 1,
        weather: Weather::CALM,
        habits,
    }
}

#[test]
fn a_bad_revision_costs_no_more_nodes_than_the_budget() {
    let scenario = DAEMON_SET;
    let in_place = "InPlaceIfPossible";
    for rolling in [
        json!({"maxUnavailable": 1}),
        json!({"maxUnavailable": "20%"}),
        json!({"maxUnavailable": 1, "rollingUpdateType": in_place}),
        json!({"maxUnavailable": 0, "maxSurge": 1}),
    ] {
        for bad in ["agent:sick", "agent:lost", "agent:sick-bad"] {
            for (marks_pods, taints) in [(false, false), (true, true)] {
                let drawn = Habits::draw(&mut fastrand::Rng::with_seed(1));
                let habits = Habits { kubelet: 500, ending: 500, crashes: 0.0, marks_pods, taints, ..drawn };
                let script = story(&rolling, bad, habits);
                let outcome = run(&scenario, &script, &BTreeSet::new(), Trace::default()).unwrap();
                assert_eq!(outcome.violation, None, "{rolling} {bad} marks {marks_pods} taints {taints}");
            }
        }
    }
}

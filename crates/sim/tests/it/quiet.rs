//! What managers do about applications in pools where nothing goes wrong: no more than is needed.

use std::time::Duration;

use dapple_sim::faults::Weather;
use dapple_sim::run::run;
use dapple_sim::scenario::POOL;
use dapple_sim::script::{Edit, Event, Script};
use dapple_sim::trace::Trace;
use http::Method;
use serde_json::{Value, json};

/// So many seeds are looked at.
const SEEDS: u64 = 60;
/// By then all is made, and nothing is written any more.
const MADE: Duration = Duration::from_secs(900);
/// By then a manager that came anew leads, and has seen everything.
const BEGUN: Duration = Duration::from_secs(1_100);
const END: Duration = Duration::from_secs(1_500);

const REPLACEMENTS: &str = "yurtappconfigurationreplacements";
/// What is listed once.
const LISTED: [&str; 8] = [
    "/nodes?",
    "/nodepools?",
    "/deployments?",
    "/statefulsets?",
    "/controllerrevisions?",
    "/yurtappsets?",
    "/yurtappdaemons?",
    "/yurtappconfigurationreplacements?",
];

/// The applications of a seed, with nothing in their way, and this at [`MADE`]. None if the seed is about something else.
fn script(seed: u64, happens: impl Fn(&Script) -> Option<Event>) -> Option<Script> {
    let mut script = (POOL.script)(seed);
    let is_of_workloads = |edit: &Edit| edit.path.ends_with("/deployments") || edit.path.ends_with("/statefulsets");
    script.setup.retain(|edit| !is_of_workloads(edit));
    for body in script.setup.iter_mut().filter_map(|edit| edit.body.as_mut()) {
        let place = "/spec/workloadTemplate/deploymentTemplate/spec/progressDeadlineSeconds";
        if let Some(deadline) = body.pointer_mut(place) {
            *deadline = json!(600);
        }
    }
    script.events = vec![(MADE, happens(&script)?)];
    (script.calm_at, script.finish, script.managers) = (END, Vec::new(), 1);
    script.weather = Weather::CALM;
    script.habits.crashes = 0.0;
    Some(script)
}

/// The YurtAppSet of a script that has two pools at least.
fn set(script: &Script) -> Option<&Value> {
    let mut bodies = script.setup.iter().filter_map(|edit| edit.body.as_ref());
    bodies.find(|body| body["kind"] == "YurtAppSet" && body["spec"]["topology"]["pools"][1].is_object())
}

/// What managers sent after this time, apart from what they keep up for ever.
fn sent(trace: &Trace, since: Duration) -> Vec<&str> {
    let at = |line: &str| line.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    let lines = trace.lines().iter().map(String::as_str).filter(|line| line.contains(" manager-"));
    let later = lines.filter(|line| at(*line).is_some_and(|at| at > since.as_secs_f64()));
    later.filter(|line| !line.contains("/leases") && !line.contains("/events")).collect()
}

fn is_write(line: &str) -> bool {
    [" POST ", " PUT ", " PATCH ", " DELETE "].iter().any(|method| line.contains(method))
}

#[test]
fn a_manager_that_comes_anew_writes_nothing_and_lists_once() {
    let mut looked_at = 0;
    for seed in 1..=SEEDS {
        let killed = |script: &Script| {
            let has_applications = script.setup.iter().any(|edit| edit.path.contains("/yurtapp"));
            has_applications.then_some(Event::Kill { slot: 0, back_after: Duration::from_secs(2) })
        };
        let Some(script) = script(seed, killed) else { continue };
        looked_at += 1;
        let outcome = run(&POOL, &script, &Default::default(), Trace::kept()).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        // A dry run is a write that is not kept.
        let written: Vec<&str> = sent(&outcome.trace, MADE).into_iter().filter(|line| is_write(line)).collect();
        assert!(written.is_empty(), "seed {seed}: {written:?}");
        let is_list = |line: &&str| {
            line.contains(" GET ") && !line.contains("watch=") && LISTED.iter().any(|place| line.contains(place))
        };
        let all = sent(&outcome.trace, MADE);
        assert!(all.iter().any(is_list), "seed {seed}: it has seen nothing");
        let later: Vec<&str> = sent(&outcome.trace, BEGUN).into_iter().filter(is_list).collect();
        assert!(later.is_empty(), "seed {seed}: {later:?}");
    }
    assert!(looked_at >= 10, "only {looked_at} of {SEEDS} seeds are about applications");
}

#[test]
fn a_replacement_for_one_pool_is_one_write() {
    let mut looked_at = 0;
    for seed in 1..=SEEDS {
        let replaced = |script: &Script| {
            let set = set(script)?;
            let pool = set["spec"]["topology"]["pools"][1]["name"].clone();
            let item = json!({"env": {"containerName": "c", "envClaim": {"SITE": "one"}}});
            let body = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
                "metadata": {"name": "of-one-pool", "namespace": "default"},
                "subject": {"kind": "YurtAppSet", "name": set["metadata"]["name"]},
                "replacements": [{"pools": [pool], "items": [item]}]});
            let path = format!("/apis/apps.openyurt.io/v1alpha1/namespaces/default/{REPLACEMENTS}");
            let what = "has one pool differ".to_owned();
            Some(Event::User(Edit { what, method: Method::POST, path, body: Some(body) }))
        };
        let Some(mut script) = script(seed, replaced) else { continue };
        // No other is there before it.
        script.setup.retain(|edit| !edit.path.ends_with(REPLACEMENTS));
        looked_at += 1;
        let outcome = run(&POOL, &script, &Default::default(), Trace::kept()).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        let is_of_workloads = |line: &&str| line.contains("/deployments") || line.contains("/statefulsets");
        let all = sent(&outcome.trace, MADE).into_iter();
        let done = all.filter(|line| is_write(line) && line.ends_with("-> 200"));
        let written: Vec<&str> = done.filter(is_of_workloads).collect();
        assert!(written.len() == 1 && written[0].contains(" PATCH "), "seed {seed}: {written:?}");
        assert!(!written[0].contains("dryRun"), "seed {seed}: {written:?}");
    }
    assert!(looked_at >= 5, "only {looked_at} of {SEEDS} seeds have such a YurtAppSet");
}

use dapple_edit::marker::OwnerKeys;
use serde_json::{Value, json};

use super::*;

/// A marker that has been seen by its controller.
fn marker(name: &str, spec: Value) -> PodMarker {
    let metadata = json!({"name": name, "generation": 1, "creationTimestamp": "1970-01-01T00:00:01Z"});
    let mut spec = spec;
    if spec["markItems"].is_null() {
        spec["markItems"] = json!({"labels": {"k": "1"}});
    }
    let status = json!({"observedGeneration": 1});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a PodMarker")
}

/// A pod on the node "n", made at this second. `marked`: by the marker "m".
fn pod(name: &str, created: i64, marked: bool) -> Value {
    let marks = json!([{"marker": "m", "label": "k", "set": "1", "at": 50}]).to_string();
    let (labels, annotations) = match marked {
        true => {
            (json!({"app": "a", "k": "1"}), json!({"dapple.dev/marks": marks, "kruise.io/marked-by-podmarker": "m"}))
        }
        false => (json!({"app": "a"}), json!({})),
    };
    let created = jiff::Timestamp::from_second(created).expect("a time").to_string();
    let running = json!({"running": {"startedAt": "1970-01-01T00:00:10Z"}});
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": created, "labels": labels,
            "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": "x://1", "state": running}]},
    })
}

fn node() -> WholeNode {
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    WholeNode::of(&json!({"metadata": {"labels": {"arch": "x86"}}, "status": {"conditions": conditions}}))
}

fn seen(markers: Vec<PodMarker>, pods: &[Value]) -> Seen {
    let mut seen = Seen::default();
    markers.into_iter().for_each(|marker| seen.add_marker(marker));
    pods.iter().for_each(|pod| seen.add_pod(WholePod::of(pod, OwnerKeys::None)));
    seen.add_node("n", node());
    seen
}

/// Each pod, with its state and the word of the reason.
fn told(account: &Account) -> Vec<(&str, State, &str)> {
    account.pods.iter().map(|pod| (&*pod.pod, pod.state, &*pod.reason.word)).collect()
}

fn replicas(replicas: Value) -> Value {
    json!({"strategy": {"replicas": replicas}, "matchRequirements": {"podSelector": {"matchLabels": {"app": "a"}}}})
}

#[test]
fn each_pod_is_marked_is_not_or_waits() {
    let mut other = pod("other", 1, false);
    other["metadata"]["labels"]["app"] = json!("b");
    let mut stray = pod("stray", 1, true);
    stray["metadata"]["labels"]["app"] = json!("b");
    let mut done = pod("done", 1, true);
    done["status"]["phase"] = json!("Succeeded");
    let pods = [pod("a", 5, true), pod("b", 6, false), pod("c", 7, false), other, stray, done];
    let account = seen(vec![marker("m", replicas(json!(2)))], &pods).account("m").expect("it is there");
    assert_eq!(
        told(&account),
        [
            ("a", State::Marked, "Matches"),
            ("b", State::ToMark, "Matches"),
            ("c", State::NotMarked, "OthersFirst"),
            ("other", State::NotMarked, "PodLabels"),
            ("stray", State::ToUnmark, "PodLabels"),
        ]
    );
    let numbers = account.numbers;
    assert_eq!((numbers.desired, numbers.succeeded, numbers.matched, numbers.waiting), (2, 1, 3, 2));
    assert_eq!((&*account.hold.word, account.is_unusable), ("Turn", false));
    assert_eq!(account.pods[0].node.as_deref(), Some("n"));
}

#[test]
fn what_is_to_be_taken_off_says_why() {
    let pods = [pod("a", 5, true), pod("b", 6, true)];
    let of = |spec: Value| {
        let account = seen(vec![marker("m", spec)], &pods).account("m").expect("it is there");
        told(&account)
            .into_iter()
            .map(|(name, state, word)| (name.to_owned(), state, word.to_owned()))
            .collect::<Vec<_>>()
    };
    let is = |name: &str, state, word: &str| (name.to_owned(), state, word.to_owned());
    let shrunk = of(replicas(json!(1)));
    assert_eq!(shrunk, [is("a", State::Marked, "Matches"), is("b", State::ToUnmark, "OthersFirst")]);
    let zero = of(replicas(json!(0)));
    assert_eq!(zero, ["a", "b"].map(|name| is(name, State::ToUnmark, "Cleaned")));
    let mut amended = replicas(json!(2));
    amended["markItems"] = json!({"labels": {"k": "2"}});
    assert_eq!(of(amended), ["a", "b"].map(|name| is(name, State::ToAmend, "MarksDiffer")));
}

#[test]
fn results_count_as_the_controller_counts_them() {
    let probe = json!({"exec": {"command": ["x"]}});
    let required = json!({"podProbes": [{"containers": [{"name": "c"}], "probe": probe}]});
    let m = marker("m", json!({"matchRequirements": required}));
    let name = Rule::of(&m).expect("usable").probes[0].asked[0].name.to_string();
    let with = |state: &str, is_heard: bool, marked: bool| {
        let mut seen = seen(vec![m.clone()], &[pod("a", 5, marked)]);
        assert!(seen.has_probes());
        let states = json!([{"name": name, "containerID": "x://1", "state": state, "message": "told"}]);
        let statuses = json!([{"name": "a", "namespace": "default", "uid": "uid-a", "probeStates": states}]);
        let probes = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"podProbeStatuses": statuses}});
        seen.add_probes(serde_json::from_value(probes).expect("a NodePodProbe"));
        if is_heard {
            seen.add_heard("n");
        }
        let account = seen.account("m").expect("it is there");
        let PodAccount { state, reason, .. } = account.pods[0].clone();
        (state, reason.word.into_owned(), reason.text)
    };
    let (state, word, _) = with("Succeeded", true, false);
    assert_eq!((state, word.as_str()), (State::ToMark, "Matches"));
    let (state, word, text) = with("Failed", true, false);
    assert_eq!((state, word.as_str()), (State::NotMarked, "ProbeFailed"));
    assert!(text.ends_with("(told)"), "{text}");
    let (state, word, _) = with("Succeeded", false, false);
    assert_eq!((state, word.as_str()), (State::NotMarked, "ProberSilent"));
    let (state, word, text) = with("Failed", false, true);
    assert_eq!((state, word.as_str()), (State::Marked, "ProberSilent"), "its marks stay");
    assert!(text.starts_with("its marks stay while it is not known whether it matches: "), "{text}");
}

#[test]
fn a_probe_that_has_no_place_is_beyond_only_where_its_node_says_that_there_are_more() {
    let required = json!({"podProbes": [{"containers": [{"name": "c"}], "probe": {"exec": {"command": ["x"]}}}]});
    let m = marker("m", json!({"matchRequirements": required}));
    for (beyond, expected) in [(json!(null), "ProbeNotRun"), (json!(2), "TooManyProbes")] {
        let mut seen = seen(vec![m.clone()], &[pod("a", 5, false)]);
        let probes = json!({"metadata": {"name": "n"}, "spec": {"beyond": beyond}});
        seen.add_probes(serde_json::from_value(probes).expect("a NodePodProbe"));
        seen.add_heard("n");
        let account = seen.account("m").expect("it is there");
        assert_eq!(told(&account), [("a", State::NotMarked, expected)]);
    }
}

#[test]
fn a_marker_takes_the_place_of_another_of_its_name() {
    let mut seen = seen(vec![marker("m", replicas(json!(1)))], &[pod("a", 5, false)]);
    assert_eq!(seen.account("m").expect("it is there").pods.len(), 1);
    seen.add_marker(marker("m", json!({"strategy": {"replicas": -1}})));
    let account = seen.account("m").expect("it is there");
    assert!(account.is_unusable && account.pods.is_empty());
    assert!(account.hold.text.starts_with("spec.strategy.replicas: "), "{}", account.hold.text);
    seen.add_marker(marker("m", replicas(json!(1))));
    assert!(!seen.account("m").expect("it is there").is_unusable);
    assert_eq!(seen.account("none"), None);
}

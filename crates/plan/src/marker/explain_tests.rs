use std::sync::Arc;

use dapple_edit::marker::OwnerKeys;
use serde_json::{Value, json};

use super::super::result::Run;
use super::super::rule::Rules;
use super::super::standing::standing;
use super::super::tests::{SomeNode, SomePod, container, rule};
use super::*;

fn requiring(requirements: Value) -> Rule {
    rule("m", 1, json!({"markItems": {"labels": {"k": "1"}}, "matchRequirements": requirements}))
}

/// Why a pod does not match the marker "m", where every probe has this outcome; an empty word if it matches.
fn told(all: &[Rule], pod: &SomePod, outcome: Outcome) -> (String, String) {
    let rules: Rules = all.iter().map(|rule| (rule.age.name.clone(), Arc::new(rule.clone()))).collect();
    pod.look(|pod| {
        let outcome = |_: &Container, _: &Asked| outcome;
        let message = |_: &Asked| Some("exit code 1".to_owned());
        let look = Look { rule: &rules["m"], pod, outcome: &outcome, message: &message };
        let standing = standing(look.rule, look.pod, &rules, look.outcome);
        let why = look.against(&standing.matching);
        why.map_or_else(Default::default, |why| (why.word.into_owned(), why.text))
    })
}

fn one(rule: &Rule, pod: &SomePod) -> (String, String) {
    told(std::slice::from_ref(rule), pod, Outcome::Succeeded)
}

fn is(word: &str, text: &str) -> (String, String) {
    (word.to_owned(), text.to_owned())
}

fn unknown(why: Doubt) -> Outcome {
    Outcome::Unknown { why, before: None }
}

#[test]
fn the_requirement_that_does_not_hold_is_named() {
    let asks = requiring(json!({
        "podSelector": {"matchLabels": {"app": "nginx"}, "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]},
        "nodeSelector": {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["x86", "arm64"]}]}}));
    let nginx = || SomePod::default().label("app", "nginx");
    let pods = "spec.matchRequirements.podSelector asks for";
    let nodes = "spec.matchRequirements.nodeSelector asks for";
    for (pod, expected) in [
        (SomePod::default(), is("PodLabels", &format!("{pods} app=nginx, and it has no label app"))),
        (SomePod::default().label("app", "web"), is("PodLabels", &format!("{pods} app=nginx, and it has app=web"))),
        (nginx().label("canary", "yes"), is("PodLabels", &format!("{pods} !canary, and it has canary=yes"))),
        (nginx(), is("NoNode", &format!("{nodes} a node, and it has none yet"))),
        (
            nginx().on("arch", "mips"),
            is("NodeLabels", &format!("{nodes} arch in (x86,arm64), and its node has arch=mips")),
        ),
        (
            nginx().on("disk", "large"),
            is("NodeLabels", &format!("{nodes} arch in (x86,arm64), and its node has no label arch")),
        ),
        (nginx().on("arch", "x86"), is("", "")),
    ] {
        assert_eq!(one(&asks, &pod), expected);
    }
}

#[test]
fn what_is_asked_of_containers_is_named_with_its_place() {
    let probe =
        |container: &str, probe: Value| json!({"containers": [{"name": "a"}, {"name": container}], "probe": probe});
    let asks = requiring(json!({"podProbes": [
        probe("a", json!({"exec": {"command": ["x"]}})), probe("b", json!({"httpGet": {"port": "admin"}}))]}));
    let with = |containers: &[&str]| SomePod {
        containers: containers.iter().map(|name| container(name)).collect(),
        ..SomePod::default()
    };
    let (word, text) = one(&asks, &with(&["b"]));
    assert_eq!(
        (word.as_str(), text.as_str()),
        ("NoContainer", "spec.matchRequirements.podProbes[0].containers: it has no container a")
    );
    let (word, text) = one(&asks, &with(&["a", "b"]));
    let expected = "spec.matchRequirements.podProbes[1].probe: its container a has no port admin";
    assert_eq!((word.as_str(), text.as_str()), ("NoPort", expected));
}

#[test]
fn a_result_that_is_not_as_it_must_be_is_named() {
    let exec = json!({"exec": {"command": ["x"]}});
    for (expectation, outcome, word, told_of_it) in [
        ("succeeded", Outcome::Failed, "ProbeFailed", "failed, and must succeed (exit code 1)"),
        ("failed", Outcome::Succeeded, "ProbeSucceeded", "succeeded, and must fail (exit code 1)"),
    ] {
        let probe = json!({"containers": [{"name": "a"}], "probe": exec, "expectation": expectation});
        let asks = requiring(json!({"podProbes": [probe]}));
        let pod = SomePod { containers: vec![container("a")], ..SomePod::default() };
        let text = format!("spec.matchRequirements.podProbes[0]: the probe in container a {told_of_it}");
        assert_eq!(told(&[asks], &pod, outcome), is(word, &text));
    }
}

#[test]
fn a_result_that_is_unknown_is_named_with_the_reason() {
    let probe = json!({"containers": [{"name": "a"}], "probe": {"exec": {"command": ["x"]}}});
    let asks = requiring(json!({"podProbes": [probe]}));
    let pod = SomePod { containers: vec![container("a")], ..SomePod::default() };
    for (why, word, part) in [
        (
            Doubt::NotRun,
            "ProbeNotRun",
            "podProbes[0]: the probe in container a has not run yet since the container was started",
        ),
        (Doubt::Error, "ProbeError", "podProbes[0]: the probe in container a could not be run (exit code 1)"),
        (Doubt::Beyond, "TooManyProbes", "the probe in container a is more than its node runs"),
        (Doubt::Silent, "ProberSilent", "the prober of its node is not heard"),
        (Doubt::NodeUnknown, "NodeUnknown", "its node does not answer"),
    ] {
        let (found, text) = told(std::slice::from_ref(&asks), &pod, unknown(why));
        assert!(found == word && text.ends_with(part), "{found}: {text}");
    }
    let gone = SomePod { node: SomeNode::Gone, ..pod.clone() };
    assert_eq!(one(&asks, &gone).0, "NodeGone");
    let stopped = SomePod { containers: vec![Container { run: Run::Stopped, ..container("a") }], ..pod };
    assert_eq!(told(std::slice::from_ref(&asks), &stopped, Outcome::Failed).0, "ProbeFailed");
}

#[test]
fn what_wins_a_conflict_is_named() {
    let marker = |name: &str, created, policy: &str, value: &str| {
        rule(name, created, json!({"strategy": {"conflictPolicy": policy}, "markItems": {"labels": {"k": value}}}))
    };
    let old = marker("old", 1, "Overwrite", "1");
    let young = marker("m", 2, "Overwrite", "2");
    let mut pod = SomePod::default();
    pod.mark(&old);
    let expected = is("OlderMarker", "the older marker old sets k to another value");
    assert_eq!(told(&[old, young.clone()], &pod, Outcome::Succeeded), expected);
    let other = || SomePod::default().label("k", "theirs");
    let ignores = marker("m", 2, "Ignore", "2");
    assert_eq!(
        one(&ignores, &other()),
        is("OtherValues", "it has another value at k, and spec.strategy.conflictPolicy is not Overwrite")
    );
    assert_eq!(one(&young, &other().owned_by(&["k"])), is("OwnersLabels", "its owner selects on the label k"));
    let unread = SomePod { owner: OwnerKeys::Unread, ..other() };
    assert_eq!(one(&young, &unread).0, "OwnersUnread");
}

#[test]
fn what_holds_changes_is_named() {
    let marker = |status: Value| -> PodMarker {
        let metadata = json!({"name": "m", "generation": 3});
        let spec = json!({"markItems": {"labels": {"k": "1"}}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a PodMarker")
    };
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": format!("of {reason}"), "lastTransitionTime": "2026-11-15T10:00:00Z"});
    let word = |status: Value| hold(&marker(status), false, None).word.into_owned();
    assert_eq!(word(json!(null)), "NotBegun");
    assert_eq!(word(json!({"observedGeneration": 2})), "NotBegun", "it has changed since");
    assert_eq!(word(json!({"observedGeneration": 3})), "Turn");
    let refused = condition(MARKED, "False", "PodsRefused");
    let held =
        |status: &str| json!({"observedGeneration": 3, "conditions": [condition(HELD, status, "Allowance"), refused]});
    assert_eq!(hold(&marker(held("True")), false, None).text, "of Allowance");
    assert_eq!(word(held("False")), "PodsRefused");
    assert_eq!(
        word(json!({"observedGeneration": 3, "conditions": [condition(MARKED, "False", "InProgress")]})),
        "Turn"
    );
    assert_eq!(hold(&marker(held("True")), true, None).word, "Suspended");
    let unusable = hold(&marker(held("True")), true, Some(&Unusable::NoItems));
    assert_eq!(unusable.word, "CannotBeUsed");
    assert!(unusable.text.starts_with("spec.markItems: "), "{}", unusable.text);
}

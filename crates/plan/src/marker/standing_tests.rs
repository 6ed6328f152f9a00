use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::clash::Cause;
use super::super::tests::{SomeNode, SomePod, container, rule, rules};
use super::*;

fn marker(mut spec: Value) -> Rule {
    if spec["markItems"].is_null() {
        spec["markItems"] = json!({"labels": {"k": "1"}});
    }
    rule("m", 1, spec)
}

fn requiring(requirements: Value) -> Rule {
    marker(json!({"matchRequirements": requirements}))
}

/// How a pod stands to a marker that is alone, where every probe has this outcome.
fn stands(rule: &Rule, pod: &SomePod, outcome: Outcome) -> Standing {
    let rules = rules([rule.clone()]);
    pod.look(|pod| standing(rule, pod, &rules, &|_, _| outcome))
}

fn matching(rule: &Rule, pod: &SomePod) -> Matching {
    stands(rule, pod, Outcome::Succeeded).matching
}

#[test]
fn without_a_selector_every_pod_matches() {
    let any = marker(json!({}));
    for pod in [SomePod::default(), SomePod::default().label("a", "b"), SomePod::default().on("a", "b")] {
        assert_eq!(matching(&any, &pod), Matching::Yes);
    }
}

#[test]
fn all_requirements_must_hold() {
    let both = requiring(json!({"podSelector": {"matchLabels": {"app": "nginx"}},
        "nodeSelector": {"matchLabels": {"arch": "x86"}}}));
    let nginx = || SomePod::default().label("app", "nginx");
    assert_eq!(matching(&both, &nginx().on("arch", "x86")), Matching::Yes);
    assert_eq!(matching(&both, &nginx().on("arch", "arm")), Matching::No(Miss::NodeLabels));
    assert_eq!(matching(&both, &SomePod::default().on("arch", "x86")), Matching::No(Miss::Labels));
    assert_eq!(matching(&both, &nginx()), Matching::No(Miss::Unbound), "a nodeSelector matches bound pods only");
}

#[test]
fn no_mark_makes_its_own_pod_stop_or_begin_to_match() {
    let absent = json!([{"key": "k", "operator": "DoesNotExist"}]);
    let spec = |selector: Value| {
        json!({"strategy": {"conflictPolicy": "Overwrite"}, "matchRequirements": {"podSelector": selector},
            "matchPreferences": [{"podSelector": selector}]})
    };
    let absent = marker(spec(json!({"matchExpressions": absent})));
    let other = marker(spec(json!({"matchLabels": {"k": "0"}})));
    let marked = marker(spec(json!({"matchLabels": {"k": "1"}})));
    for (rule, pod, expected) in [
        (&absent, SomePod::default(), Matching::Yes),
        (&other, SomePod::default().label("k", "0"), Matching::Yes),
        (&marked, SomePod::default(), Matching::No(Miss::Labels)),
    ] {
        let before = stands(rule, &pod, Outcome::Succeeded);
        assert_eq!(before.matching, expected);
        let mut pod = pod;
        pod.mark(rule);
        let after = stands(rule, &pod, Outcome::Succeeded);
        assert_eq!((after.matching, after.rank), (before.matching, before.rank));
    }
}

#[test]
fn preferences_count_in_their_order() {
    let rule = marker(json!({"matchPreferences": [
        {"podSelector": {"matchLabels": {"pod.state": "working_online"}}},
        {"podReady": true, "nodeSelector": {"matchLabels": {"disk": "large"}}},
        {"podReady": false},
    ]}));
    let online = || SomePod::default().label("pod.state", "working_online");
    let unready = |pod: SomePod| SomePod { is_unready: true, ..pod };
    let large = |pod: SomePod| pod.on("disk", "large");
    let in_order = [
        large(online()),
        unready(large(online())),
        online(),
        large(SomePod::default()),
        unready(SomePod::default()),
        SomePod::default(),
    ];
    let ranks: Vec<Rank> = in_order.iter().map(|pod| stands(&rule, pod, Outcome::Succeeded).rank).collect();
    assert_eq!(ranks, [0b001, 0b010, 0b011, 0b101, 0b110, 0b111].map(Rank));
    assert!(ranks.is_sorted());
}

#[test]
fn as_many_preferences_as_may_be_given_count() {
    let many: Vec<Value> = (0..31).map(|_| json!({"podReady": true})).collect();
    let rule = marker(json!({"matchPreferences": many}));
    let unready = SomePod { is_unready: true, ..SomePod::default() };
    assert_eq!(stands(&rule, &unready, Outcome::Succeeded).rank, Rank((1 << 31) - 1));
    assert_eq!(stands(&rule, &SomePod::default(), Outcome::Succeeded).rank, Rank(0));
}

#[test]
fn marks_are_own_foreign_or_lacking() {
    let rule = marker(json!({"markItems": {"labels": {"k": "1"}, "annotations": {"why": "so"}}}));
    let marks = |pod: &SomePod| stands(&rule, pod, Outcome::Succeeded).marks;
    let all = SomePod::default().label("k", "1").annotation("why", "so");
    assert_eq!(marks(&SomePod::default().label("k", "1")), Marks::Lacking);
    assert_eq!(marks(&all), Marks::Foreign);
    let mut own = SomePod::default().label("k", "1");
    own.mark(&rule);
    assert_eq!(marks(&own), Marks::Own { are_complete: true, set_at: 200 }, "one of them is ours");
    assert_eq!(marks(&own.label("k", "2")), Marks::Own { are_complete: false, set_at: 200 }, "somebody set it back");
    let mut shared = SomePod::default();
    shared.mark(&super::super::tests::rule(
        "other",
        2,
        json!({"markItems": {"labels": {"k": "1"}, "annotations": {"why": "so"}}}),
    ));
    assert_eq!(marks(&shared), Marks::Lacking, "it is to be shared with the other");
    let lost = all.annotation(dapple_api::marker::MARKS_ANNOTATION, "{}");
    assert_eq!(marks(&lost), Marks::Foreign, "without a record they are not ours");
}

#[test]
fn something_in_the_way_is_told_apart_from_a_miss() {
    let rule = requiring(json!({"podSelector": {"matchLabels": {"app": "nginx"}}}));
    let theirs = SomePod::default().label("k", "theirs");
    assert_eq!(matching(&rule, &theirs), Matching::No(Miss::Labels));
    let clash = Clash { cause: Cause::Value, key: Arc::from("k") };
    assert_eq!(matching(&rule, &theirs.label("app", "nginx")), Matching::Conflict(clash));
}

fn probing(expectation: &str) -> Rule {
    requiring(json!({"podProbes": [{"containers": [{"name": "a"}, {"name": "b"}], "expectation": expectation,
        "probe": {"httpGet": {"port": "web"}}}]}))
}

fn two_containers() -> SomePod {
    SomePod { containers: vec![container("a"), container("b")], ..SomePod::default().on("arch", "x86") }
}

fn unknown(why: Doubt, before: Option<bool>) -> Outcome {
    Outcome::Unknown { why, before }
}

/// Whether a pod matches whose containers have these outcomes.
fn probed(rule: &Rule, pod: &SomePod, outcomes: [Outcome; 2]) -> Matching {
    let rules = rules([rule.clone()]);
    pod.look(|pod| {
        let of = |container: &Container, _: &Asked| outcomes[usize::from(*container.name == *"b")];
        standing(rule, pod, &rules, &of).matching
    })
}

#[test]
fn a_probe_must_hold_in_all_its_containers() {
    use Outcome::{Failed, Succeeded};
    let missed = |name: &str| Matching::No(Miss::Probe(Arc::from(name)));
    let (succeeds, fails, pod) = (probing("succeeded"), probing("failed"), two_containers());
    assert_eq!(probed(&succeeds, &pod, [Succeeded, Succeeded]), Matching::Yes);
    assert_eq!(probed(&succeeds, &pod, [Succeeded, Failed]), missed("b"));
    assert_eq!(probed(&fails, &pod, [Failed, Failed]), Matching::Yes);
    assert_eq!(probed(&fails, &pod, [Succeeded, Failed]), missed("a"));
}

#[test]
fn what_is_unknown_is_not_failed_and_one_known_miss_is_enough() {
    use Outcome::{Failed, Succeeded};
    let (rule, pod) = (probing("succeeded"), two_containers());
    let silent = |before| unknown(Doubt::Silent, before);
    let doubt = |before| Matching::Unknown { why: Doubt::Silent, before };
    assert_eq!(probed(&rule, &pod, [Succeeded, silent(Some(true))]), doubt(Some(true)));
    assert_eq!(probed(&rule, &pod, [Succeeded, silent(Some(false))]), doubt(Some(false)));
    assert_eq!(probed(&rule, &pod, [Succeeded, silent(None)]), doubt(None));
    assert_eq!(probed(&rule, &pod, [silent(Some(false)), silent(None)]), doubt(Some(false)));
    assert_eq!(probed(&rule, &pod, [silent(Some(true)), silent(None)]), doubt(None));
    assert_eq!(probed(&rule, &pod, [silent(Some(true)), Failed]), Matching::No(Miss::Probe(Arc::from("b"))));
    let failing = probing("failed");
    assert_eq!(probed(&failing, &pod, [Failed, silent(Some(false))]), doubt(Some(true)), "it failed, as it should");
}

#[test]
fn a_pod_without_the_container_or_port_does_not_match() {
    let (rule, mut pod) = (probing("failed"), two_containers());
    pod.containers[1].ports.clear();
    assert_eq!(probed(&rule, &pod, [Outcome::Failed; 2]), Matching::No(Miss::Port(Arc::from("web"))));
    pod.containers.pop();
    assert_eq!(probed(&rule, &pod, [Outcome::Failed; 2]), Matching::No(Miss::Container(Arc::from("b"))));
}

#[test]
fn a_pod_whose_node_is_not_there_is_unknown() {
    let gone = |pod: SomePod| SomePod { node: SomeNode::Gone, ..pod };
    let unknown = |before| Matching::Unknown { why: Doubt::NodeGone, before };
    assert_eq!(matching(&marker(json!({})), &gone(SomePod::default())), unknown(Some(true)));
    let of_nodes = requiring(json!({"nodeSelector": {"matchLabels": {"arch": "x86"}}}));
    assert_eq!(matching(&of_nodes, &gone(SomePod::default())), unknown(None), "nobody knows its labels");
    let of_pods = requiring(json!({"podSelector": {"matchLabels": {"app": "nginx"}}}));
    assert_eq!(matching(&of_pods, &gone(SomePod::default())), Matching::No(Miss::Labels), "that much is known");
    let pod = gone(two_containers());
    assert_eq!(probed(&probing("succeeded"), &pod, [Outcome::Succeeded; 2]), unknown(Some(true)));
    assert_eq!(probed(&probing("succeeded"), &pod, [Outcome::Failed; 2]), unknown(Some(false)));
}

#[test]
fn probes_run_where_all_else_holds() {
    let rule = requiring(json!({"podSelector": {"matchLabels": {"app": "nginx"}},
        "nodeSelector": {"matchLabels": {"arch": "x86"}},
        "podProbes": [{"containers": [{"name": "a"}], "probe": {"tcpSocket": {"port": 1}}}]}));
    let asked = |pod: SomePod| pod.look(|pod| is_probed(&rule, pod));
    let nginx = || SomePod::default().label("app", "nginx");
    assert!(asked(nginx().on("arch", "x86")));
    assert!(asked(nginx().on("arch", "x86").label("k", "theirs")), "what stands against it may go any time");
    for pod in [nginx(), nginx().on("arch", "arm"), SomePod::default().on("arch", "x86")] {
        assert!(!asked(pod));
    }
}

#[test]
fn a_node_that_is_not_there_has_no_preferred_labels() {
    let rule = marker(json!({"matchPreferences": [{"nodeSelector": {}}]}));
    let rank = |node: SomeNode| stands(&rule, &SomePod { node, ..SomePod::default() }, Outcome::Succeeded).rank;
    assert_eq!(rank(SomeNode::There(BTreeMap::new())), Rank(0));
    assert_eq!([rank(SomeNode::Gone), rank(SomeNode::Unbound)], [Rank(1); 2]);
}

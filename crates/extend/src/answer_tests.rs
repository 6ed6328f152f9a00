//! Whatever is asked, there is an answer by which a scheduler goes on.

use dapple_plan::group::Rule;
use dapple_plan::group::extender::{Reason, Roster, Share};
use serde_json::{Value, json};

use super::*;

fn body() -> Vec<u8> {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
    json!({"Pod": {"metadata": metadata}, "Nodes": null, "NodeNames": ["b1", "h1", "o1"]}).to_string().into_bytes()
}

/// Two groups, of which one lacks two pods and the other four. Returns the group that the pod goes to then.
fn group_judged(judge: Judge<'_>) -> Option<Arc<str>> {
    let mut roster = Roster::default();
    for (group, node) in [("beijing", "b1"), ("hangzhou", "h1")] {
        let rule = Rule { nodes: [node.to_owned()].into(), ..Rule::default() };
        roster.group_changed(group, rule, |visit| visit(node, &std::collections::BTreeMap::new()));
    }
    let share = |group: &str, desired| Share { group: Arc::from(group), current: 0, desired };
    judge(&Judged::new(&roster, "spread", vec![share("beijing", 2), share("hangzhou", 4)]))
}

fn judged(judge: Judge<'_>) -> Answer {
    assert_eq!(group_judged(judge).as_deref(), Some("hangzhou"));
    Answer::Judged
}

fn told((text, ended): (String, Ended)) -> (Value, Ended) {
    (serde_json::from_str(&text).unwrap(), ended)
}

#[test]
fn nodes_of_groups_that_lack_pods_pass_and_are_scored() {
    let failed = json!({"o1": "in no group of PropagationPolicy \"spread\""});
    let filtered = told(filter(&body(), |_, judge| judged(judge)));
    assert_eq!(filtered, (json!({"NodeNames": ["b1", "h1"], "FailedAndUnresolvableNodes": failed}), Ended::Judged));
    let scored = told(prioritize(&body(), |_, judge| judged(judge)));
    let scores = [("b1", 5), ("h1", 10), ("o1", 0)].map(|(host, score)| json!({"Host": host, "Score": score}));
    assert_eq!(scored, (json!(scores), Ended::Judged));
}

#[test]
fn a_pod_that_is_none_of_ours_passes_untouched_and_unscored() {
    let all = json!({"NodeNames": ["b1", "h1", "o1"]});
    assert_eq!(told(filter(&body(), |_, _| Answer::Untouched)), (all, Ended::Untouched));
    assert_eq!(told(prioritize(&body(), |_, _| Answer::Untouched)), (json!([]), Ended::Untouched));
}

#[test]
fn a_pod_that_no_node_may_have_is_told_why_for_each() {
    let reason = Reason::NotConfirmed { policy: "spread".into() };
    let why = "PropagationPolicy \"spread\" is asked for and not confirmed";
    let failed = json!({"b1": why, "h1": why, "o1": why});
    let refused = told(filter(&body(), |_, _| Answer::Refused(reason.clone())));
    assert_eq!(refused, (json!({"NodeNames": [], "FailedAndUnresolvableNodes": failed}), Ended::Refused));
    assert_eq!(told(prioritize(&body(), |_, _| Answer::Refused(reason))), (json!([]), Ended::Refused));
}

#[test]
fn what_cannot_be_read_stops_nobody() {
    let asked = |body: &[u8]| {
        let (answer, ended) = told(filter(body, |_, judge| judged(judge)));
        assert_eq!(ended, Ended::Unreadable, "{}", String::from_utf8_lossy(body));
        assert_eq!(told(prioritize(body, |_, judge| judged(judge))).0, json!([]));
        answer
    };
    // Nodes are named, and the pod or a node is not what it should be: all pass.
    for body in [
        json!({"Pod": null, "NodeNames": ["a"]}),
        json!({"Pod": "p", "NodeNames": ["a"]}),
        json!({"Pod": {"metadata": {"labels": 1}}, "NodeNames": ["a"]}),
        json!({"NodeNames": ["a"]}),
    ] {
        assert_eq!(asked(body.to_string().as_bytes()), json!({"NodeNames": ["a"]}), "{body}");
    }
    let odd = json!({"Pod": {"metadata": {"uid": "u"}}, "Nodes": {"items": [{"metadata": {}}]}}).to_string();
    let (answer, ended) = told(filter(odd.as_bytes(), |_, judge| {
        judge(&Judged::new(&Roster::default(), "spread", Vec::new()));
        Answer::Judged
    }));
    assert_eq!((answer["Nodes"]["items"].clone(), ended), (json!([{"metadata": {}}]), Ended::Unreadable));
    // Half of it, or none: nobody knows which nodes. It is said, and a scheduler that may ignore us does.
    let whole = body();
    for part in [&whole[..whole.len() / 2], &whole[..whole.len() - 1], b"", b"garbage", b"\xff\xfe", b"[]", b"null"] {
        let answer = asked(part);
        assert!(answer["Error"].as_str().is_some_and(|error| error.contains("cannot read the question")), "{answer}");
        assert!(answer["NodeNames"].is_null() && answer["FailedAndUnresolvableNodes"].is_null());
    }
}

#[test]
fn pods_go_for_a_pod_only_where_its_policy_lets_it_in() {
    let victims = json!({"Pods": [{"UID": "a"}], "NumPDBViolations": 0});
    let all = json!({"b1": victims, "o1": victims});
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
    let body = |pod: &Value| json!({"Pod": pod, "NodeNameToMetaVictims": all}).to_string().into_bytes();
    let answer = |nodes: Value, ended| (json!({"NodeNameToMetaVictims": nodes}), ended);
    let preempted = |ask: fn(Judge<'_>) -> Answer| told(preempt(&body(&pod), |_, judge| ask(judge)));
    let passes_nobody = |judge: Judge<'_>| {
        assert_eq!(group_judged(judge), None);
        Answer::Judged
    };
    assert_eq!(preempted(passes_nobody), answer(json!({"b1": victims}), Ended::Judged));
    assert_eq!(preempted(|_| Answer::Untouched), answer(all.clone(), Ended::Untouched));
    let refused = preempted(|_| Answer::Refused(Reason::NotConfirmed { policy: "spread".to_owned() }));
    assert_eq!(refused, answer(json!({}), Ended::Refused));
    let strange = told(preempt(&body(&json!(7)), |_, judge| judged(judge)));
    assert_eq!(strange, answer(all.clone(), Ended::Unreadable), "nobody knows which pod it is");
    assert_eq!(preempt(b"{}", |_, judge| judged(judge)).1, Ended::Unreadable);
}

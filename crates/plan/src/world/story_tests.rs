use serde_json::json;

use super::*;
use crate::group::volumes::Claimed;
use crate::world::Moved;

const REQUIRED: &str = "groupmanagement.kubeedge.io/required-propagationpolicy";
const BINDING: &str = "groupmanagement.kubeedge.io/binding-propagationpolicy";

/// Two groups with two nodes each, and a policy that gives both the same weight.
fn world() -> World {
    let mut world = World::default();
    let mut add = |object: Value| assert!(world.add(&object).expect("it is read"));
    for (group, number) in [("a", 1), ("a", 2), ("b", 1), ("b", 2)] {
        add(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("{group}{number}"), "labels": {"place": group}}}));
    }
    for group in ["a", "b"] {
        add(
            json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup", "metadata": {"name": group},
            "spec": {"matchLabels": {"place": group}}}),
        );
    }
    add(policy(json!([{"nodeGroupNames": ["a", "b"], "weight": 1}]), json!({})));
    add(deployment(BINDING));
    world
}

fn policy(weights: Value, annotations: Value) -> Value {
    json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "spread", "namespace": "default", "annotations": annotations}, "spec": {"staticWeightList": weights}})
}

fn deployment(binding: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1, "labels": {REQUIRED: "spread", binding: "spread"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template()},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}})
}

fn owners(binding: &str) -> Vec<Value> {
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "default", "uid": "r"}, "spec": {"template": template()}});
    vec![set, deployment(binding)]
}

fn pod(name: &str, group: Option<&str>, node: Option<&str>) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true}]},
        "spec": template()["spec"], "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    match group {
        Some(group) => {
            pod["metadata"]["labels"] = json!({GATE: group});
            pod["spec"]["nodeSelector"] = json!({"place": group});
        }
        None => pod["spec"]["schedulingGates"] = json!([{"name": GATE}]),
    }
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

fn story(world: &World, pods: &[Value], owners: &[Value]) -> Story {
    world.story(&Inquiry { pod: &pods[0], owners, pods, is_led: true, claims: &Claims::new() })
}

fn reasons(story: &Story) -> Vec<&'static str> {
    story.reasons.iter().map(|(reason, _)| *reason).collect()
}

#[test]
fn a_pod_where_it_belongs_needs_no_reason() {
    let pods = [pod("p", Some("a"), Some("a1")), pod("q", Some("b"), Some("b1"))];
    let found = story(&world(), &pods, &owners(BINDING));
    assert_eq!((found.stand, found.group.as_deref(), reasons(&found)), (Stand::Placed, Some("a"), vec![]));
    assert_eq!(found.policy.as_deref(), Some("PropagationPolicy default/spread"));
}

#[test]
fn a_gated_pod_says_what_it_waits_for() {
    let mut world = world();
    let pods = [pod("p", None, None), pod("q", Some("a"), Some("a1"))];
    let found = story(&world, &pods, &owners(BINDING));
    assert_eq!(
        (found.stand, found.belongs.as_deref(), reasons(&found)),
        (Stand::Gated, Some("b"), vec!["BeingPlaced"])
    );
    let (owners_of_pods, claims) = (owners(BINDING), Claims::new());
    let unled = Inquiry { pod: &pods[0], owners: &owners_of_pods, pods: &pods, is_led: false, claims: &claims };
    let unled = world.story(&unled);
    assert_eq!(reasons(&unled), ["BeingPlaced", "NoLeader"]);

    world.add(&policy(json!([{"nodeGroupNames": ["nowhere"], "weight": 1}]), json!({}))).expect("it is read");
    let found = story(&world, &pods, &owners(BINDING));
    assert_eq!(reasons(&found), ["WaitingForGroup"]);
    let range = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "spread"}, "spec": {"numRange": [{"nodeGroupNames": ["a"], "max": 1}]}});
    world.add(&range).expect("it is read");
    assert_eq!(reasons(&story(&world, &pods, &owners(BINDING))), ["NoSeat"]);

    let unconfirmed = story(&world, &pods, &owners("other"));
    let (reason, text) = &unconfirmed.reasons[0];
    assert_eq!((unconfirmed.stand, *reason), (Stand::Gated, "WaitingForPolicy"));
    assert!(text.contains("is there and applies"), "{text}");
    let mut unknown = owners("other");
    unknown[1]["metadata"]["labels"][REQUIRED] = "none".into();
    let text = story(&world, &pods, &unknown).reasons[0].1.clone();
    assert!(text.contains("there is no PropagationPolicy \"none\""), "{text}");
}

#[test]
fn a_rule_that_does_not_render_holds_pods() {
    let mut world = world();
    let overrides = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "o"},
        "spec": {"overrideRules": [{"targetNodeGroup": ["b"], "plaintext": [{"path": "/spec/nothing/0", "operator": "remove"}]}]}});
    world.add(&overrides).expect("it is read");
    let mut owners = owners(BINDING);
    for label in ["required", "binding"] {
        owners[1]["metadata"]["labels"][format!("groupmanagement.kubeedge.io/{label}-overridepolicy")] = "o".into();
    }
    let pods = [pod("p", None, None), pod("q", Some("a"), Some("a1"))];
    let found = story(&world, &pods, &owners);
    assert_eq!(reasons(&found), ["WaitingForEdition"]);
    assert!(found.reasons[0].1.contains("/spec/nothing"), "{:?}", found.reasons);
}

#[test]
fn a_pending_pod_says_how_its_group_is() {
    let mut world = world();
    let pods = [pod("p", Some("a"), None), pod("q", Some("b"), Some("b1"))];
    let found = story(&world, &pods, &owners(BINDING));
    assert_eq!((found.stand, reasons(&found)), (Stand::Pending, vec!["NoRoom"]));
    for node in ["a1", "a2"] {
        let tainted = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"place": "a"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}});
        world.add(&tainted).expect("it is read");
    }
    assert_eq!(reasons(&story(&world, &pods, &owners(BINDING))), ["NoNodeFits"]);
    for node in ["a1", "a2"] {
        let elsewhere = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {}}});
        world.add(&elsewhere).expect("it is read");
    }
    assert_eq!(reasons(&story(&world, &pods, &owners(BINDING))), ["GroupEmpty"]);
}

#[test]
fn a_pod_that_waits_for_nodes_its_group_had_once_says_so() {
    let mut pods = [pod("p", Some("a"), None), pod("q", Some("b"), Some("b1"))];
    pods[0]["spec"]["nodeSelector"] = json!({"place": "a typo"});
    let found = story(&world(), &pods, &owners(BINDING));
    assert_eq!((found.stand, found.belongs.as_deref()), (Stand::Pending, None));
    assert_eq!(reasons(&found), ["ToBeMoved", "SelectorOutdated"]);
    assert!(found.reasons[1].1.contains("evicted"), "{:?}", found.reasons);
    // A Job would count it as failed.
    let mut job = owners(BINDING);
    job[0]["kind"] = "Job".into();
    let found = story(&world(), &pods, &job);
    assert_eq!(reasons(&found), ["SelectorOutdated"]);
    assert!(found.reasons[0].1.contains("left to you"), "{:?}", found.reasons);
}

#[test]
fn a_misplaced_pod_says_where_it_should_be_and_what_holds_it_back() {
    let mut world = world();
    let mut pods = [pod("p", Some("a"), Some("a1")), pod("q", Some("a"), Some("a2"))];
    let found = story(&world, &pods, &owners(BINDING));
    assert_eq!(
        (found.stand, found.group.as_deref(), found.belongs.as_deref()),
        (Stand::Misplaced, Some("a"), Some("b"))
    );
    assert_eq!(reasons(&found), ["ToBeMoved"]);
    let object = ObjectName { kind: "Deployment".to_owned(), namespace: "default".to_owned(), name: "web".to_owned() };
    let divided = world.divided(&object, &pods, &Claims::new()).expect("it is divided");
    assert_eq!(divided.current, [("a".to_owned(), 2), ("b".to_owned(), 0)]);
    let moved = Moved { pod: "p".to_owned(), from: Some("a".to_owned()), to: "b".to_owned() };
    assert_eq!(divided.moves, [moved], "as explained");

    pods[0]["metadata"]["annotations"] = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
    let suspended = policy(json!([{"nodeGroupNames": ["a", "b"], "weight": 1}]), json!({"dapple.dev/suspend": "true"}));
    world.add(&suspended).expect("it is read");
    let mut rolling = owners(BINDING);
    rolling[1]["status"]["updatedReplicas"] = 1.into();
    let held = reasons(&story(&world, &pods, &rolling));
    assert_eq!(held, ["Suspended", "Protected", "RollingOut"]);
}

/// Has a pod use a claim `data-p`.
fn with_claim(mut pod: Value) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-p"}}]);
    pod
}

/// That claim is bound to a volume of this place.
fn bound_in(place: &str) -> Claims {
    let term = json!({"matchExpressions": [{"key": "place", "operator": "In", "values": [place]}]});
    Claims::from([("data-p".into(), Claimed::Terms(vec![term]))])
}

#[test]
fn a_pod_belongs_where_its_volumes_are() {
    let (world, owners) = (world(), owners(BINDING));
    let pods = [with_claim(pod("p", Some("a"), Some("a1"))), pod("q", Some("a"), Some("a2"))];
    let object = ObjectName { kind: "Deployment".to_owned(), namespace: "default".to_owned(), name: "web".to_owned() };
    let judged = |claims: &Claims| {
        let found = world.story(&Inquiry { pod: &pods[0], owners: &owners, pods: &pods, is_led: true, claims });
        let divided = world.divided(&object, &pods, claims).expect("it is divided");
        assert_eq!(found.unread, divided.unread);
        (found.stand, found.belongs, divided.moves.len(), found.unread)
    };
    let named = BTreeSet::<Arc<str>>::from(["data-p".into()]);
    assert_eq!(judged(&Claims::new()), (Stand::Misplaced, Some("b".to_owned()), 1, named));
    assert_eq!(judged(&bound_in("a")), (Stand::Placed, None, 0, BTreeSet::new()));
    assert_eq!(judged(&bound_in("b")).0, Stand::Misplaced, "its volume can be used there");
}

#[test]
fn a_gated_pod_goes_where_its_volumes_are() {
    let (world, owners) = (world(), owners(BINDING));
    // By its seat it would go to the first group.
    let pods = [with_claim(pod("p", None, None)), pod("q", Some("b"), Some("b1"))];
    let judged = |claims: &Claims| {
        let found = world.story(&Inquiry { pod: &pods[0], owners: &owners, pods: &pods, is_led: true, claims });
        (found.belongs.clone(), reasons(&found), found.unread.len())
    };
    assert_eq!(judged(&Claims::new()), (Some("a".to_owned()), vec!["BeingPlaced"], 1));
    assert_eq!(judged(&bound_in("b")), (Some("b".to_owned()), vec!["BeingPlaced"], 0));
    assert_eq!(judged(&bound_in("nowhere")), (None, vec!["VolumesOutOfReach"], 0));
    let unbound = Claims::from([("data-p".into(), Claimed::Unbound)]);
    assert_eq!(judged(&unbound), (None, vec!["WaitingForVolume"], 0));
}

#[test]
fn a_pod_of_no_policy_goes_anywhere() {
    let alone = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
    let found = story(&world(), &[alone], &[]);
    assert_eq!((found.stand, found.policy), (Stand::Anywhere, None));
}

#[test]
fn pods_that_nothing_owns_are_planned_together() {
    let mut world = world();
    for name in ["x", "y", "z"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {REQUIRED: "spread"}},
            "spec": template()["spec"]});
        assert!(world.add(&pod).expect("it is read"));
    }
    let owned = pod("owned", Some("a"), None);
    assert!(!world.add(&owned).expect("it is read"), "its workload is planned");
    let plans = world.plans();
    let bare: Vec<_> = plans.iter().filter(|plan| plan.object.kind == "Pod").collect();
    assert_eq!(bare.len(), 3);
    let spread = bare[0].spread.as_ref().expect("they are divided");
    let shares: Vec<(&str, usize)> = spread.groups.iter().map(|share| (share.group.as_str(), share.pods)).collect();
    assert_eq!((shares, spread.together), (vec![("a", 2), ("b", 1)], Some(3)));
    let placed = spread.groups[1].pod.as_ref().expect("it renders");
    assert_eq!(placed["spec"]["nodeSelector"], json!({"place": "b"}));
    assert_eq!(placed["metadata"]["labels"], json!({REQUIRED: "spread", BINDING: "spread", GATE: "b"}));
    assert_eq!(bare[0].update, crate::fate::Update::OnDelete, "once placed, they are never changed");
}

use serde_json::json;

use super::*;

fn time(second: i64) -> Time {
    Time(k8s_openapi::jiff::Timestamp::from_second(second).expect("a time"))
}

fn weights(list: &[(&str, i64)]) -> PropagationPolicySpec {
    let items: Vec<_> =
        list.iter().map(|(group, weight)| json!({"nodeGroupNames": [group], "weight": weight})).collect();
    serde_json::from_value(json!({"staticWeightList": items})).expect("a policy")
}

fn pod(name: &str, group: Option<usize>) -> PodState {
    PodState {
        name: Arc::from(name),
        group,
        near: Vec::new(),
        ordinal: None,
        seat: None,
        is_available: true,
        is_gated: false,
        is_protected: false,
        is_stale: false,
        reach: None,
    }
}

fn pods(groups: &[usize]) -> Vec<PodState> {
    groups.iter().enumerate().map(|(number, group)| pod(&format!("p{number:02}"), Some(*group))).collect()
}

fn following(applications: usize, unconfirmed: usize) -> Following {
    let application = |number: usize| PolicyApplication {
        api_group: Some("apps".to_owned()),
        kind: "Deployment".to_owned(),
        name: format!("web-{number:03}"),
    };
    Following {
        generation: Some(3),
        applications: (0..applications).map(application).collect(),
        unconfirmed,
        groups: ["a", "b"].map(Arc::from).into(),
        ..Following::default()
    }
}

fn told<'c>(conditions: &'c [Condition], kind: &str) -> (&'c str, &'c str, &'c str) {
    let known = conditions.iter().find(|known| known.type_ == kind).expect(kind);
    (&known.status, &known.reason, &known.message)
}

fn moved(pod: &str, second: i64) -> PodMove {
    PodMove { pod: pod.to_owned(), from: Some("a".to_owned()), to: "b".to_owned(), time: time(second) }
}

#[test]
fn desired_and_current_are_summed_over_applications() {
    let spec = weights(&[("A", 2), ("b", 3)]);
    let gated = PodState { is_gated: true, ..pod("new", None) };
    let other: Vec<PodState> = pods(&[0, 1, 1]).into_iter().chain([gated]).collect();
    let facts = Spread {
        following: following(2, 0),
        owners: vec![pods(&[0, 0, 0, 1, 1]), other],
        pending: BTreeMap::from([(Arc::from("NoSeat"), 1), (Arc::from("Unschedulable"), 4)]),
        ..Spread::default()
    };
    let status = propagation_status(&spec, &facts, &PropagationPolicyStatus::default(), &time(1));
    let groups: Vec<(&str, i32, i32)> =
        status.groups.iter().map(|group| (group.name.as_str(), group.desired, group.current)).collect();
    assert_eq!(groups, [("a", 4, 4), ("b", 5, 4)], "2 and 2 of a, 3 and 2 of b");
    assert_eq!((status.pods, status.pending, status.misplaced, status.application_count), (9, 5, 1, 2));
    let why: Vec<(&str, i32)> =
        status.pending_reasons.iter().map(|known| (known.reason.as_str(), known.pods)).collect();
    assert_eq!(why, [("Unschedulable", 4), ("NoSeat", 1)]);
    let text =
        "1 pod is in another group than should have it, and 5 pods have no node yet (4 Unschedulable, 1 NoSeat).";
    assert_eq!(told(&status.conditions, DIVIDED), ("False", "PodsMisplaced", text));
    assert_eq!(told(&status.conditions, READY), ("True", "Confirmed", "2 applications follow it."));
    assert_eq!(told(&status.conditions, SUSPENDED).0, "False");
}

#[test]
fn ordinals_and_ranges_say_what_is_desired() {
    let numbered: Vec<PodState> = [(0, 0), (1, 1), (2, 1)]
        .into_iter()
        .map(|(ordinal, group)| PodState { ordinal: Some(ordinal), ..pod(&format!("db-{ordinal}"), Some(group)) })
        .collect();
    let status_of = |spec: &PropagationPolicySpec, owner: Vec<PodState>| {
        let facts = Spread { following: following(1, 0), owners: vec![owner], ..Spread::default() };
        let status = propagation_status(spec, &facts, &PropagationPolicyStatus::default(), &time(1));
        let groups: Vec<(i32, i32)> = status.groups.iter().map(|group| (group.desired, group.current)).collect();
        (groups, status.misplaced)
    };
    // The seats of 2 and 3 are b, a, b.
    assert_eq!(status_of(&weights(&[("a", 2), ("b", 3)]), numbered), (vec![(1, 1), (2, 2)], 2));
    let ranges = json!({"numRange": [{"nodeGroupNames": ["a"], "min": 1}, {"nodeGroupNames": ["b"], "max": 2}]});
    let ranges: PropagationPolicySpec = serde_json::from_value(ranges).expect("a policy");
    assert_eq!(status_of(&ranges, pods(&[0, 0, 0, 0])), (vec![(4, 4), (0, 0)], 0), "that they are even is for placing");
    assert_eq!(status_of(&ranges, pods(&[0, 1, 1, 1])), (vec![(2, 1), (2, 3)], 1));
}

#[test]
fn what_is_not_in_effect_is_said() {
    let status_of = |spec: &PropagationPolicySpec, following: Following| {
        let facts = Spread { following, ..Spread::default() };
        propagation_status(spec, &facts, &PropagationPolicyStatus::default(), &time(1))
    };
    let spec = weights(&[("a", 1), ("south", 1)]);
    let status = status_of(&spec, following(0, 0));
    assert_eq!(told(&status.conditions, READY).1, "NoApplications");
    assert_eq!(told(&status.conditions, DIVIDED).0, "True");
    let missing = "No such NodeGroup: south. Create what is missing, or correct the names.";
    assert_eq!(told(&status.conditions, GROUPS_FOUND), ("False", "GroupsMissing", missing));
    let status = status_of(&spec, following(1, 2));
    let text = "Of 3 applications that ask for it, 2 do not follow it yet: their Events say why.";
    assert_eq!(told(&status.conditions, READY), ("False", "NotConfirmed", text));
    let status = status_of(&PropagationPolicySpec::default(), following(1, 0));
    assert_eq!(told(&status.conditions, READY), ("False", "NoStrategy", NO_STRATEGY));
    let suspended = Following { is_suspended: true, ..following(1, 0) };
    assert_eq!(told(&status_of(&spec, suspended).conditions, SUSPENDED).0, "True");
}

#[test]
fn lists_are_bounded_and_say_how_many_there_are() {
    let listed: Vec<String> = (0..200).map(|number| format!("g{number:03}")).collect();
    let listed: Vec<(&str, i64)> = listed.iter().map(|name| (name.as_str(), 1)).collect();
    let facts = Spread {
        following: following(50, 0),
        pending: (0..30).map(|number| (Arc::from(format!("Reason{number:02}")), 1)).collect(),
        moves: (0..30).map(|number| moved(&format!("p{number}"), number)).collect(),
        ..Spread::default()
    };
    let status = propagation_status(&weights(&listed), &facts, &PropagationPolicyStatus::default(), &time(1));
    assert_eq!((status.applications.len(), status.application_count), (20, 50));
    assert_eq!((status.groups.len(), status.group_count), (64, 200));
    assert_eq!((status.pending_reasons.len(), status.pending), (8, 30));
    assert_eq!(status.last_moves.len(), 5);
    let message = told(&status.conditions, GROUPS_FOUND).2;
    assert!(message.contains("g000, g001, g002, g003, g004 and 195 more"), "{message}");
    assert!(serde_json::to_vec(&status).expect("JSON").len() < 16_000);
    let editioned = Editioned {
        following: following(50, 0),
        groups: listed.iter().map(|(name, _)| Arc::from(*name)).collect(),
        ..Editioned::default()
    };
    let rules = OverridePolicySpec::default();
    let status = override_status(&rules, &editioned, &OverridePolicyStatus::default(), &time(1));
    assert_eq!((status.groups.len(), status.group_count, status.applications.len()), (64, 200, 20));
}

#[test]
fn moves_are_remembered_by_the_status_itself_and_told_once() {
    let spec = weights(&[("a", 1), ("b", 1)]);
    let status_of = |before: &[PodMove], moves: &[PodMove]| {
        let before = PropagationPolicyStatus { last_moves: before.to_vec(), ..PropagationPolicyStatus::default() };
        let facts = Spread { following: following(1, 0), moves: moves.to_vec(), ..Spread::default() };
        let last = propagation_status(&spec, &facts, &before, &time(9)).last_moves;
        last.into_iter().map(|moved| moved.pod).collect::<Vec<_>>()
    };
    assert_eq!(status_of(&[moved("x", 1)], &[moved("y", 2), moved("x", 1)]), ["y", "x"]);
    assert_eq!(status_of(&[moved("x", 1)], &[moved("x", 5)]), ["x", "x"], "a StatefulSet's pod is moved twice");
    let many: Vec<PodMove> = (0..5).map(|number| moved(&format!("p{number}"), number)).collect();
    assert_eq!(status_of(&many, &[moved("new", 7)]), ["new", "p4", "p3", "p2", "p1"]);
}

#[test]
fn equal_facts_give_an_equal_status_and_times_are_those_of_changes() {
    let spec = weights(&[("a", 2), ("b", 3)]);
    let facts =
        |groups: &[usize]| Spread { following: following(1, 0), owners: vec![pods(groups)], ..Spread::default() };
    let first = propagation_status(&spec, &facts(&[0, 0, 1, 1, 1]), &PropagationPolicyStatus::default(), &time(1));
    let same = propagation_status(&spec, &facts(&[0, 0, 1, 1, 1]), &first, &time(2));
    assert_eq!(first, same);
    let other = propagation_status(&spec, &facts(&[0, 0, 0, 1, 1]), &first, &time(3));
    let since = |kind: &str| {
        let known = other.conditions.iter().find(|known| known.type_ == kind).expect(kind);
        known.last_transition_time.clone()
    };
    assert_eq!((since(DIVIDED), since(READY)), (time(3), time(1)));
}

fn rules(rules: serde_json::Value) -> OverridePolicySpec {
    serde_json::from_value(json!({"overrideRules": rules})).expect("a policy")
}

fn registry(group: &str) -> serde_json::Value {
    json!({"targetNodeGroup": [group], "imageOverrider": [
        {"component": "Registry", "operator": "replace", "value": format!("{group}.example")}]})
}

fn place(group: &str, rules_of: &str, is_images_only: bool) -> Place {
    Place { group: Arc::from(group), rules_of: Arc::from(rules_of), is_images_only }
}

// Pods that no policy divides: those on a node of two groups have the rules of both, and none gets more than images.
#[test]
fn pods_that_follow_their_node_are_right_by_all_its_groups_and_by_images_alone() {
    let plain = json!({"targetNodeGroup": ["a"], "argsOverrider": [{"containerName": "c", "operator": "add", "value": ["-v"]}]});
    let spec = rules(json!([registry("a"), registry("b"), plain]));
    let name = |spec: &OverridePolicySpec, groups: &str| Edition::of("", spec, groups).name.map(Arc::from);
    let stamped = [
        (place("a", "a,b", false), name(&spec, "a,b")),
        (place("a", "a", true), name(&images_only(&spec), "a")),
        (place("a", "a", true), name(&spec, "a")),
    ];
    let facts = Editioned {
        following: following(2, 0),
        groups: ["a", "b"].map(Arc::from).into(),
        pods: stamped.into_iter().map(|known| (known, 1)).collect(),
        undivided: 1,
    };
    let status = override_status(&spec, &facts, &OverridePolicyStatus::default(), &time(1));
    assert_eq!((status.pods, status.updated), (3, 2), "one was made by the rules that it cannot have");
    let mut facts = facts;
    facts.pods.retain(|(place, _), _| &*place.rules_of == "a,b");
    let status = override_status(&spec, &facts, &OverridePolicyStatus::default(), &time(1));
    assert_eq!((status.updated, told(&status.conditions, UPDATED).1), (1, "ImagesOnly"));
}

#[test]
fn editions_are_counted_by_group() {
    let spec = rules(json!([registry("a")]));
    let edition: Arc<str> = Edition::of("", &spec, "a").name.expect("an edition").into();
    let at =
        |group: &str, stamp: Option<&Arc<str>>, count: usize| ((place(group, group, false), stamp.cloned()), count);
    let old = Arc::from("old");
    let facts = Editioned {
        following: following(1, 0),
        groups: ["a", "b"].map(Arc::from).into(),
        pods: BTreeMap::from([
            at("a", Some(&edition), 2),
            at("a", Some(&old), 2),
            at("a", None, 1),
            at("b", None, 3),
            at("b", Some(&old), 1),
        ]),
        undivided: 0,
    };
    let status = override_status(&spec, &facts, &OverridePolicyStatus::default(), &time(1));
    let groups: Vec<_> = status
        .groups
        .iter()
        .map(|group| (group.name.as_str(), group.edition.as_deref(), group.updated, group.outdated))
        .collect();
    assert_eq!(groups, [("a", Some(&*edition), 2, 3), ("b", None, 3, 1)]);
    let kept: Vec<_> = status.groups.iter().map(|group| group.current_edition.as_deref()).collect();
    assert_eq!(kept, [Some("old"), Some("old")]);
    assert_eq!((status.pods, status.updated), (9, 5));
    let text = "Of 9 in groups, 4 pods have another edition than their group should have.";
    assert_eq!(told(&status.conditions, UPDATED), ("False", "PodsOutdated", text));
}

#[test]
fn rules_that_cannot_apply_without_a_propagation_policy_are_said() {
    let plain = json!({"argsOverrider": [{"containerName": "c", "operator": "add", "value": ["-v"]}]});
    let reason = |spec: &OverridePolicySpec, undivided: usize| {
        let facts = Editioned { following: following(2, 0), undivided, ..Editioned::default() };
        let status = override_status(spec, &facts, &OverridePolicyStatus::default(), &time(1));
        told(&status.conditions, UPDATED).1.to_owned()
    };
    assert_eq!(reason(&rules(json!([registry("a"), plain])), 1), "ImagesOnly");
    assert_eq!(reason(&rules(json!([registry("a"), plain])), 0), "AllUpdated");
    assert_eq!(reason(&rules(json!([registry("a")])), 1), "AllUpdated");
}

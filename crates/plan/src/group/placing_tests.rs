use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::group::costs::SEAT;

fn policy(spec: serde_json::Value) -> PropagationPolicySpec {
    serde_json::from_value(spec).expect("a policy")
}

fn weights() -> PropagationPolicySpec {
    policy(json!({"staticWeightList": [
        {"nodeGroupNames": ["Beijing"], "weight": 2}, {"nodeGroupNames": ["hangzhou"], "weight": 3}]}))
}

/// A pod, as the API server would have it.
#[derive(Debug, Clone, Default)]
struct Pod {
    is_gated: bool,
    is_leaving: bool,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    node_selector: BTreeMap<String, String>,
    groups_of_node: BTreeSet<Arc<str>>,
    ordinal: Option<usize>,
    created: i64,
}

impl Pod {
    fn gated(created: i64) -> Self {
        Self { is_gated: true, created, ..Self::default() }
    }

    fn facts(&self) -> PodFacts<'_> {
        PodFacts {
            is_gated: self.is_gated,
            is_live: !self.is_leaving,
            labels: &self.labels,
            annotations: &self.annotations,
            node_selector: &self.node_selector,
            groups_of_node: &self.groups_of_node,
            ordinal: self.ordinal,
            created: self.created,
        }
    }

    /// As it is once it was placed.
    fn place(&mut self, placement: &Placement) {
        self.is_gated = false;
        self.labels.insert(GATE.to_owned(), placement.group.to_string());
        self.node_selector.extend(placement.selector.clone());
        if let Some(cost) = placement.cost {
            self.annotations.insert(DELETION_COST.to_owned(), cost.to_string());
            self.annotations.insert(SEAT.to_owned(), (-cost).to_string());
        }
    }
}

fn all_groups(group: &str) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([("site".to_owned(), group.to_owned())]))
}

/// Where no OverridePolicy is asked for.
fn known<'k>(selector_of: &'k dyn Fn(&str) -> Option<BTreeMap<String, String>>) -> Known<'k> {
    static NONE: BTreeMap<Arc<str>, String> = BTreeMap::new();
    static ANYWHERE: BTreeMap<Arc<str>, BTreeSet<usize>> = BTreeMap::new();
    let suits = &|_: Option<&str>| Vec::new();
    Known { selector_of, suits, unrendered: &NONE, allowed: &ANYWHERE, has_room: &|_, _, _| true, are_kept: false }
}

fn name(number: usize) -> Arc<str> {
    Arc::from(format!("pod-{number}"))
}

fn anew(spec: &PropagationPolicySpec, pods: &BTreeMap<Arc<str>, Pod>) -> Placing {
    let mut placing = Placing::new("spread", spec).expect("it divides");
    placing.expect(pods.iter().filter(|(_, pod)| !pod.is_leaving).map(|(name, _)| name.clone()));
    pods.iter().for_each(|(name, pod)| placing.put(name, &pod.facts()));
    placing
}

/// Makes it anew of all pods, and decides.
fn decide(spec: &PropagationPolicySpec, pods: &BTreeMap<Arc<str>, Pod>) -> Vec<(Arc<str>, Decision)> {
    anew(spec, pods).decide(&known(&all_groups))
}

fn counts(pods: &BTreeMap<Arc<str>, Pod>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods.values().filter(|pod| !pod.is_leaving) {
        *counts.entry(pod.labels.get(GATE).cloned().unwrap_or_default()).or_default() += 1;
    }
    counts
}

fn place_all(spec: &PropagationPolicySpec, pods: &mut BTreeMap<Arc<str>, Pod>) {
    for (name, decision) in decide(spec, pods) {
        if let (Decision::Place(placement), Some(pod)) = (decision, pods.get_mut(&name)) {
            pod.place(&placement);
        }
    }
}

#[test]
fn pods_are_divided_by_weight_and_carry_their_seats() {
    let mut pods: BTreeMap<Arc<str>, Pod> = (0..5).map(|number| (name(number), Pod::gated(number as i64))).collect();
    place_all(&weights(), &mut pods);
    assert_eq!(counts(&pods), BTreeMap::from([("beijing".to_owned(), 2), ("hangzhou".to_owned(), 3)]));
    let costs: BTreeSet<String> = pods.values().filter_map(|pod| pod.annotations.get(DELETION_COST).cloned()).collect();
    assert_eq!(costs, ["0", "-1", "-2", "-3", "-4"].map(str::to_owned).into());
    assert!(pods.values().all(|pod| pod.node_selector.get("site") == pod.labels.get(GATE)));
}

#[test]
fn labels_of_an_application_say_what_becomes_of_its_pods() {
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let (spread, images) = (Pair::Propagation, Pair::Override);
    let rule = |pairs: &[(&str, &str)]| format!("{:?}", PodRule::of(&labels(pairs)));
    assert_eq!(rule(&[]), "Release");
    assert_eq!(rule(&[(spread.binding(), "a")]), "Release");
    assert!(rule(&[(spread.required(), "a")]).starts_with("Hold { pair: Propagation"));
    assert!(rule(&[(spread.required(), "a"), (spread.binding(), "b")]).starts_with("Hold { pair: Propagation"));
    let bound = [(spread.required(), "a"), (spread.binding(), "a")];
    assert_eq!(rule(&bound), "Divide(\"a\")");
    assert!(rule(&[bound[0], bound[1], (images.required(), "o")]).starts_with("Hold { pair: Override"));
    assert_eq!(rule(&[(images.required(), "o"), (images.binding(), "o")]), "Release");
}

#[test]
fn what_cannot_be_placed_says_why() {
    let ranges = policy(json!({"numRange": [{"nodeGroupNames": ["north"], "max": 1}]}));
    let pods = BTreeMap::from([(name(0), Pod::gated(0)), (name(1), Pod::gated(1))]);
    let decided = decide(&ranges, &pods);
    assert!(matches!(&decided[0].1, Decision::Place(placement) if *placement.group == *"north"));
    assert_eq!(decided[1].1, Decision::Wait(Why::NoSeat { policy: "spread".to_owned() }));

    let mut placing = Placing::new("spread", &ranges).unwrap();
    placing.put(&name(0), &pods[&name(0)].facts());
    let decided = placing.decide(&known(&|_| None));
    let Decision::Wait(why) = &decided[0].1 else { panic!("{decided:?}") };
    assert_eq!(why.reason(), "WaitingForGroup");
    assert!(why.to_string().contains("NodeGroup \"north\""), "{why}");

    let mut picky = Pod::gated(0);
    picky.node_selector.insert("site".to_owned(), "south".to_owned());
    let decided = decide(&ranges, &BTreeMap::from([(name(0), picky.clone())]));
    assert!(matches!(&decided[0].1, Decision::Wait(Why::Contradiction { key, .. }) if key == "site"), "{decided:?}");
    picky.node_selector.insert("site".to_owned(), "north".to_owned());
    let decided = decide(&ranges, &BTreeMap::from([(name(0), picky)]));
    assert!(matches!(&decided[0].1, Decision::Place(_)), "it asks for the same: {decided:?}");
}

#[test]
fn pods_of_another_edition_are_corrected_or_replaced_and_some_are_kept() {
    let made_by = |edition: &str| Pod {
        annotations: BTreeMap::from([(EDITION.to_owned(), edition.to_owned())]),
        ..Pod::gated(0)
    };
    let decide = |elsewhere: Suits, are_kept: bool| -> Vec<Decision> {
        let pods: BTreeMap<Arc<str>, Pod> = (0..5).map(|number| (name(number), made_by("of-beijing"))).collect();
        let suits = |edition: Option<&str>| {
            assert_eq!(edition, Some("of-beijing"));
            vec![Suits::AsItIs, elsewhere]
        };
        let known = Known { suits: &suits, are_kept, ..known(&all_groups) };
        anew(&weights(), &pods).decide(&known).into_iter().map(|(_, decision)| decision).collect()
    };
    let count = |decisions: &[Decision], is_such: &dyn Fn(&Placement) -> bool| {
        decisions.iter().filter(|done| matches!(done, Decision::Place(placement) if is_such(placement))).count()
    };
    let corrected = decide(Suits::Corrected, false);
    let is_in = |group: &'static str, suits: Suits| move |to: &Placement| *to.group == *group && to.suits == suits;
    assert_eq!(count(&corrected, &is_in("beijing", Suits::AsItIs)), 2);
    assert_eq!(count(&corrected, &is_in("hangzhou", Suits::Corrected)), 3);
    let replaced = decide(Suits::Never, false);
    assert_eq!(count(&replaced, &is_in("beijing", Suits::AsItIs)), 2);
    assert_eq!(replaced.iter().filter(|done| **done == Decision::Replace).count(), 3);
    let kept = decide(Suits::Never, true);
    assert_eq!(count(&kept, &is_in("beijing", Suits::AsItIs)), 5, "{kept:?}");
}

#[test]
fn a_group_without_an_edition_that_renders_keeps_its_pods_waiting() {
    let pods = BTreeMap::from([(name(0), Pod::gated(0)), (name(1), Pod::gated(1))]);
    let unrendered = BTreeMap::from([(Arc::from("hangzhou"), "there is no container \"x\"".to_owned())]);
    let decided = anew(&weights(), &pods).decide(&Known { unrendered: &unrendered, ..known(&all_groups) });
    assert!(matches!(&decided[0].1, Decision::Wait(Why::NoEdition { .. })), "{decided:?}");
    assert!(matches!(&decided[1].1, Decision::Place(placement) if *placement.group == *"beijing"), "{decided:?}");
}

#[test]
fn one_more_pod_probably_gets_the_next_free_seat() {
    let mut division = Division::of(&weights()).unwrap();
    let mut have: Vec<Arc<str>> = Vec::new();
    for expected in ["hangzhou", "beijing", "hangzhou", "beijing", "hangzhou"] {
        let next = probable_group(&mut division, have.iter().map(|group| (Some(&**group), 1)), None, None).unwrap();
        assert_eq!(&*next, expected);
        have.push(next);
    }
    let unknown = [None, Some("Beijing"), Some("elsewhere")].map(|group| (group, 1));
    assert_eq!(&*probable_group(&mut division, unknown.into_iter(), None, None).unwrap(), "hangzhou");
    assert_eq!(&*probable_group(&mut division, std::iter::empty(), Some(3), None).unwrap(), "beijing");
    let mut full = Division::of(&policy(json!({"numRange": [{"nodeGroupNames": ["north"], "max": 1}]}))).unwrap();
    assert_eq!(probable_group(&mut full, [(Some("north"), 1)].into_iter(), None, None), None);
    let only = BTreeSet::from([0]);
    let volumes = probable_group(&mut division, std::iter::empty(), Some(0), Some(&only));
    assert_eq!(volumes.as_deref(), Some("beijing"), "volumes come before seats");
}

/// A pod that was made for another group than the leader chooses would be made anew for ever.
#[test]
fn leader_and_webhook_agree_where_volumes_allow_several_groups() {
    let spec = policy(json!({"staticWeightList": [{"nodeGroupNames": ["a", "b", "c"], "weight": 1}]}));
    let mut division = Division::of(&spec).unwrap();
    // The seat of ordinal 3 is in a; one pod runs in b, two in c.
    let both = BTreeSet::from([1, 2]);
    let have = ["c", "c", "b"];
    let guessed = probable_group(&mut division, have.iter().map(|group| (Some(*group), 1)), Some(3), Some(&both));
    let mut seating = Seating::new(division);
    seating.set_live(4);
    for (number, group) in [2, 2, 1].into_iter().enumerate() {
        seating.put(&name(number), Placed { group: Some(group), seat: None });
    }
    let waits = Waiting { ordinal: Some(3), allowed: Some(both), ..Waiting::default() };
    let placed = seating.place(&[(name(3), waits)], &|_, _, _| true)[0].unwrap();
    assert_eq!(guessed.as_deref(), Some(&*seating.division().groups()[placed.group]));
}

#[test]
fn a_pod_whose_volumes_are_elsewhere_waits_and_says_so() {
    let allowed = BTreeMap::from([(name(0), BTreeSet::new())]);
    let known = Known { allowed: &allowed, ..known(&all_groups) };
    let mut placing = anew(&weights(), &BTreeMap::from([(name(0), Pod::gated(0))]));
    let why = Why::OutOfReach { policy: "spread".to_owned() };
    assert_eq!(placing.decide(&known), [(name(0), Decision::Wait(why))]);
}

#[test]
fn a_cost_of_the_users_own_is_left_alone() {
    let annotations = BTreeMap::from([(DELETION_COST.to_owned(), "100".to_owned())]);
    let pod = Pod { annotations, ..Pod::gated(0) };
    let decided = decide(&weights(), &BTreeMap::from([(name(0), pod)]));
    assert!(matches!(&decided[0].1, Decision::Place(placement) if placement.cost.is_none()), "{decided:?}");
}

#[test]
fn an_ordinal_is_a_seat() {
    let pods = (0..5).map(|number| {
        // The last first, as a StatefulSet with parallel pods may make them.
        (name(number), Pod { ordinal: Some(number), ..Pod::gated(10 - number as i64) })
    });
    let mut pods: BTreeMap<Arc<str>, Pod> = pods.collect();
    place_all(&weights(), &mut pods);
    let mut division = Division::of(&weights()).unwrap();
    for number in 0..5 {
        let group = division.group_at(number).unwrap();
        assert_eq!(pods[&name(number)].labels[GATE], *division.groups()[group], "{number}");
    }
}

#[test]
fn a_pod_without_a_group_counts_for_the_freest_of_its_node() {
    let both: BTreeSet<Arc<str>> = [Arc::from("beijing"), Arc::from("hangzhou")].into();
    let stray = |groups: &BTreeSet<Arc<str>>| Pod { groups_of_node: groups.clone(), ..Pod::default() };
    // Three strays: of five pods hangzhou gets three and beijing two.
    let mut pods: BTreeMap<Arc<str>, Pod> = (0..3).map(|number| (name(number), stray(&both))).collect();
    pods.insert(name(3), Pod::gated(3));
    pods.insert(name(4), Pod::gated(4));
    place_all(&weights(), &mut pods);
    let new = counts(&pods);
    assert_eq!(new.values().sum::<usize>(), 5);
    assert_eq!(new[""], 3, "they keep what they have");
    assert_eq!(new.get("beijing").copied().unwrap_or_default() + new.get("hangzhou").copied().unwrap_or_default(), 2);
}

#[test]
fn groups_are_selected_by_their_own_labels_unless_they_name_nodes() {
    let spec = |spec: serde_json::Value| -> NodeGroupSpec { serde_json::from_value(spec).unwrap() };
    let by_label = selector("north", &spec(json!({"matchLabels": {"site": "north"}})));
    assert_eq!(by_label, BTreeMap::from([("site".to_owned(), "north".to_owned())]));
    let named = selector("north", &spec(json!({"nodes": ["a"], "matchLabels": {"site": "north"}})));
    assert_eq!(named, BTreeMap::from([("group.dapple.dev/north".to_owned(), "true".to_owned())]));
    assert_eq!(selector("north", &NodeGroupSpec::default()), named, "and no node has it");
}

#[derive(Debug, Clone)]
enum Step {
    Come(usize),
    Go(usize),
    PlaceAll,
    /// As a ReplicaSet would: the lowest cost goes first.
    Shrink(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..12_usize).prop_map(Step::Come),
        (0..12_usize).prop_map(Step::Go),
        Just(Step::PlaceAll),
        (1..6_usize).prop_map(Step::Shrink),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    // Told one by one, it decides as if made anew.
    #[test]
    fn one_by_one_is_as_all_at_once(steps in steps()) {
        let spec = weights();
        let mut placing = Placing::new("spread", &spec).unwrap();
        let mut pods: BTreeMap<Arc<str>, Pod> = BTreeMap::new();
        for (time, step) in steps.into_iter().enumerate() {
            match step {
                Step::Come(number) => {
                    let pod = pods.entry(name(number)).or_insert_with(|| Pod::gated(time as i64));
                    placing.put(&name(number), &pod.facts());
                }
                Step::Go(number) => {
                    pods.remove(&name(number));
                    placing.remove(&name(number));
                }
                Step::PlaceAll => {
                    for (name, decision) in placing.decide(&known(&all_groups)) {
                        let (Decision::Place(placement), Some(pod)) = (decision, pods.get_mut(&name)) else { continue };
                        placing.note_placed(&name, &placement);
                        pod.place(&placement);
                    }
                }
                Step::Shrink(_) => {}
            }
            let mut anew = anew(&spec, &pods);
            let counted = |placing: &mut Placing| placing.seating.counts();
            prop_assert_eq!(counted(&mut placing), counted(&mut anew));
        }
    }

    // Scaling up and down by the cheapest leaves every group with exactly its share, and moves nobody.
    #[test]
    fn scaling_keeps_every_share(steps in steps()) {
        let spec = weights();
        let mut pods: BTreeMap<Arc<str>, Pod> = BTreeMap::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Come(_) | Step::PlaceAll | Step::Go(_) => {
                    pods.insert(name(next), Pod::gated(next as i64));
                    next += 1;
                }
                Step::Shrink(by) => {
                    for _ in 0..by {
                        let cost = |pod: &Pod| pod.annotations.get(DELETION_COST).and_then(|cost| cost.parse::<i32>().ok());
                        let last = pods.iter().min_by_key(|(_, pod)| cost(pod)).map(|(name, _)| name.clone());
                        last.into_iter().for_each(|name| _ = pods.remove(&name));
                    }
                }
            }
            place_all(&spec, &mut pods);
            let shares = Division::of(&spec).unwrap().counts(pods.len());
            let counts = counts(&pods);
            for (group, share) in ["beijing", "hangzhou"].into_iter().zip(shares) {
                prop_assert_eq!(counts.get(group).copied().unwrap_or_default(), share, "{}", group);
            }
        }
    }
}

//! Who is held back, case by case and as properties.

use proptest::prelude::*;

use super::*;

/// A node by a letter; capital letters are chosen by selectors.
fn node(name: &str, variant: usize) -> Prospect {
    let given = |rendering: &str| Given {
        rendering: Some(Arc::from(rendering)),
        variant,
        can_start: true,
        can_stay: true,
        is_selected: true,
        reach: Reach::Always,
        is_unproven: false,
        is_gone: false,
    };
    Prospect {
        name: Arc::from(name),
        health: Health::Ready,
        is_out_of_service: false,
        next: given("new"),
        now: Some(given("old")),
        is_canary: false,
        is_chosen: true,
    }
}

fn percent(text: &str) -> IntOrString {
    IntOrString::String(text.to_owned())
}

/// Names in order, those that are held in brackets.
fn shown(placement: &Placement) -> String {
    let shown = |rank: &Rank| match placement.state(&rank.name).unwrap().hold {
        Some(_) => format!("({})", rank.name),
        None => rank.name.to_string(),
    };
    placement.order.iter().map(shown).collect()
}

fn placed(holdback: Holdback, prospects: Vec<Prospect>) -> Placement {
    let mut placement = Placement::new(holdback);
    placement.put_all(prospects);
    placement
}

fn four() -> Vec<Prospect> {
    [("d", 0), ("b", 1), ("a", 0), ("c", 1)].into_iter().map(|(name, variant)| node(name, variant)).collect()
}

fn partition(partition: IntOrString) -> Holdback {
    Holdback { partition, ..Holdback::default() }
}

#[test]
fn a_problem_concerns_nodes_that_should_have_what_they_cannot_be_given() {
    let with = |change: fn(&mut Given)| {
        let mut found = node("a", 3);
        change(&mut found.next);
        found.troubled()
    };
    assert_eq!(with(|_| {}), None);
    assert_eq!([with(|next| next.rendering = None), with(|next| next.is_unproven = true)], [Some(3); 2]);
    assert_eq!(with(|next| (next.rendering, next.can_start) = (None, false)), None, "it is for others");
    // Its health changes nothing of that.
    let mut placement = placed(Holdback::default(), vec![Prospect { health: Health::Ready, ..node("a", 3) }]);
    placement.put(Prospect { health: Health::NotReady { since: 0 }, ..node("a", 3) });
    assert_eq!(placement.prospect("a").map(Prospect::troubled), Some(None));
    assert_eq!(placement.prospect("b"), None);
}

#[test]
fn the_partition_holds_back_the_first() {
    for (number, expected) in [
        (IntOrString::Int(0), "abcd"),
        (IntOrString::Int(2), "(a)(b)cd"),
        (IntOrString::Int(9), "(a)(b)(c)(d)"),
        (percent("50%"), "(a)(b)cd"),
        (percent("40%"), "(a)bcd"),
        (percent("all"), "(a)(b)(c)(d)"),
    ] {
        assert_eq!(shown(&placed(partition(number.clone()), four())), expected, "{number:?}");
    }
}

#[test]
fn canaries_come_last_in_the_order_and_so_first_in_the_rollout() {
    let each = |partition: i32| Holdback {
        has_canary_of_each: true,
        partition: IntOrString::Int(partition),
        ..Holdback::default()
    };
    assert_eq!(shown(&placed(each(2), four())), "(a)(b)cd");
    let kinds = [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 1)].map(|(name, variant)| node(name, variant));
    let mut placement = placed(each(3), kinds.to_vec());
    assert_eq!(shown(&placement), "(a)(c)(d)be");
    placement.remove(&Arc::from("e"));
    assert_eq!(shown(&placement), "(a)(c)(b)d", "the next of its kind takes its place");
    let canary = Prospect { is_canary: true, ..node("a", 0) };
    assert_eq!(shown(&placed(partition(IntOrString::Int(2)), vec![node("b", 0), canary, node("c", 0)])), "(b)(c)a");
}

#[test]
fn the_selector_and_a_pause_leave_nodes_alone() {
    let nodes = || vec![Prospect { is_chosen: false, ..node("a", 0) }, node("b", 0)];
    assert_eq!(shown(&placed(Holdback { has_selector: true, ..Holdback::default() }, nodes())), "(a)b");
    assert_eq!(shown(&placed(Holdback { is_paused: true, ..Holdback::default() }, nodes())), "(a)(b)");
    assert_eq!(shown(&placed(Holdback { is_blocked: true, ..Holdback::default() }, nodes())), "(a)(b)");
}

#[test]
fn an_outage_moves_no_border() {
    let mut placement = placed(partition(percent("50%")), four());
    let ill = |name: &str, reach: Reach| {
        let mut ill = Prospect { health: Health::Unknown { since: 1 }, ..node(name, 0) };
        for given in [Some(&mut ill.next), ill.now.as_mut()].into_iter().flatten() {
            (given.can_start, given.reach) = (false, reach);
        }
        ill
    };
    placement.put(ill("d", Reach::Always));
    placement.put(ill("a", Reach::Always));
    assert_eq!(shown(&placement), "(a)(b)cd");
    let holding = Holding { has_pod: true, ..Holding::default() };
    placement.hold(&Arc::from("d"), holding);
    placement.put(ill("d", Reach::WithPod));
    assert_eq!(shown(&placement), "(a)(b)cd", "it runs a pod");
    placement.hold(&Arc::from("d"), Holding::default());
    assert_eq!(shown(&placement), "(a)bc", "a taint keeps it from those that the template is for");
}

/// As OpenKruise has it: places are used by those that have the newest revision or are being replaced, then by selected
/// nodes in order.
#[test]
fn with_a_selector_no_more_nodes_are_updated_than_the_partition_leaves() {
    let holdback = |number: i32| Holdback { has_selector: true, ..partition(IntOrString::Int(number)) };
    let nodes =
        || ["a", "b", "c", "d", "e", "f"].map(|name| Prospect { is_chosen: name > "b", ..node(name, 0) }).to_vec();
    let mut placement = placed(holdback(4), nodes());
    assert_eq!(shown(&placement), "(a)(b)(c)(d)ef", "two places, for the last two that are selected");
    // One that is not selected has it already, and uses a place.
    placement.hold(&Arc::from("a"), Holding { has_pod: true, has_newest: true, is_replaced: false });
    placement.share();
    assert_eq!(shown(&placement), "(a)(b)(c)(d)(e)f");
    // One that is selected is being replaced, and comes before the others.
    placement.hold(&Arc::from("c"), Holding { has_pod: false, has_newest: false, is_replaced: true });
    placement.share();
    assert_eq!(shown(&placement), "(a)(b)c(d)(e)(f)");
    assert_eq!(shown(&placed(holdback(6), nodes())), "(a)(b)(c)(d)(e)(f)");
    assert_eq!(shown(&placed(holdback(0), nodes())), "(a)(b)cdef");
}

fn some_prospect() -> impl Strategy<Value = Prospect> {
    let reach = prop::sample::select(vec![Reach::Always, Reach::WithPod, Reach::Never]);
    let name = prop::sample::select(vec!["a", "b", "c", "d", "e", "f", "g", "h"]);
    (name, 0_usize..3, reach, any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(name, variant, reach, is_chosen, is_canary, is_broken)| {
            let mut found = Prospect { is_chosen, is_canary, ..node(name, variant) };
            (found.next.reach, found.now) = (reach, None);
            if is_broken {
                found.next.rendering = None;
            }
            found
        },
    )
}

fn some_holdback() -> impl Strategy<Value = Holdback> {
    let partition =
        prop::sample::select(vec![IntOrString::Int(0), IntOrString::Int(2), percent("50%"), percent("30%")]);
    (partition, any::<bool>(), any::<bool>()).prop_map(|(partition, has_selector, has_canary_of_each)| Holdback {
        partition,
        has_selector,
        has_canary_of_each,
        ..Holdback::default()
    })
}

fn some_holding() -> impl Strategy<Value = Holding> {
    (any::<bool>(), any::<bool>()).prop_map(|(has_pod, is_newest)| Holding {
        has_pod,
        has_newest: has_pod && is_newest,
        is_replaced: !has_pod,
    })
}

proptest! {
    #[test]
    fn told_one_by_one_it_says_the_same_as_told_at_once(
        holdback in some_holdback(), steps in prop::collection::vec((some_prospect(), some_holding(), 0_u8..4), 1..24),
    ) {
        let mut one_by_one = Placement::new(holdback.clone());
        // What somebody who listens knows.
        let mut heard: BTreeMap<Arc<str>, NodeState> = BTreeMap::new();
        for (prospect, holding, kind) in steps {
            let name = prospect.name.clone();
            let states = match kind {
                0 => {
                    heard.remove(&name);
                    one_by_one.remove(&name)
                }
                1 => one_by_one.hold(&name, holding),
                _ => one_by_one.put(prospect),
            };
            let states = states.into_iter().chain(one_by_one.share());
            heard.extend(states.map(|state| (state.name.clone(), state)));
            let mut at_once = Placement::new(holdback.clone());
            at_once.entries = one_by_one.entries.clone();
            let all = at_once.put_all(Vec::new());
            let all: BTreeMap<Arc<str>, NodeState> = all.into_iter().map(|state| (state.name.clone(), state)).collect();
            prop_assert_eq!(&heard, &all);
        }
    }

    #[test]
    fn no_more_nodes_get_the_newest_than_the_partition_leaves(
        nodes in prop::collection::vec((some_prospect(), some_holding()), 0..12), number in 1_i32..6,
    ) {
        let holdback = Holdback { has_selector: true, ..partition(IntOrString::Int(number)) };
        let mut placement = placed(holdback, nodes.iter().map(|(node, _)| node.clone()).collect());
        for (node, holding) in &nodes {
            placement.hold(&node.name, *holding);
        }
        placement.share();
        let places = placement.order.len().saturating_sub(number as usize);
        let states: Vec<NodeState> = placement.order.iter().filter_map(|rank| placement.state(&rank.name)).collect();
        let has_newest = |state: &&NodeState| placement.entries[&state.name].holding.has_newest;
        let (having, free): (Vec<&NodeState>, Vec<&NodeState>) = states.iter().partition(has_newest);
        let released = free.iter().filter(|state| state.hold.is_none()).count();
        prop_assert!(released <= places.saturating_sub(having.len()), "{released} beside {} of {places}", having.len());
    }
}

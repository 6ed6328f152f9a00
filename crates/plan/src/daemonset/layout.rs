//! What a DaemonSet and its revisions mean for every node: the rules of the fleet, and its nodes in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::daemonset::{DaemonSetSpec, LifecycleHook, RollingUpdateType, UpdateStrategyType};
use dapple_api::selector::SelectorError;

use super::cell::{Hold, Mode, NodeState, Rules};
use super::desired::Variants;
use super::order::{Canary, Placed, budget, order};
use crate::fit::{Misfit, Node};

/// A node as the cluster tells of it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Its name, labels and taints.
    pub node: Node<'a>,
    /// Its name.
    pub name: &'a Arc<str>,
    /// Whether it is well.
    pub is_ready: bool,
}

/// What nodes should have.
pub struct Sources<'a> {
    /// What the DaemonSet says.
    pub spec: &'a DaemonSetSpec,
    /// What its newest revision gives.
    pub newest: &'a mut Variants,
    /// What the revision gives that nodes are held back at, if it is another one.
    pub current: Option<&'a mut Variants>,
    /// Nodes to be updated first.
    pub canary: Option<&'a Canary>,
    /// Hashes of the newest revision that the API server refuses: their nodes keep what they run.
    pub refused: &'a BTreeSet<Arc<str>>,
    /// Whether patches are not served.
    pub ignores_patches: bool,
}

/// The rules, and the nodes in the order of the rollout, the last of which is the first to be updated.
#[derive(Debug)]
pub struct Layout {
    /// What holds for all.
    pub rules: Rules,
    /// The nodes.
    pub nodes: Vec<NodeState>,
    /// The strategy's selector cannot be used: everything is held back.
    pub bad_selector: Option<SelectorError>,
}

/// What one revision gives a node.
struct Given {
    hash: Option<Arc<str>>,
    variant: usize,
    misfit: Option<Misfit>,
}

impl Given {
    fn of(variants: &mut Variants, node: Node<'_>) -> Self {
        let variant = variants.of(node);
        let rendered = variants.all()[variant].rendering.as_ref().ok();
        Self { hash: rendered.map(|known| known.hash.clone()), variant, misfit: variants.misfit(variant, node) }
    }

    fn fits(&self) -> bool {
        self.hash.is_some() && self.misfit.is_none()
    }
}

/// Lays the fleet out.
pub fn layout(sources: Sources<'_>, seen: &[Seen<'_>]) -> Layout {
    let Sources { spec, newest, mut current, canary, refused, ignores_patches } = sources;
    let rolling = spec.rolling_update();
    let given: Vec<(Given, Option<Given>)> = seen
        .iter()
        .map(|seen| {
            let now = current.as_deref_mut().map(|current| Given::of(current, seen.node));
            let next = Given::of(newest, seen.node);
            let hash = next.hash.filter(|hash| !refused.contains(hash));
            (Given { hash, ..next }, now)
        })
        .collect();
    // A node that fits either revision has a place in the order: one that is held back keeps its pod though the newest
    // template does not fit it any more.
    let fits = |(next, now): &(Given, Option<Given>)| next.fits() || now.as_ref().is_some_and(Given::fits);
    let eligible: Vec<usize> = (0..seen.len()).filter(|number| fits(&given[*number])).collect();
    let ordered: Vec<(Node<'_>, usize)> =
        eligible.iter().map(|number| (seen[*number].node, given[*number].0.variant)).collect();
    let (placed, bad_selector) = match order(&ordered, rolling, canary) {
        Ok(placed) => (placed, None),
        Err(error) => {
            let hold = Some(Hold::Selector);
            let held = |number| Placed { number, hold, is_partitioned: true };
            ((0..ordered.len()).map(held).collect(), Some(error))
        }
    };
    let mut places: Vec<Option<(usize, Placed)>> = vec![None; seen.len()];
    for (place, placed) in placed.into_iter().enumerate() {
        places[eligible[placed.number]] = Some((place, placed));
    }
    let states = seen.iter().zip(given).zip(&places);
    let mut nodes: Vec<(Option<usize>, NodeState)> = states
        .map(|((seen, (next, now)), place)| {
            (place.map(|(place, _)| place), state(seen, next, now, place.map(|(_, placed)| placed)))
        })
        .collect();
    // Those without a place, which are never updated, by name.
    nodes.sort_unstable_by(|(a, left), (b, right)| a.cmp(b).then_with(|| left.name.cmp(&right.name)));
    let nodes: Vec<NodeState> = nodes.into_iter().map(|(_, node)| node).collect();
    let count = nodes.iter().filter(|node| node.can_start).count();
    Layout { rules: rules(spec, count, ignores_patches), nodes, bad_selector }
}

fn state(seen: &Seen<'_>, next: Given, now: Option<Given>, placed: Option<Placed>) -> NodeState {
    let hold = placed.and_then(|placed| placed.hold);
    let (newest, variant) = (next.hash.clone(), next.variant);
    // Patches that do not apply hold up their own nodes only, which keep what they run, or get it back.
    let hold = if newest.is_some() { hold } else { Some(Hold::Unrendered) };
    let given = now.filter(|_| hold.is_some()).unwrap_or(next);
    let hold = if given.hash.is_some() { hold } else { Some(Hold::Unrendered) };
    let misfit = given.misfit.as_ref();
    let is_rendered = given.hash.is_some();
    NodeState {
        name: seen.name.clone(),
        can_start: is_rendered && misfit.is_none(),
        can_stay: !is_rendered || misfit.is_none_or(Misfit::lets_stay),
        is_ready: seen.is_ready,
        wanted: given.hash.unwrap_or_default(),
        newest: newest.unwrap_or_default(),
        variant,
        hold,
        is_partitioned: placed.is_some_and(|placed| placed.is_partitioned),
    }
}

fn rules(spec: &DaemonSetSpec, nodes: usize, ignores_patches: bool) -> Rules {
    let rolling = spec.rolling_update();
    let surge = budget(&rolling.max_surge(), nodes);
    let mode = match (spec.update_strategy_type(), rolling.rolling_update_type()) {
        (UpdateStrategyType::OnDelete, _) => Mode::OnDelete,
        (_, RollingUpdateType::InPlaceIfPossible) => Mode::InPlace,
        _ if surge > 0 => Mode::Surge,
        _ => Mode::Standard,
    };
    let hook =
        |pick: fn(&dapple_api::daemonset::Lifecycle) -> Option<&LifecycleHook>| spec.lifecycle.as_ref().and_then(pick);
    let (deletion, update) =
        (hook(|lifecycle| lifecycle.pre_delete.as_ref()), hook(|lifecycle| lifecycle.in_place_update.as_ref()));
    let sets_unready = |hook: Option<&LifecycleHook>| hook.and_then(|hook| hook.mark_pod_not_ready).unwrap_or(false);
    Rules {
        mode,
        min_ready: i64::from(spec.min_ready_seconds()),
        budget: budget(&rolling.max_unavailable(), nodes),
        surge,
        burst: budget(&spec.burst_replicas(), nodes).max(1),
        partitioned_scaling: spec.partitioned_scaling(),
        ignores_patches,
        has_update_hook: update.is_some(),
        unready: (sets_unready(deletion), sets_unready(update)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::daemonset::revision::spec_of;

    type Map = BTreeMap<String, String>;

    /// Nodes `a` to `d`, of which `d` has a label and `b` is not well.
    fn laid_out(strategy: Value, newest: Value, current: Option<Value>) -> Layout {
        let spec: DaemonSetSpec = serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "a"}}, "template": {}, "updateStrategy": strategy,
        }))
        .unwrap();
        let variants = |data: &Value, hash: &str| {
            let (template, patches) = spec_of(&json!({"spec": data})).unwrap();
            Variants::new("DaemonSet default/a", (template, &patches), &spec, (hash, 2))
        };
        let (mut newest, mut current) = (variants(&newest, "new"), current.map(|current| variants(&current, "old")));
        let names: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).into();
        let (plain, gpu) = (Map::new(), Map::from([("gpu".to_owned(), "yes".to_owned())]));
        let seen: Vec<Seen<'_>> = names
            .iter()
            .map(|name| {
                let labels = if **name == *"d" { &gpu } else { &plain };
                Seen { node: Node { name, labels, taints: &[] }, name, is_ready: **name != *"b" }
            })
            .collect();
        let sources = Sources {
            spec: &spec,
            newest: &mut newest,
            current: current.as_mut(),
            canary: None,
            refused: &BTreeSet::from([Arc::from("bad")]),
            ignores_patches: false,
        };
        layout(sources, &seen)
    }

    fn rolling(more: Value) -> Value {
        json!({"type": "RollingUpdate", "rollingUpdate": more})
    }

    /// By node: what it should have, whether it may start, why it is held.
    fn told(layout: &Layout) -> Vec<(&str, &str, bool, Option<Hold>)> {
        layout.nodes.iter().map(|node| (&*node.name, &*node.wanted, node.can_start, node.hold)).collect()
    }

    const TEMPLATE: fn() -> Value = || json!({"template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}});

    #[test]
    fn nodes_that_are_held_back_are_given_the_current_revision() {
        let layout = laid_out(rolling(json!({"partition": 3})), TEMPLATE(), Some(TEMPLATE()));
        let held = Some(Hold::Partition);
        let expected =
            [("a", "old", true, held), ("b", "old", true, held), ("c", "old", true, held), ("d", "new", true, None)];
        assert_eq!(told(&layout), expected);
        assert!(!layout.nodes[1].is_ready);
    }

    #[test]
    fn a_new_template_that_fits_nobody_takes_nothing_from_those_held_back() {
        let mut picky = TEMPLATE();
        picky["template"]["spec"]["nodeSelector"] = json!({"gpu": "yes"});
        let layout = laid_out(rolling(json!({"partition": 2})), picky.clone(), Some(TEMPLATE()));
        let held = Some(Hold::Partition);
        assert_eq!(
            told(&layout),
            [("a", "old", true, held), ("b", "old", true, held), ("c", "new", false, None), ("d", "new", true, None)]
        );
        assert!(!layout.nodes[2].can_stay);
        let alone = laid_out(rolling(json!({})), picky, None);
        assert_eq!(alone.nodes.iter().filter(|node| node.can_start).count(), 1);
    }

    #[test]
    fn a_patch_that_does_not_apply_holds_up_its_own_nodes() {
        let mut broken = TEMPLATE();
        broken["patches"] = json!([{"selector": {"matchLabels": {"gpu": "yes"}},
            "patch": {"spec": {"containers": [{"image": "x"}]}}}]);
        let layout = laid_out(rolling(json!({})), broken.clone(), None);
        let d = |layout: &Layout| layout.nodes.iter().find(|node| &*node.name == "d").unwrap().clone();
        assert_eq!((d(&layout).can_start, d(&layout).can_stay, d(&layout).hold), (false, true, Some(Hold::Unrendered)));
        assert_eq!(layout.nodes.iter().filter(|node| node.can_start).count(), 3);
        // With an earlier revision to go by, a pod that is lost comes back as it was.
        let layout = laid_out(rolling(json!({})), broken, Some(TEMPLATE()));
        assert_eq!((&*d(&layout).wanted, d(&layout).can_start, d(&layout).hold), ("old", true, Some(Hold::Unrendered)));
    }

    #[test]
    fn the_rules_are_read_from_the_strategy() {
        let layout = laid_out(rolling(json!({"maxSurge": "50%"})), TEMPLATE(), None);
        assert_eq!((layout.rules.mode, layout.rules.surge, layout.rules.budget), (Mode::Surge, 2, 0));
        let layout = laid_out(rolling(json!({"rollingUpdateType": "InPlaceIfPossible"})), TEMPLATE(), None);
        assert_eq!((layout.rules.mode, layout.rules.budget, layout.rules.burst), (Mode::InPlace, 1, 250));
        assert_eq!(laid_out(json!({"type": "OnDelete"}), TEMPLATE(), None).rules.mode, Mode::OnDelete);
    }

    #[test]
    fn a_selector_that_cannot_be_used_holds_everything_back() {
        let bad = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
        let layout = laid_out(rolling(bad), TEMPLATE(), None);
        assert!(layout.bad_selector.is_some());
        assert!(layout.nodes.iter().all(|node| node.hold == Some(Hold::Selector)));
    }
}

//! What a DaemonSet and its revisions mean for every node: the rules of the fleet, and what each node may get.

use std::sync::Arc;

use dapple_api::daemonset::{DaemonSetSpec, LifecycleHook, RollingUpdateType, UpdateStrategyType};
use dapple_api::selector::{Selector, SelectorError};

use super::cell::{Mode, Rollout, Rules};
use super::desired::Variants;
use super::order::{Canary, budget};
use super::placement::{Given, Holdback, Limits, Placement, Prospect};
use crate::fit::{Misfit, Node, OUT_OF_SERVICE};
use crate::health::Health;
use crate::mutant::{Mutant, is_on};

/// A node as the cluster tells of it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Its name, labels and taints.
    pub node: Node<'a>,
    /// Its name.
    pub name: &'a Arc<str>,
    /// How it is.
    pub health: Health,
}

/// What the API server says of a rendering, asked by a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It takes such pods, or such pods ran before.
    Taken,
    /// It refuses them: nodes keep what they run.
    Refused,
    /// Nobody knows: it did not answer.
    Unanswered,
}

/// What a revision, or the one before it, gives.
pub struct Revisions<'a> {
    /// The newest.
    pub newest: &'a mut Variants,
    /// The one that nodes are held back at, if it is another.
    pub current: Option<&'a mut Variants>,
}

impl Revisions<'_> {
    /// How many variants nodes have asked for.
    pub fn count(&self) -> usize {
        self.newest.all().len() + self.current.as_ref().map_or(0, |current| current.all().len())
    }
}

/// What a DaemonSet says about its rollout.
#[derive(Debug)]
pub struct Strategy {
    /// What holds for all.
    pub rules: Rules,
    /// Limits that may be shares of the nodes.
    pub limits: Limits,
    /// Who is held back.
    pub holdback: Holdback,
    /// The revision that nodes are held back at is gone: those that are held back keep what they run, and get nothing.
    pub is_current_gone: bool,
    /// The strategy's selector cannot be used: everything is held back.
    pub bad_selector: Option<SelectorError>,
    selector: Option<Selector>,
    canary: Option<Selector>,
}

impl Strategy {
    /// Reads what a DaemonSet says.
    pub fn of(spec: &DaemonSetSpec, canary: Option<&Canary>, rollout: Rollout, ignores_patches: bool) -> Self {
        let rolling = spec.rolling_update();
        let (selector, bad_selector) = match rolling.selector.as_ref().map(Selector::new).transpose() {
            Ok(selector) => (selector, None),
            Err(error) => (None, Some(error)),
        };
        let holdback = Holdback {
            partition: rolling.partition(),
            is_paused: rolling.paused(),
            has_selector: selector.is_some(),
            is_blocked: bad_selector.is_some(),
            has_canary_of_each: canary == Some(&Canary::EachVariant),
        };
        let canary = match canary {
            Some(Canary::Selector(selector)) => Some(selector.clone()),
            Some(Canary::EachVariant) | None => None,
        };
        let limits = Limits {
            max_unavailable: rolling.max_unavailable(),
            max_surge: rolling.max_surge(),
            burst: spec.burst_replicas(),
        };
        let rules = rules(spec, rollout, ignores_patches);
        Self { rules, limits, holdback, is_current_gone: false, bad_selector, selector, canary }
    }

    /// What a node may get. `proof` is what the API server says of what a rendering means.
    pub fn prospect(&self, revisions: &mut Revisions<'_>, seen: Seen<'_>, proof: impl Fn(&str) -> Proof) -> Prospect {
        let has = |selector: &Option<Selector>| {
            selector.as_ref().map(|selector| selector.matches(|key| seen.node.labels.get(key)))
        };
        let mut next = given(revisions.newest, seen.node);
        match next.rendering.as_deref().map(proof) {
            Some(Proof::Refused) => next.rendering = None,
            Some(Proof::Unanswered) => next.is_unproven = true,
            Some(Proof::Taken) | None => {}
        }
        Prospect {
            name: seen.name.clone(),
            health: seen.health,
            is_out_of_service: seen.node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
            now: match revisions.current.as_deref_mut() {
                _ if self.is_current_gone => {
                    Some(Given { can_stay: true, is_selected: true, is_gone: true, ..Given::default() })
                }
                current => current.map(|current| given(current, seen.node)),
            },
            next,
            is_canary: has(&self.canary).unwrap_or(false),
            is_chosen: has(&self.selector).unwrap_or(true),
        }
    }

    /// An order without nodes.
    pub fn placement(&self) -> Placement {
        Placement::new(self.holdback.clone())
    }

    /// Every label that decides about more than what nodes get.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.selector.iter().chain(&self.canary)
    }
}

/// What one revision gives a node.
fn given(variants: &mut Variants, node: Node<'_>) -> Given {
    let variant = variants.of(node);
    let (misfit, reach) = variants.judge(variant, node);
    Given {
        rendering: variants.all()[variant].rendering.as_ref().ok().map(|known| known.meaning.clone()),
        variant,
        can_start: misfit.is_none(),
        can_stay: misfit.as_ref().is_none_or(Misfit::lets_stay),
        is_selected: matches!(misfit, None | Some(Misfit::Taint { .. })),
        reach,
        is_unproven: false,
        is_gone: false,
    }
}

fn rules(spec: &DaemonSetSpec, rollout: Rollout, ignores_patches: bool) -> Rules {
    let rolling = spec.rolling_update();
    let mode = match (spec.update_strategy_type(), rolling.rolling_update_type()) {
        (UpdateStrategyType::OnDelete, _) if !is_on(Mutant::OnDeleteRolls) => Mode::OnDelete,
        (_, RollingUpdateType::InPlaceIfPossible) => Mode::InPlace,
        // Whether there is a surge at all does not depend on the number of nodes.
        _ if budget(&rolling.max_surge(), 100) > 0 => Mode::Surge,
        _ => Mode::Standard,
    };
    let hook =
        |pick: fn(&dapple_api::daemonset::Lifecycle) -> Option<&LifecycleHook>| spec.lifecycle.as_ref().and_then(pick);
    let (deletion, update) =
        (hook(|lifecycle| lifecycle.pre_delete.as_ref()), hook(|lifecycle| lifecycle.in_place_update.as_ref()));
    let sets_unready = |hook: Option<&LifecycleHook>| hook.and_then(|hook| hook.mark_pod_not_ready).unwrap_or(false);
    Rules {
        rollout,
        mode,
        min_ready: i64::from(spec.min_ready_seconds()),
        partitioned_scaling: spec.partitioned_scaling(),
        ignores_patches,
        has_update_hook: update.is_some(),
        unready: (sets_unready(deletion), sets_unready(update)),
        ..Rules::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::super::cell::{Hold, NodeState};
    use super::*;
    use crate::daemonset::revision::spec_of;
    use crate::overriding::Overriding;

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
        let (plain, gpu) = (Map::new(), Map::from([("gpu".to_owned(), "yes".to_owned())]));
        let strategy = Strategy::of(&spec, None, Rollout::default(), false);
        let mut revisions = Revisions { newest: &mut newest, current: current.as_mut() };
        let names: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).into();
        let prospect = |name: &Arc<str>| {
            let labels = if **name == *"d" { &gpu } else { &plain };
            let health = if **name == *"b" { Health::NotReady { since: 0 } } else { Health::Ready };
            let seen = Seen { node: Node { name, labels, taints: &[] }, name, health };
            strategy.prospect(&mut revisions, seen, |_| Proof::Taken)
        };
        let prospects = names.iter().map(prospect).collect();
        let nodes = strategy.placement().put_all(prospects);
        let all = [Some((&newest, "new")), current.as_ref().map(|known| (known, "old"))];
        let meaning = |variants: &Variants| variants.all()[0].rendering.as_ref().unwrap().meaning.clone();
        let hashes = all.into_iter().flatten().map(|(variants, hash)| (meaning(variants), hash.to_owned())).collect();
        let Strategy { rules, limits, bad_selector, .. } = strategy;
        Layout { rules, limits, nodes, bad_selector, hashes }
    }

    struct Layout {
        rules: Rules,
        limits: Limits,
        nodes: Vec<NodeState>,
        bad_selector: Option<SelectorError>,
        /// Names of revisions by what their template means.
        hashes: BTreeMap<Arc<str>, String>,
    }

    fn rolling(more: Value) -> Value {
        json!({"type": "RollingUpdate", "rollingUpdate": more})
    }

    /// By node: what it should have, whether it may start, why it is held.
    fn told(layout: &Layout) -> Vec<(&str, &str, bool, Option<Hold>)> {
        let wanted = |node: &'_ NodeState| layout.hashes.get(&node.wanted).map_or("", String::as_str);
        layout.nodes.iter().map(|node| (&*node.name, wanted(node), node.can_start, node.hold)).collect()
    }

    const TEMPLATE: fn() -> Value = || json!({"template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}});

    fn older() -> Value {
        let mut older = TEMPLATE();
        older["template"]["spec"]["containers"][0]["image"] = json!("c:0");
        older
    }

    #[test]
    fn nodes_that_are_held_back_are_given_the_current_revision() {
        let layout = laid_out(rolling(json!({"partition": 3})), TEMPLATE(), Some(older()));
        let held = Some(Hold::Partition);
        let expected =
            [("a", "old", true, held), ("b", "old", true, held), ("c", "old", true, held), ("d", "new", true, None)];
        assert_eq!(told(&layout), expected);
        assert!(!layout.nodes[1].health.is_ready());
    }

    #[test]
    fn a_new_template_that_fits_nobody_takes_nothing_from_those_held_back() {
        let mut picky = TEMPLATE();
        picky["template"]["spec"]["nodeSelector"] = json!({"gpu": "yes"});
        let layout = laid_out(rolling(json!({"partition": 2})), picky.clone(), Some(older()));
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
        let layout = laid_out(rolling(json!({})), broken, Some(older()));
        assert_eq!(told(&layout)[3], ("d", "old", true, Some(Hold::Unrendered)));
    }

    #[test]
    fn while_a_policy_is_waited_for_nodes_keep_what_they_run_whatever_the_revision() {
        let spec: DaemonSetSpec =
            serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}, "template": {}})).unwrap();
        let variants = |data: Value, hash: &str| {
            let (template, patches) = spec_of(&json!({"spec": data})).unwrap();
            let variants = Variants::new("DaemonSet default/a", (template, &patches), &spec, (hash, 2));
            variants.overridden(Overriding::Waits("not confirmed".to_owned()))
        };
        let (mut newest, mut current) = (variants(TEMPLATE(), "new"), variants(older(), "old"));
        let strategy = Strategy::of(&spec, None, Rollout::default(), false);
        let (name, labels): (Arc<str>, Map) = (Arc::from("a"), Map::new());
        let seen =
            Seen { node: Node { name: &name, labels: &labels, taints: &[] }, name: &name, health: Health::Ready };
        let mut revisions = Revisions { newest: &mut newest, current: Some(&mut current) };
        let prospect = strategy.prospect(&mut revisions, seen, |_| Proof::Taken);
        let node = strategy.placement().put_all(vec![prospect]).remove(0);
        assert_eq!((node.can_start, node.can_stay, node.hold), (false, true, Some(Hold::Unrendered)));
    }

    #[test]
    fn the_rules_are_read_from_the_strategy() {
        let rules = |strategy: Value, nodes: usize| {
            let mut layout = laid_out(strategy, TEMPLATE(), None);
            layout.limits.apply(&mut layout.rules, nodes);
            (layout.rules.mode, layout.rules.surge, layout.rules.budget, layout.rules.burst)
        };
        assert_eq!(rules(rolling(json!({"maxSurge": "50%"})), 4), (Mode::Surge, 2, 0, 250));
        assert_eq!(rules(rolling(json!({"maxSurge": "50%"})), 0).0, Mode::Surge, "whatever the number of nodes");
        assert_eq!(rules(rolling(json!({"rollingUpdateType": "InPlaceIfPossible"})), 4), (Mode::InPlace, 0, 1, 250));
        assert_eq!(rules(json!({"type": "OnDelete"}), 4).0, Mode::OnDelete);
    }

    #[test]
    fn a_selector_that_cannot_be_used_holds_everything_back() {
        let bad = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
        let layout = laid_out(rolling(bad), TEMPLATE(), None);
        assert!(layout.bad_selector.is_some());
        assert!(layout.nodes.iter().all(|node| node.hold == Some(Hold::Selector)));
    }
}

//! The kinds of pods that would come of a DaemonSet: one for each set of patches that nodes match.

use std::collections::BTreeSet;

use dapple_api::daemonset::DaemonSetSpec;
use dapple_api::selector::Selector;
use dapple_edit::daemonset::{Patch, patches, place_of};
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, EditError};
use dapple_edit::render::{render, render_unnamed};
use serde_json::Value;

use crate::census::Class;

/// A kind of pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Its patches by their place in `spec.patches`, in the order in which they apply.
    pub patches: Vec<usize>,
    /// How many nodes would have it.
    pub nodes: usize,
}

/// Which nodes each patch is for, by its place in `spec.patches`. One that cannot be used matches nothing.
pub fn selectors(spec: &DaemonSetSpec) -> Vec<Selector> {
    spec.patches.iter().map(|patch| Selector::new(&patch.selector).unwrap_or_else(|_| Selector::nothing())).collect()
}

/// Every kind of pod: the template as it is, what nodes match today, those of most nodes first, and each patch that no
/// node matches alone. The numbers in `classes` are places in `spec.patches`.
pub fn kinds(spec: &DaemonSetSpec, classes: &[Class]) -> Vec<Kind> {
    let mut order: Vec<usize> = (0..spec.patches.len()).collect();
    order.sort_by_key(|index| spec.patches[*index].priority());
    let in_order =
        |matching: &[usize]| -> Vec<usize> { order.iter().copied().filter(|index| matching.contains(index)).collect() };
    let plain = classes.iter().find(|class| class.matching.is_empty()).map_or(0, |class| class.nodes);
    let mut kinds = vec![Kind { patches: Vec::new(), nodes: plain }];
    let mut patched: Vec<Kind> = classes
        .iter()
        .filter(|class| !class.matching.is_empty())
        .map(|class| Kind { patches: in_order(&class.matching), nodes: class.nodes })
        .collect();
    patched.sort_by(|one, other| other.nodes.cmp(&one.nodes).then_with(|| one.patches.cmp(&other.patches)));
    let matched: BTreeSet<usize> = patched.iter().flat_map(|kind| kind.patches.iter().copied()).collect();
    kinds.extend(patched);
    let alone = (0..spec.patches.len()).filter(|index| !matched.contains(index));
    kinds.extend(alone.map(|index| Kind { patches: vec![index], nodes: 0 }));
    kinds
}

/// A DaemonSet's template and patches, ready to be put together.
pub struct Parts<'s> {
    template: &'s Value,
    compiled: Vec<Patch>,
}

/// A patch that a later one overrules at a field, both by their number among those that apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overruled {
    /// Whose value is lost.
    pub loser: usize,
    /// Whose value is there.
    pub winner: usize,
    /// The first such field.
    pub path: String,
}

impl<'s> Parts<'s> {
    /// Those of a DaemonSet.
    pub fn of(spec: &'s DaemonSetSpec) -> Self {
        Self { template: &spec.template.0, compiled: patches("", &spec.patches).0 }
    }

    /// The template of a kind of pod, by the places of its patches.
    pub fn rendered(&self, applied: &[usize]) -> Result<Value, EditError> {
        render_unnamed(Document::PodTemplate, self.template, &self.edits(applied))
    }

    /// Which patches of a kind overrule which, each two once. It follows from the template and these patches alone, so it
    /// can be remembered with them.
    pub fn overruled(&self, applied: &[usize]) -> Vec<Overruled> {
        let Ok(rendering) = render(Document::PodTemplate, self.template, &self.edits(applied)) else {
            return Vec::new();
        };
        let number = |rule: &str| applied.iter().position(|place| place_of(rule) == Some(*place));
        let mut found: Vec<Overruled> = Vec::new();
        for origin in rendering.origins.iter().chain(&rendering.undone) {
            for (loser, _) in &origin.overruled {
                let (Some(loser), Some(winner)) = (number(&loser.rule), number(&origin.set_by.rule)) else { continue };
                if !found.iter().any(|known| (known.loser, known.winner) == (loser, winner)) {
                    found.push(Overruled { loser, winner, path: origin.path.to_string() });
                }
            }
        }
        found
    }

    fn edits(&self, applied: &[usize]) -> Vec<&Edit> {
        let edit_of = |index: &usize| self.compiled.iter().find(|patch| patch.place == *index).map(|patch| &patch.edit);
        applied.iter().filter_map(edit_of).collect()
    }
}

/// Patches of equal priority that set the same field on some nodes: which of them wins follows from their order in the list
/// alone, and is perhaps not meant. `overruled` is as [`Parts::overruled`] says it of a kind.
pub fn fights<O: AsRef<[Overruled]>>(
    spec: &DaemonSetSpec,
    kinds: &[Kind],
    mut overruled: impl FnMut(&Kind) -> O,
) -> Vec<String> {
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for kind in kinds {
        // To find out takes several renderings, and each two are told of once.
        if equals(spec, &kind.patches).all(|pair| told.contains(&pair)) {
            continue;
        }
        for Overruled { loser, winner, path } in overruled(kind).as_ref() {
            let (loser, winner) = (kind.patches[*loser], kind.patches[*winner]);
            let are_equal = spec.patches[loser].priority() == spec.patches[winner].priority();
            if are_equal && told.insert((loser, winner)) {
                found.push(format!(
                    "spec.patches[{loser}]: spec.patches[{winner}] overrules it at {path} on {} nodes; give one of them a \
                     higher priority to say that this is meant",
                    kind.nodes
                ));
            }
        }
    }
    found
}

/// Each two patches of equal priority, in the order in which they apply.
fn equals(spec: &DaemonSetSpec, applied: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let later = move |at: usize| applied[at + 1..].iter().copied();
    let pairs = applied.iter().enumerate().flat_map(move |(at, one)| later(at).map(|other| (*one, other)));
    pairs.filter(|(one, other)| spec.patches[*one].priority() == spec.patches[*other].priority())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::census::Census;

    fn spec() -> DaemonSetSpec {
        let patch = |value: &str| json!({"spec": {"containers": [{"name": "c", "image": value}]}});
        serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}},
            "patches": [
                {"selector": {}, "patch": patch("c:2"), "priority": 1}, {"selector": {}, "patch": patch("c:3")},
                {"selector": {}, "patch": patch("c:4")},
            ],
        }))
        .unwrap()
    }

    fn class(matching: &[usize], nodes: usize) -> Class {
        Class { matching: matching.to_vec(), nodes }
    }

    #[test]
    fn every_patch_is_in_some_kind() {
        let kinds = kinds(&spec(), &[class(&[], 5), class(&[0, 1], 3), class(&[1], 4)]);
        let told: Vec<(&[usize], usize)> = kinds.iter().map(|kind| (kind.patches.as_slice(), kind.nodes)).collect();
        assert_eq!(told, [(&[][..], 5), (&[1], 4), (&[1, 0], 3), (&[2], 0)], "the higher priority applies last");
        let template = Parts::of(&spec()).rendered(&kinds[2].patches).unwrap();
        assert_eq!(template["spec"]["containers"][0]["image"], "c:2");
    }

    #[test]
    fn a_selector_that_cannot_be_used_leaves_the_others_their_places() {
        let mut census = Census::default();
        census.put("a", [("disk".into(), "large".into())]);
        let mut spec = spec();
        spec.patches[0].selector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "disk", "operator": "Is"}]})).unwrap();
        spec.patches[1].selector = serde_json::from_value(json!({"matchLabels": {"disk": "small"}})).unwrap();
        let kinds = kinds(&spec, &census.classes(&selectors(&spec)));
        let told: Vec<(&[usize], usize)> = kinds.iter().map(|kind| (kind.patches.as_slice(), kind.nodes)).collect();
        assert_eq!(told, [(&[][..], 0), (&[2], 1), (&[0], 0), (&[1], 0)]);
    }

    #[test]
    fn only_equals_fight() {
        let (spec, nodes) = (spec(), 7);
        let overruled = |kind: &Kind| Parts::of(&spec).overruled(&kind.patches);
        let told = |patches: &[usize]| fights(&spec, &[Kind { patches: patches.to_vec(), nodes }], overruled);
        assert_eq!(told(&[1, 0]), Vec::<String>::new(), "a priority says what is meant");
        let pair = Kind { patches: vec![1, 2], nodes };
        let asked = std::cell::Cell::new(0);
        let count = |kind: &Kind| {
            asked.set(asked.get() + 1);
            overruled(kind)
        };
        assert_eq!(fights(&spec, &[pair.clone(), pair], count).len(), 1);
        assert_eq!(asked.get(), 1, "what is told already is not looked for again");
        let fight = told(&[1, 2]);
        assert_eq!(fight.len(), 1);
        assert!(fight[0].starts_with("spec.patches[1]: spec.patches[2] overrules it at "), "{fight:?}");
        assert!(fight[0].contains("on 7 nodes"));
    }
}

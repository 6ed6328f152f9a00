//! The kinds of pods that would come of a DaemonSet: one for each set of patches that nodes match.

use std::collections::BTreeSet;

use dapple_api::daemonset::DaemonSetSpec;
use dapple_edit::daemonset::{Patch, patches, place_of};
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, EditError};
use dapple_edit::render::{render, render_plain};
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

/// The template of a kind of pod.
pub fn rendered(spec: &DaemonSetSpec, applied: &[usize]) -> Result<Value, EditError> {
    let (compiled, _) = patches("", &spec.patches);
    let edits: Vec<&Edit> = applied.iter().filter_map(|index| edit_of(&compiled, *index)).collect();
    Ok(render_plain(Document::PodTemplate, &spec.template.0, &edits)?.0)
}

fn edit_of(compiled: &[Patch], index: usize) -> Option<&Edit> {
    compiled.iter().find(|patch| patch.place == index).map(|patch| &patch.edit)
}

/// Patches of equal priority that set the same field on some nodes: which of them wins follows from their order in the list
/// alone, and is perhaps not meant.
pub fn fights(spec: &DaemonSetSpec, kinds: &[Kind]) -> Vec<String> {
    let (compiled, _) = patches("", &spec.patches);
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for kind in kinds.iter().filter(|kind| has_equals(spec, &kind.patches)) {
        let edits: Vec<&Edit> = kind.patches.iter().filter_map(|index| edit_of(&compiled, *index)).collect();
        let Ok(rendering) = render(Document::PodTemplate, &spec.template.0, &edits) else { continue };
        for origin in rendering.origins.iter().chain(&rendering.undone) {
            for (loser, _) in &origin.overruled {
                let places = (place_of(&loser.rule), place_of(&origin.set_by.rule));
                let (Some(loser), Some(winner)) = places else { continue };
                let are_equal = spec.patches[loser].priority() == spec.patches[winner].priority();
                if are_equal && told.insert((loser, winner)) {
                    found.push(format!(
                        "spec.patches[{loser}]: spec.patches[{winner}] overrules it at {} on {} nodes; give one of them a \
                         higher priority to say that this is meant",
                        origin.path, kind.nodes
                    ));
                }
            }
        }
    }
    found
}

fn has_equals(spec: &DaemonSetSpec, applied: &[usize]) -> bool {
    applied.windows(2).any(|pair| spec.patches[pair[0]].priority() == spec.patches[pair[1]].priority())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let template = rendered(&spec(), &kinds[2].patches).unwrap();
        assert_eq!(template["spec"]["containers"][0]["image"], "c:2");
    }

    #[test]
    fn only_equals_fight() {
        let told = |patches: &[usize]| fights(&spec(), &[Kind { patches: patches.to_vec(), nodes: 7 }]);
        assert_eq!(told(&[1, 0]), Vec::<String>::new(), "a priority says what is meant");
        let fight = told(&[1, 2]);
        assert_eq!(fight.len(), 1);
        assert!(fight[0].starts_with("spec.patches[1]: spec.patches[2] overrules it at "), "{fight:?}");
        assert!(fight[0].contains("on 7 nodes"));
    }
}

//! What each kind of node gets of a DaemonSet.
//!
//! Nodes that match the same patches share one rendering, a variant: the cost of rendering is per variant, not per node.

use std::collections::BTreeMap;

use dapple_api::daemonset::DaemonSetSpec;
use dapple_edit::daemonset::{BadSelector, Patch, patches};
use dapple_edit::edit::{Edit, EditError};
use dapple_edit::render::{Rendering, hash, render};

use crate::group::Labels;

/// What a DaemonSet gives to a fleet.
#[derive(Debug)]
pub struct Plan {
    /// Hash of the template that nodes without a patch get.
    pub base_hash: String,
    /// The variants, those without a patch first, then in the order of their patches.
    pub variants: Vec<Variant>,
    /// What is probably not meant.
    pub warnings: Vec<Warning>,
}

/// Nodes that get the same.
#[derive(Debug)]
pub struct Variant {
    /// The patches that made it, in the order they apply.
    pub rules: Vec<String>,
    /// Names of its nodes, sorted.
    pub nodes: Vec<String>,
    /// What they get, or the patch that does not apply. Then these nodes keep what they run, and only these.
    pub rendering: Result<Rendering, EditError>,
}

/// Something that is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A selector that cannot be used; it matches nothing.
    BadSelector(BadSelector),
    /// A patch for no node.
    NoNode {
        /// The patch.
        rule: String,
    },
    /// A patch that changes nothing wherever it applies, because later ones set the same fields, or the template has
    /// them already.
    NoEffect {
        /// The patch.
        rule: String,
    },
    /// Something odd in a rendering.
    Odd {
        /// The patch.
        rule: String,
        /// What.
        text: String,
    },
}

/// Plans a DaemonSet for nodes with these names and labels.
pub fn plan<'a>(object: &str, spec: &DaemonSetSpec, nodes: impl Iterator<Item = (&'a str, &'a dyn Labels)>) -> Plan {
    let (patches, bad) = patches(object, spec);
    let mut by_patches: BTreeMap<Vec<usize>, Vec<String>> = BTreeMap::new();
    for (name, labels) in nodes {
        let matching = patches.iter().enumerate().filter(|(_, patch)| patch.selector.matches(|key| labels.get(key)));
        by_patches.entry(matching.map(|(index, _)| index).collect()).or_default().push(name.to_owned());
    }
    let base = &spec.template.0;
    let variants: Vec<Variant> = by_patches
        .iter()
        .map(|(matching, nodes)| {
            let edits: Vec<&Edit> = matching.iter().map(|index| &patches[*index].edit).collect();
            let mut nodes = nodes.clone();
            nodes.sort();
            let rules = edits.iter().map(|edit| edit.source.rule.clone()).collect();
            Variant { rules, nodes, rendering: render(base, &edits) }
        })
        .collect();
    let mut warnings: Vec<Warning> = bad.into_iter().map(Warning::BadSelector).collect();
    warnings.extend(patches.iter().filter_map(|patch| judge(patch, &variants)));
    for rendering in variants.iter().filter_map(|variant| variant.rendering.as_ref().ok()) {
        let odd = |warning: &dapple_edit::edit::Warning| Warning::Odd {
            rule: warning.source.rule.clone(),
            text: warning.text.clone(),
        };
        warnings.extend(rendering.warnings.iter().map(odd));
    }
    Plan { base_hash: hash(base), variants, warnings }
}

/// Whether a patch does anything anywhere.
fn judge(patch: &Patch, variants: &[Variant]) -> Option<Warning> {
    let rule = patch.edit.source.rule.clone();
    let mut concerned = variants.iter().filter(|variant| variant.rules.contains(&rule)).peekable();
    if concerned.peek().is_none() {
        return Some(Warning::NoNode { rule });
    }
    // A variant that does not render says so itself.
    let has_effect = concerned.any(|variant| match &variant.rendering {
        Ok(rendering) => rendering.origins.iter().any(|origin| origin.set_by.rule == rule),
        Err(_) => true,
    });
    (!has_effect).then_some(Warning::NoEffect { rule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    type Map = BTreeMap<String, String>;

    fn spec(patches: Value) -> DaemonSetSpec {
        serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}},
            "patches": patches,
        }))
        .unwrap()
    }

    fn image(image: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "image": image}]}})
    }

    fn planned(patches: Value, nodes: &[(&str, &str)]) -> Plan {
        let labelled: Vec<(&str, Map)> =
            nodes.iter().map(|(name, disk)| (*name, Map::from([("disk".into(), disk.to_string())]))).collect();
        plan("DaemonSet", &spec(patches), labelled.iter().map(|(name, labels)| (*name, labels as &dyn Labels)))
    }

    fn on(disk: &str, image_name: &str) -> Value {
        json!({"selector": {"matchLabels": {"disk": disk}}, "patch": image(image_name)})
    }

    #[test]
    fn nodes_with_the_same_patches_share_a_variant() {
        let plan = planned(json!([on("large", "c:large")]), &[("b", "small"), ("a", "large"), ("c", "small")]);
        let shown: Vec<_> =
            plan.variants.iter().map(|variant| (variant.rules.clone(), variant.nodes.clone())).collect();
        assert_eq!(
            shown,
            [
                (vec![], vec!["b".to_owned(), "c".to_owned()]),
                (vec!["spec.patches[0]".to_owned()], vec!["a".to_owned()])
            ]
        );
        assert_eq!(plan.variants[0].rendering.as_ref().unwrap().hash, plan.base_hash);
        assert_ne!(plan.variants[1].rendering.as_ref().unwrap().hash, plan.base_hash);
        assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    }

    #[test]
    fn patches_that_do_nothing_are_told() {
        let everywhere =
            |name: &str, priority: i32| json!({"selector": {}, "patch": image(name), "priority": priority});
        let plan = planned(json!([on("huge", "c:2"), everywhere("c:3", 0), everywhere("c:4", 1)]), &[("a", "large")]);
        let rule = |index: usize| format!("spec.patches[{index}]");
        assert_eq!(plan.warnings, [Warning::NoNode { rule: rule(0) }, Warning::NoEffect { rule: rule(1) }]);
    }

    #[test]
    fn a_patch_that_does_not_apply_concerns_its_own_nodes_only() {
        let broken = json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}});
        let plan = planned(json!([broken]), &[("a", "large"), ("b", "small")]);
        assert!(plan.variants[0].rendering.is_ok());
        let error = plan.variants[1].rendering.as_ref().unwrap_err().to_string();
        assert!(error.contains("spec.patches[0]: spec.containers: an item has no \"name\""), "{error}");
    }
}

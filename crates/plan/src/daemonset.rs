//! What each kind of node gets of a DaemonSet.
//!
//! Nodes that match the same patches, and are in groups that the same override rules target, share one rendering.

pub mod cell;
pub mod consequence;
pub mod desired;
pub mod driven_off;
pub mod failure;
pub mod fleet;
pub mod inplace;
mod judge;
pub mod kinds;
pub mod layout;
pub mod lifecycle;
pub mod order;
pub mod pace;
pub mod placement;
pub mod pod;
pub mod predownload;
pub mod reads;
pub mod renderings;
mod resume;
pub mod revision;
pub mod rollback;
pub mod rollout;
pub mod stale;
pub mod status;
pub mod tally;
mod told;
pub mod touched;
pub mod wake;

use std::collections::BTreeMap;

use dapple_api::daemonset::{DaemonSetSpec, MAX_PATCH_BYTES, MAX_PATCHES, RollingUpdateType, UpdateStrategyType};
use dapple_api::selector::Selector;
use dapple_edit::daemonset::{Patch, matching, patches, place_of};
use dapple_edit::document::Document;
use dapple_edit::edit::Source;

use crate::fate::Update;
use crate::fit::Node;
use crate::overrides::Overrides;
use crate::variant::{Draft, ObjectName, Plan, Reason, Sketch, Warning, fail_unselected, mistakes};

/// Plans a DaemonSet for these nodes. What an OverridePolicy has for a node applies to the pod, and so after the patches.
pub fn plan<'a>(
    object: ObjectName,
    spec: &DaemonSetSpec,
    nodes: impl Iterator<Item = Node<'a>>,
    overrides: &Overrides,
) -> Plan {
    let (patches, bad) = patches(&object.to_string(), &spec.patches);
    let mut by_rules: BTreeMap<(Vec<usize>, Option<usize>), Vec<Node<'a>>> = BTreeMap::new();
    for node in nodes {
        let matching = matching(&patches, |key| node.labels.get(key));
        by_rules.entry((matching, overrides.list_for(node.name))).or_default().push(node);
    }
    let drafts = by_rules.into_iter().map(|((matching, list), nodes)| {
        let own = matching.iter().map(|index| &patches[*index].edit);
        Draft { places: Vec::new(), edits: own.chain(overrides.edits(list)).collect(), nodes }
    });
    let drafts: Vec<Draft<'_>> = drafts.collect();
    let mut warnings: Vec<Warning> = Vec::new();
    let rule = |rule: String| Source { object: object.to_string(), rule };
    warnings.extend(bad.into_iter().map(|known| Warning {
        reason: Reason::BadSelector,
        rule: rule(known.rule.clone()),
        text: format!("selector.{}; the patch matches no node", known.error),
    }));
    warnings.extend(oversized(&object, spec));
    warnings.extend(patches.iter().flat_map(|patch| mistakes(Document::PodTemplate, &patch.edit, ".patch")));
    let is_used = |patch: &Patch| drafts.iter().any(|draft| draft.edits.contains(&&patch.edit));
    warnings.extend(patches.iter().filter(|patch| !is_used(patch)).map(|patch| Warning {
        reason: Reason::Unused,
        rule: patch.edit.source.clone(),
        text: "it matches no node".to_owned(),
    }));
    let priority = |source: &Source| {
        place_of(&source.rule).and_then(|place| spec.patches.get(place)).map(|patch| patch.priority())
    };
    // Another priority says which one is meant to win. Another object has another author.
    let fight = |winner: &Source, loser: &Source| winner.object != loser.object || priority(winner) == priority(loser);
    let base = &spec.template.0;
    let sketch = Sketch {
        object: object.clone(),
        document: Document::PodTemplate,
        base,
        base_field: "spec.template",
        is_daemon: true,
        update: update_of(spec),
        fight: &fight,
        is_default: &|_| false,
    };
    let mut plan = sketch.plan(drafts);
    if let Ok(selector) = Selector::new(&spec.selector) {
        fail_unselected(&mut plan, &selector);
    }
    warnings.extend(unselected(&plan, spec));
    plan.warnings.splice(0..0, warnings);
    plan
}

/// Patches beyond what is taken: too many, or too large.
fn oversized(object: &ObjectName, spec: &DaemonSetSpec) -> Vec<Warning> {
    let warning = |index: usize, text: String| Warning {
        reason: Reason::BadRule,
        rule: Source { object: object.to_string(), rule: format!("spec.patches[{index}]") },
        text,
    };
    let mut warnings = Vec::new();
    for (index, patch) in spec.patches.iter().enumerate() {
        let bytes = patch.patch.0.to_string().len();
        if bytes > MAX_PATCH_BYTES {
            warnings.push(warning(index, format!("it has {bytes} bytes of JSON, and may have {MAX_PATCH_BYTES}")));
        }
        if index == MAX_PATCHES {
            warnings.push(warning(index, format!("a DaemonSet may have {MAX_PATCHES} patches, and no more")));
        }
    }
    warnings
}

/// Variants whose pods the DaemonSet would not know as its own.
fn unselected(plan: &Plan, spec: &DaemonSetSpec) -> Vec<Warning> {
    let Ok(selector) = Selector::new(&spec.selector) else { return Vec::new() };
    let mut warnings = Vec::new();
    for variant in &plan.variants {
        let Ok(rendering) = &variant.rendering else { continue };
        let labels = &rendering.document["metadata"]["labels"];
        if !selector.matches(|key| labels[key].as_str()) {
            let by =
                rendering.origins.iter().rev().find(|origin| origin.path.to_string().starts_with("metadata.labels"));
            let template = Source { object: plan.object.to_string(), rule: "spec.template.metadata.labels".to_owned() };
            let rule = by.map_or(template, |origin| origin.set_by.clone());
            let text = "the labels are not those that spec.selector selects".to_owned();
            warnings.push(Warning { reason: Reason::BadRule, rule, text });
        }
    }
    warnings
}

fn update_of(spec: &DaemonSetSpec) -> Update {
    match (spec.update_strategy_type(), spec.rolling_update().rolling_update_type()) {
        (UpdateStrategyType::OnDelete, _) => Update::OnDelete,
        (_, RollingUpdateType::InPlaceIfPossible) => Update::InPlaceIfPossible,
        _ => Update::Recreate,
    }
}

#[cfg(test)]
#[path = "daemonset/agreement_properties.rs"]
mod agreement;
#[cfg(test)]
mod tests {
    use dapple_edit::edit::{Change, Edit};
    use dapple_edit::render::hash;
    use serde_json::{Value, json};

    use super::*;

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

    fn planned_with(patches: Value, nodes: &[(&str, &str)], edits: &[Edit]) -> Plan {
        let labelled: Vec<(&str, Map)> =
            nodes.iter().map(|(name, disk)| (*name, Map::from([("disk".into(), disk.to_string())]))).collect();
        let object = ObjectName { kind: "DaemonSet".into(), namespace: "default".into(), name: "a".into() };
        let nodes = labelled.iter().map(|(name, labels)| Node { name, labels, taints: &[] });
        let overrides = Overrides::same(edits.to_vec(), labelled.iter().map(|(name, _)| *name));
        plan(object, &spec(patches), nodes, &overrides)
    }

    fn planned(patches: Value, nodes: &[(&str, &str)]) -> Plan {
        planned_with(patches, nodes, &[])
    }

    fn on(disk: &str, image_name: &str) -> Value {
        json!({"selector": {"matchLabels": {"disk": disk}}, "patch": image(image_name)})
    }

    fn everywhere(name: &str, priority: i32) -> Value {
        json!({"selector": {}, "patch": image(name), "priority": priority})
    }

    fn told(plan: &Plan) -> Vec<(Reason, &str)> {
        plan.warnings.iter().map(|warning| (warning.reason, warning.rule.rule.as_str())).collect()
    }

    #[test]
    fn nodes_with_the_same_patches_share_a_variant() {
        let plan = planned(json!([on("large", "c:large")]), &[("b", "small"), ("a", "large"), ("c", "small")]);
        let shown: Vec<(usize, Vec<String>)> =
            plan.variants.iter().map(|variant| (variant.rules.len(), variant.nodes.clone())).collect();
        assert_eq!(shown, [(0, vec!["b".to_owned(), "c".to_owned()]), (1, vec!["a".to_owned()])]);
        assert_eq!(plan.variants[0].rendering.as_ref().unwrap().hash, plan.base_hash);
        assert_eq!(plan.base_hash, hash(&plan.base));
        assert_ne!(plan.variants[1].rendering.as_ref().unwrap().hash, plan.base_hash);
        assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    }

    #[test]
    fn patches_that_do_nothing_are_told() {
        let plan = planned(json!([on("huge", "c:2"), everywhere("c:3", 0), everywhere("c:4", 1)]), &[("a", "large")]);
        assert_eq!(told(&plan), [(Reason::Unused, "spec.patches[0]"), (Reason::Overruled, "spec.patches[1]")]);
    }

    #[test]
    fn patches_of_one_priority_that_set_one_field_fight() {
        let plan = planned(json!([everywhere("c:3", 2), everywhere("c:4", 2)]), &[("a", "large")]);
        assert_eq!(told(&plan), [(Reason::Fight, "spec.patches[0]")]);
        let text = "DaemonSet default/a spec.patches[0]: spec.patches[1] sets spec.containers[name=c].image \
                    differently, and applies later";
        assert_eq!(plan.warnings[0].to_string(), text);
        let agreeing = planned(json!([everywhere("c:3", 2), everywhere("c:3", 2)]), &[("a", "large")]);
        assert!(!agreeing.warnings.iter().any(|warning| warning.reason == Reason::Fight));
    }

    #[test]
    fn a_variable_that_a_container_has_twice_is_told() {
        let add = json!({"name": "A", "value": "2"});
        let change = Change::Plain {
            path: "/spec/containers/0/env/-".into(),
            operator: dapple_edit::edit::PlainOperator::Add,
            value: add,
        };
        let source =
            Source { object: "OverridePolicy default/p".into(), rule: "spec.overrideRules[0].plaintext[0]".into() };
        let edits = [Edit { source: source.clone(), change }];
        let env = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}});
        let plan = planned_with(json!([{"selector": {}, "patch": env}]), &[("a", "large")], &edits);
        let twice: Vec<_> = plan.warnings.iter().filter(|warning| warning.reason == Reason::Twice).collect();
        assert_eq!(twice.len(), 1, "{:?}", plan.warnings);
        assert_eq!(twice[0].rule, source);
        assert!(twice[0].text.contains("\"A\" twice"), "{}", twice[0].text);
    }

    #[test]
    fn mistakes_in_a_patch_are_told_with_what_was_meant() {
        let patch = json!({"spec": {"containers": [{"name": "c", "imagee": "c:2"}]}});
        let plan = planned(json!([{"selector": {}, "patch": patch}]), &[("a", "large")]);
        assert_eq!(told(&plan), [(Reason::Mistake, "spec.patches[0].patch.spec.containers[name=c].imagee")]);
        assert_eq!(plan.warnings[0].text, "Container has no such field; did you mean \"image\"?");
    }

    #[test]
    fn what_admission_would_refuse_is_told() {
        let many: Vec<Value> = (0..12).map(|number| everywhere(&format!("c:{number}"), number)).collect();
        let plan = planned(json!(many), &[("a", "large")]);
        assert_eq!(told(&plan)[0], (Reason::BadRule, "spec.patches[10]"));
        let large = json!({"selector": {}, "patch": {"metadata": {"annotations": {"a": "x".repeat(1100)}}}});
        assert!(planned(json!([large]), &[("a", "large")]).warnings[0].text.contains("bytes of JSON"));
        let stolen = json!({"selector": {}, "patch": {"metadata": {"labels": {"app": "other"}}}});
        let plan = planned(json!([stolen]), &[("a", "large")]);
        assert_eq!(told(&plan), [(Reason::BadRule, "spec.patches[0]")]);
    }

    #[test]
    fn a_patch_decides_on_which_nodes_its_pods_fit() {
        let picky = json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"nodeSelector": {"disk": "huge"}}}});
        let plan = planned(json!([picky]), &[("a", "large"), ("b", "small")]);
        assert_eq!(plan.variants[0].nodes, ["b"]);
        assert!(plan.variants[1].nodes.is_empty());
        assert_eq!(plan.variants[1].misfits[0].0, "a");
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

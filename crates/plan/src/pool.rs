//! What each pool gets of an application: the template, what the application says of the pool, then replacements.

use dapple_api::pool::{
    NODE_POOL_LABEL, NodePool, Pool, Replacement, TemplateType, WorkloadTemplate, YurtAppDaemonSpec, YurtAppSetSpec,
};
use dapple_api::selector::Selector;
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, Source};
use dapple_edit::pool::{edits, own_edits, placing_edits};
use serde_json::Value;

use crate::fate::Update;
use crate::fit::{Node, term_matches};
use crate::variant::{Draft, ObjectName, Plan, Reason, Sketch, Warning, mistakes};

pub mod admission;
pub mod ahead;
pub mod application;
pub mod attributes;
pub mod change;
pub mod execute;
pub mod fight;
pub mod health;
pub mod learned;
pub mod leaving;
mod naming;
pub mod needed;
pub mod object;
pub mod pods;
pub mod progress;
pub mod put_back;
pub mod removal;
pub mod renderings;
pub mod repair;
pub mod replacement;
pub mod report;
pub mod revision;
pub mod rollback;
pub mod rollout;
pub mod said;
pub mod status;
pub mod steer;
pub mod stored;
pub mod unused;
pub mod version;
pub mod workload;

/// The replacements for an application, and the name of the object that has them.
pub struct Replacements<'a> {
    /// As people name it.
    pub object: String,
    /// What it says.
    pub list: &'a [Replacement],
}

/// A pool of an application.
struct Placed<'a> {
    name: String,
    edits: Vec<Edit>,
    nodes: Vec<Node<'a>>,
}

/// Plans a YurtAppSet.
pub fn plan_set<'a>(
    object: ObjectName,
    spec: &YurtAppSetSpec,
    replacements: Option<&Replacements<'_>>,
    nodes: impl Iterator<Item = Node<'a>> + Clone,
) -> Plan {
    let is_in = |pool: &Pool, node: Node<'_>| match &pool.node_selector_term {
        Some(term) => term_matches(&term.0, node),
        None => node.labels.get(NODE_POOL_LABEL) == Some(&pool.name),
    };
    let placed = spec.topology.pools.iter().enumerate().map(|(index, pool)| Placed {
        name: pool.name.clone(),
        edits: own_edits(&object.to_string(), pool, &format!("spec.topology.pools[{index}]")),
        nodes: nodes.clone().filter(|node| is_in(pool, *node)).collect(),
    });
    plan(object.clone(), &spec.workload_template, placed.collect(), replacements, Vec::new())
}

/// Plans a YurtAppDaemon: one workload in every pool that it selects.
pub fn plan_daemon<'a, 'p>(
    object: ObjectName,
    spec: &YurtAppDaemonSpec,
    pools: impl Iterator<Item = (&'p str, &'p NodePool)>,
    replacements: Option<&Replacements<'_>>,
    nodes: impl Iterator<Item = Node<'a>> + Clone,
) -> Plan {
    let rule = Source { object: object.to_string(), rule: "spec.nodepoolSelector".to_owned() };
    let mut warnings = Vec::new();
    let selector = spec.node_pool_selector.as_ref().map(Selector::new).transpose();
    let selector = selector.unwrap_or_else(|error| {
        let text = format!("{error}; it selects no pool");
        warnings.push(Warning { reason: Reason::BadSelector, rule: rule.clone(), text });
        None
    });
    let is_selected = |pool: &NodePool| {
        let label = |key: &str| pool.metadata.labels.as_ref()?.get(key).map(String::as_str);
        selector.as_ref().is_some_and(|selector| selector.matches(label))
    };
    let placed = pools.filter(|(_, pool)| is_selected(pool)).map(|(name, pool)| Placed {
        name: name.to_owned(),
        edits: placing_edits(&object.to_string(), name, &pool.spec.taints),
        nodes: nodes.clone().filter(|node| node.labels.get(NODE_POOL_LABEL) == Some(name)).collect(),
    });
    let placed: Vec<Placed<'_>> = placed.collect();
    if placed.is_empty() && warnings.is_empty() {
        warnings.push(Warning { reason: Reason::Unused, rule, text: "it selects no pool".to_owned() });
    }
    plan(object, &spec.workload_template, placed, replacements, warnings)
}

fn plan(
    object: ObjectName,
    template: &WorkloadTemplate,
    mut pools: Vec<Placed<'_>>,
    replacements: Option<&Replacements<'_>>,
    mut warnings: Vec<Warning>,
) -> Plan {
    let (document, base_field, base) = base_of(template);
    if let Some(replacements) = replacements {
        for pool in &mut pools {
            pool.edits.extend(edits(&replacements.object, replacements.list, &pool.name));
        }
        warnings.extend(unused(replacements, &pools));
    }
    warnings.extend(pools.iter().flat_map(|pool| &pool.edits).flat_map(|edit| mistakes(document, edit, "")));
    let drafts = pools.iter().map(|pool| Draft {
        places: vec![format!("pool {}", pool.name)],
        edits: pool.edits.iter().collect(),
        nodes: pool.nodes.clone(),
    });
    // A replacement is there to overrule the numbers of a pool. That it overrules a patch somebody else wrote is news.
    let fight = |winner: &Source, loser: &Source| winner.object != loser.object && loser.rule.ends_with(".patch");
    let is_default = |rule: &Source| rule.rule.ends_with(".replicas");
    let sketch = Sketch {
        object,
        document,
        base: &base,
        base_field,
        is_daemon: false,
        update: Update::Recreate,
        fight: &fight,
        is_default: &is_default,
    };
    let mut plan = sketch.plan(drafts.collect());
    plan.warnings.splice(0..0, warnings);
    plan
}

/// The workload that every pool starts from, and the field that has it.
fn base_of(template: &WorkloadTemplate) -> (Document, &'static str, Value) {
    // Both came from JSON and go back to it.
    match template.template_type() {
        Some(TemplateType::StatefulSet) => {
            let base = serde_json::to_value(&template.stateful_set_template).unwrap_or_default();
            (Document::StatefulSet, "spec.workloadTemplate.statefulSetTemplate", base)
        }
        _ => {
            let base = serde_json::to_value(&template.deployment_template).unwrap_or_default();
            (Document::Deployment, "spec.workloadTemplate.deploymentTemplate", base)
        }
    }
}

/// Replacements for pools that the application is not in.
fn unused(replacements: &Replacements<'_>, pools: &[Placed<'_>]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (index, replacement) in replacements.list.iter().enumerate() {
        let rule = || Source { object: replacements.object.clone(), rule: format!("replacements[{index}].pools") };
        if let Err(error) = replacement.pools.check() {
            warnings.push(Warning { reason: Reason::BadRule, rule: rule(), text: error.to_string() });
        }
        for name in replacement.pools.names() {
            let is_known = name == "*" || name.starts_with('-') || pools.iter().any(|pool| pool.name == name);
            if !is_known {
                let text = format!("the application is not in the pool {name:?}");
                warnings.push(Warning { reason: Reason::Unused, rule: rule(), text });
            }
        }
    }
    warnings
}

//! What a pool gets: what the application says of it, and the items of a YurtAppConfigurationReplacement, as edits.

use std::collections::BTreeSet;

use dapple_api::pool::{Item, NODE_POOL_LABEL, POOL_PLACEHOLDER, Pool, Replacement, Taint, TaintEffect};
use serde_json::{Value, json};

use crate::document::Document;
use crate::edit::{Change, Edit, ReferenceKind, Source};
use crate::references::needed;

mod validate;
mod validate_nodes;
mod validate_replacement;

pub use validate::{validate_yurt_app_daemon, validate_yurt_app_set};
pub use validate_replacement::validate_replacement;

/// What a YurtAppSet says of one of its pools, in order: how many pods, on which nodes, and its patch. `rule` is where
/// it says so.
pub fn own_edits(object: &str, pool: &Pool, rule: &str) -> Vec<Edit> {
    let edit = |field: &str, change| Edit {
        source: Source { object: object.to_owned(), rule: format!("{rule}.{field}") },
        change,
    };
    let replicas = pool.replicas.map(|replicas| edit("replicas", Change::Replicas(replicas)));
    let term = pool.node_selector_term.as_ref().map(|term| term.0.clone());
    let place = term.map(|term| edit("nodeSelectorTerm", Change::Place { term: Some(term), tolerations: Vec::new() }));
    let tolerations: Vec<Value> = pool.tolerations.iter().map(|toleration| toleration.0.clone()).collect();
    let tolerate = (!tolerations.is_empty())
        .then(|| edit("tolerations", Change::Place { term: None, tolerations: tolerations.clone() }));
    let patch = pool.patch.as_ref().map(|patch| edit("patch", Change::Merge(patch.0.clone())));
    [replicas, place, tolerate, patch].into_iter().flatten().collect()
}

/// How a YurtAppDaemon keeps its pods in a pool: by the label of the pool's nodes, tolerating the pool's taints whatever their
/// values are.
pub fn placing_edits(object: &str, pool: &str, taints: &[Taint]) -> Vec<Edit> {
    let tolerations: Vec<Value> = taints
        .iter()
        .map(|taint| {
            let effect = match taint.effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            };
            json!({"key": taint.key, "operator": "Exists", "effect": effect})
        })
        .collect();
    let select = Change::Merge(json!({"spec": {"template": {"spec": {"nodeSelector": {NODE_POOL_LABEL: pool}}}}}));
    let tolerate = (!tolerations.is_empty()).then_some(Change::Place { term: None, tolerations });
    let source = Source { object: object.to_owned(), rule: "spec.nodepoolSelector".to_owned() };
    let changes = [Some(select), tolerate].into_iter().flatten();
    changes.map(|change| Edit { source: source.clone(), change }).collect()
}

/// The edits of the replacements for one pool, in order.
pub fn edits(object: &str, replacements: &[Replacement], pool: &str) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (index, replacement) in replacements.iter().enumerate().filter(|(_, known)| known.pools.contains(pool)) {
        for (number, item) in replacement.items.iter().enumerate() {
            let rule = format!("replacements[{index}].items[{number}]");
            let source = Source { object: object.to_owned(), rule };
            edits.extend(changes(item, pool).into_iter().map(|change| Edit { source: source.clone(), change }));
        }
    }
    edits
}

/// What replacements have the pods of a rendered workload refer to and these do not start without: ConfigMaps and claims. Secrets are
/// nobody's to look for.
pub fn needed_targets(kind: Document, rendered: &Value, edits: &[Edit]) -> BTreeSet<(ReferenceKind, String)> {
    let target = |edit: &Edit| match &edit.change {
        Change::Refer { kind, to, .. } => Some((*kind, to.clone())),
        _ => None,
    };
    let targets: BTreeSet<(ReferenceKind, String)> = edits.iter().filter_map(target).collect();
    let template = kind.template(rendered).filter(|_| !targets.is_empty());
    let known = template.into_iter().flat_map(needed);
    known.filter(|reference| targets.contains(reference)).collect()
}

fn changes(item: &Item, pool: &str) -> Vec<Change> {
    let named = |text: &str| text.replace(POOL_PLACEHOLDER, pool);
    let refer = |kind, from: &str, to: &str| Change::Refer { kind, from: named(from), to: named(to) };
    let image = item
        .image
        .as_ref()
        .map(|image| Change::SetImage { container: named(&image.container_name), image: named(&image.image_claim) });
    let env = item.env.as_ref().map(|env| Change::SetEnv {
        container: named(&env.container_name),
        variables: env.env_claim.iter().map(|(name, value)| (named(name), named(value))).collect(),
    });
    let config_map = item.config_map.as_ref();
    let config_map =
        config_map.map(|map| refer(ReferenceKind::ConfigMap, &map.config_map_source, &map.config_map_target));
    let secret = item.secret.as_ref();
    let secret = secret.map(|secret| refer(ReferenceKind::Secret, &secret.secret_source, &secret.secret_target));
    let claim = item.persistent_volume_claim.as_ref();
    let claim = claim.map(|claim| refer(ReferenceKind::PersistentVolumeClaim, &claim.pvc_source, &claim.pvc_target));
    let replicas = item.replicas.map(Change::Replicas);
    let strategy = item.upgrade_strategy.map(Change::Strategy);
    [image, config_map, secret, env, claim, replicas, strategy].into_iter().flatten().collect()
}

//! The workload that a pool gets, whole: the rendering, with what ties it to its application and its pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::kinds;
use dapple_api::pool::{
    CHANGED, DECLARED_REPLICAS, LEAVING_SINCE, POOL_NAME_LABEL, POOL_PATCH, POOL_REVISION_LABEL, REF_NODE_POOL,
    REMOVAL_HELD, RENDERED, SubjectKind, Taint,
};
use dapple_api::selector::{Selector, SelectorError};
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, EditError, Warning};
use dapple_edit::meaning::meaning;
use dapple_edit::pool::{edits, needed_targets, own_edits, placing_edits};
use dapple_edit::render::{self, Origin, canonical, hash, render_warned};
use serde_json::{Map, Value, json};

use super::learned::Target;
use super::version::{Application, Pools, Version};

/// Kubernetes puts `<name>-<hash>` into a label of a StatefulSet's pods, and its name into host names.
const LONGEST_STATEFUL_SET: usize = 52;
/// Kubernetes makes names of ReplicaSets from it, and of pods from these.
const LONGEST_DEPLOYMENT: usize = 236;
/// Letters and digits that make no words, as Kubernetes has them in generated names.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const ENDING: usize = 5;

/// What a pool gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// What it is.
    pub document: Document,
    /// The workload, complete but for its name and the revision that it comes from.
    pub workload: Arc<Value>,
    /// Names what it means. Renderings that mean the same have the same, whatever their revisions are.
    pub hash: Arc<str>,
    /// What replacements have its pods refer to and these do not start without.
    pub targets: Vec<Target>,
    /// Items of the replacement whose source nothing refers to.
    pub unused: Vec<Warning>,
}

/// Why a pool cannot be given anything.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unrendered {
    /// A patch or an item does not apply.
    #[error("{0}")]
    Edit(#[from] EditError),
    /// The application has no template, or two.
    #[error("spec.workloadTemplate must have one of deploymentTemplate and statefulSetTemplate")]
    NoTemplate,
    /// The selector cannot be used.
    #[error("spec.selector: {0}")]
    Selector(#[from] SelectorError),
    /// The template says itself which of its pods it selects, and that cannot be read.
    #[error("the template's own spec.selector cannot be read: {0}")]
    OwnSelector(String),
    /// Nothing but the pool is left of it, and pods of others may be in the pool.
    #[error("the selector is empty: it must have a label of the application")]
    SelectsAll,
    /// Kubernetes would not take it.
    #[error("the labels of its pods, once rendered, are not those that its selector selects")]
    Unselected,
    /// Its pool's patch is about what Kubernetes does not change.
    #[error("the pool's patch changes spec.selector, which Kubernetes does not change: take it out")]
    SelectorPatched,
    /// The pool is in no version of the application that is known.
    #[error("the application does not say what the pool gets")]
    NoPool,
}

/// What a pool gets of a version of its application. Without `taints`, what it would get if its pool had none.
pub fn render(
    application: &Application,
    version: &Version,
    pool: &str,
    taints: &[Taint],
) -> Result<Rendered, Unrendered> {
    let (document, mut base) = version.base().ok_or(Unrendered::NoTemplate)?;
    if let (Some(limit), Some(spec)) = (version.history_limit, base["spec"].as_object_mut()) {
        spec.insert("revisionHistoryLimit".to_owned(), limit.into());
    }
    let all = pool_edits(application, version, pool, taints)?;
    let (mut workload, unused) = render_warned(document, &base, &all.iter().collect::<Vec<_>>())?;
    if meaning(document, &workload)["spec"]["selector"] != meaning(document, &base)["spec"]["selector"] {
        return Err(Unrendered::SelectorPatched);
    }
    tie(application, version, pool, &mut workload)?;
    let targets = needed_targets(document, &workload, &all).into_iter();
    let targets = targets.map(|(kind, name)| Target { kind, name }).collect();
    let hash = Arc::from(hash(&meaning(document, &workload)));
    put(&mut workload, &["metadata", "annotations", RENDERED], json!(*hash));
    Ok(Rendered { document, workload: Arc::new(workload), hash, targets, unused })
}

/// Who set what a pool gets, of every field that is not as in the template.
pub(super) fn origins(application: &Application, version: &Version, pool: &str, taints: &[Taint]) -> Vec<Origin> {
    let rendering = || {
        let (document, base) = version.base()?;
        let all = pool_edits(application, version, pool, taints).ok()?;
        render::render(document, &base, &all.iter().collect::<Vec<_>>()).ok()
    };
    rendering().map(|rendering| rendering.origins).unwrap_or_default()
}

/// The edits for a pool, in the order in which they apply: its place and patch, then replacements.
fn pool_edits(
    application: &Application,
    version: &Version,
    pool: &str,
    taints: &[Taint],
) -> Result<Vec<Edit>, Unrendered> {
    let object = application.object();
    let mut all = match &version.pools {
        Pools::Selected(_) => placing_edits(&object, pool, taints),
        Pools::Named(_) => {
            let (index, said) = version.pool(pool).ok_or(Unrendered::NoPool)?;
            own_edits(&object, said, &format!("spec.topology.pools[{index}]"))
        }
    };
    if let Some(in_force) = &version.replacements {
        let object = format!("{} {}/{}", kinds::REPLACEMENT.at.kind, application.namespace, in_force.name);
        all.extend(edits(&object, &in_force.replacements, pool));
    }
    Ok(all)
}

/// Puts in what makes it the application's and the pool's.
fn tie(application: &Application, version: &Version, pool: &str, workload: &mut Value) -> Result<(), Unrendered> {
    let selector = match application.kind {
        SubjectKind::YurtAppSet => json!(application.selector),
        SubjectKind::YurtAppDaemon => workload["spec"]["selector"].clone(),
    };
    let mut selector = object(selector);
    if selector.values().all(is_empty) {
        return Err(Unrendered::SelectsAll);
    }
    let mut selected = object(selector.remove("matchLabels").unwrap_or_default());
    selected.insert(POOL_NAME_LABEL.to_owned(), pool.into());
    selector.insert("matchLabels".to_owned(), Value::Object(selected));

    let mut labels = taken(workload, "/metadata/labels");
    let own = application.selector.match_labels.iter().flatten();
    labels.extend(own.map(|(key, value)| (key.clone(), json!(value))));
    labels.insert(POOL_NAME_LABEL.to_owned(), pool.into());
    labels.remove(POOL_REVISION_LABEL);
    let mut annotations = taken(workload, "/metadata/annotations");
    // What is remembered on a workload is not for templates to say.
    for ours in [CHANGED, LEAVING_SINCE, REMOVAL_HELD] {
        annotations.remove(ours);
    }
    let (key, text) = match application.kind {
        SubjectKind::YurtAppSet => {
            let patch = version.pool(pool).and_then(|(_, pool)| pool.patch.as_ref());
            (POOL_PATCH, patch.map(|patch| canonical(&patch.0)).unwrap_or_default())
        }
        SubjectKind::YurtAppDaemon => (REF_NODE_POOL, pool.to_owned()),
    };
    annotations.insert(key.to_owned(), text.into());
    annotations.insert(DECLARED_REPLICAS.to_owned(), declared_replicas(workload).to_string().into());
    let metadata = json!({
        "namespace": application.namespace, "labels": labels, "annotations": annotations,
        "ownerReferences": [application.owner()],
    });
    put(workload, &["metadata"], metadata);

    let mut labels = taken(workload, "/spec/template/metadata/labels");
    labels.insert(POOL_NAME_LABEL.to_owned(), pool.into());
    labels.remove(POOL_REVISION_LABEL);
    let read = serde_json::from_value(Value::Object(selector.clone()));
    let selects = Selector::new(&read.map_err(|error| Unrendered::OwnSelector(error.to_string()))?)?;
    if !selects.matches(|key| labels.get(key).and_then(Value::as_str)) {
        return Err(Unrendered::Unselected);
    }
    put(workload, &["spec", "template", "metadata", "labels"], Value::Object(labels));
    put(workload, &["spec", "selector"], Value::Object(selector));
    Ok(())
}

/// How many pods a workload says it has: 1 by default.
pub fn declared_replicas(workload: &Value) -> i64 {
    workload["spec"]["replicas"].as_i64().unwrap_or(1)
}

impl Rendered {
    /// The workload as it is made for the first time, from this revision.
    pub fn new_workload(&self, name: &str, revision: &str, annotations: &BTreeMap<&str, String>) -> Value {
        let mut workload = Value::clone(&self.workload);
        let (api_version, kind) = match self.document {
            Document::StatefulSet => ("apps/v1", "StatefulSet"),
            Document::Deployment | Document::PodTemplate => ("apps/v1", "Deployment"),
        };
        put(&mut workload, &["apiVersion"], api_version.into());
        put(&mut workload, &["kind"], kind.into());
        put(&mut workload, &["metadata", "name"], name.into());
        put(&mut workload, &["metadata", "labels", POOL_REVISION_LABEL], revision.into());
        put(&mut workload, &["spec", "template", "metadata", "labels", POOL_REVISION_LABEL], revision.into());
        for (key, value) in annotations {
            put(&mut workload, &["metadata", "annotations", key], value.as_str().into());
        }
        workload
    }
}

/// The name of a pool's workload. It follows from what the workload is for, so that a create can be repeated and a StatefulSet
/// that comes back finds its claims.
pub fn name(application: &Application, document: Document, pool: &str) -> String {
    let digits = hash(&json!([format!("{:?}", application.kind), application.name, pool]));
    let mut number = u64::from_str_radix(&digits, 16).unwrap_or_default();
    let mut ending = String::with_capacity(ENDING);
    for _ in 0..ENDING {
        let letter = usize::try_from(number % LETTERS.len() as u64).unwrap_or_default();
        ending.push(char::from(LETTERS[letter]));
        number /= LETTERS.len() as u64;
    }
    let longest = if document == Document::StatefulSet { LONGEST_STATEFUL_SET } else { LONGEST_DEPLOYMENT };
    let mut start = format!("{}-{pool}", application.name);
    if document == Document::StatefulSet {
        start = start.replace('.', "-");
    }
    start.truncate(longest - ENDING - 1);
    format!("{}-{ending}", start.trim_end_matches(['-', '.']))
}

/// What is an object already, or an empty one.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    }
}

/// Takes an object out of a document, if there is one.
fn taken(document: &mut Value, pointer: &str) -> Map<String, Value> {
    document.pointer_mut(pointer).map(Value::take).map(object).unwrap_or_default()
}

/// Puts a value into a document. What should be an object on the way there and is none becomes one.
pub(super) fn put(document: &mut Value, path: &[&str], value: Value) {
    let Some((field, rest)) = path.split_first() else {
        *document = value;
        return;
    };
    if !document.is_object() {
        *document = json!({});
    }
    if let Some(map) = document.as_object_mut() {
        put(map.entry(*field).or_insert(Value::Null), rest, value);
    }
}

#[cfg(test)]
#[path = "workload_tests.rs"]
pub(super) mod tests;

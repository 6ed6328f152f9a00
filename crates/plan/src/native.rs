//! Kubernetes' own workloads: where their pod templates are, and what nodes get of a native DaemonSet.

use std::collections::BTreeMap;

use dapple_api::selector::Selector;
use dapple_edit::authored::authored;
use dapple_edit::document::Document;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::fate::Update;
use crate::fit::Node;
use crate::overrides::Overrides;
use crate::variant::{Draft, ObjectName, Plan, Sketch};

/// The pod template of a workload. Without a field, it is a pod, and its own.
pub(crate) fn template<'a>(field: &str, object: &'a Value) -> Option<&'a Value> {
    if field.is_empty() {
        return Some(object);
    }
    object.pointer(&format!("/{}", field.replace('.', "/")))
}

/// What a workload selects its pods by, if it says so.
pub(crate) fn selector(object: &Value) -> Option<Selector> {
    let selector = object.pointer("/spec/selector")?;
    let is_map = selector.as_object()?.values().all(Value::is_string);
    // Only that of a ReplicationController is a map of labels itself.
    let selector = if is_map {
        LabelSelector::deserialize(json!({"matchLabels": selector}))
    } else {
        LabelSelector::deserialize(selector)
    };
    Selector::new(&selector.ok()?).ok()
}

/// How many pods a workload has at a time, as its spec says: it may have none of its own number yet.
pub(crate) fn pods_of(object: &Value) -> usize {
    let number =
        |path: &str| object.pointer(path).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
    let job = match object["kind"].as_str() {
        Some("Job") => "/spec",
        Some("CronJob") => "/spec/jobTemplate/spec",
        _ => return number("/spec/replicas").unwrap_or(1),
    };
    let at_once = number(&format!("{job}/parallelism")).unwrap_or(1);
    number(&format!("{job}/completions")).map_or(at_once, |all| all.min(at_once))
}

/// A pod as the template that it would be made of: as its author wrote it, as far as that is known.
pub(crate) fn template_of_pod(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let kept = ["labels", "annotations"].into_iter().filter(|field| !metadata[*field].is_null());
    let metadata: Map<String, Value> = kept.map(|field| (field.to_owned(), metadata[field].clone())).collect();
    json!({"metadata": metadata, "spec": authored(pod)["spec"]})
}

/// How pods of a workload get what has changed for them.
pub(crate) fn update_of(object: &Value) -> Update {
    // Once they are placed, pods of Jobs and those of nobody's are never changed.
    if ["Job", "CronJob", "Pod"].iter().any(|kind| object["kind"] == *kind) {
        return Update::OnDelete;
    }
    match object.pointer("/spec/updateStrategy/type").and_then(Value::as_str) {
        Some("OnDelete") => Update::OnDelete,
        _ => Update::PolicyImagesInPlace,
    }
}

/// Plans a native DaemonSet: it has no patches, but an OverridePolicy may concern its pods.
pub(crate) fn plan_daemonset<'a>(
    object: ObjectName,
    template: &Value,
    update: Update,
    nodes: impl Iterator<Item = Node<'a>>,
    overrides: &Overrides,
) -> Plan {
    let mut by_list: BTreeMap<Option<usize>, Vec<Node<'a>>> = BTreeMap::new();
    for node in nodes {
        by_list.entry(overrides.list_for(node.name)).or_default().push(node);
    }
    let drafts = by_list.into_iter().map(|(list, nodes)| Draft {
        places: Vec::new(),
        edits: overrides.edits(list).iter().collect(),
        nodes,
    });
    let fight = |_: &_, _: &_| false;
    let sketch = Sketch {
        object,
        document: Document::PodTemplate,
        base: template,
        base_field: "spec.template",
        is_daemon: true,
        update,
        fight: &fight,
        is_default: &|_| false,
    };
    sketch.plan(drafts.collect())
}

//! What a node gets of its pool: labels, annotations and taints.
//!
//! All that must be remembered is on the node. What a pool has put there is in the annotation that OpenYurt keeps, and what was
//! there before it in another: whoever decides next, after a crash or a change of leader, decides the same.
//!
//! Invariants:
//! - What no pool has put on a node is never taken from it, and what a pool replaced is put back when it lets go.
//! - What somebody else has changed since is theirs: it is put right while the pool wants it, and left alone afterwards.
//! - What Kubernetes, the kubelet or dapple keep is no pool's, whatever the node remembers: it stays, and is forgotten.
//! - A node that goes from one pool to another changes in one write.
//! - A taint that makes Kubernetes delete pods is put on a node only where that is allowed just then, and never once more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dapple_api::pool::{NodePoolSpec, PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES, Taint, TaintEffect, is_reserved};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::mutant::{Mutant, is_on};

/// What becomes of a node.
#[derive(Debug, Default, PartialEq)]
pub struct Settled {
    /// A merge patch for the very version of the node that was looked at; none if nothing is to be written.
    pub patch: Option<Value>,
    /// Keys of taints that the node lacks, and that may not be put on it now: they would make Kubernetes delete pods.
    pub held: Vec<String>,
    /// Keys of such taints that were there, and that somebody has taken off or changed: they are never put on again.
    pub lost: Vec<String>,
    /// What the pool had put there, and somebody has changed since: the patch puts it right.
    pub repaired: Vec<Attribute>,
}

/// What a node has by a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute {
    /// Which list of a node it is in.
    pub kind: AttributeKind,
    /// Its key.
    pub key: String,
}

/// Which list of a node something is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeKind {
    /// Its labels.
    Label,
    /// Its annotations.
    Annotation,
    /// Its taints.
    Taint,
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            AttributeKind::Label => "label",
            AttributeKind::Annotation => "annotation",
            AttributeKind::Taint => "taint",
        };
        write!(f, "{kind} {}", self.key)
    }
}

/// What is remembered on a node cannot be read: nothing is changed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation}: {text}; nothing is changed on this node until it is repaired or removed")]
pub struct Unreadable {
    /// Which annotation.
    pub annotation: &'static str,
    /// What is wrong with it.
    pub text: String,
}

/// Attributes of nodes, as OpenYurt writes them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Attributes {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taints: Vec<Value>,
}

impl Attributes {
    /// Forgets what no pool can have put there, and what may not be changed: OpenYurt knows fewer such keys, and somebody may have
    /// written others.
    fn forget_reserved(&mut self) {
        self.labels.retain(|key, _| !is_reserved(key));
        self.annotations.retain(|key, _| !is_reserved(key));
        self.taints.retain(|taint| !is_reserved(&key_of(taint).0));
    }
}

/// Reads what an annotation of a node remembers.
fn read<T: Default + DeserializeOwned>(node: &Value, annotation: &'static str) -> Result<T, Unreadable> {
    match &node["metadata"]["annotations"][annotation] {
        Value::Null => Ok(T::default()),
        Value::String(text) if text.is_empty() => Ok(T::default()),
        Value::String(text) => {
            // A list would be read as well, its items in the order of the fields.
            let fields = serde_json::from_str::<Map<String, Value>>(text);
            fields.and_then(|fields| serde_json::from_value(Value::Object(fields))).map_err(|error| {
                let text = format!("it is not a JSON object of labels, annotations and taints ({error})");
                Unreadable { annotation, text }
            })
        }
        _ => Err(Unreadable { annotation, text: "it is no text".to_owned() }),
    }
}

/// What pools have replaced on a node, and which pool has put there what is there now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Replaced {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(flatten)]
    attributes: Attributes,
}

/// As the value of an annotation; null if there is nothing to remember.
fn written<T: Default + PartialEq + Serialize>(remembered: &T) -> Value {
    if *remembered == T::default() { Value::Null } else { json!(json!(remembered).to_string()) }
}

/// Which pool has put something on a node that is there still, by the two annotations that remember it. None if nothing is; empty
/// if it is not known which: OpenYurt does not note it.
#[must_use]
pub fn remembered_pool(previous: Option<&str>, replaced: Option<&str>) -> Option<String> {
    let is_there = |text: &Option<&str>| text.is_some_and(|text| !["", "{}"].contains(&text));
    if !is_there(&previous) && !is_there(&replaced) {
        return None;
    }
    let replaced = replaced.and_then(|text| serde_json::from_str::<Replaced>(text).ok());
    Some(replaced.and_then(|replaced| replaced.pool).unwrap_or_default())
}

/// A pool, for a node that is in it.
#[derive(Debug, Clone, Copy)]
pub struct PoolOf<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its nodes get.
    pub spec: &'a NodePoolSpec,
}

/// What becomes of a node that is in this pool, or in none. Taints with the effect NoExecute are put on it only if that is
/// allowed; those that are there stay.
pub fn settle(node: &Value, pool: Option<PoolOf<'_>>, may_execute: bool) -> Result<Settled, Unreadable> {
    let mut set: Attributes = read(node, PREVIOUS_ATTRIBUTES)?;
    let mut replaced: Replaced = read(node, REPLACED_ATTRIBUTES)?;
    let known = (set.clone(), replaced.clone());
    set.forget_reserved();
    replaced.attributes.forget_reserved();
    let none = NodePoolSpec::default();
    let spec = pool.map_or(&none, |pool| pool.spec);
    let (metadata, no_fields) = (&node["metadata"], Map::new());
    let fields = |name: &str| metadata[name].as_object().unwrap_or(&no_fields);
    let before = &mut replaced.attributes;
    let both = (&mut set.labels, &mut before.labels);
    let (labels, of_labels) = settle_map(fields("labels"), &spec.labels, both);
    let both = (&mut set.annotations, &mut before.annotations);
    let (mut annotations, of_annotations) = settle_map(fields("annotations"), &spec.annotations, both);
    let there = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut taints = Taints { list: there.clone(), may_execute, ..Taints::default() };
    taints.settle(&spec.taints, &mut set.taints, &mut before.taints);
    let Taints { list, held, lost, repaired: of_taints, .. } = taints;
    let of_kind = |kind, keys: Vec<String>| keys.into_iter().map(move |key| Attribute { kind, key });
    let repaired = of_kind(AttributeKind::Label, of_labels)
        .chain(of_kind(AttributeKind::Annotation, of_annotations))
        .chain(of_kind(AttributeKind::Taint, of_taints))
        .collect();
    // Whose it is matters as long as there is something to take back.
    replaced.pool = pool.filter(|_| set != Attributes::default()).map(|pool| pool.name.to_owned());
    if known.0 != set {
        annotations.insert(PREVIOUS_ATTRIBUTES.to_owned(), written(&set));
    }
    if known.1 != replaced {
        annotations.insert(REPLACED_ATTRIBUTES.to_owned(), written(&replaced));
    }
    if labels.is_empty() && annotations.is_empty() && list == there {
        return Ok(Settled { patch: None, held, lost, repaired });
    }
    let mut patch = json!({"metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        "labels": labels, "annotations": annotations}});
    if list != there {
        patch["spec"]["taints"] = Value::Array(list);
    }
    Ok(Settled { patch: Some(patch), held, lost, repaired })
}

/// What changes of labels or annotations, and which of them somebody else has changed since. `set` is what a pool has put there,
/// `replaced` what was there before.
fn settle_map(
    now: &Map<String, Value>,
    wanted: &BTreeMap<String, String>,
    (set, replaced): (&mut BTreeMap<String, String>, &mut BTreeMap<String, String>),
) -> (Map<String, Value>, Vec<String>) {
    let mut repaired = Vec::new();
    let mut patch = Map::new();
    let is_wanted = |key: &String| wanted.contains_key(key) && !is_reserved(key);
    let value_of = |key: &str| now.get(key).and_then(Value::as_str);
    for key in set.keys().filter(|key| !is_wanted(key)).cloned().collect::<Vec<String>>() {
        let (value, before) = (set.remove(&key), replaced.remove(&key));
        if value_of(&key) == value.as_deref() {
            let before = before.filter(|_| !is_on(Mutant::ReplacedForgotten));
            patch.insert(key, before.map_or(Value::Null, Value::String));
        }
    }
    for (key, value) in wanted.iter().filter(|(key, _)| is_wanted(key)) {
        let (there, is_set) = (value_of(key), set.contains_key(key));
        if there != Some(value) {
            patch.insert(key.clone(), json!(value));
            if set.get(key) == Some(value) {
                repaired.push(key.clone());
            }
        } else if !is_set {
            // It was so before: when the pool lets go, it stays.
            continue;
        }
        if let Some(there) = there.filter(|_| !is_set) {
            replaced.insert(key.clone(), there.to_owned());
        }
        set.insert(key.clone(), value.clone());
    }
    (patch, repaired)
}

/// The taints of a node: a list, of which each is known by key and effect.
#[derive(Default)]
struct Taints {
    list: Vec<Value>,
    may_execute: bool,
    held: Vec<String>,
    lost: Vec<String>,
    repaired: Vec<String>,
}

impl Taints {
    fn settle(&mut self, wanted: &[Taint], set: &mut Vec<Value>, replaced: &mut Vec<Value>) {
        let wanted: Vec<Value> = wanted.iter().filter(|taint| !is_reserved(&taint.key)).map(as_json).collect();
        let wanted_keys: BTreeSet<(String, String)> = wanted.iter().map(key_of).collect();
        for taint in take(set, |taint| !wanted_keys.contains(&key_of(taint))) {
            let before = take(replaced, |other| key_of(other) == key_of(&taint)).pop();
            // One that somebody else has given another value is theirs.
            if let Some(index) = self.position(&taint).filter(|index| is_same(&self.list[*index], &taint)) {
                match before {
                    Some(before) => self.list[index] = before,
                    None => _ = self.list.remove(index),
                }
            }
        }
        for taint in wanted {
            self.want(taint, set, replaced);
        }
    }

    fn want(&mut self, taint: Value, set: &mut Vec<Value>, replaced: &mut Vec<Value>) {
        let there = self.position(&taint);
        let known = set.iter().position(|other| key_of(other) == key_of(&taint));
        let is_right = there.is_some_and(|index| is_same(&self.list[index], &taint));
        let is_repair = !is_right && known.is_some_and(|known| is_same(&set[known], &taint));
        if !is_right
            && taint["effect"] == "NoExecute"
            && (is_repair && !is_on(Mutant::ExecutedAgain) || !self.may_execute)
        {
            let list = if is_repair && !is_on(Mutant::ExecutedAgain) { &mut self.lost } else { &mut self.held };
            list.push(key_of(&taint).0);
            return;
        }
        if is_repair {
            self.repaired.push(key_of(&taint).0);
        }
        match (there, known) {
            (Some(_), None) if is_right => return,
            (Some(index), None) => replaced.push(self.list[index].clone()),
            _ => {}
        }
        match there {
            Some(index) if !is_right => self.list[index] = taint.clone(),
            None => self.list.push(taint.clone()),
            Some(_) => {}
        }
        match known {
            Some(known) => set[known] = taint,
            None => set.push(taint),
        }
    }

    fn position(&self, taint: &Value) -> Option<usize> {
        self.list.iter().position(|other| key_of(other) == key_of(taint))
    }
}

/// Takes such taints out of a list.
fn take(list: &mut Vec<Value>, is_such: impl Fn(&Value) -> bool) -> Vec<Value> {
    let (taken, kept) = std::mem::take(list).into_iter().partition(|taint| is_such(taint));
    *list = kept;
    taken
}

fn as_json(taint: &Taint) -> Value {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    match &taint.value {
        Some(value) if !value.is_empty() => json!({"key": taint.key, "value": value, "effect": effect}),
        _ => json!({"key": taint.key, "effect": effect}),
    }
}

fn key_of(taint: &Value) -> (String, String) {
    let text = |name: &str| taint[name].as_str().unwrap_or_default().to_owned();
    (text("key"), text("effect"))
}

/// Whether two taints of one key and effect have the same value. When it was added makes no difference.
fn is_same(one: &Value, other: &Value) -> bool {
    let value = |taint: &Value| taint["value"].as_str().unwrap_or_default().to_owned();
    value(one) == value(other)
}

#[cfg(test)]
#[path = "attributes_tests.rs"]
mod tests;

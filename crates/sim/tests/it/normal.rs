//! What two servers cannot have in common is replaced by what they must: order instead of versions, and so on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::case::{Said, Step};

/// Fields of a pod's spec that the real server or its admission plugins fill in, and on which nobody here relies.
const POD_DEFAULTS: [&str; 8] = [
    "dnsPolicy",
    "enableServiceLinks",
    "preemptionPolicy",
    "priority",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "automountServiceAccountToken",
];
/// The same of containers.
const CONTAINER_DEFAULTS: [&str; 3] = ["imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"];
/// Tolerations that an admission plugin adds to every pod.
const ADDED_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Structs that Go writes although nothing is in them.
const EMPTY_STRUCTS: [&str; 3] = ["lastState", "source", "deprecatedSource"];

/// The answers of a case in a form that both servers must agree on.
pub(crate) fn normal(steps: &[Step], said: &[Said]) -> Vec<Value> {
    let mut symbols = Symbols::default();
    for (step, said) in steps.iter().zip(said) {
        // What others write on the real side has versions that mean nothing here.
        symbols.look(&said.body, step.only.is_none() && !step.played);
    }
    let ranks: BTreeMap<u64, usize> = symbols.versions.iter().copied().zip(1..).collect();
    let mut answers = Vec::new();
    for (step, said) in steps.iter().zip(said) {
        let mut body = said.body.clone();
        symbols.replace(&mut body, &ranks);
        if let Some(only) = &step.only {
            body = only.iter().map(|path| (path.clone(), json!(body.pointer(path)))).collect::<Map<_, _>>().into();
        }
        answers.push(json!({"do": step.act, "code": said.code, "body": body}));
    }
    answers
}

#[derive(Default)]
struct Symbols {
    uids: Vec<String>,
    versions: BTreeSet<u64>,
}

impl Symbols {
    /// Collects UIDs in the order they appear, and versions of objects. That of a list is the whole cluster's.
    fn look(&mut self, value: &Value, has_versions: bool) {
        match value {
            Value::Object(fields) => {
                if let Some(uid) = fields.get("uid").and_then(Value::as_str)
                    && is_uid(uid)
                    && !self.uids.iter().any(|known| known == uid)
                {
                    self.uids.push(uid.to_owned());
                }
                let is_object = has_versions && fields.contains_key("creationTimestamp");
                if let Some(version) = fields.get("resourceVersion").and_then(Value::as_str).filter(|_| is_object) {
                    self.versions.extend(version.parse::<u64>().ok());
                }
                fields.values().for_each(|value| self.look(value, has_versions));
            }
            Value::Array(items) => items.iter().for_each(|item| self.look(item, has_versions)),
            _ => {}
        }
    }

    fn replace(&self, value: &mut Value, ranks: &BTreeMap<u64, usize>) {
        match value {
            Value::Object(fields) => {
                tidy(fields);
                let is_object = fields.contains_key("creationTimestamp");
                for (name, value) in fields.iter_mut() {
                    match (name.as_str(), value.as_str()) {
                        ("resourceVersion", Some(text)) => {
                            let rank =
                                text.parse().ok().filter(|_| is_object).and_then(|version: u64| ranks.get(&version));
                            *value = rank.map_or_else(|| json!("some"), |rank| json!(format!("version-{rank}")));
                        }
                        ("continue", Some(text)) if !text.is_empty() => *value = json!("token"),
                        _ => self.replace(value, ranks),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item, ranks)),
            Value::String(text) => *text = self.replace_text(text, ranks),
            _ => {}
        }
    }

    fn replace_text(&self, text: &str, ranks: &BTreeMap<u64, usize>) -> String {
        if text.len() == 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok() {
            return "time".to_owned();
        }
        // What follows differs from release to release: a Go program's view of the difference.
        let text = text.split_once("\n@@").map_or(text, |(text, _)| text).trim_end_matches('\n');
        let mut replaced = text.to_owned();
        for (index, uid) in self.uids.iter().enumerate() {
            replaced = replaced.replace(uid.as_str(), &format!("uid-{}", index + 1));
        }
        for (version, rank) in ranks {
            replaced = replaced.replace(&format!("({version})"), &format!("(version-{rank})"));
        }
        replaced
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4
}

fn tidy(fields: &mut Map<String, Value>) {
    // Who wrote which field: we don't keep it.
    fields.remove("managedFields");
    // What is not set is written by Go programs in three ways, and read in one.
    fields.retain(|name, value| {
        let is_empty = value.as_object().is_some_and(Map::is_empty);
        !(value.is_null() || is_empty && EMPTY_STRUCTS.contains(&name.as_str()))
    });
    if fields.contains_key("containers") {
        POD_DEFAULTS.iter().for_each(|name| _ = fields.remove(*name));
        for list in ["containers", "initContainers"] {
            for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let container = container.as_object_mut().unwrap();
                CONTAINER_DEFAULTS.iter().for_each(|name| _ = container.remove(*name));
            }
        }
        if let Some(tolerations) = fields.get_mut("tolerations").and_then(Value::as_array_mut) {
            tolerations.retain(|one| !ADDED_TOLERATIONS.iter().any(|key| one["key"] == *key));
            if tolerations.is_empty() {
                fields.remove("tolerations");
            }
        }
    }
    // A generated name ends in what nobody can foresee.
    if let Some(base) = fields.get("generateName").and_then(Value::as_str).map(str::to_owned)
        && let Some(name) = fields.get_mut("name").filter(|name| name.is_string())
    {
        let text = name.as_str().unwrap_or_default();
        assert!(text.starts_with(&base) && text.len() == base.len() + 5, "{text}");
        *name = json!(format!("{base}*****"));
    }
}

//! What containers read of their pod when they start, and would not see change.
//!
//! Files of the downward API follow the pod; environment variables do not, nor files that are mounted each by itself.

use serde_json::Value;

use super::amounts::containers;
use super::{Difference, all_containers};

/// Whether some container goes on with what it read at its start, though it is among what changes.
pub(super) fn would_miss(template: &Value, changed: &Difference) -> bool {
    if changed.labels.is_empty() && changed.annotations.is_empty() && changed.resources.is_empty() {
        return false;
    }
    all_containers(template).any(|container| {
        let own = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let mut variables = items(container, "env").filter_map(|variable| variable.get("valueFrom"));
        variables.any(|source| is_changed(source, own, changed))
            || items(container, "volumeMounts").any(|mount| {
                let is_part = ["subPath", "subPathExpr"].iter().any(|field| mount.get(*field).is_some());
                is_part && mount.get("name").is_some_and(|name| tells_of(template, name, changed))
            })
    })
}

/// Whether a volume of this name has something that changes.
fn tells_of(template: &Value, name: &Value, changed: &Difference) -> bool {
    let volume = containers(template, "volumes").find(|volume| volume.get("name") == Some(name));
    let projected = volume.and_then(|volume| volume.get("projected"));
    let sources = projected.into_iter().flat_map(|projected| items(projected, "sources"));
    let mut files = volume.into_iter().chain(sources).filter_map(|source| source.get("downwardAPI"));
    files.any(|files| items(files, "items").any(|file| is_changed(file, "", changed)))
}

/// Whether a field that a variable or a file is made from changes.
fn is_changed(source: &Value, own: &str, changed: &Difference) -> bool {
    let text = |kind: &str, field: &str| source.get(kind)?.get(field)?.as_str();
    let of_metadata = text("fieldRef", "fieldPath").is_some_and(|path| {
        [("metadata.labels", &changed.labels), ("metadata.annotations", &changed.annotations)].iter().any(
            |(field, keys)| match path.strip_prefix(field) {
                Some("") => !keys.is_empty(),
                Some(key) => {
                    let key = key.strip_prefix("['").and_then(|key| key.strip_suffix("']"));
                    key.is_some_and(|key| keys.contains_key(key))
                }
                None => false,
            },
        )
    });
    let of_resources = text("resourceFieldRef", "resource").is_some_and(|resource| {
        let amounts = changed.resources.get(text("resourceFieldRef", "containerName").unwrap_or(own));
        let field = resource.split_once('.');
        field
            .zip(amounts)
            .is_some_and(|((kind, name), amounts)| amounts.get(kind).is_some_and(|of| of.get(name).is_some()))
    });
    of_metadata || of_resources
}

fn items<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(list).and_then(Value::as_array).into_iter().flatten()
}

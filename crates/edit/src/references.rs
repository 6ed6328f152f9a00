//! Names of ConfigMaps, Secrets and claims in a template, wherever it can refer to one.

use serde_json::{Value, json};

use crate::container;
use crate::edit::ReferenceKind;

/// Replaces one name by another everywhere. Returns how often.
pub(crate) fn replace(template: &mut Value, kind: ReferenceKind, from: &str, to: &str) -> usize {
    let mut count = 0;
    let mut swap = |found: Option<&mut Value>| {
        if let Some(name) = found.filter(|name| **name == from) {
            *name = json!(to);
            count += 1;
        }
    };
    for volume in items(template.pointer_mut("/spec/volumes")) {
        match kind {
            ReferenceKind::ConfigMap => swap(volume.pointer_mut("/configMap/name")),
            ReferenceKind::Secret => swap(volume.pointer_mut("/secret/secretName")),
            ReferenceKind::PersistentVolumeClaim => swap(volume.pointer_mut("/persistentVolumeClaim/claimName")),
        }
        for source in items(volume.pointer_mut("/projected/sources")) {
            match kind {
                ReferenceKind::ConfigMap => swap(source.pointer_mut("/configMap/name")),
                ReferenceKind::Secret => swap(source.pointer_mut("/secret/name")),
                ReferenceKind::PersistentVolumeClaim => {}
            }
        }
    }
    let (in_env, in_env_from) = match kind {
        ReferenceKind::ConfigMap => ("/valueFrom/configMapKeyRef/name", "/configMapRef/name"),
        ReferenceKind::Secret => ("/valueFrom/secretKeyRef/name", "/secretRef/name"),
        ReferenceKind::PersistentVolumeClaim => return count,
    };
    for container in container::each(template) {
        for variable in items(container.get_mut("env")) {
            swap(variable.pointer_mut(in_env));
        }
        for source in items(container.get_mut("envFrom")) {
            swap(source.pointer_mut(in_env_from));
        }
    }
    if kind == ReferenceKind::Secret {
        for secret in items(template.pointer_mut("/spec/imagePullSecrets")) {
            swap(secret.get_mut("name"));
        }
    }
    count
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

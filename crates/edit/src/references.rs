//! Names of ConfigMaps, Secrets and claims in a template, wherever it can refer to one.

use serde_json::{Value, json};

use crate::container;
use crate::edit::ReferenceKind;

/// Replaces one name by another everywhere, and says what is odd about that.
pub(crate) fn replace_and_warn(template: &mut Value, kind: ReferenceKind, from: &str, to: &str) -> Option<String> {
    if replace(template, kind, from, to) == 0 {
        return Some(format!("nothing refers to the {kind:?} {from:?}, so nothing was replaced"));
    }
    (!can_be_a_name(to))
        .then(|| format!("no {kind:?} can have the name {to:?}: lower-case letters, digits, - and . only"))
}

/// Whether an object can have this name: a DNS subdomain (RFC 1123).
fn can_be_a_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
            && bytes.first().is_some_and(|byte| plain(*byte))
            && bytes.last().is_some_and(|byte| plain(*byte))
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Replaces one name by another everywhere. Returns how often.
fn replace(template: &mut Value, kind: ReferenceKind, from: &str, to: &str) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_object_can_have_are_told() {
        for (name, can_be) in [("a", true), ("a-1.b", true), ("", false), ("A", false), ("a..b", false), ("-a", false)]
        {
            assert_eq!(can_be_a_name(name), can_be, "{name}");
        }
        let mut template = json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "old"}}]}});
        let warning = replace_and_warn(&mut template, ReferenceKind::ConfigMap, "old", "configMap-new");
        assert!(warning.is_some_and(|text| text.contains("\"configMap-new\"")));
        assert_eq!(template["spec"]["volumes"][0]["configMap"]["name"], "configMap-new");
        assert_eq!(replace_and_warn(&mut template, ReferenceKind::ConfigMap, "configMap-new", "new"), None);
    }
}

//! Cpu and memory of containers, and the class of service that a pod has by them.

use std::collections::BTreeMap;

pub(super) use dapple_edit::amount::nanos;
use serde_json::{Map, Value, json};

use super::all_containers;

/// What containers have amounts of, and what kinds of amounts there are.
pub(super) const NAMES: [&str; 2] = ["cpu", "memory"];
pub(super) const KINDS: [&str; 2] = ["requests", "limits"];

/// How the node treats a pod that competes for memory. A resize may not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Qos {
    /// It has a limit for everything, and requests as much.
    Guaranteed,
    /// It has some requests or limits.
    Burstable,
    /// It has none.
    BestEffort,
}

/// What a container requests and may use, as it will be in the pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Amounts<'a>(BTreeMap<(&'static str, &'static str), (&'a Value, i128)>);

impl<'a> Amounts<'a> {
    /// The amounts of a container; nothing if one cannot be read.
    pub(super) fn of(container: &'a Value) -> Option<Self> {
        let mut amounts = BTreeMap::new();
        for name in NAMES {
            let written =
                |kind: &str| container.get("resources")?.get(kind)?.get(name).filter(|value| !value.is_null());
            let limit = written("limits");
            // Kubernetes has a container request what it may use, if it does not say otherwise.
            for (kind, value) in [("limits", limit), ("requests", written("requests").or(limit))] {
                if let Some(value) = value {
                    amounts.insert((kind, name), (value, kept(value)?));
                }
            }
        }
        Some(Self(amounts))
    }

    /// What has to change to have `after`, as a container's resources; nothing if it cannot: amounts may be set anew, and
    /// not taken away.
    pub(super) fn changes_to(&self, after: &Self) -> Option<Map<String, Value>> {
        if self.0.keys().any(|key| !after.0.contains_key(key)) {
            return None;
        }
        let mut changed = Map::new();
        for (key, (value, amount)) in &after.0 {
            if self.0.get(key).is_none_or(|(_, before)| before != amount) {
                let of_kind = changed.entry(key.0).or_insert_with(|| json!({}));
                of_kind[key.1] = (*value).clone();
            }
        }
        Some(changed)
    }

    /// Whether all of these are there, and no other amount of them.
    pub(super) fn has(&self, wanted: &Self) -> bool {
        wanted.0.iter().all(|(key, (_, amount))| self.0.get(key).is_some_and(|(_, known)| known == amount))
    }
}

/// The class of service of a pod from this template; nothing if an amount cannot be read. Kubernetes adds up what all
/// containers have, and takes zero for nothing.
pub(super) fn qos(template: &Value) -> Option<Qos> {
    let mut sums: BTreeMap<(&str, &str), i128> = BTreeMap::new();
    let mut all_limited = true;
    for container in all_containers(template) {
        let amounts = Amounts::of(container)?;
        let mut limits = 0;
        for (key, (_, amount)) in amounts.0.iter().filter(|(_, (_, amount))| *amount > 0) {
            let sum = sums.entry(*key).or_default();
            *sum = sum.checked_add(*amount)?;
            limits += usize::from(key.0 == "limits");
        }
        all_limited &= limits == NAMES.len();
    }
    if sums.is_empty() {
        return Some(Qos::BestEffort);
    }
    let is_same = |name: &str| sums.get(&("requests", name)) == sums.get(&("limits", name));
    Some(if all_limited && NAMES.iter().all(|name| is_same(name)) { Qos::Guaranteed } else { Qos::Burstable })
}

/// The containers in one of a template's lists.
pub(super) fn containers<'a>(template: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    template.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array).into_iter().flatten()
}

/// The container of this name.
pub(super) fn container<'a>(template: &'a Value, name: &str) -> Option<&'a Value> {
    containers(template, "containers").find(|container| container.get("name").is_some_and(|known| known == name))
}

/// An amount in thousandths, as Kubernetes keeps it: it rounds up what is finer, in every object that it is given.
pub(super) fn kept(value: &Value) -> Option<i128> {
    const THOUSANDTH: i128 = 1_000_000;
    let nanos = nanos(value)?;
    Some(nanos.div_euclid(THOUSANDTH) + i128::from(nanos.rem_euclid(THOUSANDTH) > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(containers: Value, first: Value) -> Option<Qos> {
        let resourced = |list: Value| -> Vec<Value> {
            let resources = list.as_array().unwrap().iter().cloned();
            resources.map(|resources| json!({"resources": resources})).collect()
        };
        qos(&json!({"spec": {"containers": resourced(containers), "initContainers": resourced(first)}}))
    }

    #[test]
    fn classes_of_service_are_those_of_kubernetes() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let both = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": 1, "memory": "1024Mi"}});
        let less = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}});
        let half = json!({"limits": {"cpu": "1"}});
        let zero = json!({"limits": {"cpu": "0", "memory": 0}, "requests": {"cpu": "0"}});
        let free = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0"}});
        for (containers, first, expected) in [
            (json!([{}]), json!([]), Some(Qos::BestEffort)),
            (json!([{"limits": {"nvidia.com/gpu": 1}}]), json!([]), Some(Qos::BestEffort)),
            (json!([zero]), json!([]), Some(Qos::BestEffort)),
            (json!([full]), json!([]), Some(Qos::Guaranteed)),
            (json!([both, full]), json!([both]), Some(Qos::Guaranteed)),
            (json!([full]), json!([{}]), Some(Qos::Burstable)),
            (json!([full, {}]), json!([]), Some(Qos::Burstable)),
            (json!([less]), json!([]), Some(Qos::Burstable)),
            (json!([half]), json!([]), Some(Qos::Burstable)),
            (json!([free]), json!([]), Some(Qos::Burstable)),
            (json!([{}]), json!([{"requests": {"memory": "1"}}]), Some(Qos::Burstable)),
            (json!([{"requests": {"cpu": "much"}}]), json!([]), None),
        ] {
            assert_eq!(class(containers.clone(), first.clone()), expected, "{containers} {first}");
        }
    }
}

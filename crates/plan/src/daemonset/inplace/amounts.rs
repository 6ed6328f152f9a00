//! Cpu and memory of containers, and the class of service that a pod has by them.

use std::collections::BTreeMap;

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

/// An amount in billionths, the smallest that Kubernetes knows; nothing if it is none, or beyond all measure.
pub(super) fn nanos(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
    if digits.is_empty() && fraction.is_empty() {
        return None;
    }
    // More dots than one are no digits.
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let (factor, exponent) = factor_of(suffix)?;
    let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.trim_end_matches('0').len()).ok()?)?;
    let product = mantissa.checked_mul(factor)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    let amount = match (exponent >= 0, power) {
        (true, Some(power)) => product.checked_mul(power)?,
        // What is smaller than the smallest counts as that.
        (false, Some(power)) => product / power + i128::from(product % power > 0),
        (true, None) if product == 0 => 0,
        (true, None) => return None,
        (false, None) => i128::from(product > 0),
    };
    Some(if is_negative { -amount } else { amount })
}

/// What a suffix multiplies with, and by which power of ten.
fn factor_of(suffix: &str) -> Option<(i128, i32)> {
    const STEPS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if let Some(letter) = suffix.strip_suffix('i') {
        let step = STEPS.iter().position(|known| *known == letter)?;
        return Some((1 << (10 * (step + 1)), 0));
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    Some((1, exponent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_reads_them() {
        const ONE: i128 = 1_000_000_000;
        for (value, expected) in [
            (json!("100m"), Some(ONE / 10)),
            (json!(0.5), Some(ONE / 2)),
            (json!(2), Some(2 * ONE)),
            (json!(".5"), Some(ONE / 2)),
            (json!("5."), Some(5 * ONE)),
            (json!("1Ki"), Some(1024 * ONE)),
            (json!("1.5Gi"), Some(1536 * 1024 * 1024 * ONE)),
            (json!("1k"), Some(1000 * ONE)),
            (json!("1E"), Some(1_000_000_000_000_000_000 * ONE)),
            (json!("1e3"), Some(1000 * ONE)),
            (json!("12E-1"), Some(ONE * 12 / 10)),
            (json!("0"), Some(0)),
            (json!("0.0"), Some(0)),
            (json!("-1"), Some(-ONE)),
            (json!("0.1n"), Some(1)),
            (json!("1e-400"), Some(1)),
            (json!("1e400"), None),
            (json!(""), None),
            (json!("."), None),
            (json!("1.2.3"), None),
            (json!("1 Gi"), None),
            (json!("1mi"), None),
            (json!("Gi"), None),
            (json!("1e"), None),
            (json!(true), None),
        ] {
            assert_eq!(nanos(&value), expected, "{value}");
        }
    }

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

    proptest! {
        /// Whatever is written, reading it does not panic, and a larger number is a larger amount.
        #[test]
        fn reading_amounts_never_panics(text in "[-+0-9.eEkKmMGin]{0,12}", number in 0..1_000_000_u32) {
            let _ = nanos(&json!(text));
            for suffix in ["", "m", "k", "Mi", "e2"] {
                let amount = |number: u32| nanos(&json!(format!("{number}{suffix}")));
                prop_assert!(amount(number) < amount(number + 1));
            }
        }
    }
}

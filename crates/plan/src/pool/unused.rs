//! Items of a replacement whose source nothing refers to.

use dapple_edit::edit::Warning;

use super::application::Seat;
use super::version::InForce;

/// Items whose source nothing refers to in any pool that they are for, by what rendering has said of each pool.
pub(super) fn unused(in_force: &InForce, pools: &[(&str, &[Warning])]) -> Vec<Warning> {
    let mut found = Vec::new();
    if pools.iter().all(|(_, said)| said.is_empty()) {
        return found;
    }
    for (index, replacement) in in_force.replacements.iter().enumerate() {
        let said: Vec<&[Warning]> =
            pools.iter().filter(|(pool, _)| replacement.pools.contains(pool)).map(|(_, said)| *said).collect();
        for number in 0..replacement.items.len() {
            let rule = format!("replacements[{index}].items[{number}]");
            let first = said.first().and_then(|said| of_rule(said, &rule));
            if said.iter().all(|said| of_rule(said, &rule).is_some()) {
                found.extend(first.cloned());
            }
        }
    }
    found
}

/// The same, of an application's pools as they were looked at.
pub fn unused_in(in_force: &InForce, seats: &[Seat]) -> Vec<Warning> {
    let said: Vec<(&str, &[Warning])> = seats
        .iter()
        .filter_map(|seat| match &seat.rendered {
            Some(Ok(rendered)) => Some((seat.pool.as_str(), rendered.unused.as_slice())),
            _ => None,
        })
        .collect();
    unused(in_force, &said)
}

fn of_rule<'w>(said: &'w [Warning], rule: &str) -> Option<&'w Warning> {
    said.iter().find(|warning| warning.source.rule == rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::workload::render;
    use crate::pool::workload::tests::set;
    use serde_json::json;

    #[test]
    fn a_source_that_something_refers_to_in_one_of_the_pools_is_used() {
        let patch = json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "v", "configMap": {"name": "settings"}}]}}}});
        let (application, mut version) = set(json!([{"name": "edge", "patch": patch}, {"name": "core"}]));
        let item = |source: &str| json!({"configMap": {"configMapSource": source, "configMapTarget": "to"}});
        let replacements = json!([
            {"pools": "*", "items": [item("settings"), item("none")]},
            {"pools": ["core"], "items": [item("settings")]},
            {"pools": ["elsewhere"], "items": [item("none")]},
        ]);
        let replacements = serde_json::from_value(replacements).expect("replacements");
        let in_force = InForce { name: "far".to_owned(), replacements };
        version.replacements = Some(in_force.clone());
        let rendered =
            ["edge", "core"].map(|pool| (pool, render(&application, &version, pool, &[]).expect("it renders")));
        let said: Vec<(&str, &[Warning])> = rendered.iter().map(|(pool, made)| (*pool, &made.unused[..])).collect();
        let found = unused(&in_force, &said);
        let rules: Vec<&str> = found.iter().map(|warning| warning.source.rule.as_str()).collect();
        assert_eq!(rules, ["replacements[0].items[1]", "replacements[1].items[0]"]);
        assert_eq!(found[0].text, "nothing refers to the ConfigMap \"none\", so nothing was replaced");
        assert!(unused(&in_force, &[]).is_empty(), "no pool says anything");
    }
}

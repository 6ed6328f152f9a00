//! What is to be said of a replacement before it is taken: each of its pools is rendered with it.

use std::collections::BTreeMap;

use dapple_api::kinds;
use dapple_api::verdict::Verdict;
use dapple_edit::edit::{EditError, Warning};

use super::application::AskedPool;
use super::report::named;
use super::unused::unused;
use super::version::{Application, Version};
use super::workload::{Unrendered, render};

/// Warns of pools that could not be given what the replacement of this version says, and of items that would change nothing.
/// `pools` are those that the application should be in; others than the replacement's are not its matter.
pub fn judge(application: &Application, version: &Version, pools: &[AskedPool]) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(in_force) = &version.replacements else { return verdict };
    let is_for = |pool: &&AskedPool| in_force.replacements.iter().any(|one| one.pools.contains(&pool.name));
    let mut wrong: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut rendered = Vec::new();
    for pool in pools.iter().filter(is_for) {
        match render(application, version, &pool.name, &pool.taints) {
            Ok(made) => rendered.push((pool.name.as_str(), made.unused)),
            Err(error) => wrong.entry(place_of(&error)).or_default().push(pool.name.clone()),
        }
    }
    for ((field, text), pools) in wrong {
        verdict.warn(&field, format!("{text}: nothing is changed in {}", named(&pools)));
    }
    let said: Vec<(&str, &[Warning])> = rendered.iter().map(|(pool, said)| (*pool, said.as_slice())).collect();
    for item in unused(in_force, &said) {
        verdict.warn(&item.source.rule, item.text);
    }
    verdict
}

/// The field of the replacement that an error is about, and what is wrong.
fn place_of(error: &Unrendered) -> (String, String) {
    match error {
        Unrendered::Edit(EditError { source_of_edit, problem })
            if source_of_edit.object.starts_with(kinds::REPLACEMENT.at.kind) =>
        {
            (source_of_edit.rule.clone(), problem.to_string())
        }
        other => ("subject".to_owned(), other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::version::InForce;
    use crate::pool::workload::tests::set;
    use serde_json::{Value, json};

    /// What is said of these replacements of an application in the pools p0 to p4.
    fn said(replacements: Value, pool: Value) -> Vec<String> {
        let names: Vec<String> = (0..5).map(|number| format!("p{number}")).collect();
        let pools = names.iter().map(|name| {
            let mut said = pool.clone();
            said["name"] = json!(name);
            said
        });
        let (application, mut version) = set(pools.collect());
        let replacements = serde_json::from_value(replacements).expect("replacements");
        version.replacements = Some(InForce { name: "far".to_owned(), replacements });
        let asked: Vec<AskedPool> = names.into_iter().map(|name| AskedPool { name, taints: Vec::new() }).collect();
        let verdict = judge(&application, &version, &asked);
        assert!(verdict.is_ok(), "it only warns");
        verdict.warnings
    }

    #[test]
    fn pools_that_do_not_render_are_named() {
        let image = |container: &str| json!({"image": {"containerName": container, "imageClaim": "c:2"}});
        let good = json!([{"pools": "*", "items": [image("c")]}]);
        assert!(said(good, json!({})).is_empty());
        let missing = json!([{"pools": "*", "items": [image("c"), image("none")]}]);
        let wanted = "replacements[0].items[1]: the template has no container \"none\"; it has: c: nothing is changed in \
                      p0, p1, p2 and 2 more";
        assert_eq!(said(missing, json!({})), [wanted]);
        let one =
            json!([{"pools": ["p1"], "items": [image("none")]}, {"pools": ["elsewhere"], "items": [image("none")]}]);
        let told = said(one, json!({}));
        assert!(told.len() == 1 && told[0].ends_with("nothing is changed in p1"), "{told:?}");
        let named = json!([{"pools": "*", "items": [image("c-{{nodepool}}")]}]);
        assert_eq!(said(named, json!({})).len(), 5, "each pool lacks another one");
    }

    #[test]
    fn what_is_wrong_with_the_application_is_told_where_the_replacement_names_it() {
        let patch = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}});
        let told = said(json!([{"pools": ["p0"], "items": [{"replicas": 2}]}]), json!({"patch": patch}));
        assert!(told.len() == 1 && told[0].starts_with("subject: the pool's patch changes spec.selector"), "{told:?}");
    }

    #[test]
    fn a_source_that_nothing_refers_to_is_told() {
        let item = json!({"secret": {"secretSource": "none", "secretTarget": "to"}});
        let told = said(json!([{"pools": "*", "items": [item]}]), json!({}));
        assert_eq!(told, ["replacements[0].items[0]: nothing refers to the Secret \"none\", so nothing was replaced"]);
    }
}

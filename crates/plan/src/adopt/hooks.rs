//! Which admission webhooks to take kinds out of, and what is left of each.
//!
//! Only the other product's: a policy engine that looks at these kinds too goes on looking at them.

use dapple_api::crd::is_ours;
use serde_json::{Value, json};

use super::product::Product;
use super::{Refusal, texts};

/// A configuration that is to be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Edited {
    /// `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The configuration as it will be, with the version it was read at.
    pub object: Value,
    /// What is done to it, for people.
    pub steps: Vec<String>,
}

/// What became of one look at a configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Looked {
    /// The configuration as it will be; nothing if it stays.
    pub edited: Option<Edited>,
    /// Entries that dapple cannot take the kinds out of.
    pub refusals: Vec<Refusal>,
    /// Entries that are left alone and worth knowing of.
    pub notes: Vec<String>,
}

/// What is left of an entry once the kinds are taken out.
enum Left {
    All,
    Some(Value),
    Nothing,
    /// This field of that rule is a wildcard: nobody can take one kind out of it.
    Wildcard(usize, &'static str),
}

/// Looks at one configuration, which has its `kind`.
pub fn look(configuration: &Value, product: &Product) -> Looked {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&configuration["kind"]), text(&configuration["metadata"]["name"]));
    let object = format!("{kind} {name}");
    let mut looked = Looked::default();
    // dapple's own are for these kinds too, and stay.
    if is_ours(configuration) {
        return looked;
    }
    let taken = product.resources.join(", ");
    let (mut entries, mut steps) = (Vec::new(), Vec::new());
    for (index, entry) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let hook = text(&entry["name"]);
        let left = left_of(entry, product);
        if !product.has(configuration, entry) {
            if !matches!(left, Left::All) {
                let objects = &product.objects;
                let note = format!("{object}: {hook} looks at {objects} too; it is another product's and stays");
                looked.notes.push(note);
            }
            entries.push(entry.clone());
            continue;
        }
        looked.notes.extend((product.note)(&object, &hook, entry));
        match left {
            Left::All => entries.push(entry.clone()),
            Left::Some(entry) => {
                steps.push(format!("take {taken} out of {hook} of {object}"));
                entries.push(entry);
            }
            Left::Nothing => steps.push(format!("remove {hook} from {object}")),
            Left::Wildcard(rule, field) => {
                looked.refusals.push(wildcard(&object, format!("webhooks[{index}].rules[{rule}].{field}"), product));
                entries.push(entry.clone());
            }
        }
    }
    let mut changed = configuration.clone();
    if !steps.is_empty() {
        changed["webhooks"] = entries.into();
    }
    if product.has(configuration, &Value::Null) {
        for annotation in product.templates {
            let Some(template) = template_without(configuration, annotation, product) else { continue };
            changed["metadata"]["annotations"][*annotation] = template.into();
            steps.push(format!("take {taken} out of the annotation {annotation} of {object}"));
        }
    }
    if !steps.is_empty() {
        looked.edited = Some(Edited { kind, name, object: changed, steps });
    }
    looked
}

/// The product's own copy of its webhooks, if it has the kinds. It would bring them back when it is started again.
fn template_without(configuration: &Value, annotation: &str, product: &Product) -> Option<String> {
    let text = configuration["metadata"]["annotations"][annotation].as_str()?;
    // One that nobody can read brings nothing back.
    let before: Vec<Value> = serde_json::from_str(text).ok()?;
    let after: Vec<Value> = before
        .iter()
        .filter_map(|entry| match left_of(entry, product) {
            Left::Some(left) => Some(left),
            Left::Nothing => None,
            // A wildcard is refused where the entry itself is.
            Left::All | Left::Wildcard(..) => Some(entry.clone()),
        })
        .collect();
    if after == before { None } else { serde_json::to_string(&after).ok() }
}

fn left_of(entry: &Value, product: &Product) -> Left {
    if entry["name"].as_str().is_some_and(|name| product.whole.contains(&name)) {
        return Left::Nothing;
    }
    let rules = entry["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut left = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        match without(rule, product) {
            Ok(rules) => left.extend(rules),
            Err(field) => return Left::Wildcard(index, field),
        }
    }
    if left == rules {
        Left::All
    } else if left.is_empty() {
        Left::Nothing
    } else {
        let mut entry = entry.clone();
        entry["rules"] = left.into();
        Left::Some(entry)
    }
}

/// What is left of a rule. Groups and resources of a rule multiply, so one may become two: the other groups with all
/// resources, and our group with the other resources.
fn without(rule: &Value, product: &Product) -> Result<Vec<Value>, &'static str> {
    let ours = product.group;
    let is_wild = |text: &str| text == "*" || text.starts_with("*/");
    let is_it = |text: &str| text.split('/').next().is_some_and(|name| product.resources.contains(&name));
    let groups: Vec<&str> = texts(&rule["apiGroups"]).collect();
    let resources: Vec<&str> = texts(&rule["resources"]).collect();
    let concerns = groups.iter().any(|group| *group == ours || *group == "*")
        && resources.iter().any(|resource| is_it(resource) || is_wild(resource));
    if !concerns {
        return Ok(vec![rule.clone()]);
    }
    if resources.iter().any(|resource| is_wild(resource)) {
        return Err("resources");
    }
    if groups.contains(&"*") {
        return Err("apiGroups");
    }
    let others: Vec<&str> = groups.iter().copied().filter(|group| *group != ours).collect();
    let rest: Vec<&str> = resources.iter().copied().filter(|resource| !is_it(resource)).collect();
    let mut left = Vec::new();
    if !others.is_empty() {
        let mut rule = rule.clone();
        rule["apiGroups"] = json!(others);
        left.push(rule);
    }
    if !rest.is_empty() {
        let mut rule = rule.clone();
        rule["apiGroups"] = json!([ours]);
        rule["resources"] = json!(rest);
        left.push(rule);
    }
    Ok(left)
}

fn wildcard(object: &str, field: String, product: &Product) -> Refusal {
    let (taken, group) = (product.resources.join(", "), product.group);
    Refusal {
        object: object.to_owned(),
        field,
        problem: format!("is a wildcard that covers {taken} of {group}, and one kind cannot be taken out of it"),
        remedy: format!("list what the webhook is for, without {taken} of {group}, and run this again"),
    }
}

#[cfg(test)]
mod tests {
    use dapple_api::daemonset::GROUP;

    use super::*;

    fn rule(groups: Value, resources: Value) -> Value {
        json!({"apiGroups": groups, "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": resources})
    }

    fn entry(name: &str, rules: Value) -> Value {
        let service = json!({"namespace": "kruise-system", "name": "kruise-webhook-service"});
        json!({"name": name, "clientConfig": {"service": service, "caBundle": "x"}, "failurePolicy": "Ignore", "rules": rules})
    }

    fn configuration(name: &str, webhooks: Value) -> Value {
        json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": name, "resourceVersion": "7"}, "webhooks": webhooks})
    }

    fn theirs(webhooks: Value) -> Looked {
        look(&configuration("kruise-mutating", webhooks), &Product::default())
    }

    #[test]
    fn an_entry_that_is_for_daemonsets_alone_goes() {
        let clone = entry("mcloneset", json!([rule(json!([GROUP]), json!(["clonesets"]))]));
        let looked = theirs(json!([
            clone,
            entry("mdaemonset", json!([rule(json!([GROUP]), json!(["daemonsets", "daemonsets/status"]))])),
            entry("native", json!([rule(json!(["apps"]), json!(["daemonsets"]))])),
        ]));
        let edited = looked.edited.unwrap();
        assert_eq!(edited.steps, ["remove mdaemonset from MutatingWebhookConfiguration kruise-mutating"]);
        assert_eq!(edited.object["webhooks"].as_array().unwrap().len(), 2);
        assert_eq!(edited.object["webhooks"][0], clone, "others are as they were");
        assert_eq!(edited.object["metadata"]["resourceVersion"], "7");
        assert!(looked.refusals.is_empty() && looked.notes.is_empty());
        assert_eq!(look(&edited.object, &Product::default()), Looked::default(), "a second run changes nothing");
    }

    #[test]
    fn an_entry_that_is_for_more_keeps_the_rest() {
        for (rules, left) in [
            (
                json!([rule(json!([GROUP]), json!(["clonesets", "daemonsets"]))]),
                json!([rule(json!([GROUP]), json!(["clonesets"]))]),
            ),
            (
                json!([rule(json!(["apps"]), json!(["daemonsets"])), rule(json!([GROUP]), json!(["daemonsets"]))]),
                json!([rule(json!(["apps"]), json!(["daemonsets"]))]),
            ),
            // Groups and resources multiply: Kubernetes' own DaemonSets stay, and so do CloneSets.
            (
                json!([rule(json!(["apps", GROUP]), json!(["daemonsets", "clonesets"]))]),
                json!([
                    rule(json!(["apps"]), json!(["daemonsets", "clonesets"])),
                    rule(json!([GROUP]), json!(["clonesets"]))
                ]),
            ),
            (
                json!([rule(json!(["apps", GROUP]), json!(["daemonsets"]))]),
                json!([rule(json!(["apps"]), json!(["daemonsets"]))]),
            ),
        ] {
            let edited = theirs(json!([entry("all", rules.clone())])).edited.unwrap();
            assert_eq!(edited.object["webhooks"], json!([entry("all", left)]), "{rules}");
            assert!(edited.steps[0].starts_with("take daemonsets out of all of"), "{:?}", edited.steps);
        }
    }

    #[test]
    fn a_wildcard_is_refused_with_its_place() {
        for (groups, resources, field) in [
            (json!([GROUP]), json!(["*"]), "resources"),
            (json!(["*"]), json!(["*/*"]), "resources"),
            (json!([GROUP]), json!(["*/status"]), "resources"),
            (json!(["*"]), json!(["daemonsets"]), "apiGroups"),
        ] {
            let other = rule(json!([""]), json!(["nodes"]));
            let looked = theirs(json!([entry("all", json!([other, rule(groups, resources)]))]));
            assert_eq!(looked.edited, None);
            assert_eq!(looked.refusals.len(), 1);
            assert_eq!(looked.refusals[0].field, format!("webhooks[0].rules[1].{field}"));
        }
        assert_eq!(theirs(json!([entry("all", json!([rule(json!(["apps"]), json!(["*"]))]))])), Looked::default());
    }

    #[test]
    fn what_others_look_at_stays() {
        let rules = json!([rule(json!(["*"]), json!(["*"])), rule(json!([GROUP]), json!(["daemonsets"]))]);
        let mut policy = entry("policy", rules);
        policy["clientConfig"]["service"] = json!({"namespace": "gatekeeper", "name": "gatekeeper"});
        let looked = look(&configuration("gatekeeper", json!([policy])), &Product::default());
        assert_eq!((looked.edited, looked.refusals), (None, Vec::new()));
        assert!(looked.notes[0].contains("another product's"), "{:?}", looked.notes);
    }

    #[test]
    fn our_own_are_none_of_the_others() {
        let mut own =
            configuration("dapple-validator", json!([entry("d", json!([rule(json!([GROUP]), json!(["*"]))]))]));
        own["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "dapple"});
        assert_eq!(look(&own, &Product::default()), Looked::default());
    }

    #[test]
    fn webhooks_of_pods_stay_and_are_mentioned() {
        let mut hook = entry("mpod", json!([rule(json!([""]), json!(["pods", "pods/eviction"]))]));
        let note = |hook: &Value| theirs(json!([hook])).notes.join("");
        assert!(note(&hook).ends_with("mpod concerns pods and is left alone"), "{}", note(&hook));
        if let Some(fields) = hook.as_object_mut() {
            fields.remove("failurePolicy");
        }
        assert!(note(&hook).contains("refuses to create, update pods"), "{}", note(&hook));
    }

    #[test]
    fn what_openkruise_would_bring_back_goes_too() {
        let keep = entry("mcloneset", json!([rule(json!([GROUP]), json!(["clonesets"]))]));
        let gone = entry("mdaemonset", json!([rule(json!([GROUP]), json!(["daemonsets"]))]));
        let mut before = configuration("kruise-mutating", json!([keep]));
        before["metadata"]["annotations"] = json!({"template": json!([keep, gone]).to_string()});
        let edited = look(&before, &Product::default()).edited.unwrap();
        let template: Value =
            serde_json::from_str(edited.object["metadata"]["annotations"]["template"].as_str().unwrap()).unwrap();
        assert_eq!(template, json!([keep]));
        assert_eq!(edited.object["webhooks"], json!([keep]));
        assert_eq!(look(&edited.object, &Product::default()), Looked::default());
        before["metadata"]["annotations"]["template"] = "no list".into();
        assert_eq!(look(&before, &Product::default()), Looked::default());
    }
}

//! Keeping pods on the nodes of a pool: required node affinity and tolerations, beside what the template asks for itself.

use serde_json::{Map, Value, json};

use crate::container::vacant_list;
use crate::edit::EditProblem;

/// Adds a node selector term that every pod must meet, and tolerations that it has not got yet.
///
/// The terms of an affinity are alternatives, so the new one is added to each of them: what the template asked for still
/// holds, and so does the pool.
pub(crate) fn place(template: &mut Value, term: Option<&Value>, tolerations: &[Value]) -> Result<(), EditProblem> {
    let spec = object_in(template, "spec")?;
    if let Some(term) = term {
        let affinity = object_at(spec, &["affinity", "nodeAffinity", REQUIRED])?;
        let terms = vacant_list(affinity, "nodeSelectorTerms")
            .as_array_mut()
            .ok_or(EditProblem::Shape { field: "nodeSelectorTerms", expected: "a list" })?;
        if terms.is_empty() {
            terms.push(json!({}));
        }
        for known in terms {
            let known = known
                .as_object_mut()
                .ok_or(EditProblem::Shape { field: "nodeSelectorTerms", expected: "a list of objects" })?;
            for field in ["matchExpressions", "matchFields"] {
                extend(known, field, term.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice))?;
            }
        }
    }
    extend(spec, "tolerations", tolerations)
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Appends the items that the list has not got.
fn extend(object: &mut Map<String, Value>, field: &'static str, items: &[Value]) -> Result<(), EditProblem> {
    if items.is_empty() {
        return Ok(());
    }
    let list = vacant_list(object, field).as_array_mut().ok_or(EditProblem::Shape { field, expected: "a list" })?;
    for item in items {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
    Ok(())
}

fn object_at<'a>(
    from: &'a mut Map<String, Value>,
    fields: &[&'static str],
) -> Result<&'a mut Map<String, Value>, EditProblem> {
    let Some((field, rest)) = fields.split_first() else { return Ok(from) };
    let next = from.entry(*field).or_insert(Value::Null);
    if next.is_null() {
        *next = json!({});
    }
    object_at(next.as_object_mut().ok_or(EditProblem::Shape { field, expected: "an object" })?, rest)
}

fn object_in<'a>(value: &'a mut Value, field: &'static str) -> Result<&'a mut Map<String, Value>, EditProblem> {
    value.get_mut(field).and_then(Value::as_object_mut).ok_or(EditProblem::Shape { field, expected: "an object" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(key: &str) -> Value {
        json!({"key": key, "operator": "Exists"})
    }

    #[test]
    fn every_alternative_keeps_what_it_asked_for() {
        let term = json!({"matchExpressions": [expression("pool")]});
        let mut template = json!({"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
            {"matchExpressions": [expression("a")]}, {"matchFields": [expression("metadata.name")]}]}}}}});
        place(&mut template, Some(&term), &[]).unwrap();
        let expected = json!([
            {"matchExpressions": [expression("a"), expression("pool")]},
            {"matchFields": [expression("metadata.name")], "matchExpressions": [expression("pool")]},
        ]);
        let placed = &template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        assert_eq!(*placed, expected);
        let again = template.clone();
        place(&mut template, Some(&term), &[]).unwrap();
        assert_eq!(template, again, "a second time changes nothing");
    }

    #[test]
    fn a_template_without_affinity_gets_one() {
        let mut template = json!({"spec": {}});
        let term = json!({"matchExpressions": [expression("pool")]});
        place(&mut template, Some(&term), &[expression("t")]).unwrap();
        let spec = &template["spec"];
        assert_eq!(spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"], json!([term]));
        assert_eq!(spec["tolerations"], json!([expression("t")]));
    }

    #[test]
    fn what_is_no_object_is_named() {
        let error = place(&mut json!({"spec": {"affinity": 7}}), Some(&json!({})), &[]).unwrap_err();
        assert_eq!(error.to_string(), "affinity must be an object");
    }
}

//! Judging a DaemonSet: what its own fields say, and what becomes of its template under each patch.

use dapple_api::daemonset::{DaemonSet, DaemonSetSpec, validate, validate_template};
use dapple_api::selector::Selector;
use dapple_api::verdict::{Reason, Verdict};
use serde_json::Value;

use super::patches;
use crate::check::{Mistake, check_patch, refuse_identity};
use crate::document::Document;
use crate::render::render_unnamed;
use dapple_api::reading::read;

/// Everything that is to be said of a DaemonSet of v1beta1 without a cluster. Fields that are not known are no mistakes
/// here: they may be newer than this table, and the API server knows.
pub fn judge(object: &Value, old: Option<&Value>) -> Verdict {
    match read::<DaemonSet>(object) {
        Ok(set) => {
            let old = old.and_then(|old| read(old).ok());
            judge_set(&set, old.as_ref(), |place| judge_patch(&set.spec, place))
        }
        Err(error) => error.into(),
    }
}

/// As [`judge`], of one that has been read. `judge_patch` says what [`judge_patch`] says of the patch at a place.
pub fn judge_set(set: &DaemonSet, old: Option<&DaemonSet>, judge_patch: impl FnMut(usize) -> Verdict) -> Verdict {
    let mut verdict = validate(set, old);
    (0..set.spec.patches.len()).map(judge_patch).for_each(|of_patch| verdict.extend(of_patch));
    verdict
}

/// What is to be said of the patch at a place, and of what it makes of the template. It follows from its place, the patch
/// with its selector, and the template with the set's selector alone, so it can be remembered with them.
pub fn judge_patch(spec: &DaemonSetSpec, place: usize) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(patch) = spec.patches.get(place) else { return verdict };
    let field = format!("spec.patches[{place}].patch");
    let found = check_patch(Document::PodTemplate, &patch.patch.0);
    let is_wrong = |mistake: &Mistake| !matches!(mistake, Mistake::UnknownField { .. });
    for finding in found.iter().filter(|finding| is_wrong(&finding.mistake)) {
        verdict.refuse(within(&field, &finding.path.to_string()), Reason::Invalid, finding.mistake.to_string());
    }
    refuse_identity(&patch.patch.0, &[], &field, &mut verdict);
    let (compiled, _) = patches("", std::slice::from_ref(patch));
    let [compiled] = compiled.as_slice() else { return verdict };
    if !verdict.is_ok() {
        return verdict;
    }
    match render_unnamed(Document::PodTemplate, &spec.template.0, &[&compiled.edit]) {
        Ok(template) => check_rendered(spec, &template, &field, &mut verdict),
        Err(error) => verdict.refuse(field, Reason::Invalid, error.problem.to_string()),
    }
    verdict
}

/// A field inside a patch.
fn within(field: &str, path: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{field}.{path}") }
}

/// What a patch may not make of the template. What is wrong with one that was wrong before is no fault of the patch.
fn check_rendered(spec: &DaemonSetSpec, template: &Value, field: &str, verdict: &mut Verdict) {
    let base = &spec.template.0;
    let selects = |labels: &Value, selector: &Selector| selector.matches(|key| labels[key].as_str());
    if let Ok(selector) = Selector::new(&spec.selector)
        && selects(&base["metadata"]["labels"], &selector)
        && !selects(&template["metadata"]["labels"], &selector)
    {
        let text = "a patch may not change labels that spec.selector selects on: its pods would not be known";
        verdict.refuse(format!("{field}.metadata.labels"), Reason::Forbidden, text);
    }
    let mut before = Verdict::default();
    validate_template(base, "", &mut before);
    if before.is_ok() {
        validate_template(template, field, verdict);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_newer_than_the_table_is_for_the_cluster_to_judge() {
        let (none, one, other) = (json!({}), json!({"next": {"a": 1}}), json!({"next": {"b": [2]}, "list": []}));
        for (of_template, of_patch) in [(&one, &none), (&none, &one), (&one, &other), (&other, &one)] {
            let (mut pods, mut patch) = (json!({"containers": [{"name": "c", "image": "c:1"}]}), json!({}));
            for (place, fields) in [(&mut pods, of_template), (&mut patch, of_patch)] {
                place["fieldOfNextYear"] = fields.clone();
                place["listOfNextYear"] = json!([fields]);
            }
            let object = json!({"metadata": {"name": "a"}, "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": pods},
                "patches": [{"selector": {}, "patch": {"spec": patch}}]}});
            assert_eq!(judge(&object, None), Verdict::default(), "{object}");
        }
    }
}

//! Whose fault it is: what the API server says of a rendered template, told of the DaemonSet.

use dapple_api::daemonset::DaemonSetSpec;

use super::patches;
use crate::blame::{Blame, within};
use crate::document::Document;
use crate::edit::Edit;
use crate::render::render;

/// The field of a DaemonSet that a field of a rendered template came from: of the patch that set it, or else of the
/// template. `applied` are the patches that made the rendering, by their place in `spec.patches`; `field` is as the API
/// server names it, such as `spec.containers[0].envv`.
pub fn blame(spec: &DaemonSetSpec, applied: &[usize], field: &str) -> String {
    let of_template = || {
        if field.is_empty() { "spec.template".to_owned() } else { format!("spec.template.{field}") }
    };
    let (compiled, _) = patches("", &spec.patches);
    let edits: Vec<&Edit> =
        compiled.iter().filter(|patch| applied.contains(&patch.place)).map(|patch| &patch.edit).collect();
    let Ok(rendering) = render(Document::PodTemplate, &spec.template.0, &edits) else { return of_template() };
    match crate::blame::blame(&rendering, field) {
        Blame::Edit { rule, path } => within(&format!("{rule}.patch"), &path),
        Blame::Base => of_template(),
        Blame::Nobody => match applied {
            [] => of_template(),
            [only] => format!("spec.patches[{only}].patch"),
            _ => format!("spec.patches{applied:?}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> DaemonSetSpec {
        serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [
                {"name": "side", "image": "s:1"}, {"name": "c", "image": "c:1", "portz": []}]}},
            "patches": [
                {"selector": {}, "patch": {"spec": {"containers": [{"name": "c", "envv": [{"name": "A"}]}]}}},
                {"selector": {}, "patch": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"gpu.x/y": 1}}}]}}},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn a_field_is_told_of_whoever_set_it() {
        for (applied, field, wanted) in [
            (&[][..], "spec.containers[1].portz", "spec.template.spec.containers[1].portz"),
            (&[0], "spec.containers[1].portz", "spec.template.spec.containers[1].portz"),
            (&[0], "spec.containers[1].envv", "spec.patches[0].patch.spec.containers[name=c].envv"),
            (&[0, 1], "spec.containers[1].envv", "spec.patches[0].patch.spec.containers[name=c].envv"),
            (&[0, 1], "spec.containers[1].resources.limits", "spec.patches[1].patch.spec.containers[name=c].resources"),
            (&[0, 1], "", "spec.patches[0, 1]"),
        ] {
            assert_eq!(blame(&spec(), applied, field), wanted, "{applied:?} {field}");
        }
    }
}

//! Whose fault it is: what the API server says of a rendered template, told of what the user wrote.

use dapple_api::daemonset::DaemonSetSpec;

use super::patches;
use crate::document::Document;
use crate::edit::Edit;
use crate::field::find;
use crate::path::Path;
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
    let together = || match applied {
        [] => of_template(),
        [only] => format!("spec.patches[{only}].patch"),
        _ => format!("spec.patches{applied:?}"),
    };
    // Something that is missing is the matter of whoever made what it is missing in.
    let mut wanted = field;
    let pointer = loop {
        if let Ok(pointer) = find(&rendering.document, wanted) {
            break pointer;
        }
        match wanted.rfind(['.', '[']) {
            Some(end) => wanted = &wanted[..end],
            None => return together(),
        }
    };
    let steps = pointer.split('/').count() - 1;
    let near = |path: &Path| {
        let found = path.pointer_in(&rendering.document)?;
        let is_it = found == pointer || found.starts_with(&format!("{pointer}/"));
        is_it.then(|| Path::of(&path.steps()[..steps.min(path.steps().len())]))
    };
    let above = |path: &Path| {
        let found = path.pointer_in(&rendering.document)?;
        pointer.starts_with(&format!("{found}/")).then(|| path.clone())
    };
    let by = |is_it: &dyn Fn(&Path) -> Option<Path>| {
        rendering.origins.iter().find_map(|origin| Some((origin.set_by.rule.clone(), is_it(&origin.path)?)))
    };
    match by(&near).or_else(|| by(&above)) {
        Some((rule, path)) => {
            let path = if path.steps().is_empty() { String::new() } else { format!(".{path}") };
            format!("{rule}.patch{path}")
        }
        None => of_template(),
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

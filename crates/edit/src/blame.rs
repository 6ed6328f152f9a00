//! Whose fault it is: what the API server says of a rendered document, told of what users wrote.

use crate::field::find;
use crate::path::Path;
use crate::render::Rendering;

/// Where a field of a rendered document came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blame {
    /// An edit set it.
    Edit {
        /// The rule of the edit.
        rule: String,
        /// The field, as far as the edit says it.
        path: Path,
    },
    /// It is as in the base.
    Base,
    /// There is nothing of it in the document.
    Nobody,
}

/// Where a field came from, such as `spec.containers[0].envv`. Something that is missing is the matter of whoever made what
/// it is missing in.
pub fn blame(rendering: &Rendering, field: &str) -> Blame {
    let mut wanted = field;
    let pointer = loop {
        if let Ok(pointer) = find(&rendering.document, wanted) {
            break pointer;
        }
        match wanted.rfind(['.', '[']) {
            Some(end) => wanted = &wanted[..end],
            None => return Blame::Nobody,
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
    by(&near).or_else(|| by(&above)).map_or(Blame::Base, |(rule, path)| Blame::Edit { rule, path })
}

/// A field inside another.
pub fn within(field: &str, path: &Path) -> String {
    if path.steps().is_empty() { field.to_owned() } else { format!("{field}.{path}") }
}

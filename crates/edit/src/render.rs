//! Rendering: a base document and edits in order give a document, and say of every field that differs who set it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use crate::compact::{self, Form};
use crate::document::Document;
use crate::edit::{Edit, EditError, Source, Warning};
use crate::leaves::{Place, differences};
use crate::path::Path;
use crate::references::References;

/// A rendered document: a pod template, or a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendering {
    /// The document.
    pub document: Value,
    /// Names the rendering: equal documents have equal hashes, on every machine and in every version of dapple.
    pub hash: String,
    /// Every field that differs from the base, by path, with who set it.
    pub origins: Vec<Origin>,
    /// Fields that edits changed and later ones changed back: they are as in the base, and rules fought over them.
    pub undone: Vec<Origin>,
    /// What is probably not meant.
    pub warnings: Vec<Warning>,
}

/// Where a field's value came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// The field.
    pub path: Path,
    /// What the base has there, if anything. For the order of a list, the keys of its items.
    pub before: Option<Value>,
    /// What the document has there now, if anything.
    pub after: Option<Value>,
    /// Who set it.
    pub set_by: Source,
    /// Who changed it before and still has a part in it: both added to a list, or each set a part of an image.
    pub built_on: Vec<Source>,
    /// Who set it before, with what, and was overruled: without them it would be the same. In the order of application.
    pub overruled: Vec<(Source, Option<Value>)>,
}

/// Applies the edits in order. The first that does not apply fails the whole: half a rendering is none.
pub fn render(kind: Document, base: &Value, edits: &[&Edit]) -> Result<Rendering, EditError> {
    let mut document = base.clone();
    let mut histories: BTreeMap<Place, Vec<Step>> = BTreeMap::new();
    let (mut warnings, mut last_changes) = (Vec::new(), Vec::new());
    let mut references = References::default();
    for (number, edit) in edits.iter().enumerate() {
        // Before the first edit, the base is what was there: no copy is needed.
        let copy = (number > 0).then(|| document.clone());
        warnings.extend(edit.apply(kind, &mut document, &mut references)?);
        last_changes = differences(copy.as_ref().unwrap_or(base), &document, kind.shape());
        // An edit alone set all that differs: nothing need be remembered.
        let remembered = if edits.len() > 1 { last_changes.as_slice() } else { &[] };
        for (place, before, value) in remembered {
            let step = Step { number, before: before.clone(), value: value.clone() };
            histories.entry(place.clone()).or_default().push(step);
        }
    }
    references.check(kind, &mut document)?;
    // What differs in the end is told by comparing the ends; the steps only say who did it.
    let changes = if edits.len() > 1 { differences(base, &document, kind.shape()) } else { last_changes };
    let mut judge = Judge { kind, base, edits, without: BTreeMap::new() };
    let (mut origins, mut told) = (Vec::new(), BTreeSet::new());
    for (place, before, after) in changes {
        let (number, earlier) = steps_of(&place, &histories).unwrap_or_default();
        origins.push(judge.origin(place.path(), (before, after), number, earlier));
        if !histories.is_empty() {
            told.insert(place);
        }
    }
    // Places that were changed and are as they were: two edits at least had to do with each.
    let rest = histories.iter().filter(|(place, steps)| steps.len() > 1 && !told.contains(place));
    let undone = rest.filter_map(|(place, steps)| {
        let (last, earlier) = steps.split_last()?;
        let is_as_before = last.value == earlier.first()?.before;
        is_as_before.then(|| judge.origin(place.path(), (last.value.clone(), last.value.clone()), last.number, earlier))
    });
    let undone = undone.collect();
    origins.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Rendering { hash: hash(&document), document, origins, undone, warnings })
}

/// One edit's doing at one place.
struct Step {
    number: usize,
    before: Option<Value>,
    value: Option<Value>,
}

/// The number of the last edit that changed a place, and what was done before. Nothing is remembered of one edit alone.
fn steps_of<'a>(place: &Place, histories: &'a BTreeMap<Place, Vec<Step>>) -> Option<(usize, &'a [Step])> {
    if let Some((last, earlier)) = histories.get(place).and_then(|steps| steps.split_last()) {
        return Some((last.number, earlier));
    }
    // An order that no single edit changed: one took an item out and another put it back elsewhere. Or a list whose items
    // could not be told apart for a while. The last that touched the list did it.
    let is_near = |known: &Path| known.is_below(place.path()) || place.path().is_below(known);
    let near = histories.iter().filter(|(known, _)| is_near(known.path()));
    let last = near.filter_map(|(_, steps)| steps.last()).max_by_key(|step| step.number)?;
    Some((last.number, &[]))
}

/// Tells whether an edit still has a part in a field: by leaving it out and looking what becomes of the field.
struct Judge<'a> {
    kind: Document,
    base: &'a Value,
    edits: &'a [&'a Edit],
    /// Documents without one edit; nothing where the others do not apply without it.
    without: BTreeMap<usize, Option<Value>>,
}

impl Judge<'_> {
    fn origin(
        &mut self,
        path: &Path,
        (before, after): (Option<Value>, Option<Value>),
        last: usize,
        earlier: &[Step],
    ) -> Origin {
        let (mut built_on, mut overruled) = (Vec::new(), Vec::new());
        for step in earlier {
            let source = self.edits[step.number].source.clone();
            if self.has_a_part(step.number, path, after.as_ref()) {
                built_on.push(source);
            } else {
                overruled.push((source, step.value.clone()));
            }
        }
        let set_by = self.edits[last].source.clone();
        Origin { path: path.clone(), before, after, set_by, built_on, overruled }
    }

    fn has_a_part(&mut self, number: usize, path: &Path, after: Option<&Value>) -> bool {
        let (kind, base, edits) = (self.kind, self.base, self.edits);
        let document = self.without.entry(number).or_insert_with(|| {
            let others: Vec<&Edit> =
                edits.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, edit)| *edit).collect();
            render_unnamed(kind, base, &others).ok()
        });
        let Some(document) = document else { return true };
        let found = path.pointer_in(document).and_then(|pointer| document.pointer(&pointer));
        found != after
    }
}

/// Applies the edits in order, without saying who set what: the document and its hash.
pub fn render_plain(kind: Document, base: &Value, edits: &[&Edit]) -> Result<(Value, String), EditError> {
    let document = render_unnamed(kind, base, edits)?;
    let hash = hash(&document);
    Ok((document, hash))
}

/// As [`render_plain`], where nobody asks for the hash: it takes longer than the rest.
pub fn render_unnamed(kind: Document, base: &Value, edits: &[&Edit]) -> Result<Value, EditError> {
    render_warned(kind, base, edits).map(|(document, _)| document)
}

/// As [`render_unnamed`], with what is probably not meant.
pub fn render_warned(kind: Document, base: &Value, edits: &[&Edit]) -> Result<(Value, Vec<Warning>), EditError> {
    let mut document = base.clone();
    let (mut references, mut warnings) = (References::default(), Vec::new());
    for edit in edits {
        warnings.extend(edit.apply(kind, &mut document, &mut references)?);
    }
    references.check(kind, &mut document)?;
    Ok((document, warnings))
}

/// The name of a document: the first 16 digits of the SHA-256 of its canonical JSON.
pub fn hash(document: &Value) -> String {
    let digest = Sha256::digest(canonical(document).as_bytes());
    let mut text = String::with_capacity(16);
    for byte in digest.iter().take(8) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// JSON without spaces, keys sorted, whatever the order in memory is.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    compact::write::<Canonical>(&mut text, value);
    text
}

/// As JSON itself asks for, and no more.
struct Canonical;

impl Form for Canonical {
    /// Most texts have nothing to escape, and are copied.
    fn write_text(out: &mut String, text: &str) {
        if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
            out.push('"');
            out.push_str(text);
            out.push('"');
        } else {
            let _ = write!(out, "{}", Value::from(text));
        }
    }

    fn write_number(out: &mut String, number: &Number) {
        let _ = write!(out, "{number}");
    }
}

/// A field that differs between two documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The field.
    pub path: Path,
    /// What the one has there, if anything. For the order of a list, the keys of its items.
    pub before: Option<Value>,
    /// What the other has there, if anything.
    pub after: Option<Value>,
}

/// Every field that differs between two documents of a kind, by path.
pub fn changes(kind: Document, before: &Value, after: &Value) -> Vec<Changed> {
    let places = differences(before, after, kind.shape()).into_iter();
    let mut changes: Vec<Changed> =
        places.map(|(place, before, after)| Changed { path: place.path().clone(), before, after }).collect();
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes
}

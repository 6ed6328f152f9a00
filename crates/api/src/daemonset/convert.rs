//! Conversion between the versions of DaemonSet, without loss in either direction.
//!
//! | v1alpha1 | v1beta1 |
//! |---|---|
//! | annotation `daemonset.kruise.io/progressive-create-pod: "true"` | `spec.scaleStrategy.partitionedScaling: true` |
//! | `rollingUpdateType: Surging` | `Standard` with `maxSurge` (1 if absent or 0) and `maxUnavailable: 0` |
//! | `status.daemonSetHash` | `status.updateRevision` |
//! | – | `spec.patches`, and forms of `scaleStrategy` that mean the same |
//!
//! What one version cannot say, an object of that version remembers in an annotation that is named after the other
//! version: it is made where the object is converted, and used up where it is converted back. An annotation and not
//! a field, since clients of the old version are programs that drop fields they do not know. What somebody changed in
//! the meantime wins over what is remembered.
//!
//! Everything else passes untouched, as JSON, whether our types know it or not. Null is as good as absent and stays
//! where it is; only of a map of annotations that ends up empty nothing is left.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::defaults::is_zero;
use super::v1alpha1::PROGRESSIVE_CREATE_ANNOTATION;
use super::{DaemonSetPatch, MAX_PATCHES, v1alpha1, v1beta1};

/// Annotation of a v1alpha1 object: what v1alpha1 cannot say of it, as JSON.
pub const V1BETA1_ANNOTATION: &str = "dapple.dev/v1beta1";

/// Annotation of a v1beta1 object: what v1beta1 cannot say of it, as JSON.
pub const V1ALPHA1_ANNOTATION: &str = "dapple.dev/v1alpha1";

/// The fields of a rolling update that `Surging` concerns.
const SURGING_FIELDS: [&str; 3] = ["rollingUpdateType", "maxSurge", "maxUnavailable"];

/// How a memory is written that holds nothing.
const NOTHING: &str = "{}";

/// How much of a text an error shows.
const SHOWN_CHARACTERS: usize = 200;

type Fields = Map<String, Value>;

/// Why an object cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversionError {
    /// Not a version that can be converted from, or to.
    #[error("{field} is {found}: use apps.kruise.io/v1beta1 or apps.kruise.io/v1alpha1")]
    Version {
        /// `apiVersion` of the object, or `desiredAPIVersion` of the request.
        field: &'static str,
        /// What it is.
        found: String,
    },
    /// Not a DaemonSet.
    #[error("kind is {found}: only a DaemonSet can be converted")]
    Kind {
        /// What it is.
        found: String,
    },
    /// A field that conversion looks into is not an object.
    #[error("{field} is {found}: make it an object")]
    Type {
        /// The field; `object` for the whole.
        field: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A v1alpha1 object with a field that only v1beta1 has.
    #[error("{field} is no field of v1alpha1: {remedy}")]
    OnlyInV1beta1 {
        /// The field.
        field: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// What a v1alpha1 object remembers of v1beta1 was changed by somebody, or is of a newer dapple.
    #[error(
        "metadata.annotations[{V1BETA1_ANNOTATION:?}] cannot be used: {problem}; put it back as it was read, or edit the \
         object as apps.kruise.io/v1beta1, or remove the annotation to give up the patches in it"
    )]
    Remembered {
        /// What is wrong with it.
        problem: String,
    },
}

/// What v1alpha1 cannot say, in [`V1BETA1_ANNOTATION`].
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfV1beta1 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patches: Option<Value>,
    /// Only where it has another form than what the annotation alone would be read as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale_strategy: Option<Fields>,
    /// Annotations that have another value in v1beta1. Null stands for none.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    annotations: Fields,
}

/// What v1beta1 cannot say, in [`V1ALPHA1_ANNOTATION`].
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfV1alpha1 {
    /// Those of [`SURGING_FIELDS`] that were there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rolling_update: Option<Fields>,
    /// What [`V1ALPHA1_ANNOTATION`] was in v1alpha1, where it means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotation: Option<Value>,
}

/// Converts a DaemonSet to the version `desired`, such as `apps.kruise.io/v1alpha1`. An object that has it already
/// stays as it is. Changes of metadata are to annotations only, as the API server demands of a conversion webhook.
pub fn convert(object: Value, desired: &str) -> Result<Value, ConversionError> {
    let mut object = match object {
        Value::Object(fields) => fields,
        other => return Err(wrong_type("object", &other)),
    };
    let kind = object.get("kind");
    if kind.is_none_or(|kind| *kind != *v1beta1::DaemonSet::kind(&())) {
        return Err(ConversionError::Kind { found: shown(kind) });
    }
    let is_beta = |field, version: Option<&Value>| match version.and_then(Value::as_str) {
        Some(text) if text == v1beta1::DaemonSet::api_version(&()) => Ok(true),
        Some(text) if text == v1alpha1::DaemonSet::api_version(&()) => Ok(false),
        _ => Err(ConversionError::Version { field, found: shown(version) }),
    };
    let (from_beta, desired) = (is_beta("apiVersion", object.get("apiVersion"))?, Value::from(desired));
    match (from_beta, is_beta("desiredAPIVersion", Some(&desired))?) {
        (true, false) => to_v1alpha1(&mut object)?,
        (false, true) => to_v1beta1(&mut object)?,
        _ => {}
    }
    object.insert("apiVersion".into(), desired);
    Ok(object.into())
}

fn to_v1alpha1(object: &mut Fields) -> Result<(), ConversionError> {
    let mut annotations = annotations_of(object)?;
    let mut memory = OfV1beta1::default();
    let mut update = None;
    if let Some(spec) = object_in(object, "spec", "spec")? {
        memory.patches = take(spec, "patches");
        memory.scale_strategy = object_in(spec, "scaleStrategy", "spec.scaleStrategy")?.cloned();
        take(spec, "scaleStrategy");
        update = rolling_update(spec)?;
    }
    let annotation_of_v1alpha1 = restore_surging(update, &mut annotations);
    scaling_to_annotation(&mut annotations, &mut memory);
    // Out of date, or copied here by somebody: they mean nothing in v1beta1, but would in v1alpha1.
    for name in [V1ALPHA1_ANNOTATION, V1BETA1_ANNOTATION] {
        if let Some(value) = annotations.remove(name) {
            memory.annotations.insert(name.into(), value);
        }
    }
    remember(&memory, V1BETA1_ANNOTATION, &mut annotations)?;
    annotations.extend(annotation_of_v1alpha1.map(|value| (V1ALPHA1_ANNOTATION.into(), value)));
    set_annotations(object, annotations)?;
    swap_revision(object)
}

fn to_v1beta1(object: &mut Fields) -> Result<(), ConversionError> {
    let mut annotations = annotations_of(object)?;
    let mut memory = remembered(annotations.remove(V1BETA1_ANNOTATION))?;
    let mut lost = OfV1alpha1 { annotation: annotations.remove(V1ALPHA1_ANNOTATION), ..OfV1alpha1::default() };
    if let Some(spec) = object_in(object, "spec", "spec")? {
        refuse_v1beta1_fields(spec)?;
        lost.rolling_update = rolling_update(spec)?.and_then(replace_surging);
    }
    scaling_from_annotation(&mut annotations, &mut memory);
    for (field, value) in [("patches", memory.patches), ("scaleStrategy", memory.scale_strategy.map(Value::Object))] {
        if let Some(value) = value {
            // An object or null, as was seen above.
            object.entry("spec").or_insert(Value::Null)[field] = value;
        }
    }
    annotations.extend(memory.annotations.into_iter().filter(|(_, value)| !value.is_null()));
    remember(&lost, V1ALPHA1_ANNOTATION, &mut annotations)?;
    set_annotations(object, annotations)?;
    swap_revision(object)
}

/// Refuses fields that only v1beta1 has. The API server prunes them, so they come from elsewhere, and whether they or
/// the annotations should count, nobody can tell.
fn refuse_v1beta1_fields(spec: &Fields) -> Result<(), ConversionError> {
    let is_set = |field| spec.get(field).is_some_and(|value| !value.is_null());
    if is_set("patches") {
        let remedy = "write the object as apps.kruise.io/v1beta1";
        return Err(ConversionError::OnlyInV1beta1 { field: "spec.patches", remedy });
    }
    if is_set("scaleStrategy") {
        let remedy = "use the annotation daemonset.kruise.io/progressive-create-pod, or apps.kruise.io/v1beta1";
        return Err(ConversionError::OnlyInV1beta1 { field: "spec.scaleStrategy", remedy });
    }
    Ok(())
}

/// Makes the annotation say what `scaleStrategy` says, and forgets of the latter what the annotation says as well.
fn scaling_to_annotation(annotations: &mut Fields, memory: &mut OfV1beta1) {
    let partitioned = is_partitioned(memory.scale_strategy.as_ref());
    if is_progressive(annotations) != partitioned {
        let before = if partitioned {
            annotations.insert(PROGRESSIVE_CREATE_ANNOTATION.into(), "true".into())
        } else {
            annotations.remove(PROGRESSIVE_CREATE_ANNOTATION)
        };
        memory.annotations.insert(PROGRESSIVE_CREATE_ANNOTATION.into(), before.unwrap_or_default());
    }
    memory.scale_strategy.take_if(|strategy| partitioned && strategy.len() == 1);
}

/// Makes `scaleStrategy` say what the annotation says. The annotation gets its old value, unless it was edited.
fn scaling_from_annotation(annotations: &mut Fields, memory: &mut OfV1beta1) {
    let progressive = is_progressive(annotations);
    if is_partitioned(memory.scale_strategy.as_ref()) != progressive {
        let strategy = memory.scale_strategy.get_or_insert_default();
        strategy.insert("partitionedScaling".into(), progressive.into());
    }
    let Some(before) = memory.annotations.remove(PROGRESSIVE_CREATE_ANNOTATION) else { return };
    // It was removed where it said "true", else set to "true".
    let was_removed = before == "true";
    let unedited = if was_removed { !annotations.contains_key(PROGRESSIVE_CREATE_ANNOTATION) } else { progressive };
    if unedited {
        annotations.remove(PROGRESSIVE_CREATE_ANNOTATION);
        memory.annotations.insert(PROGRESSIVE_CREATE_ANNOTATION.into(), before);
    }
}

/// Whether creation is held back by the partition too, in v1beta1.
fn is_partitioned(scale_strategy: Option<&Fields>) -> bool {
    scale_strategy.and_then(|strategy| strategy.get("partitionedScaling")) == Some(&Value::Bool(true))
}

/// The same in v1alpha1. As in OpenKruise, only `"true"` is true.
fn is_progressive(annotations: &Fields) -> bool {
    annotations.get(PROGRESSIVE_CREATE_ANNOTATION).is_some_and(|value| value == "true")
}

/// Makes a surging update a standard one. Returns the fields that it had before.
fn replace_surging(update: &mut Fields) -> Option<Fields> {
    if !is_surging(update) {
        return None;
    }
    let present = |name: &str| Some((name.to_owned(), update.get(name)?.clone()));
    let before: Fields = SURGING_FIELDS.into_iter().filter_map(present).collect();
    update.extend(standard(&before));
    Some(before)
}

/// Makes a standard update the surging one that it was, and returns what the annotation was then. If somebody changed
/// the update since, it stays as it is, and so does the annotation.
fn restore_surging(update: Option<&mut Fields>, annotations: &mut Fields) -> Option<Value> {
    let text = annotations.get(V1ALPHA1_ANNOTATION)?.as_str()?;
    // One that is broken must not fail the conversion, and with it every list in v1alpha1.
    let memory: OfV1alpha1 = serde_json::from_str(text).ok()?;
    // Not as we would write it, so not ours: it could not be made again.
    if text == NOTHING || serde_json::to_string(&memory).ok()? != text {
        return None;
    }
    if let Some(before) = memory.rolling_update {
        let is_known = |name: &String| SURGING_FIELDS.contains(&name.as_str());
        let is_result = |update: &Fields| standard(&before).iter().all(|(name, value)| update.get(name) == Some(value));
        match update {
            Some(update) if is_surging(&before) && before.keys().all(is_known) && is_result(update) => {
                update.retain(|name, _| !is_known(name));
                update.extend(before);
            }
            _ => return None,
        }
    }
    annotations.remove(V1ALPHA1_ANNOTATION);
    memory.annotation
}

fn is_surging(update: &Fields) -> bool {
    update.get("rollingUpdateType").is_some_and(|kind| kind == "Surging")
}

/// What a surging update is in v1beta1. Surging at 0 pods at once would never end; nothing ever becomes unavailable.
fn standard(surging: &Fields) -> Fields {
    let counts = |value: &&Value| IntOrString::deserialize(*value).is_ok_and(|count| !is_zero(&count));
    let max_surge = surging.get("maxSurge").filter(counts).cloned().unwrap_or(json!(1));
    let values = ["Standard".into(), max_surge, json!(0)];
    SURGING_FIELDS.into_iter().map(str::to_owned).zip(values).collect()
}

/// The newest revision has one name here and another there. Exchanged, so that a field which only happens to have the
/// name is not overwritten.
fn swap_revision(object: &mut Fields) -> Result<(), ConversionError> {
    let Some(status) = object_in(object, "status", "status")? else { return Ok(()) };
    let names = ["daemonSetHash", "updateRevision"];
    let values = names.map(|name| status.remove(name));
    for (name, value) in names.into_iter().rev().zip(values) {
        status.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(())
}

/// Writes a memory into an annotation, if it holds anything.
fn remember(memory: &impl Serialize, name: &str, annotations: &mut Fields) -> Result<(), ConversionError> {
    let text = serde_json::to_string(memory).map_err(unusable)?;
    if text != NOTHING {
        annotations.insert(name.into(), text.into());
    }
    Ok(())
}

/// Reads what a v1alpha1 object remembers. Whoever edits that is stopped here: the API server checks what is written as
/// v1alpha1 by the schema of v1alpha1 only, and nobody could read a DaemonSet with broken patches.
fn remembered(annotation: Option<Value>) -> Result<OfV1beta1, ConversionError> {
    let text = match annotation {
        None => return Ok(OfV1beta1::default()),
        Some(Value::String(text)) => text,
        Some(other) => return Err(unusable(format_args!("it is {}, not a string", type_of(&other)))),
    };
    // First as objects: serde would read lists as the types too, field after field.
    let fields: Fields = serde_json::from_str(&text).map_err(unusable)?;
    let memory = OfV1beta1::deserialize(Value::Object(fields)).map_err(unusable)?;
    if let Some(patches) = &memory.patches {
        let objects = serde_path_to_error::deserialize(patches).map(|_: Vec<Fields>| ());
        let read =
            objects.and_then(|()| serde_path_to_error::deserialize(patches).map(|all: Vec<DaemonSetPatch>| all.len()));
        let count = read.map_err(|error| unusable(format_args!("patches: {error}")))?;
        if count > MAX_PATCHES {
            return Err(unusable(format_args!("patches: there are {count}, and at most {MAX_PATCHES} may be")));
        }
    }
    let known = [PROGRESSIVE_CREATE_ANNOTATION, V1ALPHA1_ANNOTATION, V1BETA1_ANNOTATION];
    match memory.annotations.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(unusable(format_args!("the annotation {name:?} does not belong there"))),
        None => Ok(memory),
    }
}

fn unusable(problem: impl ToString) -> ConversionError {
    ConversionError::Remembered { problem: problem.to_string().chars().take(SHOWN_CHARACTERS).collect() }
}

fn rolling_update(spec: &mut Fields) -> Result<Option<&mut Fields>, ConversionError> {
    match object_in(spec, "updateStrategy", "spec.updateStrategy")? {
        Some(strategy) => object_in(strategy, "rollingUpdate", "spec.updateStrategy.rollingUpdate"),
        None => Ok(None),
    }
}

fn metadata_of(object: &mut Fields) -> Result<&mut Fields, ConversionError> {
    let missing = ConversionError::Type { field: "metadata", found: "missing" };
    object_in(object, "metadata", "metadata")?.ok_or(missing)
}

fn annotations_of(object: &mut Fields) -> Result<Fields, ConversionError> {
    let annotations = object_in(metadata_of(object)?, "annotations", "metadata.annotations")?;
    Ok(annotations.cloned().unwrap_or_default())
}

fn set_annotations(object: &mut Fields, annotations: Fields) -> Result<(), ConversionError> {
    if annotations_of(object)? == annotations {
        return Ok(());
    }
    let metadata = metadata_of(object)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    } else {
        metadata.insert("annotations".into(), annotations.into());
    }
    Ok(())
}

/// Takes a field out, unless it is null.
fn take(fields: &mut Fields, name: &str) -> Option<Value> {
    if fields.get(name)?.is_null() { None } else { fields.remove(name) }
}

/// The object in a field; none if the field is absent or null.
fn object_in<'a>(
    fields: &'a mut Fields,
    name: &str,
    path: &'static str,
) -> Result<Option<&'a mut Fields>, ConversionError> {
    match fields.get_mut(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(other) => Err(wrong_type(path, other)),
    }
}

fn wrong_type(field: &'static str, found: &Value) -> ConversionError {
    ConversionError::Type { field, found: type_of(found) }
}

/// How an error shows a value.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "missing".into(),
        Some(Value::String(text)) => format!("{:?}", text.chars().take(SHOWN_CHARACTERS).collect::<String>()),
        Some(other) => type_of(other).into(),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

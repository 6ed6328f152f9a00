//! The changes by which people steer the rollout of an application.

use dapple_api::pool::{
    ROLLOUT_RESUMED, SUSPEND_ANNOTATION, TemplateType, WorkloadTemplate, YurtAppConfigurationReplacement,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::object::{ApplicationObject, annotation_of};
use super::said::Said;
use super::stored::RESTARTED_AT;

/// Why the course of a rollout cannot be changed so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// It is as it should be.
    #[error("is already paused (dapple.dev/suspend): `dapple rollout resume` lets it go on")]
    AlreadyPaused,
    /// It is as it should be.
    #[error("is neither paused nor stopped")]
    NothingToResume,
    /// Another object says so.
    #[error(
        "is paused by its YurtAppConfigurationReplacement {0}: take the annotation dapple.dev/suspend off that object"
    )]
    PausedByReplacement(String),
    /// A restart would not begin.
    #[error("is paused (dapple.dev/suspend): `dapple rollout resume` it first")]
    Paused,
    /// Twice within a second would be once.
    #[error("was restarted this very second: wait a moment")]
    JustRestarted,
    /// There is nothing that could be restarted.
    #[error(
        "has no template, or two of them: spec.workloadTemplate must have one of deploymentTemplate and statefulSetTemplate"
    )]
    NoTemplate,
}

/// The merge patch after which nothing of an application is written.
pub fn pause(object: &ApplicationObject) -> Result<Value, SteerError> {
    if is_suspended(object) {
        return Err(SteerError::AlreadyPaused);
    }
    Ok(only_if_unchanged(object, json!({SUSPEND_ANNOTATION: "true"}), None))
}

/// The merge patch that lets the rollout of an application go on, which was paused, or stopped because pools were not done in time.
pub fn resume(
    object: &ApplicationObject,
    replacement: Option<&YurtAppConfigurationReplacement>,
    now: Timestamp,
) -> Result<Value, SteerError> {
    let said = Said::by(object, replacement);
    let stopped = object.status.stopped.as_ref().map(|stopped| stopped.since.0);
    // A time that is yet to come is not believed.
    let has_resumed = |since: &Timestamp| said.resumed.is_some_and(|resumed| resumed > *since && resumed <= now);
    let stopped = stopped.filter(|since| !has_resumed(since));
    let mut annotations = json!({});
    if is_suspended(object) {
        annotations[SUSPEND_ANNOTATION] = Value::Null;
    }
    if let Some(since) = stopped {
        // The clock here may be behind the controller's, which compares the two.
        annotations[ROLLOUT_RESUMED] = json!(now.max(a_second_after(since)).to_string());
    }
    if annotations.as_object().is_some_and(|none| none.is_empty()) {
        return Err(match paused_by(replacement) {
            Some(name) => SteerError::PausedByReplacement(name.to_owned()),
            None => SteerError::NothingToResume,
        });
    }
    Ok(only_if_unchanged(object, annotations, None))
}

/// The merge patch that makes the pods of every pool anew, at the pace of a rollout.
pub fn restart(object: &ApplicationObject, now: Timestamp) -> Result<Value, SteerError> {
    if is_suspended(object) {
        return Err(SteerError::Paused);
    }
    let (field, spec) = spec_of(object.template()).ok_or(SteerError::NoTemplate)?;
    let last = spec["template"]["metadata"]["annotations"].get(RESTARTED_AT).and_then(Value::as_str);
    let last = last.and_then(|text| text.parse::<Timestamp>().ok());
    if last == Some(now) {
        return Err(SteerError::JustRestarted);
    }
    // Of two times the later one counts, whoever's clock it is of.
    let at = last.map_or(now, |last| now.max(a_second_after(last)));
    let annotations = json!({"annotations": {RESTARTED_AT: at.to_string()}});
    let template = json!({field: {"spec": {"template": {"metadata": annotations}}}});
    Ok(only_if_unchanged(object, Value::Null, Some(json!({"workloadTemplate": template}))))
}

/// What stands in the way of a change of the template, in words.
pub fn obstacle(object: &ApplicationObject, replacement: Option<&YurtAppConfigurationReplacement>) -> Option<String> {
    if is_suspended(object) {
        return Some("it is paused: no pool changes before `dapple rollout resume`".to_owned());
    }
    if let Some(by_other) = pause_of_replacement(replacement) {
        return Some(by_other);
    }
    let (_, spec) = spec_of(object.template())?;
    let is_on_delete = spec["updateStrategy"]["type"] == "OnDelete";
    is_on_delete
        .then(|| "pods are replaced when somebody deletes them, since updateStrategy.type is OnDelete".to_owned())
}

/// What is to be said of an application whose replacement pauses it.
pub fn pause_of_replacement(replacement: Option<&YurtAppConfigurationReplacement>) -> Option<String> {
    let name = paused_by(replacement)?;
    Some(format!(
        "it is paused by its YurtAppConfigurationReplacement {name}: no pool changes before the annotation dapple.dev/suspend is \
         taken off that object"
    ))
}

fn is_suspended(object: &ApplicationObject) -> bool {
    object.annotation(SUSPEND_ANNOTATION) == Some("true")
}

/// The replacement, if it says that nothing is to be written.
fn paused_by(replacement: Option<&YurtAppConfigurationReplacement>) -> Option<&str> {
    let metadata = &replacement?.metadata;
    let is_so = annotation_of(metadata.annotations.as_ref(), SUSPEND_ANNOTATION) == Some("true");
    is_so.then_some(metadata.name.as_deref().unwrap_or_default())
}

/// The spec of the workload that each pool gets, and the field that has it.
fn spec_of(template: &WorkloadTemplate) -> Option<(&'static str, &Value)> {
    match template.template_type()? {
        TemplateType::Deployment => Some(("deploymentTemplate", &template.deployment_template.as_ref()?.spec.0)),
        TemplateType::StatefulSet => Some(("statefulSetTemplate", &template.stateful_set_template.as_ref()?.spec.0)),
    }
}

fn a_second_after(time: Timestamp) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(1)).unwrap_or(time)
}

fn only_if_unchanged(object: &ApplicationObject, annotations: Value, spec: Option<Value>) -> Value {
    let mut patch =
        json!({"metadata": {"uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version}});
    if !annotations.is_null() {
        patch["metadata"]["annotations"] = annotations;
    }
    if let Some(spec) = spec {
        patch["spec"] = spec;
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::super::object::tests::{replacement, set};
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn paused() -> Value {
        json!({"annotations": {SUSPEND_ANNOTATION: "true"}})
    }

    fn stopped() -> Value {
        json!({"stopped": {"revision": 4, "since": "2026-11-15T10:00:00Z"}})
    }

    #[test]
    fn a_pause_is_an_annotation_that_resume_takes_off() {
        let running = set(&["a"], json!({}), json!({}));
        let expected =
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "annotations": {SUSPEND_ANNOTATION: "true"}}});
        assert_eq!(pause(&running), Ok(expected));
        let still = set(&["a"], paused(), json!({}));
        assert_eq!(pause(&still), Err(SteerError::AlreadyPaused));
        let now = at("2026-11-15T11:00:00Z");
        let patch = resume(&still, None, now).unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({SUSPEND_ANNOTATION: null}));
        assert_eq!(resume(&running, None, now), Err(SteerError::NothingToResume));
        let by =
            replacement("r", None, json!({"metadata": {"name": "r", "annotations": {SUSPEND_ANNOTATION: "true"}}}));
        assert_eq!(resume(&running, Some(&by), now), Err(SteerError::PausedByReplacement("r".to_owned())));
        assert!(obstacle(&running, Some(&by)).is_some_and(|text| text.contains("Replacement r")));
        assert!(obstacle(&still, None).is_some() && obstacle(&running, None).is_none());
    }

    #[test]
    fn what_was_stopped_goes_on_by_a_time_after_that() {
        let object = set(&["a"], json!({}), stopped());
        let resumed = |now: &str| resume(&object, None, at(now)).unwrap()["metadata"]["annotations"].clone();
        assert_eq!(resumed("2026-11-15T11:00:00Z"), json!({ROLLOUT_RESUMED: "2026-11-15T11:00:00Z"}));
        assert_eq!(resumed("2026-11-15T09:00:00Z"), json!({ROLLOUT_RESUMED: "2026-11-15T10:00:01Z"}), "a clock behind");
        let again = set(&["a"], json!({"annotations": {ROLLOUT_RESUMED: "2026-11-15T11:00:00Z"}}), stopped());
        assert_eq!(resume(&again, None, at("2026-11-15T12:00:00Z")), Err(SteerError::NothingToResume));
        let later = resume(&again, None, at("2026-11-15T10:30:00Z")).unwrap();
        let annotation = &later["metadata"]["annotations"][ROLLOUT_RESUMED];
        assert_eq!(annotation, "2026-11-15T10:30:00Z", "what is there is yet to come, and counts for nothing");
        let both = resume(&set(&["a"], paused(), stopped()), None, at("2026-11-15T11:00:00Z")).unwrap();
        assert_eq!(both["metadata"]["annotations"].as_object().map(|keys| keys.len()), Some(2));
    }

    #[test]
    fn a_restart_is_an_annotation_of_the_template() {
        let mut object = set(&["a"], json!({}), json!({}));
        let patch = restart(&object, at("2026-11-15T11:00:00Z")).unwrap();
        let place = "/spec/workloadTemplate/deploymentTemplate/spec/template/metadata/annotations";
        assert_eq!(patch.pointer(place), Some(&json!({RESTARTED_AT: "2026-11-15T11:00:00Z"})));
        assert!(patch["metadata"].get("annotations").is_none(), "{patch}");
        let super::super::object::Spec::Set(spec) = &mut object.spec else { panic!("it is a YurtAppSet") };
        let template = spec.workload_template.deployment_template.as_mut().unwrap();
        template.spec.0["template"]["metadata"]["annotations"] = json!({RESTARTED_AT: "2026-11-15T11:00:00Z"});
        assert_eq!(restart(&object, at("2026-11-15T11:00:00Z")), Err(SteerError::JustRestarted));
        let patch = restart(&object, at("2026-11-15T10:00:00Z")).unwrap();
        assert_eq!(patch.pointer(place), Some(&json!({RESTARTED_AT: "2026-11-15T11:00:01Z"})), "a clock behind");
        assert_eq!(restart(&set(&["a"], paused(), json!({})), at("2026-11-15T11:00:00Z")), Err(SteerError::Paused));
    }
}

//! Why a node gets what it gets, field by field, as `dapple explain` shows it.

use std::collections::BTreeMap;
use std::fmt::Write;

use dapple_api::pool::DECLARED_REPLICAS;
use dapple_api::yaml::{self, Line};
use dapple_edit::document::Document;
use dapple_edit::edit::EditError;
use dapple_edit::field::{self, FieldError};
use dapple_edit::meaning::meaning;
use dapple_edit::render::{Origin, Rendering, changes};
use dapple_plan::pool::workload::declared_replicas;
use dapple_plan::variant::{Plan, Variant};
use serde::Serialize;
use serde_json::Value;

use crate::paint::{Tone, harmless, paint};
use crate::plan::{ChangeView, shown};
use crate::story::StoryView;

/// What one node gets of one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainView {
    /// The workload.
    pub object: String,
    /// The node, or the pod on it; or the workload of a pool.
    pub subject: String,
    /// The groups or pools that the node gets it in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
    /// Names the rendering.
    pub hash: String,
    /// What the node gets.
    pub document: Value,
    /// Every field that differs from the template, and who set it.
    pub changes: Vec<ChangeView>,
    /// How the pod stands with its policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<StoryView>,
    /// Fields in which the pod, or the pool's workload, is not what it would be rendered as today.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftView>,
    #[serde(skip)]
    origins: Vec<Origin>,
    #[serde(skip)]
    kind: Option<Document>,
    #[serde(skip)]
    base: Value,
    /// Whether it is about the workload of a pool, and not about a node.
    #[serde(skip)]
    is_of_workload: bool,
}

/// A field in which something is not what it would be rendered as.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftView {
    /// The field.
    pub field: String,
    /// What it would be.
    pub rendered: Option<Value>,
    /// What it has.
    pub has: Option<Value>,
}

impl ExplainView {
    /// Explains a variant for a node. Fails where the variant does not render.
    pub fn new(plan: &Plan, variant: &Variant, subject: &str) -> Result<Self, EditError> {
        let rendering: &Rendering = variant.rendering.as_ref().map_err(Clone::clone)?;
        let object = plan.object.to_string();
        Ok(Self {
            subject: subject.to_owned(),
            places: variant.places.clone(),
            hash: rendering.hash.clone(),
            document: rendering.document.clone(),
            changes: rendering.origins.iter().map(|origin| ChangeView::new(origin, &object)).collect(),
            place: None,
            drift: Vec::new(),
            origins: rendering.origins.clone(),
            kind: Some(plan.document),
            base: plan.base.clone(),
            is_of_workload: false,
            object,
        })
    }

    /// With how the pod stands with its policies, unless there are none.
    #[must_use]
    pub fn of_pod(mut self, story: StoryView) -> Self {
        self.place = Some(story).filter(StoryView::has_policy);
        self
    }

    /// Compares with a pod that runs: every field that the rendering sets, and the pod has not got like that. What the
    /// pod has beyond it are defaults, and nobody's doing.
    #[must_use]
    pub fn beside(mut self, pod: &Value) -> Self {
        let kind = self.kind.unwrap_or(Document::PodTemplate);
        let Some(template) = kind.template(&self.document) else { return self };
        self.drift = drift(Document::PodTemplate, template, pod);
        self
    }

    /// As the workload of a pool, and compared with what it is: every field that the rendering sets, and the workload has not got like
    /// that. How many pods it has is for people and autoscalers to say, until the application declares another number.
    #[must_use]
    pub fn of_workload(mut self, name: &str, pool: &str, workload: &Value) -> Self {
        (self.subject, self.places, self.is_of_workload) = (name.to_owned(), vec![format!("pool {pool}")], true);
        let kind = self.kind.unwrap_or(Document::Deployment);
        let mut rendered = self.document.clone();
        let noted = workload["metadata"]["annotations"][DECLARED_REPLICAS].as_str().map(str::to_owned);
        let is_declared = noted == Some(declared_replicas(&rendered).to_string());
        if let Some(spec) = rendered.pointer_mut("/spec").and_then(Value::as_object_mut) {
            // Which pods are its own is not for the template to say alone.
            spec.remove("selector");
            if is_declared {
                spec.insert("replicas".to_owned(), workload["spec"]["replicas"].clone());
            }
        }
        self.drift = drift(kind, &meaning(kind, &rendered), &meaning(kind, workload));
        self
    }

    /// The whole document, each changed field with its source beside it.
    pub fn text(&self, colour: bool) -> String {
        let mut text = self.place.as_ref().map(|story| format!("{}\n", story.text(colour))).unwrap_or_default();
        text.push_str(&self.heading(colour));
        let mut notes: BTreeMap<String, String> = BTreeMap::new();
        let mut gone = Vec::new();
        for (origin, change) in self.origins.iter().zip(&self.changes) {
            match origin.path.pointer_in(&self.document) {
                Some(pointer) => _ = notes.insert(pointer, note(change)),
                None => gone.push(change),
            }
        }
        text.push_str(&annotated(&yaml::lines(&self.document), &notes, colour));
        if !gone.is_empty() {
            let _ = writeln!(text, "\n{}", paint("Not there any more:", Tone::Heading, colour));
        }
        for change in gone {
            let line = format!("  {}, {}", change.field, note(change));
            let _ = writeln!(text, "{}", paint(&line, Tone::Bad, colour));
        }
        text.push_str(&self.drift_text(colour));
        text
    }

    fn heading(&self, colour: bool) -> String {
        let places = if self.places.is_empty() { String::new() } else { format!(" ({})", self.places.join(", ")) };
        let title = format!("{}{places}", self.title());
        let rest = "What bears no note comes from the template.";
        format!("{}\n{}\n\n", paint(&title, Tone::Heading, colour), paint(rest, Tone::Aside, colour))
    }

    fn title(&self) -> String {
        match self.is_of_workload {
            true => format!("{} of {}", self.subject, self.object),
            false => format!("{} on {}", self.object, self.subject),
        }
    }

    fn drift_text(&self, colour: bool) -> String {
        let mut text = String::new();
        if !self.drift.is_empty() {
            let heading = match self.is_of_workload {
                true => "The workload is different (its turn has not come, or something else changed it):",
                false => "The pod is different (it is of an older revision, or something else changed it):",
            };
            let _ = writeln!(text, "\n{}", paint(heading, Tone::Heading, colour));
        }
        for known in &self.drift {
            let line =
                format!("  {}: has {}, not {}", known.field, shown(known.has.as_ref()), shown(known.rendered.as_ref()));
            let _ = writeln!(text, "{}", paint(&line, Tone::Warning, colour));
        }
        text
    }

    /// One field: its value, who set it, what it replaced and who was overruled. A field of the pod template may be
    /// named as in a pod, even where a workload is rendered.
    pub fn field_text(&self, name: &str, colour: bool) -> Result<String, FieldError> {
        let mut text = format!("{}\n", paint(&self.title(), Tone::Heading, colour));
        let Asked { value, concerned } = self.asked(name)?;
        let name = harmless(name);
        match value {
            Value::Null => _ = writeln!(text, "{name}: not there any more"),
            Value::Object(_) | Value::Array(_) => {
                let _ = writeln!(text, "{name}:");
                yaml::lines(value).iter().for_each(|line| _ = writeln!(text, "  {}", line.text));
            }
            plain => _ = writeln!(text, "{name}: {}", yaml::document(plain).trim_end()),
        }
        if concerned.is_empty() {
            let _ = writeln!(text, "\ncomes from the template");
        }
        for change in concerned {
            let by = paint(&format!("set by {}", change.set_by), Tone::Place, colour);
            let _ = writeln!(text, "\n{by}: {}", change.field);
            let _ = match &change.before {
                Some(before) => writeln!(text, "  the template has {before}"),
                None => writeln!(text, "  the template does not have it"),
            };
            if !change.built_on.is_empty() {
                let _ = writeln!(text, "  on top of {}", harmless(&change.built_on.join(", ")));
            }
            for known in &change.overruled {
                let line = format!("  overruled: {}, which set {}", known.rule, shown(known.value.as_ref()));
                let _ = writeln!(text, "{}", paint(&line, Tone::Aside, colour));
            }
        }
        Ok(text)
    }

    /// One field as data: its value and the changes that concern it.
    pub fn field_value(&self, name: &str) -> Result<Value, FieldError> {
        let Asked { value, concerned } = self.asked(name)?;
        Ok(serde_json::json!({
            "object": self.object, "subject": self.subject, "field": name, "value": value, "changes": concerned,
        }))
    }

    /// A field, be it one that a rule took away.
    fn asked(&self, name: &str) -> Result<Asked<'_>, FieldError> {
        let is_inside = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
        match self.find_in(&self.document, name) {
            Ok(pointer) => {
                let value = self.document.pointer(&pointer).unwrap_or(&Value::Null);
                // What is gone concerns what it was taken out of, not the neighbours that took its place.
                let concerned = self.concerning(|origin| match origin.path.pointer_in(&self.document) {
                    Some(known) => is_inside(&known, &pointer) || is_inside(&pointer, &known),
                    None => origin.path.nearest_in(&self.document).is_some_and(|left| is_inside(&left, &pointer)),
                });
                Ok(Asked { value, concerned })
            }
            Err(error) => {
                let Ok(pointer) = self.find_in(&self.base, name) else { return Err(error) };
                let was_there = |origin: &Origin| origin.path.pointer_in(&self.base);
                let concerned = self.concerning(|origin| {
                    was_there(origin).is_some_and(|known| is_inside(&known, &pointer) || is_inside(&pointer, &known))
                });
                Ok(Asked { value: &Value::Null, concerned })
            }
        }
    }

    fn concerning(&self, concerns: impl Fn(&Origin) -> bool) -> Vec<&ChangeView> {
        let all = self.origins.iter().zip(&self.changes);
        all.filter(|(origin, _)| concerns(origin)).map(|(_, change)| change).collect()
    }

    /// Where a document has a field, named from its top or, in a workload, as in a pod.
    fn find_in(&self, document: &Value, name: &str) -> Result<String, FieldError> {
        field::find(document, name).or_else(|error| {
            let kind = self.kind.filter(|kind| *kind != Document::PodTemplate);
            match kind.and_then(|kind| kind.template(document)).map(|template| field::find(template, name)) {
                Some(Ok(pointer)) => Ok(format!("/spec/template{pointer}")),
                _ => Err(error),
            }
        })
    }
}

/// A field that was asked for, and the changes that concern it.
struct Asked<'a> {
    value: &'a Value,
    concerned: Vec<&'a ChangeView>,
}

/// Every field that a rendering sets, and that is not so where it should be.
fn drift(kind: Document, rendered: &Value, found: &Value) -> Vec<DriftView> {
    let different = changes(kind, rendered, found).into_iter();
    let set = different.filter(|change| !is_satisfied(change.before.as_ref(), change.after.as_ref()));
    set.map(|change| DriftView { field: change.path.to_string(), rendered: change.before, has: change.after }).collect()
}

/// Whether a pod has what is rendered: admission and controllers add to lists, such as tolerations.
fn is_satisfied(rendered: Option<&Value>, pod: Option<&Value>) -> bool {
    match (rendered, pod) {
        (None | Some(Value::Null), _) => true,
        (Some(Value::Array(items)), Some(Value::Array(has))) => items.iter().all(|item| has.contains(item)),
        (Some(Value::Array(items)), None) => items.is_empty(),
        (Some(Value::Object(fields)), _) => fields.is_empty(),
        (Some(Value::String(text)), None) => text.is_empty(),
        _ => false,
    }
}

/// Who set a field, and instead of what.
fn note(change: &ChangeView) -> String {
    let was = match &change.before {
        Some(before) => format!(" (was {})", shortened(&before.to_string())),
        None => String::new(),
    };
    let overruled: Vec<&str> = change.overruled.iter().map(|known| known.rule.as_str()).collect();
    let over = if overruled.is_empty() { String::new() } else { format!(", over {}", overruled.join(", ")) };
    let on =
        if change.built_on.is_empty() { String::new() } else { format!(", on top of {}", change.built_on.join(", ")) };
    format!("{}{was}{on}{over}", change.set_by)
}

/// What fits behind a line: a whole list is better looked up.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}

/// Lines with notes behind them, the notes one below the other.
fn annotated(lines: &[Line], notes: &BTreeMap<String, String>, colour: bool) -> String {
    let of = |line: &Line| line.shows.iter().rev().find_map(|pointer| notes.get(pointer));
    let noted = lines.iter().filter(|line| of(line).is_some());
    let column = noted.map(|line| line.text.chars().count()).max().unwrap_or(0).min(60) + 2;
    let mut text = String::new();
    for line in lines {
        match of(line) {
            Some(note) => {
                let gap = " ".repeat(column.saturating_sub(line.text.chars().count()).max(2));
                let note = paint(&format!("# {note}"), Tone::Place, colour);
                let _ = writeln!(text, "{}{gap}{note}", paint(&line.text, Tone::Good, colour));
            }
            None => _ = writeln!(text, "{}", line.text),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use dapple_plan::world::World;
    use serde_json::json;

    use super::*;

    /// What the pool of an application gets, explained as the workload that it has.
    fn explained(live: &Value) -> ExplainView {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}});
        let pool = json!({"name": "edge", "replicas": 2, "patch": {"spec": {"minReadySeconds": 5}}});
        let mut world = World::default();
        for object in [
            json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "metadata": {"name": "web"}, "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "workloadTemplate": {"deploymentTemplate": template},
                "topology": {"pools": [pool]}}}),
            json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
                "metadata": {"name": "r"}, "subject": {"kind": "YurtAppSet", "name": "web"}, "replacements": [
                    {"pools": "*", "items": [{"image": {"containerName": "c", "imageClaim": "c:2"}}]}]}),
        ] {
            assert_eq!(world.add(&object), Ok(true));
        }
        let plans = world.plans();
        let view = ExplainView::new(&plans[0], &plans[0].variants[0], "").unwrap();
        view.of_workload("Deployment default/web-edge-xxxxx", "edge", live)
    }

    fn live() -> Value {
        json!({"metadata": {"annotations": {"dapple.dev/replicas": "2"}, "labels": {"app": "web", "apps.openyurt.io/pool-name": "edge"}},
            "spec": {"replicas": 7, "minReadySeconds": 5, "progressDeadlineSeconds": 600,
                "selector": {"matchLabels": {"app": "web", "apps.openyurt.io/pool-name": "edge"}},
                "template": {"metadata": {"labels": {"app": "web", "apps.openyurt.io/pool-name": "edge"}},
                    "spec": {"containers": [{"name": "c", "image": "c:2", "imagePullPolicy": "IfNotPresent"}]}}}})
    }

    #[test]
    fn a_workload_of_a_pool_names_the_rule_behind_each_field() {
        let view = explained(&live());
        let text = view.text(false);
        assert!(
            text.starts_with("Deployment default/web-edge-xxxxx of YurtAppSet default/web (pool edge)\n"),
            "{text}"
        );
        let note = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_default().to_owned();
        let by = "# YurtAppConfigurationReplacement default/r replacements[0].items[0] (was \"c:1\")";
        assert!(note("image: c:2").ends_with(by), "{text}");
        assert!(note("minReadySeconds").ends_with("# spec.topology.pools[0].patch"), "{text}");
        assert!(note("replicas").ends_with("# spec.topology.pools[0].replicas"), "{text}");
        assert!(!note("name: c").contains('#'), "it comes from the template: {text}");
        assert_eq!(view.drift, [], "its number of pods is for others to say, and its selector has more in it");
    }

    #[test]
    fn a_workload_that_is_different_says_in_what() {
        let mut behind = live();
        behind["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c:1");
        behind["metadata"]["annotations"] = json!({"dapple.dev/replicas": "1"});
        let view = explained(&behind);
        let drift: Vec<&str> = view.drift.iter().map(|known| known.field.as_str()).collect();
        assert_eq!(drift, ["spec.replicas", "spec.template.spec.containers[name=c].image"]);
        let text = view.text(false);
        assert!(text.contains("The workload is different (its turn has not come"), "{text}");
        assert!(text.contains("spec.template.spec.containers[name=c].image: has \"c:1\", not \"c:2\""), "{text}");
    }
}

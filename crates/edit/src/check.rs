//! Checking a strategic merge patch against what Kubernetes knows: every mistake at once, each with its path.
//!
//! Upstream takes unknown fields and lets the API server refuse the pod later, on every node. Here whoever writes the
//! patch is told, with the field that was probably meant. Nothing is refused that Kubernetes would take: a field that is
//! newer than this table is a finding, and the caller decides.

use std::fmt;

use dapple_api::manifest::kind_of;
use dapple_api::verdict::{Reason, Verdict};
use serde_json::{Map, Value};

use crate::document::Document;
use crate::path::{Path, Step};
use crate::schema::{Merge, Shape, Type};

/// A mistake in a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub path: Path,
    /// What is wrong there.
    pub mistake: Mistake,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// Kubernetes knows no such field.
    UnknownField {
        /// The type that lacks it.
        of: &'static str,
        /// What was probably meant.
        meant: Option<&'static str>,
    },
    /// A value of the wrong type.
    WrongType {
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// An item without the field that tells items apart.
    NoMergeKey {
        /// That field.
        key: &'static str,
    },
    /// A directive that Kubernetes does not know, or not here.
    Directive {
        /// What is wrong with it.
        problem: String,
    },
    /// A path that asks a list for something else than an item.
    NotAnIndex {
        /// The list.
        list: String,
        /// What it is asked for.
        step: String,
    },
    /// A path that goes on where there is only a plain value.
    NothingInside {
        /// The field with the plain value.
        field: String,
        /// What it is asked for.
        step: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.mistake)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField { of, meant: Some(meant) } => {
                write!(f, "{of} has no such field; did you mean {meant:?}?")
            }
            Self::UnknownField { of, meant: None } => write!(f, "{of} has no such field"),
            Self::WrongType { expected, found } => write!(f, "this must be {expected}, and it is {found}"),
            Self::NoMergeKey { key } => write!(f, "an item needs {key:?}, which tells the items of this list apart"),
            Self::Directive { problem } => f.write_str(problem),
            Self::NotAnIndex { list, step } => {
                write!(f, "{list} is a list, and {step:?} is none of its items: count them from 0")
            }
            Self::NothingInside { field, step } => write!(f, "{field} is a plain value, and has no {step:?} inside"),
        }
    }
}

/// Every mistake in a patch of a document of this kind.
pub fn check_patch(kind: Document, patch: &Value) -> Vec<Finding> {
    let mut checker = Checker::default();
    checker.value(patch, kind.shape(), Merge::DEFAULT);
    checker.findings
}

/// Every mistake in a value of this shape that is taken as it is: nothing in it is a directive.
pub fn check_value(shape: Shape, value: &Value) -> Vec<Finding> {
    let mut checker = Checker { is_plain: true, ..Checker::default() };
    checker.value(value, shape, Merge::DEFAULT);
    checker.findings
}

/// The shape of what a path leads to, its steps given one by one as in an RFC 6901 pointer. An item that is yet to come
/// (`-`) has the shape of the others.
///
/// # Errors
/// Where a step leads nowhere.
pub fn shape_at<'s>(shape: Shape, steps: impl IntoIterator<Item = &'s str>) -> Result<Shape, Mistake> {
    let (mut at, mut before) = (shape, "");
    for step in steps {
        at = match at {
            Shape::Any => return Ok(Shape::Any),
            Shape::Map(item) => *item,
            Shape::Object(id) => {
                let of = id.get();
                let unknown = || Mistake::UnknownField { of: of.name, meant: nearest_field(step, of) };
                of.exact_field(step).ok_or_else(unknown)?.shape
            }
            Shape::List(item) if is_index(step) => *item,
            Shape::List(_) => return Err(Mistake::NotAnIndex { list: before.to_owned(), step: step.to_owned() }),
            _ => return Err(Mistake::NothingInside { field: before.to_owned(), step: step.to_owned() }),
        };
        before = step;
    }
    Ok(at)
}

/// Writes findings about what stands at `field` into a verdict. A field that is newer than our table must not be in the
/// way, so an unknown one is only warned of.
pub fn tell(findings: Vec<Finding>, field: &str, verdict: &mut Verdict) {
    for Finding { path, mistake } in findings {
        let field = match path.steps().first() {
            None => field.to_owned(),
            Some(Step::Field(_)) => format!("{field}.{path}"),
            Some(_) => format!("{field}{path}"),
        };
        match mistake {
            Mistake::UnknownField { .. } => verdict.warn(&field, mistake),
            _ => verdict.refuse(field, Reason::Invalid, mistake.to_string()),
        }
    }
}

/// Whether a step of a path can be an item of a list: a number, or `-` for one that is yet to come.
pub(crate) fn is_index(step: &str) -> bool {
    let is_number = !step.is_empty() && step.chars().all(|digit| digit.is_ascii_digit());
    step == "-" || (is_number && (step == "0" || !step.starts_with('0')))
}

#[derive(Default)]
struct Checker {
    path: Vec<Step>,
    findings: Vec<Finding>,
    /// Whether fields that look like directives are fields like others.
    is_plain: bool,
}

impl Checker {
    fn find(&mut self, mistake: Mistake) {
        self.findings.push(Finding { path: Path::of(&self.path), mistake });
    }

    fn inside(&mut self, step: Step, check: impl FnOnce(&mut Self)) {
        self.path.push(step);
        check(self);
        self.path.pop();
    }

    /// The directive that a field's name stands for, if directives count here.
    fn directive_in<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix('$').filter(|_| !self.is_plain)
    }

    fn value(&mut self, value: &Value, shape: Shape, merge: Merge) {
        let expected = match (shape, value) {
            // `null` deletes, whatever is there.
            (_, Value::Null) | (Shape::Any, _) => return,
            (Shape::String, Value::String(_)) | (Shape::Boolean, Value::Bool(_)) => return,
            (Shape::Integer, Value::Number(number)) if !number.is_f64() => return,
            (Shape::IntOrString, Value::Number(number)) if !number.is_f64() => return,
            (Shape::IntOrString, Value::String(_)) | (Shape::Quantity, Value::String(_) | Value::Number(_)) => return,
            (Shape::Object(id), Value::Object(map)) => return self.object(map, id.get()),
            (Shape::Map(item), Value::Object(map)) => return self.map(map, *item),
            (Shape::List(item), Value::Array(items)) => return self.list(items, *item, merge),
            (Shape::String, _) => "text",
            (Shape::Boolean, _) => "a boolean",
            (Shape::Integer, _) => "a whole number",
            (Shape::IntOrString, _) => "a whole number or text",
            (Shape::Quantity, _) => "an amount, such as 500Mi",
            (Shape::Object(_) | Shape::Map(_), _) => "an object",
            (Shape::List(_), _) => "a list",
        };
        self.find(Mistake::WrongType { expected, found: kind_of(value) });
    }

    fn object(&mut self, map: &Map<String, Value>, of: &'static Type) {
        for (name, value) in map {
            self.inside(Step::Field(name.clone()), |checker| {
                match (checker.directive_in(name), of.exact_field(name)) {
                    (Some(directive), _) => checker.directive(directive, value, Some(of)),
                    (None, Some(field)) => checker.value(value, field.shape, field.merge),
                    (None, None) => checker.find(Mistake::UnknownField { of: of.name, meant: nearest_field(name, of) }),
                }
            });
        }
    }

    fn map(&mut self, map: &Map<String, Value>, item: Shape) {
        for (name, value) in map {
            self.inside(Step::Field(name.clone()), |checker| match checker.directive_in(name) {
                Some(directive) => checker.directive(directive, value, None),
                None => checker.value(value, item, Merge::DEFAULT),
            });
        }
    }

    fn list(&mut self, items: &[Value], item: Shape, merge: Merge) {
        for (index, value) in items.iter().enumerate() {
            let key = merge.key.and_then(|key| Some((key, value.get(key)?)));
            let step = match key {
                Some((key, value)) => Step::keyed(key, value),
                None => Step::Item(index),
            };
            let directive = value.get("$patch").filter(|_| !self.is_plain);
            let replaces = directive.is_some_and(|directive| directive == "replace");
            self.inside(step, |checker| {
                if let (Some(key), None, true, false) = (merge.key, key, value.is_object(), replaces) {
                    checker.find(Mistake::NoMergeKey { key });
                }
                if directive.is_some() && !merge.lists {
                    let problem = "$patch means nothing here: this list does not merge, it is replaced as a whole";
                    checker.find(Mistake::Directive { problem: problem.to_owned() });
                }
                checker.value(value, item, Merge::DEFAULT);
            });
        }
    }

    fn directive(&mut self, directive: &str, value: &Value, of: Option<&'static Type>) {
        let (name, field) = directive.split_once('/').map_or((directive, None), |(name, field)| (name, Some(field)));
        let problem = match (name, field) {
            ("patch", None) if value == "replace" || value == "delete" => None,
            ("patch", None) => Some(format!("$patch may be \"replace\" or \"delete\", and it is {value}")),
            ("retainKeys", None) => (!value.is_array()).then(|| "this must be a list of field names".to_owned()),
            ("setElementOrder" | "deleteFromPrimitiveList", Some(field)) => match of.and_then(|of| of.field(field)) {
                Some(known) if matches!(known.shape, Shape::List(_)) => {
                    (!value.is_array()).then(|| "this must be a list".to_owned())
                }
                _ => Some(format!("there is no list {field:?} here")),
            },
            _ => Some(
                "Kubernetes knows no such directive; there are $patch, $retainKeys, $setElementOrder/<field> and \
                       $deleteFromPrimitiveList/<field>"
                    .to_owned(),
            ),
        };
        if let Some(problem) = problem {
            self.find(Mistake::Directive { problem });
        }
    }
}

/// The known name that is nearest, if any is near enough to be meant.
pub fn nearest(name: &str, known: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    // Longer than any field is near to: comparing costs the product of both lengths, and the name is a user's.
    if name.len() > 80 {
        return None;
    }
    let distance = |known: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase());
    let best = known.into_iter().map(|known| (distance(known), known)).min()?;
    (best.0 <= name.len().div_ceil(3)).then_some(best.1)
}

fn nearest_field(name: &str, of: &'static Type) -> Option<&'static str> {
    nearest(name, of.fields.iter().map(|field| field.name))
}

/// Refuses a patch that says whose an object is, below `inside` the patch: which name it has and where it is follows from its
/// owner, and no patch can move it.
pub(crate) fn refuse_identity(patch: &Value, inside: &[&str], field: &str, verdict: &mut Verdict) {
    let owned = inside.iter().try_fold(patch, |at, step| at.get(step));
    for (name, text) in [
        ("name", "it gets its name from its owner: leave it out"),
        ("generateName", "it gets its name from its owner: leave it out"),
        ("namespace", "it is in the namespace of its owner: leave it out"),
    ] {
        let set = owned.and_then(|owned| owned.get("metadata")?.get(name)).filter(|set| !set.is_null());
        if set.is_some() {
            let path: Vec<&str> = inside.iter().copied().chain(["metadata", name]).collect();
            verdict.refuse(format!("{field}.{}", path.join(".")), Reason::Forbidden, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(patch: Value) -> Vec<String> {
        check_patch(Document::PodTemplate, &patch).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_patch_has_no_findings() {
        let good = json!({
            "metadata": {"labels": {"a": "b", "c": null}, "$deleteFromPrimitiveList/finalizers": ["x"]},
            "spec": {
                "$setElementOrder/containers": [{"name": "a"}],
                "containers": [
                    {"name": "a", "resources": {"limits": {"cpu": 0.5, "memory": "1Gi", "nvidia.com/gpu": 1}},
                     "ports": [{"containerPort": 80, "$patch": "delete"}], "livenessProbe": {"httpGet": {"port": "web"}}},
                ],
                "volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}],
                "tolerations": [{"key": "x"}], "imagePullSecrets": [{"$patch": "replace"}, {"name": "x"}],
            },
        });
        assert_eq!(told(good), Vec::<String>::new());
    }

    #[test]
    fn names_must_be_exact_and_directives_where_they_count() {
        assert_eq!(
            told(json!({"spec": {"hostnetwork": true, "tolerations": [{"$patch": "replace"}]}})),
            [
                "spec.hostnetwork: PodSpec has no such field; did you mean \"hostNetwork\"?",
                "spec.tolerations[0]: $patch means nothing here: this list does not merge, it is replaced as a whole",
            ]
        );
    }

    #[test]
    fn a_plain_value_has_no_directives() {
        let shape = shape_at(Document::PodTemplate.shape(), ["spec", "containers", "0"]).expect("a container");
        let container = json!({"name": "a", "image": 1, "$patch": "delete"});
        let told: Vec<String> = check_value(shape, &container).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["$patch: Container has no such field", "image: this must be text, and it is a number"]);
    }

    #[test]
    fn paths_lead_to_shapes_or_nowhere() {
        let at = |path: &str| shape_at(Document::PodTemplate.shape(), path.split('/'));
        assert_eq!(at("spec/containers/-/image"), Ok(Shape::String));
        assert_eq!(at("metadata/labels/a.b"), Ok(Shape::String));
        for (path, part) in [
            ("spec/hostnetwork", "did you mean \"hostNetwork\""),
            ("spec/containers/nginx/image", "containers is a list, and \"nginx\" is none of its items"),
            ("spec/containers/00", "none of its items"),
            ("spec/hostNetwork/x", "hostNetwork is a plain value"),
        ] {
            let message = at(path).expect_err(path).to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_path() {
        let bad = json!({
            "spec": {
                "container": [],
                "hostNetwork": "yes",
                "containers": [
                    {"name": "a", "envv": [], "env": [{"value": "x"}, {"name": "B", "value": 1}]},
                    {"image": "x"},
                ],
                "priority": 1.5,
                "nodeSelector": ["x"],
                "$setElementOrder/nothing": [],
                "$order": [],
                "affinity": {"$patch": "merge"},
            },
            "completelyOther": 1,
        });
        assert_eq!(
            told(bad),
            [
                "completelyOther: PodTemplateSpec has no such field",
                "spec.$order: Kubernetes knows no such directive; there are $patch, $retainKeys, $setElementOrder/<field> and $deleteFromPrimitiveList/<field>",
                "spec.$setElementOrder/nothing: there is no list \"nothing\" here",
                "spec.affinity.$patch: $patch may be \"replace\" or \"delete\", and it is \"merge\"",
                "spec.container: PodSpec has no such field; did you mean \"containers\"?",
                "spec.containers[name=a].env[0]: an item needs \"name\", which tells the items of this list apart",
                "spec.containers[name=a].env[name=B].value: this must be text, and it is a number",
                "spec.containers[name=a].envv: Container has no such field; did you mean \"env\"?",
                "spec.containers[1]: an item needs \"name\", which tells the items of this list apart",
                "spec.hostNetwork: this must be a boolean, and it is text",
                "spec.nodeSelector: this must be an object, and it is a list",
                "spec.priority: this must be a whole number, and it is a number",
            ]
        );
    }
}

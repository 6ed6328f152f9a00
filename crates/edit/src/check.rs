//! Checking a strategic merge patch against what Kubernetes knows: every mistake at once, each with its path.
//!
//! Upstream takes unknown fields and lets the API server refuse the pod later, on every node. Here whoever writes the
//! patch is told, with the field that was probably meant. Nothing is refused that Kubernetes would take: a field that is
//! newer than this table is a finding, and the caller decides.

use std::fmt;

use dapple_api::manifest::kind_of;
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
        }
    }
}

/// Every mistake in a patch of a document of this kind.
pub fn check_patch(kind: Document, patch: &Value) -> Vec<Finding> {
    let mut checker = Checker::default();
    checker.value(patch, kind.shape(), Merge::DEFAULT);
    checker.findings
}

#[derive(Default)]
struct Checker {
    path: Vec<Step>,
    findings: Vec<Finding>,
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
            self.inside(Step::Field(name.clone()), |checker| match (name.strip_prefix('$'), of.exact_field(name)) {
                (Some(directive), _) => checker.directive(directive, value, Some(of)),
                (None, Some(field)) => checker.value(value, field.shape, field.merge),
                (None, None) => checker.find(Mistake::UnknownField { of: of.name, meant: nearest(name, of) }),
            });
        }
    }

    fn map(&mut self, map: &Map<String, Value>, item: Shape) {
        for (name, value) in map {
            self.inside(Step::Field(name.clone()), |checker| match name.strip_prefix('$') {
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
            let directive = value.get("$patch");
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

/// The field whose name is nearest, if any is near enough to be meant.
fn nearest(name: &str, of: &'static Type) -> Option<&'static str> {
    let distance = |field: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &field.to_lowercase());
    let best = of.fields.iter().map(|field| (distance(field.name), field.name)).min()?;
    (best.0 <= name.len().div_ceil(3)).then_some(best.1)
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

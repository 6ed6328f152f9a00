//! Label selectors: read once, asked often.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::syntax;
use crate::verdict::{Reason, Verdict};

/// A label selector that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// One of the things that a selector asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// What is asked of it.
    pub test: Test,
}

/// What is asked of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// It has one of these values.
    In(Vec<String>),
    /// It has none of these values, or is not there.
    NotIn(Vec<String>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// Why a label selector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that there is not.
    #[error("matchExpressions[{index}].operator {}", self.problem())]
    Operator {
        /// Which expression.
        index: usize,
        /// The operator.
        operator: String,
    },
    /// `In` and `NotIn` need something to compare with.
    #[error("matchExpressions[{index}].values {}", self.problem())]
    NoValues {
        /// Which expression.
        index: usize,
        /// The operator.
        operator: String,
    },
    /// `Exists` and `DoesNotExist` compare with nothing.
    #[error("matchExpressions[{index}].values {}", self.problem())]
    Values {
        /// Which expression.
        index: usize,
        /// The operator.
        operator: String,
    },
}

impl SelectorError {
    /// What is wrong, without where.
    fn problem(&self) -> String {
        match self {
            Self::Operator { operator, .. } => format!("is {operator:?}: use In, NotIn, Exists or DoesNotExist"),
            Self::NoValues { operator, .. } => format!("is empty: {operator} needs at least one"),
            Self::Values { operator, .. } => format!("must be empty for {operator}"),
        }
    }
}

/// Checks a selector: every mistake at once, names and values of labels too. `field` is where it stands.
pub fn check(selector: &LabelSelector, field: &str, verdict: &mut Verdict) {
    if let Some(labels) = &selector.match_labels {
        let field = format!("{field}.matchLabels");
        verdict.at_most(&field, labels.len(), 64);
        syntax::labels(labels, &field, verdict);
    }
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    verdict.at_most(&format!("{field}.matchExpressions"), expressions.len(), 64);
    for (index, expression) in expressions.iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        verdict.check(format!("{field}.key"), syntax::key(&expression.key));
        if let Err(error) = Test::new(index, expression) {
            let (place, reason) = match error {
                SelectorError::Operator { .. } => ("operator", Reason::NotSupported),
                SelectorError::NoValues { .. } => ("values", Reason::Required),
                SelectorError::Values { .. } => ("values", Reason::Forbidden),
            };
            verdict.refuse(format!("{field}.{place}"), reason, format!("this {}", error.problem()));
        }
        let values = expression.values.as_deref().unwrap_or_default();
        verdict.at_most(&format!("{field}.values"), values.len(), 256);
        for (number, value) in values.iter().enumerate() {
            verdict.check(format!("{field}.values[{number}]"), syntax::label_value(value));
        }
    }
}

impl Test {
    fn new(index: usize, expression: &LabelSelectorRequirement) -> Result<Self, SelectorError> {
        let values = expression.values.clone().unwrap_or_default();
        let operator = expression.operator.clone();
        match (operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Self::In(values)),
            ("NotIn", false) => Ok(Self::NotIn(values)),
            ("Exists", true) => Ok(Self::Exists),
            ("DoesNotExist", true) => Ok(Self::DoesNotExist),
            ("In" | "NotIn", true) => Err(SelectorError::NoValues { index, operator }),
            ("Exists" | "DoesNotExist", false) => Err(SelectorError::Values { index, operator }),
            _ => Err(SelectorError::Operator { index, operator }),
        }
    }
}

impl Selector {
    /// Checks a selector. An empty one matches everything.
    pub fn new(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let labels = selector.match_labels.iter().flatten();
        let by_label = labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        let mut requirements: Vec<Requirement> = by_label.collect();
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            requirements.push(Requirement { key: expression.key.clone(), test: Test::new(index, expression)? });
        }
        Ok(Self(requirements))
    }

    /// All that it asks for.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// One that selects a label with one value.
    pub fn exactly(key: &str, value: &str) -> Self {
        Self(vec![Requirement { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) }])
    }

    /// One that selects nothing: it takes the place of one that cannot be used, so that the others keep their numbers.
    pub fn nothing() -> Self {
        Self(vec![Requirement { key: String::new(), test: Test::In(Vec::new()) }])
    }

    /// What it asks of one label.
    pub fn about(&self, key: &str) -> Self {
        Self(self.0.iter().filter(|requirement| requirement.key == key).cloned().collect())
    }

    /// Whether something with these labels is selected; `label` gives the value of one.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.unmet(label).is_none()
    }

    /// The first of the things it asks for that something with these labels does not have.
    pub fn unmet<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> Option<&Requirement> {
        self.0.iter().find(|Requirement { key, test }| {
            let value = label(key);
            let is_met = match test {
                Test::In(values) => value.is_some_and(|value| values.iter().any(|known| known == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|known| known != value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            };
            !is_met
        })
    }
}

/// As kubectl writes it.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, test } = self;
        match test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values.concat()),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Exists => f.write_str(key),
            Test::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selector(value: Value) -> Result<Selector, SelectorError> {
        Selector::new(&serde_json::from_value(value).expect("a LabelSelector"))
    }

    fn matches(value: Value, labels: &[(&str, &'static str)]) -> bool {
        let selector = selector(value).expect("a valid selector");
        selector.matches(|key| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value))
    }

    #[test]
    fn nothing_is_selected_by_nothing() {
        for label in [None, Some(""), Some("large")] {
            assert!(!Selector::nothing().matches(|_| label));
        }
    }

    #[test]
    fn every_operator_does_what_kubernetes_says() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "disk", "operator": operator, "values": values}]});
        for (selector, large, small, none) in [
            (json!({}), true, true, true),
            (json!({"matchLabels": {"disk": "large"}}), true, false, false),
            (expression("In", json!(["large", "huge"])), true, false, false),
            (expression("NotIn", json!(["large"])), false, true, true),
            (expression("Exists", json!([])), true, true, false),
            (expression("DoesNotExist", json!(null)), false, false, true),
        ] {
            let found = [&[("disk", "large")][..], &[("disk", "small")], &[("arch", "arm")]]
                .map(|labels| matches(selector.clone(), labels));
            assert_eq!(found, [large, small, none], "{selector}");
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        let both = json!({"matchLabels": {"disk": "large"}, "matchExpressions": [{"key": "arch", "operator": "NotIn", "values": ["arm"]}]});
        assert!(matches(both.clone(), &[("disk", "large"), ("arch", "x86")]));
        assert!(!matches(both, &[("disk", "large"), ("arch", "arm")]));
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let wrong = json!({"matchLabels": {"a b": "x"}, "matchExpressions": [
            {"key": "c", "operator": "in", "values": ["x y"]}, {"key": "", "operator": "In"}]});
        let mut verdict = Verdict::default();
        check(&serde_json::from_value(wrong).expect("a LabelSelector"), "s", &mut verdict);
        let fields: Vec<&str> = verdict.errors.iter().map(|error| error.field.as_str()).collect();
        let expressions = ["[0].operator", "[0].values[0]", "[1].key", "[1].values"];
        let expected = expressions.map(|place| format!("s.matchExpressions{place}"));
        assert_eq!((fields[0], &fields[1..]), ("s.matchLabels", &expected.each_ref().map(String::as_str)[..]));
        assert_eq!(verdict.errors[1].text, "this is \"in\": use In, NotIn, Exists or DoesNotExist");
    }

    #[test]
    fn one_label_can_be_asked_about() {
        let both = selector(json!({"matchLabels": {"a": "1", "b": "2"}})).expect("a valid selector");
        assert!(both.about("a").matches(|key| (key == "a").then_some("1")));
        assert!(!both.matches(|key| (key == "a").then_some("1")));
    }

    #[test]
    fn the_first_thing_that_is_missing_is_told_as_kubectl_writes_it() {
        let expression = |operator: &str, values: Value| json!({"key": "disk", "operator": operator, "values": values});
        for (expression, told) in [
            (expression("In", json!(["large"])), "disk=large"),
            (expression("In", json!(["large", "huge"])), "disk in (large,huge)"),
            (expression("NotIn", json!(["small"])), "disk notin (small)"),
            (expression("DoesNotExist", json!(null)), "!disk"),
        ] {
            let exists = json!({"key": "disk", "operator": "Exists"});
            let selector = selector(json!({"matchExpressions": [exists, expression]})).expect("a valid selector");
            let unmet = |value| selector.unmet(|_| value).map(Requirement::to_string);
            assert_eq!(unmet(Some("small")).as_deref(), Some(told));
            assert_eq!(unmet(None).as_deref(), Some("disk"), "{told}");
        }
        assert_eq!(Selector::exactly("a", "b").unmet(|_| Some("b")), None);
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |operator: &str, values: Value| {
            let expressions = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": operator, "values": values}]});
            selector(expressions).expect_err("it is wrong").to_string()
        };
        assert_eq!(
            wrong("in", json!(["x"])),
            "matchExpressions[1].operator is \"in\": use In, NotIn, Exists or DoesNotExist"
        );
        assert_eq!(wrong("In", json!([])), "matchExpressions[1].values is empty: In needs at least one");
        assert_eq!(wrong("Exists", json!(["x"])), "matchExpressions[1].values must be empty for Exists");
    }
}

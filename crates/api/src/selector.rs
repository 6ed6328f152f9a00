//! Label selectors: read once, asked often.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A label selector that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// Why a label selector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that there is not.
    #[error("matchExpressions[{index}].operator is {operator:?}: use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Which expression.
        index: usize,
        /// The operator.
        operator: String,
    },
    /// `In` and `NotIn` need something to compare with.
    #[error("matchExpressions[{index}].values is empty: {operator} needs at least one")]
    NoValues {
        /// Which expression.
        index: usize,
        /// The operator.
        operator: String,
    },
    /// `Exists` and `DoesNotExist` compare with nothing.
    #[error("matchExpressions[{index}].values must be empty for {operator}")]
    Values {
        /// Which expression.
        index: usize,
        /// The operator.
        operator: String,
    },
}

impl Selector {
    /// Checks a selector. An empty one matches everything.
    pub fn new(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let labels = selector.match_labels.iter().flatten();
        let by_label = labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        let mut requirements: Vec<Requirement> = by_label.collect();
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let values = expression.values.clone().unwrap_or_default();
            let operator = expression.operator.clone();
            let test = match (operator.as_str(), values.is_empty()) {
                ("In", false) => Test::In(values),
                ("NotIn", false) => Test::NotIn(values),
                ("Exists", true) => Test::Exists,
                ("DoesNotExist", true) => Test::DoesNotExist,
                ("In" | "NotIn", true) => return Err(SelectorError::NoValues { index, operator }),
                ("Exists" | "DoesNotExist", false) => return Err(SelectorError::Values { index, operator }),
                _ => return Err(SelectorError::Operator { index, operator }),
            };
            requirements.push(Requirement { key: expression.key.clone(), test });
        }
        Ok(Self(requirements))
    }

    /// Whether something with these labels is selected; `label` gives the value of one.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|Requirement { key, test }| {
            let value = label(key);
            match test {
                Test::In(values) => value.is_some_and(|value| values.iter().any(|known| known == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|known| known != value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
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

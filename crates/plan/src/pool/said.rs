//! What annotations say of the rollouts of an application: its own before those of its replacement.

use dapple_api::pool::{
    BadRule, CONFIRM_REMOVAL, POOL_GRACE, ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_RESUMED, ROLLOUT_SKIP, Rules,
    SUSPEND_ANNOTATION, YurtAppConfigurationReplacement,
};
use jiff::Timestamp;

use super::object::{ApplicationObject, annotation_of};
use super::removal::{Confirmed, grace};

/// What annotations say.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// How pools are rolled out.
    pub rules: Rules,
    /// What cannot be understood of that: nothing is written until it can.
    pub wrong: Option<BadRule>,
    /// How long a workload outlives its pool, in seconds; nothing if that cannot be understood.
    pub grace: Option<i64>,
    /// Removals that somebody confirmed.
    pub confirmed: Confirmed,
    /// When somebody had a rollout go on.
    pub resumed: Option<Timestamp>,
    /// Whether the application or its replacement says that nothing is to be written.
    pub is_suspended: bool,
}

impl Said {
    /// What the annotations of an application and of its replacement say. Those about rollouts are taken from one object: the
    /// application, if it has any.
    pub fn of<'a>(own: impl Fn(&str) -> Option<&'a str>, replacement: impl Fn(&str) -> Option<&'a str>) -> Self {
        let says_itself = [ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_SKIP].iter().any(|key| own(key).is_some());
        let (rules, wrong) = match if says_itself { Rules::of(&own) } else { Rules::of(&replacement) } {
            Ok(rules) => (rules, None),
            Err(wrong) => (Rules::default(), Some(wrong)),
        };
        Self {
            rules,
            wrong,
            grace: grace(own(POOL_GRACE)).ok(),
            confirmed: Confirmed::new(own(CONFIRM_REMOVAL).unwrap_or_default()),
            resumed: own(ROLLOUT_RESUMED).and_then(|text| text.parse().ok()),
            is_suspended: [own(SUSPEND_ANNOTATION), replacement(SUSPEND_ANNOTATION)].contains(&Some("true")),
        }
    }

    /// What those of objects say.
    pub fn by(application: &ApplicationObject, replacement: Option<&YurtAppConfigurationReplacement>) -> Self {
        let of_replacement = replacement.and_then(|known| known.metadata.annotations.as_ref());
        Self::of(|key| application.annotation(key), |key| annotation_of(of_replacement, key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::object::tests::{replacement, set};
    use super::*;

    #[test]
    fn the_application_has_the_word_and_else_its_replacement() {
        let with = |annotations| replacement("r", None, json!({"metadata": {"name": "r", "annotations": annotations}}));
        let of_replacement = with(json!({"dapple.dev/rollout-max": "3", "dapple.dev/rollout-skip": "a"}));
        let silent = set(&["a"], json!({}), json!({}));
        let said = Said::by(&silent, Some(&of_replacement));
        assert_eq!((said.rules.budget(20, true), said.rules.skip.len()), (3, 1));
        let speaks = set(&["a"], json!({"annotations": {"dapple.dev/rollout-max": "5"}}), json!({}));
        let said = Said::by(&speaks, Some(&of_replacement));
        assert_eq!((said.rules.budget(20, true), said.rules.skip.len()), (5, 0), "one object has all of it");
        assert!(Said::by(&silent, Some(&with(json!({"dapple.dev/suspend": "true"})))).is_suspended);
        assert!(!Said::by(&silent, Some(&with(json!({"dapple.dev/suspend": "yes"})))).is_suspended);
    }

    #[test]
    fn what_cannot_be_understood_is_told() {
        let of = |key: &str, text: &str| Said::by(&set(&["a"], json!({"annotations": {key: text}}), json!({})), None);
        assert!(of("dapple.dev/rollout-max", "many").wrong.is_some());
        assert_eq!(of("dapple.dev/pool-grace", "soon").grace, None);
        assert_eq!(of("dapple.dev/rollout-resumed", "soon").resumed, None);
        let said = of("dapple.dev/rollout-resumed", "2026-11-15T10:00:00Z");
        assert_eq!((said.resumed, said.grace), (Some("2026-11-15T10:00:00Z".parse().unwrap()), Some(300)));
    }
}

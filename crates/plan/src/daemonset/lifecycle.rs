//! Hooks that hold a pod until somebody has let go of it, as OpenKruise has them.
//!
//! Whoever wants to be asked before a pod goes, or is changed where it runs, puts a label or a finalizer on it. Its state
//! says what it is held for; once the label or finalizer is gone, what is to happen happens.

use dapple_api::daemonset::{DaemonSetSpec, LifecycleHook, RollingUpdateType};
use serde_json::{Value, json};

use super::inplace::{self, exactly};

/// The label that says what a pod is held for.
pub const STATE_LABEL: &str = "lifecycle.apps.kruise.io/state";

/// The annotation that says since when.
pub const TIMESTAMP_ANNOTATION: &str = "lifecycle.apps.kruise.io/timestamp";

/// The readiness gate that is closed while a hook with `markPodNotReady` holds a pod.
pub const NOT_READY_GATE: &str = "KruisePodReady";

/// What a pod is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum State {
    /// Nothing: it serves.
    Normal,
    /// It is to be changed where it runs, once it is let go.
    PreparingUpdate,
    /// It is being changed.
    Updating,
    /// It has been changed, and serves again once it is held as before.
    Updated,
    /// It is to be deleted, once it is let go.
    PreparingDelete,
    /// It does not say, or says something unknown.
    #[default]
    Unknown,
}

impl State {
    const KNOWN: [Self; 5] =
        [Self::Normal, Self::PreparingUpdate, Self::Updating, Self::Updated, Self::PreparingDelete];

    /// Reads the label.
    pub fn parse(label: Option<&str>) -> Self {
        Self::KNOWN.into_iter().find(|state| label == Some(state.name())).unwrap_or_default()
    }

    /// The label's value; empty where there is none.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::PreparingUpdate => "PreparingUpdate",
            Self::Updating => "Updating",
            Self::Updated => "Updated",
            Self::PreparingDelete => "PreparingDelete",
            Self::Unknown => "",
        }
    }
}

/// Whether the hook holds a pod: it has one of the hook's labels with its value, or one of its finalizers. A pod that is
/// to be deleted or changed waits while this is so.
pub fn is_held<'a>(
    hook: &LifecycleHook,
    label: impl Fn(&str) -> Option<&'a str>,
    finalizers: &[impl AsRef<str>],
) -> bool {
    holds(hook, label, finalizers).any(|holds| holds)
}

/// Whether everything of the hook holds a pod. One that has been changed serves again once this is so. A hook without
/// labels and finalizers has nothing to wait for.
pub fn is_fully_held<'a>(
    hook: &LifecycleHook,
    label: impl Fn(&str) -> Option<&'a str>,
    finalizers: &[impl AsRef<str>],
) -> bool {
    holds(hook, label, finalizers).all(|holds| holds)
}

/// Of each label and finalizer of a hook, whether the pod has it.
fn holds<'a>(
    hook: &LifecycleHook,
    label: impl Fn(&str) -> Option<&'a str>,
    finalizers: &[impl AsRef<str>],
) -> impl Iterator<Item = bool> {
    let labels = hook.labels_handler.iter().flatten().map(move |(key, value)| label(key) == Some(value));
    let wanted = hook.finalizers_handler.iter().flatten();
    labels.chain(wanted.map(|name| finalizers.iter().any(|known| known.as_ref() == name)))
}

/// The merge patch that sets a pod's state. It does nothing to another pod of that name, nor to one that has changed
/// since.
pub fn mark(state: State, uid: &str, version: u64, now: &str) -> Value {
    let value = |text: &str| if state == State::Unknown { Value::Null } else { json!(text) };
    let mut metadata = exactly(uid, version);
    metadata.insert("labels".to_owned(), json!({STATE_LABEL: value(state.name())}));
    metadata.insert("annotations".to_owned(), json!({TIMESTAMP_ANNOTATION: value(now)}));
    json!({"metadata": metadata})
}

/// The readiness gates that pods of a DaemonSet need from the start: a pod cannot be given one later.
pub fn gates(spec: &DaemonSetSpec) -> Vec<&'static str> {
    let is_in_place = spec.rolling_update().rolling_update_type() == RollingUpdateType::InPlaceIfPossible;
    let hooks = spec.lifecycle.iter().flat_map(|hooks| [&hooks.pre_delete, &hooks.in_place_update]).flatten();
    let marks = hooks.into_iter().any(|hook| hook.mark_pod_not_ready == Some(true));
    let gates = [(inplace::GATE, is_in_place), (NOT_READY_GATE, marks)];
    gates.into_iter().filter(|(_, is_needed)| *is_needed).map(|(gate, _)| gate).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn hook(labels: &[(&str, &str)], finalizers: &[&str]) -> LifecycleHook {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        LifecycleHook {
            labels_handler: Some(labels.collect()),
            finalizers_handler: Some(finalizers.iter().map(|name| (*name).to_owned()).collect()),
            mark_pod_not_ready: None,
        }
    }

    fn held(hook: &LifecycleHook, labels: &[(&str, &str)], finalizers: &[&str]) -> (bool, bool) {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let label = |key: &str| labels.get(key).copied();
        (is_held(hook, label, finalizers), is_fully_held(hook, label, finalizers))
    }

    #[test]
    fn one_label_or_finalizer_holds_and_all_hold_fully() {
        let both = hook(&[("hold", "yes"), ("drain", "")], &["example.com/f"]);
        for (labels, finalizers, expected) in [
            (&[][..], &[][..], (false, false)),
            (&[("hold", "no")], &["example.com/g"], (false, false)),
            (&[("hold", "yes")], &[], (true, false)),
            (&[("drain", "")], &[], (true, false)),
            (&[], &["example.com/f"], (true, false)),
            (&[("hold", "yes"), ("drain", "")], &["x", "example.com/f"], (true, true)),
        ] {
            assert_eq!(held(&both, labels, finalizers), expected, "{labels:?} {finalizers:?}");
        }
        assert_eq!(held(&LifecycleHook::default(), &[("hold", "yes")], &["x"]), (false, true), "nothing to wait for");
    }

    #[test]
    fn states_are_read_as_they_are_written() {
        for state in State::KNOWN {
            assert_eq!(State::parse(Some(state.name())), state);
            let patch = mark(state, "u", 7, "2026-11-15T03:53:16Z");
            let written = json!({"uid": "u", "resourceVersion": "7", "labels": {STATE_LABEL: state.name()},
                "annotations": {TIMESTAMP_ANNOTATION: "2026-11-15T03:53:16Z"}});
            assert_eq!(patch, json!({"metadata": written}));
        }
        for label in [None, Some(""), Some("normal"), Some("PreparingNormal")] {
            assert_eq!(State::parse(label), State::Unknown);
        }
        let cleared = &mark(State::Unknown, "u", 7, "now")["metadata"];
        assert_eq!(
            (&cleared["labels"][STATE_LABEL], &cleared["annotations"][TIMESTAMP_ANNOTATION]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn pods_get_the_gates_that_will_be_closed() {
        let gates = |strategy: Value, lifecycle: Value| {
            let spec = json!({"selector": {}, "template": {}, "lifecycle": lifecycle, "updateStrategy": strategy});
            gates(&serde_json::from_value(spec).unwrap())
        };
        let in_place = json!({"rollingUpdate": {"rollingUpdateType": "InPlaceIfPossible"}});
        let marks = |marks: bool| json!({"labelsHandler": {"a": "b"}, "markPodNotReady": marks});
        assert_eq!(gates(json!({}), Value::Null), Vec::<&str>::new());
        assert_eq!(gates(json!({}), json!({"preDelete": marks(false)})), Vec::<&str>::new());
        assert_eq!(gates(in_place.clone(), json!({})), ["InPlaceUpdateReady"]);
        assert_eq!(gates(json!({}), json!({"preDelete": marks(true)})), ["KruisePodReady"]);
        assert_eq!(gates(in_place, json!({"inPlaceUpdate": marks(true)})), ["InPlaceUpdateReady", "KruisePodReady"]);
    }

    proptest! {
        /// What is held fully is held, unless the hook has nothing; and taking everything away lets go.
        #[test]
        fn held_fully_is_held(wanted in prop::collection::btree_map("[ab]", "[xy]", 0..3), has in prop::collection::btree_map("[ab]", "[xy]", 0..3),
            wanted_names in prop::collection::vec("[cd]", 0..3), names in prop::collection::vec("[cd]", 0..3)) {
            let is_empty = wanted.is_empty() && wanted_names.is_empty();
            let hook = LifecycleHook { labels_handler: Some(wanted), finalizers_handler: Some(wanted_names), mark_pod_not_ready: None };
            let label = |key: &str| has.get(key).map(String::as_str);
            prop_assert!(is_empty || !is_fully_held(&hook, label, &names) || is_held(&hook, label, &names));
            prop_assert!(!is_held(&hook, |_| None, &[""; 0]));
        }
    }
}

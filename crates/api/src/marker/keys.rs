//! Keys that no marker sets.

use super::MARKED_BY_ANNOTATION;

/// Why a key is none that a marker sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// dapple keeps its records there.
    ForDapple,
    /// Controllers know their pods by it.
    ForControllers,
}

/// Keys by which controllers know their pods.
const KEYS: [&str; 5] =
    ["pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid", "job-name"];

/// What more such keys begin with.
const BEGINNINGS: [&str; 6] = [
    "kubernetes.io/config.",
    "statefulset.kubernetes.io/",
    "apps.kubernetes.io/",
    "batch.kubernetes.io/",
    "apps.kruise.io/",
    "lifecycle.apps.kruise.io/",
];

/// Why no marker sets this key, as a label or as an annotation; nothing if one may.
pub fn reserved(key: &str) -> Option<Reserved> {
    let (domain, _) = key.split_once('/').unwrap_or_default();
    if domain == "dapple.dev" || domain.ends_with(".dapple.dev") || key == MARKED_BY_ANNOTATION {
        return Some(Reserved::ForDapple);
    }
    let is_known = KEYS.contains(&key) || BEGINNINGS.iter().any(|begin| key.starts_with(begin));
    is_known.then_some(Reserved::ForControllers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_dapple_and_of_controllers_are_no_marks() {
        for key in ["dapple.dev/marks", "group.dapple.dev/east", MARKED_BY_ANNOTATION] {
            assert_eq!(reserved(key), Some(Reserved::ForDapple), "{key}");
        }
        for key in [
            "pod-template-hash",
            "controller-revision-hash",
            "pod-template-generation",
            "controller-uid",
            "job-name",
            "kubernetes.io/config.hash",
            "statefulset.kubernetes.io/pod-name",
            "apps.kubernetes.io/pod-index",
            "batch.kubernetes.io/job-name",
            "apps.kruise.io/anything",
            "lifecycle.apps.kruise.io/state",
        ] {
            assert_eq!(reserved(key), Some(Reserved::ForControllers), "{key}");
        }
    }

    #[test]
    fn all_other_keys_may_be_marks() {
        for key in [
            "upgradeStrategy",
            "kruise.io/other",
            "controller.kubernetes.io/pod-deletion-cost",
            "kubernetes.io/name",
            "notdapple.dev/a",
            "apps.kruise.io",
        ] {
            assert_eq!(reserved(key), None, "{key}");
        }
    }
}

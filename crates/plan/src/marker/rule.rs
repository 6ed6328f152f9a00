//! What a PodMarker asks for, read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::marker::{
    ConflictPolicy, MarkItems, MatchPreference, MatchRequirements, PodMarker, PodProbeRequirement, ProbeExpectation,
    reserved,
};
use dapple_api::metadata::SUSPEND_ANNOTATION;
use dapple_api::selector::{Selector, SelectorError};
use dapple_api::syntax;
use dapple_edit::marker::wanted;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::probe;

/// The markers of a namespace that can be used, by name.
pub type Rules = BTreeMap<Arc<str>, Arc<Rule>>;

/// So many preferences count: no more may be given.
pub const PREFERENCES: usize = 31;

/// Who is older: by creation, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// When the marker was made, in seconds since 1970. One that is made again under its name is young.
    pub created: i64,
    /// Its name.
    pub name: Arc<str>,
}

/// What a marker asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name, and how old it is.
    pub age: Age,
    /// Whether nothing is to be changed by it.
    pub is_suspended: bool,
    /// How many pods are to be marked.
    pub replicas: Replicas,
    /// What becomes of pods that have another value.
    pub policy: ConflictPolicy,
    /// What they are marked with.
    pub items: MarkItems,
    /// Which labels pods must have.
    pub pods: Selector,
    /// Which labels their nodes must have.
    pub nodes: Option<Selector>,
    /// Which probes must have which result.
    pub probes: Vec<ProbeRequirement>,
    /// Which pods come first.
    pub preferences: Vec<Preference>,
}

/// How many pods are to be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// All that match.
    All,
    /// So many.
    Count(usize),
    /// So many in a hundred of those that match, rounded up.
    Percent(usize),
}

/// A probe that must have a result in some containers, in each of them.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRequirement {
    /// The containers, each with the name of the probe there.
    pub asked: Vec<Asked>,
    /// The probe, with defaults filled in.
    pub probe: Value,
    /// The port that it names, if it does.
    pub port: Option<Arc<str>>,
    /// Whether it must succeed; else it must fail.
    pub must_succeed: bool,
}

/// A probe of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The container.
    pub container: Arc<str>,
    /// The probe's name.
    pub name: Arc<str>,
}

/// What makes a pod preferred: all that is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preference {
    /// Whether it is ready.
    pub is_ready: Option<bool>,
    /// Which labels it has.
    pub pods: Option<Selector>,
    /// Which labels its node has.
    pub nodes: Option<Selector>,
}

/// Why a marker cannot be used. Admission refuses such markers; one that is there all the same changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A selector is wrong.
    #[error("{field}.{source}")]
    Selector {
        /// Which.
        field: String,
        /// What is wrong with it.
        source: SelectorError,
    },
    /// A number is wrong.
    #[error("spec.strategy.replicas: {0}")]
    Replicas(String),
    /// There is nothing to set.
    #[error("spec.markItems: name at least one label or annotation to set")]
    NoItems,
    /// No marker sets this key.
    #[error("spec.markItems: {0:?} must not be set by a marker")]
    Key(String),
    /// A probe of nothing.
    #[error("{0}.containers: name at least one container to probe")]
    NoContainers(String),
    /// A probe that does nothing, or several things.
    #[error("{0}.probe: it must have exactly one of exec, httpGet, tcpSocket and grpc")]
    Probe(String),
}

impl Rule {
    /// Of a PodMarker.
    pub fn of(marker: &PodMarker) -> Result<Self, Unusable> {
        let (metadata, spec) = (&marker.metadata, &marker.spec);
        let none = MatchRequirements::default();
        let requirements = spec.match_requirements.as_ref().unwrap_or(&none);
        let field = "spec.matchRequirements";
        let every = LabelSelector::default();
        let pods = requirements.pod_selector.as_ref().unwrap_or(&every);
        let probes = requirements.pod_probes.iter().enumerate();
        let preferences = spec.match_preferences.iter().take(PREFERENCES).enumerate();
        let suspend = metadata.annotations.as_ref().and_then(|known| known.get(SUSPEND_ANNOTATION));
        Ok(Self {
            age: Age {
                created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
                name: Arc::from(metadata.name.as_deref().unwrap_or_default()),
            },
            is_suspended: suspend.is_some_and(|said| said == "true"),
            replicas: Replicas::of(spec.replicas()).map_err(Unusable::Replicas)?,
            policy: spec.conflict_policy(),
            items: usable_items(&spec.mark_items)?,
            pods: selector(pods, &format!("{field}.podSelector"))?,
            nodes: optional(requirements.node_selector.as_ref(), &format!("{field}.nodeSelector"))?,
            probes: probes
                .map(|(index, probe)| ProbeRequirement::of(probe, &format!("{field}.podProbes[{index}]")))
                .collect::<Result<_, _>>()?,
            preferences: preferences
                .map(|(index, preference)| Preference::of(preference, &format!("spec.matchPreferences[{index}]")))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.age.name
    }
}

fn selector(given: &LabelSelector, field: &str) -> Result<Selector, Unusable> {
    Selector::new(given).map_err(|source| Unusable::Selector { field: field.to_owned(), source })
}

fn optional(given: Option<&LabelSelector>, field: &str) -> Result<Option<Selector>, Unusable> {
    given.map(|given| selector(given, field)).transpose()
}

fn usable_items(items: &MarkItems) -> Result<MarkItems, Unusable> {
    if wanted(items).next().is_none() {
        return Err(Unusable::NoItems);
    }
    match wanted(items).find(|(_, key, _)| reserved(key).is_some()) {
        Some((_, key, _)) => Err(Unusable::Key(key.to_owned())),
        None => Ok(items.clone()),
    }
}

impl Replicas {
    /// As it is given; none given means all.
    fn of(given: Option<&IntOrString>) -> Result<Self, String> {
        let Some(given) = given else { return Ok(Self::All) };
        syntax::count_or_percent(given)?;
        let read = match given {
            IntOrString::Int(count) => usize::try_from(*count).ok().map(Self::Count),
            // All of them, whatever comes and goes.
            IntOrString::String(text) if text == "100%" => Some(Self::All),
            IntOrString::String(text) => {
                text.strip_suffix('%').and_then(|digits| digits.parse().ok()).map(Self::Percent)
            }
        };
        read.ok_or_else(|| "it is no number that can be used".to_owned())
    }

    /// How many pods are to be marked, of so many that match: never more than these.
    #[must_use]
    pub fn desired(self, matched: usize) -> usize {
        match self {
            Self::All => matched,
            Self::Count(count) => count.min(matched),
            Self::Percent(percent) => matched.saturating_mul(percent).div_ceil(100),
        }
    }

    /// Whether all marks are to go.
    #[must_use]
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

impl ProbeRequirement {
    fn of(requirement: &PodProbeRequirement, field: &str) -> Result<Self, Unusable> {
        if requirement.containers.is_empty() {
            return Err(Unusable::NoContainers(field.to_owned()));
        }
        let probe = probe::filled(&requirement.probe.0).ok_or_else(|| Unusable::Probe(field.to_owned()))?;
        let asked = requirement.containers.iter().map(|container| Asked {
            container: Arc::from(container.name.as_str()),
            name: probe::name(&container.name, &probe),
        });
        Ok(Self {
            asked: asked.collect(),
            port: probe::named_port(&probe).map(Arc::from),
            must_succeed: requirement.expectation() == ProbeExpectation::Succeeded,
            probe,
        })
    }
}

impl Preference {
    fn of(preference: &MatchPreference, field: &str) -> Result<Self, Unusable> {
        Ok(Self {
            is_ready: preference.pod_ready,
            pods: optional(preference.pod_selector.as_ref(), &format!("{field}.podSelector"))?,
            nodes: optional(preference.node_selector.as_ref(), &format!("{field}.nodeSelector"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(spec: Value) -> Result<Rule, Unusable> {
        let metadata = json!({"name": "m", "creationTimestamp": "1970-01-01T00:01:40Z"});
        let marker =
            json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodMarker", "metadata": metadata, "spec": spec});
        Rule::of(&serde_json::from_value(marker).expect("a PodMarker"))
    }

    fn with(key: &str, value: Value) -> Value {
        let mut spec = json!({"markItems": {"labels": {"a": "1"}}});
        spec[key] = value;
        spec
    }

    #[test]
    fn without_anything_all_pods_of_the_namespace_match() {
        let rule = rule(json!({"markItems": {"labels": {"a": "1"}}})).expect("usable");
        assert_eq!((rule.replicas, rule.policy), (Replicas::All, ConflictPolicy::Ignore));
        assert!(rule.pods.matches(|_| None) && rule.nodes.is_none() && rule.probes.is_empty());
        assert_eq!((rule.age.created, rule.name(), rule.is_suspended), (100, "m", false));
    }

    #[test]
    fn either_spelling_of_the_policy_is_read() {
        for spelling in ["conflictPolicy", "confilctPolicy"] {
            let rule = rule(with("strategy", json!({spelling: "Overwrite"}))).expect("usable");
            assert_eq!(rule.policy, ConflictPolicy::Overwrite, "{spelling}");
        }
    }

    #[test]
    fn numbers_and_percentages_of_those_that_match() {
        let replicas = |given: Value| rule(with("strategy", json!({"replicas": given}))).map(|rule| rule.replicas);
        assert_eq!(replicas(json!(10)), Ok(Replicas::Count(10)));
        assert_eq!(replicas(json!("50%")), Ok(Replicas::Percent(50)));
        assert_eq!(replicas(json!("100%")), Ok(Replicas::All));
        for wrong in [json!(-1), json!("101%"), json!("-5%"), json!("half")] {
            assert!(matches!(replicas(wrong.clone()), Err(Unusable::Replicas(_))), "{wrong}");
        }
        for (replicas, matched, desired) in [
            (Replicas::All, 7, 7),
            (Replicas::Count(10), 7, 7),
            (Replicas::Count(3), 7, 3),
            (Replicas::Percent(50), 7, 4),
            (Replicas::Percent(1), 7, 1),
            (Replicas::Percent(1), 0, 0),
            (Replicas::Percent(0), 7, 0),
            (Replicas::Percent(99), 100, 99),
        ] {
            assert_eq!(replicas.desired(matched), desired, "{replicas:?} of {matched}");
        }
        assert!(Replicas::Count(0).is_zero() && Replicas::Percent(0).is_zero());
        assert!(!Replicas::All.is_zero() && !Replicas::Count(1).is_zero());
    }

    #[test]
    fn probes_are_asked_of_each_container_by_names_of_their_own() {
        let probe = json!({"containers": [{"name": "a"}, {"name": "b"}], "probe": {"httpGet": {"port": "web"}},
            "expectation": "failed"});
        let rule = rule(with("matchRequirements", json!({"podProbes": [probe]}))).expect("usable");
        let required = &rule.probes[0];
        let containers: Vec<&str> = required.asked.iter().map(|asked| &*asked.container).collect();
        assert_eq!((containers, required.port.as_deref(), required.must_succeed), (vec!["a", "b"], Some("web"), false));
        assert_ne!(required.asked[0].name, required.asked[1].name);
        assert_eq!(required.probe["periodSeconds"], 10);
    }

    #[test]
    fn one_that_cannot_be_used_says_why() {
        let select = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
        let probe =
            |containers: Value, probe: Value| json!({"podProbes": [{"containers": containers, "probe": probe}]});
        for (spec, told) in [
            (
                with("matchRequirements", json!({"podSelector": select})),
                "spec.matchRequirements.podSelector.matchExpressions[0]",
            ),
            (
                with("matchPreferences", json!([{"nodeSelector": select}])),
                "spec.matchPreferences[0].nodeSelector.matchExp",
            ),
            (
                with("matchRequirements", probe(json!([]), json!({"exec": {}}))),
                "podProbes[0].containers: name at least one",
            ),
            (
                with("matchRequirements", probe(json!([{"name": "c"}]), json!({}))),
                "podProbes[0].probe: it must have exactly",
            ),
            (json!({"markItems": {}}), "spec.markItems: name at least one"),
            (json!({"markItems": {"labels": {"pod-template-hash": "a"}}}), "\"pod-template-hash\" must not be set"),
            (json!({"markItems": {"annotations": {"dapple.dev/marks": "a"}}}), "\"dapple.dev/marks\" must not be set"),
        ] {
            let why = rule(spec).expect_err(told).to_string();
            assert!(why.contains(told), "{why}");
        }
    }

    #[test]
    fn the_older_is_the_one_that_was_made_first_then_by_name() {
        let age = |created, name: &str| Age { created, name: Arc::from(name) };
        assert!(age(1, "z") < age(2, "a") && age(1, "a") < age(1, "b"));
    }

    #[test]
    fn an_annotation_suspends_it() {
        let mut marker = json!({"metadata": {"name": "m", "annotations": {"dapple.dev/suspend": "true"}},
            "spec": {"markItems": {"labels": {"a": "1"}}}});
        let read = |marker: &Value| {
            Rule::of(&serde_json::from_value(marker.clone()).expect("a PodMarker")).expect("usable").is_suspended
        };
        assert!(read(&marker));
        marker["metadata"]["annotations"]["dapple.dev/suspend"] = json!("yes");
        assert!(!read(&marker));
    }
}

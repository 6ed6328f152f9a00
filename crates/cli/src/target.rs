//! Naming a workload on the command line: `daemonset/agent`.

use std::sync::LazyLock;

use anyhow::{Context, anyhow, bail};
use dapple_api::kinds::{self, Name, OwnKind};
use dapple_plan::variant::{ObjectName, Plan, Variant};
use dapple_plan::world::kind_name;

/// What kubectl users call the kinds that are planned: the kind, as plans name it, and words in lower case.
static KINDS: LazyLock<Vec<(String, Vec<String>)>> = LazyLock::new(|| {
    let mut own =
        kinds::OWN.into_iter().filter(|own| own.is_workload).map(|own| (own.at.kind.to_owned(), own_words(own)));
    let native = kinds::NATIVE.iter().map(|native| {
        let kind = kind_name(&format!("{}/{}", native.at.group, native.at.version), native.at.kind);
        let group = if kind == native.at.kind { String::new() } else { format!(".{}", native.at.group) };
        (kind, words(native.at.kind, native.at.plural, native.short_names, &group))
    });
    let first = own.next();
    first.into_iter().chain(native).chain(own).collect()
});

fn words(kind: &str, plural: &str, short_names: &[&str], group: &str) -> Vec<String> {
    let all = [kind.to_lowercase(), plural.to_owned()].into_iter().chain(short_names.iter().map(ToString::to_string));
    all.map(|word| word + group).collect()
}

/// What people call a kind of ours.
fn own_words(own: &OwnKind) -> Vec<String> {
    let mut words = words(own.at.kind, own.at.plural, own.short_names, "");
    // Of two kinds of one name, the plain words are ours.
    let native = kinds::NATIVE.iter().find(|native| native.at.kind == own.at.kind);
    words.extend(native.iter().flat_map(|native| native.short_names).map(ToString::to_string));
    words.push(own.crd());
    words
}

/// Kinds that `get` shows.
const SHOWN: [Name; 6] =
    [Name::DaemonSet, Name::PodMarker, Name::NodePool, Name::YurtAppSet, Name::YurtAppDaemon, Name::Replacement];

/// Kinds whose rollouts are followed and steered.
const ROLLED: [Name; 3] = [Name::DaemonSet, Name::YurtAppSet, Name::YurtAppDaemon];

/// A kind and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A workload.
    Workload { kind: &'static str, name: String },
    /// A pod that runs.
    Pod(String),
    /// A PodMarker.
    Marker(String),
}

impl Target {
    /// What one word or two name: `daemonset/agent`, or `daemonset agent`.
    pub(crate) fn of(words: &[String]) -> anyhow::Result<Self> {
        let text = match words {
            [both] => both.clone(),
            [kind, name] if !kind.contains('/') && !name.contains('/') => format!("{kind}/{name}"),
            _ => bail!("write it as KIND/NAME, or KIND NAME, such as daemonset/agent"),
        };
        text.parse().map_err(|error: String| anyhow!(error))
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once('/').ok_or("write it as KIND/NAME, such as daemonset/agent")?;
        let (kind, name) = (kind.to_lowercase(), name.to_owned());
        if name.is_empty() {
            return Err("the name is missing: write KIND/NAME, such as daemonset/agent".to_owned());
        }
        if ["pod", "pods", "po"].contains(&kind.as_str()) {
            return Ok(Self::Pod(name));
        }
        if own_words(&kinds::POD_MARKER).contains(&kind) {
            return Ok(Self::Marker(name));
        }
        match kind_of(&kind) {
            Some(kind) => Ok(Self::Workload { kind, name }),
            None => Err(format!(
                "{kind:?} is no kind that is planned: use {}",
                KINDS.iter().map(|(_, words)| words[0].as_str()).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

/// The kind that a word in lower case stands for.
fn kind_of(word: &str) -> Option<&'static str> {
    KINDS.iter().find(|(_, words)| words.iter().any(|known| known == word)).map(|(kind, _)| kind.as_str())
}

/// What one word or two name to be shown: `daemonset/agent`, `daemonset agent`, or `daemonset` for all there are.
pub(crate) fn shown(words: &[String]) -> anyhow::Result<(&'static OwnKind, Option<String>)> {
    one_of(&SHOWN, words)
}

/// What one word or two name to be rolled out: `daemonset/agent`, or `daemonset agent`.
pub(crate) fn rolled(words: &[String]) -> anyhow::Result<(&'static OwnKind, String)> {
    let (own, name) = one_of(&ROLLED, words)?;
    let name = name.with_context(|| format!("say which one: {}/NAME", own.at.kind.to_lowercase()))?;
    Ok((own, name))
}

/// A kind, one of these, and the name if there is one.
fn one_of(among: &[Name], words: &[String]) -> anyhow::Result<(&'static OwnKind, Option<String>)> {
    let (kind, name) = match words {
        [both] => both.split_once('/').map_or((both.as_str(), None), |(kind, name)| (kind, Some(name))),
        [kind, name] if !kind.contains('/') && !name.contains('/') => (kind.as_str(), Some(name.as_str())),
        _ => bail!("write it as KIND/NAME, or KIND NAME, such as daemonset/NAME"),
    };
    let word = kind.to_lowercase();
    if kind_of(&word) == Some("DaemonSet.apps") {
        bail!("{kind} is Kubernetes' own kind: use kubectl; dapple looks after daemonsets.apps.kruise.io");
    }
    let known = kinds::OWN.into_iter().filter(|own| among.contains(&own.name));
    let known: Vec<String> = known.map(|own| format!("{}/NAME", own.at.kind.to_lowercase())).collect();
    let known = known.join(", ");
    match kinds::OWN.into_iter().find(|own| SHOWN.contains(&own.name) && own_words(own).contains(&word)) {
        None => bail!("{kind:?} is not served here: use one of {known}"),
        Some(own) if !among.contains(&own.name) => bail!("{}s are not rolled out: use one of {known}", own.at.kind),
        Some(own) if name.is_some_and(str::is_empty) => {
            bail!("the name is missing: write {}/NAME", own.at.kind.to_lowercase())
        }
        Some(own) => Ok((own, name.map(str::to_owned))),
    }
}

const LABELS: &str = " (rules concern Kubernetes' own workloads if they have the label \
                      groupmanagement.kubeedge.io/required-overridepolicy or required-propagationpolicy)";

/// The plan of a workload.
pub(crate) fn plan_of<'a>(plans: &'a [Plan], object: &ObjectName) -> anyhow::Result<&'a Plan> {
    let known = || plans.iter().map(|plan| plan.object.to_string()).collect::<Vec<_>>().join(", ");
    plans.iter().find(|plan| plan.object == *object).ok_or_else(|| {
        if plans.is_empty() {
            anyhow!("there is no {object} that a rule concerns, nor any other workload{LABELS}")
        } else {
            anyhow!("there is no {object} that a rule concerns; there is {}{LABELS}", known())
        }
    })
}

/// The variant that a node gets.
pub(crate) fn variant_of<'a>(plan: &'a Plan, node: &str) -> anyhow::Result<&'a Variant> {
    if let Some(variant) = plan.variants.iter().find(|variant| variant.nodes.iter().any(|name| name == node)) {
        return Ok(variant);
    }
    for variant in &plan.variants {
        if let Some((_, misfit)) = variant.misfits.iter().find(|(name, _)| name == node) {
            bail!("{} does not run on the node {node:?}: {misfit}", plan.object);
        }
    }
    bail!("{} has nothing for the node {node:?}: there is no such node, or it is in none of its places", plan.object)
}

/// The variant that a pod on a node belongs to, even if no other could start there today. A node in several groups may
/// get several: the pod's group says which.
pub(crate) fn variant_of_pod<'a>(plan: &'a Plan, node: &str, group: Option<&str>) -> anyhow::Result<&'a Variant> {
    let place = group.map(|group| format!("group {group}"));
    let is_there = |variant: &&Variant| {
        variant.nodes.iter().any(|name| name == node) || variant.misfits.iter().any(|(name, _)| name == node)
    };
    let found: Vec<&Variant> = plan.variants.iter().filter(is_there).collect();
    let is_its_own = |variant: &&&Variant| place.as_ref().is_some_and(|place| variant.places.contains(place));
    match found.iter().find(is_its_own).or(found.first()) {
        Some(variant) => Ok(variant),
        None => variant_of(plan, node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_named_by_one_word_or_two() {
        let of = |words: &[&str]| shown(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        for words in [&["ds/a"][..], &["daemonset", "a"], &["ADS", "a"], &["daemonsets.apps.kruise.io/a"]] {
            let (own, name) = of(words).unwrap();
            assert_eq!((own.name, name.as_deref()), (Name::DaemonSet, Some("a")), "{words:?}");
        }
        assert_eq!(of(&["ds"]).unwrap().1, None);
        for (word, kind) in [
            ("podmarker", Name::PodMarker),
            ("pmark", Name::PodMarker),
            ("np", Name::NodePool),
            ("nodepools", Name::NodePool),
            ("yas", Name::YurtAppSet),
            ("YurtAppDaemon", Name::YurtAppDaemon),
            ("yacr", Name::Replacement),
            ("yurtappconfigurationreplacements.apps.openyurt.io", Name::Replacement),
        ] {
            assert_eq!(of(&[word]).unwrap().0.name, kind, "{word}");
        }
        for (words, part) in [
            (&["ds/"][..], "name is missing"),
            (&["ds", ""], "name is missing"),
            (&["ds/a", "b"], "daemonset/NAME"),
            (&["ds", "a/b"], "daemonset/NAME"),
            (&["ds.apps/a"], "use kubectl"),
            (&["deploy/a"], "not served"),
            (&["agent"], "not served"),
        ] {
            assert!(of(words).unwrap_err().to_string().contains(part), "{words:?}");
        }
    }

    #[test]
    fn what_is_rolled_out_has_a_name() {
        let of = |words: &[&str]| rolled(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            of(&["yad/logs"]).map(|(own, name)| (own.name, name)).unwrap(),
            (Name::YurtAppDaemon, "logs".to_owned())
        );
        for (word, part) in [
            ("yas", "say which one: yurtappset/NAME"),
            (
                "np/beijing",
                "NodePools are not rolled out: use one of daemonset/NAME, yurtappset/NAME, yurtappdaemon/NAME",
            ),
            ("deploy/web", "not served here: use one of daemonset/NAME"),
            ("pmark/m", "PodMarkers are not rolled out"),
        ] {
            assert!(of(&[word]).unwrap_err().to_string().contains(part), "{word}");
        }
    }

    #[test]
    fn kinds_go_by_the_names_that_kubectl_users_know() {
        for text in ["ds/a", "DaemonSet/a", "ads/a", "daemonsets.apps.kruise.io/a"] {
            assert_eq!(text.parse(), Ok(Target::Workload { kind: "DaemonSet", name: "a".to_owned() }), "{text}");
        }
        assert_eq!("po/a".parse(), Ok(Target::Pod("a".to_owned())));
        for text in ["podmarker/a", "pmark/a", "PodMarkers/a", "podmarkers.apps.kruise.io/a"] {
            assert_eq!(text.parse(), Ok(Target::Marker("a".to_owned())), "{text}");
        }
        let words = |words: &[&str]| Target::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["podmarker", "a"]).unwrap(), Target::Marker("a".to_owned()));
        assert_eq!(words(&["ds/a"]).unwrap(), Target::Workload { kind: "DaemonSet", name: "a".to_owned() });
        for wrong in [&["ds/a", "b"][..], &["ds"], &["podmarker", ""]] {
            assert!(words(wrong).is_err(), "{wrong:?}");
        }
        for (text, part) in [("a", "KIND/NAME"), ("ds/", "name is missing"), ("service/a", "no kind that is planned")] {
            assert!(text.parse::<Target>().unwrap_err().contains(part), "{text}");
        }
    }
}

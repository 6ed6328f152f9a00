//! Naming a workload on the command line: `daemonset/agent`.

use std::sync::LazyLock;

use anyhow::{anyhow, bail};
use dapple_api::kinds;
use dapple_plan::variant::{ObjectName, Plan, Variant};
use dapple_plan::world::kind_name;

/// What kubectl users call the kinds that are planned: the kind, as plans name it, and words in lower case.
static KINDS: LazyLock<Vec<(String, Vec<String>)>> = LazyLock::new(|| {
    let mut own = kinds::OWN.into_iter().filter(|own| own.is_workload).map(|own| {
        let mut words = words(own.at.kind, own.at.plural, own.short_names, "");
        // Of two kinds of one name, the plain words are ours.
        let native = kinds::NATIVE.iter().find(|native| native.at.kind == own.at.kind);
        words.extend(native.iter().flat_map(|native| native.short_names).map(ToString::to_string));
        words.push(own.crd());
        (own.at.kind.to_owned(), words)
    });
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

/// A kind and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A workload.
    Workload { kind: &'static str, name: String },
    /// A pod that runs.
    Pod(String),
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

/// The DaemonSet that one word or two name: `daemonset/agent`, `daemonset agent`, or `daemonset` for all there are.
pub(crate) fn daemonset(words: &[String]) -> anyhow::Result<Option<String>> {
    let (kind, name) = match words {
        [both] => both.split_once('/').map_or((both.as_str(), None), |(kind, name)| (kind, Some(name))),
        [kind, name] if !kind.contains('/') && !name.contains('/') => (kind.as_str(), Some(name.as_str())),
        _ => bail!("write it as daemonset/NAME, or daemonset NAME"),
    };
    match kind_of(&kind.to_lowercase()) {
        Some("DaemonSet") if name.is_some_and(str::is_empty) => bail!("the name is missing: write daemonset/NAME"),
        Some("DaemonSet") => Ok(name.map(str::to_owned)),
        Some("DaemonSet.apps") => {
            bail!("{kind} is Kubernetes' own kind: use kubectl; dapple looks after daemonsets.apps.kruise.io")
        }
        _ => bail!("{kind:?} is not served here: use daemonset/NAME, a DaemonSet of apps.kruise.io/v1beta1"),
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
    fn a_daemonset_is_named_by_one_word_or_two() {
        let of = |words: &[&str]| daemonset(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        for words in [&["ds/a"][..], &["daemonset", "a"], &["ADS", "a"], &["daemonsets.apps.kruise.io/a"]] {
            assert_eq!(of(words).unwrap().as_deref(), Some("a"), "{words:?}");
        }
        assert_eq!(of(&["ds"]).unwrap(), None);
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
    fn kinds_go_by_the_names_that_kubectl_users_know() {
        for text in ["ds/a", "DaemonSet/a", "ads/a", "daemonsets.apps.kruise.io/a"] {
            assert_eq!(text.parse(), Ok(Target::Workload { kind: "DaemonSet", name: "a".to_owned() }), "{text}");
        }
        assert_eq!("po/a".parse(), Ok(Target::Pod("a".to_owned())));
        for (text, part) in [("a", "KIND/NAME"), ("ds/", "name is missing"), ("service/a", "no kind that is planned")] {
            assert!(text.parse::<Target>().unwrap_err().contains(part), "{text}");
        }
    }
}

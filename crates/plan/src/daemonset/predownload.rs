//! Pulling images to nodes before an update reaches them, as OpenKruise's annotations ask for it.
//!
//! Who pulls is another's matter: what is decided here is which image is wanted by the pods of which hashes, and the
//! ImagePullJob that asks OpenKruise's daemon for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::daemonset::DaemonSetSpec;
use dapple_edit::render::hash;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::order::budget;
use super::pod::{HASH_LABEL, owner};

/// How many nodes pull at once. Without it, nothing is pulled beforehand.
pub const PARALLELISM: &str = "apps.kruise.io/image-predownload-parallelism";
/// How long one pull may take, in seconds.
pub const TIMEOUT: &str = "apps.kruise.io/image-predownload-timeout-seconds";
/// How many pods must be updated and ready before anything is pulled: a bad image should not go everywhere.
pub const MIN_UPDATED_READY: &str = "apps.kruise.io/image-predownload-min-updated-ready-pods";

/// What the annotations ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    parallelism: IntOrString,
    timeout: Option<i64>,
    min_updated_ready: IntOrString,
}

/// An annotation that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata.annotations[{annotation:?}] is {found:?}: use {expected}")]
pub struct WishError {
    annotation: &'static str,
    found: String,
    expected: &'static str,
}

impl Wish {
    /// Reads the annotations; nothing if they do not ask for anything.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, WishError> {
        let part = |annotation: &'static str| {
            let read = |text: &String| match text.strip_suffix('%') {
                Some(digits) if digits.parse::<u32>().is_ok() => Ok(IntOrString::String(text.clone())),
                None if text.parse::<u16>().is_ok() => Ok(IntOrString::Int(text.parse().unwrap_or(0))),
                _ => Err(WishError {
                    annotation,
                    found: text.clone(),
                    expected: "a number, or a percentage such as 10%",
                }),
            };
            annotations.get(annotation).map(read).transpose()
        };
        let Some(parallelism) = part(PARALLELISM)? else { return Ok(None) };
        let wrong =
            |found: &String| WishError { annotation: TIMEOUT, found: found.clone(), expected: "a number of seconds" };
        let timeout = annotations.get(TIMEOUT).map(|text| text.parse().map_err(|_| wrong(text))).transpose()?;
        let min_updated_ready = part(MIN_UPDATED_READY)?.unwrap_or(IntOrString::Int(0));
        Ok(Some(Self { parallelism, timeout, min_updated_ready }))
    }

    /// Whether enough pods are updated and ready, of so many nodes.
    pub fn is_due(&self, updated_ready: usize, nodes: usize) -> bool {
        updated_ready >= budget(&self.min_updated_ready, nodes)
    }
}

/// Images that pods of certain hashes will need: those of their next template that their present one has not.
pub fn pulls<'a>(
    moves: impl Iterator<Item = (&'a Arc<str>, &'a Value, &'a Value)>,
) -> BTreeMap<String, BTreeSet<Arc<str>>> {
    let mut all: BTreeMap<String, BTreeSet<Arc<str>>> = BTreeMap::new();
    for (from, before, after) in moves {
        let known: BTreeSet<&str> = images(before).collect();
        for image in images(after).filter(|image| !known.contains(image)) {
            all.entry(image.to_owned()).or_default().insert(from.clone());
        }
    }
    all
}

fn images(template: &Value) -> impl Iterator<Item = &str> {
    let list = |field: &str| template["spec"][field].as_array().into_iter().flatten();
    list("initContainers").chain(list("containers")).filter_map(|container| container["image"].as_str())
}

/// The ImagePullJob for an image. Its name follows from what it is for: asking twice asks once.
pub fn job(
    (set, uid): (&str, &str),
    spec: &DaemonSetSpec,
    wish: &Wish,
    (image, hashes): (&str, &BTreeSet<Arc<str>>),
) -> Value {
    let name: String = set.chars().take(40).collect();
    let hashes: Vec<&str> = hashes.iter().map(|hash| &**hash).collect();
    let mut selector = json!(spec.selector);
    let of_pods = json!({"key": HASH_LABEL, "operator": "In", "values": hashes});
    match selector["matchExpressions"].as_array_mut() {
        Some(list) => list.push(of_pods),
        None => selector["matchExpressions"] = json!([of_pods]),
    }
    let secrets = spec.template.0["spec"]["imagePullSecrets"].as_array().into_iter().flatten();
    let secrets: Vec<&Value> = secrets.map(|secret| &secret["name"]).collect();
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ImagePullJob",
        "metadata": {
            "name": format!("{}-{}", name.trim_end_matches(['-', '.']), hash(&json!([uid, image, hashes]))),
            "ownerReferences": [owner(set, uid)],
        },
        "spec": {
            "image": image, "pullSecrets": secrets, "parallelism": wish.parallelism, "podSelector": selector,
            "pullPolicy": {"timeoutSeconds": wish.timeout.unwrap_or(600), "backoffLimit": 1},
            "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 600},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn annotations_are_read_and_wrong_ones_named() {
        assert_eq!(Wish::read(&annotations(&[(TIMEOUT, "60")])), Ok(None), "no parallelism, no wish");
        let wish = Wish::read(&annotations(&[(PARALLELISM, "5"), (MIN_UPDATED_READY, "50%")])).unwrap().unwrap();
        assert!(!wish.is_due(2, 5) && wish.is_due(3, 5));
        for (annotation, text) in [(PARALLELISM, "many"), (MIN_UPDATED_READY, "-1"), (TIMEOUT, "1m")] {
            let error = Wish::read(&annotations(&[(PARALLELISM, "5"), (annotation, text)])).unwrap_err().to_string();
            assert!(error.contains(annotation) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn only_images_that_are_new_are_pulled_and_only_where_they_are_needed() {
        let template = |images: &[&str]| {
            let list: Vec<Value> = images.iter().map(|image| json!({"name": image, "image": image})).collect();
            json!({"spec": {"containers": list}})
        };
        let (old, new, gpu) =
            (template(&["a:1", "b:1"]), template(&["a:2", "b:1"]), template(&["a:2", "b:1", "cuda:1"]));
        let (plain, other) = (Arc::from("plain"), Arc::from("other"));
        let pulls = pulls([(&plain, &old, &new), (&other, &old, &gpu)].into_iter());
        let told: Vec<(&str, usize)> = pulls.iter().map(|(image, hashes)| (image.as_str(), hashes.len())).collect();
        assert_eq!(told, [("a:2", 2), ("cuda:1", 1)]);
        let spec: DaemonSetSpec = serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}},
            "template": {"spec": {"imagePullSecrets": [{"name": "s"}]}}}))
        .unwrap();
        let wish = Wish::read(&annotations(&[(PARALLELISM, "10%")])).unwrap().unwrap();
        let made = job(("agent", "u"), &spec, &wish, ("cuda:1", &pulls["cuda:1"]));
        assert_eq!(
            made["spec"]["podSelector"],
            json!({"matchLabels": {"app": "a"},
            "matchExpressions": [{"key": HASH_LABEL, "operator": "In", "values": ["other"]}]})
        );
        assert_eq!((&made["spec"]["parallelism"], &made["spec"]["pullSecrets"]), (&json!("10%"), &json!(["s"])));
        assert_eq!(made, job(("agent", "u"), &spec, &wish, ("cuda:1", &pulls["cuda:1"])));
    }
}

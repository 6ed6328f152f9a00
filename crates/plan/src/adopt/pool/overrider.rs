//! YurtAppOverriders: dapple has no such kind. Each of an application that is taken over stands in the way, and the replacement
//! that it amounts to is told.
//!
//! What it amounts to is what OpenYurt 1.4 does by it: of `pools`, a name and `*` count, and `-name` takes nothing out.

use dapple_api::kinds;
use dapple_edit::document::Document;
use serde_json::{Value, json};

use super::Told;
use super::applications::Found;
use crate::adopt::{Refusal, name_of, texts};

/// The kind.
const KIND: &str = "YurtAppOverrider";
/// What an item may set, of which replacements set one each.
const SETTINGS: [&str; 7] =
    ["image", "configMap", "secret", "env", "persistentVolumeClaim", "replicas", "upgradeStrategy"];
/// What a replacement may set once: the last one counts.
const ONCE: [&str; 2] = ["replicas", "upgradeStrategy"];

/// What was found of YurtAppOverriders.
pub(super) struct Looked {
    pub(super) told: Told,
    /// What they amount to.
    pub(super) replacements: Vec<Value>,
}

/// What is to be said of YurtAppOverriders of these applications.
pub(super) fn look(overriders: &[Value], found: &[Found<'_>]) -> Looked {
    let mut looked = Looked { told: Told::default(), replacements: Vec::new() };
    for overrider in overriders {
        let is_of = |application: &&Found<'_>| application.is(&overrider["subject"], &overrider["metadata"]);
        let Some(application) = found.iter().find(is_of) else { continue };
        let object = format!("{KIND} {}", name_of(overrider));
        let subject = application.object();
        if application.document() == Some(Document::StatefulSet) {
            looked.told.refusals.push(Refusal {
                object,
                field: "subject".to_owned(),
                problem: format!(
                    "is {subject}, which is to be adopted; of StatefulSets OpenYurt changes nothing by it"
                ),
                remedy: "delete it, and run this again".to_owned(),
            });
            continue;
        }
        let (replacement, unsaid) = replacement(overrider);
        let has_some = replacement["replacements"].as_array().is_some_and(|list| !list.is_empty());
        let first = if has_some { "apply the replacement that it amounts to, which is shown below, and " } else { "" };
        looked.told.refusals.push(Refusal {
            object: object.clone(),
            field: "subject".to_owned(),
            problem: format!("is {subject}, which is to be adopted, and dapple has no {KIND}"),
            remedy: format!("{first}delete it once OpenYurt's controllers are off, and run this again"),
        });
        looked.told.refusals.extend(unsaid.into_iter().map(|field| Refusal {
            object: object.clone(),
            problem: "is more than a replacement can say".to_owned(),
            remedy: format!("{}, or do without it", application.place_of_patches()),
            field,
        }));
        for (index, entry) in overrider["entries"].as_array().into_iter().flatten().enumerate() {
            let excluded = texts(&entry["pools"]).filter(|name| name.starts_with('-'));
            looked.told.notes.extend(excluded.map(|name| {
                format!("{object}: entries[{index}].pools has {name}, by which OpenYurt takes no pool out")
            }));
        }
        if has_some {
            looked.replacements.push(replacement);
        }
    }
    looked
}

/// The replacement that an overrider amounts to, and the fields that it cannot say.
fn replacement(overrider: &Value) -> (Value, Vec<String>) {
    let (mut replacements, mut unsaid) = (Vec::new(), Vec::new());
    for (index, entry) in overrider["entries"].as_array().into_iter().flatten().enumerate() {
        if entry["patches"].as_array().is_some_and(|patches| !patches.is_empty()) {
            unsaid.push(format!("entries[{index}].patches"));
        }
        let mut items: Vec<Value> = Vec::new();
        for (number, item) in entry["items"].as_array().into_iter().flatten().enumerate() {
            for (setting, value) in item.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                if !SETTINGS.contains(&setting.as_str()) {
                    unsaid.push(format!("entries[{index}].items[{number}].{setting}"));
                    continue;
                }
                if ONCE.contains(&setting.as_str()) {
                    items.retain(|known| known.get(setting).is_none());
                }
                items.push(json!({setting: value}));
            }
        }
        let names: Vec<&str> = texts(&entry["pools"]).filter(|name| !name.starts_with('-')).collect();
        if !items.is_empty() && !names.is_empty() {
            let pools = if names.contains(&"*") { json!("*") } else { json!(names) };
            replacements.push(json!({"pools": pools, "items": items}));
        }
    }
    let (at, metadata, subject) = (kinds::REPLACEMENT.at, &overrider["metadata"], &overrider["subject"]);
    let replacement = json!({
        "apiVersion": at.api_version(), "kind": at.kind,
        "metadata": {"namespace": metadata["namespace"], "name": metadata["name"]},
        "subject": {"apiVersion": at.api_version(), "kind": subject["kind"], "name": subject["name"]},
        "replacements": replacements,
    });
    (replacement, unsaid)
}

#[cfg(test)]
mod tests {
    use dapple_api::pool::YurtAppConfigurationReplacement;
    use dapple_api::reading::read;

    use super::super::tests::{judged, left};
    use super::*;

    fn overrider(kind: &str, name: &str, entries: Value) -> Value {
        json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": KIND, "metadata": {"namespace": "default", "name": "o"},
            "subject": {"apiVersion": "apps.openyurt.io/v1alpha1", "kind": kind, "name": name}, "entries": entries})
    }

    fn image(image: &str) -> Value {
        json!({"image": {"containerName": "nginx", "imageClaim": image}})
    }

    /// What stands in the way, what is to be known, and what is to be applied.
    fn told(overrider: Value) -> (Vec<String>, Vec<String>, Vec<Value>) {
        let mut observed = left();
        observed.overriders.push(overrider);
        let judged = judged(&observed);
        (judged.refusals.iter().map(ToString::to_string).collect(), judged.notes, judged.replacements)
    }

    #[test]
    fn the_replacement_that_it_amounts_to_is_told() {
        let entries = json!([
            {"pools": ["beijing", "hangzhou"], "items": [image("nginx:1"), {"replicas": 2}, {"replicas": 3}]},
            {"pools": ["*", "-beijing"], "items": [{"image": image("nginx:2")["image"], "replicas": null}]},
            {"pools": ["-hangzhou"], "items": [image("nginx:3")]},
        ]);
        let (refusals, notes, replacements) = told(overrider("YurtAppSet", "yurtappset-demo", entries));
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        let parts = [
            "YurtAppOverrider default/o: subject is YurtAppSet default/yurtappset-demo",
            "is shown below",
            "delete it",
        ];
        assert!(parts.iter().all(|part| refusals[0].contains(part)), "{refusals:?}");
        assert_eq!(notes.iter().filter(|note| note.contains("takes no pool out")).count(), 2, "{notes:?}");
        assert_eq!(
            replacements,
            [json!({
                "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
                "metadata": {"namespace": "default", "name": "o"},
                "subject": {"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "name": "yurtappset-demo"},
                "replacements": [
                    {"pools": ["beijing", "hangzhou"], "items": [image("nginx:1"), {"replicas": 3}]},
                    {"pools": "*", "items": [image("nginx:2")]},
                ],
            })]
        );
        let verdict = dapple_edit::admission::judge(&replacements[0], None).unwrap();
        assert_eq!(verdict.errors, [], "it is taken as it is told");
        assert!(read::<YurtAppConfigurationReplacement>(&replacements[0]).is_ok());
    }

    #[test]
    fn what_a_replacement_cannot_say_is_named() {
        let patches = json!([{"path": "/spec/paused", "operation": "add", "value": true}]);
        let of = |kind: &str, name: &str| {
            told(overrider(kind, name, json!([{"pools": ["beijing"], "items": [{"x": 1}], "patches": patches}])))
        };
        let (refusals, _, replacements) = of("YurtAppSet", "yurtappset-demo");
        assert_eq!((refusals.len(), replacements.len()), (3, 0), "{refusals:?}");
        assert!(!refusals[0].contains("shown below"), "there is nothing to apply: {}", refusals[0]);
        assert!(refusals[1].contains("entries[0].patches is more than a replacement can say"), "{}", refusals[1]);
        assert!(refusals[1].contains("spec.topology.pools[].patch"), "{}", refusals[1]);
        assert!(refusals[2].contains("entries[0].items[0].x is more"), "{}", refusals[2]);
        let (refusals, ..) = of("YurtAppDaemon", "daemon-demo");
        assert!(refusals[1].contains("into its template"), "a YurtAppDaemon has no patches: {}", refusals[1]);
    }

    #[test]
    fn only_those_of_adopted_applications_stand_in_the_way() {
        let entries = json!([{"pools": ["*"], "items": [image("nginx:1")]}]);
        assert_eq!(told(overrider("YurtAppSet", "gone", entries.clone())).0, [""; 0]);
        let (refusals, _, replacements) = told(overrider("YurtAppSet", "sts-demo", entries.clone()));
        assert!(
            refusals[0].contains("of StatefulSets OpenYurt changes nothing") && replacements.is_empty(),
            "{refusals:?}"
        );
        let mut observed = left();
        observed.overriders.push(overrider("YurtAppDaemon", "daemon-demo", entries));
        observed.kinds.retain(|seen| seen.taken.kind.at.kind == "YurtAppSet");
        assert_eq!(judged(&observed).refusals, [], "its application stays OpenYurt's");
    }
}

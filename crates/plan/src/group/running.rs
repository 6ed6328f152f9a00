//! How a running pod gets another edition: where it runs, if Kubernetes allows that, or by another pod.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::inplace::{Difference, Intent, Progress, Resize, Running, Target, change, changed_at, difference, progress};

/// How a running pod gets another edition.
#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    /// By this strategic merge patch. Containers whose image changes are restarted.
    InPlace {
        /// The patch.
        patch: Value,
        /// Whether a container is restarted, so that it counts as a disruption.
        restarts: bool,
    },
    /// By another pod: it is evicted, and its owner makes one.
    NewPod,
}

/// How a pod becomes as `wanted` has it. Images, labels and annotations change where it runs; for anything else it takes
/// another pod.
#[must_use]
pub fn way(pod: &Value, wanted: &Value, target: &Target<'_>) -> Way {
    match difference(pod, wanted).filter(|found| found.resources.is_empty()) {
        Some(found) => Way::InPlace { patch: change(&found, target), restarts: !found.images.is_empty() },
        None => Way::NewPod,
    }
}

/// The strategic merge patch that gives a pod the images that `wanted` has, and nothing else; none if it has them.
#[must_use]
pub fn images(pod: &Value, wanted: &Value, target: &Target<'_>) -> Option<Value> {
    let own = images_of(pod);
    let changed = images_of(wanted).into_iter().filter(|(name, image)| own.get(name).is_some_and(|own| own != image));
    let changed = Difference { images: changed.collect(), ..Difference::default() };
    (!changed.images.is_empty()).then(|| change(&changed, target))
}

/// A pod with the images that a rendering has, by the names of its containers.
#[must_use]
pub fn with_images(mut pod: Value, rendering: &Value) -> Value {
    let wanted = images_of(rendering);
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        if let Some(image) = container["name"].as_str().and_then(|name| wanted.get(name)) {
            container["image"] = image.as_str().into();
        }
    }
    pod
}

/// Whether a pod of the one rendering can be given all of the other where it runs.
#[must_use]
pub fn is_had_in_place(before: &Value, after: &Value) -> bool {
    difference(before, after).is_some_and(|found| found.resources.is_empty())
}

/// Whether containers have the images that a rendering has: by name, those that it has.
#[must_use]
pub fn has_images(rendering: &Value, containers: &[Running<'_>]) -> bool {
    let wanted = images_of(rendering);
    containers.iter().all(|running| wanted.get(running.name).is_none_or(|image| *image == running.image))
}

fn images_of(pod: &Value) -> BTreeMap<String, String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let named =
        |container: &Value| Some((container["name"].as_str()?.to_owned(), container["image"].as_str()?.to_owned()));
    containers.filter_map(named).collect()
}

/// Whether the node has done all that was last changed of a pod where it runs, and the pod was ready since for as long as it
/// takes to be available. `state` is what the pod remembers of the change, `ready_since` and `now` are in seconds since 1970.
#[must_use]
pub fn is_well(
    state: Option<&str>,
    containers: &[Running<'_>],
    ready_since: Option<i64>,
    min_ready: i64,
    now: i64,
) -> bool {
    // The Ready condition may be that of before: the kubelet has yet to see the change.
    let is_seen = progress(state, Intent::None, containers, Resize::None, now) == Progress::Done;
    let changed = state.and_then(changed_at).unwrap_or(i64::MIN);
    // As Kubernetes has it: where no time is asked for, none is looked at. Ours may be behind that of the kubelet.
    is_seen && ready_since.is_some_and(|since| min_ready == 0 || since.max(changed).saturating_add(min_ready) <= now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inplace::STATE_ANNOTATION;

    fn pod(image: &str) -> Value {
        json!({"metadata": {"name": "a", "labels": {"app": "web"}}, "spec": {"nodeName": "n", "containers": [
            {"name": "mesh", "image": "mesh:1"}, {"name": "web", "image": image}]}})
    }

    fn target() -> Target<'static> {
        let containers: &[Running<'_>] =
            &[Running { name: "web", image: "old/web:1", status_image: "old/web:1", image_id: "one" }];
        Target {
            uid: "u",
            version: 7,
            hash: "edition",
            revision: "",
            now: "1970-01-01T00:01:40Z",
            state: None,
            pending: None,
            containers,
            lifecycle: None,
        }
    }

    #[test]
    fn images_change_where_a_pod_runs_and_the_rest_takes_another() {
        let mut wanted = pod("new/web:1");
        wanted["metadata"]["annotations"] = json!({"dapple.dev/edition": "e"});
        let Way::InPlace { patch, restarts } = way(&pod("old/web:1"), &wanted, &target()) else { panic!("in place") };
        assert!(restarts);
        assert_eq!(patch["spec"], json!({"containers": [{"name": "web", "image": "new/web:1"}]}));
        assert_eq!(patch["metadata"]["annotations"]["dapple.dev/edition"], "e");
        assert_eq!((&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
        wanted["spec"]["containers"][1]["args"] = json!(["--edge"]);
        assert_eq!(way(&pod("old/web:1"), &wanted, &target()), Way::NewPod);
    }

    #[test]
    fn what_is_only_named_restarts_nothing() {
        let mut wanted = pod("old/web:1");
        wanted["metadata"]["annotations"] = json!({"dapple.dev/edition": "e"});
        let Way::InPlace { patch, restarts } = way(&pod("old/web:1"), &wanted, &target()) else { panic!("in place") };
        assert!(!restarts && patch.get("spec").is_none());
    }

    #[test]
    fn images_can_be_had_alone() {
        let mut wanted = pod("new/web:1");
        wanted["spec"]["containers"][1]["args"] = json!(["--edge"]);
        assert!(!is_had_in_place(&pod("old/web:1"), &wanted) && is_had_in_place(&pod("old/web:1"), &pod("new/web:1")));
        let patch = images(&pod("old/web:1"), &wanted, &target()).expect("the image differs");
        assert_eq!(patch["spec"], json!({"containers": [{"name": "web", "image": "new/web:1"}]}));
        assert_eq!(images(&pod("new/web:1"), &wanted, &target()), None);
        assert!(!has_images(&wanted, target().containers));
        assert!(has_images(&pod("old/web:1"), target().containers), "somebody else's container is not asked about");
    }

    #[test]
    fn a_pod_is_well_once_its_node_has_restarted_it_and_it_was_ready_since() {
        let mut wanted = pod("new/web:1");
        wanted["metadata"]["annotations"] = json!({});
        let Way::InPlace { patch, .. } = way(&pod("old/web:1"), &wanted, &target()) else { panic!("in place") };
        let state = patch["metadata"]["annotations"][STATE_ANNOTATION].as_str();
        let running = |id| [Running { name: "web", image: "new/web:1", status_image: "old/web:1", image_id: id }];
        // It was ready long before it was changed, at second 100.
        assert!(!is_well(state, &running("one"), Some(10), 0, 200), "the node has not seen it");
        assert!(is_well(state, &running("two"), Some(10), 0, 200));
        assert!(!is_well(state, &running("two"), Some(10), 60, 150), "it was changed less than a minute ago");
        assert!(is_well(state, &running("two"), Some(10), 60, 160));
        assert!(!is_well(state, &running("two"), None, 0, 200));
        assert!(is_well(None, &running("one"), Some(10), 0, 10), "it was never changed");
        assert!(is_well(None, &running("one"), Some(110), 0, 10), "by a clock that is behind that of the kubelet");
    }
}

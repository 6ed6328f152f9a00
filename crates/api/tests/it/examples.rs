//! Every example is an object of ours (or of Kubernetes), and our types lose nothing of it.

use dapple_api::{daemonset, group, marker, pool};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::files::{documents, repository, yaml_files};

/// What becomes of an object that is read into a type and written again.
fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: K = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    serde_json::to_value(typed).expect("serialises")
}

/// The same for an object of any of our kinds; `None` for others.
fn through_its_type(object: &Value) -> Option<Value> {
    macro_rules! kinds {
        ($($kind:ty),*) => {
            $(if object["apiVersion"] == *<$kind>::api_version(&()) && object["kind"] == *<$kind>::kind(&()) {
                return Some(through::<$kind>(object));
            })*
        };
    }
    kinds!(
        daemonset::DaemonSet,
        daemonset::v1alpha1::DaemonSet,
        marker::PodMarker,
        marker::NodePodProbe,
        group::NodeGroup,
        group::PropagationPolicy,
        group::OverridePolicy,
        pool::NodePool,
        pool::v1alpha1::NodePool,
        pool::YurtAppSet,
        pool::v1beta1::YurtAppSet,
        pool::YurtAppDaemon,
        pool::YurtAppConfigurationReplacement
    );
    None
}

#[test]
fn every_example_keeps_all_it_says() {
    let mut ours = 0;
    for family in ["daemonset", "marker", "group", "pool"] {
        for path in yaml_files(&repository("examples").join(family)) {
            for object in documents(&path) {
                let api_version = object["apiVersion"].as_str().expect("apiVersion");
                match through_its_type(&object) {
                    Some(read) => assert_eq!(read, object, "{}", path.display()),
                    None => assert!(["v1", "apps/v1"].contains(&api_version), "{}: {api_version}", path.display()),
                }
                ours += usize::from(api_version.contains('.'));
            }
        }
    }
    assert!(ours >= 20, "{ours} examples");
}

#[test]
fn versions_that_are_not_served_are_read_too() {
    let objects = documents(&repository("crates/api/tests/it/older.yaml"));
    assert_eq!(objects.len(), 4);
    for object in objects {
        assert_eq!(through_its_type(&object).expect("a kind of ours"), object);
    }
}

#[test]
fn an_unknown_field_of_a_container_survives() {
    let object = serde_json::json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"spec": {"containers": [{"name": "c", "fieldOfNextYear": {"deep": [1, null, 0.5]}}]}},
            "patches": [{"selector": {}, "patch": {"spec": {"nodeSelector": null, "$patch": "replace"}}}],
        },
    });
    assert_eq!(through_its_type(&object).expect("a kind of ours"), object);
}

#[test]
fn conditions_of_other_products_are_read() {
    let object = serde_json::json!({
        "metadata": {"name": "a"},
        "spec": {"selector": {}, "workloadTemplate": {}},
        "status": {"conditions": [
            {"type": "PoolUpdated", "status": "True", "lastTransitionTime": "2026-11-15T04:06:02Z"},
        ]},
    });
    let set: pool::YurtAppSet = serde_json::from_value(object).expect("no reason is no obstacle");
    let conditions = set.status.expect("a status").conditions;
    assert_eq!((conditions[0].type_.as_str(), conditions[0].reason.as_str()), ("PoolUpdated", ""));
}

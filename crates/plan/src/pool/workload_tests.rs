//! Workloads as OpenYurt makes them.

use super::*;
use dapple_api::pool::{TaintEffect, YurtAppDaemonSpec, YurtAppSetSpec};

use crate::pool::version::InForce;

pub(in crate::pool) fn application(kind: SubjectKind, selector: Value) -> Application {
    Application {
        kind,
        namespace: "default".to_owned(),
        name: "demo".to_owned(),
        uid: "of-demo".to_owned(),
        selector: serde_json::from_value(selector).expect("a selector"),
        history_limit: 10,
    }
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "demo", "tier": "edge"}}, "spec": {
        "selector": {"matchLabels": {"app": "demo"}},
        "template": {"metadata": {"labels": {"app": "demo"}}, "spec": {
            "nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "image": "c:1"}]}}}})
}

pub(in crate::pool) fn set(pools: Value) -> (Application, Version) {
    let selector = json!({"matchLabels": {"app": "demo"}});
    let spec: YurtAppSetSpec = serde_json::from_value(json!({
        "selector": selector, "workloadTemplate": {"deploymentTemplate": template()}, "topology": {"pools": pools},
        "revisionHistoryLimit": 5,
    }))
    .expect("a spec");
    (application(SubjectKind::YurtAppSet, selector), Version::of_set(&spec, None))
}

fn daemon(template: &Value) -> (Application, Version) {
    let selector = json!({"matchLabels": {"app": "demo"}});
    let spec: YurtAppDaemonSpec = serde_json::from_value(json!({
        "selector": selector, "workloadTemplate": {"deploymentTemplate": template}, "nodepoolSelector": {},
    }))
    .expect("a spec");
    (application(SubjectKind::YurtAppDaemon, selector), Version::of_daemon(&spec, None))
}

#[test]
fn a_pool_of_a_set_gets_a_workload_as_openyurt_makes_it() {
    let term = json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["edge"]}]});
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}}});
    let (application, version) = set(json!([
        {"name": "edge", "replicas": 2, "nodeSelectorTerm": term, "tolerations": [{"operator": "Exists"}], "patch": patch},
        {"name": "core"}]));
    let rendered = render(&application, &version, "edge", &[]).unwrap();
    let workload = rendered.new_workload("demo-edge-xxxxx", "demo-1", &BTreeMap::from([(CHANGED, "{}".to_owned())]));
    assert_eq!(
        workload,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "demo-edge-xxxxx", "namespace": "default",
                "labels": {"app": "demo", "tier": "edge", "apps.openyurt.io/pool-name": "edge",
                    "apps.openyurt.io/controller-revision-hash": "demo-1"},
                "annotations": {"apps.openyurt.io/patch": canonical(&patch), "dapple.dev/replicas": "2",
                    "dapple.dev/rendered": &*rendered.hash, "dapple.dev/changed": "{}"},
                "ownerReferences": [{"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "name": "demo",
                    "uid": "of-demo", "controller": true, "blockOwnerDeletion": true}],
            },
            "spec": {
                "replicas": 2, "revisionHistoryLimit": 5,
                "selector": {"matchLabels": {"app": "demo", "apps.openyurt.io/pool-name": "edge"}},
                "template": {
                    "metadata": {"labels": {"app": "demo", "apps.openyurt.io/pool-name": "edge",
                        "apps.openyurt.io/controller-revision-hash": "demo-1"}},
                    "spec": {
                        "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "c", "image": "c:2"}],
                        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                            {"nodeSelectorTerms": [term]}}},
                    },
                },
            },
        })
    );
    let core = render(&application, &version, "core", &[]).unwrap();
    assert_eq!(core.workload["metadata"]["annotations"]["apps.openyurt.io/patch"], "");
    assert_eq!(render(&application, &version, "none", &[]).unwrap_err(), Unrendered::NoPool);
}

#[test]
fn a_pool_of_a_daemon_gets_its_label_and_taints_beside_what_the_template_says() {
    let (application, version) = daemon(&template());
    let taint =
        Taint { key: "edge".into(), value: Some("x".into()), effect: TaintEffect::NoSchedule, time_added: None };
    let rendered = render(&application, &version, "edge", &[taint]).unwrap();
    let spec = &rendered.workload["spec"]["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "apps.openyurt.io/nodepool": "edge"}));
    assert_eq!(spec["tolerations"], json!([{"key": "edge", "operator": "Exists", "effect": "NoSchedule"}]));
    let annotations = &rendered.workload["metadata"]["annotations"];
    assert_eq!(
        (&annotations["apps.openyurt.io/ref-nodepool"], &annotations["dapple.dev/replicas"]),
        (&json!("edge"), &json!("1"))
    );
}

#[test]
fn what_kubernetes_or_other_applications_would_suffer_from_is_that_pools_error() {
    let patched = |patch: Value| {
        let (application, version) = set(json!([{"name": "edge", "patch": patch}]));
        render(&application, &version, "edge", &[]).unwrap_err()
    };
    let selector = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}});
    assert_eq!(patched(selector), Unrendered::SelectorPatched);
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}});
    assert_eq!(patched(labels), Unrendered::Unselected);
    let containers = json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}});
    assert!(matches!(patched(containers), Unrendered::Edit(_)));
    let mut bare = template();
    bare["spec"]["selector"] = json!({});
    let (application, version) = daemon(&bare);
    assert_eq!(render(&application, &version, "edge", &[]).unwrap_err(), Unrendered::SelectsAll);
    // Nothing that somebody may have got into the cluster past all checks ends the program.
    for odd in [
        json!({"spec": 7}),
        json!({"spec": {"template": 7}}),
        json!({"spec": {"template": {"metadata": 7}}, "metadata": {"labels": 7}}),
    ] {
        let odd: Result<YurtAppSetSpec, _> = serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "demo"}}, "workloadTemplate": {"deploymentTemplate": odd}, "topology": {"pools": [{"name": "a"}]}}));
        if let Ok(spec) = odd {
            let (application, _) = set(json!([]));
            assert!(render(&application, &Version::of_set(&spec, None), "a", &[]).is_err());
        }
    }
}

#[test]
fn replacements_come_last_and_are_named() {
    let (application, mut version) = set(json!([{"name": "edge", "replicas": 2}]));
    let replacements = json!([{"pools": "*", "items": [{"image": {"containerName": "none", "imageClaim": "x"}}]}]);
    let replacements = serde_json::from_value(replacements).unwrap();
    version.replacements = Some(InForce { name: "r".to_owned(), replacements });
    let error = render(&application, &version, "edge", &[]).unwrap_err().to_string();
    assert!(error.starts_with("YurtAppConfigurationReplacement default/r replacements[0].items[0]: "), "{error}");
}

#[test]
fn names_follow_from_what_the_workload_is_for() {
    let (mut of_set, _) = set(json!([]));
    let of_daemon = application(SubjectKind::YurtAppDaemon, json!({}));
    let named = |application: &Application, pool: &str| name(application, Document::Deployment, pool);
    assert_eq!(named(&of_set, "edge"), named(&of_set, "edge"));
    assert!(named(&of_set, "edge").starts_with("demo-edge-"));
    assert_ne!(named(&of_set, "edge"), named(&of_daemon, "edge"));
    // The same start, and other applications and pools.
    let (mut one, mut other) = (of_set.clone(), of_set.clone());
    (one.name, other.name) = ("a-b".into(), "a".into());
    assert_ne!(named(&one, "c"), named(&other, "b-c"));
    of_set.name = format!("{}.{}", "a".repeat(60), "b".repeat(190));
    let stateful = name(&of_set, Document::StatefulSet, "edge");
    assert!(stateful.len() <= 52 && dapple_api::syntax::dns_label(&stateful).is_ok(), "{stateful}");
    let deployment = named(&of_set, &"p".repeat(63));
    assert!(deployment.len() <= 236 && dapple_api::syntax::dns_subdomain(&deployment).is_ok(), "{deployment}");
}

//! Deployments of OpenYurt's manager, as its chart makes them and as people change them.

use k8s_openapi::api::coordination::v1::Lease;

use super::super::{ALL, NODE_POOLS, YURT_APP_SETS};
use super::*;

const NODE_POOL: Controller = NODE_POOLS.controllers[0];
const OFF: &str =
    "*,-nodepool-controller,-yurt-app-set-controller,-yurt-app-overrider-controller,-yurt-app-daemon-controller";

/// As OpenYurt's chart makes it, with these arguments.
fn deployment(args: Value) -> Value {
    json!({
        "metadata": {"namespace": "kube-system", "name": "yurt-manager", "generation": 1},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "proxy", "image": "proxy:1"},
            {"name": "yurt-manager", "command": ["/usr/local/bin/yurt-manager"], "image": "openyurt/yurt-manager:v1.4.4",
                "args": args}]}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
    })
}

fn manager(args: Value) -> Manager {
    read(&deployment(args)).expect("it is OpenYurt's manager")
}

/// What is to be said, as one text for each thing that stands in the way.
fn refused(deployment: &Value, taken: &[&'static Taken]) -> Vec<String> {
    let managers: Vec<Manager> = read(deployment).into_iter().collect();
    look(&managers, &[], taken, 0).refusals.iter().map(ToString::to_string).collect()
}

#[test]
fn only_openyurts_manager_is_it() {
    let is_it = |name: &str, container: Value| {
        let template = json!({"spec": {"containers": [container]}});
        read(&json!({"metadata": {"name": name}, "spec": {"template": template}})).is_some()
    };
    assert!(is_it("yurt-manager", json!({"image": "mirror/image@sha256:0"})));
    assert!(is_it("another", json!({"image": "mirror:5000/openyurt/yurt-manager:v1.4.4"})));
    assert!(is_it("another", json!({"image": "x", "command": ["/usr/local/bin/yurt-manager"]})));
    assert!(!is_it("another", json!({"image": "x", "args": ["--target=yurt-manager:10271"]})), "it only speaks of it");
    assert!(!is_it("yurt-hub", json!({"image": "openyurt/yurthub:v1.4.4"})));
    assert!(read(&json!({"metadata": {"name": "yurt-manager"}})).is_none(), "it runs nothing");
}

#[test]
fn which_controllers_are_on_is_read_as_openyurt_does() {
    for (args, is_on) in [
        (json!(["--v=2"]), true),
        (Value::Null, true),
        (json!(["--controllers=*"]), true),
        (json!(["--controllers=*,-nodepool-controller"]), false),
        (json!(["--controllers=*,-nodepool"]), false),
        (json!(["--controllers", "*,-nodepool-controller"]), false),
        (json!(["--controllers=*", "--controllers=-nodepool-controller"]), false),
        (json!(["--controllers=nodepool-controller,-nodepool-controller"]), true),
        (json!(["--controllers=csr-approver-controller"]), false),
        (json!(["--controllers=nodepool"]), true),
        (json!(["--controllers=*,-nodepool-controller-of-old"]), true),
    ] {
        assert_eq!(manager(args.clone()).is_on(NODE_POOL), is_on, "{args}");
    }
}

#[test]
fn only_the_controllers_of_the_adopted_kinds_have_to_be_off() {
    let names = |taken: &[&'static Taken]| -> Vec<&str> {
        controllers(taken).iter().map(|controller| controller.name).collect()
    };
    assert_eq!(names(&[&NODE_POOLS]), ["nodepool-controller"]);
    assert_eq!(names(&[&YURT_APP_SETS]), ["yurt-app-set-controller", "yurt-app-overrider-controller"]);
    assert_eq!(names(&ALL).len(), 4, "each once");
    let pools_off = deployment(json!(["--controllers=*,-nodepool-controller"]));
    assert_eq!(refused(&pools_off, &[&NODE_POOLS]), [""; 0]);
    let told = refused(&pools_off, &[&YURT_APP_SETS]);
    assert!(told[0].contains("leaves yurt-app-set-controller, yurt-app-overrider-controller on"), "{told:?}");
}

#[test]
fn the_command_that_switches_them_off_is_told() {
    let at = "/spec/template/spec/containers/1";
    let joined = format!("--controllers={OFF}");
    for (args, operation) in [
        (json!(["--v=2"]), json!({"op": "add", "path": format!("{at}/args/-"), "value": joined})),
        (Value::Null, json!({"op": "add", "path": format!("{at}/args"), "value": [joined]})),
        (
            json!(["--v=2", "--controllers=*"]),
            json!({"op": "replace", "path": format!("{at}/args/1"), "value": joined}),
        ),
        (json!(["--controllers", "*"]), json!({"op": "replace", "path": format!("{at}/args/1"), "value": OFF})),
    ] {
        let told = refused(&deployment(args), &ALL);
        let command =
            format!("`kubectl -n kube-system patch deploy yurt-manager --type=json -p '{}'`", json!([operation]));
        assert!(
            told[0].starts_with("Deployment kube-system/yurt-manager: spec.template.spec.containers[1].args leaves ")
        );
        assert!(told.len() == 1 && told[0].ends_with(&command), "{told:?} has not {command}");
        // Whoever runs it has them off.
        let after = manager(json!([joined]));
        assert!(controllers(&ALL).iter().all(|controller| !after.is_on(*controller)), "{operation}");
    }
    let named = manager(json!(["--controllers=nodepool,csr-approver-controller"]));
    assert_eq!(named.without(&[NODE_POOL]), "csr-approver-controller,-nodepool-controller");
    let twice = refused(&deployment(json!(["--controllers=*", "--controllers=x"])), &[&NODE_POOLS]);
    assert!(twice[0].contains("`kubectl -n kube-system edit deploy yurt-manager`"), "{twice:?}");
}

#[test]
fn a_pod_that_was_started_with_others_is_waited_for() {
    let off = format!("--controllers={OFF}");
    for (field, value, part) in [
        ("observedGeneration", 0, "status.observedGeneration is 0, and metadata.generation is 1"),
        ("updatedReplicas", 0, "status.updatedReplicas is 0 of 1"),
        ("terminatingReplicas", 1, "status.terminatingReplicas is 1"),
    ] {
        let mut there = deployment(json!([off]));
        assert_eq!(refused(&there, &ALL), [""; 0]);
        there["status"][field] = json!(value);
        let told = refused(&there, &ALL);
        assert!(told.len() == 1 && told[0].contains(part) && told[0].contains("wait"), "{told:?}");
    }
}

#[test]
fn one_that_is_stopped_is_told_of() {
    let mut there = deployment(json!([]));
    there["spec"]["replicas"] = json!(0);
    there["status"]["replicas"] = json!(0);
    let stopped = read(&there).unwrap();
    let told = look(&[stopped], &[], &ALL, 0);
    assert_eq!(told.refusals, []);
    assert!(told.notes[0].contains("is stopped, and would have nodepool-controller"), "{:?}", told.notes);
    there["status"]["replicas"] = json!(1);
    assert_eq!(refused(&there, &ALL).len(), 1, "its last pod acts still");
}

#[test]
fn one_that_no_deployment_tells_of_is_told_of_by_its_lease() {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"namespace": "kube-system", "name": LEASE},
        "spec": {"holderIdentity": "master-1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }))
    .unwrap();
    let seen = |was_renewed| [SeenLease { lease: lease.clone(), was_renewed }];
    let told = look(&[], &seen(true), &ALL, 0).refusals;
    assert!(
        told[0].to_string().contains("Lease kube-system/yurt-manager: spec.holderIdentity is master-1"),
        "{told:?}"
    );
    assert!(told[0].remedy.contains(&format!("--controllers={OFF}")), "{told:?}");
    assert_eq!(look(&[], &seen(false), &ALL, 2_000_000_000).refusals, [], "it ended long ago");
    assert_eq!(look(&[manager(json!([format!("--controllers={OFF}")]))], &seen(true), &ALL, 0).refusals, []);
}

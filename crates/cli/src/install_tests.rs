//! The manager's permissions are what its controllers and webhooks do, no less and no more. That they are enough, every story
//! of the controllers shows, which runs with them; that there is no other, only a list can.

use std::collections::BTreeSet;

use dapple_admit::hooks::{
    DAEMONSET_CONFIGURATION, GATE_CONFIGURATION, HOOKS, MUTATING_CONFIGURATION, POOL_CONFIGURATION,
    VALIDATING_CONFIGURATION,
};
use dapple_api::kinds::{self, KindInfo};
use serde_json::Value;

use super::*;
use crate::args::WEBHOOK_SECRET;

/// Something that may be done: in which role, to which group and resource, of which name if only of one, by which verb.
type Permission = (String, String, String, String, String);

/// Every permission that the roles give.
fn given() -> BTreeSet<Permission> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut given = BTreeSet::new();
    for object in dapple_control::install::documents(&permissions(NAMESPACE)).unwrap() {
        let role = object["kind"].as_str().unwrap();
        for rule in object["rules"].as_array().into_iter().flatten() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in &names {
                        for verb in texts(&rule["verbs"]) {
                            let permission = (role.to_owned(), group.clone(), resource.clone(), name.clone(), verb);
                            assert!(given.insert(permission.clone()), "twice: {permission:?}");
                        }
                    }
                }
            }
        }
    }
    given
}

/// Permissions that are needed, collected one by one.
#[derive(Default)]
struct Needed(BTreeSet<Permission>);

impl Needed {
    /// Everywhere, of kinds of the table.
    fn of(&mut self, kind: KindInfo, part: &str, verbs: &[&str]) {
        self.add("ClusterRole", kind.group, &format!("{}{part}", kind.plural), &[""], verbs);
    }

    /// Of others, everywhere or in dapple's own namespace.
    fn add(&mut self, role: &str, group: &str, resource: &str, names: &[&str], verbs: &[&str]) {
        for name in names {
            for verb in verbs {
                let permission = [role, group, resource, name, verb].map(str::to_owned);
                self.0.insert(permission.into());
            }
        }
    }
}

const WATCHED: &[&str] = &["list", "watch"];

/// What controllers do (`control::daemonset`, `control::group`, `control::marker`, `control::pool`), beside reading what they watch.
fn of_controllers(needed: &mut Needed) {
    for kind in [kinds::NODE, kinds::POD, kinds::CONTROLLER_REVISION, kinds::DAEMON_SET.at, kinds::NODE_GROUP.at] {
        needed.of(kind, "", WATCHED);
    }
    // Whether it is gone is asked again before pods are deleted for it, and before pods are taken in.
    needed.of(kinds::NODE, "", &["get"]);
    needed.of(kinds::DAEMON_SET.at, "", &["get", "patch"]);
    for kind in [kinds::POD, kinds::CONTROLLER_REVISION] {
        needed.of(kind, "", &["get", "create", "patch", "delete"]);
    }
    // Nodes that a group names get its label; what asks for policies is read before they are confirmed by one.
    needed.of(kinds::NODE, "", &["patch"]);
    for kind in [kinds::PROPAGATION_POLICY.at, kinds::OVERRIDE_POLICY.at] {
        needed.of(kind, "", WATCHED);
    }
    for native in kinds::NATIVE {
        needed.of(native.at, "", &["get", "list", "watch", "patch"]);
    }
    for kind in [kinds::PERSISTENT_VOLUME_CLAIM, kinds::PERSISTENT_VOLUME, kinds::STORAGE_CLASS] {
        needed.of(kind, "", &["get"]);
    }
    // Pods that are not in the group that should have them are evicted.
    needed.of(kinds::POD, "/eviction", &["create"]);
    needed.of(kinds::POD_DISRUPTION_BUDGET, "", &["list"]);
    needed.of(kinds::POD, "/status", &["patch"]);
    needed.of(kinds::POD, "/resize", &["patch"]);
    let told =
        [kinds::DAEMON_SET, kinds::NODE_GROUP, kinds::PROPAGATION_POLICY, kinds::OVERRIDE_POLICY, kinds::NODE_POOL];
    for kind in told {
        needed.of(kind.at, "/status", &["patch"]);
    }
    // Applications in pools, and the workloads that they are made of.
    for kind in [kinds::YURT_APP_SET.at, kinds::YURT_APP_DAEMON.at] {
        needed.of(kind, "", &["get", "list", "watch"]);
        needed.of(kind, "/status", &["patch"]);
        needed.of(kind, "/finalizers", &["update"]);
    }
    needed.of(kinds::REPLACEMENT.at, "/status", &["patch"]);
    for kind in [kinds::NATIVE_DEPLOYMENT.at, kinds::NATIVE_STATEFUL_SET.at] {
        needed.of(kind, "", &["create", "delete"]);
    }
    // What a replacement has pods refer to is there before they do.
    needed.of(kinds::CONFIG_MAP, "", &["get"]);
    needed.add("ClusterRole", "autoscaling", "horizontalpodautoscalers", &[""], &["list"]);
    // To be named as an owner that waits for what it owns.
    needed.of(kinds::DAEMON_SET.at, "/finalizers", &["update"]);
    // Another product's, which pulls images for updates where it is there.
    needed.add("ClusterRole", kinds::DAEMON_SET.at.group, "imagepulljobs", &[""], &["create"]);
    needed.add("ClusterRole", "", "events", &[""], &["get", "create", "patch"]);
    // Kinds that users list. What may be done with those, users say.
    needed.add("Role", "", "configmaps", &[dapple_api::group::CONFIG], WATCHED);
    needed.add("Role", "coordination.k8s.io", "leases", &[""], &["get", "create", "update"]);
    // Which pods are to be marked, and what probes say of them, by probers that are heard.
    for kind in [kinds::POD_MARKER.at, kinds::NODE_POD_PROBE.at] {
        needed.of(kind, "", WATCHED);
    }
    needed.of(kinds::POD_MARKER.at, "/status", &["patch"]);
    // What is to be probed.
    needed.of(kinds::NODE_POD_PROBE.at, "", &["create", "patch", "delete"]);
    needed.add("Role", kinds::LEASE.group, kinds::LEASE.plural, &[""], WATCHED);
    // Whether a kind is ours to serve: looked at whenever one changes (`control::served`).
    needed.of(kinds::CUSTOM_RESOURCE_DEFINITION, "", WATCHED);
    needed.of(kinds::CUSTOM_RESOURCE_DEFINITION, "", &["get"]);
}

/// What webhooks do (`admit`): they know what objects name, ask about pods, and keep themselves registered.
fn of_webhooks(needed: &mut Needed) {
    for kind in [kinds::NODE, kinds::NODE_GROUP.at, kinds::NODE_POOL.at, kinds::REPLACEMENT.at] {
        needed.of(kind, "", WATCHED);
    }
    needed.add("Role", "", "podtemplates", &[""], &["create"]);
    let converted = kinds::OWN.into_iter().filter(|own| own.is_converted());
    let KindInfo { group, plural, .. } = kinds::CUSTOM_RESOURCE_DEFINITION;
    for crd in converted.map(kinds::OwnKind::crd) {
        needed.add("ClusterRole", group, plural, &[&crd], &["update"]);
    }
    // Of each resource all names are allowed: one rule says both.
    let names = [
        DAEMONSET_CONFIGURATION,
        VALIDATING_CONFIGURATION,
        MUTATING_CONFIGURATION,
        GATE_CONFIGURATION,
        POOL_CONFIGURATION,
    ];
    assert!(HOOKS.iter().all(|hook| names.contains(&hook.configuration)));
    for resource in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        needed.add("ClusterRole", "admissionregistration.k8s.io", resource, &names, &["get", "update"]);
    }
    needed.add("Role", "", "secrets", &[""], &["create"]);
    // The scheduler extender (`extend`) keeps certificates of its own.
    needed.add("Role", "", "secrets", &[WEBHOOK_SECRET, dapple_extend::SECRET], &["get", "update"]);
    needed.add("Role", "discovery.k8s.io", "endpointslices", &[""], &["list"]);
}

#[test]
fn the_manager_may_do_what_it_does_and_nothing_else() {
    let mut needed = Needed::default();
    of_controllers(&mut needed);
    of_webhooks(&mut needed);
    let given = given();
    let missing: Vec<_> = needed.0.difference(&given).collect();
    let too_much: Vec<_> = given.difference(&needed.0).collect();
    assert!(missing.is_empty() && too_much.is_empty(), "missing: {missing:#?}\ntoo much: {too_much:#?}");
}

/// The prober as it is installed: the pod's spec.
fn installed(runtime: Option<(&str, &str)>) -> Value {
    let objects = prober("example/dapple:1", runtime).unwrap();
    let set = objects.into_iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    set["spec"]["template"]["spec"].clone()
}

#[test]
fn the_prober_is_on_the_network_of_its_node_and_has_no_other_rights_there() {
    let pod = installed(None);
    assert_eq!(pod["hostNetwork"], true);
    assert!(pod.get("volumes").is_none() && pod.get("hostPID").is_none() && pod.get("hostIPC").is_none());
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "example/dapple:1");
    assert_eq!(container["args"], json!(["node", "prober"]));
    let security =
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
    assert_eq!(container["securityContext"], security);
    for field in ["runAsUser", "runAsGroup"] {
        assert_ne!(pod["securityContext"][field], 0, "{field}");
    }
    assert!(container.get("ports").is_none(), "it listens on the loopback address");
}

#[test]
fn the_prober_has_the_runtime_by_the_folder_of_its_socket_and_only_to_run_commands() {
    let pod = installed(Some(("/run/containerd", "/run/containerd/containerd.sock")));
    let container = &pod["containers"][0];
    assert_eq!(
        container["args"],
        json!(["node", "prober", "--exec", "--runtime-socket", "/run/containerd/containerd.sock"])
    );
    assert_eq!(pod["volumes"][0]["hostPath"], json!({"path": "/run/containerd", "type": "Directory"}));
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/run/containerd");
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["securityContext"]["runAsUser"]),
        (&json!(true), &json!(65532))
    );
}

#[test]
fn the_prober_may_do_what_it_does_and_nothing_else() {
    let mut given = BTreeSet::new();
    for object in documents(PROBER).unwrap() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let all = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
            for resource in all("resources") {
                for verb in all("verbs") {
                    let text = |value: &Value| value.as_str().unwrap().to_owned();
                    given.insert((text(&object["kind"]), text(&resource), text(&verb)));
                }
            }
        }
    }
    let expected = [
        ("ClusterRole", "nodepodprobes", "list"),
        ("ClusterRole", "nodepodprobes", "watch"),
        ("ClusterRole", "nodepodprobes/status", "patch"),
        ("Role", "leases", "get"),
        ("Role", "leases", "create"),
        ("Role", "leases", "patch"),
    ];
    let expected = expected.map(|(kind, resource, verb)| (kind.to_owned(), resource.to_owned(), verb.to_owned()));
    assert_eq!(given, BTreeSet::from(expected));
}

#[test]
fn everything_of_the_prober_is_in_its_own_namespace_or_everywhere() {
    for object in documents(PROBER).unwrap() {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == PROBER_NAMESPACE, "{object}");
        let is_ours = object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "dapple";
        assert!(!namespace.is_null() || is_ours, "`dapple down --cluster` removes it: {object}");
    }
}

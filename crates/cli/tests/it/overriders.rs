//! Each overrider on pods of each kind that can ask for policies, where other products put sidecars into pods.
//!
//! One sidecar comes before we are asked about a pod, so that we have to tell it from what its author wrote; the other comes after
//! us. Both stand before the pod's own container: a rule that says `containers/0` means neither.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::gated::{GROUP, REQUIRED, are_all, create_all, is_gated, namespace, node_of, pods, policy};
use crate::reinvocation::other_product;
use crate::support::{eventually, text};
use crate::webhooks::{Hooked, ok};

const NAMESPACE: &str = "meshed";
const SITES: [&str; 2] = ["beijing", "hangzhou"];
const OVERRIDE: &str = "groupmanagement.kubeedge.io/required-overridepolicy";
/// The API group of a kind that is listed for groups.
const GAMES: &str = "games.example.com";

/// The pods of each application, by the label `app`.
const COUNTS: [(&str, usize); 10] = [
    ("cron", 2),
    ("daemon", 4),
    ("game", 2),
    ("job", 2),
    ("kruise", 4),
    ("lone", 2),
    ("replicas", 2),
    ("replication", 2),
    ("set", 2),
    ("web", 2),
];
/// Applications whose pods are deleted by nobody, so that each stays in the group that it was made for, be that right or not.
const KEPT: [&str; 3] = ["cron", "job", "lone"];

pub(crate) async fn each_kind_has_each_overrider_and_sidecars_are_left_alone(hooked: &Hooked) {
    let client = &hooked.client;
    put_in_sidecars(hooked).await;
    let overriding = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "sites", "namespace": NAMESPACE}, "spec": {"overrideRules": SITES.map(rule)}});
    create_all(client, [policy(NAMESPACE), overriding].into_iter()).await;
    list_games(hooked).await;
    create_all(client, applications().into_iter()).await;
    // It would wait for its time otherwise.
    ok(&hooked.kubectl(&["create", "job", "-n", NAMESPACE, "cron-now", "--from=cronjob/cron"], ""));
    // Whoever creates a pod instead of applying it brings its fields in another way.
    ok(&hooked.kubectl(&["create", "-f", "-"], &lone("lone-created").to_string()));
    play_games(hooked).await;

    let count = COUNTS.iter().map(|(_, count)| count).sum();
    let namespaces = [NAMESPACE.to_owned()];
    are_all(client, &namespaces, count, "are as their site has them, sidecars aside", is_right).await;
    let mut found: BTreeMap<String, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for pod in pods(client, &namespaces).await {
        let (count, sites) = found.entry(pod.labels()["app"].clone()).or_default();
        *count += 1;
        sites.extend(site_of(&pod));
    }
    let counts: Vec<(&str, usize)> = found.iter().map(|(name, (count, _))| (name.as_str(), *count)).collect();
    assert_eq!(counts, COUNTS);
    for (name, (_, sites)) in found.iter().filter(|(name, _)| !KEPT.contains(&name.as_str())) {
        assert_eq!(sites.len(), 2, "{name} has pods of both editions");
    }
    pods_of_a_job_keep_no_group_from_its_turn(hooked).await;
}

/// All four overriders. By plain text, something comes and something goes.
fn rule(site: &str) -> Value {
    let own = |words: Value| json!([{"containerName": "c", "operator": "add", "value": words}]);
    let variable = json!([{"name": "SITE", "value": site}]);
    json!({"targetNodeGroup": [site], "overriders": {
        "imageOverrider": [{"component": "Registry", "operator": "replace", "value": format!("{site}.registry.io")}],
        "commandOverrider": own(json!([format!("--in={site}")])),
        "argsOverrider": own(json!([format!("--site={site}")])),
        "plaintext": [{"path": "/spec/containers/0/env", "operator": "add", "value": variable},
            {"path": "/spec/containers/0/workingDir", "operator": "remove"}]}})
}

/// What is compared of containers; the rest is filled in by the API server.
const COMPARED: [&str; 6] = ["name", "image", "command", "args", "env", "workingDir"];

fn is_right(pod: &Pod) -> bool {
    let Some(site) = site_of(pod) else { return false };
    let own = json!({"name": "c", "image": format!("{site}.registry.io/web:1"), "command": ["/run", format!("--in={site}")],
        "args": ["--serve", format!("--site={site}")], "env": [{"name": "SITE", "value": site}]});
    let mut containers = json!(pod.spec.as_ref().unwrap().containers);
    for container in containers.as_array_mut().into_iter().flatten() {
        container.as_object_mut().unwrap().retain(|field, _| COMPARED.contains(&field.as_str()));
    }
    containers == json!([log(), mesh(), own]) && pod.labels().get(GROUP).is_none_or(|group| group == site)
}

/// The site of a pod's node.
fn site_of(pod: &Pod) -> Option<&'static str> {
    let node = node_of(pod);
    SITES.into_iter().find(|site| node.starts_with(site))
}

fn mesh() -> Value {
    json!({"name": "mesh", "image": "mesh.io/proxy:1", "args": ["--mesh"]})
}

fn log() -> Value {
    json!({"name": "log", "image": "log.io/log:1", "command": ["/log"]})
}

/// A policy of the API server, which comes before all webhooks, and a webhook, which comes after ours.
async fn put_in_sidecars(hooked: &Hooked) {
    let version = "admissionregistration.k8s.io/v1";
    let injects = r#"[JSONPatch{op: "add", path: "/spec/containers/0", value: Object.spec.containers{
        name: "mesh", image: "mesh.io/proxy:1", args: ["--mesh"]}}]"#;
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let name = "mesh.example.com";
    let early = json!({"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "once", "expression": "!object.spec.containers.exists(c, c.name == 'mesh')"}],
        "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": injects}}]}});
    let within = json!({"matchLabels": {"mesh": "yes"}});
    let binding = json!({"apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "matchResources": {"namespaceSelector": within}}});
    let front = SocketAddr::from(([127, 0, 0, 1], hooked.cluster.choose_port().unwrap()));
    let logs = |_: &Value| json!([{"op": "add", "path": "/spec/containers/0", "value": log()}]);
    let (_, bundle) = other_product(front, CancellationToken::new(), logs).await;
    let late = json!({"apiVersion": version, "kind": "MutatingWebhookConfiguration", "metadata": {"name": "zz-log"},
        "webhooks": [{"name": "log.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "rules": rules, "namespaceSelector": within,
            "clientConfig": {"url": format!("https://{front}/"), "caBundle": ByteString(bundle.into_bytes())}}]});
    let mut meshed = namespace(NAMESPACE);
    meshed["metadata"]["labels"] = json!({"mesh": "yes"});
    create_all(&hooked.client, [early, binding, late, meshed].into_iter()).await;
    let mut probe = lone("probe");
    probe["metadata"]["labels"] = json!({});
    eventually("sidecars are put in", || async {
        let said = hooked.kubectl(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &probe.to_string());
        let has = |name: &str| text(&said.stdout).contains(name);
        if has("mesh.io") && has("log.io") { Ok(()) } else { Err(text(&said.stderr)) }
    })
    .await;
}

fn template(app: &str) -> Value {
    // There are nodes of no group.
    let sites = json!([{"matchExpressions": [{"key": "place", "operator": "Exists"}]}]);
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": sites}});
    json!({"metadata": {"labels": {"app": app}}, "spec": {"terminationGracePeriodSeconds": 0,
        "affinity": {"nodeAffinity": affinity}, "containers": [
            {"name": "c", "image": "web:1", "command": ["/run"], "args": ["--serve"], "workingDir": "/old"}]}})
}

fn application(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {REQUIRED: "spread", OVERRIDE: "sites"}}})
}

/// A pod that nothing owns.
fn lone(name: &str) -> Value {
    let mut pod = application("v1", "Pod", name, template("lone")["spec"].clone());
    pod["metadata"]["labels"]["app"] = "lone".into();
    pod
}

/// One of each kind.
fn applications() -> Vec<Value> {
    let selected = |app: &str| json!({"selector": {"matchLabels": {"app": app}}, "template": template(app)});
    let scaled = |app: &str| {
        let mut spec = selected(app);
        spec["replicas"] = 2.into();
        spec
    };
    let job = |app: &str| {
        let mut spec = json!({"parallelism": 2, "completions": 2, "template": template(app)});
        spec["template"]["spec"]["restartPolicy"] = "Never".into();
        spec
    };
    let mut set = scaled("set");
    set["podManagementPolicy"] = "Parallel".into();
    let mut replication = scaled("replication");
    replication["selector"] = json!({"app": "replication"});
    let cron = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("cron")}});
    let daemon = |api_version: &str, name: &str| {
        let mut set = application(api_version, "DaemonSet", name, selected(name));
        // Its pods belong to their nodes.
        set["metadata"]["labels"].as_object_mut().unwrap().remove(REQUIRED);
        set
    };
    vec![
        application("apps/v1", "Deployment", "web", scaled("web")),
        application("apps/v1", "StatefulSet", "set", set),
        application("apps/v1", "ReplicaSet", "replicas", scaled("replicas")),
        application("v1", "ReplicationController", "replication", replication),
        application("batch/v1", "Job", "job", job("job")),
        application("batch/v1", "CronJob", "cron", cron),
        daemon("apps/v1", "daemon"),
        daemon("apps.kruise.io/v1beta1", "kruise"),
        lone("lone-applied"),
    ]
}

/// Lists a kind that is not of Kubernetes, and that dapple may read.
async fn list_games(hooked: &Hooked) {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("games.{GAMES}")}, "spec": {"group": GAMES, "scope": "Namespaced",
        "names": {"kind": "Game", "plural": "games", "singular": "game"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "games", "labels": {"dapple.dev/aggregate-to-manager": "true"}},
        "rules": [{"apiGroups": [GAMES], "resources": ["games"], "verbs": ["get", "list", "watch", "patch"]}]});
    create_all(&hooked.client, [crd, role].into_iter()).await;
    let game =
        application(&format!("{GAMES}/v1"), "Game", "game", json!({"replicas": 2, "template": template("game")}));
    eventually("the kind is served", || async {
        let made = dapple_control::install::apply(&hooked.client, &game).await;
        made.map_err(|error| error.to_string())
    })
    .await;
    let listed = json!([{"group": GAMES, "version": "v1", "kind": "Game", "podTemplatePath": "spec.template",
        "replicasPath": "spec.replicas"}]);
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"applications": listed.to_string()},
        "metadata": {"name": "groupmanagement-config", "namespace": "dapple-system"}});
    create_all(&hooked.client, [config].into_iter()).await;
}

/// Makes pods of the listed kind as its controller would, until two stay: one that was made for the wrong group is deleted.
async fn play_games(hooked: &Hooked) {
    let label = "-o=jsonpath={.metadata.labels.groupmanagement\\.kubeedge\\.io/binding-overridepolicy}";
    let get = |format: &str| ok(&hooked.kubectl(&["get", "games", "-n", NAMESPACE, "game", format], ""));
    eventually("the listed kind is bound", || async {
        let bound = get(label);
        if bound == "sites" { Ok(()) } else { Err(bound) }
    })
    .await;
    let owner = json!({"apiVersion": format!("{GAMES}/v1"), "kind": "Game", "name": "game", "controller": true,
        "uid": get("-o=jsonpath={.metadata.uid}")});
    eventually("two games are placed", || async {
        let all = pods(&hooked.client, &[NAMESPACE.to_owned()]).await;
        let games: Vec<&Pod> = all.iter().filter(|pod| pod.labels()["app"] == "game").collect();
        if games.len() < 2 {
            make_game(hooked, &owner);
        }
        let placed = games.iter().filter(|pod| site_of(pod).is_some()).count();
        if placed == 2 { Ok(()) } else { Err(format!("{placed} of {}", games.len())) }
    })
    .await;
}

fn make_game(hooked: &Hooked, owner: &Value) {
    let mut pod = template("game");
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    pod["metadata"]["generateName"] = "game-".into();
    pod["metadata"]["ownerReferences"] = json!([owner]);
    ok(&hooked.kubectl(&["create", "-n", NAMESPACE, "-f", "-"], &pod.to_string()));
}

/// Pods of a Job never change, whatever asks above it: its new ones are made by what the policy says now, in all groups.
async fn pods_of_a_job_keep_no_group_from_its_turn(hooked: &Hooked) {
    let (client, here) = (&hooked.client, ["played".to_owned()]);
    let get = |object: &str, path: &str| {
        ok(&hooked.kubectl(&["get", "-n", "played", object, &format!("-o=jsonpath={path}")], ""))
    };
    let says = |version: usize| {
        let args = json!([{"containerName": "c", "operator": "add", "value": [format!("--version={version}")]}]);
        json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "sites", "namespace": "played"}, "spec": {"overrideRules": [{"argsOverrider": args}]}})
    };
    let spec = json!({"replicas": 4, "template": template("play")});
    let mut game = application(&format!("{GAMES}/v1"), "Game", "play", spec);
    game["metadata"]["namespace"] = "played".into();
    create_all(client, [namespace("played")].into_iter()).await;
    create_all(client, [policy("played"), says(1)].into_iter()).await;
    create_all(client, [game].into_iter()).await;
    eventually("the game is bound", || async {
        let path = "{.metadata.labels.groupmanagement\\.kubeedge\\.io/binding-overridepolicy}";
        let bound = get("games/play", path);
        if bound == "sites" { Ok(()) } else { Err(bound) }
    })
    .await;
    let owner = json!({"apiVersion": format!("{GAMES}/v1"), "kind": "Game", "name": "play", "controller": true,
        "uid": get("games/play", "{.metadata.uid}")});
    // Nobody binds its pods, so they do not end.
    let mut made_of = template("play");
    made_of["spec"]["restartPolicy"] = "Never".into();
    made_of["spec"]["schedulerName"] = "nobody".into();
    let job = |parallelism: usize| {
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "play", "namespace": "played", "ownerReferences": [owner]},
            "spec": {"parallelism": parallelism, "completions": 4, "template": made_of}})
    };
    let is_placed = |pod: &Pod| pod.labels().contains_key(GROUP) && !is_gated(pod);
    let versions = async || {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for pod in pods(client, &here).await {
            let args = pod.spec.unwrap_or_default().containers[0].args.clone().unwrap_or_default();
            *counts.entry(args.last().cloned().unwrap_or_default()).or_default() += 1;
        }
        counts
    };
    create_all(client, [job(2)].into_iter()).await;
    are_all(client, &here, 2, "are placed", is_placed).await;
    assert_eq!(versions().await, BTreeMap::from([("--version=1".to_owned(), 2)]));
    create_all(client, [says(2)].into_iter()).await;
    eventually("what the policy says now is seen", || async {
        let seen = get("overridepolicies/sites", "{.status.observedGeneration}");
        if seen == "2" { Ok(()) } else { Err(seen) }
    })
    .await;
    create_all(client, [job(4)].into_iter()).await;
    are_all(client, &here, 4, "are placed", is_placed).await;
    assert_eq!(versions().await, BTreeMap::from([("--version=1".to_owned(), 2), ("--version=2".to_owned(), 2)]));
}

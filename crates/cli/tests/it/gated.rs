//! New pods of workloads that ask for a policy wait behind the gate, put there by the webhooks of the real program.

use std::collections::BTreeMap;

use dapple_plan::group::filter::held_back;
use dapple_testbed::{ClusterSpec, Fleet};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{dapple, eventually, installed, lease, text};
use crate::webhooks::{Hooked, ok};

pub(crate) const REQUIRED: &str = "groupmanagement.kubeedge.io/required-propagationpolicy";
const BINDING: &str = "groupmanagement.kubeedge.io/binding-propagationpolicy";
pub(crate) const GROUP: &str = "dapple.dev/group";

/// Two groups of nodes, and room for two replicas of the manager.
async fn start() -> Hooked {
    let hooked = Hooked::on(installed(ClusterSpec::temporary()).await).await;
    let kind = |site: &str| json!({"name": site, "count": 2, "labels": {"place": site}});
    let fleet = json!({"kinds": [kind("beijing"), kind("hangzhou")]});
    hooked.cluster.apply_fleet(&Fleet::from_yaml(&fleet.to_string(), "fleet").unwrap()).await.unwrap();
    let group = |site: &str| {
        json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup", "metadata": {"name": site},
            "spec": {"matchLabels": {"place": site}}})
    };
    for site in ["beijing", "hangzhou"] {
        ok(&hooked.kubectl(&["apply", "-f", "-"], &group(site).to_string()));
    }
    hooked
}

pub(crate) fn deployment(namespace: &str, name: &str, replicas: usize, asks: bool) -> Value {
    let labels = if asks { json!({REQUIRED: "spread"}) } else { json!({}) };
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "web:1"}]}}}})
}

pub(crate) fn policy(namespace: &str) -> Value {
    json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "spread", "namespace": namespace}, "spec": {"staticWeightList": [
            {"nodeGroupNames": ["beijing"], "weight": 1}, {"nodeGroupNames": ["hangzhou"], "weight": 1}]}})
}

/// Creates objects as one user does, all at the same time once the namespaces among them are there.
pub(crate) async fn create_all(client: &Client, objects: impl Iterator<Item = Value>) {
    let (namespaces, others): (Vec<Value>, Vec<Value>) = objects.partition(|object| object["kind"] == "Namespace");
    for objects in [namespaces, others] {
        let created = objects.iter().map(|object| async move { dapple_control::install::apply(client, object).await });
        join_all(created).await.into_iter().for_each(|done| done.unwrap());
    }
}

pub(crate) async fn pods(client: &Client, namespaces: &[String]) -> Vec<Pod> {
    let all = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    all.items.into_iter().filter(|pod| namespaces.contains(&pod.namespace().unwrap_or_default())).collect()
}

pub(crate) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == GROUP)
}

pub(crate) fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

/// Waits until so many pods are there, and all are such.
pub(crate) async fn are_all(
    client: &Client,
    namespaces: &[String],
    count: usize,
    what: &str,
    is_such: impl Fn(&Pod) -> bool,
) {
    eventually(&format!("{count} pods {what}"), || async {
        let found = pods(client, namespaces).await;
        let such = found.iter().filter(|pod| is_such(pod)).count();
        let others = || found.iter().filter(|pod| !is_such(pod));
        let (names, other): (Vec<_>, _) = (others().map(|pod| pod.name_any()).collect(), others().next());
        if (found.len(), such) == (count, count) {
            Ok(())
        } else {
            Err(format!("{such} of {}, not {names:?}; {other:?}", found.len()))
        }
    })
    .await;
}

/// Waits for an Event with this reason.
async fn has_event(client: &Client, namespace: &str, wanted: &str) {
    eventually(&format!("an event {wanted}"), || async {
        let events = Api::<Event>::namespaced(client.clone(), namespace).list(&ListParams::default()).await.unwrap();
        let reasons: Vec<String> = events.into_iter().filter_map(|event| event.reason).collect();
        if reasons.iter().any(|reason| reason == wanted) { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
}

/// Waits until a leader says that it places pods.
pub(crate) async fn is_placing(client: &Client) {
    use k8s_openapi::api::coordination::v1::Lease;
    let leases = Api::<Lease>::namespaced(client.clone(), "dapple-system");
    eventually("a leader places pods", || async {
        let lease = leases.get_opt("dapple-manager").await.map_err(|error| error.to_string())?.unwrap_or_default();
        let holder = lease.spec.clone().and_then(|spec| spec.holder_identity);
        let says_so = lease.annotations().get("dapple.dev/places") == holder.as_ref() && holder.is_some();
        if says_so { Ok(()) } else { Err(format!("{:?}", lease.metadata.annotations)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_their_policy_from_the_first_on_and_are_released_when_dapple_leaves() {
    let hooked = start().await;
    let client = &hooked.client;
    let mut managers = [hooked.replica_with(0, &[]), hooked.replica_with(1, &[])];
    hooked.asked().await;
    is_placing(client).await;
    in_fresh_namespaces_nothing_is_scheduled_before_its_policy_is_there(&hooked).await;
    only_what_asks_waits(&hooked).await;
    labels_that_were_wrong_count_no_more(&hooked).await;
    while_another_policy_is_confirmed_than_is_asked_for_new_pods_wait(&hooked).await;
    each_group_has_its_own_edition(&hooked).await;
    what_is_taken_of_one_template_says_nothing_about_the_next(&hooked).await;
    crate::overriders::each_kind_has_each_overrider_and_sidecars_are_left_alone(&hooked).await;

    // A policy that never comes: the pods would wait for ever.
    let left = ["left".to_owned()];
    create_all(client, [namespace("left"), deployment("left", "web", 3, true)].into_iter()).await;
    are_all(client, &left, 3, "wait", is_gated).await;
    for manager in &mut managers {
        manager.signal(Signal::TERM);
        manager.wait();
    }
    nobody_gates_what_nobody_opens(&hooked).await;
    assert!(pods(client, &left).await.iter().all(is_gated), "nobody else opens the gate");
    let kubeconfig = hooked.cluster.admin_kubeconfig().display().to_string();
    let said = dapple(&["down", "--cluster", "--yes", "--kubeconfig", &kubeconfig]);
    let all = ok(&said);
    assert!(all.contains("released 3 pods from the scheduling gate"), "{all}{}", text(&said.stderr));
    are_all(client, &left, 3, "are on nodes", |pod| !is_gated(pod) && !node_of(pod).is_empty()).await;
    hooked.cluster.stop().await.unwrap();
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The first pods of a new namespace would win the race, were it not added before the workload is there.
async fn in_fresh_namespaces_nothing_is_scheduled_before_its_policy_is_there(hooked: &Hooked) {
    let client = &hooked.client;
    let names: Vec<String> = (0..50).map(|number| format!("fresh-{number}")).collect();
    create_all(client, names.iter().map(|name| namespace(name))).await;
    create_all(client, names.iter().map(|name| deployment(name, "web", 2, true))).await;
    // A pod that is on a node never leaves it: none was there at any time.
    are_all(client, &names, 100, "wait", |pod| is_gated(pod) && node_of(pod).is_empty()).await;
    let copied = pods(client, &names).await;
    assert!(copied.iter().any(|pod| pod.labels().get(REQUIRED).is_some()), "labels of the application are copied");
    has_event(client, &names[0], "WaitingForPolicy").await;
    create_all(client, names.iter().map(|name| policy(name))).await;
    let is_placed = |pod: &Pod| {
        let group = pod.labels().get(GROUP).cloned().unwrap_or_default();
        !group.is_empty() && node_of(pod).starts_with(&group)
    };
    are_all(client, &names, 100, "are on nodes of their groups", is_placed).await;
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods(client, &names).await {
        *shares.entry(pod.labels()[GROUP].clone()).or_default() += 1;
    }
    assert_eq!(shares, BTreeMap::from([("beijing".to_owned(), 50), ("hangzhou".to_owned(), 50)]));
}

/// Other pods of such a namespace, and all of others, are as they would be without dapple; a pod of its own may ask itself.
async fn only_what_asks_waits(hooked: &Hooked) {
    let client = &hooked.client;
    let beside = ["beside".to_owned()];
    create_all(client, [namespace("beside"), policy("beside"), deployment("beside", "other", 2, false)].into_iter())
        .await;
    are_all(client, &beside, 2, "are on nodes", |pod| {
        !node_of(pod).is_empty() && pod.labels().get(GROUP).is_none() && !is_gated(pod)
    })
    .await;
    let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "labels": {REQUIRED: "spread"}},
        "spec": {"containers": [{"name": "c", "image": "web:1"}]}});
    ok(&hooked.kubectl(&["create", "-n", "beside", "-f", "-"], &bare.to_string()));
    eventually("a pod of its own is placed", || async {
        let pod = Api::<Pod>::namespaced(client.clone(), "beside").get("bare").await.unwrap();
        if pod.labels().contains_key(GROUP) && !node_of(&pod).is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", pod.spec))
        }
    })
    .await;
    // Whoever asks for a policy that is not there is told so.
    create_all(client, [namespace("told")].into_iter()).await;
    let asking = deployment("told", "web", 0, true).to_string();
    let said = hooked.kubectl(&["create", "--dry-run=server", "-f", "-"], &asking);
    let warned = text(&said.stderr);
    assert!(warned.contains("has no PropagationPolicy \"spread\" yet: pods wait until it is there"), "{warned}");
    // So is who asks for one that would take pods away from the workload. It is not refused: whichever came first, pods wait.
    let rule = json!({"plaintext": [{"path": "/metadata/labels/app", "operator": "replace", "value": "other"}]});
    let taking = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "taking", "namespace": "told"}, "spec": {"overrideRules": [rule]}});
    create_all(client, [taking].into_iter()).await;
    let mut asking = deployment("told", "web", 0, false);
    asking["metadata"]["labels"] = json!({"groupmanagement.kubeedge.io/required-overridepolicy": "taking"});
    eventually("a policy that does not apply is warned of", || async {
        let said = hooked.kubectl(&["create", "--dry-run=server", "-f", "-"], &asking.to_string());
        ok(&said);
        let warned = text(&said.stderr);
        if warned.contains("it changes the label app of pods, which its selector needs") { Ok(()) } else { Err(warned) }
    })
    .await;
}

/// What is copied to pods when they come may be wrong: from the gate on they say what their application says by then, so that no
/// node gateway holds them back.
async fn labels_that_were_wrong_count_no_more(hooked: &Hooked) {
    let client = &hooked.client;
    let wrong = ["wrong".to_owned()];
    create_all(client, [namespace("wrong"), policy("wrong")].into_iter()).await;
    let misspelt = |name: &str| {
        let mut web = deployment("wrong", name, 2, true);
        web["metadata"]["labels"][REQUIRED] = "spraed".into();
        web
    };
    create_all(client, ["corrected", "freed"].map(misspelt).into_iter()).await;
    are_all(client, &wrong, 4, "wait", is_gated).await;
    let label = |object: &str, label: &str| {
        ok(&hooked.kubectl(&["label", "-n", "wrong", object, label, "--overwrite"], ""));
    };
    label("deployment/corrected", &format!("{REQUIRED}=spread"));
    label("deployment/freed", &format!("{REQUIRED}-"));
    are_all(client, &wrong, 4, "are on nodes, and say what they are by", |pod| {
        let asked = (pod.labels().get(REQUIRED).map(String::as_str), pod.labels().get(BINDING).map(String::as_str));
        let is_asked = pod.labels()["app"] == "corrected";
        let expected = if is_asked { (Some("spread"), Some("spread")) } else { (None, None) };
        !node_of(pod).is_empty() && asked == expected && held_back(pod.labels(), false).is_none()
    })
    .await;
}

/// The policy that is asked for by now does not apply, and the one before stays confirmed: pods by that run on, new ones wait.
async fn while_another_policy_is_confirmed_than_is_asked_for_new_pods_wait(hooked: &Hooked) {
    const OVERRIDES: &str = "groupmanagement.kubeedge.io/required-overridepolicy";
    let client = &hooked.client;
    let here = ["differs".to_owned()];
    let overrides = |name: &str, container: &str| {
        let args = json!([{"containerName": container, "operator": "add", "value": ["--edge"]}]);
        json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": name, "namespace": "differs"}, "spec": {"overrideRules": [{"argsOverrider": args}]}})
    };
    create_all(client, [namespace("differs")].into_iter()).await;
    create_all(client, [policy("differs"), overrides("one", "c"), overrides("two", "nobody")].into_iter()).await;
    let mut web = deployment("differs", "web", 2, true);
    web["metadata"]["labels"][OVERRIDES] = "one".into();
    create_all(client, [web].into_iter()).await;
    let runs = |pod: &Pod| !is_gated(pod) && !node_of(pod).is_empty();
    are_all(client, &here, 2, "are on nodes", runs).await;
    let web = |words: &[&str], change: &str| {
        ok(&hooked.kubectl(&[words, &["-n", "differs", "deployment/web", change]].concat(), ""));
    };
    web(&["label", "--overwrite"], &format!("{OVERRIDES}=two"));
    has_event(client, "differs", "PolicyNotApplicable").await;
    web(&["scale"], "--replicas=4");
    // Neither does a node gateway let them through.
    let waits = |pod: &Pod| is_gated(pod) && held_back(pod.labels(), false).is_some();
    are_all(client, &here, 4, "run or wait", |pod| runs(pod) || waits(pod)).await;
    has_event(client, "differs", "WaitingForPolicy").await;
    assert_eq!(pods(client, &here).await.iter().filter(|pod| waits(pod)).count(), 2, "the first two run on");
    create_all(client, [overrides("two", "c")].into_iter()).await;
    are_all(client, &here, 4, "are on nodes", runs).await;
}

/// Images are made and corrected; what cannot be corrected is made anew, but for Jobs, which would count it as failed.
async fn each_group_has_its_own_edition(hooked: &Hooked) {
    let client = &hooked.client;
    let rule = |group: &str| {
        json!({"targetNodeGroup": [group], "overriders": {
            "imageOverrider": [{"component": "Registry", "operator": "replace", "value": format!("{group}.registry.io")}],
            "argsOverrider": [{"containerName": "c", "operator": "add", "value": [format!("--site={group}")]}]}})
    };
    let editions = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "sites", "namespace": "editions"}, "spec": {"overrideRules": [rule("beijing"), rule("hangzhou")]}});
    let asks = json!({REQUIRED: "spread", "groupmanagement.kubeedge.io/required-overridepolicy": "sites"});
    create_all(client, [namespace("editions")].into_iter()).await;
    create_all(client, [policy("editions"), editions.clone()].into_iter()).await;
    let mut web = deployment("editions", "web", 5, true);
    web["metadata"]["labels"] = asks.clone();
    let mut set = web.clone();
    (set["kind"], set["metadata"]["name"]) = (json!("StatefulSet"), json!("set"));
    set["spec"]["podManagementPolicy"] = "Parallel".into();
    set["spec"]["selector"]["matchLabels"]["app"] = "set".into();
    set["spec"]["template"]["metadata"]["labels"]["app"] = "set".into();
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "editions",
        "labels": asks}, "spec": {"parallelism": 4, "completions": 4, "template": web["spec"]["template"]}});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    job["spec"]["template"]["metadata"]["labels"] = json!({"app": "job"});
    // Its pods would be those of the next revision: labels and policies come in any order.
    create_all(client, [web.clone(), set, job].into_iter()).await;
    let is_right = |pod: &Pod| {
        let group = pod.labels().get(GROUP).cloned().unwrap_or_default();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        !group.is_empty()
            && node_of(pod).starts_with(&group)
            && container.image.as_deref() == Some(&format!("{group}.registry.io/web:1"))
            && container.args == Some(vec![format!("--site={group}")])
            && pod.annotations().contains_key("dapple.dev/edition")
    };
    are_all(client, &["editions".to_owned()], 14, "are of their group's edition", is_right).await;
    let mut shares: BTreeMap<(String, String), usize> = BTreeMap::new();
    for pod in pods(client, &["editions".to_owned()]).await {
        *shares.entry((pod.labels()["app"].clone(), pod.labels()[GROUP].clone())).or_default() += 1;
    }
    let share = |app: &str, group: &str| shares.get(&(app.to_owned(), group.to_owned())).copied().unwrap_or_default();
    assert_eq!([share("web", "beijing"), share("web", "hangzhou")], [3, 2]);
    assert_eq!([share("set", "beijing"), share("set", "hangzhou")], [3, 2]);
    let job = hooked.kubectl(&["get", "job", "-n", "editions", "job", "-o", "jsonpath={.status.failed}"], "");
    assert_eq!(ok(&job), "", "no pod of a Job is ever deleted");

    // What the API server refuses reaches nobody: new pods get the last edition that is any good.
    let mut refused = editions;
    let nowhere = json!({"plaintext": [{"path": "/spec/dnsPolicy", "operator": "add", "value": "Nowhere"}]});
    refused["spec"]["overrideRules"].as_array_mut().unwrap().push(nowhere);
    web["spec"]["replicas"] = json!(7);
    create_all(client, [refused].into_iter()).await;
    create_all(client, [web].into_iter()).await;
    are_all(client, &["editions".to_owned()], 16, "are of their group's last good edition", is_right).await;
}

/// Pods of a ReplicationController are of no revision. What an edition makes of its next template may be refused: then pods wait, and
/// do not fail to come.
async fn what_is_taken_of_one_template_says_nothing_about_the_next(hooked: &Hooked) {
    let client = &hooked.client;
    let here = ["anew".to_owned()];
    let mount = json!({"path": "/spec/containers/0/volumeMounts", "operator": "add",
        "value": [{"name": "cache", "mountPath": "/cache"}]});
    let editions = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "sites", "namespace": "anew"},
        "spec": {"overrideRules": [{"overriders": {"plaintext": [mount]}}]}});
    let asks = json!({REQUIRED: "spread", "groupmanagement.kubeedge.io/required-overridepolicy": "sites"});
    let controller = |replicas: usize, volumes: Value| {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false, "volumes": volumes, "containers": [{"name": "c", "image": "web:1"}]}});
        json!({"apiVersion": "v1", "kind": "ReplicationController",
            "metadata": {"name": "web", "namespace": "anew", "labels": asks},
            "spec": {"replicas": replicas, "selector": {"app": "web"}, "template": template}})
    };
    let cache = json!([{"name": "cache", "emptyDir": {}}]);
    let is_right = |pod: &Pod| {
        let mounts = pod.spec.as_ref().and_then(|spec| spec.containers[0].volume_mounts.as_ref());
        mounts.is_some_and(|mounts| mounts.iter().any(|mount| mount.name == "cache")) && !node_of(pod).is_empty()
    };
    create_all(client, [namespace("anew")].into_iter()).await;
    create_all(client, [policy("anew"), editions].into_iter()).await;
    create_all(client, [controller(2, cache.clone())].into_iter()).await;
    are_all(client, &here, 2, "have what the edition mounts", is_right).await;
    create_all(client, [controller(3, json!([]))].into_iter()).await;
    are_all(client, &here, 3, "have it, or wait", |pod| is_right(pod) || is_gated(pod)).await;
    create_all(client, [controller(3, cache)].into_iter()).await;
    are_all(client, &here, 3, "have what the edition mounts again", is_right).await;
}

/// With all managers gone, pods come as if dapple were away.
async fn nobody_gates_what_nobody_opens(hooked: &Hooked) {
    let client = &hooked.client;
    assert_eq!(lease(client).await.holder_identity.unwrap_or_default(), "", "the lease was given back");
    create_all(client, [deployment("fresh-0", "late", 2, true)].into_iter()).await;
    eventually("pods come without the gate", || async {
        let found = pods(client, &["fresh-0".to_owned()]).await;
        let late: Vec<&Pod> = found.iter().filter(|pod| pod.name_any().starts_with("late")).collect();
        let run = late.iter().filter(|pod| !is_gated(pod) && !node_of(pod).is_empty()).count();
        if (late.len(), run) == (2, 2) { Ok(()) } else { Err(format!("{run} of {}", late.len())) }
    })
    .await;
}

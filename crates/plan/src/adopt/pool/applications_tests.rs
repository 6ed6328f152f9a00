//! What OpenYurt left, changed in the ways in which people change it: whose pods would restart, and why.

use serde_json::json;

use super::super::tests::{judged, left};
use super::super::{Adoption, judge};
use super::*;

/// What OpenYurt left, with another value at a place of an object that is found by its name.
fn changed(name: &str, pointer: &str, value: Value) -> Observed {
    let mut observed = left();
    let Observed { kinds, deployments, stateful_sets, revisions, .. } = &mut observed;
    let objects = kinds.iter_mut().flat_map(|seen| seen.objects.iter_mut().flatten());
    let all = objects.chain(deployments).chain(stateful_sets).chain(revisions);
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer has a last field");
    for object in all.filter(|object| object["metadata"]["name"] == name) {
        object.pointer_mut(parent).expect("it is there")[field] = value.clone();
    }
    observed
}

fn refusals(adoption: &Adoption) -> Vec<String> {
    adoption.refusals.iter().map(ToString::to_string).collect()
}

/// The only thing that stands in the way, with these parts.
fn refused(observed: &Observed, parts: &[&str]) -> String {
    let told = refusals(&judged(observed));
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(parts.iter().all(|part| told[0].contains(part)), "{told:#?} has not {parts:?}");
    told[0].clone()
}

const TEMPLATE: &str = "/spec/workloadTemplate/deploymentTemplate/spec/template/spec";

#[test]
fn only_pools_whose_rendering_differs_would_restart() {
    // The pool beijing has an image of its own.
    let image =
        json!([{"name": "nginx", "image": "nginx:1.25", "volumeMounts": [{"name": "cfg", "mountPath": "/etc/cfg"}]}]);
    let observed = changed("yurtappset-demo", &format!("{TEMPLATE}/containers"), image);
    let told = refused(
        &observed,
        &[
            "YurtAppSet default/yurtappset-demo: spec.workloadTemplate.deploymentTemplate.spec.template.spec.containers",
            "would restart the pods in the pool hangzhou",
            "of revision yurtappset-demo-b6dd6dc46, and the application says something else by now",
            "let OpenYurt finish its rollout first, or add --allow-restarts",
        ],
    );
    assert!(!told.contains("beijing"), "{told}");
    let allowed = judge(&observed, true, 0);
    assert_eq!(allowed.refusals, []);
    assert!(allowed.notes.iter().any(|note| note.contains("hangzhou") && note.ends_with("as allowed")));
}

#[test]
fn what_openyurt_leaves_out_of_a_daemon_is_told() {
    // OpenYurt's revision has it too: the application was made so.
    let mut observed = changed("daemon-demo", &format!("{TEMPLATE}/nodeSelector"), json!({"disk": "ssd"}));
    let revision = observed.revisions.iter_mut().find(|known| known["metadata"]["name"] == "daemon-demo-67d6f99b64");
    revision.unwrap()["data"]["spec"]["workloadTemplate"]["deploymentTemplate"]["spec"]["template"]["spec"]["nodeSelector"] =
        json!({"disk": "ssd"});
    refused(
        &observed,
        &[
            "YurtAppDaemon default/daemon-demo: spec.workloadTemplate.deploymentTemplate.spec.template.spec.nodeSelector.disk",
            "would restart the pods in 2 pools (beijing, hangzhou)",
            "OpenYurt leaves a YurtAppDaemon's own nodeSelector and required affinity out, and dapple keeps them",
            "take it out of the template",
        ],
    );
}

#[test]
fn what_somebody_changed_of_a_workload_is_told() {
    let pointer = "/spec/template/spec/hostNetwork";
    refused(
        &changed("sts-demo-hangzhou-h5b74", pointer, json!(true)),
        &[
            "YurtAppSet default/sts-demo: spec.workloadTemplate.statefulSetTemplate.spec.template.spec.hostNetwork",
            "the pool hangzhou: their workloads have something else",
            "have the application say what they have",
        ],
    );
    let mut without_pods = changed("sts-demo-hangzhou-h5b74", pointer, json!(true));
    without_pods.stateful_sets[0]["spec"]["replicas"] = json!(0);
    without_pods.stateful_sets[0]["status"]["replicas"] = json!(0);
    assert_eq!(refusals(&judged(&without_pods)), [""; 0], "there is no pod");
}

#[test]
fn a_replacement_in_force_is_told_and_one_that_did_what_openyurt_did_restarts_nothing() {
    let replacement = |name: &str, created: &str, image: &str| {
        json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
            "metadata": {"namespace": "default", "name": name, "creationTimestamp": created},
            "subject": {"kind": "YurtAppSet", "name": "yurtappset-demo"},
            "replacements": [{"pools": ["hangzhou"], "items": [
                {"image": {"containerName": "nginx", "imageClaim": image}}]}]})
    };
    let mut observed = left();
    observed.replacements.push(replacement("r", "2026-01-02T00:00:00Z", "nginx:9"));
    refused(
        &observed,
        &[
            "YurtAppConfigurationReplacement default/r: replacements would restart the pods in the pool hangzhou",
            "it changes spec.template.spec.containers[name=nginx].image of YurtAppSet default/yurtappset-demo",
            "take it out until the application is adopted",
        ],
    );
    // As OpenYurt's overrider had it.
    observed
        .deployments
        .iter_mut()
        .filter(|known| known["metadata"]["name"] == "yurtappset-demo-hangzhou-xfp6l")
        .for_each(|workload| workload["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:9"));
    assert_eq!(refusals(&judged(&observed)), [""; 0]);
    observed.replacements.push(replacement("older", "2026-01-01T00:00:00Z", "nginx:1.14.2"));
    assert!(refusals(&judged(&observed))[0].contains("hangzhou"), "the older one counts");
}

#[test]
fn what_another_webhook_makes_of_it_restarts_nothing() {
    let pointer = "/spec/template/spec/containers/0/image";
    let mut observed = changed("yurtappset-demo-hangzhou-xfp6l", pointer, json!("nginx@sha256:1"));
    refused(&observed, &["hangzhou"]);
    let trials = trials(&observed);
    let [trial] = trials.as_slice() else { panic!("{trials:?}") };
    assert_eq!(trial.path, "/apis/apps/v1/namespaces/default/deployments/yurtappset-demo-hangzhou-xfp6l");
    assert_eq!(trial.patch["metadata"]["uid"], json!(trial.uid));
    assert_eq!(trial.patch["metadata"]["resourceVersion"], Value::Null, "its status may go on");
    assert_eq!(trial.patch["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.14.2");
    let mut stored = trial.stored.clone();
    assert_eq!(trial.answered(&stored), Answer::AsStored);
    stored["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:1.14.2");
    assert_eq!(trial.answered(&stored), Answer::Changed);
    for (answer, refusals, notes) in [
        (Answer::AsStored, 0, 0),
        (trial.refused(422, "no"), 0, 1),
        (trial.refused(409, "it changes"), 1, 0),
        (Answer::Changed, 1, 0),
    ] {
        observed.answers.insert(trial.uid.clone(), answer.clone());
        let adoption = judged(&observed);
        assert_eq!(
            (adoption.refusals.len(), adoption.notes.len()),
            (refusals, notes),
            "{answer:?}: {:?}",
            adoption.notes
        );
    }
}

#[test]
fn live_numbers_of_pods_are_kept_and_told() {
    let observed = changed("yurtappset-demo-beijing-pcg79", "/spec/replicas", json!(7));
    let adoption = judged(&observed);
    assert_eq!(adoption.refusals, []);
    assert_eq!(
        adoption.notes,
        ["YurtAppSet default/yurtappset-demo: the pool beijing keeps its 7 pods, though 2 are declared"]
    );
}

#[test]
fn what_is_not_as_in_a_finished_rollout_is_told_and_stops_nothing() {
    let notes = |change: &dyn Fn(&mut Observed)| {
        let mut observed = left();
        change(&mut observed);
        let adoption = judged(&observed);
        assert_eq!(adoption.refusals, [], "{:?}", adoption.notes);
        adoption.notes.join("\n")
    };
    let missing = notes(&|observed| drop(observed.deployments.remove(0)));
    assert!(missing.contains("YurtAppDaemon default/daemon-demo: the pool beijing without a workload"), "{missing}");
    let doubled = notes(&|observed| {
        let mut double = observed.deployments[0].clone();
        double["metadata"]["name"] = json!("younger");
        double["metadata"]["creationTimestamp"] = json!("2026-11-16T00:00:00Z");
        observed.deployments.insert(0, double);
    });
    assert!(
        doubled.contains("default/younger is for the pool beijing too, beside default/daemon-demo-beijing-f8gvf"),
        "{doubled}"
    );
    let left_over = notes(&|observed| {
        let Ok(pools) = &mut observed.pools else { return };
        pools[1]["metadata"]["labels"] = json!({});
    });
    assert!(
        left_over
            .contains("it is not in the pool hangzhou any more: dapple removes default/daemon-demo-hangzhou-m4srk"),
        "{left_over}"
    );
    let switched = notes(&|observed| {
        let Ok(sets) = &mut observed.kinds[1].objects else { return };
        let mut template = sets[0]["spec"]["workloadTemplate"]["statefulSetTemplate"].take();
        template["spec"]["serviceName"].take();
        sets[0]["spec"]["workloadTemplate"] = json!({"deploymentTemplate": template});
    });
    assert!(switched.contains("its template is of another kind than default/sts-demo-hangzhou-h5b74"), "{switched}");
}

#[test]
fn a_pool_that_cannot_be_rendered_stays_as_it_is() {
    let container = json!([{"image": "nginx:1.14.2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": container}}}});
    let observed = changed("yurtappset-demo", "/spec/topology/pools", json!([{"name": "hangzhou", "patch": patch}]));
    let adoption = judged(&observed);
    let note = adoption.notes.iter().find(|note| note.contains("the pool hangzhou stays as it is"));
    assert!(adoption.refusals.is_empty() && note.is_some(), "{:?}", adoption.notes);
    let fixed = changed("sts-demo", "/spec/workloadTemplate/statefulSetTemplate/spec/serviceName", json!("another"));
    let adoption = judged(&fixed);
    assert_eq!(adoption.refusals, []);
    assert!(adoption.notes[0].contains("spec.serviceName would have to change"), "{:?}", adoption.notes);
}

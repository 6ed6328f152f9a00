//! What OpenYurt 1.4.4 left on a cluster, and what becomes of it.

use dapple_api::manifest;
use serde_json::json;

use super::*;

/// The objects of a file of what OpenYurt left.
macro_rules! data {
    ($name:literal) => {
        objects($name, include_bytes!(concat!("../../../cli/tests/data/openyurt/", $name)))
    };
}

fn objects(name: &str, bytes: &[u8]) -> Vec<Value> {
    let manifests = manifest::read(name, bytes).expect("the data can be read");
    manifests.iter().map(|manifest| manifest.value().clone()).collect()
}

fn seen(taken: &'static Taken, objects: Vec<Value>) -> SeenKind {
    let crd = json!({"metadata": {"uid": taken.kind.at.plural}, "status": {"storedVersions": [taken.kind.at.version]}});
    SeenKind { taken, crd, names: objects.iter().map(name_of).collect(), objects: Ok(objects) }
}

/// What OpenYurt left, when its manager is gone.
pub(super) fn left() -> Observed {
    let of_kind = |kind: &str| -> Vec<Value> {
        data!("workloads.yaml").into_iter().filter(|known| known["kind"] == kind).collect()
    };
    let pools = data!("nodepools.yaml");
    Observed {
        kinds: vec![
            seen(&NODE_POOLS, pools.clone()),
            seen(&YURT_APP_SETS, data!("yurtappsets.yaml")),
            seen(&YURT_APP_DAEMONS, data!("yurtappdaemons.yaml")),
        ],
        others: Vec::new(),
        deployments: of_kind("Deployment"),
        stateful_sets: of_kind("StatefulSet"),
        leases: Vec::new(),
        hooks: Vec::new(),
        pools: Ok(pools),
        nodes: data!("nodes.yaml"),
        revisions: data!("controllerrevisions.yaml"),
        overriders: Vec::new(),
        replacements: Vec::new(),
        answers: BTreeMap::new(),
    }
}

pub(super) fn judged(observed: &Observed) -> Adoption {
    judge(observed, false, 0)
}

fn refused(observed: &Observed) -> Vec<String> {
    judged(observed).refusals.iter().map(ToString::to_string).collect()
}

#[test]
fn what_openyurt_left_is_adopted_and_nothing_restarts() {
    let adoption = judged(&left());
    assert!(adoption.refusals.is_empty() && adoption.notes.is_empty(), "{:?} {:?}", adoption.refusals, adoption.notes);
    assert_eq!((adoption.count(), adoption.workloads.len(), adoption.pods()), (5, 5, 7));
    assert_eq!(applications::trials(&left()).len(), 0, "the API server need not be asked");
    let steps = adoption.steps();
    assert_eq!(steps.len(), 7, "{steps:#?}");
    assert!(
        steps[3].contains("all of 5 objects can be read and no pod template of 5 workloads has changed"),
        "{steps:#?}"
    );
    assert!(steps[6].starts_with("label CRD yurtappdaemons.apps.openyurt.io as dapple's"), "{steps:#?}");
}

#[test]
fn a_version_that_is_not_served_stands_in_the_way_with_the_names_of_the_objects() {
    let mut observed = left();
    observed.kinds[1].crd["status"]["storedVersions"] = json!(["v1alpha1", "v1beta1"]);
    let told = refused(&observed);
    assert_eq!(told.len(), 1, "{told:?}");
    let parts = [
        "CRD yurtappsets.apps.openyurt.io: status.storedVersions has v1beta1, which dapple does not serve",
        "default/sts-demo, default/yurtappset-demo may be stored so",
        "with a CRD that stores v1alpha1",
    ];
    assert!(parts.iter().all(|part| told[0].contains(part)), "{told:?}");
    // As they are when nobody converts them any more.
    observed.kinds[1].objects = Err("the server could not find the requested resource".to_owned());
    assert_eq!(refused(&observed), told, "once is enough");
    observed.kinds[1].names.clear();
    assert!(refused(&observed)[0].contains("there are no YurtAppSets"));

    let mut observed = left();
    observed.kinds[0].crd["status"]["storedVersions"] = json!(["v1alpha1", "v1beta1"]);
    assert_eq!(refused(&observed), [""; 0], "dapple reads the older NodePools");
    observed.kinds[0].crd["status"]["storedVersions"] = json!(["v1beta1", "v1beta2"]);
    assert!(refused(&observed)[0].contains("has v1beta2, which dapple does not serve: beijing, hangzhou may be"));
    observed.kinds[0].crd["status"]["storedVersions"] = json!([]);
    assert!(refused(&observed)[0].contains("status.storedVersions is empty"));
}

#[test]
fn what_cannot_be_listed_or_read_is_named() {
    let mut observed = left();
    observed.kinds[0].objects = Err("conversion webhook failed".to_owned());
    observed.pools = Err("conversion webhook failed".to_owned());
    let told = refused(&observed);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("CRD nodepools.apps.openyurt.io: spec.versions does not let NodePools be listed"),
        "{told:?}"
    );
    observed.kinds.remove(0);
    assert_eq!(refused(&observed), told, "YurtAppDaemons need them too");
    observed.kinds.retain(|seen| seen.taken.kind.name == Name::YurtAppSet);
    assert_eq!(refused(&observed), [""; 0], "YurtAppSets do not");

    let mut observed = left();
    let Ok(sets) = &mut observed.kinds[1].objects else { panic!("they are there") };
    sets[0]["spec"]["topology"]["pools"] = json!(7);
    observed.replacements.push(json!({"metadata": {"namespace": "default", "name": "r"}, "subject": 7}));
    let told = refused(&observed);
    assert!(told[0].starts_with("YurtAppSet default/sts-demo: spec.topology.pools cannot be read"), "{told:?}");
    assert!(told[1].starts_with("YurtAppConfigurationReplacement default/r: subject cannot be read"), "{told:?}");
}

fn entry(name: &str, group: &str, resource: &str) -> Value {
    json!({"name": name, "clientConfig": {"service": {"namespace": "kube-system", "name": "yurt-manager-webhook-service"}},
        "rules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}]})
}

fn configuration(kind: &str, entries: Value) -> Value {
    let name = format!("yurt-manager-{}-webhook-configuration", kind.to_lowercase());
    let annotations = json!({"yurt-manager-template": entries.to_string(), "template": entries.to_string()});
    json!({"kind": format!("{kind}WebhookConfiguration"), "webhooks": entries,
        "metadata": {"name": name, "annotations": annotations}})
}

/// The names of what is left of the webhooks, and of both of its copies.
fn left_of(edited: &Edited) -> Vec<Vec<String>> {
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|hook| hook["name"].as_str().map(str::to_owned)).collect()
    };
    let copy = |name: &str| -> Value {
        let text = edited.object["metadata"]["annotations"][name].as_str().unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    };
    vec![names(&edited.object["webhooks"]), names(&copy("yurt-manager-template")), names(&copy("template"))]
}

#[test]
fn webhooks_of_the_kinds_go_and_all_others_stay() {
    let hooks = json!([
        entry("mutate.apps.v1.deployment", "apps", "deployments"),
        entry("m.v1beta1.nodepool.kb.io", GROUP, "nodepools"),
        entry("mutate.apps.v1alpha1.yurtappset", GROUP, "yurtappsets"),
        entry("mutate.apps.v1alpha1.yurtstaticset", GROUP, "yurtstaticsets"),
        entry("mutate.core.v1.pod", "", "pods"),
    ]);
    let mut observed = left();
    observed.hooks.push(configuration("Mutating", hooks.clone()));
    let adoption = judged(&observed);
    let stay = ["mutate.apps.v1alpha1.yurtstaticset", "mutate.core.v1.pod"];
    assert_eq!(left_of(&adoption.hooks[0]), [stay, stay, stay]);
    assert!(
        adoption.hooks[0].steps[0].starts_with("remove mutate.apps.v1.deployment"),
        "{:?}",
        adoption.hooks[0].steps
    );
    observed.hooks = vec![adoption.hooks[0].object.clone()];
    assert_eq!(judged(&observed).hooks, [], "a second run changes nothing");

    // What renders Deployments stays while no application is adopted.
    let mut observed = left();
    observed.hooks.push(configuration("Mutating", hooks));
    observed.kinds.truncate(1);
    let stay = ["mutate.apps.v1.deployment", "mutate.apps.v1alpha1.yurtappset", stay[0], stay[1]];
    assert_eq!(left_of(&judged(&observed).hooks[0])[0], stay);
}

#[test]
fn the_webhook_that_holds_nodes_in_their_pools_is_named() {
    let mut observed = left();
    let node = entry("validate.core.v1.node.openyurt.io", "", "nodes");
    observed.hooks.push(configuration("Validating", json!([node])));
    observed.hooks.push(configuration("Mutating", json!([node])));
    let adoption = judged(&observed);
    assert_eq!((adoption.hooks.len(), adoption.notes.len()), (0, 1), "{:?}", adoption.notes);
    let note = &adoption.notes[0];
    assert!(note.contains("validate.core.v1.node.openyurt.io concerns nodes and stays"), "{note}");
    assert!(note.contains("--disable-independent-webhooks=node"), "{note}");
}

#[test]
fn what_others_answer_in_the_same_namespace_is_theirs() {
    let mut policy = entry("policy", GROUP, "nodepools");
    policy["clientConfig"]["service"] = json!({"namespace": "kube-system", "name": "policies"});
    let mut observed = left();
    observed
        .deployments
        .push(json!({"metadata": {"namespace": "kube-system", "name": "yurt-manager"}, "spec": {"replicas": 0,
        "template": {"spec": {"containers": [{"image": "openyurt/yurt-manager:v1.4.4"}]}}}}));
    observed.hooks.push(json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "policies"},
        "webhooks": [policy]}));
    let adoption = judged(&observed);
    assert_eq!((adoption.hooks.len(), adoption.managers.len()), (0, 1));
    assert!(
        adoption.notes.iter().any(|note| note.contains("policy looks at NodePools or YurtAppSets")),
        "{:?}",
        adoption.notes
    );
}

#[test]
fn everything_that_stands_in_the_way_is_told_at_once() {
    let mut observed = left();
    observed.others.push("CRD x is dapple's already".to_owned());
    observed.deployments.push(json!({"metadata": {"namespace": "kube-system", "name": "yurt-manager"},
        "spec": {"template": {"spec": {"containers": [{"image": "openyurt/yurt-manager:v1.4.4"}]}}}}));
    observed.kinds[1].crd["status"]["storedVersions"] = json!(["v1beta1"]);
    observed.overriders.push(json!({"metadata": {"namespace": "default", "name": "o"},
        "subject": {"kind": "YurtAppDaemon", "name": "daemon-demo"}}));
    let Ok(daemons) = &mut observed.kinds[2].objects else { panic!("they are there") };
    daemons[0]["spec"]["workloadTemplate"]["deploymentTemplate"]["spec"]["template"]["spec"]["hostNetwork"] =
        json!(true);
    let (told, parts) = (
        refused(&observed),
        [
            "yurt-manager: spec.template",
            "status.storedVersions",
            "YurtAppOverrider default/o",
            "would restart the pods",
        ],
    );
    assert_eq!(told.len(), parts.len(), "{told:#?}");
    for (part, line) in parts.iter().zip(&told) {
        assert!(line.contains(part), "{line} has not {part}");
    }
    let allowed = judge(&observed, true, 0);
    assert_eq!(allowed.refusals.len(), 3);
    assert!(allowed.notes.iter().any(|note| note.ends_with("as allowed")), "{:?}", allowed.notes);
    assert_eq!(allowed.notes[0], "CRD x is dapple's already");
}

#[test]
fn what_changes_meanwhile_is_found() {
    let observed = left();
    let adoption = judged(&observed);
    let objects: Vec<Vec<Value>> = observed.kinds.iter().filter_map(|seen| seen.objects.clone().ok()).collect();
    let mut workloads = [observed.deployments, observed.stateful_sets].concat();
    assert_eq!(adoption.changed(&objects, &workloads), [""; 0]);
    workloads[1]["spec"]["replicas"] = json!(9);
    workloads[1]["status"] = json!({});
    assert_eq!(adoption.changed(&objects, &workloads), [""; 0], "an autoscaler is not in the way");
    workloads[0]["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    let mut new = workloads[2].clone();
    new["metadata"]["uid"] = json!("another");
    workloads[4] = new;
    let mut fewer = objects.clone();
    fewer[0].remove(1);
    fewer[2][0]["spec"] = json!(7);
    let told = adoption.changed(&fewer, &workloads);
    for part in [
        "NodePool hangzhou is gone",
        "YurtAppDaemon default/daemon-demo: spec",
        "sts-demo-hangzhou-h5b74 is gone",
        "the pod template of Deployment default/daemon-demo-beijing-f8gvf has changed",
        " is new",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not in {told:?}");
    }
}

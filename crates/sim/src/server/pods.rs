//! What holds for pods alone: defaults, quality of service, and what may change.

use serde_json::{Value, json};

use super::failure::Fault;
use super::quantity::thousandths;
use super::tidy::set;

/// Fields of a pod's spec that may change.
const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

const LISTS: [&str; 2] = ["containers", "initContainers"];
/// What quality of service is about, and what may be resized.
const AMOUNTS: [&str; 2] = ["cpu", "memory"];

/// Sets the defaults that somebody relies on: how long a pod may take to end, who schedules it, and requests that follow
/// from limits.
pub(super) fn fill_in(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    spec.entry("restartPolicy").or_insert_with(|| json!("Always"));
    spec.entry("terminationGracePeriodSeconds").or_insert_with(|| json!(30));
    spec.entry("schedulerName").or_insert_with(|| json!("default-scheduler"));
    for list in LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
                if container["resources"].is_null() {
                    container["resources"] = json!({});
                }
                continue;
            };
            for (name, limit) in limits {
                if container["resources"]["requests"].get(&name).is_none() {
                    container["resources"]["requests"][name] = limit;
                }
            }
        }
    }
}

fn containers<'p>(pod: &'p Value, list: &str) -> impl Iterator<Item = &'p Value> + use<'p> {
    pod["spec"][list].as_array().into_iter().flatten()
}

fn all_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    LISTS.into_iter().flat_map(|list| containers(pod, list))
}

/// The quality of service that a pod's requests and limits come to.
pub(super) fn quality(pod: &Value) -> &'static str {
    let amount = |container: &Value, of: &str, name: &str| thousandths(&container["resources"][of][name]);
    let has_any = |container: &Value| {
        AMOUNTS.iter().any(|name| ["requests", "limits"].iter().any(|of| amount(container, of, name) > 0))
    };
    let is_fixed = |container: &Value| {
        AMOUNTS.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit > 0 && limit == amount(container, "requests", name)
        })
    };
    if !all_containers(pod).any(has_any) {
        "BestEffort"
    } else if all_containers(pod).all(is_fixed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(super) fn faults_of_new(pod: &Value) -> Vec<Fault> {
    if containers(pod, "containers").next().is_none() {
        return vec![Fault::required("spec.containers", "")];
    }
    Vec::new()
}

/// What is wrong with a change of a pod.
pub(super) fn faults_of_change(pod: &Value, old: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    for list in LISTS {
        let field = format!("spec.{list}");
        if containers(pod, list).count() != containers(old, list).count() {
            faults.push(Fault::forbidden(&field, "pod updates may not add or remove containers"));
            return faults;
        }
        for (index, container) in containers(pod, list).enumerate() {
            if container["image"].as_str().unwrap_or_default().is_empty() {
                // Both as of a pod and as of a change.
                let fault = Fault::required(&format!("{field}[{index}].image"), "");
                faults.extend([fault.clone(), fault]);
            }
        }
    }
    let (deadline, old_deadline) =
        (pod["spec"]["activeDeadlineSeconds"].as_i64(), old["spec"]["activeDeadlineSeconds"].as_i64());
    let field = "spec.activeDeadlineSeconds";
    match (deadline, old_deadline) {
        (Some(new), Some(old)) if new > old => {
            faults.push(Fault::invalid(field, &json!(new), "must be less than or equal to previous value"));
            return faults;
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            faults.push(Fault::invalid(field, &Value::Null, why));
        }
        _ => {}
    }
    let gates = |pod: &Value| pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    let (known, given) = (gates(old), gates(pod));
    for (index, gate) in given.iter().enumerate().filter(|(_, gate)| !known.contains(gate)) {
        let name = gate["name"].as_str().unwrap_or_default();
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        faults.push(Fault::forbidden(&format!("spec.schedulingGates[{index}].name"), &why));
    }
    let tolerations = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let kept = tolerations(pod);
    if !tolerations(old).iter().all(|toleration| kept.contains(toleration)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        faults.push(Fault::forbidden("spec.tolerations", why));
    }
    if pod["spec"] != old["spec"] && with_changeable_of(pod, old) != old["spec"] {
        faults.push(Fault::forbidden("spec", CHANGEABLE));
    }
    faults
}

/// What is wrong with a change of a pod's status.
pub(super) fn faults_of_status(pod: &Value, old: &Value) -> Vec<Fault> {
    let class = &pod["status"]["qosClass"];
    if *class == old["status"]["qosClass"] {
        return Vec::new();
    }
    vec![Fault::invalid("status.qosClass", class, "field is immutable")]
}

/// The spec of a pod with everything that may change as it was.
fn with_changeable_of(pod: &Value, old: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    for list in LISTS {
        let images = containers(old, list).map(|container| container.get("image"));
        let new = spec[list].as_array_mut().into_iter().flatten();
        for (container, image) in new.zip(images) {
            set(container, "image", image);
        }
        if spec[list].is_null() {
            set(&mut spec, list, None);
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        set(&mut spec, field, old["spec"].get(field));
    }
    // Behind a gate, a pod may get more to ask of its node.
    let asked = |spec: &Value| spec["nodeSelector"].as_object().cloned().unwrap_or_default();
    let (new, known) = (asked(&spec), asked(&old["spec"]));
    let is_gated = old["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    if is_gated && known.iter().all(|(key, value)| new.get(key) == Some(value)) {
        set(&mut spec, "nodeSelector", old["spec"].get("nodeSelector"));
    }
    let grace = "terminationGracePeriodSeconds";
    if old["spec"][grace].as_i64().is_some_and(|seconds| seconds < 0) && spec[grace] == 1 {
        set(&mut spec, grace, old["spec"].get(grace));
    }
    spec
}

/// Of a resize, all but the resources of containers is put back.
pub(super) fn prepare_resize(pod: &mut Value, old: &Value) {
    let is_alike = LISTS.iter().all(|list| {
        let names = |pod| containers(pod, list).map(|container: &Value| container["name"].clone()).collect::<Vec<_>>();
        names(pod) == names(old)
    });
    if !is_alike {
        return;
    }
    let uid = pod["metadata"].get("uid").cloned();
    let mut resized = old.clone();
    set(&mut resized["metadata"], "uid", uid.as_ref());
    for list in LISTS {
        let new = pod["spec"][list].as_array().into_iter().flatten();
        for (container, new) in resized["spec"][list].as_array_mut().into_iter().flatten().zip(new) {
            for field in ["resources", "resizePolicy"] {
                set(container, field, new.get(field));
            }
        }
        if resized["spec"][list].is_null() {
            set(&mut resized["spec"], list, None);
        }
    }
    *pod = resized;
}

/// What is wrong with a resize.
pub(super) fn faults_of_resize(pod: &Value, old: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    if quality(pod) != old["status"]["qosClass"].as_str().unwrap_or_default() {
        let why = "Pod QOS Class may not change as a result of resizing";
        faults.push(Fault::invalid("spec", &pod["status"]["qosClass"], why));
    }
    let running = old["status"]["containerStatuses"].as_array().into_iter().flatten();
    let running = running.into_iter().find(|status| status["state"].get("running").is_some());
    if running.is_some_and(|status| status.get("resources").is_none()) {
        faults.push(Fault::forbidden("spec", "Pod running on node without support for resize"));
    }
    for list in LISTS {
        let field = format!("spec.{list}");
        if containers(pod, list).count() != containers(old, list).count() {
            let why = format!("{list} may not be added or removed on resize");
            faults.push(Fault::forbidden(&field, &why));
            return faults;
        }
        for (index, (new, old)) in containers(pod, list).zip(containers(old, list)).enumerate() {
            faults.extend(faults_of_resources(new, old, &format!("{field}[{index}].resources")));
        }
    }
    faults
}

fn faults_of_resources(new: &Value, old: &Value, field: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut amounts, mut old_amounts) = (new["resources"].clone(), old["resources"].clone());
    for of in ["requests", "limits"] {
        let mut had = old["resources"][of].as_object().into_iter().flatten();
        if had.any(|(name, _)| new["resources"][of].get(name).is_none()) {
            faults.push(Fault::forbidden(&format!("{field}.{of}"), &format!("resource {of} cannot be removed")));
        }
        for amounts in [&mut amounts, &mut old_amounts] {
            AMOUNTS.iter().for_each(|name| set(&mut amounts[of], name, None));
            if amounts[of].as_object().is_none_or(serde_json::Map::is_empty) {
                set(amounts, of, None);
            }
        }
    }
    if amounts != old_amounts || new.get("resizePolicy") != old.get("resizePolicy") {
        faults.push(Fault::forbidden("spec", "only cpu and memory resources are mutable"));
    }
    faults
}

/// Why a node does not take a resize of a pod on it, if it does not.
pub(super) fn refusal_of_resize(pod: &Value, node: &Value) -> Option<String> {
    let amount = |container: &Value, name: &str| thousandths(&container["resources"]["requests"][name]);
    let mut lacking = Vec::new();
    for (name, unit) in [("cpu", 1), ("memory", 1000)] {
        let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
        let running = containers(pod, "containers").chain(containers(pod, "initContainers").filter(is_sidecar));
        let running: i128 = running.map(|container| amount(container, name)).sum();
        let starting = containers(pod, "initContainers").map(|container| amount(container, name)).max().unwrap_or(0);
        let (requested, allocatable) = (running.max(starting), thousandths(&node["status"]["allocatable"][name]));
        if requested > allocatable {
            lacking.push(format!("{name}, requested: {}, allocatable: {}", requested / unit, allocatable / unit));
        }
    }
    (!lacking.is_empty()).then(|| format!("node didn't have enough allocatable resources: {}", lacking.join("; ")))
}

//! The subresources by which a pod is bound to a node, and evicted from it.

use dapple_api::selector::Selector;
use serde_json::{Value, json};

use super::delete::{Options, delete};
use super::failure::{Failure, details, success};
use super::kinds::{CATALOGUE, Kind};
use super::read;
use super::request::Target;
use super::store::State;
use super::tidy::meta;

/// Binds a pod to a node.
pub(super) fn bind(state: &mut State, target: &Target<'_>, binding: &Value, dry: bool) -> Result<Value, Failure> {
    let (kind, name) = (target.kind, target.name);
    if meta(binding, "name") != name {
        return Err(Failure::bad_request("name in URL does not match name in Binding object"));
    }
    if binding["target"]["name"].as_str().is_none_or(str::is_empty) {
        return Err(Failure::internal("target.name: Required value"));
    }
    let existing = read::get(state, target)?.clone();
    let mut pod = Value::clone(&existing.value);
    let refused = |why: String| {
        let about = json!({"kind": "pods/binding", "name": name});
        Failure::conflict("pods/binding", about, name, &why)
    };
    let wanted = meta(binding, "uid");
    if !wanted.is_empty() && wanted != meta(&pod, "uid") {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/pods/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {}",
            target.key(),
            meta(&pod, "uid")
        );
        return Err(Failure::conflict(&kind.qualified, details(kind, name), name, &why));
    }
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return Err(refused(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str() {
        return Err(refused(format!("pod {name} is already assigned to node {node:?}")));
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for of in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][of].as_object().into_iter().flatten() {
            pod["metadata"][of][key] = value.clone();
        }
    }
    set_condition(&mut pod, json!({"type": "PodScheduled", "status": "True"}), &state.now());
    if !dry {
        state.put(kind, &target.key(), pod);
    }
    Ok(success(None, Some(201)))
}

/// Evicts a pod, if its disruption budget allows.
pub(super) fn evict(state: &mut State, target: &Target<'_>, eviction: &Value, dry: bool) -> Result<Value, Failure> {
    if meta(eviction, "name") != target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = Options::read(&eviction["deleteOptions"]);
    options.dry |= dry;
    let pod = read::get(state, target)?.value.clone();
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let is_going = pod["metadata"].get("deletionTimestamp").is_some();
    // What does not run, or is on its way out, is no loss.
    if !(is_going || ["Succeeded", "Failed", "Pending"].contains(&phase)) {
        spend_budget(state, &pod, options.dry)?;
    }
    if !options.dry {
        options.check(target.kind, &pod)?;
        let mut told = Value::clone(&pod);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        set_condition(&mut told, condition, &state.now());
        if told != *pod {
            let written = state.put(target.kind, &target.key(), told);
            options.version = options.version.map(|_| meta(&written.value, "resourceVersion").to_owned());
        }
    }
    delete(state, target.kind, &target.key(), &options)?;
    Ok(success(None, Some(201)))
}

/// Takes one disruption from the budget that guards a pod.
fn spend_budget(state: &mut State, pod: &Value, dry: bool) -> Result<(), Failure> {
    let Some(kind) = CATALOGUE.named("poddisruptionbudgets.policy") else { return Ok(()) };
    let budgets = budgets_of(state, kind, pod);
    let (key, mut budget) = match budgets.as_slice() {
        [] => return Ok(()),
        [(key, budget)] => (key.clone(), budget.clone()),
        _ => {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::internal(why));
        }
    };
    let status = budget["status"].clone();
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    if !is_ready(pod) {
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if always || (healthy >= desired && desired > 0) {
            return Ok(());
        }
    }
    let name = meta(&budget, "name");
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Failure::too_many_requests(&cause, 10));
    }
    if number("disruptionsAllowed") <= 0 {
        let cause = if healthy <= desired {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        };
        return Err(Failure::too_many_requests(&cause, 0));
    }
    if dry {
        return Ok(());
    }
    let now = state.now();
    budget["status"]["disruptionsAllowed"] = json!(number("disruptionsAllowed") - 1);
    if number("disruptionsAllowed") == 1 {
        let generation = status["observedGeneration"].clone();
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": generation,
        });
        set_condition(&mut budget, condition, &now);
    }
    budget["status"]["disruptedPods"][meta(pod, "name")] = json!(now);
    state.put(kind, &key, budget);
    Ok(())
}

/// The budgets that guard a pod, by key.
fn budgets_of(state: &State, kind: &Kind, pod: &Value) -> Vec<(String, Value)> {
    let label = |key: &str| pod["metadata"]["labels"][key].as_str();
    let guards = |budget: &Value| {
        let selector = serde_json::from_value(budget["spec"]["selector"].clone()).ok();
        let selector = selector.and_then(|selector| Selector::new(&selector).ok());
        selector.is_some_and(|selector| selector.matches(label))
    };
    let all = state.all(kind.store).iter();
    let here = all.filter(|(_, budget)| meta(&budget.value, "namespace") == meta(pod, "namespace"));
    here.filter(|(_, budget)| guards(&budget.value))
        .map(|(key, budget)| (key.clone(), Value::clone(&budget.value)))
        .collect()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|known| known["type"] == "Ready" && known["status"] == "True")
}

/// Sets a condition; its time is that of the last change of its status.
fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    let mut list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().position(|known| known["type"] == condition["type"]);
    let since = found.map(|index| &list[index]).filter(|known| known["status"] == condition["status"]);
    condition["lastTransitionTime"] = since.map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone());
    match found {
        Some(index) => list[index] = condition,
        None => list.push(condition),
    }
    object["status"]["conditions"] = json!(list);
}

//! How applications are in the end: in each of their pools as they say, nowhere else, and told so.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::{DECLARED_REPLICAS, LEAVING_SINCE, NODE_POOL_LABEL};
use serde_json::Value;

use super::super::POOLS;
use super::known::{annotation, asked_now};
use super::rendering::{declared, is_for, rendered, stored};
use super::workloads::{is_available, is_going, owner_of, pool_of};
use super::{AUTOSCALERS, DAEMONS, KINDS, REPLACEMENTS, SETS, WORKLOADS, named};
use crate::object::{list, text};
use crate::server::Server;

/// Whether all applications are as they were asked for.
pub(in crate::pool) fn is_settled(server: &Server) -> Result<(), String> {
    let apps = [SETS, DAEMONS].map(|resource| server.list(resource)).concat();
    apps.iter().try_for_each(|app| is_done(app, server))
}

fn is_done(app: &Value, server: &Server) -> Result<(), String> {
    let name = text(&app["metadata"]["name"]);
    let replacements = server.list(REPLACEMENTS);
    let replacement = replacements.iter().find(|known| is_for(known, app)).map(|known| &**known);
    let asked = asked_now(app, server);
    let mut workloads: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
    for workload in WORKLOADS.iter().flat_map(|resource| server.list(resource)) {
        if owner_of(&workload).is_some_and(|owner| owner["uid"] == app["metadata"]["uid"]) {
            workloads.entry(pool_of(&workload).to_owned()).or_default().push(workload);
        }
    }
    if let Some((_, left)) = workloads.iter().find(|(pool, _)| !asked.contains(*pool)) {
        return Err(format!("a workload is left of a pool that is not there any more: {}", named(&left[0])));
    }
    for pool in &asked {
        let age = |workload: &&Arc<Value>| {
            let metadata = &workload["metadata"];
            (text(&metadata["creationTimestamp"]).to_owned(), text(&metadata["name"]).to_owned())
        };
        let Some(workload) = workloads.get(pool).and_then(|all| all.iter().min_by_key(age)) else {
            return Err(format!("a pool has no workload: {name} in {pool}"));
        };
        is_rendered(workload, app, replacement, pool)?;
        is_placed(workload, app, pool, server)?;
        let number = declared(app, replacement, pool).to_string();
        let noted = annotation(workload, DECLARED_REPLICAS).unwrap_or_default();
        if number != noted && !is_autoscaled(workload, server) {
            return Err(format!(
                "a declared number of pods is not written: {}, {number}, not {noted}",
                named(workload)
            ));
        }
    }
    is_told(app, asked.len())
}

/// Whether a workload has what its pool is to get, and is well.
fn is_rendered(workload: &Value, app: &Value, replacement: Option<&Value>, pool: &str) -> Result<(), String> {
    let (wanted, has) = (rendered(app, replacement, pool), stored(workload));
    if wanted != has {
        return Err(format!("a workload is not as its pool's is to be: {}, {has:?}, not {wanted:?}", named(workload)));
    }
    let mut labels = app["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    if let Some((label, _)) = labels.find(|(label, value)| workload["metadata"]["labels"][*label] != **value) {
        return Err(format!("a workload has another label than its application's: {}, {label}", named(workload)));
    }
    if is_going(workload) || !is_available(workload) {
        return Err(format!("a workload is not available: {}, {}", named(workload), workload["status"]));
    }
    if annotation(workload, LEAVING_SINCE).is_some() {
        return Err(format!("a workload of a pool that is there is noted to be leaving: {}", named(workload)));
    }
    Ok(())
}

/// Whether a workload's pods go to the nodes of its pool, whatever taints they have from it.
fn is_placed(workload: &Value, app: &Value, pool: &str, server: &Server) -> Result<(), String> {
    let spec = &workload["spec"]["template"]["spec"];
    if app["kind"] == KINDS[0] {
        let affinity = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let wanted = &affinity["nodeSelectorTerms"][0]["matchExpressions"][0];
        if wanted["key"] != NODE_POOL_LABEL || wanted["values"][0] != pool {
            return Err(format!("a workload's pods may go anywhere: {}, {affinity}", named(workload)));
        }
        return Ok(());
    }
    if spec["nodeSelector"][NODE_POOL_LABEL] != pool {
        return Err(format!("a workload's pods may go anywhere: {}, {}", named(workload), spec["nodeSelector"]));
    }
    let Some(found) = server.get(POOLS, "", pool) else { return Ok(()) };
    let tolerated = |taint: &Value| {
        let mut tolerations = list(&spec["tolerations"]).iter();
        tolerations.any(|known| {
            known["operator"] == "Exists" && known["key"] == taint["key"] && known["effect"] == taint["effect"]
        })
    };
    match list(&found["spec"]["taints"]).iter().find(|taint| !tolerated(taint)) {
        Some(taint) => {
            Err(format!("a workload's pods do not tolerate what its pool has: {}, {taint}", named(workload)))
        }
        None => Ok(()),
    }
}

fn is_autoscaled(workload: &Value, server: &Server) -> bool {
    let is_it = |known: &Arc<Value>| {
        let target = &known["spec"]["scaleTargetRef"];
        target["kind"] == workload["kind"] && target["name"] == workload["metadata"]["name"]
    };
    server.list(AUTOSCALERS).iter().any(is_it)
}

/// Whether an application says that all is done.
fn is_told(app: &Value, pools: usize) -> Result<(), String> {
    let (name, status) = (text(&app["metadata"]["name"]), &app["status"]);
    let told = list(&status["pools"]);
    let is_done = told.len() == pools && told.iter().all(|pool| pool["state"] == "Done");
    let is_current = status["currentRevision"] == status["updateRevision"] && status["stopped"].is_null();
    let is_of_now = status["observedGeneration"] == app["metadata"]["generation"];
    if is_done && is_current && is_of_now {
        return Ok(());
    }
    Err(format!("an application does not say that all is done: {name}, {status}"))
}

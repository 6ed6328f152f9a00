//! Asking the API server why something is as it is. Nothing is decided by it: people are told.

use std::collections::BTreeMap;

use dapple_api::kinds::POD;
use dapple_plan::pool::application::{Decision, Existing, Seat};
use dapple_plan::pool::fight::changers;
use dapple_plan::pool::pods::{Unwell, are_asked, unwell};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::Selector;
use serde_json::{Value, json};
use tracing::warn;

use super::super::kept::{ApplicationSpec, Kept};
use super::io::{Io, WorkloadKind};
use super::observe::View;
use super::{AGAIN, Memory};
use crate::writes::client::{FIELD_MANAGER, in_words};

/// Of so many pools pods are read: of more, these show what is wrong.
const EXPLAINED: usize = 5;
/// So many pods of a pool are looked at.
const PODS: u32 = 100;

/// What pods of a pool said, and until when that counts.
pub(super) struct Said {
    unwell: Option<Unwell>,
    until: Timestamp,
}

/// The pods that are not ready, by pool.
pub(super) fn unwell_pods(said: &BTreeMap<String, Said>) -> BTreeMap<String, Unwell> {
    said.iter().filter_map(|(pool, said)| Some((pool.clone(), said.unwell.clone()?))).collect()
}

/// Who else changes a workload, as of this version of it, and until when it is not read again.
pub(super) struct Changers {
    names: Vec<String>,
    version: String,
    until: Timestamp,
}

/// Who else changes what is left alone, by pool.
pub(super) fn known_changers(changers: &BTreeMap<String, Changers>) -> BTreeMap<String, Vec<String>> {
    changers.iter().map(|(pool, known)| (pool.clone(), known.names.clone())).collect()
}

/// Asks why pools are not done, and who keeps changing what is left alone for that. Whether there is news.
pub(super) async fn explain<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> bool {
    let by_pods = ask_pods(io, kept, view, decision, memory, now).await;
    let by_fields = ask_who(io, kept, view, decision, memory, now).await;
    by_pods || by_fields
}

/// Asks the pods of pools that are not done for long.
async fn ask_pods<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> bool {
    let mut asked: Vec<&Seat> = decision.seats.iter().filter(|seat| are_asked(seat, now)).collect();
    // Those that the rollout waits for come first.
    asked.sort_by_key(|seat| !seat.is_in_change);
    asked.truncate(EXPLAINED);
    let is_asked = |pool: &str| asked.iter().any(|seat| seat.pool == pool);
    memory.pods.retain(|pool, said| now < said.until && is_asked(pool));
    let until = now.checked_add(AGAIN).unwrap_or(now);
    let unknown: Vec<&Seat> = asked.into_iter().filter(|seat| !memory.pods.contains_key(&seat.pool)).collect();
    for seat in unknown {
        let Some(workload) = seat.workload.and_then(|place| view.workloads.get(place)) else { continue };
        let unwell = unwell_of(io, &kept.meta.key.namespace, (view.kind, workload)).await;
        memory.pods.insert(seat.pool.clone(), Said { unwell, until });
    }
    let unwell = unwell_pods(&memory.pods);
    let is_news = view.learned.unwell != unwell;
    view.learned.unwell = unwell;
    is_news
}

/// Asks who has the fields that others keep changing. What is cached of a workload does not say it.
async fn ask_who<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> bool {
    let contested: Vec<&Seat> = decision.seats.iter().filter(|seat| seat.repair_pause.is_some()).collect();
    memory.changers.retain(|pool, _| contested.iter().any(|seat| seat.pool == *pool));
    let until = now.checked_add(AGAIN).unwrap_or(now);
    for seat in contested {
        let workload = seat.workload.and_then(|place| view.workloads.get(place));
        let (Some(workload), Some(field)) = (workload, &seat.difference.field) else { continue };
        let version = workload.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let is_known = |known: &Changers| known.version == version || now < known.until;
        if memory.changers.get(&seat.pool).is_some_and(is_known) {
            continue;
        }
        let names = match io.api(view.kind.at(), &kept.meta.key.namespace).get_opt(workload.name()).await {
            Ok(found) => found.map(|found| changers(&json!(found), field, FIELD_MANAGER)).unwrap_or_default(),
            Err(error) => {
                warn!(workload = workload.name(), error = in_words(&error), "it cannot be read who changes it");
                Vec::new()
            }
        };
        memory.changers.insert(seat.pool.clone(), Changers { names, version: version.to_owned(), until });
    }
    let known = known_changers(&memory.changers);
    let is_news = view.learned.changers != known;
    view.learned.changers = known;
    is_news
}

/// The pod of a workload that is to be told of.
async fn unwell_of<S: ApplicationSpec>(
    io: &Io<S>,
    namespace: &str,
    (kind, workload): (WorkloadKind, &Existing),
) -> Option<Unwell> {
    let selector = serde_json::from_value::<LabelSelector>(workload.object["spec"]["selector"].clone()).ok()?;
    let selector = Selector::try_from(selector).ok().filter(|selector| !selector.selects_all())?;
    let params = ListParams::default().labels_from(&selector).limit(PODS);
    match io.api(POD, namespace).list(&params).await {
        Ok(found) => {
            let pods: Vec<Value> = found.items.iter().map(|pod| json!(pod)).collect();
            unwell(kind.document(), &workload.object, &pods)
        }
        Err(error) => {
            warn!(workload = workload.name(), error = in_words(&error), "its pods cannot be asked");
            None
        }
    }
}

//! Doing it, step by step. Each step can be repeated, and each write names the version it replaces.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dapple_api::crd::crds;
use dapple_api::kinds::{DAEMON_SET, KindInfo};
use dapple_plan::adopt::crd::{BETA, Reading, replaced};
use dapple_plan::adopt::hooks::{self, Edited};
use dapple_plan::adopt::product::Product;
use dapple_plan::adopt::sets::{Set, read};
use dapple_plan::adopt::{Adoption, CRD};
use futures::{StreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Error;
use super::look::{hook, hook_path, pods, sets_as};
use super::rest::{get, is_code, merge, put, refused};
use crate::install::{apply, find_crd, wait_until_served};
use crate::writes::client::in_words;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How often a write is tried again when somebody else was faster.
const TRIES: usize = 5;
/// How long the API server may take to serve the new version.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// Every API server learns of a new CRD in its own time. Until then it stores objects as before, and nobody could tell:
/// as long as API servers themselves wait before they call a new CRD established.
const SETTLE: Duration = Duration::from_secs(5);
/// DaemonSets written at once.
const AT_ONCE: usize = 8;
/// How many names an error lists.
const NAMED: usize = 10;

/// With our CRD the API server converts nothing: what is stored in the older version only gets another name.
const RELABELLED: Reading = Reading { version: BETA, is_relabelled: true };
const AS_IT_IS: Reading = Reading { version: BETA, is_relabelled: false };

/// Carries out an adoption that nothing stands in the way of, and says each step.
pub async fn carry_out(client: &Client, adoption: &Adoption, say: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
    let product = Product::new(&adoption.workloads, &adoption.holders, &adoption.crd);
    for edited in &adoption.hooks {
        for step in &edited.steps {
            say(step);
        }
        edit_hook(client, edited, &product).await?;
    }
    say(&format!("replace the spec of CRD {CRD}"));
    let ours = our_crd(CRD)?;
    replace_crd(client, (CRD, adoption.crd.uid.as_str()), &ours).await?;
    wait_until_listed(client, DAEMON_SET.at).await?;
    if adoption.migrates() {
        say("wait until every API server has seen it");
        tokio::time::sleep(SETTLE).await;
        say(&format!("write {} DaemonSets once, so that they are stored as {BETA}", adoption.sets.len()));
        rewrite(client, &adoption.sets).await?;
        say(&format!("set status.storedVersions to {BETA}"));
        forget_older_versions(client).await?;
    }
    say("check DaemonSets and pods");
    verify(client, adoption).await?;
    say("label the CRD as dapple's");
    apply(client, &ours).await?;
    wait_until_served(client, CRD).await?;
    Ok(())
}

/// dapple's own CRD of this name.
pub(super) fn our_crd(name: &str) -> Result<Value, Error> {
    let is_it = |crd: &Value| crd["metadata"]["name"] == name;
    crds().into_iter().find(is_it).ok_or_else(|| Error::Changed { what: format!("this dapple has no CRD {name}") })
}

/// Writes a webhook configuration as it is to be.
pub(super) async fn edit_hook(client: &Client, edited: &Edited, product: &Product) -> Result<(), Error> {
    let (kind, name) = (&edited.kind, &edited.name);
    let (object, path) = (format!("{kind} {name}"), hook_path(kind, name));
    let mut wanted = edited.object.clone();
    for _ in 0..TRIES {
        match put(client, &path, &wanted).await {
            Ok(_) => return Ok(()),
            // It is gone, and its webhooks with it.
            Err(error) if is_code(&error, 404) => return Ok(()),
            Err(error) if is_code(&error, 409) => {}
            Err(error) => return Err(refused(object)(error)),
        }
        let found = match hook(client, kind, name).await {
            Err(error) if is_code(&error, 404) => return Ok(()),
            found => found.map_err(refused(object.clone()))?,
        };
        let looked = hooks::look(&found, product);
        if let Some(refusal) = looked.refusals.first() {
            return Err(Error::Changed { what: refusal.to_string() });
        }
        match looked.edited {
            Some(edited) => wanted = edited.object,
            None => return Ok(()),
        }
    }
    Err(Error::Busy { object })
}

/// Replaces what the CRD says. Never deletes it: its objects would go with it.
pub(super) async fn replace_crd(client: &Client, (name, uid): (&str, &str), ours: &Value) -> Result<(), Error> {
    for _ in 0..TRIES {
        let found = find_crd(client, name).await?.filter(|crd| crd["metadata"]["uid"] == uid);
        let Some(found) = found else {
            return Err(Error::Changed { what: format!("CRD {name} was deleted or made anew by somebody else") });
        };
        match put(client, &format!("{CRDS}/{name}"), &replaced(&found, ours)).await {
            Ok(_) => return Ok(()),
            Err(error) if is_code(&error, 409) => {}
            Err(error) => return Err(refused(format!("CRD {name}"))(error)),
        }
    }
    Err(Error::Busy { object: format!("CRD {name}") })
}

/// Waits until the API server lists a kind in the version that dapple stores.
pub(super) async fn wait_until_listed(client: &Client, at: KindInfo) -> Result<(), Error> {
    let KindInfo { group, version, plural, .. } = at;
    let (path, begun) = (format!("/apis/{group}/{version}/{plural}?limit=1"), Instant::now());
    loop {
        match get(client, &path).await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > SERVED_WITHIN => {
                let crd = format!("{plural}.{group}");
                return Err(Error::NotServed { version, crd, problem: in_words(&error) });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Writes every set once: the API server stores what is written in the version that it stores now.
async fn rewrite(client: &Client, sets: &[Set]) -> Result<(), Error> {
    let writes = sets.iter().map(|set| async move { rewrite_one(client, set).await.err() });
    let mut problems: Vec<String> = stream::iter(writes)
        .buffer_unordered(AT_ONCE)
        .filter_map(|problem| async { problem.map(|error| error.to_string()) })
        .collect()
        .await;
    problems.sort();
    if problems.is_empty() { Ok(()) } else { Err(Error::NotWritten { problems }) }
}

async fn rewrite_one(client: &Client, set: &Set) -> Result<(), Error> {
    let path = format!("/apis/apps.kruise.io/{BETA}/namespaces/{}/daemonsets/{}", set.namespace, set.name);
    let mut object = set.object.clone();
    for _ in 0..TRIES {
        match put(client, &path, &object).await {
            Ok(_) => return Ok(()),
            Err(error) if is_code(&error, 404) => return Ok(()),
            Err(error) if is_code(&error, 409) => {}
            Err(error) => return Err(refused(set.to_string())(error)),
        }
        let found = match get(client, &path).await {
            Err(error) if is_code(&error, 404) => return Ok(()),
            found => found.map_err(refused(set.to_string()))?,
        };
        // Made anew since, so stored as it should be.
        if found["metadata"]["uid"] != set.uid {
            return Ok(());
        }
        object = read(found, RELABELLED).map_err(|refusal| Error::Changed { what: refusal.to_string() })?.object;
    }
    Err(Error::Busy { object: set.to_string() })
}

async fn forget_older_versions(client: &Client) -> Result<(), Error> {
    for _ in 0..TRIES {
        let version = find_crd(client, CRD).await?.map(|crd| crd["metadata"]["resourceVersion"].clone());
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"storedVersions": [BETA]}});
        match merge(client, &format!("{CRDS}/{CRD}/status"), &patch).await {
            Ok(_) => return Ok(()),
            Err(error) if is_code(&error, 409) => {}
            Err(error) => return Err(refused(format!("CRD {CRD}"))(error)),
        }
    }
    Err(Error::Busy { object: format!("CRD {CRD}") })
}

/// Every DaemonSet that was there can be read as ours, and every pod is the one that it was. Whatever else changed them
/// meanwhile still acts on them, and would fight.
async fn verify(client: &Client, adoption: &Adoption) -> Result<(), Error> {
    let found = sets_as(client, AS_IT_IS).await.map_err(refused("DaemonSets"))?;
    let mut problems = Vec::new();
    let mut uids = BTreeSet::new();
    for set in found {
        match set {
            Ok(set) => drop(uids.insert(set.uid)),
            Err(refusal) => problems.push(refusal.to_string()),
        }
    }
    let gone = adoption.sets.iter().filter(|set| !uids.contains(&set.uid));
    problems.extend(gone.map(|set| format!("{set} is gone")));
    let now: BTreeMap<String, String> = pods(client)
        .await?
        .into_iter()
        .filter(|pod| adoption.sets.iter().any(|set| set.uid == pod.owner))
        .map(|pod| (pod.uid.clone(), pod.to_string()))
        .collect();
    let gone = adoption.pods.iter().filter(|(uid, _)| !now.contains_key(*uid));
    problems.extend(gone.map(|(_, name)| format!("pod {name} is gone")));
    let new = now.iter().filter(|(uid, _)| !adoption.pods.contains_key(*uid));
    problems.extend(new.map(|(_, name)| format!("pod {name} is new")));
    unchanged(problems)
}

/// An error if there are problems: what has changed meanwhile.
pub(super) fn unchanged(mut problems: Vec<String>) -> Result<(), Error> {
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(NAMED);
    problems.truncate(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Err(Error::Changed { what: format!("meanwhile {}{more}", problems.join(", ")) })
}

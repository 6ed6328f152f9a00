//! What would become of the pools of an application that is as the files say.

use std::collections::BTreeMap;

use dapple_api::pool::POOL_NAME_LABEL;
use dapple_plan::fate::Fates;
use dapple_plan::pool::ahead::{Ahead, Seen};
use dapple_plan::pool::learned::Target;
use dapple_plan::pool::object::{ApplicationObject, in_force};
use dapple_plan::pool::said::Said;
use dapple_plan::variant::{ObjectName, Plan};
use jiff::Timestamp;
use serde_json::Value;

use super::annotations_applied;
use crate::live;
use crate::output::note;
use crate::sources::{Live, Sources, with_notice};

/// What the controller would do about the pools of an application, and what becomes of their pods; nothing for other workloads.
pub(super) async fn forecast(live: &Live, sources: &Sources, plan: &Plan) -> anyhow::Result<Option<(Ahead, Fates)>> {
    let object = &plan.object;
    let Some(application) = applied(live, sources, object) else { return Ok(None) };
    let Some(mut seen) = seen(sources, application, live) else { return Ok(None) };
    if !seen.application.uid.is_empty() {
        let reading = live::of_application(&live.client, &object.namespace, &seen.application.uid);
        let notice = format!("reading the workloads of {object} ...");
        (seen.workloads, seen.revisions) = with_notice(&notice, reading).await?;
    }
    let is_asked = |pool: &str| seen.pools.iter().any(|asked| asked.name == pool);
    seen.workloads.retain(|known| is_asked(&known.pool) || !sources.next.is_untouchable(&seen.version, &known.pool));
    let is_in_files = |target: &Target| {
        let (kind, namespace) = (format!("{:?}", target.kind), object.namespace.clone());
        sources.has(&ObjectName { kind, namespace, name: target.name.clone() })
    };
    let mut targets = seen.targets();
    targets.retain(|target| !is_in_files(target));
    seen.missing = live::missing(&live.client, &object.namespace, targets).await;
    let ahead = match seen.ahead(Timestamp::now()) {
        Ok(ahead) => ahead,
        Err(error) => {
            note(&format!("warning: {object}: {error}"));
            return Ok(None);
        }
    };
    let pods = match live.world.selector_of(object) {
        Some(selector) => live::pods(&live.client, object, &selector).await?,
        None => Vec::new(),
    };
    let fates = ahead.fates(pods.iter().filter_map(of_pool));
    Ok(Some((ahead, fates)))
}

/// A pod's name, its node and the pool that it was made for.
fn of_pool(pod: &Value) -> Option<(String, String, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (metadata, node) = (&pod["metadata"], text(&pod["spec"]["nodeName"])?);
    Some((text(&metadata["name"])?, node, text(&metadata["labels"][POOL_NAME_LABEL])?))
}

/// An application as it is once the files are applied: what a file does not say of it stays.
fn applied(live: &Live, sources: &Sources, object: &ObjectName) -> Option<ApplicationObject> {
    let next = sources.next.application(object)?;
    let Some(mut now) = live.world.application(object) else { return Some(next) };
    now.metadata.annotations = Some(annotations_applied(&now.metadata, &next.metadata));
    now.spec = next.spec;
    Some(now)
}

/// What the controller would know of it, but for what is to be read from the cluster. Nothing if it is not clear in which pools it
/// should be: the plan warns of that.
fn seen(sources: &Sources, application: ApplicationObject, live: &Live) -> Option<Seen> {
    let replacement = sources.next.replacement_of(&application);
    let annotations: BTreeMap<String, String> = replacement.map_or_else(BTreeMap::new, |next| {
        let now = live.world.replacement_of(&application).filter(|now| now.metadata.name == next.metadata.name);
        now.map_or_else(
            || next.metadata.annotations.clone().unwrap_or_default(),
            |now| annotations_applied(&now.metadata, &next.metadata),
        )
    });
    let said = Said::of(|key| application.annotation(key), |key| annotations.get(key).map(String::as_str));
    let version = application.version(replacement.map(in_force));
    let pools = sources.next.asked_pools(&version).ok()?;
    Some(Seen {
        application: application.application(),
        said,
        status: application.status,
        revisions: Vec::new(),
        workloads: Vec::new(),
        missing: Default::default(),
        pools,
        version,
    })
}

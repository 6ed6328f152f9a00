//! Taking NodePools, YurtAppSets and YurtAppDaemons over from OpenYurt. What is found decides in `dapple_plan::adopt::pool`.
//!
//! Nothing is written but webhook configurations and the CRDs: no spec of any object. The labels that make the CRDs dapple's come
//! last, so that whoever was interrupted runs it again.

mod act;

pub use act::carry_out;

use std::collections::BTreeMap;

use dapple_api::crd::is_ours;
use dapple_api::kinds::{self, KindInfo};
use dapple_api::pool::POOL_NAME_LABEL;
use dapple_plan::adopt::pool::applications::{Answer, Trial, trials};
use dapple_plan::adopt::pool::manager::{self, LEASE};
use dapple_plan::adopt::pool::nodes::is_of_pool;
use dapple_plan::adopt::pool::{NODE_POOLS, Observed, SeenKind, Taken, application_of};
use dapple_plan::adopt::product::SeenLease;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use super::look::{hooks, leases, watched};
use super::rest::{Shape, dry_merge, is_code, list, refused};
use super::{Error, Standing};
use crate::install::find_crd;

/// As many questions at once: a webhook that nobody answers may take ten seconds for each.
const AT_ONCE: usize = 8;

/// Looks at all that matters to these kinds. Changes nothing.
pub async fn look(client: &Client, asked: &[&'static Taken]) -> Result<Standing<Observed>, Error> {
    let (mut open, mut others, mut missing) = (Vec::new(), Vec::new(), 0);
    for &taken in asked {
        let name = taken.kind.crd();
        match find_crd(client, &name).await? {
            None => {
                missing += 1;
                others.push(format!("there is no CRD {name}"));
            }
            Some(crd) if is_ours(&crd) => others.push(format!("CRD {name} is dapple's already")),
            Some(crd) => open.push(seen(client, taken, crd).await?),
        }
    }
    if open.is_empty() {
        return Ok(if missing == asked.len() { Standing::Missing } else { Standing::Ours });
    }
    let deployments = deployments(client).await?;
    let observed = Observed {
        leases: held(client, &deployments).await?,
        stateful_sets: workloads(client, kinds::NATIVE_STATEFUL_SET.at).await?,
        hooks: hooks(client).await?,
        pools: objects(client, NODE_POOLS.kind.at).await?,
        nodes: nodes(client).await?,
        revisions: revisions(client).await?,
        overriders: if_served(client, "yurtappoverriders").await?,
        replacements: if_served(client, kinds::REPLACEMENT.at.plural).await?,
        answers: BTreeMap::new(),
        kinds: open,
        others,
        deployments,
    };
    let answers = ask(client, &trials(&observed)).await?;
    Ok(Standing::Open(Box::new(Observed { answers, ..observed })))
}

/// A kind with its objects, in whatever version they can be listed.
async fn seen(client: &Client, taken: &'static Taken, crd: Value) -> Result<SeenKind, Error> {
    let objects = objects(client, taken.kind.at).await?;
    let mut names = objects.as_ref().ok().map(|found| found.iter().map(name_of).collect::<Vec<_>>());
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true).filter_map(|version| version["name"].as_str()) {
        if names.is_some() {
            break;
        }
        let KindInfo { group, plural, .. } = taken.kind.at;
        let path = format!("/apis/{group}/{version}/{plural}");
        names = list(client, &path, "", Shape::Metadata, |object| Some(name_of(&object))).await.ok();
    }
    Ok(SeenKind { taken, crd, objects, names: names.unwrap_or_default() })
}

/// All objects of a kind, or why the API server does not list them: a version that is not served, or a webhook that does not
/// convert.
async fn objects(client: &Client, at: KindInfo) -> Result<Result<Vec<Value>, String>, Error> {
    let KindInfo { group, version, plural, .. } = at;
    match list(client, &format!("/apis/{group}/{version}/{plural}"), "", Shape::Whole, Some).await {
        Ok(found) => Ok(Ok(found)),
        Err(kube::Error::Api(status)) if status.code >= 500 || [404, 429].contains(&status.code) => {
            Ok(Err(status.message.clone()))
        }
        Err(error) => Err(refused(plural)(error)),
    }
}

/// Objects of OpenYurt's group in v1alpha1; none where the kind is not served.
async fn if_served(client: &Client, plural: &str) -> Result<Vec<Value>, Error> {
    let path = format!("/apis/{}/v1alpha1/{plural}", NODE_POOLS.kind.at.group);
    match list(client, &path, "", Shape::Whole, Some).await {
        Err(error) if is_code(&error, 404) => Ok(Vec::new()),
        found => found.map_err(refused(plural)),
    }
}

/// Deployments of applications, and those that run OpenYurt's manager.
async fn deployments(client: &Client) -> Result<Vec<Value>, Error> {
    let kind = kinds::NATIVE_DEPLOYMENT.at.kind;
    let keep = |mut object: Value| {
        object["kind"] = kind.into();
        (application_of(&object).is_some() || manager::read(&object).is_some()).then_some(object)
    };
    list(client, "/apis/apps/v1/deployments", "", Shape::Whole, keep).await.map_err(refused("Deployments"))
}

/// The workloads of applications of one kind.
async fn workloads(client: &Client, at: KindInfo) -> Result<Vec<Value>, Error> {
    let KindInfo { group, version, kind, plural } = at;
    let selector = format!("&labelSelector={}", POOL_NAME_LABEL.replace('/', "%2F"));
    let keep = |mut object: Value| {
        object["kind"] = kind.into();
        application_of(&object).is_some().then_some(object)
    };
    let path = format!("/apis/{group}/{version}/{plural}");
    list(client, &path, &selector, Shape::Whole, keep).await.map_err(refused(plural))
}

async fn revisions(client: &Client) -> Result<Vec<Value>, Error> {
    let keep = |object: Value| application_of(&object).is_some().then_some(object);
    let found = list(client, "/apis/apps/v1/controllerrevisions", "", Shape::Whole, keep).await;
    found.map_err(refused("ControllerRevisions"))
}

async fn nodes(client: &Client) -> Result<Vec<Value>, Error> {
    let keep = |mut object: Value| {
        object["status"].take();
        is_of_pool(&object).then_some(object)
    };
    list(client, "/api/v1/nodes", "", Shape::Whole, keep).await.map_err(refused("Nodes"))
}

/// Who leads OpenYurt's manager, if no Deployment says what it acts on.
async fn held(client: &Client, deployments: &[Value]) -> Result<Vec<SeenLease>, Error> {
    if deployments.iter().any(|deployment| manager::read(deployment).is_some()) {
        return Ok(Vec::new());
    }
    let (before, begun) = (leases(client, LEASE).await?, Instant::now());
    watched(client, LEASE, before, begun).await
}

/// What the API server says of writes by which dapple would change pod templates, by the workload's UID. Writes nothing.
async fn ask(client: &Client, trials: &[Trial]) -> Result<BTreeMap<String, Answer>, Error> {
    let ask = |trial: &Trial| {
        let trial = trial.clone();
        async move {
            let answer = match dry_merge(client, &trial.path, &trial.patch).await {
                Ok(answer) => trial.answered(&answer),
                Err(kube::Error::Api(status)) => trial.refused(status.code, &status.message),
                Err(error) => return Err(refused(trial.path)(error)),
            };
            Ok((trial.uid, answer))
        }
    };
    stream::iter(trials.iter().map(ask)).buffered(AT_ONCE).try_collect().await
}

fn name_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

//! Reading everything that deciding looks at.

use std::time::Duration;

use dapple_api::crd::is_ours;
use dapple_plan::adopt::crd::{Reading, facts, readings};
use dapple_plan::adopt::product::{LEASE, SELECTOR, SeenLease};
use dapple_plan::adopt::sets::{OwnedPod, Set, owner_of, pod, read};
use dapple_plan::adopt::{CRD, Observed, Refusal};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use super::rest::{Shape, get, list, refused};
use super::trial::try_pods;
use super::{Error, Standing};
use crate::install::find_crd;

/// Both products renew their leases every two seconds: one that is the same after this time is not renewed.
const RENEWAL: Duration = Duration::from_secs(5);

/// The webhook configurations of a cluster: kind and plural.
pub(super) const HOOKS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];

/// Looks at all that matters. Changes nothing.
pub async fn look(client: &Client) -> Result<Standing<Observed>, Error> {
    let Some(crd) = find_crd(client, CRD).await? else { return Ok(Standing::Missing) };
    if is_ours(&crd) && facts(&crd).is_stored_only_as_v1beta1() {
        return Ok(Standing::Ours);
    }
    let (before, begun) = (leases(client, LEASE).await?, Instant::now());
    let selector = format!("&labelSelector={}", SELECTOR.replace('=', "%3D"));
    let deployments = list(client, "/apis/apps/v1/deployments", &selector, Shape::Whole, Some).await;
    let sets = sets(client, &crd).await?;
    let is_owned = |revision: Value| owner_of(&revision).is_some().then_some(revision);
    let revisions = list(client, "/apis/apps/v1/controllerrevisions", "", Shape::Whole, is_owned).await;
    let tried = match &sets {
        Ok(sets) => try_pods(client, sets).await?,
        Err(_) => Vec::new(),
    };
    let observed = Observed {
        deployments: deployments.map_err(refused("Deployments"))?,
        hooks: hooks(client).await?,
        sets,
        revisions: revisions.map_err(refused("ControllerRevisions"))?,
        pods: pods(client).await?,
        refused: tried,
        leases: watched(client, LEASE, before, begun).await?,
        crd,
    };
    Ok(Standing::Open(Box::new(observed)))
}

/// The DaemonSets, by the first way of reading that gets an answer.
async fn sets(client: &Client, crd: &Value) -> Result<Result<Vec<Result<Set, Refusal>>, String>, Error> {
    let mut problems = Vec::new();
    for reading in readings(crd) {
        match sets_as(client, reading).await {
            Ok(found) => return Ok(Ok(found)),
            // Objects in the other version, and nobody there to convert them.
            Err(kube::Error::Api(status)) if status.code >= 500 || [404, 429].contains(&status.code) => {
                problems.push(format!("as {}: {}", reading.version, status.message));
            }
            Err(error) => return Err(refused("DaemonSets")(error)),
        }
    }
    if problems.is_empty() {
        problems.push("the CRD serves neither v1beta1 nor v1alpha1".to_owned());
    }
    Ok(Err(problems.join("; ")))
}

/// The DaemonSets as one version.
pub(super) async fn sets_as(client: &Client, reading: Reading) -> Result<Vec<Result<Set, Refusal>>, kube::Error> {
    let path = format!("/apis/apps.kruise.io/{}/daemonsets", reading.version);
    list(client, &path, "", Shape::Whole, |object| Some(read(object, reading))).await
}

/// The pods of DaemonSets.
pub(super) async fn pods(client: &Client) -> Result<Vec<OwnedPod>, Error> {
    list(client, "/api/v1/pods", "", Shape::Metadata, |object| pod(&object)).await.map_err(refused("Pods"))
}

/// Where a webhook configuration is.
pub(super) fn hook_path(kind: &str, name: &str) -> String {
    let plural = HOOKS.iter().find(|(known, _)| *known == kind).map_or("", |(_, plural)| *plural);
    format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}")
}

/// One webhook configuration, with its kind.
pub(super) async fn hook(client: &Client, kind: &str, name: &str) -> Result<Value, kube::Error> {
    let mut found = get(client, &hook_path(kind, name)).await?;
    found["kind"] = kind.into();
    Ok(found)
}

/// All webhook configurations, with their kinds.
pub(super) async fn hooks(client: &Client) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    for (kind, plural) in HOOKS {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        // Items of a list do not say what they are.
        let with_kind = |mut found: Value| {
            found["apiVersion"] = "admissionregistration.k8s.io/v1".into();
            found["kind"] = kind.into();
            Some(found)
        };
        all.extend(list(client, &path, "", Shape::Whole, with_kind).await.map_err(refused(plural))?);
    }
    Ok(all)
}

/// The leases of this name, in all namespaces.
pub(super) async fn leases(client: &Client, name: &str) -> Result<Vec<Lease>, Error> {
    let query = format!("&fieldSelector=metadata.name%3D{name}");
    let read = |lease: Value| serde_json::from_value(lease).ok();
    list(client, "/apis/coordination.k8s.io/v1/leases", &query, Shape::Whole, read).await.map_err(refused("Leases"))
}

/// Looks at the leases again a while later, so that nobody's clock alone decides.
pub(super) async fn watched(
    client: &Client,
    name: &str,
    before: Vec<Lease>,
    begun: Instant,
) -> Result<Vec<SeenLease>, Error> {
    let is_held = |lease: &Lease| lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.is_some());
    if !before.iter().any(is_held) {
        return Ok(before.into_iter().map(|lease| SeenLease { lease, was_renewed: false }).collect());
    }
    tokio::time::sleep_until(begun + RENEWAL).await;
    let version = |lease: &Lease| lease.metadata.resource_version.clone();
    let seen = |lease: Lease| {
        let known = before.iter().find(|known| known.metadata.uid == lease.metadata.uid);
        SeenLease { was_renewed: known.is_none_or(|known| version(known) != version(&lease)), lease }
    };
    Ok(leases(client, name).await?.into_iter().map(seen).collect())
}

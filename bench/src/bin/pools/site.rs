//! A control plane with nodes in pools and YurtAppSets in all of them, whose workloads have no pods.

use anyhow::Context;
use dapple_bench::audit::{Audit, Entry};
use dapple_bench::fleet::{Bench, LEASE, until};
use dapple_control::families;
use dapple_testbed::Fleet;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::application::{pool, spec};
use crate::decisions::POOLS;

const APPLICATIONS: usize = 10;
const OURS: &str = "apps.openyurt.io";
/// As many objects are made at once.
pub(crate) const AT_ONCE: usize = 16;

/// The control plane, and what was asked of it.
pub(crate) struct Site {
    pub(crate) bench: Bench,
    pub(crate) client: Client,
    audit: Audit,
    sets: Api<DynamicObject>,
    replacements: Api<DynamicObject>,
    pub(crate) deployments: Api<DynamicObject>,
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The name of an application.
pub(crate) fn name(number: usize) -> String {
    format!("web-{number}")
}

impl Site {
    pub(crate) async fn start(nodes: usize) -> anyhow::Result<Self> {
        let pools: Vec<String> = (0..POOLS).map(pool).collect();
        let kinds = json!({"kinds": [
            {"name": "edge", "count": nodes, "labels": {"apps.openyurt.io/nodepool": pools}}]});
        let audit = Audit::new()?;
        let fleet = Fleet::from_yaml(&kinds.to_string(), "fleet")?;
        let bench = Bench::start_with(&fleet, audit.api_args(), &[families::POOL]).await?;
        let client = bench.cluster.client().await?;
        let namespaced = |resource: &ApiResource| Api::namespaced_with(client.clone(), "default", resource);
        let site = Self {
            sets: namespaced(&resource(OURS, "v1alpha1", "YurtAppSet")),
            replacements: namespaced(&resource(OURS, "v1alpha1", "YurtAppConfigurationReplacement")),
            deployments: namespaced(&resource("apps", "v1", "Deployment")),
            client: client.clone(),
            audit,
            bench,
        };
        let all = Api::all_with(client, &resource(OURS, "v1beta1", "NodePool"));
        let make = |number: usize| {
            let object = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool",
                "metadata": {"name": pool(number)}, "spec": {"type": "Edge"}});
            create(&all, object)
        };
        stream::iter((0..POOLS).map(make)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        for number in 0..APPLICATIONS {
            let object = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet",
                "metadata": {"name": name(number), "annotations": {"dapple.dev/rollout-max": "100%"}},
                "spec": spec(POOLS)});
            create(&site.sets, object).await?;
        }
        for number in 0..APPLICATIONS {
            site.done(number).await?;
        }
        Ok(site)
    }

    /// Waits until an application says that all its pools are as they should be.
    pub(crate) async fn done(&self, number: usize) -> anyhow::Result<()> {
        until("all pools are done", || async {
            let found = self.sets.get(&name(number)).await?;
            let status = &found.data["status"];
            let is_current =
                status["currentRevision"].is_string() && status["currentRevision"] == status["updateRevision"];
            Ok(is_current && status["updatedPools"] == POOLS)
        })
        .await
    }

    /// An application's pools differ so from now on.
    pub(crate) async fn replace(&self, number: usize, replacements: &Value) -> anyhow::Result<()> {
        let name = name(number);
        if self.replacements.get_opt(&name).await?.is_some() {
            let patch = json!({"replacements": replacements});
            self.replacements.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            return Ok(());
        }
        let object = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
            "metadata": {"name": name}, "subject": {"kind": "YurtAppSet", "name": name}, "replacements": replacements});
        create(&self.replacements, object).await
    }

    /// The workload of an application in a pool.
    pub(crate) async fn workload(&self, number: usize, place: usize) -> anyhow::Result<String> {
        let found = self.sets.get(&name(number)).await?;
        let told = found.data["status"]["pools"].as_array().into_iter().flatten();
        let mut told = told.filter(|told| told["name"] == *pool(place));
        let workload = told.next().and_then(|told| told["workload"].as_str().map(str::to_owned));
        workload.context("the pool has a workload")
    }

    /// Waits until a workload has this image in its second container, and its application is done.
    pub(crate) async fn has(&self, number: usize, workload: &str, image: &str) -> anyhow::Result<()> {
        until("the workload has the image", || async {
            let found = self.deployments.get(workload).await?;
            Ok(found.data["spec"]["template"]["spec"]["containers"][1]["image"] == *image)
        })
        .await?;
        self.done(number).await
    }

    /// What our manager has asked since this time, as the API server writes times.
    pub(crate) fn asked(&self, since: &str) -> anyhow::Result<Vec<Entry>> {
        let mut entries = self.audit.entries(&[&self.bench.identity()])?;
        entries.retain(|entry| *entry.request_received_timestamp > *since);
        Ok(entries)
    }

    /// Waits until our manager leads.
    pub(crate) async fn led(&self) -> anyhow::Result<()> {
        let identity = self.bench.identity();
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
        until("our manager leads", || async {
            let lease = leases.get_opt(LEASE).await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity);
            Ok(holder.is_some_and(|holder| holder == identity))
        })
        .await
    }
}

/// Makes an object.
pub(crate) async fn create(api: &Api<DynamicObject>, object: Value) -> anyhow::Result<()> {
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

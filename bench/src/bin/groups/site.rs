//! Nodes in ten groups, namespaces with and without policies, and how fast pods get nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::fleet::until;
use dapple_control::install::apply;
use dapple_testbed::{Cluster, Fleet};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

pub(crate) const GROUPS: usize = 10;
pub(crate) const REQUIRED: &str = "groupmanagement.kubeedge.io/required-propagationpolicy";
pub(crate) const REQUIRED_OVERRIDE: &str = "groupmanagement.kubeedge.io/required-overridepolicy";
const VERSION: &str = "groupmanagement.kubeedge.io/v1alpha1";

fn group(number: usize) -> String {
    format!("g{number}")
}

/// Makes nodes and their groups.
pub(crate) async fn make_nodes(cluster: &Cluster, client: &Client, nodes: usize) -> anyhow::Result<()> {
    let kind = |number: usize| {
        let name = group(number);
        json!({"name": name, "count": nodes / GROUPS, "labels": {"site": name}})
    };
    let kinds: Vec<Value> = (0..GROUPS).map(kind).collect();
    cluster.apply_fleet(&Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet")?).await?;
    for number in 0..GROUPS {
        let name = group(number);
        let object = json!({"apiVersion": VERSION, "kind": "NodeGroup", "metadata": {"name": name},
            "spec": {"matchLabels": {"site": name}}});
        apply(client, &object).await?;
    }
    Ok(())
}

/// What a namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Nothing,
    Propagation,
    /// And images by group.
    Both,
}

/// A namespace with a Deployment `web` of no pods.
pub(crate) struct Site {
    client: Client,
    namespace: String,
    asks: Asks,
    scheduler: String,
}

impl Site {
    pub(crate) async fn new(client: &Client, namespace: &str, asks: Asks, scheduler: &str) -> anyhow::Result<Self> {
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        apply(client, &made).await?;
        let site =
            Self { client: client.clone(), namespace: namespace.to_owned(), asks, scheduler: scheduler.to_owned() };
        let names: Vec<String> = (0..GROUPS).map(group).collect();
        if asks != Asks::Nothing {
            let list = json!({"staticWeightList": [{"nodeGroupNames": names, "weight": 1}]});
            site.policy("PropagationPolicy", list).await?;
        }
        if asks == Asks::Both {
            let rule = |name: &String| {
                let image =
                    json!({"component": "Registry", "operator": "replace", "value": format!("{name}.registry.io")});
                json!({"targetNodeGroup": [name], "overriders": {"imageOverrider": [image]}})
            };
            site.policy("OverridePolicy", json!({"overrideRules": names.iter().map(rule).collect::<Vec<_>>()})).await?;
        }
        site.deploy().await?;
        Ok(site)
    }

    async fn policy(&self, kind: &str, spec: Value) -> anyhow::Result<()> {
        let metadata = json!({"name": "spread", "namespace": self.namespace});
        Ok(apply(&self.client, &json!({"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}))
            .await?)
    }

    async fn deploy(&self) -> anyhow::Result<()> {
        let labels = match self.asks {
            Asks::Nothing => json!({}),
            Asks::Propagation => json!({REQUIRED: "spread"}),
            Asks::Both => json!({REQUIRED: "spread", REQUIRED_OVERRIDE: "spread"}),
        };
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "schedulerName": self.scheduler, "containers": [{"name": "c", "image": "web:1"}]}});
        let metadata = json!({"name": "web", "namespace": self.namespace, "labels": labels});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
        apply(&self.client, &object).await?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        until("policies are confirmed", || async {
            let labels = deployments.get("web").await?.labels().clone();
            let bound = labels.keys().filter(|key| key.contains("/binding-")).count();
            Ok(bound == labels.keys().filter(|key| key.contains("/required-")).count())
        })
        .await
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes so many pods, and tells how many a second got a node, from the first that came to the last that has one.
    pub(crate) async fn pods_per_second(&self, count: usize) -> anyhow::Result<f64> {
        let pods = self.pods();
        let list = pods.list_metadata(&ListParams::default().limit(1)).await?;
        ensure!(list.items.is_empty(), "there are pods already");
        let version = list.metadata.resource_version.unwrap_or_default();
        let watched = pods.clone();
        let watch = tokio::spawn(async move {
            let mut events = watched.watch(&WatchParams::default().timeout(290), &version).await?.boxed();
            let (mut first, mut bound) = (None, std::collections::BTreeSet::new());
            while let Some(event) = events.try_next().await? {
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
                first.get_or_insert_with(Instant::now);
                if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                    bound.insert(pod.uid().unwrap_or_default());
                }
                if bound.len() == count {
                    break;
                }
            }
            anyhow::Ok((first.map(|first: Instant| first.elapsed()), bound.len()))
        });
        self.scale(count).await?;
        let (took, bound) = watch.await??;
        ensure!(bound == count, "only {bound} of {count} pods have a node");
        let rate = count as f64 / took.context("no pod came")?.as_secs_f64();
        self.check_groups(count).await?;
        self.scale(0).await?;
        self.clear().await?;
        Ok(rate)
    }

    /// Pods of a policy are divided evenly; with images by group, each has its own.
    async fn check_groups(&self, count: usize) -> anyhow::Result<()> {
        if self.asks == Asks::Nothing {
            return Ok(());
        }
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.pods().list(&ListParams::default()).await? {
            let spec = pod.spec.unwrap_or_default();
            let group = spec.node_name.unwrap_or_default().split('-').next().unwrap_or_default().to_owned();
            let image = spec.containers.first().and_then(|known| known.image.clone()).unwrap_or_default();
            let is_right = self.asks != Asks::Both || image == format!("{group}.registry.io/web:1");
            ensure!(is_right, "a pod in {group} has {image}");
            *found.entry(group).or_default() += 1;
        }
        let is_even = |count: &usize, of: usize| (of / GROUPS..=of.div_ceil(GROUPS)).contains(count);
        // What an extender lets pass may be one too many in a group: what is seen of pods is behind.
        let slack = usize::from(self.asks == Asks::Propagation) * count / 50;
        let is_fair = found.values().all(|known| is_even(known, count) || known.abs_diff(count / GROUPS) <= slack);
        ensure!(found.len() == GROUPS && is_fair, "pods are not divided: {found:?}");
        Ok(())
    }

    pub(crate) async fn scale(&self, replicas: usize) -> anyhow::Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        deployments.patch_scale("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let (pods, quick) = (self.pods(), DeleteParams::default().grace_period(0));
        until("pods are gone", || async {
            match pods.delete_collection(&quick, &ListParams::default()).await {
                // Thousands take longer than a request may: the rest goes with the next one.
                Err(kube::Error::Api(error)) if error.code == 504 => {}
                other => _ = other?,
            }
            Ok(pods.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
        })
        .await?;
        // What the rest of the control plane has still to do must not be counted to the next one.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    }
}

/// The one in the middle.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

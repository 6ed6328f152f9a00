//! Many pods at once, while managers die, are away or cannot be asked, and nodes that change their groups: all pods run, counts
//! are exact in the end, and no more pods are moved than were in the wrong place.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_control::install::apply;
use dapple_testbed::testing::Observer;
use dapple_testbed::{ClusterSpec, Fleet};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::gated::{GROUP, REQUIRED, deployment, is_gated, is_placing, namespace, node_of};
use crate::support::{Manager, eventually, installed, lease};
use crate::webhooks::Hooked;

/// How many pods are made at once.
const BURST: usize = 500;
/// How many are left of them once no manager is there.
const FEWER: usize = 300;
/// So many times nodes change their groups, once a second; `DAPPLE_RELABELLINGS` sets another number for a longer run.
const RELABELLINGS: u64 = 12;
/// For longer than a node that has left a group keeps its label where no pod selects on it.
const LABEL_GONE_AFTER: Duration = Duration::from_secs(70);
/// Longer than between two such changes, on a busy machine too.
const REPAIR_AFTER: &str = "8s";
/// The pods of a Job that comes while nobody leads.
const JOB_PODS: usize = 10;
const GROUPS: [&str; 2] = ["beijing", "hangzhou"];
const NODES_OF_GROUP: usize = 5;

/// The shares of two groups with weights 2 and 3.
fn shares(pods: usize) -> [usize; 2] {
    let mut counts = [0_usize; 2];
    for _ in 0..pods {
        let is_first = 2 * (2 * counts[1] + 1) > 3 * (2 * counts[0] + 1);
        counts[usize::from(!is_first)] += 1;
    }
    counts
}

/// Two groups, one by labels and one by names, and three replicas.
struct Site {
    hooked: Hooked,
    managers: Vec<Manager>,
}

impl Site {
    async fn start() -> Self {
        let mut spec = ClusterSpec::temporary();
        spec.node_lease_seconds = 200;
        let hooked = Hooked::with_replicas(installed(spec).await, 3).await;
        let kind = |group: &str| json!({"name": group, "count": NODES_OF_GROUP, "labels": {"place": group}});
        let fleet = json!({"kinds": GROUPS.map(kind)});
        hooked.cluster.apply_fleet(&Fleet::from_yaml(&fleet.to_string(), "fleet").unwrap()).await.unwrap();
        let mut site = Self { hooked, managers: Vec::new() };
        site.group(GROUPS[0], json!({"matchLabels": {"place": GROUPS[0]}})).await;
        site.group(GROUPS[1], json!({"nodes": nodes_of(GROUPS[1])})).await;
        site.start_managers();
        site.hooked.asked().await;
        is_placing(site.client()).await;
        site
    }

    fn start_managers(&mut self) {
        let flags = ["--repair-after", REPAIR_AFTER];
        self.managers = (0..3).map(|number| self.hooked.replica_with(number, &flags)).collect();
    }

    fn client(&self) -> &Client {
        &self.hooked.client
    }

    async fn group(&self, name: &str, spec: Value) {
        let version = "groupmanagement.kubeedge.io/v1alpha1";
        let group = json!({"apiVersion": version, "kind": "NodeGroup", "metadata": {"name": name}, "spec": spec});
        apply(self.client(), &group).await.unwrap();
    }

    /// A namespace with a policy.
    async fn policy(&self, at: &str, weights: [u32; 2]) {
        let weight = |group: &str, weight: u32| json!({"nodeGroupNames": [group], "weight": weight});
        let policy = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "spread", "namespace": at},
            "spec": {"staticWeightList": [weight(GROUPS[0], weights[0]), weight(GROUPS[1], weights[1])]}});
        for object in [namespace(at), policy] {
            apply(self.client(), &object).await.unwrap();
        }
    }

    /// A Deployment `web` there.
    async fn deploy(&self, at: &str, replicas: usize, asks: bool, min_ready: u32) {
        let mut web = deployment(at, "web", replicas, asks);
        web["spec"]["minReadySeconds"] = json!(min_ready);
        apply(self.client(), &web).await.unwrap();
    }

    async fn scale(&self, at: &str, replicas: usize) {
        let api: Api<Deployment> = Api::namespaced(self.client().clone(), at);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn pods(&self, at: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), at);
        let all = pods.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    async fn job_goes(&self) {
        let jobs: Api<Job> = Api::namespaced(self.client().clone(), "jobs");
        jobs.delete("sums", &DeleteParams::background()).await.unwrap();
        eventually("the Job and its pods are gone", || async {
            let (job, pods) = (jobs.get_opt("sums").await.unwrap(), self.pods("jobs").await.len());
            if job.is_none() && pods == 0 { Ok(()) } else { Err(format!("{pods} pods")) }
        })
        .await;
    }

    /// How many run in each group, by their nodes, and how many wait or have no node.
    async fn counts(&self, at: &str) -> ([usize; 2], usize) {
        let mut counts = BTreeMap::<String, usize>::new();
        for pod in self.pods(at).await {
            let group = node_of(&pod).split('-').next().unwrap_or_default().to_owned();
            *counts.entry(if is_gated(&pod) || !is_running(&pod) { String::new() } else { group }).or_default() += 1;
        }
        (GROUPS.map(|group| counts.remove(group).unwrap_or_default()), counts.into_values().sum())
    }

    async fn are_divided(&self, at: &str, pods: usize) {
        eventually(&format!("{pods} pods of {at} are divided"), || async {
            let counts = self.counts(at).await;
            if counts == (shares(pods), 0) { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
    }

    async fn run_anywhere(&self, at: &str, pods: usize) {
        eventually(&format!("{pods} pods of {at} run"), || async {
            let (counts, waiting) = self.counts(at).await;
            if (counts[0] + counts[1], waiting) == (pods, 0) { Ok(()) } else { Err(format!("{counts:?} {waiting}")) }
        })
        .await;
    }
}

fn nodes_of(group: &str) -> Vec<String> {
    (0..NODES_OF_GROUP).map(|number| format!("{group}-{number:03}")).collect()
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pods_run_and_are_divided_whatever_becomes_of_managers() {
    let mut site = Site::start().await;
    the_leader_dies_in_a_burst(&mut site).await;
    nobody_can_be_asked(&mut site).await;
    all_managers_are_away(&mut site).await;
    nodes_change_their_groups(&site).await;
    drop(site.managers);
    site.hooked.cluster.stop().await.unwrap();
}

async fn the_leader_dies_in_a_burst(site: &mut Site) {
    site.policy("burst", [2, 3]).await;
    site.deploy("burst", BURST, true, 0).await;
    let observer = Observer::start(site.client(), "burst");
    eventually("the burst is under way", || async {
        let pods = site.pods("burst").await;
        let placed = pods.iter().filter(|pod| !is_gated(pod)).count();
        if placed >= 50 { Ok(()) } else { Err(format!("{placed} of {}", pods.len())) }
    })
    .await;
    let holder = lease(site.client()).await.holder_identity.unwrap_or_default();
    let place = site.managers.iter().position(|manager| manager.is(&holder)).unwrap();
    let mut leader = site.managers.remove(place);
    site.policy("jobs", [2, 3]).await;
    // The next one does not come before the Job's pods are there, however slow the machine is.
    let seems_alive = SeemsAlive::start(site.client());
    leader.signal(Signal::KILL);
    leader.wait();
    a_job_comes(site).await;
    seems_alive.end().await;
    let (counts, waiting) = site.counts("burst").await;
    assert!(counts[0] + counts[1] < BURST, "it was over before: {counts:?} {waiting}");
    site.are_divided("burst", BURST).await;
    let (evicted, strays) = (observer.evicted(), observer.bound_without(GROUP));
    assert!(evicted <= strays, "{evicted} were moved, and {strays} came without a group");
    the_job_has_lost_no_pod(site).await;
}

/// Its pods are made for the groups of a policy that is another when the next leader opens the gate. What they were given by the
/// edition of their group cannot be changed any more.
async fn a_job_comes(site: &Site) {
    let rule = |group: &str| {
        json!({"targetNodeGroup": [group], "overriders": {"argsOverrider": [
            {"containerName": "c", "operator": "add", "value": [format!("--group={group}")]}]}})
    };
    let flags = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "flags", "namespace": "jobs"}, "spec": {"overrideRules": GROUPS.map(rule)}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sums", "namespace": "jobs",
        "labels": {REQUIRED: "spread", "groupmanagement.kubeedge.io/required-overridepolicy": "flags"}},
        "spec": {"completions": JOB_PODS, "parallelism": JOB_PODS, "backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "sums:1"}]}}}});
    apply(site.client(), &flags).await.unwrap();
    eventually("all pods of the burst are there", || async {
        let pods = site.pods("burst").await.len();
        if pods == BURST { Ok(()) } else { Err(pods.to_string()) }
    })
    .await;
    eventually("the pods of the Job wait, made for their groups", || async {
        apply(site.client(), &job).await.unwrap();
        let pods = eventually("they are there", || async {
            let pods = site.pods("jobs").await;
            if pods.len() == JOB_PODS { Ok(pods) } else { Err(pods.len().to_string()) }
        })
        .await;
        let made = pods.iter().filter(|pod| is_gated(pod) && flag_of(pod).is_some()).count();
        if made == JOB_PODS {
            return Ok(());
        }
        // Pods come as they are where the API server does not answer within a second, and a machine may be as slow as that.
        site.job_goes().await;
        Err(format!("{made} of {}", pods.len()))
    })
    .await;
    site.policy("jobs", [49, 1]).await;
}

/// The lease of a leader that is dead is renewed as if it were not.
struct SeemsAlive(JoinHandle<()>);

impl SeemsAlive {
    fn start(client: &Client) -> Self {
        let leases = Api::<Lease>::namespaced(client.clone(), "dapple-system");
        Self(tokio::spawn(async move {
            loop {
                let patch = Patch::Merge(json!({"spec": {"renewTime": MicroTime(Timestamp::now())}}));
                leases.patch("dapple-manager", &PatchParams::default(), &patch).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }))
    }

    async fn end(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled(), "the lease was renewed to the end");
    }
}

/// The group whose edition a pod was made by.
fn flag_of(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.first()?;
    container.args.iter().flatten().find_map(|arg| arg.strip_prefix("--group=").map(str::to_owned))
}

async fn the_job_has_lost_no_pod(site: &Site) {
    let jobs: Api<Job> = Api::namespaced(site.client().clone(), "jobs");
    eventually("the Job ends", || async {
        let status = jobs.get("sums").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        if status.succeeded == Some(JOB_PODS as i32) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    let status = jobs.get("sums").await.unwrap().status.unwrap_or_default();
    assert_eq!(status.failed.unwrap_or_default(), 0, "{status:?}");
    let pods = site.pods("jobs").await;
    assert_eq!(pods.len(), JOB_PODS, "none was made anew");
    let elsewhere = pods.iter().filter(|pod| !node_of(pod).starts_with(GROUPS[0])).count();
    assert!(elsewhere > 0, "all were guessed right");
    for pod in pods {
        let group = flag_of(&pod).unwrap_or_default();
        assert!(node_of(&pod).starts_with(&group), "{} of {group} is on {}", pod.name_any(), node_of(&pod));
    }
}

/// Pods come as if dapple were away. Those that are in the wrong place are moved afterwards.
async fn nobody_can_be_asked(site: &mut Site) {
    site.policy("unasked", [2, 3]).await;
    site.hooked.disconnect();
    let observer = Observer::start(site.client(), "unasked");
    // None is available, and so none is moved, before everything is as it was.
    site.deploy("unasked", 20, true, 5).await;
    site.run_anywhere("unasked", 20).await;
    assert_eq!(observer.bound_without(GROUP), 20, "none has waited");
    let misplaced = misplaced(site.counts("unasked").await.0);
    site.hooked.connect().await;
    site.are_divided("unasked", 20).await;
    assert_eq!(observer.evicted(), misplaced);
}

async fn all_managers_are_away(site: &mut Site) {
    for mut manager in site.managers.drain(..) {
        manager.signal(Signal::KILL);
        manager.wait();
    }
    let observer = Observer::start(site.client(), "burst");
    site.scale("burst", BURST + 5).await;
    site.run_anywhere("burst", BURST + 5).await;
    // Among those that are left are some without a group, and without a cost.
    site.scale("burst", FEWER).await;
    site.run_anywhere("burst", FEWER).await;
    let misplaced = misplaced(site.counts("burst").await.0);
    site.start_managers();
    site.are_divided("burst", FEWER).await;
    assert_eq!(observer.evicted(), misplaced);
}

/// So many have to move until groups have their shares.
fn misplaced(counts: [usize; 2]) -> usize {
    let shares = shares(counts[0] + counts[1]);
    counts.into_iter().zip(shares).map(|(count, share)| count.saturating_sub(share)).sum()
}

/// Pods that say no group count where their node is: each change makes some misplaced, and the next one makes them well placed.
async fn nodes_change_their_groups(site: &Site) {
    site.policy("labels", [2, 3]).await;
    site.deploy("labels", 10, false, 0).await;
    site.run_anywhere("labels", 10).await;
    let nodes: Api<Node> = Api::all(site.client().clone());
    let observer = Observer::start(site.client(), "labels");
    let changes = std::env::var("DAPPLE_RELABELLINGS").map_or(RELABELLINGS, |number| number.parse().unwrap());
    for number in 0..=changes {
        // They end as they began, but for one node.
        let is_home = number == changes || number % 2 == 1;
        for node in nodes_of(GROUPS[0]) {
            let is_kept = is_home && (number < changes || node != "beijing-000");
            let labels = json!({"place": if is_kept { GROUPS[0] } else { "nowhere" }});
            let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
            nodes.patch(&node, &PatchParams::default(), &patch).await.unwrap();
        }
        let named = if is_home { nodes_of(GROUPS[1]) } else { vec!["nobody".to_owned()] };
        site.group(GROUPS[1], json!({"nodes": named})).await;
        if number == 0 {
            let api: Api<Deployment> = Api::namespaced(site.client().clone(), "labels");
            let patch = Patch::Merge(json!({"metadata": {"labels": {REQUIRED: "spread"}}}));
            api.patch("web", &PatchParams::default(), &patch).await.unwrap();
        }
        // Only in a longer run: no group has a node meanwhile, so that nothing can be moved.
        if number == 0 && changes > RELABELLINGS {
            tokio::time::sleep(LABEL_GONE_AFTER).await;
            nodes_keep_the_label_under_pods(&nodes).await;
        }
        assert_eq!(observer.evicted(), 0, "after {number} changes");
        tokio::time::sleep(Duration::from_secs(u64::from(number < changes))).await;
    }
    let misplaced = misplaced_without(site, "beijing-000").await;
    eventually("what is in no group any more is moved", || async {
        let counts = site.counts("labels").await;
        let away = site.pods("labels").await.iter().filter(|pod| node_of(pod) == "beijing-000").count();
        if (counts, away) == ((shares(10), 0), 0) { Ok(()) } else { Err(format!("{counts:?}, {away}")) }
    })
    .await;
    assert_eq!(observer.evicted(), misplaced);
}

/// Of the group that names its nodes. All of them have pods of the burst.
async fn nodes_keep_the_label_under_pods(nodes: &Api<Node>) {
    let label = format!("group.dapple.dev/{}", GROUPS[1]);
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let has_pods = node.name_any().starts_with(GROUPS[1]);
        assert!(!has_pods || node.labels().contains_key(&label), "{} has pods that select on it", node.name_any());
    }
}

/// How many have to move where one node is in no group.
async fn misplaced_without(site: &Site, node: &str) -> usize {
    let (mut counts, _) = site.counts("labels").await;
    let all = counts[0] + counts[1];
    let away = site.pods("labels").await.iter().filter(|pod| node_of(pod) == node).count();
    counts[0] -= away;
    counts.into_iter().zip(shares(all)).map(|(count, share)| share.saturating_sub(count)).sum()
}

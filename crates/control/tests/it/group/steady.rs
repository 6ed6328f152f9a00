//! What moves nobody, or one at a time: scaling, rolling out, pods of high priority, and an application in many groups.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_testbed::Fleet;
use dapple_testbed::testing::Observer;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::binding::REQUIRED;
use super::placing::{Site, is_ready};
use crate::support::{eventually, setting};

/// How often an application is scaled; `DAPPLE_SCALINGS` sets another number for a longer run.
const SCALINGS: u64 = 12;
/// Several times what passes until a pod that may be moved is.
pub(super) const LONG_ENOUGH: Duration = Duration::from_secs(6);

/// The shares of two groups with weights 2 and 3, by the definition: the next pod to the highest weight/(2*pods+1).
fn shares(pods: usize) -> [usize; 2] {
    let mut counts = [0_usize; 2];
    for _ in 0..pods {
        let is_first = 2 * (2 * counts[1] + 1) > 3 * (2 * counts[0] + 1);
        counts[usize::from(!is_first)] += 1;
    }
    counts
}

/// The next of a sequence of numbers that look random, and are the same in every run.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_and_rolling_out_move_nobody() {
    let site = Site::new("steady-scaled").await;
    site.add_policy().await;
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    site.are_divided(shares(3)).await;
    let observer = Observer::start(&site.client, &site.name);
    let (mut seed, mut replicas) = (setting("DAPPLE_SEED", 18), 3);
    for _ in 0..setting("DAPPLE_SCALINGS", SCALINGS) {
        let before = site.identities().await;
        let wanted = usize::try_from(next_random(&mut seed)).unwrap() % 21;
        site.scale(&api, wanted).await;
        site.are_divided(shares(wanted)).await;
        let after = site.identities().await;
        assert_eq!(after.intersection(&before).count(), wanted.min(replicas), "from {replicas} to {wanted} moved some");
        replicas = wanted;
    }
    // By default one pod more is made than there are to be, and none is missing meanwhile.
    site.scale(&api, 3).await;
    site.are_divided(shares(3)).await;
    observer.count_anew(3).await;
    for image in ["web:2", "web:3"] {
        site.roll_out(&api, image).await;
        site.are_divided(shares(3)).await;
    }
    assert!(observer.fewest_ready() >= 3, "none is missing");
    tokio::time::sleep(LONG_ENOUGH).await;
    site.are_divided(shares(3)).await;
    assert_eq!(observer.evicted(), 0);
}

/// The group that the policy lists is full of pods as dear as this one, and the cheaper ones are elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_high_priority_kills_nobody_outside_its_group() {
    let site = Site::new("steady-priority").await;
    let [beijing, _] = site.groups();
    let policy = json!({"staticWeightList": [{"nodeGroupNames": [beijing], "weight": 1}]});
    site.place.add_propagation_of("spread", policy).await;
    let class = json!({"metadata": {"name": "steady-priority"}, "value": 1000});
    let class: PriorityClass = serde_json::from_value(class).unwrap();
    Api::all(site.client.clone()).create(&PostParams::default(), &class).await.unwrap();
    let pods = site.place.api("v1", "Pod");
    // Of 8 processors each has 5: there is no room for two.
    let pod = |name: &str, spec: Value| {
        let (_, mut pod) = site.application("v1", "Pod", spec);
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        pod["spec"]["containers"] = json!([{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "5"}}}]);
        pod
    };
    for (kind, count, class) in [("beijing", 2, "steady-priority"), ("hangzhou", 3, "")] {
        for number in 0..count {
            let node = format!("{}-{kind}-{number:03}", site.name);
            let mut there = pod(&format!("{kind}-{number}"), json!({"nodeName": node, "priorityClassName": class}));
            there["metadata"]["labels"] = json!({});
            site.place.create(&pods, there).await;
        }
    }
    let observer = Observer::start(&site.client, &site.name);
    observer.count_anew(5).await;
    let here = json!({"key": "place", "operator": "In", "values": site.groups()});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [here]}]}}});
    let dear = json!({"priorityClassName": "steady-priority", "affinity": affinity});
    let mut asking = pod("asking", dear.clone());
    asking["spec"]["schedulingGates"] = json!([{"name": "dapple.dev/group"}]);
    site.place.create(&pods, asking).await;
    eventually("the scheduler finds no room", || async {
        let reasons = site.reasons().await;
        if reasons.contains("FailedScheduling") { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
    let placed = site.pods().await.into_iter().find(|pod| pod.name_any() == "asking").unwrap();
    assert_eq!(placed.labels().get("dapple.dev/group"), Some(&beijing), "it is placed, and waits for room there");
    assert_eq!((observer.preempted(), site.pods().await.len()), (0, 6), "nobody dies for it");

    let mut free = pod("free", dear);
    free["metadata"]["labels"] = json!({});
    site.place.create(&pods, free).await;
    eventually("without a policy one dies", || async {
        let free = site.pods().await.into_iter().find(|pod| pod.name_any() == "free");
        let there = (observer.preempted(), free.as_ref().is_some_and(is_ready));
        if there == (1, true) { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
}

/// How many of the fifty are waited for; `DAPPLE_MOVES` sets another number for a longer run.
const MOVES: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn of_an_application_in_fifty_groups_one_is_away_at_a_time() {
    const GROUPS: usize = 50;
    let name = "steady-many";
    let cluster = crate::daemonset::cluster().await;
    let client = cluster.client().await.unwrap();
    let (old, new) = (format!("{name}-old"), format!("{name}-new"));
    let kinds = json!([{"name": old, "count": GROUPS}, {"name": new, "count": 3, "labels": {"place": new}}]);
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
    let site = Site::in_groups_of_others(name, &client).await;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for number in 0..GROUPS {
        let node = format!("{old}-{number:03}");
        site.add_group(&format!("old-{number:03}"), json!({"matchLabels": {"kubernetes.io/hostname": node}})).await;
        site.add_group(&format!("new-{number:03}"), json!({"matchLabels": {"place": new}})).await;
        before.push(node);
        after.push(format!("{new}-{number:03}"));
    }
    let weights = |groups: &[String]| json!({"staticWeightList": [{"nodeGroupNames": groups, "weight": 1}]});
    site.place.add_propagation_of("spread", weights(&before)).await;
    let spec =
        json!({"replicas": GROUPS, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    let ready_in = async |prefix: &str| {
        let pods = site.pods().await;
        let groups = pods.iter().filter(|pod| is_ready(pod)).filter_map(|pod| pod.labels().get("dapple.dev/group"));
        groups.filter(|group| group.starts_with(prefix)).cloned().collect::<BTreeSet<String>>().len()
    };
    eventually("one is ready in each group", || async {
        let found = ready_in(&old).await;
        if found == GROUPS { Ok(()) } else { Err(format!("in {found}")) }
    })
    .await;
    let observer = Observer::start(&client, name);
    observer.count_anew(GROUPS).await;
    let policies = site.place.api("groupmanagement.kubeedge.io/v1alpha1", "PropagationPolicy");
    let changed = json!({"spec": weights(&after)});
    policies.patch("spread", &PatchParams::default(), &Patch::Merge(changed)).await.unwrap();
    let moves = usize::try_from(setting("DAPPLE_MOVES", MOVES)).unwrap().min(GROUPS);
    eventually(&format!("{moves} are moved"), || async {
        let found = ready_in(&new).await;
        if found >= moves { Ok(()) } else { Err(format!("{found} are, {} evictions", observer.evicted())) }
    })
    .await;
    assert!(observer.fewest_ready() >= GROUPS - 1, "never two away");
    if moves < GROUPS {
        site.is_held_by_a_budget(&observer, GROUPS).await;
    }
    api.delete("web", &DeleteParams::default()).await.unwrap();
}

impl Site {
    /// No pod is moved that a PodDisruptionBudget keeps.
    async fn is_held_by_a_budget(&self, observer: &Observer, pods: usize) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.name);
        let spec = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}});
        let budget = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        eventually("a move is refused", || async {
            let reasons = self.reasons().await;
            if reasons.contains("MoveRefused") { Ok(()) } else { Err(format!("{reasons:?}")) }
        })
        .await;
        observer.count_anew(pods).await;
        let evicted = observer.evicted();
        tokio::time::sleep(LONG_ENOUGH).await;
        assert_eq!((observer.evicted(), observer.fewest_ready()), (evicted, pods), "none is moved");
    }
}

/// A restart where a pod runs is a disruption too, and a budget may be shared: each of the two alone would have one pod away.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_applications_under_one_budget_one_pod_restarts_at_a_time() {
    let site = Site::new("steady-budget").await;
    site.add_policy().await;
    let rule = |registry: &str| {
        json!({"targetNodeGroup": site.groups(), "overriders": {"imageOverrider": [
            {"component": "Registry", "operator": "add", "value": registry}]}})
    };
    site.place.add_override("registries", rule("one.example")).await;
    for name in ["web", "shop"] {
        let mut template = site.template("Always");
        template["metadata"]["labels"] = json!({"app": name, "tier": "front"});
        let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template});
        let (api, mut object) = site.application("apps/v1", "Deployment", spec);
        object["metadata"]["name"] = json!(name);
        object["metadata"]["labels"][REQUIRED[1]] = json!("registries");
        site.place.create(&api, object).await;
    }
    site.are_divided([2, 2]).await;
    site.have_registries(&[("one.example", 4)]).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(site.client.clone(), &site.name);
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"tier": "front"}}});
    let budget = serde_json::from_value(json!({"metadata": {"name": "front"}, "spec": spec})).unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    eventually("the budget is counted", || async {
        let allowed = budgets.get("front").await.unwrap().status.and_then(|status| status.disruptions_allowed);
        if allowed == Some(1) { Ok(()) } else { Err(format!("{allowed:?}")) }
    })
    .await;
    let observer = Observer::start(&site.client, &site.name);
    observer.count_anew(4).await;
    site.patch_policy("OverridePolicy", "registries", json!({"spec": {"overrideRules": [rule("two.example")]}})).await;
    site.have_registries(&[("two.example", 4)]).await;
    assert_eq!((observer.evicted(), observer.fewest_ready()), (0, 3), "never two away");
}

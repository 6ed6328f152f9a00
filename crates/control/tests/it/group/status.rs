//! What policies say of themselves, on a real cluster: as pods come, wait, move and go, and not more often than once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::binding::REQUIRED;
use super::placing::Site;
use crate::support::eventually;

/// Counts the versions of an object that come after the first.
struct Writes {
    seen: Arc<AtomicU64>,
    since: Instant,
    task: JoinHandle<()>,
}

impl Writes {
    async fn of(api: Api<DynamicObject>, name: &str) -> Self {
        let first = api.get(name).await.unwrap().resource_version().unwrap();
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let (since, seen) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let counted = seen.clone();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(api.watch(&params, &first).await.unwrap());
            while let Ok(Some(event)) = events.try_next().await {
                counted.fetch_add(u64::from(matches!(event, WatchEvent::Modified(_))), Ordering::Relaxed);
            }
        });
        Self { seen, since, task }
    }

    /// How many there were, and how many seconds have begun.
    fn stop(self) -> (u64, u64) {
        self.task.abort();
        (self.seen.load(Ordering::Relaxed), self.since.elapsed().as_secs() + 1)
    }
}

impl Site {
    fn policies(&self, kind: &str) -> Api<DynamicObject> {
        self.place.api("groupmanagement.kubeedge.io/v1alpha1", kind)
    }

    async fn status(&self, kind: &str) -> Value {
        let name = if kind == "PropagationPolicy" { "spread" } else { "registries" };
        let found = self.policies(kind).get(name).await.unwrap();
        let mut status = found.data["status"].clone();
        status["generation"] = json!(found.metadata.generation);
        status
    }

    /// Waits until the status of a policy is such, whatever else it says.
    pub(super) async fn says(&self, kind: &str, what: &str, is_such: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the {kind} says {what}"), || async {
            let status = self.status(kind).await;
            if is_such(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }
}

/// Status and reason of a condition.
fn condition(status: &Value, kind: &str) -> (String, String) {
    let known = status["conditions"].as_array().into_iter().flatten().find(|known| known["type"] == kind);
    let text = |field: &str| known.and_then(|known| known[field].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

pub(super) fn is(status: &Value, kind: &str, holds: &str, reason: &str) -> bool {
    condition(status, kind) == (holds.to_owned(), reason.to_owned())
}

/// Desired and current of each group, in the policy's order.
fn counts(status: &Value) -> Vec<(i64, i64)> {
    let groups = status["groups"].as_array().into_iter().flatten();
    groups.map(|group| (group["desired"].as_i64().unwrap(), group["current"].as_i64().unwrap())).collect()
}

/// Whether a group has an edition, and how many pods have it and have not.
fn editions(status: &Value) -> Vec<(bool, i64, i64)> {
    let groups = status["groups"].as_array().into_iter().flatten();
    let number = |group: &Value, field: &str| group[field].as_i64().unwrap();
    groups.map(|group| (group["edition"].is_string(), number(group, "updated"), number(group, "outdated"))).collect()
}

fn registry(group: &str, registry: &str) -> Value {
    json!({"targetNodeGroup": [group], "imageOverrider": [
        {"component": "Registry", "operator": "replace", "value": registry}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_say_what_follows_them_and_how_far_that_is() {
    let site = Site::new("status").await;
    let [beijing, hangzhou] = site.groups();
    let (spread, registries) = ("PropagationPolicy", "OverridePolicy");
    site.add_policy().await;
    site.place.add_override("registries", registry(&beijing, "beijing.example")).await;
    for kind in [spread, registries] {
        // Groups that were just made may come into view after their policy.
        let nobody = site.says(kind, "that nobody asks, and that its groups are there", |status| {
            is(status, "Ready", "True", "NoApplications") && is(status, "GroupsFound", "True", "GroupsFound")
        });
        let nobody = nobody.await;
        assert_eq!(nobody["applicationCount"], 0);
        assert_eq!(nobody["observedGeneration"], nobody["generation"]);
        assert!(is(&nobody, "Suspended", "False", "NotSuspended"));
    }

    let writes =
        [Writes::of(site.policies(spread), "spread").await, Writes::of(site.policies(registries), "registries").await];
    let api = site.add_deployment_of_both(json!({"replicas": 5, "template": site.template("Always")})).await;
    let divided = |wanted: Vec<(i64, i64)>| {
        move |status: &Value| {
            counts(status) == wanted && status["pending"] == 0 && is(status, "Divided", "True", "AsDesired")
        }
    };
    let first = site.says(spread, "two and three", divided(vec![(2, 2), (3, 3)])).await;
    let application = json!([{"apiGroup": "apps", "kind": "Deployment", "name": "web"}]);
    assert_eq!((&first["applications"], &first["applicationCount"]), (&application, &json!(1)));
    assert_eq!((&first["pods"], &first["misplaced"], &first["groupCount"]), (&json!(5), &json!(0), &json!(2)));
    assert!(is(&first, "Ready", "True", "Confirmed"));
    let all_have_theirs = |wanted: Vec<(bool, i64, i64)>| {
        move |status: &Value| editions(status) == wanted && is(status, "Updated", "True", "AllUpdated")
    };
    let both = site.says(registries, "two and three", all_have_theirs(vec![(true, 2, 0), (false, 3, 0)])).await;
    assert_eq!((&both["applications"], &both["pods"], &both["updated"]), (&application, &json!(5), &json!(5)));
    let edition = &both["groups"][0]["edition"];
    let placed = Api::<Pod>::namespaced(site.client.clone(), &site.name).list(&Default::default()).await.unwrap();
    let stamped = placed.iter().filter(|pod| json!(pod.annotations().get("dapple.dev/edition")) == *edition).count();
    assert_eq!(stamped, 2, "pods name the edition that the status has");

    // More pods, then fewer: it follows.
    site.scale(&api, 40).await;
    site.says(spread, "sixteen and twenty-four", divided(vec![(16, 16), (24, 24)])).await;
    site.says(registries, "forty", all_have_theirs(vec![(true, 16, 0), (false, 24, 0)])).await;
    site.scale(&api, 5).await;
    site.says(spread, "two and three again", divided(vec![(2, 2), (3, 3)])).await;
    for writes in writes {
        let (seen, seconds) = writes.stop();
        assert!(seen <= seconds + 1, "{seen} writes in {seconds} s");
    }

    // Other weights: one pod is misplaced, then moved, and that is remembered.
    site.weigh([3, 2]).await;
    let moved = site
        .says(spread, "a move", |status| divided(vec![(3, 3), (2, 2)])(status) && status["lastMoves"][0].is_object())
        .await;
    let last = &moved["lastMoves"][0];
    assert_eq!((&last["from"], &last["to"]), (&json!(hangzhou), &json!(beijing)));
    assert_eq!((moved["lastMoves"].as_array().map(Vec::len), &moved["misplaced"]), (Some(1), &json!(0)));
    assert_eq!(moved["observedGeneration"], moved["generation"]);
    site.says(registries, "three and two", all_have_theirs(vec![(true, 3, 0), (false, 2, 0)])).await;
    what_is_wrong_is_said(&site, &api).await;
}

async fn what_is_wrong_is_said(site: &Site, api: &Api<DynamicObject>) {
    let [beijing, hangzhou] = site.groups();
    let (spread, registries) = ("PropagationPolicy", "OverridePolicy");
    // A group that is not there: the pod that it should have waits, and both are said.
    let with_nowhere = json!({"spec": {"staticWeightList": [{"nodeGroupNames": [beijing, hangzhou, "status-nowhere"], "weight": 1}]},
        "metadata": {"annotations": {"dapple.dev/suspend": "true"}}});
    site.policies(spread).patch("spread", &PatchParams::default(), &Patch::Merge(&with_nowhere)).await.unwrap();
    site.scale(api, 6).await;
    let waits =
        site.says(spread, "that a pod waits", |status| status["pendingReasons"][0]["reason"] == "WaitingForGroup");
    let waits = waits.await;
    assert_eq!((&waits["pending"], &waits["pendingReasons"][0]["pods"]), (&json!(1), &json!(1)));
    assert!(is(&waits, "GroupsFound", "False", "GroupsMissing") && is(&waits, "Suspended", "True", "Suspended"));
    assert_eq!(condition(&waits, "Divided").0, "False");

    // A rule for the other group makes pods that run outdated.
    let rules = json!({"spec": {"overrideRules": [registry(&beijing, "beijing.example"), registry(&hangzhou, "hangzhou.example")]},
        "metadata": {"annotations": {"dapple.dev/suspend": "true"}}});
    site.policies(registries).patch("registries", &PatchParams::default(), &Patch::Merge(&rules)).await.unwrap();
    let outdated =
        site.says(registries, "outdated pods", |status| is(status, "Updated", "False", "PodsOutdated")).await;
    let of_hangzhou = outdated["groups"].as_array().unwrap().iter().find(|group| group["name"] == hangzhou.as_str());
    assert_eq!((of_hangzhou.unwrap()["outdated"].as_i64(), &outdated["updated"]), (Some(2), &json!(3)));

    // Nothing asks any more.
    let without = json!({"metadata": {"labels": {REQUIRED[0]: null, REQUIRED[1]: null}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(&without)).await.unwrap();
    for kind in [spread, registries] {
        let status = site.says(kind, "that nobody asks", |status| is(status, "Ready", "True", "NoApplications")).await;
        assert_eq!((&status["applicationCount"], &status["pods"]), (&json!(0), &json!(0)));
        assert!(status["applications"].as_array().is_none_or(Vec::is_empty), "{status}");
    }
}

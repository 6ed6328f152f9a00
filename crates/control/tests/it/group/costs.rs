//! What deleting pods costs follows their policy, and goes with it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::binding::REQUIRED;
use super::placing::Site;
use crate::support::eventually;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SEAT: &str = "dapple.dev/seat";
const GROUP: &str = "dapple.dev/group";

impl Site {
    /// Waits until pods of each group have these costs.
    pub(super) async fn have_costs(&self, wanted: [&[i32]; 2]) {
        let wanted = self.groups().into_iter().zip(wanted).filter(|(_, costs)| !costs.is_empty());
        let wanted: BTreeMap<String, BTreeSet<i32>> =
            wanted.map(|(group, costs)| (group, costs.iter().copied().collect())).collect();
        eventually(&format!("costs are {wanted:?}"), || async {
            let mut found: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
            for pod in self.pods().await {
                let group = pod.labels().get(GROUP).cloned().unwrap_or_default();
                if let Some(cost) = pod.annotations().get(COST).and_then(|cost| cost.parse::<i32>().ok()) {
                    found.entry(group).or_default().insert(cost);
                }
            }
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_follow_the_policy_and_go_with_it() {
    let site = Site::new("costs").await;
    site.add_policy().await;
    let spec = json!({"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": site.template("Always")});
    let (api, object) = site.application("apps/v1", "Deployment", spec);
    site.place.create(&api, object).await;
    site.are_divided([2, 3]).await;
    site.have_costs([&[-1, -3], &[0, -2, -4]]).await;

    // By the other weights, seats are of the other group: one pod moves, and then all have the costs of their new seats.
    site.weigh([3, 2]).await;
    site.are_divided([3, 2]).await;
    site.have_costs([&[0, -2, -4], &[-1, -3]]).await;
    let five = site.identities().await;
    site.scale(&api, 2).await;
    site.are_divided([1, 1]).await;
    assert!(site.identities().await.is_subset(&five), "nothing had to be moved");
    site.scale(&api, 5).await;
    site.are_divided([3, 2]).await;

    // A cost of the user's own stays, whatever becomes of the policy.
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), &site.name);
    let last = |pod: &&Pod| pod.annotations().get(COST).is_some_and(|cost| cost == "-3");
    let own = site.pods().await.iter().find(last).unwrap().name_any();
    let patch = json!({"metadata": {"annotations": {COST: "77"}}});
    pods.patch(&own, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    site.weigh([2, 3]).await;
    site.are_divided([2, 3]).await;
    site.have_costs([&[-1, -3], &[77, 0, -2]]).await;
    site.has_event("DeletionCostKept").await;

    // Nothing asks any more: what dapple wrote goes, what the user wrote stays.
    let unasked = json!({"metadata": {"labels": {REQUIRED[0]: null}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(unasked)).await.unwrap();
    site.have_costs([&[], &[77]]).await;
    eventually("no pod has a seat", || async {
        let seated = site.pods().await.iter().filter(|pod| pod.annotations().contains_key(SEAT)).count();
        if seated == 0 { Ok(()) } else { Err(format!("{seated} have one")) }
    })
    .await;
}

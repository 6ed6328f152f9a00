//! The four stories of the specification, with both kinds of applications, both templates, and the replacement made before the
//! application or after it. All stand side by side in one namespace, so that they take no longer than one of them.

use futures::future::join_all;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::site::{App, GRACE, IMAGE, MAP, OURS, REPLICAS, Site};
use crate::support::eventually;

/// One way to tell them.
struct Case<'s> {
    app: App<'s>,
    is_replacement_first: bool,
}

fn image(image: &str) -> Value {
    json!({"image": {"containerName": "web", "imageClaim": image}})
}

fn map(target: &str) -> Value {
    json!({"configMap": {"configMapSource": "from", "configMapTarget": target}})
}

impl Case<'_> {
    fn pools(&self) -> [&str; 3] {
        [&*self.app.site.pools[0], &*self.app.site.pools[1], &*self.app.site.pools[2]]
    }

    /// Waits until pools have these images, ConfigMaps and numbers of pods.
    async fn have(&self, wanted: &[(&str, &str, &str, i64)]) {
        for (pool, image, map, replicas) in wanted {
            for (place, value) in [(IMAGE, json!(image)), (MAP, json!(map)), (REPLICAS, json!(replicas))] {
                self.app.have(place, &[(*pool, value)]).await;
            }
        }
    }

    /// Regions that are alike, and one that is not. (Stories 1 and 2.)
    async fn regions_differ(&self) {
        let [beijing, hangzhou, shanghai] = self.pools();
        let replacements = json!([
            {"pools": format!("{beijing} {hangzhou}"), "items": [image("web:2"), map("alike"), {"replicas": 2}]},
            {"pools": [shanghai], "items": [image("web:3"), map("other"), {"replicas": 3}]}]);
        let said = self.app.said("web:1");
        if self.is_replacement_first {
            self.app.replace(&self.app.name, replacements).await;
            self.app.create(said).await;
        } else {
            self.app.create(said).await;
            self.app.is_done().await;
            self.app.replace(&self.app.name, replacements).await;
        }
        let alike = |pool| (pool, "web:2", "alike", 2);
        self.have(&[alike(beijing), alike(hangzhou), (shanghai, "web:3", "other", 3)]).await;
    }

    /// The replacement is changed: each region has a ConfigMap of its own, by one line. (Stories 1 and 3.) What it said before is
    /// gone.
    async fn each_has_its_own(&self) {
        self.app.rewrite(json!([{"pools": "*", "items": [map("for-{{nodepool}}")]}])).await;
        for pool in self.pools() {
            self.have(&[(pool, "web:1", &format!("for-{pool}"), 1)]).await;
        }
    }

    /// What comes later wins: of two that are alike, one has more pods. (Story 4.)
    async fn the_last_wins(&self) {
        let [beijing, hangzhou, shanghai] = self.pools();
        let alike = json!({"pools": [beijing, hangzhou], "items": [image("web:2"), map("alike"), {"replicas": 2}]});
        self.app.rewrite(json!([alike, {"pools": [beijing], "items": [{"replicas": 3}]}])).await;
        let pools = [(beijing, "web:2", "alike", 3), (hangzhou, "web:2", "alike", 2), (shanghai, "web:1", "from", 1)];
        self.have(&pools).await;
        self.app.is_done().await;
        let status = self.app.replacement_says(&self.app.name, "InEffect").await;
        assert_eq!((&status["matchedPools"], &status["poolsInEffect"]), (&json!(2), &json!(2)), "{status}");
        let status = self.app.status().await;
        let desired: Vec<&Value> = status["pools"].as_array().unwrap().iter().map(|pool| &pool["available"]).collect();
        assert_eq!(desired, [&json!(3), &json!(2), &json!(1)], "{status}");
    }

    /// A pool goes out of the replacement.
    async fn one_leaves_the_replacement(&self) {
        let [beijing, hangzhou, shanghai] = self.pools();
        let rest = json!({"pools": [hangzhou], "items": [image("web:2"), map("alike"), {"replicas": 2}]});
        self.app.rewrite(json!([rest])).await;
        let pools = [(beijing, "web:1", "from", 1), (hangzhou, "web:2", "alike", 2), (shanghai, "web:1", "from", 1)];
        self.have(&pools).await;
        self.app.is_done().await;
    }

    /// A pool goes out of the application, or comes back: a YurtAppSet names its pools.
    async fn names_pools(&self, pools: &[String]) {
        if self.app.kind == "YurtAppSet" {
            let pools: Vec<Value> = pools.iter().map(|pool| self.app.site.pool(pool)).collect();
            self.app.patch(json!({"spec": {"topology": {"pools": pools}}})).await;
        }
    }

    async fn without_one(&self) {
        let [beijing, hangzhou, shanghai] = self.pools();
        self.app.is_in(2).await;
        let known = self.app.workloads().await;
        assert!(!known.contains_key(hangzhou), "{:?}", known.keys());
        self.have(&[(beijing, "web:1", "from", 1), (shanghai, "web:1", "from", 1)]).await;
        self.app.is_done().await;
    }

    /// With what the replacement says of it.
    async fn with_it_again(&self) {
        let [_, hangzhou, _] = self.pools();
        self.have(&[(hangzhou, "web:2", "alike", 2)]).await;
        self.app.is_done().await;
    }

    /// Without replacement, all is as the application says, and nothing more is written.
    async fn base(&self) {
        self.app.end_replacement(&self.app.name).await;
        for pool in self.pools() {
            self.have(&[(pool, "web:1", "from", 1)]).await;
        }
        self.app.is_done().await;
        let before = self.app.versions().await;
        self.app.is_looked_at(2).await;
        assert_eq!(self.app.versions().await, before, "{}: nothing is written", self.app.name);
    }

    /// With the application all of it goes.
    async fn is_deleted(&self) {
        let App { site, name, kind, .. } = &self.app;
        site.api(OURS, kind).delete(name, &DeleteParams::default()).await.unwrap();
        eventually(&format!("nothing is left of {name}"), || async {
            let left = self.app.standing().await;
            if left.0.is_empty() && left.1.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_differ_as_the_replacement_says_whichever_came_first() {
    let (site, _manager) = Site::new("stories", 3).await;
    let mut cases = Vec::new();
    for (kind, short) in [("YurtAppSet", "set"), ("YurtAppDaemon", "daemon")] {
        for (workload, made) in [("Deployment", "deployment"), ("StatefulSet", "stateful")] {
            for is_replacement_first in [true, false] {
                let order = if is_replacement_first { "after" } else { "before" };
                let name = format!("{short}-{made}-{order}");
                cases.push(Case { app: App { site: &site, name, kind, workload }, is_replacement_first });
            }
        }
    }
    join_all(cases.iter().map(Case::regions_differ)).await;
    join_all(cases.iter().map(Case::each_has_its_own)).await;
    join_all(cases.iter().map(Case::the_last_wins)).await;
    join_all(cases.iter().map(Case::one_leaves_the_replacement)).await;

    // A NodePool that is not selected any more leaves all YurtAppDaemons, without a time of grace here.
    let fewer = [site.pools[0].clone(), site.pools[2].clone()];
    join_all(cases.iter().map(|case| case.app.annotate(GRACE, Some("0s")))).await;
    join_all(cases.iter().map(|case| case.names_pools(&fewer))).await;
    site.select(&site.pools[1], false).await;
    join_all(cases.iter().map(Case::without_one)).await;
    join_all(cases.iter().map(|case| case.names_pools(&site.pools))).await;
    site.select(&site.pools[1], true).await;
    join_all(cases.iter().map(Case::with_it_again)).await;

    join_all(cases.iter().map(Case::base)).await;
    join_all(cases.iter().map(Case::is_deleted)).await;
}

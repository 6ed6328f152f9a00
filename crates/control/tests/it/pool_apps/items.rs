//! Every kind of item, in every place that it concerns: in all pools, and then another for one of them, which wins.

use futures::future::join_all;
use serde_json::{Value, json};

use super::site::{App, REPLICAS, Site, template_of};
use crate::support::eventually;

const POD: &str = "/spec/template/spec";
/// Where a template can refer to a ConfigMap.
const MAPS: [&str; 5] = [
    "volumes/0/configMap/name",
    "volumes/3/projected/sources/0/configMap/name",
    "containers/0/env/0/valueFrom/configMapKeyRef/name",
    "containers/0/envFrom/0/configMapRef/name",
    "initContainers/0/envFrom/0/configMapRef/name",
];
/// Where it can refer to a Secret.
const SECRETS: [&str; 6] = [
    "volumes/1/secret/secretName",
    "volumes/3/projected/sources/1/secret/name",
    "containers/0/env/1/valueFrom/secretKeyRef/name",
    "containers/0/envFrom/1/secretRef/name",
    "initContainers/0/envFrom/1/secretRef/name",
    "imagePullSecrets/0/name",
];
/// Where it can refer to a claim.
const CLAIM: &str = "volumes/2/persistentVolumeClaim/claimName";
/// What is referred to: of the template, of all pools, and of one.
const WHOSE: [&str; 3] = ["base", "all", "one"];

/// An application that refers to all that there is, in every place.
fn said(app: &App<'_>) -> Value {
    let mut said = app.said("web:base");
    let field = template_of(app.workload);
    let sources = json!([{"configMapRef": {"name": "map-base"}}, {"secretRef": {"name": "key-base"}}]);
    let pod = &mut said["spec"]["workloadTemplate"][field]["spec"]["template"]["spec"];
    pod["imagePullSecrets"] = json!([{"name": "key-base"}]);
    pod["initContainers"] = json!([{"name": "before", "image": "before:base", "envFrom": sources}]);
    pod["volumes"] = json!([
        {"name": "map", "configMap": {"name": "map-base"}},
        {"name": "key", "secret": {"secretName": "key-base"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-base"}},
        {"name": "both", "projected": {"sources": [
            {"configMap": {"name": "map-base"}}, {"secret": {"name": "key-base"}}]}}]);
    let web = &mut pod["containers"][0];
    web["envFrom"] = sources;
    web["env"] = json!([
        {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "map-base", "key": "k"}}},
        {"name": "FROM_KEY", "valueFrom": {"secretKeyRef": {"name": "key-base", "key": "k"}}},
        {"name": "SIZE", "value": "base"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    // What a pool's own patch says comes before any replacement, so that this loses against items for all pools. And a container
    // that only this pool has can be named by an item for this pool.
    if app.kind == "YurtAppSet" {
        let containers = json!([{"name": "web", "image": "web:patched"}, {"name": "side", "image": "side:patched"}]);
        said["spec"]["topology"]["pools"][1]["patch"] =
            json!({"spec": {"template": {"spec": {"containers": containers}}}});
    }
    said
}

/// The kind of update by which pods are not made anew one by one.
fn other_strategy(app: &App<'_>) -> &'static str {
    if app.workload == "StatefulSet" { "OnDelete" } else { "Recreate" }
}

/// An item of each kind.
fn items(whose: &str, replicas: i64, strategy: &str) -> Vec<Value> {
    let target = |name: &str| format!("{name}-{whose}");
    vec![
        json!({"image": {"containerName": "web", "imageClaim": format!("web:{whose}")}}),
        json!({"image": {"containerName": "before", "imageClaim": format!("before:{whose}")}}),
        json!({"configMap": {"configMapSource": "map-base", "configMapTarget": target("map")}}),
        json!({"secret": {"secretSource": "key-base", "secretTarget": target("key")}}),
        json!({"persistentVolumeClaim": {"pvcSource": "data-base", "pvcTarget": target("data")}}),
        json!({"env": {"containerName": "web", "envClaim": {"SIZE": whose, "NODE": whose, "ADDED": whose}}}),
        json!({"replicas": replicas}),
        json!({"upgradeStrategy": strategy}),
    ]
}

/// Replacements for all pools and for one of them.
fn replacements(app: &App<'_>) -> [Value; 2] {
    let mut one = items("one", 3, "RollingUpdate");
    if app.kind == "YurtAppSet" {
        one.push(json!({"image": {"containerName": "side", "imageClaim": "side:one"}}));
    }
    let all = json!({"pools": "*", "items": items("all", 2, other_strategy(app))});
    [all, json!({"pools": [app.site.pools[1]], "items": one})]
}

/// Waits until a pool's workload has in every place what it should have.
async fn has(app: &App<'_>, pool: &str, whose: &str, web: &str) {
    let is_base = whose == "base";
    let (number, strategy) = match whose {
        "all" => (2, other_strategy(app)),
        "one" => (3, "RollingUpdate"),
        _ => (1, "RollingUpdate"),
    };
    let of_strategy = if app.workload == "StatefulSet" { "updateStrategy" } else { "strategy" };
    let at = |place: &str| format!("{POD}/{place}");
    let mut wanted: Vec<(String, Value)> = vec![
        (at("containers/0/image"), json!(web)),
        (at("initContainers/0/image"), json!(format!("before:{whose}"))),
        (at("containers/0/env/2"), json!({"name": "SIZE", "value": whose})),
        (at(CLAIM), json!(format!("data-{whose}"))),
        (REPLICAS.to_owned(), json!(number)),
        (format!("/spec/{of_strategy}/type"), json!(strategy)),
    ];
    wanted.extend(MAPS.map(|place| (at(place), json!(format!("map-{whose}")))));
    wanted.extend(SECRETS.map(|place| (at(place), json!(format!("key-{whose}")))));
    if !is_base {
        // Its value takes the place of where it came from.
        wanted.push((at("containers/0/env/3"), json!({"name": "NODE", "value": whose})));
        wanted.push((at("containers/0/env/4"), json!({"name": "ADDED", "value": whose})));
    }
    eventually(&format!("{} has what is for {whose} in {pool}", app.name), || async {
        let known = app.workloads().await;
        let workload = known.get(pool).ok_or_else(|| format!("no workload in {pool}"))?;
        let found = |place: &str| workload.pointer(place).cloned().unwrap_or_default();
        let differs = wanted.iter().filter(|(place, value)| found(place) != *value);
        let differs: Vec<_> = differs.map(|(place, value)| format!("{place}: {}, not {value}", found(place))).collect();
        let names = workload.pointer(&at("containers/0/env")).and_then(Value::as_array).map_or(0, Vec::len);
        let is_whole = names == if is_base { 4 } else { 5 };
        if differs.is_empty() && is_whole { Ok(()) } else { Err(format!("{differs:?}, {names} variables")) }
    })
    .await;
}

/// The image of the container that only one pool of a YurtAppSet has.
async fn side_is(app: &App<'_>, image: &str) {
    if app.kind == "YurtAppSet" {
        app.have(&format!("{POD}/containers/1/image"), &[(&app.site.pools[1], json!(image))]).await;
    }
}

async fn each_kind_in_each_place((number, app): (usize, &App<'_>)) {
    let [all, one] = replacements(app);
    let (first, second) = (&*app.site.pools[0], &*app.site.pools[1]);
    // Whichever object comes first, it comes to the same.
    if number % 2 == 0 {
        app.replace(&app.name, json!([all, one])).await;
        app.create(said(app)).await;
    } else {
        app.create(said(app)).await;
        has(app, first, "base", "web:base").await;
        app.replace(&app.name, json!([all, one])).await;
    }
    has(app, first, "all", "web:all").await;
    has(app, second, "one", "web:one").await;
    side_is(app, "side:one").await;
    // In the other order those for all pools come last.
    app.rewrite(json!([one, all])).await;
    has(app, second, "all", "web:all").await;
    side_is(app, "side:one").await;
    // And without them, it is as the application says.
    app.end_replacement(&app.name).await;
    has(app, first, "base", "web:base").await;
    has(app, second, "base", if app.kind == "YurtAppSet" { "web:patched" } else { "web:base" }).await;
    side_is(app, "side:patched").await;
}

/// What running pods are made to refer to has to be there, and pods with claims run once these are bound.
async fn targets(site: &Site) {
    for whose in WHOSE {
        site.create("v1", "ConfigMap", json!({"metadata": {"name": format!("map-{whose}")}})).await;
        site.create("v1", "Secret", json!({"metadata": {"name": format!("key-{whose}")}})).await;
        let (claim, volume) = (format!("data-{whose}"), format!("{}-{whose}", site.name));
        let size = json!({"storage": "1Gi"});
        let spec = json!({"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume,
            "resources": {"requests": size}});
        site.create("v1", "PersistentVolumeClaim", json!({"metadata": {"name": claim}, "spec": spec})).await;
        let spec = json!({"accessModes": ["ReadWriteMany"], "capacity": size, "hostPath": {"path": "/data"},
            "claimRef": {"namespace": site.name, "name": claim}});
        site.create("v1", "PersistentVolume", json!({"metadata": {"name": volume}, "spec": spec})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_items_of_each_kind_the_last_wins_in_every_place() {
    let (site, _manager) = Site::new("items", 2).await;
    targets(&site).await;
    let mut apps = Vec::new();
    for kind in ["YurtAppSet", "YurtAppDaemon"] {
        for workload in ["Deployment", "StatefulSet"] {
            let name = format!("{}-{}", &kind[7..].to_lowercase(), workload.to_lowercase());
            apps.push(App { site: &site, name, kind, workload });
        }
    }
    join_all(apps.iter().enumerate().map(each_kind_in_each_place)).await;
}

//! What admission refuses, where it slipped past: a second replacement for one application, and a template of the other kind. Here
//! no webhook is asked.

use futures::future::join_all;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::site::{App, IMAGE, Site, template_of};

fn for_all(image: &str) -> Value {
    json!([{"pools": "*", "items": [{"image": {"containerName": "web", "imageClaim": image}}]}])
}

async fn have_image(app: &App<'_>, image: &str) {
    let wanted: Vec<(&str, Value)> = app.site.pools.iter().map(|pool| (pool.as_str(), json!(image))).collect();
    app.have(IMAGE, &wanted).await;
}

/// The older counts, whatever their names are, and the other says so.
async fn a_second_replacement_says_that_it_does_not_count(app: &App<'_>, first: &str, second: &str) {
    app.replace(second, for_all("web:3")).await;
    let status = app.replacement_says(second, "NotCounted").await;
    let message = status["conditions"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains(first), "{message}");
    assert!(status["matchedPools"].as_i64().unwrap_or_default() == 0, "{status}");
    app.is_looked_at(1).await;
    app.replacement_says(first, "InEffect").await;
    assert_eq!(app.with("web:2").await, app.site.pools, "the first is in effect");
}

/// Nothing is done until the template is put back, and then there is nothing to do.
async fn a_switched_template_changes_nothing(app: &App<'_>) {
    let other = if app.workload == "StatefulSet" { "Deployment" } else { "StatefulSet" };
    let (own, others) = (template_of(app.workload), template_of(other));
    let before = (app.standing().await, app.versions().await);
    let switched = App { site: app.site, name: app.name.clone(), kind: app.kind, workload: other }.said("web:9");
    let template = switched["spec"]["workloadTemplate"][others].clone();
    app.patch(json!({"spec": {"workloadTemplate": {own: null, others: template}}})).await;
    let message = app.says("Synced", "Failing").await;
    assert!(message.contains("of another kind"), "{message}");
    let made = app.site.api("apps/v1", other).list(&ListParams::default().labels(&format!("app={}", app.name))).await;
    assert_eq!(made.unwrap().items.len(), 0, "no {other} is made");
    assert_eq!((app.standing().await, app.versions().await), before, "its workloads are as they were");

    let template = app.said("web:1")["spec"]["workloadTemplate"][own].clone();
    app.patch(json!({"spec": {"workloadTemplate": {own: template, others: null}}})).await;
    app.says("Synced", "Synced").await;
    app.is_done().await;
    app.is_looked_at(1).await;
    assert_eq!((app.standing().await, app.versions().await), before, "as if nothing had happened");
}

async fn slips((kind, app): (&str, &App<'_>)) {
    // By its name the second would come first.
    let (first, second) = (format!("{kind}-first"), format!("a-{kind}"));
    app.replace(&first, for_all("web:2")).await;
    app.create(app.said("web:1")).await;
    app.is_done().await;
    have_image(app, "web:2").await;
    a_second_replacement_says_that_it_does_not_count(app, &first, &second).await;
    a_switched_template_changes_nothing(app).await;
    // Without the older one the other has its turn.
    app.end_replacement(&first).await;
    have_image(app, "web:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slipped_past_admission_does_no_harm() {
    let (site, _manager) = Site::new("slips", 2).await;
    let app = |name: &str, kind, workload| App { site: &site, name: name.to_owned(), kind, workload };
    let set = app("set", "YurtAppSet", "Deployment");
    let daemon = app("daemon", "YurtAppDaemon", "StatefulSet");
    join_all([("set", &set), ("daemon", &daemon)].map(slips)).await;
}

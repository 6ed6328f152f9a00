//! Revisions whose bytes encoders write differently. The API server compares them as bytes: what it did not write itself,
//! nobody could ever change.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::gate::own_cluster;
use super::story::{ByNode, Story, changed, rolling};
use crate::support::{eventually, kubectl, kubectl_ok, manager};

/// Every character that encoders treat differently, and some that they do not.
const TEXT: &str =
    "test -e /a && exec agent > /log < /dev/null; echo \"\\ ' / \u{2028}\u{2029} é 漢 🦀\" \t \u{8} \u{c}";

fn set(story: &Story, image: &str) -> Value {
    let mut deep = json!({"a & b": []});
    for _ in 0..40 {
        deep = json!({"deeper": [deep]});
    }
    // For no node: the numbers are nobody's, and in the revision all the same.
    let numbers = json!({"spec": {"x": [1e3, 1.0, 1.5e-7, 1e21, -0.0, 9_007_199_254_740_993_i64, i64::MIN]}});
    let patches = json!([
        {"selector": {"matchLabels": {"disk": "none"}}, "patch": numbers},
        {"selector": {"matchLabels": {"disk": "none"}}, "patch": {"metadata": deep}},
        {"selector": {"matchLabels": {"disk": "<none>"}}, "patch": {"metadata": {"annotations": {"": ""}}}},
    ]);
    let strategy = rolling(json!({"maxUnavailable": "100%"}));
    let mut set = story.set(image, json!({"updateStrategy": strategy, "patches": patches}));
    let container = &mut set["spec"]["template"]["spec"]["containers"][0];
    container["command"] = json!(["sh", "-c", TEXT, ""]);
    set["spec"]["template"]["metadata"]["annotations"] = json!({"note": TEXT, "empty": ""});
    set
}

async fn revisions(story: &Story) -> Vec<ControllerRevision> {
    story.revisions.list(&ListParams::default()).await.unwrap().items
}

/// Image by number of the revision.
async fn history(story: &Story) -> BTreeMap<i64, String> {
    let image = |revision: &ControllerRevision| {
        let data = revision.data.as_ref().map(|data| data.0.clone()).unwrap_or_default();
        data["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned()
    };
    revisions(story).await.iter().map(|revision| (revision.revision, image(revision))).collect()
}

/// Brings everybody to an image, and returns the pods.
async fn roll(story: &Story, image: &str) -> ByNode {
    story.apply(&set(story, image)).await;
    let pods = story.have_image(2, image).await;
    story.condition("Progressing", "False", "Complete").await;
    story.condition("Degraded", "False", "AsExpected").await;
    pods
}

/// kubectl can change every revision.
async fn all_can_be_changed(story: &Story) {
    for revision in revisions(story).await {
        let patch = r#"{"metadata": {"annotations": {"touched": "yes"}}}"#;
        for form in ["strategic", "merge"] {
            let args =
                ["-n", &story.name, "patch", "controllerrevision", &revision.name_any(), "--type", form, "-p", patch];
            kubectl_ok(&story.cluster, &args, "");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_taken_back_whatever_they_say() {
    let story = Story::without_nodes("bytes").await;
    story.add_nodes("n", 2, json!({})).await;
    for image in ["agent:1", "agent:2", "agent:1", "agent:2"] {
        roll(&story, image).await;
    }
    let before = roll(&story, "agent:1").await;
    assert_eq!(history(&story).await, BTreeMap::from([(4, "agent:2".to_owned()), (5, "agent:1".to_owned())]));
    all_can_be_changed(&story).await;
    // The garbage collector lets go of each; a set of that name takes them in again, and nothing restarts.
    kubectl_ok(&story.cluster, &["-n", "bytes", "delete", "daemonset.apps.kruise.io", "agent", "--cascade=orphan"], "");
    let orphans = revisions(&story).await;
    assert!(orphans.len() == 2 && orphans.iter().all(|revision| revision.owner_references().is_empty()), "{orphans:?}");
    let after = roll(&story, "agent:1").await;
    assert_eq!(changed(&before, &after), Vec::<String>::new());
    assert_eq!(revisions(&story).await.len(), 2);
}

/// Writes every revision as version 0.1.0 did: in the form of another encoder.
async fn write_as_before(story: &Story) {
    for mut revision in revisions(story).await {
        let name = revision.name_any();
        story.revisions.delete(&name, &DeleteParams::default()).await.unwrap();
        revision.metadata.resource_version = None;
        revision.metadata.uid = None;
        story.revisions.create(&PostParams::default(), &revision).await.unwrap();
        let patch = r#"{"metadata": {"annotations": {"touched": "yes"}}}"#;
        let refused =
            kubectl(&story.cluster, &["-n", &story.name, "patch", "controllerrevision", &name, "-p", patch], "");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("field is immutable"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_that_nobody_can_change_are_replaced_without_a_restart() {
    let story = Story::empty("mended", own_cluster().await).await;
    story.add_nodes("n", 2, json!({})).await;
    let first = manager(&story.cluster, "first").await;
    roll(&story, "agent:1").await;
    let before = roll(&story, "agent:2").await;
    first.end().await;
    write_as_before(&story).await;
    let _second = manager(&story.cluster, "second").await;
    eventually("all are replaced", || async {
        let all = revisions(&story).await;
        let is_new = |revision: &ControllerRevision| revision.annotations().contains_key("dapple.dev/replaces");
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        if all.len() == 2 && all.iter().all(is_new) { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    assert_eq!(history(&story).await, BTreeMap::from([(1, "agent:1".to_owned()), (2, "agent:2".to_owned())]));
    all_can_be_changed(&story).await;
    let names: Vec<String> = revisions(&story).await.iter().map(ResourceExt::name_any).collect();
    story
        .status("the current revision is one that is there", |status| {
            status["currentRevision"].as_str().is_some_and(|name| names.iter().any(|known| known == name))
        })
        .await;
    story.nothing_changes(&before).await;
    // Back, as after an undo.
    roll(&story, "agent:1").await;
    assert_eq!(history(&story).await, BTreeMap::from([(2, "agent:2".to_owned()), (3, "agent:1".to_owned())]));
    kubectl_ok(
        &story.cluster,
        &["-n", "mended", "delete", "daemonset.apps.kruise.io", "agent", "--cascade=orphan"],
        "",
    );
    assert_eq!(revisions(&story).await.len(), 2);
}

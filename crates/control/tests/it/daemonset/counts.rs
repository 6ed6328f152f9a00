//! What the status says, and the revisions that are kept.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::story::{Story, cache, changed, rolling};
use crate::support::eventually;

/// Desired, current, ready, available, unavailable, updated, misscheduled.
fn counts(status: &Value) -> [i64; 7] {
    let fields = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
        "numberUnavailable",
        "updatedNumberScheduled",
        "numberMisscheduled",
    ];
    fields.map(|field| status[field].as_i64().unwrap_or(-1))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_counts_nodes_and_variants_and_says_who_is_missing() {
    let story = Story::new("counts").await;
    let set = |image: &str| story.set(image, json!({"patches": [cache("large", "2Ti")]}));
    story.apply(&set("agent:1")).await;
    let told = story.status("all are there", |status| counts(status) == [6, 6, 6, 6, 0, 6, 0]).await;
    let variants = told["variants"].as_array().unwrap();
    let numbers = |variant: &Value| {
        let counts = ["desired", "updated", "ready", "available"].map(|field| variant[field].as_i64().unwrap());
        (variant["patches"].as_array().cloned().unwrap_or_default(), counts)
    };
    let told: Vec<(Vec<Value>, [i64; 4])> = variants.iter().map(numbers).collect();
    assert_eq!(told, [(vec![], [4; 4]), (vec![json!(0)], [2; 4])]);
    story.condition("Available", "True", "Enough").await;

    story.fail(&["small-001", "large-000"]).await;
    let (small, large) = (story.node("small-001"), story.node("large-000"));
    let message = story.message(("Available", "False", "TooFew"), &[&small, &large]).await;
    assert!(message.starts_with("2 of 6 nodes have no available pod, and 1 may be without"), "{message}");
    let told = story.status("two are missing", |status| counts(status) == [6, 6, 4, 4, 2, 6, 0]).await;
    let told: Vec<(Vec<Value>, [i64; 4])> = told["variants"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(told, [(vec![], [4, 4, 3, 3]), (vec![json!(0)], [2, 2, 1, 1])]);
    story.release().await;
    story.condition("Available", "True", "Enough").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_where_none_may_run_are_misscheduled_until_they_are_let_go() {
    let story = Story::new("misscheduled").await;
    let hook = json!({"preDelete": {"labelsHandler": {"hold": "yes"}}});
    let mut set = story.set("agent:1", json!({"lifecycle": hook}));
    set["spec"]["template"]["metadata"]["labels"]["hold"] = json!("yes");
    story.apply(&set).await;
    let first = story.have_image(6, "agent:1").await;
    story.change_node("small-000", json!({"metadata": {"labels": {"story": "another"}}})).await;
    story.status("one should not be there", |status| counts(status) == [5, 5, 5, 5, 0, 5, 1]).await;
    story.change_pod(&first["small-000"].name, json!({"metadata": {"labels": {"hold": null}}})).await;
    let second = story.pods_are("it goes", |seen| seen.len() == 5).await;
    assert_eq!(changed(&first, &second), Vec::<String>::new());
    story.status("none is", |status| counts(status) == [5, 5, 5, 5, 0, 5, 0]).await;

    // Where none may start, one that runs stays, though none is wanted there, as Kubernetes counts; once it is gone it
    // does not come back.
    let taint = json!({"spec": {"taints": [{"key": "full", "effect": "NoSchedule"}]}});
    story.change_node("small-001", taint).await;
    story.nodes_are_seen().await;
    story.nothing_changes(&second).await;
    story.status("it is not wanted any more", |status| counts(status) == [4, 4, 4, 4, 0, 4, 1]).await;
    story.delete_pod(&second["small-001"].name).await;
    story.status("it is gone", |status| counts(status) == [4, 4, 4, 4, 0, 4, 0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_whose_name_is_taken_gets_another() {
    let story = Story::new("collision").await;
    let set = story.set("agent:1", json!({}));
    story.apply(&set).await;
    let told = story.status("it is made", |status| status["numberAvailable"] == 6).await;
    let taken = told["currentRevision"].as_str().unwrap().to_owned();
    story.sets.delete("agent", &DeleteParams::foreground()).await.unwrap();
    eventually("collision: set, revision and pods are gone", || async {
        let set = story.sets.get_opt("agent").await.map_err(|error| error.to_string())?;
        let left = story.revisions.get_opt(&taken).await.map_err(|error| error.to_string())?;
        let pods = story.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if set.is_none() && left.is_none() && pods == 0 { Ok(()) } else { Err(format!("{pods} pods are left")) }
    })
    .await;

    // Somebody else's, which says something else.
    let foreign = json!({"metadata": {"name": taken}, "revision": 1, "data": {"spec": {"template": {}}}});
    let foreign = serde_json::from_value(foreign).unwrap();
    story.revisions.create(&PostParams::default(), &foreign).await.unwrap();
    story.apply(&set).await;
    let told = story.status("it is made again", |status| status["numberAvailable"] == 6).await;
    assert_eq!(told["collisionCount"], 1);
    assert_ne!(told["currentRevision"], json!(taken));
    let left = story.revisions.get(&taken).await.unwrap();
    assert!(left.owner_references().is_empty(), "the other one is left alone");
}

/// The numbers of the revisions that are there.
async fn numbers(story: &Story) -> Result<Vec<i64>, String> {
    let all = story.revisions.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let mut numbers: Vec<i64> = all.iter().map(|known| known.revision).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

async fn numbers_are(story: &Story, expected: &[i64]) {
    eventually(&format!("{}: revisions {expected:?}", story.name), || async {
        let found = numbers(story).await?;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revisions_go_and_none_that_a_node_needs() {
    let story = Story::new("history").await;
    let set = |image: &str, limit: usize, partition: usize| {
        let strategy = rolling(json!({"maxUnavailable": "100%", "partition": partition}));
        story.set(image, json!({"revisionHistoryLimit": limit, "updateStrategy": strategy}))
    };
    story.apply(&set("agent:1", 0, 0)).await;
    story.have_image(6, "agent:1").await;
    // The first stays as long as nodes are held back at it, whatever comes after.
    for image in ["agent:2", "agent:3", "agent:4"] {
        story.apply(&set(image, 0, 3)).await;
        story.have_image(3, image).await;
    }
    numbers_are(&story, &[1, 4]).await;
    let held = story.pods_are("all are ready", |seen| seen.len() == 6).await;
    story.delete_pod(&held["large-000"].name).await;
    let again = story.pods_are("it comes back", |seen| changed(&held, seen) == ["large-000"]).await;
    assert_eq!(again["large-000"].image, "agent:1");

    // Nobody needs it any more: with a limit of none it goes, and with one the one before stays.
    story.apply(&set("agent:4", 0, 0)).await;
    story.have_image(6, "agent:4").await;
    numbers_are(&story, &[4]).await;
    for image in ["agent:5", "agent:6"] {
        story.apply(&set(image, 1, 0)).await;
        story.have_image(6, image).await;
    }
    numbers_are(&story, &[5, 6]).await;
}

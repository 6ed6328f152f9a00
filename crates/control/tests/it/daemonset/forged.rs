//! Revisions that others delete or forge, where no policy keeps them from it: what nodes are held back at is not lost, and no
//! pod is restarted or made of what nobody asked for.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::steps::{image, with_image};
use super::story::{Story, rolling};
use crate::support::eventually;

/// How long to look on where nothing may happen.
const QUIET: Duration = Duration::from_secs(4);

fn held(story: &Story, image: &str, partition: usize) -> Value {
    story.set(image, json!({"updateStrategy": rolling(json!({"partition": partition, "maxUnavailable": "100%"}))}))
}

/// Three nodes of agent:1, of which two are held back at it while the third has agent:2.
async fn two_held_back(name: &str) -> Story {
    let story = Story::without_nodes(name).await;
    story.add_nodes("n", 3, json!({})).await;
    story.apply(&held(&story, "agent:1", 0)).await;
    story.have_image(3, "agent:1").await;
    story.newest_is_current().await;
    story.apply(&held(&story, "agent:2", 2)).await;
    story.have_image(1, "agent:2").await;
    story.condition("Progressing", "False", "HeldBack").await;
    story
}

async fn revision(story: &Story, number: i64) -> ControllerRevision {
    let all = story.revisions.list(&ListParams::default()).await.unwrap();
    all.into_iter().find(|known| known.revision == number).expect("there is such a revision")
}

/// One that says the same, as somebody would write it.
fn copy(found: &ControllerRevision, name: &str) -> ControllerRevision {
    let mut copy = found.clone();
    let labels = found.metadata.labels.clone();
    let owner_references = found.metadata.owner_references.clone();
    let annotations = found.metadata.annotations.clone();
    copy.metadata = kube::core::ObjectMeta {
        name: Some(name.to_owned()),
        labels,
        owner_references,
        annotations,
        ..Default::default()
    };
    copy
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_stay_held_back_at_a_revision_that_is_gone() {
    let story = two_held_back("revision-gone").await;
    let first = revision(&story, 1).await;
    story.revisions.delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    let said = story.message(("Degraded", "True", "RevisionGone"), &[&first.name_any()]).await;
    assert!(said.contains("let all nodes have the newest"), "{said}");
    let before = story.settled().await.unwrap();
    let waiting = with_image(&before, "agent:1");
    // All of them: what is left then is complete, and yet not what they are held back at.
    for node in &waiting {
        story.delete_pod(&before[node].name).await;
    }
    tokio::time::sleep(QUIET).await;
    for node in &waiting {
        assert_eq!(story.pods_on(node).await.unwrap().len(), 0, "nothing is made where nobody knows what");
    }
    let now = story.settled().await.unwrap();
    assert_eq!(with_image(&now, "agent:2").len(), 1);

    // One way out: it is put back.
    story.revisions.create(&PostParams::default(), &copy(&first, &first.name_any())).await.unwrap();
    for node in &waiting {
        story.pod_on(node, "what it is held back at", |pod| image(pod) == "agent:1").await;
    }
    story.condition("Degraded", "False", "AsExpected").await;
    // The other: all get the newest.
    story.revisions.delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    story.condition("Degraded", "True", "RevisionGone").await;
    story.apply(&held(&story, "agent:2", 0)).await;
    story.have_image(3, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_stay_that_the_newest_template_is_not_for_where_their_revision_is_gone() {
    let story = two_held_back("stays").await;
    let first = revision(&story, 1).await;
    let mut elsewhere = held(&story, "agent:2", 2);
    elsewhere["spec"]["template"]["spec"]["nodeSelector"]["only"] = json!("elsewhere");
    story.apply(&elsewhere).await;
    let before = story.pods_are("two are held back", |seen| seen.len() == 2).await;
    story.revisions.delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    story.condition("Degraded", "True", "RevisionGone").await;
    story.nothing_changes(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_restarts_nothing_and_is_not_taken_in() {
    let story = two_held_back("forged").await;
    let before = story.settled().await.unwrap();
    // What nobody owns, and the set selects; or what names it by its UID, and as another kind than the policy asks about.
    let mut orphan = copy(&revision(&story, 1).await, "agent-forged");
    orphan.metadata.owner_references = None;
    orphan.revision = i64::MAX - 1;
    let mut data = orphan.data.clone().unwrap();
    data.0["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    orphan.data = Some(data);
    orphan.metadata.labels.get_or_insert_default().insert("controller-revision-hash".to_owned(), "forged".to_owned());
    story.revisions.create(&PostParams::default(), &orphan).await.unwrap();
    let mut of_another_kind = copy(&revision(&story, 1).await, "agent-other");
    of_another_kind.data = orphan.data.clone();
    of_another_kind.metadata.owner_references.as_mut().unwrap()[0].kind = "Other".to_owned();
    story.revisions.create(&PostParams::default(), &of_another_kind).await.unwrap();
    let (node, pod) = before.iter().find(|(_, pod)| pod.image == "agent:1").unwrap();
    story.delete_pod(&pod.name).await;
    for name in ["agent-forged", "agent-other"] {
        let named = json!({"status": {"currentRevision": name}});
        story.sets.patch_status("agent", &PatchParams::default(), &Patch::Merge(named)).await.unwrap();
        tokio::time::sleep(QUIET).await;
        for pod in story.pods_on(node).await.unwrap() {
            let containers = &pod.spec.as_ref().unwrap().containers;
            assert!(containers.iter().all(|one| one.security_context.is_none()), "{containers:?}");
        }
    }
    story.revisions.delete("agent-other", &DeleteParams::default()).await.unwrap();
    let forged = story.revisions.get("agent-forged").await.unwrap();
    assert_eq!(forged.owner_references(), [], "it is nobody's");
    story.revisions.delete("agent-forged", &DeleteParams::default()).await.unwrap();
    let first = revision(&story, 1).await.name_any();
    let right = json!({"status": {"currentRevision": first}});
    story.sets.patch_status("agent", &PatchParams::default(), &Patch::Merge(right)).await.unwrap();
    story.pod_on(node, "what it is held back at", |pod| image(pod) == "agent:1").await;

    // Twins of the newest: with another hash, with that of the revision before it; with a number beyond all, with the next.
    let settled = story.settled().await.unwrap();
    let of_first = revision(&story, 1).await.labels()["controller-revision-hash"].clone();
    for (name, number, hash) in
        [("agent-twin", i64::MAX, "twin"), ("agent-zzz", 3, &of_first), ("agent-aaa", 4, &of_first)]
    {
        let mut twin = copy(&revision(&story, 2).await, name);
        twin.revision = number;
        twin.metadata.labels.get_or_insert_default().insert("controller-revision-hash".to_owned(), hash.to_owned());
        story.revisions.create(&PostParams::default(), &twin).await.unwrap();
        tokio::time::sleep(QUIET).await;
        story.nothing_changes(&settled).await;
    }
    story.condition("Progressing", "False", "HeldBack").await;
    // And what comes next rolls out as ever.
    story.apply(&held(&story, "agent:3", 0)).await;
    story.have_image(3, "agent:3").await;
    eventually("the rollout is complete", || async {
        let set = story.sets.get_status("agent").await.unwrap();
        let status = &set.data["status"];
        if status["updatedNumberScheduled"] == 3 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

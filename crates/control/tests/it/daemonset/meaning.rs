//! Only a change of meaning restarts a pod: not another version of dapple, and not a default that somebody writes out.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::gate::own_cluster;
use super::story::{ByNode, Story, cache, changed, rolling};
use crate::support::{eventually, manager};

/// What the last version called its revisions, and had its pods carry: where no patch was for them, a hash of what the
/// template means; where one was, a hash of the rendering as it was written, defaults and all.
const REVISIONS: [(&str, &str, &str); 2] = [
    ("agent:1", "agent-6ad2886546fac140", "e47e5b63d37889d6"),
    ("agent:2", "agent-b91d9f470978a9cd", "1e184de540641031"),
];
const PATCHED: &str = "6c701eb57be87ab5";

/// What the last version had, with defaults that are written out.
fn set(story: &Story, image: &str) -> Value {
    let strategy = rolling(json!({"maxUnavailable": 4}));
    let mut set = story.set(image, json!({"patches": [cache("large", "2Ti")], "updateStrategy": strategy}));
    set["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    set
}

fn revision(story: &Story, (image, name, hash): (&str, &str, &str), number: usize, owner: &Value) -> Value {
    let spec = set(story, image)["spec"].clone();
    let mut template = spec["template"].clone();
    template["$patch"] = json!("replace");
    json!({
        "metadata": {"name": name, "labels": {"app": "agent", "controller-revision-hash": hash}, "ownerReferences": [owner]},
        "data": {"spec": {"template": template, "patches": spec["patches"]}}, "revision": number,
    })
}

/// The pod that the last version made for a node. What followed its name's dash depended on the set's UID.
fn pod(story: &Story, node: &str, number: usize, owner: &Value) -> Value {
    let (image, revision, hash) = REVISIONS[1];
    let mut spec = set(story, image)["spec"]["template"]["spec"].clone();
    let hash = if node.starts_with("large") { PATCHED } else { hash };
    if node.starts_with("large") {
        spec["containers"][0]["env"][0]["value"] = json!("2Ti");
    }
    let field = json!({"key": "metadata.name", "operator": "In", "values": [story.node(node)]});
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let tolerates = |(key, effect): (&str, &str)| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect});
    let tolerated = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    spec["tolerations"] = json!(tolerated.map(tolerates));
    spec["nodeName"] = json!(story.node(node));
    json!({
        "metadata": {
            "name": format!("agent-0123456789abcde{number}"), "ownerReferences": [owner],
            "labels": {"app": "agent", "controller-revision-hash": hash}, "annotations": {"dapple.dev/revision": revision},
        },
        "spec": spec,
    })
}

/// Everything as the last version left it.
async fn left_by_the_last_version(story: &Story) -> ByNode {
    story.apply(&set(story, "agent:2")).await;
    let made = story.sets.get("agent").await.unwrap();
    let owner = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": "agent", "uid": made.uid(),
        "controller": true, "blockOwnerDeletion": true});
    for (number, known) in REVISIONS.into_iter().enumerate() {
        let revision = serde_json::from_value(revision(story, known, number + 1, &owner)).unwrap();
        story.revisions.create(&PostParams::default(), &revision).await.expect("the revision is made");
    }
    for (number, node) in ["small-000", "small-001", "large-000", "large-001"].into_iter().enumerate() {
        let pod = serde_json::from_value(pod(story, node, number, &owner)).unwrap();
        // The namespace's service account comes a moment after the namespace.
        eventually("the pod is taken", || async {
            story.pods.create(&PostParams::default(), &pod).await.map_err(|error| error.to_string())
        })
        .await;
    }
    let status = json!({"status": {"observedGeneration": 1, "currentRevision": REVISIONS[1].1,
        "updateRevision": REVISIONS[1].1, "desiredNumberScheduled": 4, "currentNumberScheduled": 4, "numberReady": 4,
        "updatedNumberScheduled": 4, "numberMisscheduled": 0, "numberAvailable": 4, "numberUnavailable": 0}});
    story
        .sets
        .patch_status("agent", &PatchParams::default(), &Patch::Merge(status))
        .await
        .expect("the status is taken");
    story.have_image(4, "agent:2").await
}

/// The hashes that pods carry, by node.
async fn hashes(story: &Story) -> BTreeMap<String, String> {
    let hash = |labels: &BTreeMap<String, String>| labels["controller-revision-hash"].clone();
    story.all_pods().await.into_iter().map(|(node, pod)| (node, hash(pod.labels()))).collect()
}

async fn all_are_updated(story: &Story, hash: &str) {
    let is_told = |status: &Value| {
        status["updateRevision"] == hash && status["updatedNumberScheduled"] == 4 && status["numberAvailable"] == 4
    };
    story.status("all are updated", is_told).await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_last_version_are_right_and_so_they_are_with_defaults_written_out() {
    let story = Story::empty("last-version", own_cluster().await).await;
    story.add_nodes("small", 2, json!({"disk": "small"})).await;
    story.add_nodes("large", 2, json!({"disk": "large"})).await;
    let first = left_by_the_last_version(&story).await;
    let left = hashes(&story).await;
    let _manager = manager(&story.cluster, "last-version").await;
    all_are_updated(&story, REVISIONS[1].2).await;
    story.nothing_changes(&first).await;
    let names = || async {
        let all = story.revisions.list(&ListParams::default()).await.unwrap();
        all.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    assert_eq!(names().await, REVISIONS.map(|known| known.1));

    // In the template, in a patch, and what was written out taken away.
    let mut written = set(&story, "agent:2");
    let spec = &mut written["spec"]["template"]["spec"];
    spec["dnsPolicy"] = json!("ClusterFirst");
    spec["terminationGracePeriodSeconds"] = json!(30);
    spec["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
    written["spec"]["patches"][0]["patch"]["spec"]["containers"][0]["terminationMessagePolicy"] = json!("File");
    written["spec"]["patches"][0]["patch"]["spec"]["securityContext"] = json!({});
    let mut plain = set(&story, "agent:2");
    plain["spec"]["template"]["spec"].as_object_mut().unwrap().remove("restartPolicy");
    plain["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
    for same in [written, plain] {
        story.apply(&same).await;
        all_are_updated(&story, REVISIONS[1].2).await;
        story.nothing_changes(&first).await;
        assert_eq!(hashes(&story).await, left);
    }

    // What means something restarts everybody, and going back makes the very pods that were there.
    story.apply(&set(&story, "agent:3")).await;
    let third = story.have_image(4, "agent:3").await;
    assert_eq!(changed(&first, &third).len(), 4);
    story.apply(&set(&story, "agent:2")).await;
    story.have_image(4, "agent:2").await;
    assert_eq!(hashes(&story).await, left);
    all_are_updated(&story, REVISIONS[1].2).await;
}

//! What results of probes do to marks. The manager says what is to be probed; the prober is played.

use serde_json::json;

use super::played::{pods, probe, renew, say, spec};
use super::story::{QUIET, Story, container_id};
use crate::support::manager;

/// Half of those in which the probe succeeds in both containers are marked; where it fails in one of them, the mark goes.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_those_are_marked_where_the_probe_succeeds_in_both_containers() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-probes").await;
    pods(&story, &["a", "b", "c", "d"]).await;
    story.marker("m", spec()).await;
    // Nobody has probed anything yet.
    let message = story.reason("m", "ProbesKnown", "PodsUnknown").await;
    assert!(message.contains("4 on nodes whose prober is not heard"), "{message}");
    let good = ["Succeeded", "Succeeded"];
    say(&story, &[("a", good), ("b", good), ("c", good), ("d", ["Succeeded", "Failed"])], container_id).await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("rollback", "lastRevision", &[]).await;
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    let status = story.is_done("m", 2).await;
    assert_eq!([&status["matched"], &status["desired"], &status["unknown"]], [&json!(3), &json!(2), &json!(0)]);
    story.are_marked("rollback", "lastRevision", &["a", "b"]).await;
    // The file is removed in one of two containers, and made again.
    say(&story, &[("a", ["Succeeded", "Failed"]), ("b", good), ("c", good), ("d", good)], container_id).await;
    story.are_marked("rollback", "lastRevision", &["b", "c"]).await;
    say(&story, &[("a", good), ("b", good), ("c", good), ("d", good)], container_id).await;
    story.says("m", "that all match", |status| status["matched"] == 4).await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("rollback", "lastRevision", &["b", "c"]).await;
    story.cluster.stop().await.unwrap();
}

/// What is not known changes no mark: results of another run of a container, errors, and those that are not heard after a takeover.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_changes_no_mark() {
    let story = Story::of_objects().await;
    let first = manager(&story.cluster, "marker-unknown").await;
    pods(&story, &["a", "b"]).await;
    let good = ["Succeeded", "Succeeded"];
    let mut marker = spec();
    marker["strategy"]["replicas"] = json!("100%");
    story.marker("m", marker).await;
    say(&story, &[("a", good), ("b", good)], container_id).await;
    // Whoever leads hears of what comes from then on.
    story.reason("m", "ProbesKnown", "PodsUnknown").await;
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    story.is_done("m", 2).await;
    let is_unknown = async |count: i64, why: &str| {
        let message = story.reason("m", "ProbesKnown", "PodsUnknown").await;
        assert!(message.contains(why), "{message}");
        story.says("m", "how many are unknown", |status| status["unknown"] == count).await;
        tokio::time::sleep(QUIET).await;
        story.are_marked("rollback", "lastRevision", &["a", "b"]).await;
    };
    say(&story, &[("a", ["Unknown", "Succeeded"]), ("b", good)], container_id).await;
    is_unknown(1, "1 where a probe could not be run").await;
    // A failure of a run of the container that is over.
    let failed = ["Failed", "Failed"];
    say(&story, &[("a", failed), ("b", failed)], |container| format!("containerd://old-{container}")).await;
    is_unknown(2, "2 where a probe has not run yet").await;
    say(&story, &[("a", good), ("b", good)], container_id).await;
    story.is_done("m", 2).await;
    // Whoever leads next has heard nobody yet; what it is told is old until a Lease is renewed.
    first.end().await;
    let _second = manager(&story.cluster, "marker-unknown").await;
    say(&story, &[("a", failed), ("b", good)], container_id).await;
    is_unknown(2, "2 on nodes whose prober is not heard").await;
    renew(&story, "2026-01-01T00:01:00.000000Z").await;
    story.are_marked("rollback", "lastRevision", &["b"]).await;
    story.cluster.stop().await.unwrap();
}

/// A container that a pod lacks makes it no match, and so does a port; a pod without prober is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_the_container_does_not_match() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-lacks").await;
    pods(&story, &["a"]).await;
    for (marker, containers, probe) in [
        ("container", json!([{"name": "c"}, {"name": "absent"}]), probe()),
        ("port", json!([{"name": "c"}]), json!({"tcpSocket": {"port": "absent"}})),
    ] {
        let mut object = spec();
        object["matchRequirements"]["podProbes"] = json!([{"containers": containers, "probe": probe}]);
        story.marker(marker, object).await;
        let status = story.is_done(marker, 0).await;
        assert_eq!([&status["matched"], &status["unknown"]], [&json!(0), &json!(0)], "{marker}: {status}");
    }
    story.cluster.stop().await.unwrap();
}

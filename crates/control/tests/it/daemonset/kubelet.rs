//! Updates in place on a real kubelet with a real containerd.

use std::sync::Arc;

use dapple_control::install::install_crds;
use dapple_testbed::progress::{Quiet, to_stderr};
use dapple_testbed::{Cluster, ClusterSpec, Need, RealNodeSpec, Upstream, can_start_real_node};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::story::{Story, is_ready, rolling};
use crate::support::{eventually, manager};

fn set(story: &Story, image: &str, cpu: &str) -> Value {
    let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible"}));
    let mut set = story.set(image, json!({"updateStrategy": strategy}));
    let spec = &mut set["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"][0]["command"] = json!(["sh", "-c", "cat /etc/version; exec sleep 10000"]);
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}, "limits": {"cpu": "500m"}});
    set
}

/// The one pod, once it is ready and what it should be.
async fn ready(story: &Story, what: &str, is_right: impl Fn(&Pod, &ContainerStatus) -> bool) -> (Pod, ContainerStatus) {
    eventually(what, || async {
        let pods = story.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let [pod] = pods.as_slice() else { return Err(format!("{} pods", pods.len())) };
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let container = statuses.and_then(|all| all.first()).ok_or("no container yet")?;
        if is_ready(pod) && pod.metadata.deletion_timestamp.is_none() && is_right(pod, container) {
            return Ok((pod.clone(), container.clone()));
        }
        Err(format!("{:?} {:?}", pod.annotations(), pod.status))
    })
    .await
}

fn address(pod: &Pod) -> Option<&String> {
    pod.status.as_ref()?.pod_ip.as_ref()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_container_restarts_and_its_pod_stays() {
    if can_start_real_node().is_err() {
        eprintln!("MISSING: updates in place were not tested on a kubelet, since that needs root");
        return;
    }
    let binaries = Upstream::obtain(&[Need::ControlPlane, Need::RealNode], to_stderr()).await.unwrap();
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &Quiet).await.unwrap();
    install_crds(&cluster.client().await.unwrap()).await.unwrap();
    let mut spec = RealNodeSpec::new("real");
    spec.labels = vec![("story".into(), "kubelet".into())];
    cluster.start_real_node(&spec, &binaries, &Quiet).await.unwrap();
    let manager = manager(&cluster, "kubelet").await;
    let story = Story::empty("kubelet", Arc::new(cluster)).await;

    story.apply(&set(&story, "dapple.local/busybox:1", "50m")).await;
    let (first, before) = ready(&story, "the pod runs", |_, status| status.image.ends_with("busybox:1")).await;
    story.apply(&set(&story, "dapple.local/busybox:2", "50m")).await;
    let (second, after) =
        ready(&story, "it has the other image", |_, status| status.image.ends_with("busybox:2")).await;
    assert_eq!((first.uid(), address(&first)), (second.uid(), address(&second)), "the same pod at the same address");
    assert_ne!(before.image_id, after.image_id);
    assert_eq!((before.restart_count, after.restart_count), (0, 1), "its container was started anew");
    story.condition("Progressing", "False", "Complete").await;

    // Cpu through the resize subresource: not even the container restarts.
    story.apply(&set(&story, "dapple.local/busybox:2", "80m")).await;
    let has_more = |pod: &Pod, _: &ContainerStatus| {
        let requests = pod.spec.as_ref().and_then(|spec| spec.containers[0].resources.as_ref()?.requests.as_ref());
        requests.is_some_and(|requests| requests["cpu"].0 == "80m")
    };
    let (third, resized) = ready(&story, "it asks for more cpu", has_more).await;
    story.condition("Progressing", "False", "Complete").await;
    assert_eq!((third.uid(), resized.restart_count), (second.uid(), 1));
    drop(manager);
    if let Ok(cluster) = Arc::try_unwrap(story.cluster) {
        cluster.stop().await.unwrap();
    }
}

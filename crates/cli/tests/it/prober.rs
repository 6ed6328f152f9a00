//! The second story of markers: pods marked by what a probe says, with the prober as a pod that has its rights and no others, on a
//! real kubelet and containerd; and what becomes of marks while the runtime or the prober is gone.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use dapple_control::install::apply;
use dapple_testbed::progress::{Quiet, to_stderr};
use dapple_testbed::testing::kubectl;
use dapple_testbed::{Cluster, ClusterSpec, Need, RealNode, RealNodeSpec, Upstream, can_start_real_node};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use crate::support::{DAPPLE, MANAGER_USER, Manager, dapple, eventually, leads, text};

/// The prober's pod as it is installed, but that the program and its libraries are this machine's: no image has them.
fn from_this_machine(node: &RealNode, program: &Path) -> Value {
    let host = |name: &str, path: &Path| json!({"name": name, "hostPath": {"path": path}});
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let container = json!({
        "name": "prober", "command": ["/dapple/dapple"],
        "volumeMounts": [mount("dapple", "/dapple"), mount("lib", "/lib"), mount("lib64", "/lib64")],
    });
    let volumes = [
        host("dapple", program),
        host("lib", Path::new("/usr/lib")),
        host("lib64", Path::new("/usr/lib64")),
        host("runtime", node.containerd_socket.parent().unwrap()),
    ];
    json!({"spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}}})
}

/// Two containers that are healthy as long as a file is there.
fn pod() -> Value {
    let container = |name: &str| {
        let run = "touch /tmp/healthy; exec sleep 100000";
        json!({"name": name, "image": "dapple.local/busybox:1", "command": ["sh", "-c", format!("mkdir -p /tmp; {run}")]})
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "nginx"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container("nginx"), container("sidecar")]},
    })
}

fn marker() -> Value {
    let exec = json!({"command": ["cat", "/tmp/healthy"]});
    let probe =
        json!({"exec": exec, "initialDelaySeconds": 1, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 1});
    let probes =
        json!([{"containers": [{"name": "nginx"}, {"name": "sidecar"}], "probe": probe, "expectation": "succeeded"}]);
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodMarker", "metadata": {"name": "marker", "namespace": "default"},
        "spec": {
            "matchRequirements": {"podSelector": {"matchLabels": {"app": "nginx"}}, "podProbes": probes},
            "markItems": {"labels": {"rollback": "lastRevision"}},
        },
    })
}

async fn is_marked(cluster: &Cluster, client: &Client, what: &str, expected: Option<&str>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually(what, || async {
        let pod = pods.get("web").await.map_err(|error| error.to_string())?;
        let mark = pod.metadata.labels.as_ref().and_then(|labels| labels.get("rollback")).map(String::as_str);
        if mark == expected {
            return Ok(());
        }
        let probes = told(cluster, &["get", "nodepodprobes", "-o", "yaml"]);
        let log = told(cluster, &["logs", "--namespace", "dapple-probers", "daemonset/dapple-prober", "--tail", "20"]);
        Err(format!("{mark:?}\n{probes}\n{log}"))
    })
    .await;
}

fn told(cluster: &Cluster, args: &[&str]) -> String {
    let output = kubectl(cluster, cluster.admin_kubeconfig(), args, "").unwrap();
    text(&[output.stdout, output.stderr].concat())
}

/// Runs something in a container, as soon as that can be done.
async fn run_in(cluster: &Cluster, container: &str, command: &[&str]) {
    eventually("a command runs in the container", || async {
        let args = [&["exec", "web", "--container", container, "--"], command].concat();
        let output = kubectl(cluster, cluster.admin_kubeconfig(), &args, "").map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    })
    .await;
}

/// Waits until it is not known of so many pods whether they match.
async fn are_unknown(cluster: &Cluster, count: &str) {
    eventually(&format!("of {count} pods it is unknown"), || async {
        let status = told(cluster, &["get", "podmarker", "marker", "-o", "jsonpath={.status.unknown}"]);
        if status == count { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_marked_by_what_probes_on_their_node_say() {
    if can_start_real_node().is_err() {
        eprintln!("MISSING: the prober was not tested on a kubelet, since that needs root");
        return;
    }
    let binaries = Upstream::obtain(&[Need::ControlPlane, Need::RealNode], to_stderr()).await.unwrap();
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &Quiet).await.unwrap();
    let client = cluster.client().await.unwrap();
    let node = cluster.start_real_node(&RealNodeSpec::new("real"), &binaries, &Quiet).await.unwrap();
    let kubeconfig = cluster.admin_kubeconfig().to_str().unwrap();
    let flags = ["--prober-image", "dapple.local/busybox:1", "--prober-exec", "containerd"];
    let installed = dapple(&[&["up", "--cluster", "--yes", "--kubeconfig", kubeconfig], &flags[..]].concat());
    assert!(installed.status.success(), "{}", text(&installed.stderr));

    let program = tempfile::tempdir().unwrap();
    std::fs::set_permissions(program.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(DAPPLE, program.path().join("dapple")).unwrap();
    let patch = from_this_machine(&node, program.path()).to_string();
    let set = ["patch", "daemonset", "dapple-prober", "--namespace", "dapple-probers", "--patch", &patch];
    let patched = kubectl(&cluster, cluster.admin_kubeconfig(), &set, "").unwrap();
    assert!(patched.status.success(), "{}", text(&patched.stderr));

    let config = cluster.kubeconfig_for(MANAGER_USER, &[]).await.unwrap();
    let manager = Manager::start(&config, cluster.log("manager"));
    leads(&client, &manager).await;
    apply(&client, &pod()).await.unwrap();
    apply(&client, &marker()).await.unwrap();
    is_marked(&cluster, &client, "both containers are healthy", Some("lastRevision")).await;

    run_in(&cluster, "sidecar", &["rm", "/tmp/healthy"]).await;
    is_marked(&cluster, &client, "one of them is not any more", None).await;
    run_in(&cluster, "sidecar", &["touch", "/tmp/healthy"]).await;
    is_marked(&cluster, &client, "it is again", Some("lastRevision")).await;

    // The answer changes while the runtime cannot be asked: nobody knows that, and the mark stays until it is asked again.
    let soon = "(sleep 20; rm /tmp/healthy) > /dev/null 2>&1 &";
    run_in(&cluster, "sidecar", &["sh", "-c", soon]).await;
    let away = node.containerd_socket.with_extension("away");
    std::fs::rename(&node.containerd_socket, &away).unwrap();
    are_unknown(&cluster, "1").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    is_marked(&cluster, &client, "nobody knows", Some("lastRevision")).await;
    std::fs::rename(&away, &node.containerd_socket).unwrap();
    is_marked(&cluster, &client, "it is known again", None).await;
    are_unknown(&cluster, "0").await;

    // It changes back while there is no prober: another one finds that out.
    told(&cluster, &["delete", "pod", "--all", "--namespace", "dapple-probers", "--now", "--wait=false"]);
    run_in(&cluster, "sidecar", &["touch", "/tmp/healthy"]).await;
    is_marked(&cluster, &client, "another prober goes on", Some("lastRevision")).await;

    drop(manager);
    cluster.stop().await.unwrap();
}

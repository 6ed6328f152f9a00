//! A real node with real pods.

use std::process::{Command, Output};

use dapple_testbed::{
    Binaries, Cluster, ClusterSpec, Error, Lifetime, Need, RealNode, RealNodeSpec, Upstream, clean_leftovers, progress,
    stop,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    helper,
    support::{all_ended, eventually, holds},
};

fn kubectl(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = Command::new(cluster.kubectl());
    command.arg("--kubeconfig").arg(cluster.admin_kubeconfig()).args(args).output().unwrap()
}

fn kubectl_says(cluster: &Cluster, args: &[&str]) -> String {
    let output = kubectl(cluster, args);
    assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The control groups of nodes that a process started: below each hierarchy in version 1, at the top in version 2.
fn control_groups(owner: u32) -> Vec<String> {
    let folders = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let tops: Vec<_> = folders("/sys/fs/cgroup".into()).map(|entry| entry.path()).collect();
    let below = tops.iter().flat_map(|top| folders(top.clone()).map(|entry| entry.path()));
    let ours = format!("/dapple-{owner}-");
    below
        .chain(tops.iter().cloned())
        .map(|path| path.display().to_string())
        .filter(|path| path.contains(&ours))
        .collect()
}

/// What of the node could be seen from outside its namespaces.
fn traces(cluster_dir: &str, node: &RealNode) -> Vec<String> {
    let mut found = Vec::new();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(cluster_dir)).map(|line| format!("mount {line}")));
    let addresses = std::fs::read_to_string("/proc/net/fib_trie").unwrap();
    let host = node.address.rsplit_once('.').unwrap();
    let host = format!("{}.{}\n", host.0, host.1.parse::<u8>().unwrap() - 1);
    found.extend(addresses.contains(&host).then(|| format!("address {host}")));
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        found.extend(line.contains(cluster_dir).then_some(format!("process {line}")));
    }
    found.extend(control_groups(std::process::id()).into_iter().map(|path| format!("group {path}")));
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    found.extend(namespaces.map(|entry| format!("network namespace {}", entry.path().display())));
    found
}

/// One test at a time has nodes that this process started: what is left of them is told by its pid.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn start(binaries: &Binaries) -> (Cluster, RealNode) {
    let cluster = Cluster::start(ClusterSpec::temporary(), binaries, &progress::Quiet).await.unwrap();
    let mut spec = RealNodeSpec::new("real");
    spec.labels = vec![("disk-type".into(), "large".into())];
    let begun = std::time::Instant::now();
    let node = cluster.start_real_node(&spec, binaries, &progress::Quiet).await.unwrap();
    eprintln!("real node ready after {:.1} s", begun.elapsed().as_secs_f64());
    (cluster, node)
}

#[tokio::test]
async fn a_real_pod_runs_is_reached_and_leaves_no_trace() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("MISSING: the real node was not tested, since that needs root");
        return;
    }
    let binaries = Upstream::obtain(&[Need::ControlPlane, Need::RealNode], progress::to_stderr()).await.unwrap();
    let _alone = ALONE.lock().await;
    let (cluster, node) = start(&binaries).await;
    let client = cluster.client().await.unwrap();
    let script =
        "echo hello from $VERSION; mkdir -p /tmp/www; cp /etc/version /tmp/www/; exec httpd -f -p 80 -h /tmp/www";
    let pod = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "nodeSelector": {"disk-type": "large"},
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "web", "image": "dapple.local/busybox:1", "command": ["sh", "-c", script],
                "readinessProbe": {"httpGet": {"path": "/version", "port": 80}, "periodSeconds": 1},
            }],
        },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ready = async |image: &str| {
        let status = pods.get("web").await.unwrap().status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let container = status.container_statuses.iter().flatten().next().filter(|container| container.image == image);
        container.filter(|_| ready).cloned().ok_or_else(|| format!("{status:?}"))
    };
    let before = eventually("the pod is ready", async || ready("dapple.local/busybox:1").await).await;

    eventually("its log is there", async || {
        let log = kubectl_says(&cluster, &["logs", "web"]);
        holds(log == "hello from 1\n", log)
    })
    .await;
    assert_eq!(kubectl_says(&cluster, &["exec", "web", "--", "cat", "/etc/version"]), "1\n");
    // By service address, through kube-proxy; and the API server itself, as pods find it.
    kubectl_says(&cluster, &["expose", "pod", "web", "--port=80"]);
    let address = kubectl_says(&cluster, &["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    eventually("the service is reached from the pod", async || {
        // Not wget: Debian's static one crashes where there are no libraries to look names up with.
        let ask = format!(r#"printf 'GET /version HTTP/1.0\r\n\r\n' | nc -w 2 {address} 80 | tail -n 1"#);
        let output = kubectl(&cluster, &["exec", "web", "--", "sh", "-c", &ask]);
        holds(output.stdout == b"1\n", output)
    })
    .await;
    let reach = "nc -w 2 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT < /dev/null && echo reached";
    eventually("the API server is reached from the pod", async || {
        let output = kubectl(&cluster, &["exec", "web", "--", "sh", "-c", reach]);
        holds(output.stdout == b"reached\n", output)
    })
    .await;

    let patch = json!({"spec": {"containers": [{"name": "web", "image": "dapple.local/busybox:2"}]}});
    pods.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let after = eventually("the pod is ready with another image", async || ready("dapple.local/busybox:2").await).await;
    assert_ne!(before.image_id, after.image_id);
    assert_eq!(after.restart_count, 1);
    assert_eq!(kubectl_says(&cluster, &["exec", "web", "--", "cat", "/etc/version"]), "2\n");

    let (dir, processes, ports) = (cluster.dir().to_owned(), cluster.processes(), cluster.ports());
    assert!(node.kubelet.is_alive());
    assert!(!traces(dir.to_str().unwrap(), &node).is_empty(), "the search for traces finds nothing at all");
    let begun = std::time::Instant::now();
    // The pod still runs.
    cluster.stop().await.unwrap();
    eprintln!("stopped after {:.1} s", begun.elapsed().as_secs_f64());
    crate::lifecycle::assert_gone(&processes, &ports);
    assert!(!node.kubelet.is_alive());
    assert_eq!(traces(dir.to_str().unwrap(), &node), Vec::<String>::new());
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_killed_owner_takes_its_real_node_along_unless_detached() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("MISSING: the real node was not tested, since that needs root");
        return;
    }
    for lifetime in [Lifetime::WithParent, Lifetime::Detached] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d");
        let mut owner = helper::owner_with(&dir, lifetime, true);
        helper::wait_until_ready(&mut owner);
        let processes = Cluster::open(&dir).unwrap().expect("it runs").processes();
        assert!(processes.iter().any(|(name, _)| name == "kubelet@real"));
        assert!(!control_groups(owner.id()).is_empty(), "the search for control groups finds nothing at all");
        owner.kill().unwrap();
        owner.wait().unwrap();
        if lifetime == Lifetime::WithParent {
            eventually("all processes are gone", async || all_ended(&processes)).await;
            assert_eq!(clean_leftovers(root.path()).unwrap(), std::slice::from_ref(&dir));
        } else {
            assert!(processes.iter().all(|(_, process)| process.is_alive()), "a detached node lives on");
            assert!(stop(&dir).unwrap());
            assert!(processes.iter().all(|(_, process)| !process.is_alive()));
        }
        assert_eq!(control_groups(owner.id()), Vec::<String>::new());
        assert!(!dir.exists());
    }
}

#[tokio::test]
async fn a_node_that_cannot_start_leaves_nothing_and_one_can_be_stopped_alone() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("MISSING: the real node was not tested, since that needs root");
        return;
    }
    let binaries = Upstream::obtain(&[Need::ControlPlane, Need::RealNode], progress::to_stderr()).await.unwrap();
    let _alone = ALONE.lock().await;
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &progress::Quiet).await.unwrap();
    let control_plane = cluster.processes();
    let mut spec = RealNodeSpec::new("real");
    // The kubelet refuses labels of this kind on itself and ends.
    spec.labels = vec![("node-restriction.kubernetes.io/x".into(), "y".into())];
    let error = cluster.start_real_node(&spec, &binaries, &progress::Quiet).await.unwrap_err();
    assert!(matches!(&error, Error::Died { component, .. } if component == "kubelet@real"), "{error}");
    assert_eq!(cluster.processes(), control_plane);

    spec.labels.clear();
    let node = cluster.start_real_node(&spec, &binaries, &progress::Quiet).await.unwrap();
    let again = cluster.start_real_node(&spec, &binaries, &progress::Quiet).await;
    assert!(matches!(again, Err(Error::NodeRunning { .. })), "{again:?}");
    cluster.stop_real_node("real").await.unwrap();
    assert_eq!(cluster.processes(), control_plane);
    assert!(!node.kubelet.is_alive());
    cluster.stop().await.unwrap();
}

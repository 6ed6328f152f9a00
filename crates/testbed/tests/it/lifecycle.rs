//! Clusters come and go.

use std::{net::TcpListener, os::unix::fs::PermissionsExt, path::Path, time::Instant};

use dapple_testbed::{
    Binary, Cluster, ClusterSpec, Error, Fleet, Lifetime, ProcessId, clean_leftovers, progress, stop, temporary_root,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    helper,
    support::{all_ended, binaries, eventually, holds, nodes_ready, start, wait_until_recorded},
};

fn port_is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

pub(crate) fn assert_gone(processes: &[(String, ProcessId)], ports: &[u16]) {
    for (name, process) in processes {
        assert!(!process.is_alive(), "{name} still runs as {}", process.pid);
    }
    for port in ports {
        assert!(port_is_free(*port), "something listens on {port}");
    }
}

#[tokio::test]
async fn starts_runs_pods_and_stops_without_a_trace() {
    let binaries = binaries().await;
    let begun = Instant::now();
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &progress::Quiet).await.unwrap();
    eprintln!("control plane ready after {:.1} s", begun.elapsed().as_secs_f64());
    let client = cluster.client().await.unwrap();
    let fleet = Fleet::example().unwrap();
    let begun = Instant::now();
    cluster.apply_fleet(&fleet).await.unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
    nodes_ready(&cluster, 60).await;
    eprintln!("60 nodes ready after {:.1} s", begun.elapsed().as_secs_f64());

    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 30, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        }},
    });
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&Default::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    eventually("30 replicas ready", async || {
        let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
        holds(status.ready_replicas == Some(30), &status)
    })
    .await;
    deployments.delete("web", &Default::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    eventually("its pods are collected", async || {
        let left = pods.list(&ListParams::default()).await.unwrap().items;
        holds(left.is_empty(), left.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
    })
    .await;

    let (dir, processes, ports) = (cluster.dir().to_owned(), cluster.processes(), cluster.ports());
    assert_eq!(processes.len(), 5);
    let begun = Instant::now();
    cluster.stop().await.unwrap();
    eprintln!("stopped after {:.1} s", begun.elapsed().as_secs_f64());
    assert_gone(&processes, &ports);
    assert!(!dir.exists());
}

#[tokio::test]
async fn two_side_by_side_know_their_users_and_nothing_of_each_other() {
    let (one, two) = tokio::join!(start(ClusterSpec::temporary()), start(ClusterSpec::temporary()));
    assert_ne!(one.api_url(), two.api_url());
    one.apply_fleet(&Fleet::example().unwrap().scaled_to(6)).await.unwrap();
    let nodes: Api<Node> = Api::all(two.client().await.unwrap());
    assert!(nodes.list(&ListParams::default()).await.unwrap().items.is_empty());

    let kubeconfig = one.kubeconfig_for("alice", &["dev", "ops"]).await.unwrap();
    let output = std::process::Command::new(one.kubectl())
        .args(["auth", "whoami", "-o", "json", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .unwrap();
    let who: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(who["status"]["userInfo"]["username"], "alice");
    assert_eq!(who["status"]["userInfo"]["groups"], json!(["dev", "ops", "system:authenticated"]));
    let refused = one.kubeconfig_for("bob", &["a", "b", "c"]).await.unwrap_err().to_string();
    assert!(refused.contains("3 groups"), "{refused}");

    // Dropping is enough for clusters that end with their owner.
    let (dir, processes, ports) = (one.dir().to_owned(), one.processes(), one.ports());
    drop(one);
    assert_gone(&processes, &ports);
    assert!(!dir.exists());
    two.stop().await.unwrap();
}

#[tokio::test]
async fn a_detached_one_is_found_and_stopped_by_others() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    assert!(Cluster::open(&dir).unwrap().is_none());
    let mut owner = helper::owner(&dir, Lifetime::Detached);
    helper::wait_until_ready(&mut owner);
    owner.kill().unwrap();
    owner.wait().unwrap();

    let cluster = Cluster::open(&dir).unwrap().expect("it lives on");
    cluster.client().await.unwrap().apiserver_version().await.unwrap();
    let again = Cluster::start(ClusterSpec::at("x", dir.clone()), &binaries().await, &progress::Quiet).await;
    assert!(matches!(again, Err(Error::Running { .. })), "{again:?}");
    assert_eq!(clean_leftovers(root.path()).unwrap(), Vec::<std::path::PathBuf>::new(), "it is in use");
    let sleeper = cluster.spawn_attached("sleeper", Path::new("/bin/sleep"), &["600".into()], &[]).unwrap();
    assert!(sleeper.process.is_alive());

    let (processes, ports) = (cluster.processes(), cluster.ports());
    assert_eq!(processes.len(), 6);
    assert!(stop(&dir).unwrap());
    assert_gone(&processes, &ports);
    assert!(!stop(&dir).unwrap());
}

#[tokio::test]
async fn a_killed_owner_takes_its_cluster_along() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    let mut owner = helper::owner(&dir, Lifetime::WithParent);
    helper::wait_until_ready(&mut owner);
    let cluster = Cluster::open(&dir).unwrap().expect("it runs");
    assert!(clean_leftovers(root.path()).unwrap().is_empty(), "its owner lives");
    let (processes, ports) = (cluster.processes(), cluster.ports());
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("all processes are gone", async || all_ended(&processes)).await;
    eventually("all ports are free", async || holds(ports.iter().all(|port| port_is_free(*port)), &ports)).await;
    assert_eq!(clean_leftovers(root.path()).unwrap(), std::slice::from_ref(&dir));
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_detached_start_that_was_killed_halfway_is_cleaned_up() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    let mut owner = helper::owner(&dir, Lifetime::Detached);
    let processes = wait_until_recorded(&dir, 2).await;
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(processes.iter().all(ProcessId::is_alive), "detached processes live on");
    assert_eq!(clean_leftovers(root.path()).unwrap(), std::slice::from_ref(&dir));
    assert!(processes.iter().all(|process| !process.is_alive()));
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_taken_port_is_refused_before_anything_starts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut spec = ClusterSpec::temporary();
    spec.api_port = Some(port);
    let dir = spec.dir.clone();
    let error = Cluster::start(spec, &binaries().await, &progress::Quiet).await.unwrap_err();
    assert!(matches!(error, Error::PortTaken { port: named } if named == port), "{error}");
    assert!(!dir.join("state.json").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn a_component_that_dies_is_named_and_the_others_are_ended() {
    let mut spec = ClusterSpec::temporary();
    spec.api_args = vec!["--no-such-flag".into()];
    let dir = spec.dir.clone();
    let error = Cluster::start(spec, &binaries().await, &progress::Quiet).await.unwrap_err();
    let Error::Died { component, log, tail } = &error else { panic!("{error}") };
    assert_eq!(component, "kube-apiserver");
    assert!(tail.contains("no-such-flag"), "{tail}");
    assert!(log.exists(), "the log that the message points to is kept");
    assert!(Cluster::open(&dir).unwrap().is_none());
    assert!(!dir.join("state.json").exists() && !dir.join("etcd").exists());
    assert!(dir.starts_with(temporary_root()));
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn a_thousand_nodes() {
    let cluster = start(ClusterSpec::temporary()).await;
    let fleet = Fleet::example().unwrap().scaled_to(1000);
    let begun = Instant::now();
    cluster.apply_fleet(&fleet).await.unwrap();
    eprintln!("1,000 nodes created after {:.1} s", begun.elapsed().as_secs_f64());
    nodes_ready(&cluster, 1000).await;
    eprintln!("1,000 nodes ready after {:.1} s", begun.elapsed().as_secs_f64());
    cluster.stop().await.unwrap();
}

/// A kwok as it is on rare starts: it does nothing until one of its stages changes.
#[tokio::test]
async fn a_kwok_that_missed_its_stages_is_reminded() {
    let root = tempfile::tempdir().unwrap();
    let (sleeper, binaries) = (root.path().join("kwok"), binaries().await);
    let (kubectl, kwok) = (binaries.path(Binary::Kubectl).unwrap(), binaries.path(Binary::Kwok).unwrap());
    let script = format!(
        "#!/bin/sh -e
        stages() {{ '{}' \"$kubeconfig\" get stages -o 'jsonpath={{.items[*].metadata.resourceVersion}}'; }}
        kubeconfig=$1
        before=$(stages)
        until now=$(stages) && [ \"$now\" != \"$before\" ]; do sleep 0.1; done
        exec '{}' \"$@\"",
        kubectl.display(),
        kwok.display(),
    );
    std::fs::write(&sleeper, script).unwrap();
    std::fs::set_permissions(&sleeper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let binaries = binaries.with(Binary::Kwok, sleeper);
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &progress::Quiet).await.unwrap();
    let said = std::fs::read_to_string(cluster.log("kwok")).unwrap();
    assert!(said.contains("Start stage controller"), "it plays before the cluster counts as ready: {said}");
    cluster.apply_fleet(&Fleet::example().unwrap().scaled_to(3)).await.unwrap();
    nodes_ready(&cluster, 3).await;
    cluster.stop().await.unwrap();
}

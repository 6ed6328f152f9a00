//! Who may end what, and what happens when several want the same folder.

use std::{
    net::TcpListener,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use dapple_testbed::{
    Cluster, ClusterSpec, Error, Fleet, Lifetime, ProcessId, Progress, Readiness, abandon, progress, stop,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};

use crate::{
    helper,
    lifecycle::assert_gone,
    support::{binaries, eventually, holds, start, wait_until_recorded},
};

/// Remembers what was noted.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn started(&self, _: &str) {}
    fn detail(&self, _: &str) {}
    fn finished(&self) {}
    fn note(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

fn kill(cluster: &Cluster, name: &str) -> ProcessId {
    let (_, process) = cluster.processes().into_iter().find(|(other, _)| other == name).unwrap();
    assert!(Command::new("kill").args(["-9", &process.pid.to_string()]).status().unwrap().success());
    process
}

#[tokio::test]
async fn who_knew_an_earlier_cluster_leaves_the_later_one_alone() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    let first = start(ClusterSpec::at("first", dir.clone())).await;
    let found = Cluster::open(&dir).unwrap().unwrap();
    assert!(stop(&dir).unwrap());
    let mut later = helper::owner(&dir, Lifetime::Detached);
    helper::wait_until_ready(&mut later);

    let processes = Cluster::open(&dir).unwrap().unwrap().processes();
    found.stop().await.unwrap();
    let attached = first.spawn_attached("sleeper", Path::new("/bin/sleep"), &["600".into()], &[]);
    assert!(matches!(attached, Err(Error::Gone { .. })), "{attached:?}");
    drop(first);
    abandon(&dir).unwrap();
    assert!(processes.iter().all(|(_, process)| process.is_alive()));
    assert_eq!(Cluster::open(&dir).unwrap().unwrap().processes(), processes);
    assert!(stop(&dir).unwrap());
    later.kill().unwrap();
    later.wait().unwrap();
}

#[tokio::test]
async fn what_this_process_started_can_be_abandoned_and_leaves_its_logs() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    abandon(&dir).unwrap();
    assert!(!dir.exists());
    let cluster = start(ClusterSpec::at("mine", dir.clone())).await;
    let port = cluster.choose_port().unwrap();
    assert!(cluster.ports().contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok());
    let script = ["-c".into(), "echo hello; exec sleep 600".into()];
    let attached = cluster.spawn_attached("guest", Path::new("/bin/sh"), &script, &[]).unwrap();
    eventually("its output is shown", async || holds(attached.tail() == "hello", attached.tail())).await;
    let (processes, ports) = (cluster.processes(), cluster.ports());
    abandon(&dir).unwrap();
    assert_gone(&processes, &ports);
    drop(cluster);
    let mut left: Vec<_> = std::fs::read_dir(&dir).unwrap().flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["logs", "start.lock"]);
    assert!(dir.join("logs/etcd.log").exists());
    assert!(!stop(&dir).unwrap());
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_start_waits_for_another_and_then_finds_it_running() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    // Obtained before: the other must not be ready by the time that ours starts.
    let binaries = binaries().await;
    let mut other = helper::owner(&dir, Lifetime::WithParent);
    wait_until_recorded(&dir, 1).await;
    assert!(Cluster::open(&dir).unwrap().is_none(), "it is not ready");
    let notes = Notes::default();
    let ours = Cluster::start(ClusterSpec::at("x", dir.clone()), &binaries, &notes).await;
    assert!(matches!(ours, Err(Error::Running { .. })), "{ours:?}");
    let notes = notes.0.into_inner().unwrap();
    assert!(notes.iter().any(|note| note.contains(&format!("waiting for pid {}", other.id()))), "{notes:?}");
    let found = Cluster::open(&dir).unwrap().expect("it is ready");
    found.client().await.unwrap().apiserver_version().await.unwrap();
    found.stop().await.unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn a_start_goes_on_where_another_failed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    // Obtained before: the other must not be ready by the time that ours starts.
    let binaries = binaries().await;
    let mut other = helper::owner(&dir, Lifetime::Detached);
    let theirs = wait_until_recorded(&dir, 1).await;
    let notes = Notes::default();
    let (ours, ()) = tokio::join!(Cluster::start(ClusterSpec::at("x", dir.clone()), &binaries, &notes), async {
        eventually("we wait", async || holds(!notes.0.lock().unwrap().is_empty(), "no note")).await;
        other.kill().unwrap();
        other.wait().unwrap();
    });
    let ours = ours.unwrap();
    assert!(theirs.iter().all(|process| !process.is_alive()));
    assert!(ours.processes().iter().all(|(_, process)| process.is_alive()));
    ours.stop().await.unwrap();
}

#[tokio::test]
async fn giving_up_a_start_halfway_ends_what_it_started() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    let mut spec = ClusterSpec::at("x", dir.clone());
    spec.lifetime = Lifetime::Detached;
    let binaries = binaries().await;
    let processes = tokio::select! {
        started = Cluster::start(spec, &binaries, &progress::Quiet) => panic!("ready too soon: {started:?}"),
        processes = wait_until_recorded(&dir, 1) => processes,
    };
    assert!(processes.iter().all(|process| !process.is_alive()));
    assert!(!dir.exists());
}

#[tokio::test]
async fn stopping_a_cluster_that_is_starting_ends_the_start() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    let mut spec = ClusterSpec::at("x", dir.clone());
    spec.lifetime = Lifetime::Detached;
    let binaries = binaries().await;
    let (started, stopped) = tokio::join!(Cluster::start(spec, &binaries, &progress::Quiet), async {
        wait_until_recorded(&dir, 1).await;
        let dir = dir.clone();
        tokio::task::spawn_blocking(move || stop(&dir)).await.unwrap()
    });
    assert!(matches!(started, Err(Error::Gone { .. })), "{started:?}");
    assert!(stopped.unwrap());
    assert!(!dir.exists());
}

#[tokio::test]
async fn one_of_which_a_part_ended_is_shown_and_replaced() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    let first = start(ClusterSpec::at("x", dir.clone())).await;
    let scheduler = kill(&first, "kube-scheduler");
    eventually("it ended", async || holds(!scheduler.is_alive(), "alive")).await;
    let found = Cluster::open(&dir).unwrap().expect("the rest lives");
    found.client().await.unwrap().apiserver_version().await.unwrap();
    let processes = found.processes();
    let alive = processes.iter().filter(|(_, process)| process.is_alive()).count();
    assert_eq!((processes.len(), alive), (5, 4));

    let notes = Arc::new(Notes::default());
    let second = Cluster::start(ClusterSpec::at("x", dir.clone()), &binaries().await, notes.as_ref()).await.unwrap();
    assert_eq!(*notes.0.lock().unwrap(), ["kube-scheduler ended; starting anew"]);
    assert!(processes.iter().all(|(_, process)| !process.is_alive()));
    drop(first);
    assert!(second.processes().iter().all(|(_, process)| process.is_alive()));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_hold_without_kwok_fails_and_leaves_no_pod() {
    let cluster = start(ClusterSpec::temporary()).await;
    let fleet = Fleet::from_yaml("kinds: [{name: n, count: 1}]", "inline").unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
    kill(&cluster, "kwok");
    let error = cluster.hold_readiness("h", &["n-000"], Readiness::Fail).await.unwrap_err();
    assert!(matches!(&error, Error::Died { component, .. } if component == "kwok"), "{error}");
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "kube-system");
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    cluster.stop().await.unwrap();
}

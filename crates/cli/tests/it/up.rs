//! `dapple up`, `status` and `down`, as a newcomer runs them.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dapple_testbed::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{DAPPLE, own_api_server, text};

/// A state folder of one's own. A test that fails half way leaves no cluster behind.
struct State(tempfile::TempDir);

impl State {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // With nothing to stop, it says so.
        let _ = dapple_in(self.path(), &["down"]).output();
    }
}

/// The program with a state folder of its own.
fn dapple_in(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(DAPPLE);
    command.args(args).env("XDG_STATE_HOME", state).stdin(Stdio::null());
    command
}

fn run(state: &Path, args: &[&str]) -> Output {
    dapple_in(state, args).output().unwrap()
}

/// Waits until all is well and `status` says so: it leaves out what an API server that stands still for some seconds does
/// not answer.
fn status_is(state: &Path, is_right: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    loop {
        let status = run(state, &["status", "-o", "json"]);
        let view: Value = serde_json::from_slice(&status.stdout).unwrap();
        if status.status.success() && is_right(&view) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "after two minutes still {view}{}", text(&status.stderr));
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn cluster_dir(state: &Path) -> std::path::PathBuf {
    state.join("dapple/clusters/default")
}

#[test]
fn up_shows_a_living_fleet_and_down_leaves_nothing() {
    let state = State::new();
    let up = run(state.path(), &["up", "--detach", "--nodes", "12"]);
    let screen = text(&up.stdout);
    assert!(up.status.success(), "{screen}{}", text(&up.stderr));
    for part in
        ["dapple is up", "12 of 12 ready", "beijing (", "kubeconfig", "kubectl get nodes,nodegroups", "dapple down"]
    {
        assert!(screen.contains(part), "{part} is not in\n{screen}");
    }

    let again = run(state.path(), &["up", "--detach"]);
    assert!(again.status.success() && text(&again.stdout).contains("is up already"), "{}", text(&again.stdout));

    status_is(state.path(), |view| {
        view["nodes"] == serde_json::json!({"total": 12, "ready": 12})
            && view["groups"].as_array().is_some_and(|groups| groups.len() == 3)
    });

    let cluster = Cluster::open(&cluster_dir(state.path())).unwrap().expect("it runs");
    let (processes, ports) = (cluster.processes(), cluster.ports());
    let listed = Command::new(cluster.kubectl())
        .args(["get", "nodes,nodegroups", "--kubeconfig"])
        .arg(cluster.admin_kubeconfig())
        .output()
        .unwrap();
    assert_eq!(text(&listed.stdout).matches(" Ready ").count(), 12, "{}", text(&listed.stdout));
    drop(cluster);

    let down = run(state.path(), &["down"]);
    assert!(down.status.success() && text(&down.stdout).contains("is down"), "{}", text(&down.stderr));
    assert!(processes.len() >= 6);
    assert!(processes.iter().all(|(_, process)| !process.is_alive()), "{processes:?}");
    for port in ports {
        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "port {port} is still in use");
    }
    assert!(!cluster_dir(state.path()).exists());
    let nothing = run(state.path(), &["status"]);
    assert!(text(&nothing.stdout).contains("`dapple up` starts one") && nothing.status.code() == Some(1));
    assert!(text(&run(state.path(), &["down"]).stdout).contains("nothing to stop"));
}

#[test]
fn interrupting_up_leaves_nothing_behind() {
    let state = State::new();
    // While dapple is installed into a cluster that would outlive us, while it starts, and while it runs.
    for (wait_for, at_least, detach) in
        [("installing dapple", 5, true), ("starting cluster", 0, false), ("Press Ctrl-C", 6, false)]
    {
        let mut up = dapple_in(state.path(), &["up", "--nodes", "3"]);
        if detach {
            up.arg("--detach");
        }
        let mut up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stream: Box<dyn Read> = if wait_for.starts_with("Press") {
            Box::new(up.stdout.take().unwrap())
        } else {
            Box::new(up.stderr.take().unwrap())
        };
        let (mut seen, mut letter) = (String::new(), [0u8; 1]);
        while !seen.contains(wait_for) {
            assert_eq!(stream.read(&mut letter).unwrap(), 1, "it ended early: {seen}");
            seen.push(char::from(letter[0]));
        }
        let processes = recorded_processes(state.path());
        assert!(processes.len() >= at_least, "{wait_for}: {processes:?}");
        kill_process(Pid::from_child(&up), Signal::INT).unwrap();
        drop(stream);
        up.wait().unwrap();
        assert!(processes.iter().all(|process| !process.is_alive()), "{wait_for}: {processes:?}");
        assert!(recorded_processes(state.path()).iter().all(|process| !process.is_alive()), "{wait_for}");
        assert!(!cluster_dir(state.path()).join("etcd").exists(), "{wait_for}");
    }
}

/// The processes in the cluster's record, also of one that only starts.
fn recorded_processes(state: &Path) -> Vec<dapple_testbed::ProcessId> {
    let Ok(text) = std::fs::read_to_string(cluster_dir(state).join("state.json")) else { return Vec::new() };
    let record: Value = serde_json::from_str(&text).unwrap();
    let pids = record["processes"].as_array().unwrap().iter().map(|process| process["pid"].as_i64().unwrap());
    pids.filter_map(|pid| dapple_testbed::ProcessId::of(i32::try_from(pid).unwrap())).collect()
}

#[test]
fn two_at_once_end_with_one_cluster() {
    let state = State::new();
    let start = || dapple_in(state.path(), &["up", "--detach", "--nodes", "3"]).stdout(Stdio::piped()).spawn().unwrap();
    let both = [start(), start()].map(|up| up.wait_with_output().unwrap());
    let screens: Vec<String> = both.iter().map(|up| text(&up.stdout)).collect();
    assert!(both.iter().all(|up| up.status.success()), "{screens:?}");
    assert_eq!(screens.iter().filter(|screen| screen.contains("is up already")).count(), 1, "{screens:?}");
    status_is(state.path(), |_| true);
    assert!(run(state.path(), &["down"]).status.success());
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let state = State::new();
    let mut status = dapple_in(state.path(), &["status"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(status.stdout.take());
    assert_eq!(status.wait().unwrap().code(), Some(1), "no cluster runs, and nothing panics");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_cluster_gets_the_apis_and_nothing_is_started() {
    let (cluster, client) = own_api_server().await;
    let state = State::new();
    let kubeconfig = cluster.admin_kubeconfig().to_str().unwrap();
    let refused = run(state.path(), &["up", "--cluster", "--kubeconfig", kubeconfig]);
    assert!(text(&refused.stderr).contains("add --yes"), "it asks first: {}", text(&refused.stderr));
    let installed = run(state.path(), &["up", "--cluster", "--yes", "--kubeconfig", kubeconfig]);
    let said = text(&installed.stdout);
    assert!(
        installed.status.success() && said.contains("Installed dapple's APIs"),
        "{said}{}",
        text(&installed.stderr)
    );
    assert!(dapple_control::install::find_crd(&client, "daemonsets.apps.kruise.io").await.unwrap().is_some());
    assert!(!cluster_dir(state.path()).exists(), "nothing was started");
    cluster.stop().await.unwrap();
}

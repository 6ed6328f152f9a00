use super::*;

/// A cluster in name only: a record with these processes.
fn recorded(dir: &Path, processes: Vec<Recorded>) -> Cluster {
    let record = Record {
        version: 0,
        id: String::new(),
        name: "x".into(),
        lifetime: Lifetime::Detached,
        owner: ProcessId::current().unwrap(),
        ready: true,
        ending: false,
        api_port: 1,
        ports: Vec::new(),
        service_cidr: String::new(),
        kubectl: "/k".into(),
        starting: Vec::new(),
        processes,
        nodes: Vec::new(),
    };
    make_dir(&dir.join("logs")).unwrap();
    let (state, admin) = (State::create(dir, record).unwrap(), dir.join("admin.kubeconfig"));
    Cluster { dir: dir.to_owned(), state, admin, ends_on_drop: false, is_starting: false, keep: Keep::Nothing }
}

#[tokio::test(start_paused = true)]
async fn patience_ends_even_where_nothing_answers() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = recorded(dir.path(), Vec::new());
    std::fs::write(cluster.log("etcd"), "first\nwaiting for a quorum\n").unwrap();
    let error = cluster.wait_for("etcd", async || std::future::pending().await).await.unwrap_err();
    assert!(matches!(&error, Error::Slow { component, .. } if component == "etcd"), "{error}");
    let message = error.to_string();
    assert!(message.contains("no answer within 15 s") && message.ends_with("waiting for a quorum"), "{message}");
}

#[test]
fn what_cannot_be_recorded_is_not_left_running() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = recorded(dir.path(), Vec::new());
    let (program, args) = (Path::new("/bin/sleep"), ["600".to_owned()]);
    // Somebody else stops the cluster between the start of the program and its being recorded.
    let log = cluster.log("sleep");
    let launch = Launch { program, args: &args, env: &[], log: &log, lifetime: Lifetime::Detached };
    let process = process::spawn(&launch).unwrap();
    assert!(state::mark_ending(dir.path(), |_| true).unwrap().is_some());
    let refused = cluster.record_started("sleep", Role::Attached, program, &process, "token");
    assert!(matches!(refused, Err(Error::Gone { .. })), "{refused:?}");
    assert!(!process.is_alive());
    let refused = cluster.launch("sleep", Role::Attached, program, &args, &[]);
    assert!(matches!(refused, Err(Error::Gone { .. })), "{refused:?}");
}

#[test]
fn chosen_ports_are_recorded_and_differ() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = recorded(dir.path(), Vec::new());
    let ports = [cluster.choose_port().unwrap(), cluster.choose_port().unwrap()];
    assert_ne!(ports[0], ports[1]);
    assert_eq!(State::load(dir.path()).unwrap().unwrap().get().ports, ports);
}

#[test]
fn a_cluster_of_which_something_lives_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let alive = ProcessId::current().unwrap();
    let dead = ProcessId { start_time: 0, ..alive.clone() };
    let part = |name: &str, role, process: &ProcessId| Recorded {
        name: name.into(),
        role,
        program: "/x".into(),
        process: process.clone(),
    };
    recorded(dir.path(), vec![part("etcd", Role::Store, &dead), part("kube-apiserver", Role::Api, &alive)]);
    let found = Cluster::open(dir.path()).unwrap().expect("its API server lives");
    assert_eq!(found.processes(), [("etcd".to_owned(), dead.clone()), ("kube-apiserver".to_owned(), alive)]);
    recorded(dir.path(), vec![part("etcd", Role::Store, &dead)]);
    assert!(Cluster::open(dir.path()).unwrap().is_none());
}

#[test]
fn a_full_disk_is_told_from_other_errors() {
    let died = |tail: &str| Error::Died { component: "etcd".into(), log: "/l".into(), tail: tail.into() };
    let io = |kind: std::io::ErrorKind| Error::Io { what: "write", path: "/p".into(), source: kind.into() };
    assert!(is_disk_full(&died("write wal: no space left on device")));
    assert!(is_disk_full(&io(std::io::ErrorKind::StorageFull)));
    assert!(!is_disk_full(&died("bad flag")) && !is_disk_full(&io(std::io::ErrorKind::NotFound)));
}

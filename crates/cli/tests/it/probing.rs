//! The prober as a process, with the token that its pod would have: what it stores, and when, and what becomes of that when it is
//! killed. Its own API server's manager is played by the test.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use dapple_control::install::{apply, documents};
use dapple_testbed::Cluster;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{DAPPLE, MANAGER_USER, dapple, eventually, own_cluster, text};
use crate::users::{User, bind, prober};

const OBJECT: &str = "/apis/dapple.dev/v1alpha1/nodepodprobes/node-a";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/dapple-probers/leases/node-a";

/// A prober process; dropping it kills it.
struct Prober(Child);

impl Drop for Prober {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Prober {
    fn start(cluster: &Cluster, kubeconfig: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(cluster.log("prober")).unwrap();
        let child = Command::new(DAPPLE)
            .args(["node", "prober", "--node-name", "node-a", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the prober starts");
        Self(child)
    }
}

/// A pod, as far as a prober sees it: a server on this machine that answers with a status that can be changed.
async fn server() -> (u16, Arc<AtomicU16>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (port, status) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU16::new(200)));
    let said = status.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = format!("HTTP/1.1 {} X\r\nContent-Length: 6\r\n\r\nsecret", said.load(Ordering::SeqCst));
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, status)
}

fn asked(port: u16, container: &str) -> Value {
    let probe = |name: &str, action: Value| {
        let mut probe = json!({"periodSeconds": 1, "failureThreshold": 1});
        probe.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        json!({"name": name, "containerName": "c", "containerID": container, "probe": probe})
    };
    let probes =
        [probe("http", json!({"httpGet": {"port": port}})), probe("exec", json!({"exec": {"command": ["id"]}}))];
    let pod = json!({"name": "p", "namespace": "default", "uid": "u", "IP": "127.0.0.1", "probes": probes});
    json!({"podProbes": [pod]})
}

/// Waits until this is stored of a probe: state and container. Returns the object.
async fn stored(admin: &User, probe: &str, expected: (&str, &str)) -> Value {
    eventually(&format!("{probe} is {expected:?}"), || async {
        let object = admin.get(OBJECT).await?;
        let states = object["status"]["podProbeStatuses"][0]["probeStates"].as_array().cloned().unwrap_or_default();
        let found = states.iter().any(|known| {
            (&known["name"], &known["state"], &known["containerID"])
                == (&json!(probe), &json!(expected.0), &json!(expected.1))
        });
        if found { Ok(object) } else { Err(object["status"].to_string()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_stored_when_they_change_and_outlive_the_prober() {
    let (cluster, client) = own_cluster().await;
    let kubeconfig = cluster.admin_kubeconfig().to_str().unwrap();
    let installed = dapple(&["up", "--cluster", "--yes", "--kubeconfig", kubeconfig]);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    for object in documents(include_str!("../../../../config/prober.yaml")).unwrap() {
        if object["kind"] != "DaemonSet" {
            apply(&client, &object).await.unwrap();
        }
    }
    apply(&client, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})).await.unwrap();
    let (admin, manager) = (User::new(&cluster, "prober-admin").await, User::new(&cluster, MANAGER_USER).await);
    bind(&client, "prober-admin", "cluster-admin", None).await;
    let file = cluster.dir().join("prober.kubeconfig");
    let config = prober(&cluster, &admin, Some("node-a")).await;
    std::fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();

    let (port, status) = server().await;
    let first = Prober::start(&cluster, &file);
    let object = json!({"apiVersion": "dapple.dev/v1alpha1", "kind": "NodePodProbe", "metadata": {"name": "node-a"},
        "spec": asked(port, "containerd://1")});
    eventually("the manager may write what is probed", || {
        manager.create("/apis/dapple.dev/v1alpha1/nodepodprobes", &object)
    })
    .await;

    stored(&admin, "http", ("Succeeded", "containerd://1")).await;
    let unknown = stored(&admin, "exec", ("Unknown", "containerd://1")).await;
    assert!(unknown.to_string().contains("without --exec"), "{unknown}");
    let lease = eventually("the prober says that it is there", || admin.get(LEASE)).await;
    assert!(lease["spec"]["renewTime"].is_string(), "{lease}");
    // The probe runs on each second.
    let before = stored(&admin, "http", ("Succeeded", "containerd://1")).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let after = admin.get(OBJECT).await.unwrap();
    assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"], "nothing has changed");

    status.store(500, Ordering::SeqCst);
    let failed = stored(&admin, "http", ("Failed", "containerd://1")).await.to_string();
    assert!(failed.contains("it answers with status 500") && !failed.contains("secret"), "{failed}");

    drop(first);
    status.store(200, Ordering::SeqCst);
    let second = Prober::start(&cluster, &file);
    stored(&admin, "http", ("Succeeded", "containerd://1")).await;

    // Another run of the container: what is stored of the last stays, as of that, until there is a result.
    status.store(404, Ordering::SeqCst);
    manager.patch(OBJECT, &json!({"spec": asked(port, "containerd://2")})).await.unwrap();
    stored(&admin, "http", ("Failed", "containerd://2")).await;

    manager.delete(OBJECT).await.unwrap();
    eventually("the object is gone", || async {
        match admin.get(OBJECT).await {
            Ok(object) => Err(object.to_string()),
            Err(_) => Ok(()),
        }
    })
    .await;
    manager.create("/apis/dapple.dev/v1alpha1/nodepodprobes", &object).await.unwrap();
    stored(&admin, "http", ("Failed", "containerd://1")).await;
    drop(second);
    cluster.stop().await.unwrap();
}

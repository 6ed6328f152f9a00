//! What the tests share: the cluster with our APIs in it, kubectl, a manager in this process, and waiting.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::group::{NodeGroup, NodeGroupSpec};
use dapple_control::env::{Clock, Env};
use dapple_control::families;
use dapple_control::family::{MarkerLimits, PoolLimits, RepairLimits};
use dapple_control::gates::Gates;
use dapple_control::install::{apply_yaml, install_crds};
use dapple_control::lease::LeaseDurations;
use dapple_control::manager::{self, Options};
use dapple_control::writes::rate::Limits;
use dapple_testbed::Cluster;
use dapple_testbed::testing;
pub(crate) use dapple_testbed::testing::eventually;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The manager's rights, and no others.
pub(crate) const MANAGER_USER: &str = "system:serviceaccount:dapple-system:dapple-manager";

/// The shared cluster, with our CRDs.
pub(crate) async fn cluster() -> (Arc<Cluster>, Client) {
    let cluster = dapple_testbed::shared().await.expect("the shared cluster starts");
    let client = cluster.client().await.unwrap();
    let installed = install_crds(&client).await.expect("our CRDs are installed");
    assert!(installed.iter().all(|crd| !crd.foreign));
    // kubectl finds a kind where the API server lists it, which is a moment after it serves it.
    static LISTED: OnceCell<()> = OnceCell::const_new();
    let list = || {
        eventually("every kind is listed", || async {
            let listed = kubectl(&cluster, &["api-resources", "-o", "name"], "");
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let missing = installed.iter().find(|crd| !listed.lines().any(|line| line == crd.name));
            missing.map_or(Ok(()), |crd| Err(format!("{} is not in\n{listed}", crd.name)))
        })
    };
    LISTED.get_or_init(list).await;
    (cluster, client)
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Runs kubectl as administrator, with `input` on its standard input.
pub(crate) fn kubectl(cluster: &Cluster, args: &[&str], input: &str) -> Output {
    testing::kubectl(cluster, cluster.admin_kubeconfig(), args, input).expect("kubectl runs")
}

/// What kubectl prints; it must succeed.
pub(crate) fn kubectl_ok(cluster: &Cluster, args: &[&str], input: &str) -> String {
    let output = kubectl(cluster, args, input);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "kubectl {args:?} failed: {err}{out}");
    out.into_owned()
}

/// A manager in this process; dropping it stops it.
pub(crate) struct Manager {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
}

impl Manager {
    /// Stops it, and waits until it has ended what was under way.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        eventually("the manager ends", || async {
            let answer = http_get(self.address, "/healthz").await;
            if answer.is_err() { Ok(()) } else { Err("it still answers".to_owned()) }
        })
        .await;
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts a manager whose lease is named `lease`, with exactly the rights that installing gives it.
pub(crate) async fn manager(cluster: &Cluster, lease: &str) -> Manager {
    manager_with(cluster, lease, Gates::default()).await
}

/// As [`manager`], with other feature gates.
pub(crate) async fn manager_with(cluster: &Cluster, lease: &str, gates: Gates) -> Manager {
    manager_in(cluster, lease, gates, Env::system()).await
}

/// As [`manager`], with a clock that is so far ahead.
pub(crate) async fn manager_ahead(cluster: &Cluster, lease: &str, by: Duration) -> Manager {
    struct Ahead(Duration);
    impl Clock for Ahead {
        fn now(&self) -> Timestamp {
            Timestamp::now() + self.0
        }
    }
    manager_in(cluster, lease, Gates::default(), Env::new(Ahead(by), 1)).await
}

async fn manager_in(cluster: &Cluster, lease: &str, gates: Gates, env: Env) -> Manager {
    apply_yaml(&cluster.client().await.unwrap(), include_str!("../../../../config/rbac.yaml")).await.unwrap();
    // A group of its own gives each manager a certificate of its own.
    let kubeconfig = cluster.kubeconfig_for(MANAGER_USER, &[lease]).await.unwrap();
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    // Of those that no connection of somebody's gets meanwhile.
    let address = SocketAddr::from(([127, 0, 0, 1], cluster.choose_port().unwrap()));
    manager_of(config, address, lease, gates, env)
}

/// Starts a manager of the cluster that `config` names.
pub(crate) fn manager_at(config: kube::Config, lease: &str) -> Manager {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    manager_of(config, address, lease, Gates::default(), Env::system())
}

fn manager_of(config: kube::Config, address: SocketAddr, lease: &str, gates: Gates, env: Env) -> Manager {
    let options = Options {
        families: families::ALL.to_vec(),
        listen: address,
        identity: format!("test-{lease}"),
        namespace: "dapple-system".into(),
        lease: lease.into(),
        durations: LeaseDurations::default(),
        limits: Limits::default(),
        workers: 4,
        gates,
        repair: RepairLimits { after: Duration::from_secs(2), ..RepairLimits::default() },
        pool: PoolLimits::default(),
        marker: MarkerLimits::default(),
    };
    let stop = CancellationToken::new();
    let running = manager::run(config, options, env, stop.clone(), manager::alone);
    tokio::spawn(async move { running.await.expect("the manager runs") });
    Manager { address, stop }
}

/// A number from the environment, for longer runs than those of every day.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number: {text}")))
}

/// Creates or relabels a node that nobody plays: an object and no more.
pub(crate) async fn node(client: &Client, name: &str, labels: Value) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    let api = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone());
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&node)).await.expect("the node is applied");
}

/// Creates a group.
pub(crate) async fn group(client: &Client, name: &str, spec: NodeGroupSpec) {
    let api = Api::<NodeGroup>::all(client.clone());
    api.create(&PostParams::default(), &NodeGroup::new(name, spec)).await.expect("the group is created");
}

/// Waits until a group's status names exactly these nodes.
pub(crate) async fn group_has(client: &Client, name: &str, nodes: &[&str]) -> NodeGroup {
    let api = Api::<NodeGroup>::all(client.clone());
    eventually(&format!("group {name} has {nodes:?}"), || async {
        let group = api.get(name).await.map_err(|error| error.to_string())?;
        let status = group.status.clone().unwrap_or_default();
        let fresh = status.observed_generation == group.metadata.generation;
        if fresh && status.contained_nodes == nodes { Ok(group) } else { Err(format!("{status:?}")) }
    })
    .await
}

/// The text at a path of the manager's own server, with its status.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> Result<(u16, String), String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
    Ok((status, text))
}

fn of_policies(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// Forbids what an expression does not allow, for a resource (group, version, name) in a namespace, by a policy of this name.
pub(crate) async fn forbid(
    client: &Client,
    (namespace, name): (&str, &str),
    (group, version, resource): (&str, &str, &str),
    operation: &str,
    expression: &str,
) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{
                    "apiGroups": [group], "apiVersions": [version], "resources": [resource],
                    "operations": [operation]}],
            },
            "validations": [{"expression": expression, "message": "not here"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    for (kind, object) in [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)] {
        let object = serde_json::from_value(object).unwrap();
        of_policies(client, kind).create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Whether it is such a policy which refuses; anything else may fail for a moment too.
pub(crate) fn is_forbidden<T>(answer: Result<T, kube::Error>) -> Result<(), String> {
    match answer {
        Err(kube::Error::Api(error)) if error.message.contains("not here") => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("not yet".to_owned()),
    }
}

/// Has the policy of this name forbid nothing any more.
pub(crate) async fn allow(client: &Client, name: &str) {
    of_policies(client, "ValidatingAdmissionPolicyBinding").delete(name, &DeleteParams::default()).await.unwrap();
}

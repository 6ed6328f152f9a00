//! The command lines of the control plane.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    certs::{CLUSTER, Certs, FRONT_PROXY},
    error::Result,
    ports,
    spec::ClusterSpec,
};

/// The ports of one cluster, all on the loopback address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) api: u16,
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
}

impl Ports {
    /// Free ports, and the one asked for.
    pub(crate) fn choose(api: Option<u16>) -> Result<Self> {
        Ok(Self {
            api: api.map_or_else(ports::choose, ports::exactly)?,
            etcd: ports::choose()?,
            etcd_peer: ports::choose()?,
            controller_manager: ports::choose()?,
            scheduler: ports::choose()?,
        })
    }

    pub(crate) fn all(self) -> Vec<u16> {
        vec![self.api, self.etcd, self.etcd_peer, self.controller_manager, self.scheduler]
    }
}

/// Collects `--name=value` arguments.
struct Args(Vec<String>);

impl Args {
    fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.0.push(format!("--{name}={value}"));
        self
    }
}

pub(crate) fn etcd(dir: &Path, certs: &Certs, ports: Ports) -> Vec<String> {
    let client = format!("https://127.0.0.1:{}", ports.etcd);
    let peer = format!("https://127.0.0.1:{}", ports.etcd_peer);
    let (authority, cert, key) = (certs.cert(CLUSTER), certs.cert("etcd"), certs.key("etcd"));
    Args(Vec::new())
        .with("name", "testbed")
        .with("data-dir", dir.join("etcd").display())
        .with("listen-client-urls", &client)
        .with("advertise-client-urls", &client)
        .with("listen-peer-urls", &peer)
        .with("initial-advertise-peer-urls", &peer)
        .with("initial-cluster", format!("testbed={peer}"))
        // Keys of a cluster lie in etcd in the clear: other users of the machine must not read them over loopback.
        .with("client-cert-auth", true)
        .with("trusted-ca-file", &authority)
        .with("cert-file", &cert)
        .with("key-file", &key)
        .with("peer-client-cert-auth", true)
        .with("peer-trusted-ca-file", &authority)
        .with("peer-cert-file", &cert)
        .with("peer-key-file", &key)
        // Throw-away data: losing the last writes at a power cut is fine, waiting for the disk is not.
        .with("unsafe-no-fsync", true)
        .with("quota-backend-bytes", 4_u64 << 30)
        .with("auto-compaction-mode", "periodic")
        .with("auto-compaction-retention", "5m")
        .with("log-level", "warn")
        .0
}

pub(crate) fn api_server(spec: &ClusterSpec, certs: &Certs, ports: Ports) -> Vec<String> {
    let mut args = Args(Vec::new())
        .with("bind-address", "127.0.0.1")
        .with("secure-port", ports.api)
        .with("advertise-address", "127.0.0.1")
        // Endpoints refuse loopback addresses, so the `kubernetes` service stays without any.
        .with("endpoint-reconciler-type", "none")
        .with("service-cluster-ip-range", &spec.service_cidr)
        .with("etcd-servers", format!("https://127.0.0.1:{}", ports.etcd))
        .with("etcd-cafile", certs.cert(CLUSTER))
        .with("etcd-certfile", certs.cert("etcd"))
        .with("etcd-keyfile", certs.key("etcd"))
        .with("authorization-mode", "Node,RBAC")
        .with("enable-admission-plugins", "NodeRestriction")
        .with("allow-privileged", true)
        .with("client-ca-file", certs.cert(CLUSTER))
        .with("tls-cert-file", certs.cert("apiserver"))
        .with("tls-private-key-file", certs.key("apiserver"))
        .with("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
        .with("service-account-signing-key-file", certs.key("service-accounts"))
        .with("service-account-key-file", certs.public_key("service-accounts"))
        .with("requestheader-client-ca-file", certs.cert(FRONT_PROXY))
        .with("requestheader-allowed-names", "front-proxy-client")
        .with("requestheader-username-headers", "X-Remote-User")
        .with("requestheader-group-headers", "X-Remote-Group")
        .with("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .with("proxy-client-cert-file", certs.cert("front-proxy"))
        .with("proxy-client-key-file", certs.key("front-proxy"))
        .with("kubelet-client-certificate", certs.cert("kubelet-client"))
        .with("kubelet-client-key", certs.key("kubelet-client"))
        .with("kubelet-certificate-authority", certs.cert(CLUSTER))
        .with("kubelet-preferred-address-types", "InternalIP,Hostname")
        .with("profiling", false)
        .0;
    args.extend(spec.api_args.iter().cloned());
    args
}

pub(crate) fn controller_manager(spec: &ClusterSpec, certs: &Certs, ports: Ports, kubeconfig: &Path) -> Vec<String> {
    // Kubernetes' own pair is 40 s and 50 s: keep the proportion for longer leases.
    let grace = (spec.node_lease_seconds + spec.node_lease_seconds / 4).max(50);
    let kubeconfig = kubeconfig.display().to_string();
    Args(Vec::new())
        .with("kubeconfig", &kubeconfig)
        .with("authentication-kubeconfig", &kubeconfig)
        .with("authorization-kubeconfig", &kubeconfig)
        .with("bind-address", "127.0.0.1")
        .with("secure-port", ports.controller_manager)
        .with("tls-cert-file", certs.cert("component"))
        .with("tls-private-key-file", certs.key("component"))
        .with("leader-elect", false)
        .with("use-service-account-credentials", true)
        .with("service-account-private-key-file", certs.key("service-accounts"))
        .with("root-ca-file", certs.cert(CLUSTER))
        .with("cluster-signing-cert-file", certs.cert(CLUSTER))
        .with("cluster-signing-key-file", certs.key(CLUSTER))
        .with("node-monitor-grace-period", format!("{grace}s"))
        // The defaults of 20 and 30 requests a second make fleets of a thousand nodes wait for minutes.
        .with("kube-api-qps", 500)
        .with("kube-api-burst", 1000)
        .with("profiling", false)
        .0
}

pub(crate) fn scheduler(certs: &Certs, ports: Ports, config: &Path) -> Vec<String> {
    Args(Vec::new())
        .with("config", config.display())
        .with("bind-address", "127.0.0.1")
        .with("secure-port", ports.scheduler)
        .with("tls-cert-file", certs.cert("component"))
        .with("tls-private-key-file", certs.key("component"))
        .0
}

/// The scheduler's configuration: the caller's, with what only we know filled in.
pub(crate) fn scheduler_config(wanted: Option<&Value>, kubeconfig: &Path) -> Value {
    let mut config = wanted.cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = config.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| json!("kubescheduler.config.k8s.io/v1"));
        fields.entry("kind").or_insert_with(|| json!("KubeSchedulerConfiguration"));
        fields.insert("leaderElection".into(), json!({"leaderElect": false}));
        let connection = json!({"kubeconfig": kubeconfig, "qps": 500, "burst": 1000});
        fields.insert("clientConnection".into(), connection);
    }
    config
}

pub(crate) fn kwok(spec: &ClusterSpec, kubeconfig: &Path, config: &Path) -> Vec<String> {
    Args(Vec::new())
        .with("kubeconfig", kubeconfig.display())
        .with("config", config.display())
        .with("manage-all-nodes", false)
        .with("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
        .with("node-lease-duration-seconds", spec.node_lease_seconds)
        .with("cidr", "10.64.0.0/12")
        // Stages are objects, so that tests can add and remove them while kwok runs.
        .with("enable-crds", "Stage")
        .0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedulers_extenders_survive() {
        let wanted =
            json!({"extenders": [{"urlPrefix": "http://127.0.0.1:1"}], "leaderElection": {"leaderElect": true}});
        let config = scheduler_config(Some(&wanted), Path::new("/k"));
        assert_eq!(config["extenders"], wanted["extenders"]);
        assert_eq!(config["leaderElection"]["leaderElect"], false);
        assert_eq!(config["kind"], "KubeSchedulerConfiguration");
        assert_eq!(config["clientConnection"]["kubeconfig"], "/k");
    }
}

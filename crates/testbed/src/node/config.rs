//! Settings of containerd, kubelet and kube-proxy, as they run on machines like ours.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::json;

use super::{Layout, RealNodeSpec, images, network::Network, packages};
use crate::{
    certs::{CLUSTER, Certs},
    error::{Result, io_error},
    files::{make_dir, write_atomically},
};

/// containerd's settings and the network of its pods.
pub(super) fn containerd(layout: &Layout, network: &Network) -> Result<PathBuf> {
    let conf_dir = layout.dir.join("cni");
    make_dir(&conf_dir)?;
    let cni = json!({
        "cniVersion": "1.0.0", "name": "dapple",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": layout.dir.join("addresses"),
                    "ranges": [[{"subnet": network.pod_cidr()}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    write_atomically(&conf_dir.join("10-dapple.conflist"), cni.to_string().as_bytes())?;
    // Below /run, so that shims and mounts are in the node's own mount namespace; the socket is for outsiders too.
    let text = format!(
        r#"version = 3
root = '{root}'
state = '/run/containerd'
[grpc]
address = '{socket}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{plugins}']
conf_dir = '{conf_dir}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"#,
        root = layout.dir.join("containerd").display(),
        socket = layout.socket().display(),
        pause = images::PAUSE,
        plugins = packages::cni_plugins(),
        conf_dir = conf_dir.display(),
    );
    let path = layout.dir.join("containerd.toml");
    write_atomically(&path, text.as_bytes())?;
    Ok(path)
}

/// The kubelet's arguments and settings.
pub(super) fn kubelet(
    layout: &Layout,
    spec: &RealNodeSpec,
    certs: &Certs,
    network: &Network,
    kubeconfig: &Path,
) -> Result<Vec<String>> {
    let serving = format!("kubelet-{}", layout.name);
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": network.node, "port": 10250, "healthzPort": 0,
        "tlsCertFile": certs.cert(&serving), "tlsPrivateKeyFile": certs.key(&serving),
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": certs.cert(CLUSTER)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{}", layout.socket().display()),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", layout.cgroup), "failCgroupV1": false,
        "enforceNodeAllocatable": [], "localStorageCapacityIsolation": false, "failSwapOn": false,
        // The node agent's gateway reads what the kubelet writes.
        "contentType": "application/json",
        "podLogsDir": layout.dir.join("pod-logs"), "resolvConf": "", "staticPodPath": "",
        // Test machines are often nearly full, and images can't be pulled again.
        "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "5s", "shutdownGracePeriod": "0s",
    });
    let path = layout.dir.join("kubelet.json");
    write_atomically(&path, config.to_string().as_bytes())?;
    let mut args = vec![
        format!("--config={}", path.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--root-dir={}", layout.dir.join("kubelet").display()),
        format!("--cert-dir={}", layout.dir.join("kubelet-pki").display()),
        format!("--hostname-override={}", layout.name),
        format!("--node-ip={}", network.node),
    ];
    if !spec.labels.is_empty() {
        let labels: Vec<String> = spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        args.push(format!("--node-labels={}", labels.join(",")));
    }
    Ok(args)
}

/// kube-proxy's arguments and settings.
pub(super) fn kube_proxy(layout: &Layout, network: &Network, kubeconfig: &Path) -> Result<Vec<String>> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "nftables", "hostnameOverride": layout.name, "clusterCIDR": network.pod_cidr(),
        "clientConnection": {"kubeconfig": kubeconfig},
        "bindAddress": network.node, "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        // Zero leaves the kernel's settings alone: they are the whole machine's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    let path = layout.dir.join("kube-proxy.json");
    write_atomically(&path, config.to_string().as_bytes())?;
    Ok(vec![format!("--config={}", path.display())])
}

/// The roots of the control group hierarchies: one per controller in version 1, a single one in version 2.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    // Links like cpu,cpuacct lead to hierarchies that are in the list already.
    entries.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// Makes the control group below which a node's pods are.
pub(super) fn make_cgroups(name: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        let path = hierarchy.join(name);
        std::fs::create_dir_all(&path).map_err(io_error("create", path))?;
    }
    Ok(())
}

/// Removes a node's control groups; they stay busy for a moment after their last process ended.
pub(super) fn remove_cgroups(name: &str, patience: Duration) {
    let deadline = Instant::now() + patience;
    for hierarchy in hierarchies() {
        let path = hierarchy.join(name);
        while path.exists() {
            remove_tree(&path);
            if Instant::now() > deadline {
                tracing::warn!(path = %path.display(), "a control group is still in use");
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes groups from the innermost out: their files can't be removed, and needn't be.
fn remove_tree(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_tree(&entry.path());
    }
    // What is still busy is tried again by the caller.
    let _ = std::fs::remove_dir(path);
}

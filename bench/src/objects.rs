//! Nodes and Pods in the shape and size that a busy cluster has them, as JSON from the API server.

use serde_json::{Value, json};

/// Images that a kubelet reports at most.
const IMAGES: usize = 50;

/// A node of a fleet, as its kubelet and a few operators leave it.
pub fn node(number: usize) -> String {
    let name = format!("node-{number:05}");
    let zone = format!("zone-{}", number % 3);
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": format!("Kubelet{kind}"), "message": format!("kubelet says {kind} is {status}"),
            "lastHeartbeatTime": "2026-11-15T05:12:00Z", "lastTransitionTime": "2026-11-01T10:00:00Z"})
    };
    let images: Vec<Value> = (0..IMAGES)
        .map(|image| {
            let repository = format!("registry.example.com/platform/component-{image}");
            json!({"names": [format!("{repository}@sha256:{:064x}", image * 7919), format!("{repository}:v1.{image}.0")], "sizeBytes": 40_000_000 + image})
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": uid(number), "resourceVersion": (1000 + number).to_string(), "creationTimestamp": "2026-11-01T10:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": format!("m{}.xlarge", number % 4), "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "region-1", "apps.openyurt.io/nodepool": zone, "location": zone,
                "disk-type": if number.is_multiple_of(5) { "large" } else { "standard" }, "arch": "x86",
                "team": format!("team-{}", number % 20), "rack": format!("rack-{}", number / 40), "beta.kubernetes.io/os": "linux",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": format!("{{\"disk.csi.example.com\":\"i-{number:017x}\"}}"),
                "alpha.kubernetes.io/provided-node-ip": address(number),
            },
            "managedFields": managed_fields(&["labels", "annotations", "taints", "conditions", "images", "allocatable"]),
        },
        "spec": {
            "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": format!("example:///{zone}/i-{number:017x}"),
            "taints": if number.is_multiple_of(10) { json!([{"key": "dedicated", "value": "storage", "effect": "NoSchedule"}]) } else { json!([]) },
        },
        "status": {
            "capacity": resources(), "allocatable": resources(),
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"), condition("Ready", "True")],
            "addresses": [{"type": "InternalIP", "address": address(number)}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": uid(number), "systemUUID": uid(number), "bootID": uid(number + 1), "kernelVersion": "6.1.0-30-amd64",
                "osImage": "Debian GNU/Linux 12 (bookworm)", "containerRuntimeVersion": "containerd://2.4.2", "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
            "images": images,
        },
    })
    .to_string()
}

/// A running pod with three containers, as a DaemonSet, the scheduler and the kubelet leave it.
pub fn pod(number: usize, nodes: usize) -> String {
    let owner = number / nodes.max(1);
    let name = format!("agent-{owner}-{number:05}");
    let container = |part: &str| {
        json!({
            "name": part, "image": format!("registry.example.com/agent/{part}:v1.{owner}.0"), "imagePullPolicy": "IfNotPresent",
            "args": ["--config=/etc/agent/config.yaml", "--log-level=info"],
            "env": [
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
                {"name": "CACHE_SIZE", "value": "500Gi"}, {"name": "REGION", "value": "region-1"},
            ],
            "ports": [{"name": "metrics", "containerPort": 9100, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "500m", "memory": "500Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 9100, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3},
            "livenessProbe": {"httpGet": {"path": "/live", "port": 9100, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/agent"}, {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "securityContext": {"readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
        })
    };
    let state = |part: &str| {
        json!({
            "name": part, "image": format!("registry.example.com/agent/{part}:v1.{owner}.0"),
            "imageID": format!("registry.example.com/agent/{part}@sha256:{owner:064x}"), "containerID": format!("containerd://{number:064x}"),
            "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-11-10T10:00:00Z"}}, "lastState": {},
        })
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-10T10:00:00Z"});
    let conditions =
        ["Initialized", "Ready", "ContainersReady", "PodScheduled", "PodReadyToStartContainers"].map(condition);
    let parts = ["agent", "proxy", "exporter"];
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": format!("team-{}", owner % 20), "uid": uid(100_000 + number), "generateName": format!("agent-{owner}-"),
            "resourceVersion": (200_000 + number).to_string(), "creationTimestamp": "2026-11-10T10:00:00Z", "generation": 1,
            "labels": {"app": format!("agent-{owner}"), "controller-revision-hash": format!("{owner:010x}"), "pod-template-generation": "3", "team": format!("team-{}", owner % 20)},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9100", "kubernetes.io/config.seen": "2026-11-10T10:00:00Z"},
            "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": format!("agent-{owner}"), "uid": uid(900_000 + owner), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed_fields(&["labels", "ownerReferences", "containers", "volumes", "tolerations", "conditions", "containerStatuses"]),
        },
        "spec": {
            "nodeName": format!("node-{:05}", number % nodes.max(1)), "serviceAccountName": "agent", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true, "hostNetwork": true,
            "containers": parts.map(container), "tolerations": tolerations(), "affinity": affinity(number % nodes.max(1)),
            "volumes": [
                {"name": "config", "configMap": {"name": "agent-config", "defaultMode": 420}},
                {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}, {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}},
            ],
        },
        "status": {
            "phase": "Running", "hostIP": address(number % nodes.max(1)), "podIP": address(number), "podIPs": [{"ip": address(number)}], "qosClass": "Burstable",
            "startTime": "2026-11-10T10:00:00Z", "conditions": conditions,
            "containerStatuses": parts.map(state),
        },
    })
    .to_string()
}

/// A pod template with this many containers, of the kind that DaemonSets have.
pub fn pod_template(containers: usize) -> Value {
    let pod: Value = serde_json::from_str(&pod(0, 1)).unwrap_or_default();
    let container = |number: usize| {
        let mut container = pod["spec"]["containers"][0].clone();
        container["name"] = json!(format!("c{number}"));
        container
    };
    let list: Vec<Value> = (0..containers).map(container).collect();
    json!({
        "metadata": {"labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]},
        "spec": {"containers": list, "volumes": pod["spec"]["volumes"], "tolerations": pod["spec"]["tolerations"], "hostNetwork": true},
    })
}

fn uid(number: usize) -> String {
    format!("{number:08x}-5b1c-4c7e-9f3a-{number:012x}")
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256)
}

fn resources() -> Value {
    json!({"cpu": "16", "memory": "65536000Ki", "pods": "110", "ephemeral-storage": "2097152000Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0"})
}

fn affinity(node: usize) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [format!("node-{node:05}")]});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}})
}

fn tolerations() -> Value {
    let tolerate = |key: &str, effect: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect});
    json!([
        tolerate("not-ready", "NoExecute"),
        tolerate("unreachable", "NoExecute"),
        tolerate("disk-pressure", "NoSchedule"),
        tolerate("memory-pressure", "NoSchedule"),
        tolerate("pid-pressure", "NoSchedule"),
        tolerate("unschedulable", "NoSchedule")
    ])
}

/// Two managers, each owning three fields under each of these.
fn managed_fields(parts: &[&str]) -> Value {
    let fields: serde_json::Map<String, Value> = parts
        .iter()
        .map(|part| {
            let owned =
                (0..3).map(|field| (format!("f:{part}-field-{field}"), json!({".": {}, "f:name": {}, "f:value": {}})));
            (format!("f:{part}"), Value::Object(owned.collect()))
        })
        .collect();
    let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-11-10T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
    json!([entry("kubelet", "Update"), entry("kube-controller-manager", "Update")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_size_that_clusters_have() {
        let (node, pod) = (node(7).len(), pod(7, 10).len());
        assert!((8_000..40_000).contains(&node), "a node has {node} bytes");
        assert!((8_000..40_000).contains(&pod), "a pod has {pod} bytes");
    }
}

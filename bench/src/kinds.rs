//! A fleet as people have it: 36 combinations of disk, GPU, zone and architecture, and ten patches that select by them.

use serde_json::{Value, json};

/// The labels that the patches select by.
pub const SELECTED: [(&str, &str); 10] = [
    ("disk", "ssd"),
    ("disk", "nvme"),
    ("disk", "hdd"),
    ("gpu", "true"),
    ("zone", "a"),
    ("zone", "b"),
    ("zone", "c"),
    ("kubernetes.io/arch", "arm64"),
    ("kubernetes.io/arch", "amd64"),
    ("kubernetes.io/os", "linux"),
];

/// The labels of a node.
pub fn labels(number: u32) -> Vec<(&'static str, String)> {
    let pick = |values: &[&str], by: u32| values[(number / by) as usize % values.len()].to_owned();
    vec![
        ("disk", pick(&["ssd", "nvme", "hdd"], 1)),
        ("zone", pick(&["a", "b", "c"], 3)),
        ("kubernetes.io/arch", pick(&["amd64", "arm64"], 9)),
        ("gpu", pick(&["false", "true"], 18)),
    ]
}

/// A node with its labels, and nothing else.
pub fn node(number: u32, labels: impl IntoIterator<Item = (&'static str, String)>) -> Value {
    let mut all = json!({
        "kubernetes.io/hostname": format!("node-{number:05}"), "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.4xlarge", "topology.kubernetes.io/region": "eu-north-1",
    });
    for (key, value) in labels {
        all[key] = Value::from(value);
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number:05}"), "labels": all}})
}

/// A patch of about 400 bytes.
pub fn patch(number: usize, (key, value): (&str, &str)) -> Value {
    json!({"selector": {"matchLabels": {key: value}}, "priority": number, "patch": {
    "metadata": {"annotations": {format!("tier-{number}"): "yes"}},
    "spec": {
        "containers": [{"name": "c0", "env": [{"name": format!("PATCH_{number}"), "value": "on"},
            {"name": "LOCAL_CACHE_SIZE", "value": format!("{number}Ti")}],
            "resources": {"limits": {"memory": format!("{}Gi", number + 1)}}}],
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}],
    }}})
}

use std::collections::BTreeSet;

use super::{written::is_quantity, *};

fn kind(text: &str) -> String {
    format!("kinds:\n  - name: a\n    count: 3\n{text}")
}

fn complaint(text: &str) -> String {
    Fleet::from_yaml(text, "f.yaml").unwrap_err().to_string()
}

#[test]
fn the_example_is_what_it_promises() {
    let fleet = Fleet::example().unwrap();
    let nodes = fleet.nodes();
    assert_eq!((fleet.len(), nodes.len()), (60, 60));
    let having = |key: &str, value: &str| nodes.iter().filter(|node| node["metadata"]["labels"][key] == value).count();
    for (key, values) in [
        ("disk-type", &["large", "standard"][..]),
        ("arch", &["x86", "arm"]),
        ("location", &["beijing", "hangzhou", "shanghai"]),
        ("apps.openyurt.io/nodepool", &["beijing", "hangzhou", "shanghai"]),
        ("topology.kubernetes.io/zone", &["beijing-a", "hangzhou-a", "shanghai-a"]),
        ("accelerator", &["nvidia-tesla-v100"]),
        ("node-role/nydus-storage", &["large"]),
    ] {
        for value in values {
            assert!(having(key, value) >= 4, "{key}={value}: {}", having(key, value));
        }
    }
    let names: BTreeSet<_> = nodes.iter().map(|node| node["metadata"]["name"].to_string()).collect();
    let addresses: BTreeSet<_> = nodes.iter().map(|node| node["status"]["addresses"][0].to_string()).collect();
    assert_eq!((names.len(), addresses.len()), (60, 60));
    for node in nodes {
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["arch"] == "arm", labels["kubernetes.io/arch"] == "arm64", "{node}");
        assert_eq!(labels["location"], labels["apps.openyurt.io/nodepool"]);
        serde_json::from_value::<Node>(node).unwrap();
    }
}

#[test]
fn even_a_small_fleet_is_in_all_locations() {
    for (n, each) in [(6, 2), (60, 20), (600, 200)] {
        let nodes = Fleet::example().unwrap().scaled_to(n).nodes();
        for location in ["beijing", "hangzhou", "shanghai"] {
            let there = nodes.iter().filter(|node| node["metadata"]["labels"]["location"] == location).count();
            assert_eq!(there, each, "{location} of {n}");
        }
    }
}

#[test]
fn lists_are_taken_in_turn_and_names_are_stable() {
    let fleet = Fleet::from_yaml(&kind("    labels: {l: [x, y], fixed: z}\n"), "f").unwrap();
    let nodes = fleet.nodes();
    let seen: Vec<_> =
        nodes.iter().map(|node| (node["metadata"]["name"].clone(), node["metadata"]["labels"]["l"].clone())).collect();
    assert_eq!(seen, [("a-000".into(), "x".into()), ("a-001".into(), "y".into()), ("a-002".into(), json!("x"))]);
    assert_eq!(nodes, fleet.nodes());
}

#[test]
fn scaling_keeps_proportions_and_every_kind() {
    let fleet = Fleet::example().unwrap();
    for n in [0, 1, 5, 6, 7, 59, 60, 61, 1000, 5000] {
        let scaled = fleet.scaled_to(n);
        assert_eq!(scaled.len(), n, "{n}");
        if n >= fleet.kinds.len() {
            assert!(scaled.kinds.iter().all(|kind| kind.count > 0), "{n}");
        }
    }
    assert_eq!(fleet.scaled_to(60), fleet);
    let tenfold = fleet.scaled_to(600);
    assert!(fleet.kinds.iter().zip(&tenfold.kinds).all(|(one, ten)| one.count * 10 == ten.count));
}

#[test]
fn mistakes_are_named_with_file_line_and_field() {
    for (text, expected) in [
        (kind("    labels: {l: 'not a value'}\n"), "f.yaml:4: labels.l: `not a value` is no label value"),
        (kind("    labels:\n      ok: x\n      l: []\n"), "f.yaml:6: labels.l: is an empty list"),
        (kind("    capacity:\n      cpu: lots\n"), "f.yaml:5: capacity.cpu: `lots` is no quantity"),
        (kind("    taints:\n      - {key: k, effect: Never}\n"), "f.yaml:5: taints.effect: `Never` must be NoSchedule"),
        (kind("    colour: red\n"), "f.yaml:4: colour: "),
        (kind("  - name: a\n    count: 1\n"), "f.yaml:4: name: a is there twice"),
        ("kinds:\n  - name: A\n    count: 1\n".into(), "f.yaml:2: name: `A` must be lower case"),
        ("kinds:\n  - name: a\n    count: 200000\n".into(), "f.yaml:3: count: 200000 is more than"),
        ("kinds: []\n".into(), "f.yaml:0: kinds: is empty"),
    ] {
        let message = complaint(&text);
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
        assert!(!message.contains('\n'), "{message}");
    }
    for text in [
        "",
        "kinds:\n  - name: a\n    count: minus\n",
        "kinds:\n  - count: 1\n",
        "{",
        "kinds:\n  - name: a\n    count: 1\n    labels: {l: {}}\n",
    ] {
        let message = complaint(text);
        assert!(message.starts_with("f.yaml:") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn quantities() {
    for good in ["8", "500m", "32Gi", "1.5", "2k"] {
        assert!(is_quantity(good), "{good}");
    }
    for bad in ["", "Gi", "-1", "1gi", "1 Gi", "1e400x"] {
        assert!(!is_quantity(bad), "{bad}");
    }
}

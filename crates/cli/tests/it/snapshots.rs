//! What `plan`, `explain` and `diff` show for every example that renders a template, word for word.
//!
//! After a change that is meant, write them anew with `DAPPLE_BLESS=1 cargo test -p dapple --test it snapshots`, and read
//! the difference.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{DAPPLE, text};

/// Compares what a command prints, and how it ends, with what is kept under this name.
fn check(name: &str, args: &[&str]) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let nodes = ["--nodes", "fleets/example.yaml"];
    let output =
        Command::new(DAPPLE).args(args).args(nodes).current_dir(repository).stdin(Stdio::null()).output().unwrap();
    compare(name, args, &output);
}

/// Compares what a command printed, and how it ended, with what is kept under this name.
pub(crate) fn compare(name: &str, args: &[&str], output: &Output) {
    let (code, printed) = (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr));
    let shown = format!("$ dapple {}\n{printed}exit code {code}\n", args.join(" "));
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("DAPPLE_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &shown).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == shown, "{} says otherwise:\n{shown}", file.display());
}

#[test]
fn plans() {
    for family in ["daemonset", "group", "pool"] {
        check(&format!("plan-{family}"), &["plan", "-f", &format!("examples/{family}")]);
    }
    check("plan-daemonset-wide", &["plan", "-f", "examples/daemonset/nydus.yaml", "-o", "wide"]);
    check("plan-daemonset-yaml", &["plan", "-f", "examples/daemonset/nydus.yaml", "-o", "yaml"]);
    check("plan-name", &["plan", "-f", "examples", "-o", "name"]);
}

/// Every workload, a node that rules change, and one of another variant.
const WORKLOADS: [(&str, &str, &str, &str); 8] = [
    ("ds/nydus-daemonset", "daemonset", "gpu-000", "standard-arm-000"),
    ("ds/gpu-monitor", "daemonset", "gpu-000", "large-arm-000"),
    ("ds/large-disk", "daemonset", "gpu-000", "standard-arm-000"),
    ("deploy/nginx", "group", "gpu-000", "gpu-001"),
    ("yad/yurtappdaemon-demo", "pool", "gpu-000", "gpu-001"),
    ("yas/yurtappset-demo", "pool", "gpu-000", "gpu-002"),
    ("yas/yurtappset-demo-3", "pool", "gpu-000", "gpu-001"),
    ("yas/yurtappset-demo-4", "pool", "gpu-000", "gpu-001"),
];

#[test]
fn explanations() {
    for (target, family, node, _) in WORKLOADS {
        let folder = format!("examples/{family}");
        check(&format!("explain-{}", target.replace('/', "-")), &["explain", target, "--node", node, "-f", &folder]);
    }
    let base = ["explain", "ds/nydus-daemonset", "--node", "gpu-000", "-f", "examples/daemonset", "--field"];
    for (name, field) in [
        ("variable", "spec.containers[0].env[LOCAL_CACHE_SIZE]"),
        ("untouched", "spec.containers[nydusd].image"),
        ("whole", "spec"),
    ] {
        check(&format!("explain-field-{name}"), &[&base[..], &[field]].concat());
    }
    let replicas = ["explain", "yas/yurtappset-demo-4", "--node", "gpu-000", "-f", "examples/pool", "--field"];
    check("explain-field-overruled", &[&replicas[..], &["spec.replicas"]].concat());
    check("explain-field-yaml", &[&replicas[..], &["spec.containers[nginx].image", "-o", "yaml"]].concat());
}

#[test]
fn differences() {
    for (target, family, left, right) in WORKLOADS {
        let folder = format!("examples/{family}");
        check(&format!("diff-{}", target.replace('/', "-")), &["diff", target, left, right, "-f", &folder]);
    }
    check("diff-same", &["diff", "ds/nydus-daemonset", "gpu-000", "gpu-001", "-f", "examples/daemonset"]);
}

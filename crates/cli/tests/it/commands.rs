//! Commands that need no cluster, and errors that name the remedy.

use crate::support::{dapple, dapple_in, text};

#[test]
fn help_names_every_command() {
    let help = text(&dapple(&["--help"]).stdout);
    for command in [
        "up",
        "down",
        "status",
        "plan",
        "get",
        "rollout",
        "adopt",
        "tenancy",
        "manager",
        "extender",
        "crds",
        "completion",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command} is not in\n{help}");
    }
}

/// The simulator's mistakes are for its own builds: the program is built beside these tests, of the same parts.
#[test]
fn the_program_has_no_deliberate_mistakes_in_it() {
    assert!(!dapple_plan::mutant::can_be_made(), "built with the simulator; build it alone: cargo build -p dapple");
}

#[test]
fn crds_prints_what_is_checked_in() {
    let printed = text(&dapple(&["crds"]).stdout);
    let folder = tempfile::tempdir().unwrap();
    let written = dapple(&["crds", "--write", folder.path().to_str().unwrap()]);
    assert!(written.status.success());
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crds");
    let mut names: Vec<_> = std::fs::read_dir(config).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 10);
    for name in names {
        let checked_in = std::fs::read_to_string(std::path::Path::new(config).join(&name)).unwrap();
        assert_eq!(checked_in, std::fs::read_to_string(folder.path().join(&name)).unwrap(), "{name:?}");
        assert!(printed.contains(&checked_in), "{name:?}");
    }
}

#[test]
fn every_shell_has_a_completion() {
    for shell in ["bash", "zsh", "fish"] {
        let output = dapple(&["completion", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains("manager") && script.contains("yurtappsets"), "{shell}");
    }
}

#[test]
fn bad_input_is_named() {
    let nowhere = tempfile::tempdir().unwrap();
    let missing = nowhere.path().join("missing.yaml");
    let missing = missing.to_str().unwrap();
    for (args, parts) in [
        (vec!["up", "--name", "Not A Name"], vec!["--name", "lower-case"]),
        (vec!["up", "--nodes", "0"], vec!["--nodes", "1 to 20000"]),
        (vec!["up", "--name", "x", "--fleet", missing], vec!["missing.yaml"]),
        (vec!["manager", "--families", "teapot"], vec!["teapot", "group"]),
        (vec!["manager", "--extender-secret", "s"], vec!["--extender-listen"]),
        (
            vec!["manager", "--families", "daemonset", "--extender-listen", "127.0.0.1:0"],
            vec!["--extender-listen", "group", "--families"],
        ),
        (vec!["extender", "config", "--url", "http://here"], vec!["--url", "https://"]),
        (vec!["extender", "config", "--weight", "0"], vec!["--weight", "1..="]),
        (vec!["manager", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["up", "--kubeconfig", missing], vec!["--cluster"]),
        (vec!["manager", "--lease-duration", "1s"], vec!["--lease-duration", "3s"]),
        (vec!["up", "--cluster", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["up", "--namespace", "fleet"], vec!["--cluster"]),
        (vec!["manager", "--namespace", "No Name"], vec!["--namespace", "lower-case"]),
        (vec!["rollout", "status", "ds.apps/x"], vec!["Kubernetes' own kind", "kubectl"]),
        (vec!["rollout", "pause", "deploy/x"], vec!["deploy", "daemonset/NAME"]),
        (vec!["rollout", "resume", "ds"], vec!["daemonset/NAME"]),
        (vec!["rollout", "undo", "ds/x", "--to-revision=-1"], vec!["--to-revision"]),
        (vec!["rollout", "status", "ds/x", "--timeout", "soon"], vec!["--timeout", "5m"]),
        (vec!["rollout", "history", "ds/x", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["get", "pods"], vec!["pods", "not served"]),
        (vec!["get", "ds", "x", "-A"], vec!["--all-namespaces"]),
        (vec!["get", "yas/x", "-A"], vec!["--all-namespaces"]),
        (vec!["get", "podmarker/x", "-A"], vec!["--all-namespaces"]),
        (vec!["explain"], vec!["KIND/NAME"]),
        (vec!["explain", "podmarker"], vec!["KIND/NAME", "daemonset/agent"]),
        (vec!["explain", "podmarker", "x", "--node", "n"], vec!["PodMarker", "leave out --node and --field"]),
        (vec!["explain", "pmark/x", "-f", missing], vec!["PodMarker", "leave out -f", "`dapple plan -f`"]),
        (vec!["explain", "podmarker/x", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["diff", "podmarker/x", "a", "b"], vec!["`dapple explain podmarker/NAME`"]),
        (vec!["rollout", "status", "podmarker/x"], vec!["PodMarkers are not rolled out", "daemonset/NAME"]),
        (vec!["get", "yas/"], vec!["name is missing", "yurtappset/NAME"]),
        (vec!["rollout", "status", "np/beijing"], vec!["NodePools are not rolled out", "yurtappset/NAME"]),
        (vec!["rollout", "undo", "yad"], vec!["say which one: yurtappdaemon/NAME"]),
        (vec!["explain", "deploy/x", "--nodes", missing, "-f", missing], vec!["--node NAME"]),
        (vec!["adopt", "group"], vec!["group", "daemonset", "pool"]),
        (vec!["adopt", "pool", "--kinds", "teapots"], vec!["teapots", "nodepools, yurtappsets, yurtappdaemons"]),
        (vec!["adopt", "pool", "--kinds", "np,yas", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["adopt", "daemonset", "--kinds", "np", "--kubeconfig", missing], vec!["--kinds", "`dapple adopt pool`"]),
        (vec!["adopt", "daemonset", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["tenancy", "check", "--kubeconfig", missing], vec!["missing.yaml"]),
        (vec!["tenancy", "check", "--tenant-label", "a'b"], vec!["--tenant-label", "dapple.dev/tenant"]),
        (vec!["tenancy", "enforce", "--as", "shout"], vec!["--as", "audit", "warn", "deny"]),
    ] {
        let output = dapple_in(nowhere.path(), &args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    }
}

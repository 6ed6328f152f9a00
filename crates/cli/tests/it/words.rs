//! What people are told: in words, and never as a programmer would look at a value.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::fake::Fake;
use crate::support::{dapple, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_api_server_is_told_in_its_own_words() {
    let message = "customresourcedefinitions.apiextensions.k8s.io is forbidden: User \"eve\" cannot get it";
    let refusal = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": message, "details": {"kind": "daemonsets"}});
    let paths = [
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daemonsets.apps.kruise.io",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.apps.openyurt.io",
        "/apis/apps.kruise.io/v1beta1/namespaces/edge/daemonsets",
        "/api/v1/namespaces/dapple-system",
        "/apis/coordination.k8s.io/v1/namespaces/dapple-system/leases/dapple-manager",
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1",
        "/apis/admissionregistration.k8s.io/v1",
    ];
    let answers: BTreeMap<_, _> = paths.iter().map(|path| ((*path).to_owned(), refusal.clone())).collect();
    let folder = tempfile::tempdir().unwrap();
    let (_, kubeconfig) = Fake::start(answers, 0, folder.path()).await;
    for words in [
        &["get", "daemonset"][..],
        &["up", "--cluster", "--yes"],
        &["down", "--cluster", "--yes"],
        &["tenancy", "check"],
        &["adopt", "daemonset", "--dry-run"],
        &["adopt", "pool", "--dry-run"],
    ] {
        let output = dapple(&[words, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(message), "{words:?}: {said}");
        assert!(!said.contains("ApiError") && !said.contains("Status {"), "{words:?}: {said}");
        assert_eq!(said.matches(message).count(), 1, "{words:?}: {said}");
    }
}

/// Errors have words of their own: no message is made of an error's debug form.
#[test]
fn no_message_is_made_of_the_debug_form_of_an_error() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folders, mut looked_at, mut found) = (vec![crates.to_owned()], 0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" && name != "target" {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") {
                looked_at += 1;
                let source = std::fs::read_to_string(&path).unwrap();
                // Tests stand at the end, and may print what they like.
                let source = source.split("#[cfg(test)]").next().unwrap_or_default();
                let is_debug = |line: &&str| {
                    ["{error:?}", "{error:#?}", "{err:?}", "{source:?}", "?error", "= ?err"]
                        .iter()
                        .any(|form| line.contains(form))
                };
                found.extend(source.lines().filter(is_debug).map(|line| format!("{}: {line}", path.display())));
            }
        }
    }
    assert!(looked_at > 200, "{looked_at} files");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

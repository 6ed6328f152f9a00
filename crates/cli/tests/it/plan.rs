//! `dapple plan`, offline.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{dapple, text};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn plan(file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let fleet = repository("fleets/example.yaml");
    let mut args = vec!["plan", "-f", file.to_str().unwrap(), "--nodes", fleet.to_str().unwrap()];
    args.extend(more);
    let output = dapple(&args);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_nydus_story_is_shown_before_it_happens() {
    let (code, shown, _) = plan(&repository("examples/daemonset/nydus.yaml"), &[]);
    let expected = "DaemonSet default/nydus-daemonset

  36 nodes (edge-000, edge-001, edge-002, …): the template as it is

  24 nodes (gpu-000, gpu-001, gpu-002, …): spec.patches[0]
    @@ -5,6 +5,8 @@
       containers:
       - env:
         - name: LOCAL_CACHE_SIZE
    -      value: 500Gi
    +      value: 2Ti
    +    - name: FEATURE_GATE_LARGE_DISK
    +      value: \"true\"
         image: nydus:latest
         name: nydusd

";
    assert_eq!(shown, expected);
    assert_eq!(code, Some(1), "some nodes get something else");
}

#[test]
fn json_names_every_field_and_who_set_it() {
    let (_, shown, _) = plan(&repository("examples/daemonset"), &["-o", "json"]);
    let plans: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(plans.as_array().unwrap().len(), 3);
    let gpu = &plans[0]["variants"][1];
    assert_eq!(gpu["nodes"].as_array().unwrap().len(), 6);
    let memory = gpu["changes"].as_array().unwrap().iter().find(|change| change["after"] == "2Gi").unwrap();
    assert_eq!(memory["field"], "spec.containers[name=monitor].resources.requests.memory");
    assert_eq!((&memory["before"], &memory["setBy"]), (&"256Mi".into(), &"spec.patches[0]".into()));
}

#[test]
fn warnings_and_errors_are_told_and_concern_their_own_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("set.yaml");
    let set = |patches: &str| {
        format!(
            "apiVersion: apps.kruise.io/v1beta1\nkind: DaemonSet\nmetadata: {{name: a}}\nspec:\n  selector: {{matchLabels: {{app: a}}}}\n  \
             template: {{metadata: {{labels: {{app: a}}}}, spec: {{containers: [{{name: c, image: 'c:1'}}]}}}}\n  patches: {patches}\n"
        )
    };
    std::fs::write(&file, set("[]")).unwrap();
    assert_eq!(plan(&file, &[]).0, Some(0), "all nodes get the same");

    std::fs::write(&file, set("[{selector: {matchLabels: {no: such}}, patch: {spec: {priority: 1}}}]")).unwrap();
    let (code, shown, _) = plan(&file, &[]);
    assert!(shown.contains("warning: spec.patches[0] matches no node"), "{shown}");
    assert_eq!(code, Some(0));

    std::fs::write(&file, set("[{selector: {matchLabels: {arch: arm}}, patch: {spec: {containers: [{image: x}]}}}]"))
        .unwrap();
    let (code, shown, _) = plan(&file, &[]);
    assert!(shown.contains("an item has no \"name\"") && shown.contains("these nodes keep what they run"), "{shown}");
    assert_eq!(code, Some(2));

    std::fs::write(&file, set("7")).unwrap();
    let (code, _, said) = plan(&file, &[]);
    assert!(said.contains("set.yaml: DaemonSet a: spec.patches: invalid type"), "{said}");
    assert_eq!(code, Some(2));

    std::fs::write(&file, "a: [\n").unwrap();
    let (code, _, said) = plan(&file, &[]);
    assert!(said.contains("set.yaml") && said.contains("line"), "{said}");
    assert_eq!(code, Some(2));
}

//! `dapple plan`, `explain` and `diff` without a cluster: warnings, errors, and what machines read.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{dapple, text};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Runs a command with the example fleet, and gives its exit code, output and errors.
fn run(command: &[&str], file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let fleet = repository("fleets/example.yaml");
    let sources = ["-f", file.to_str().unwrap(), "--nodes", fleet.to_str().unwrap()];
    let output = dapple(&[command, &sources[..], more].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn plan(file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    run(&["plan"], file, more)
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

fn daemonset(patches: &str) -> String {
    format!(
        "apiVersion: apps.kruise.io/v1beta1\nkind: DaemonSet\nmetadata: {{name: a}}\nspec:\n  \
         selector: {{matchLabels: {{app: a}}}}\n  \
         template: {{metadata: {{labels: {{app: a}}}}, spec: {{containers: [{{name: c, image: 'c:1'}}]}}}}\n  \
         patches:{patches}\n"
    )
}

/// A folder with one file, and that file.
fn written(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("set.yaml");
    std::fs::write(&file, content).unwrap();
    (folder, file)
}

/// What is planned of a DaemonSet with these patches.
fn planned(patches: &str) -> (Option<i32>, String) {
    let (_folder, file) = written(daemonset(patches));
    let (code, shown, said) = plan(&file, &[]);
    assert_eq!(said, "");
    (code, shown)
}

#[test]
fn a_set_without_patches_is_the_same_everywhere() {
    let (code, shown) = planned(" []");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("the template as it is"), "{shown}");
}

#[test]
fn what_is_probably_not_meant_is_told_with_its_place() {
    let (code, shown) = planned("\n  - selector: {matchLabels: {no: such}}\n    patch: {spec: {priority: 1}}");
    assert!(shown.contains("set.yaml:8:5: spec.patches[0]: it matches no node"), "{shown}");
    assert_eq!(code, Some(0), "no node gets anything else");

    let typo =
        "\n  - selector: {}\n    patch:\n      spec:\n        containers:\n        - name: c\n          imagee: x";
    let (_, shown) = planned(typo);
    let expected = "set.yaml:13:11: spec.patches[0].patch.spec.containers[name=c].imagee: Container has no such field; \
                    did you mean \"image\"?";
    assert!(shown.contains(expected), "{shown}");

    let patch = |image: &str| {
        format!("\n  - selector: {{}}\n    patch: {{spec: {{containers: [{{name: c, image: {image}}}]}}}}")
    };
    let (_, shown) = planned(&format!("{}{}", patch("b"), patch("d")));
    let expected = "spec.patches[0]: spec.patches[1] sets spec.containers[name=c].image differently, and applies later";
    assert!(shown.contains(expected), "{shown}");
    assert!(shown.contains("spec.containers[name=c].image: spec.patches[1] overrules spec.patches[0]"), "{shown}");
}

#[test]
fn a_patch_that_does_not_apply_fails_its_own_nodes_only() {
    let (_folder, file) = written(daemonset(
        "\n  - selector: {matchLabels: {kubernetes.io/arch: arm64}}\n    patch: {spec: {containers: [{image: x}]}}",
    ));
    let (code, shown, said) = plan(&file, &[]);
    assert!(
        said.contains("set.yaml:9:")
            && said.contains("spec.patches[0].patch.spec.containers[0]: an item needs \"name\""),
        "{said}"
    );
    assert!(shown.contains("an item has no \"name\"") && shown.contains("these nodes keep what they run"), "{shown}");
    assert!(shown.contains("the template as it is"), "{shown}");
    assert_eq!(code, Some(2));
}

#[test]
fn what_would_be_refused_is_told_with_its_place() {
    let wrong = daemonset("\n  - {selector: {matchLabels: {-a: b}}, patch: {spec: {priority: 1}}}").replace(
        "spec: {containers: [{name: c, image: 'c:1'}]}",
        "spec: {restartPolicy: Never, containers: [{name: c, image: 'c:1'}]}",
    );
    let marker = "---\napiVersion: apps.kruise.io/v1alpha1\nkind: PodMarker\nmetadata: {name: m}\nspec:\n  \
                  strategy: {replicas: -1}\n  markItems: {labels: {a: b}}\n  matchRequirements: {podSelector: {}}\n";
    let (_folder, file) = written(wrong + marker);
    let (code, shown, said) = plan(&file, &[]);
    assert_eq!(code, Some(2), "{shown}{said}");
    for part in [
        "set.yaml:6:51: DaemonSet default/a: spec.template.spec.restartPolicy: ",
        "set.yaml:8:",
        "set.yaml:14:14: PodMarker default/m: spec.strategy.replicas: ",
    ] {
        assert!(said.lines().any(|line| line.starts_with("error: ") && line.contains(part)), "{part} in {said}");
    }
    assert!(said.contains("DaemonSet default/a: spec.patches[0].selector"), "{said}");
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn what_no_plan_tells_is_warned_of() {
    let marker = "apiVersion: apps.kruise.io/v1alpha1\nkind: PodMarker\nmetadata: {name: m}\nspec:\n  \
                  matchRequirements: {podSelector: {matchLabels: {a: b}}}\n  markItems: {labels: {a: b}}\n";
    let (_folder, file) = written(marker);
    let (code, shown, said) = plan(&file, &[]);
    assert_eq!(code, Some(0), "{shown}{said}");
    let warning = "warning: ";
    assert!(said.starts_with(warning) && said.contains("PodMarker default/m: spec.markItems.labels[a]: "), "{said}");
    assert!(said.contains("there is nothing to mark") && said.lines().count() == 1, "{said}");
}

#[test]
fn the_older_version_of_a_daemonset_is_judged_too() {
    let older =
        daemonset(" []").replace("v1beta1", "v1alpha1").replace("spec: {cont", "spec: {restartPolicy: Never, cont");
    let (_folder, file) = written(older.replace("  patches: []\n", ""));
    let (code, shown, said) = plan(&file, &[]);
    assert_eq!(code, Some(2), "{shown}{said}");
    let told = "set.yaml:6:51: DaemonSet default/a: spec.template.spec.restartPolicy: ";
    assert!(said.lines().any(|line| line.starts_with("error: ") && line.contains(told)), "{said}");
    // What cannot be converted is told as well.
    let (_folder, file) = written(older);
    let (code, shown, said) = plan(&file, &[]);
    assert_eq!(code, Some(2), "{shown}{said}");
    assert!(said.contains("DaemonSet default/a: spec.patches is no field of v1alpha1"), "{said}");
}

/// Files that cannot be used, and what is said about them.
#[test]
fn bad_input_is_refused_with_file_line_column_and_field() {
    let deep = format!("a: {}1{}\n", "[".repeat(300), "]".repeat(300));
    let laughs: String = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let last = n - 1;
        text + &format!(
            "a{n}: &a{n} [*a{last},*a{last},*a{last},*a{last},*a{last},*a{last},*a{last},*a{last},*a{last}]\n"
        )
    });
    for (content, parts) in [
        (
            b"apiVersion: apps.kruise.io/v1beta1\nkind: DaemonSet\n".to_vec(),
            vec!["set.yaml:1:1", "metadata.name", "needs a name"],
        ),
        (
            daemonset(" 7").into_bytes(),
            vec!["set.yaml:7:3", "DaemonSet", "spec.patches: this must be a list, and it is a number"],
        ),
        (b"a: [\n".to_vec(), vec!["set.yaml:"]),
        (b"kind: A\nkind: B\n".to_vec(), vec!["set.yaml:2:1", "kind"]),
        (b"kind: \xff\xfe\n".to_vec(), vec!["set.yaml:1:7", "UTF-8"]),
        (b"- 1\n- 2\n".to_vec(), vec!["set.yaml:1:1"]),
        (b"a: .nan\n".to_vec(), vec!["set.yaml:1:4", "a"]),
        (b"a: 123456789012345678901234567890\n".to_vec(), vec!["set.yaml:1:4", "a"]),
        (deep.into_bytes(), vec!["set.yaml:1:", "deep"]),
        (laughs.into_bytes(), vec!["set.yaml:"]),
    ] {
        let (_folder, file) = written(&content);
        let (code, shown, said) = plan(&file, &[]);
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{}", said);
        let missing: Vec<_> = parts.iter().filter(|part| !said.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} in {said}");
        assert!(said.lines().count() == 1, "{said}");
    }
}

#[test]
fn what_cannot_be_explained_says_why() {
    let file = repository("examples/daemonset");
    let explain = |command: &[&str]| {
        let (code, _, said) = run(command, &file, &[]);
        assert_eq!(code, Some(2), "{said}");
        said
    };
    for (command, part) in [
        (&["explain", "ds/nope", "--node", "gpu-000"][..], "there is no DaemonSet default/nope"),
        (&["explain", "ds/nydus-daemonset", "--node", "nope"], "has nothing for the node \"nope\""),
        (&["explain", "ds/nydus-daemonset", "--node", "edge-000"], "the taint node-role.kubernetes.io/edge:NoSchedule"),
        (&["explain", "ds/nydus-daemonset"], "--node NAME"),
        (&["explain", "pod/x"], "leave out --nodes"),
        (
            &["explain", "ds/nydus-daemonset", "--node", "gpu-000", "--field", "spec.volumes"],
            "there is no volumes in spec",
        ),
        (&["diff", "ds/nydus-daemonset", "gpu-000"], "two nodes, or --revision twice"),
        (&["diff", "ds/nydus-daemonset", "--revision", "1", "--revision", "2"], "has no revisions"),
    ] {
        let said = explain(command);
        assert!(said.contains(part), "{command:?}: {said}");
    }
}

#[test]
fn two_revisions_are_compared() {
    let revision = |number: i32, image: &str| {
        format!(
            "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata:\n  name: a-{number}\n  ownerReferences:\n  \
             - {{apiVersion: apps.kruise.io/v1beta1, kind: DaemonSet, name: a, uid: u}}\nrevision: {number}\n\
             data: {{spec: {{template: {{$patch: replace, spec: {{containers: [{{name: c, image: {image}}}]}}}}}}}}\n---\n"
        )
    };
    let (_folder, file) = written(revision(1, "c:1") + &revision(2, "c:2") + &daemonset(" []"));
    let (code, shown, said) = run(&["diff", "ds/a", "--revision", "1", "--revision", "2"], &file, &[]);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{shown}");
    for line in ["--- revision 1", "+++ revision 2", "-      - image: c:1", "+      - image: c:2"] {
        assert!(shown.lines().any(|known| known == line), "{line} in {shown}");
    }
    assert!(!shown.contains("$patch"), "{shown}");
    let (code, _, said) = run(&["diff", "ds/a", "--revision", "1", "--revision", "7"], &file, &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("no revision 7; it has 1, 2"), "{said}");
}

/// Kinds in another version, misspelt fields and policies that nobody asks for do not pass in silence.
#[test]
fn what_is_not_planned_is_told() {
    let misspelt = daemonset(" []").replace("patches:", "patchs:");
    let old = daemonset(" []")
        .replace("v1beta1", "v1alpha1")
        .replace("  patches: []\n", "")
        .replace("name: a}", "name: old}");
    let newer = "apiVersion: apps.openyurt.io/v1beta1\nkind: YurtAppSet\nmetadata: {name: newer}\nspec: {}\n";
    let (_folder, file) = written(format!("{misspelt}---\n{newer}---\n{old}"));
    let (code, shown, said) = plan(&file, &[]);
    assert_eq!(code, Some(0), "{said}");
    let expected = "set.yaml:9:1: YurtAppSet default/newer is not planned: apps.openyurt.io/v1beta1 is not";
    assert!(said.contains(expected), "{said}");
    assert!(shown.contains("DaemonSet default/old"), "as it would be stored: {shown}");
    let (_folder, file) = written(daemonset(" [{patch: {}, selector: {}, prioritty: 3}]"));
    let (_, _, said) = plan(&file, &[]);
    assert!(said.contains("DaemonSet default/a spec.patches[0].prioritty: there is no such field"), "{said}");
    let (code, _, said) = plan(&repository("examples/group/ranges.yaml"), &[]);
    assert!(said.contains("PropagationPolicy default/nginx-ranges metadata.name: no workload asks for it"), "{said}");
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = plan(&repository("examples/marker"), &[]);
    assert!(said.contains("nothing to plan in"), "{said}");
    assert_eq!(code, Some(2), "{said}");
}

/// What a rule took away, and lists.
#[test]
fn any_field_can_be_explained() {
    let patch = " [{selector: {}, patch: {spec: {containers: [{name: c, image: null}]}}}]";
    let (_folder, file) = written(daemonset(patch));
    let field = |name: &str| {
        let (code, shown, said) = run(&["explain", "ds/a", "--node", "gpu-000", "--field", name], &file, &[]);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{name}");
        shown
    };
    let image = field("spec.containers[c].image");
    assert!(image.contains("spec.containers[c].image: not there any more"), "{image}");
    assert!(image.contains("set by spec.patches[0]") && image.contains("the template has \"c:1\""), "{image}");
    assert!(field("spec.containers").contains("  - name: c\n"), "{}", field("spec.containers"));
}

/// Names and keys are whatever somebody wrote: they must not steer a terminal.
#[test]
fn nothing_that_is_printed_steers_a_terminal() {
    let (_folder, file) = written(
        daemonset(" [{selector: {}, patch: {spec: {\"a\\e[2J\\u202e\": 1}}}]")
            .replace("name: a", "name: \"a\\e]0;x\\a\""),
    );
    let (_, shown, said) = plan(&file, &[]);
    assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']) && !said.contains('\u{1b}'), "{shown:?} {said:?}");
    assert!(shown.contains("a\\u{1b}]0;x\\u{7}"), "{shown}");
}

/// A folder that links to itself has an end, and a full disk is no success.
#[test]
fn loops_of_links_end_and_what_cannot_be_written_is_told() {
    let (folder, _) = written(daemonset(" []"));
    for link in ["one", "two"] {
        std::os::unix::fs::symlink(folder.path(), folder.path().join(link)).unwrap();
    }
    assert_eq!(plan(folder.path(), &[]).0, Some(0));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let fleet = repository("fleets/example.yaml");
    let status = std::process::Command::new(crate::support::DAPPLE)
        .args(["plan", "-f", folder.path().to_str().unwrap(), "--nodes", fleet.to_str().unwrap()])
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
}

/// Rules that build on each other are no fight, and rules that undo each other are one.
#[test]
fn parts_and_fights_are_told_apart() {
    let args = |word: &str| format!("{{containerName: nginx, operator: add, value: [{word}]}}");
    let policy = format!(
        "apiVersion: groupmanagement.kubeedge.io/v1alpha1\nkind: OverridePolicy\nmetadata: {{name: nginx-overridepolicy}}\n\
         spec: {{overrideRules: [{{argsOverrider: [{}, {}]}}]}}\n",
        args("--one"),
        args("--two")
    );
    let (folder, _) = written(policy);
    for file in ["nginx.yaml", "nodegroups.yaml", "policies.yaml"] {
        let text = std::fs::read_to_string(repository("examples/group").join(file)).unwrap();
        // The first, so that the policy above takes the place of the example's.
        std::fs::write(folder.path().join(format!("a-{file}")), text).unwrap();
    }
    let (_, shown, _) = plan(folder.path(), &[]);
    assert!(!shown.contains("changes nothing"), "{shown}");
    assert!(shown.contains("argsOverrider[1] on top of"), "{shown}");

    let patch = |image: &str| {
        format!("\n  - selector: {{}}\n    patch: {{spec: {{containers: [{{name: c, image: '{image}'}}]}}}}")
    };
    let (code, shown) = planned(&format!("{}{}", patch("c:2"), patch("c:1")));
    assert!(
        shown.contains("spec.patches[0]: spec.patches[1] sets spec.containers[name=c].image differently"),
        "{shown}"
    );
    assert_eq!(code, Some(0), "every node gets the template");
}

//! `dapple plan` of OverridePolicies that are wrong, or probably not meant, and of documents that nobody knows.

use std::path::{Path, PathBuf};

use crate::support::{dapple, text};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What is planned of a file beside the example's groups and a workload that asks for the policy `p`: exit code, output and
/// errors.
fn plan(content: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  labels: \
                    {groupmanagement.kubeedge.io/required-overridepolicy: p}\nspec:\n  selector: {matchLabels: {app: \
                    web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: \
                    'web:1'}]}\n";
    std::fs::write(folder.path().join("web.yaml"), workload).unwrap();
    let groups = std::fs::read_to_string(repository("examples/group/nodegroups.yaml")).unwrap();
    std::fs::write(folder.path().join("groups.yaml"), groups).unwrap();
    std::fs::write(folder.path().join("p.yaml"), content).unwrap();
    let fleet = repository("fleets/example.yaml");
    let output = dapple(&["plan", "-f", folder.path().to_str().unwrap(), "--nodes", fleet.to_str().unwrap()]);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A policy whose only rule begins in line 6.
fn policy(rule: &str) -> String {
    format!(
        "apiVersion: groupmanagement.kubeedge.io/v1alpha1\nkind: OverridePolicy\nmetadata: {{name: p}}\nspec:\n  \
         overrideRules:\n{rule}\n"
    )
}

/// Words that only those know who read the code.
const PARSER_WORDS: [&str; 8] =
    ["invalid type", "unknown variant", "missing field", "sequence", "struct", "json pointer", "token", "serde"];

/// Whether a line says this at this place of the policy's file, in plain words.
fn says(said: &str, level: &str, place: &str, parts: &[&str]) {
    let is_it = |line: &&str| {
        line.starts_with(level)
            && line.contains(&format!("p.yaml:{place}: "))
            && parts.iter().all(|part| line.contains(part))
    };
    assert!(said.lines().any(|line| is_it(&line)), "{level} {place} {parts:?} in:\n{said}");
    assert!(PARSER_WORDS.iter().all(|word| !said.contains(word)), "{said}");
}

#[test]
fn bad_rules_are_errors_with_field_and_line() {
    let digest = "a".repeat(32);
    for (rule, place, parts) in [
        (
            "  - targetNodegroup: [beijing]\n    imageOverrider: [{component: Tag, operator: remove}]".to_owned(),
            "6:5",
            vec!["spec.overrideRules[0].targetNodegroup: there is no such field", "did you mean \"targetNodeGroup\"?"],
        ),
        (
            "  - targetNodeGroup:\n    - beijing\n    - Beijing\n    imageOverrider: [{component: Tag, operator: remove}]".to_owned(),
            "8:7",
            vec!["spec.overrideRules[0].targetNodeGroup[1]: \"Beijing\" is named already"],
        ),
        (
            format!("  - imageOverrider:\n    - component: Tag\n      operator: replace\n      value: md5:{digest}"),
            "9:7",
            vec!["spec.overrideRules[0].imageOverrider[0].value: ", "neither a tag (such as v1.2) nor a digest"],
        ),
        (
            "  - overriders:\n      imageOverrider:\n      - component: Registry\n        operator: replace\n        value: x..io".to_owned(),
            "10:9",
            vec!["spec.overrideRules[0].overriders.imageOverrider[0].value: \"x..io\" is not a registry"],
        ),
        (
            "  - imageOverrider:\n    - component: Tag\n      operator: remove\n      predicat: {path: /spec/containers/0/image}"
                .to_owned(),
            "9:7",
            vec!["spec.overrideRules[0].imageOverrider[0].predicat: there is no such field; did you mean \"predicate\"?"],
        ),
        (
            "  - commandOverrider:\n    - containerName: c\n      operator: replace\n      value: [x]".to_owned(),
            "8:7",
            vec!["spec.overrideRules[0].commandOverrider[0].operator: operator replace is not possible"],
        ),
    ] {
        let (code, shown, said) = plan(&policy(&rule));
        assert_eq!(code, Some(2), "{shown}{said}");
        says(&said, "error: ", place, &[&parts[..], &["OverridePolicy default/p"]].concat());
        assert_eq!(said.lines().count(), 1, "each once:\n{said}");
    }
}

/// What cannot even be read has its field and line too, wherever overriders stand.
#[test]
fn rules_that_cannot_be_read_have_field_and_line() {
    for (rule, place, part) in [
        (
            "  - imageOverrider:\n    - component: Tag\n      operator: drop",
            "8:7",
            "spec.overrideRules[0].imageOverrider[0].operator: \"drop\" is not possible here: write add, replace or remove",
        ),
        (
            "  - overriders:\n      argsOverrider:\n      - containerName: c\n        operator: add\n        value: x",
            "10:9",
            "spec.overrideRules[0].overriders.argsOverrider[0].value: this must be a list, and it is text",
        ),
        (
            "  - plaintext:\n    - path: /spec/hostNetwork",
            "7:7",
            "spec.overrideRules[0].plaintext[0].operator: this is required",
        ),
        (
            "  - targetNodeGroup: beijing",
            "6:5",
            "spec.overrideRules[0].targetNodeGroup: this must be a list, and it is text",
        ),
    ] {
        let (code, shown, said) = plan(&policy(rule));
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{said}");
        says(&said, "", place, &["OverridePolicy default/p", part]);
    }
}

#[test]
fn rules_that_do_not_fit_the_workload_fail_their_groups() {
    for (change, part) in [
        (
            "{path: /metadata/labels/app, operator: replace, value: other}",
            "it changes the label app, which the selector of the pods' owner needs",
        ),
        (
            "{path: /spec/nodeSelector/disk, operator: replace, value: large}",
            "/spec/nodeSelector/disk: there is no \"nodeSelector\" in /spec; it has containers",
        ),
        (
            "{path: metadata/annotations/a, operator: add, value: b}",
            "metadata/annotations/a: there is no \"annotations\" in /metadata; it has labels: add /metadata/annotations first",
        ),
        (
            "{path: /spec/containers/3/image, operator: remove}",
            "/spec/containers has no item 3: it has 1, counted from 0",
        ),
    ] {
        let (code, shown, said) = plan(&policy(&format!("  - targetNodeGroup: [beijing]\n    plaintext: [{change}]")));
        assert_eq!(code, Some(2), "{shown}{said}");
        assert!(shown.contains(part) && shown.contains("spec.overrideRules[0].plaintext[0]"), "{part} in:\n{shown}");
        assert!(shown.contains("p.yaml:7:"), "{shown}");
        assert!(PARSER_WORDS.iter().all(|word| !shown.contains(word)), "{shown}");
    }
    let digest = format!("sha256:{}", "a".repeat(64));
    let add = format!("  - imageOverrider: [{{component: Tag, operator: add, value: '{digest}'}}]");
    let (code, shown, said) = plan(&policy(&add));
    assert_eq!(code, Some(2), "{shown}{said}");
    assert!(shown.contains("web:1 has a tag, so a digest cannot be added to it: use replace"), "{shown}");
    let wrong = "  - imageOverrider: [{predicate: {path: /spec/containers/1/image}, component: Tag, operator: remove}]";
    let (code, shown, said) = plan(&policy(wrong));
    assert_eq!(code, Some(2), "{shown}{said}");
    assert!(shown.contains("there is no image at /spec/containers/1/image: /spec/containers has no item 1"), "{shown}");
}

#[test]
fn what_is_probably_not_meant_in_a_rule_is_warned_of() {
    let rule = "  - targetNodeGroup:\n    - Beijing\n    - moon\n    plaintext:\n    - path: /spec/hostNetwrk\n      \
                operator: add\n      value: true";
    let (code, shown, said) = plan(&policy(rule));
    assert_eq!(code, Some(1), "{shown}{said}");
    says(&said, "warning: ", "8:7", &["targetNodeGroup[1]: the NodeGroup \"moon\" does not exist"]);
    says(&said, "warning: ", "10:7", &["plaintext[0].path: PodSpec has no such field; did you mean \"hostNetwork\"?"]);
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// Values are needed where something is set, `update` is `replace`, and the order is image, command, args, plaintext.
#[test]
fn a_good_rule_is_planned_without_a_word() {
    let rule = "  - targetNodeGroup: [beijing]\n    plaintext:\n    - {path: spec/containers/0/args/0, operator: update, value: x}\n    \
                argsOverrider: [{containerName: c, operator: add, value: [a]}]\n    \
                imageOverrider: [{component: Registry, operator: replace, value: '[::1]:5000'}]";
    let (code, shown, said) = plan(&policy(rule));
    assert_eq!((code, said.as_str()), (Some(1), ""), "{shown}");
    assert!(shown.contains("[::1]:5000/web:1"), "{shown}");
}

#[test]
fn documents_that_nobody_knows_are_told() {
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: rockets.example.com}\n\
               spec: {group: example.com, names: {kind: Rocket, plural: rockets}}\n";
    let documents = [
        "name: nothing\nspec: {}\n",
        "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: a}\n",
        "apiVersion: groupmanagement.kubeedge.io/v1alpha1\nkind: OverridPolicy\nmetadata: {name: b}\n",
        "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: c}\n",
        "apiVersion: example.com/v1\nkind: Rocket\nmetadata: {name: d}\n",
        crd,
        "kind: NodeGroup\nmetadata: {name: e}\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f}\n",
        "apiVersion: v1\nkind: List\nitems: [{metadata: {name: g}}]\n",
    ];
    let good = policy("  - imageOverrider: [{component: Tag, operator: replace, value: v2}]");
    let (code, shown, said) = plan(&format!("{}---\n{good}", documents.join("---\n")));
    assert_eq!(code, Some(1), "{shown}{said}");
    for (place, part) in [
        ("1:1", "this document has no kind, so it is not planned"),
        (
            "5:1",
            "Deploymnt default/a is not planned: neither Kubernetes nor dapple has the kind Deploymnt of apps/v1; did you mean \"Deployment\"?",
        ),
        ("9:1", "the kind OverridPolicy of groupmanagement.kubeedge.io/v1alpha1; did you mean \"OverridePolicy\"?"),
        ("13:1", "Boat default/c is not planned: neither Kubernetes nor dapple has the kind Boat of example.com/v1"),
        ("25:1", "NodeGroup default/e is not planned: it has no apiVersion"),
        ("34:9", "this document has no kind"),
    ] {
        says(&said, "warning: ", place, &[part]);
    }
    assert_eq!(said.lines().count(), 6, "{said}");
}

//! The tables of objects and what is to be said of them, applied by kubectl to a real API server that asks the webhooks
//! of the real program. What is said is all that is said.

use std::path::Path;
use std::process::Output;

use dapple_control::install::apply;
use serde_json::{Value, json};

use crate::support::text;
use crate::webhooks::Hooked;

/// What is to be said of an object.
const EXPECT: &str = "dapple.dev/expect";
/// The same, where the cluster knows for sure what the rules only suspect.
const EXPECT_OF_CLUSTER: &str = "dapple.dev/expect-of-cluster";
/// What the API server says by itself of one that its schema refuses, so that no webhook is asked.
const SCHEMA: &str = "dapple.dev/schema";

/// Every document of a table.
fn table(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// What kubectl said of an object.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    warnings: Vec<String>,
    /// Why it was refused; nothing if it was not.
    causes: Vec<String>,
}

impl Said {
    fn of(output: &Output) -> Self {
        let all = text(&output.stderr);
        let (warnings, rest): (Vec<&str>, Vec<&str>) = all.lines().partition(|line| line.starts_with("Warning: "));
        let warnings = warnings.iter().map(|line| line["Warning: ".len()..].to_owned()).collect();
        if output.status.success() {
            assert!(rest.is_empty(), "it was taken, and kubectl said {rest:?}");
            return Self { warnings, causes: Vec::new() };
        }
        // One cause is in the first line, several are listed.
        let first = rest.join(" ");
        let only = first.split_once(" is invalid: ").map_or(first.as_str(), |(_, cause)| cause);
        let items: Vec<&str> = rest.iter().filter_map(|line| line.strip_prefix("* ")).collect();
        let causes = if items.is_empty() { vec![only.trim()] } else { items };
        // What is said of no field is that the schema's rules were not looked at, where its types do not fit.
        let causes = causes.into_iter().filter(|cause| !cause.starts_with("<nil>: ")).map(without_preface).collect();
        Self { warnings, causes }
    }
}

/// What does not fit the schema's types or lists is told as the failure of an apply, with a path that begins with a dot.
fn without_preface(cause: &str) -> String {
    let field = cause.starts_with("Error from server").then(|| cause.split_once("): .")).flatten();
    field.map_or(cause, |(_, field)| field).to_owned()
}

/// Whether these are the ones that are expected, and no others.
fn are(found: &[String], expected: &[&str], fits: impl Fn(&str, &str) -> bool) -> bool {
    found.len() == expected.len()
        && found.iter().all(|found| expected.iter().any(|expected| fits(found, expected)))
        && expected.iter().all(|expected| found.iter().any(|found| fits(found, expected)))
}

/// Whether a cause is about the very field, and says this of it.
fn is_cause(found: &str, expected: &str) -> bool {
    let Some((field, part)) = expected.split_once(": ") else { return false };
    found.strip_prefix(field).and_then(|rest| rest.strip_prefix(": ")).is_some_and(|rest| rest.contains(part))
}

/// What kubectl said of a case is what was expected, and no more.
fn holds(expect: &str, schema: Option<&str>, said: &Said) -> bool {
    if let Some(reasons) = schema.or(expect.strip_prefix("refused: ")) {
        return are(&said.causes, &reasons.split(" | ").collect::<Vec<_>>(), is_cause);
    }
    let warnings: Vec<&str> = expect.strip_prefix("warned: ").map_or(Vec::new(), |parts| parts.split(" | ").collect());
    (expect == "accepted" || !warnings.is_empty())
        && said.causes.is_empty()
        && are(&said.warnings, &warnings, |found, part| found.contains(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_wrong_gets_in() {
    let hooked = Hooked::start().await;
    surround(&hooked).await;
    let manager = hooked.replica();
    hooked.asked().await;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut failures = Vec::new();
    let mut count = 0;
    for file in [
        "cli/tests/admission/daemonset.yaml",
        "cli/tests/admission/group.yaml",
        "cli/tests/admission/pool.yaml",
        "edit/tests/admission/daemonset.yaml",
        "edit/tests/admission/marker.yaml",
        "edit/tests/admission/group.yaml",
        "edit/tests/admission/pool.yaml",
    ] {
        for case in table(&repository.join("crates").join(file)) {
            let annotation = |name: &str| case["metadata"]["annotations"][name].as_str();
            let (expect, schema) =
                (annotation(EXPECT_OF_CLUSTER).or(annotation(EXPECT)).unwrap_or_default(), annotation(SCHEMA));
            let output = hooked.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &case.to_string());
            let said = Said::of(&output);
            if !holds(expect, schema, &said) {
                let name = format!("{} {}", case["kind"], case["metadata"]["name"]);
                failures.push(format!("{file}: {name}\n  expected {expect} {schema:?}\n  found {said:#?}"));
            }
            count += 1;
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}\n{}", failures.len(), failures.join("\n\n"), manager.log_text());
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

/// Has in the cluster what the tables of its own rules name, so that nothing is to be said of what is missing.
async fn surround(hooked: &Hooked) {
    let object = |version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    for name in ["a", "beijing", "hangzhou"] {
        let spec = json!({"matchLabels": {"group": name}});
        let group = object("groupmanagement.kubeedge.io/v1alpha1", "NodeGroup", name, spec);
        apply(&hooked.client, &group).await.unwrap();
    }
    for name in ["beijing", "hangzhou", "shanghai"] {
        let pool = object("apps.openyurt.io/v1beta1", "NodePool", name, json!({"type": "Edge"}));
        apply(&hooked.client, &pool).await.unwrap();
    }
}

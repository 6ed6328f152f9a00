//! Every case, on both servers.

use std::path::Path;

use dapple_sim::server::Server;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::case::{Case, Side};
use crate::normal::normal;

/// Cases that run at once. Watches take their time.
const AT_ONCE: usize = 8;

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| -> Vec<Case> {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    // One case can be asked for by a part of its name.
    let wanted = std::env::var("CASE").unwrap_or_default();
    files.iter().flat_map(read).filter(|case| case.name.contains(&wanted)).collect()
}

/// A namespace of the case's own, named after it.
fn namespace(case: &Case) -> String {
    let name: String =
        case.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let name: String = name.to_lowercase().chars().take(40).collect();
    name.trim_matches('-').to_owned()
}

/// Where two answers differ.
fn differences(real: &Value, memory: &Value, path: &str, found: &mut Vec<String>) {
    match (real, memory) {
        (Value::Object(left), Value::Object(right)) => {
            for name in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
                let of = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or(json!("(none)"));
                differences(&of(left), &of(right), &format!("{path}/{name}"), found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(left, right, &format!("{path}/{index}"), found);
            }
        }
        _ if real == memory => {}
        _ => found.push(format!("  {path}\n    real:   {real}\n    memory: {memory}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_say_the_same() {
    let cluster = dapple_testbed::shared().await.expect("the shared cluster starts");
    let client = cluster.client().await.unwrap();
    dapple_control::install::install_crds(&client).await.expect("our CRDs are installed");
    let real = &Side { client, memory: None };
    let cases = cases();
    let checked = cases.iter().map(|case| async move {
        let server = Server::new(jiff::Timestamp::now, 1);
        let memory = Side { client: server.client(), memory: Some(server) };
        let name = namespace(case);
        let (real, memory) = tokio::join!(real.run(case, &name), memory.run(case, &name));
        let (real, memory) = (normal(&case.steps, &real), normal(&case.steps, &memory));
        let mut wrong = Vec::new();
        for (index, step) in case.steps.iter().enumerate().filter(|(_, step)| !step.played) {
            let mut found = Vec::new();
            differences(&real[index], &memory[index], "", &mut found);
            let about = format!("case {:?}, step {}: {}", case.name, index + 1, step.act);
            wrong.extend((!found.is_empty()).then(|| format!("{about}\n{}", found.join("\n"))));
        }
        wrong
    });
    let wrong: Vec<String> = stream::iter(checked).buffer_unordered(AT_ONCE).concat().await;
    assert!(wrong.is_empty(), "{} differences in {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

//! Each rule of strategic merge patch as a case, put to us and to Kubernetes.

use std::io::Write;
use std::process::{Command, Stdio};

use dapple_edit::merge::patch_template;
use serde_json::{Value, json};

use crate::differential::oracle;

#[test]
fn every_case_holds_here_and_in_kubernetes() {
    let cases: Vec<Value> = serde_saphyr::from_str(include_str!("../cases/merge.yaml")).unwrap();
    assert!(cases.len() >= 35, "only {} cases", cases.len());
    let mut go = Command::new(oracle()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut questions = go.stdin.take().unwrap();
    for case in &cases {
        writeln!(questions, "{}", json!({"original": case["template"], "patch": case["patch"]})).unwrap();
    }
    drop(questions);
    let answers = String::from_utf8(go.wait_with_output().unwrap().stdout).unwrap();
    for (case, answer) in cases.iter().zip(answers.lines()) {
        let (name, theirs) = (&case["case"], serde_json::from_str::<Value>(answer).unwrap());
        let mut ours = case["template"].clone();
        let outcome = patch_template(&mut ours, &case["patch"]);
        match case["refused"].as_str() {
            None => {
                assert_eq!(outcome, Ok(()), "{name}");
                assert_eq!(ours, case["result"], "{name}: ours");
                // What is newer than the tables merges here alone, and is refused there for no other reason.
                match case["upstream"].as_str() {
                    None => assert_eq!(theirs["result"], case["result"], "{name}: Kubernetes'"),
                    Some(why) => assert!(theirs["error"].as_str().is_some_and(|error| error.contains(why)), "{theirs}"),
                }
            }
            Some(part) => {
                let message = outcome.expect_err("it is refused").to_string();
                assert!(message.contains(part), "{name}: {message}");
                assert!(theirs["error"].is_string(), "{name}: Kubernetes says {theirs}");
            }
        }
    }
    assert_eq!(answers.lines().count(), cases.len());
}

//! The same templates and patches to us and to Go's `strategicpatch`: equal results, or refused by both. What Go refuses as
//! unknown is ours alone.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use dapple_edit::merge::patch_template;
use serde_json::{Value, json};

use crate::generate::pair;

/// How many pairs a test run compares; `DAPPLE_PAIRS` sets another number for a longer run.
const PAIRS: u64 = 200_000;
/// Where a test run begins. The same for everyone, so that a failure is the change's and not chance's; a longer run begins
/// elsewhere with `DAPPLE_SEED=<number>` or `DAPPLE_SEED=random`.
const SEED: u64 = 1;

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) if text == "random" => fastrand::u64(..),
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, and must be a number or \"random\"")),
        Err(_) => default,
    }
}

/// Kubernetes' own implementation, built once. Its module set is pinned beside it.
pub(crate) fn oracle() -> &'static Path {
    static ORACLE: OnceLock<PathBuf> = OnceLock::new();
    ORACLE.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("strategic-merge-oracle");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle"))
            .env("CGO_ENABLED", "0")
            .output()
            .expect("Go is installed");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

#[test]
fn results_equal_those_of_kubernetes() {
    let (seed, pairs) = (setting("DAPPLE_SEED", SEED), setting("DAPPLE_PAIRS", PAIRS));
    println!("seed {seed}; DAPPLE_SEED={seed} repeats this run");
    let mut go =
        Command::new(oracle()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
    let mut questions = BufWriter::new(go.stdin.take().unwrap());
    let asker = std::thread::spawn(move || {
        for number in 0..pairs {
            let (template, patch) = pair(seed.wrapping_add(number));
            writeln!(questions, "{}", json!({"original": template, "patch": patch})).unwrap();
        }
    });
    let (mut merged, mut refused, mut newer, mut wrong) = (0u64, 0u64, 0u64, Vec::new());
    // What Go's tables lack it cannot merge; here it may be newer than the tables.
    let is_unknown =
        |theirs: &Value| theirs["error"].as_str().is_some_and(|it| it.contains("unable to find api field"));
    for (number, line) in (0..pairs).zip(BufReader::new(go.stdout.take().unwrap()).lines()) {
        let theirs: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (template, patch) = pair(seed.wrapping_add(number));
        let mut ours = template.clone();
        match (patch_template(&mut ours, &patch), theirs.get("result")) {
            (Ok(()), Some(result)) if *result == ours => merged += 1,
            (Err(_), None) => refused += 1,
            (Ok(()), None) if is_unknown(&theirs) => newer += 1,
            (outcome, _) if wrong.len() < 5 => wrong.push(format!(
                "seed {}\ntemplate {template}\npatch    {patch}\nours     {outcome:?} {ours}\ntheirs   {theirs}",
                seed.wrapping_add(number)
            )),
            _ => wrong.push(String::new()),
        }
    }
    asker.join().unwrap();
    go.wait().unwrap();
    println!("{merged} merged alike, {refused} refused by both, {newer} merged here alone");
    assert!(wrong.is_empty(), "{} of {pairs} differ:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n\n"));
    assert_eq!(merged + refused + newer, pairs);
    assert!(
        merged > pairs / 3 && refused > pairs / 100 && newer < pairs / 20,
        "the pairs say too little: {merged} merged, {refused} refused, {newer} merged here alone"
    );
}

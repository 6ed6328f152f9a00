//! The same templates and patches to us and to Go's `strategicpatch`: equal results, or refused by both.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use dapple_edit::merge::patch_template;
use serde_json::{Value, json};

use crate::generate::pair;

const PAIRS: u64 = 200_000;

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
    let seed =
        std::env::var("DAPPLE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}; DAPPLE_SEED={seed} repeats this run");
    let mut go =
        Command::new(oracle()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
    let mut questions = BufWriter::new(go.stdin.take().unwrap());
    let asker = std::thread::spawn(move || {
        for number in 0..PAIRS {
            let (template, patch) = pair(seed.wrapping_add(number));
            writeln!(questions, "{}", json!({"original": template, "patch": patch})).unwrap();
        }
    });
    let (mut merged, mut refused, mut wrong) = (0u64, 0u64, Vec::new());
    for (number, line) in (0..PAIRS).zip(BufReader::new(go.stdout.take().unwrap()).lines()) {
        let theirs: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (template, patch) = pair(seed.wrapping_add(number));
        let mut ours = template.clone();
        match (patch_template(&mut ours, &patch), theirs.get("result")) {
            (Ok(()), Some(result)) if *result == ours => merged += 1,
            (Err(_), None) => refused += 1,
            (outcome, _) if wrong.len() < 5 => wrong.push(format!(
                "seed {}\ntemplate {template}\npatch    {patch}\nours     {outcome:?} {ours}\ntheirs   {theirs}",
                seed.wrapping_add(number)
            )),
            _ => wrong.push(String::new()),
        }
    }
    asker.join().unwrap();
    go.wait().unwrap();
    println!("{merged} merged alike, {refused} refused by both");
    assert!(wrong.is_empty(), "{} of {PAIRS} differ:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n\n"));
    assert_eq!(merged + refused, PAIRS);
    assert!(
        merged > PAIRS / 3 && refused > PAIRS / 100,
        "the pairs say too little: {merged} merged, {refused} refused"
    );
}

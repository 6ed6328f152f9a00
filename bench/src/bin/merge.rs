//! Strategic merge patch, beside Kubernetes' own in Go: the same templates and patches, in one run.
//!
//! `value` is what dapple does: template and patch are JSON values already, one copy is patched. `bytes` is what Go's
//! function does: parse both, patch, and write the result.

use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::objects::pod_template;
use dapple_edit::document::Document;
use dapple_edit::edit::{Change, Edit, Source};
use dapple_edit::merge::patch_template;
use dapple_edit::render::{render, render_plain};
use serde_json::{Value, json};

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: u32 = 2_000;
/// A core that has slept is slow at first, as ours has while Go was measured. Go gets as long.
const WARM_UP: Duration = Duration::from_millis(300);
/// Ours may take this part of Go's time.
const GOAL: f64 = 0.1;
/// And no longer than this.
const LIMIT: Duration = Duration::from_micros(20);
/// Saying who set what may cost this much.
const PROVENANCE_GOAL: f64 = 2.0;

fn main() -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {"tier": "large"}}, "spec": {"containers": [{"name": "c0", "env": [
        {"name": "LOCAL_CACHE_SIZE", "value": "2Ti"}, {"name": "FEATURE_GATE_LARGE_DISK", "value": "true"}],
        "resources": {"limits": {"memory": "4Gi"}, "requests": {"memory": "2Gi", "cpu": "500m"}},
        "volumeMounts": [{"name": "cache", "mountPath": "/var/cache/large", "readOnly": false}]}],
        "volumes": [{"name": "cache", "hostPath": {"path": "/data/cache", "type": "DirectoryOrCreate"}}],
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "storage", "effect": "NoSchedule"}]}});
    println!("patch of {} bytes, {ROUNDS} rounds", patch.to_string().len());
    println!(
        "{:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}",
        "template", "go µs", "bytes µs", "ratio", "value µs", "ratio", "provenance"
    );
    let mut missed = Vec::new();
    for containers in [3, 20] {
        let template = pod_template(containers);
        let go = go_time(&template, &patch)?;
        let bytes = bytes_time(&template.to_string(), &patch.to_string())?;
        let value = value_time(&template, &patch)?;
        let edit = Edit {
            source: Source { object: "bench".into(), rule: "patch".into() },
            change: Change::Merge(patch.clone()),
        };
        let told = time(|| render(Document::PodTemplate, black_box(&template), &[&edit]).is_ok());
        let plain = time(|| render_plain(Document::PodTemplate, black_box(&template), &[&edit]).is_ok());
        let (ratio, provenance) = (value.as_secs_f64() / go.as_secs_f64(), told.as_secs_f64() / plain.as_secs_f64());
        println!(
            "{:<14} {:>9.1} {:>9.1} {:>9.3} {:>9.1} {ratio:>9.3} {provenance:>11.2}",
            format!("{containers} containers"),
            micros(go),
            micros(bytes),
            bytes.as_secs_f64() / go.as_secs_f64(),
            micros(value),
        );
        let mut check = |holds: bool, what: String| {
            if !holds {
                missed.push(what)
            }
        };
        check(ratio <= GOAL, format!("{containers} containers take {ratio:.3} of Go's time, goal {GOAL}"));
        check(containers > 3 || value <= LIMIT, format!("{containers} containers take {value:?}, limit {LIMIT:?}"));
        check(
            provenance <= PROVENANCE_GOAL,
            format!("provenance takes {provenance:.2} times as long, goal {PROVENANCE_GOAL}"),
        );
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The mean time of one round.
fn time(mut round: impl FnMut() -> bool) -> Duration {
    let woken = Instant::now();
    while woken.elapsed() < WARM_UP {
        black_box(round());
    }
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        black_box(round());
    }
    begun.elapsed() / ROUNDS
}

fn value_time(template: &Value, patch: &Value) -> anyhow::Result<Duration> {
    patch_template(&mut template.clone(), patch)?;
    Ok(time(|| patch_template(&mut black_box(template).clone(), black_box(patch)).is_ok()))
}

fn bytes_time(template: &str, patch: &str) -> anyhow::Result<Duration> {
    let merge = || -> anyhow::Result<String> {
        let (mut template, patch): (Value, Value) =
            (serde_json::from_str(black_box(template))?, serde_json::from_str(black_box(patch))?);
        patch_template(&mut template, &patch)?;
        Ok(template.to_string())
    };
    merge()?;
    Ok(time(|| merge().is_ok()))
}

fn go_time(template: &Value, patch: &Value) -> anyhow::Result<Duration> {
    let program = std::env::temp_dir().join(format!("dapple-merge-oracle-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/edit/oracle");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .env("CGO_ENABLED", "0")
        .status();
    ensure!(built.context("Go is needed")?.success(), "the Go program does not build");
    let mut go = Command::new(&program)
        .args(["bench", &ROUNDS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = go.stdin.take().context("a pipe")?;
    writeln!(input, "{}", json!({"original": template, "patch": patch}))?;
    drop(input);
    let output = go.wait_with_output()?;
    std::fs::remove_file(program)?;
    let nanos: u64 = String::from_utf8(output.stdout)?.trim().parse().context("nanoseconds from Go")?;
    Ok(Duration::from_nanos(nanos))
}

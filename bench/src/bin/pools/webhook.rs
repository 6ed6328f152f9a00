//! What the webhook for workloads makes of writes of others, in process: each to the workload of another pool, with a stray image.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::goals::check;
use dapple_bench::load::Times;
use dapple_edit::document::Document;
use dapple_plan::pool::put_back::{Known, Write, put_back};
use dapple_plan::pool::renderings::Renderings;
use dapple_plan::pool::revision::Revision;
use serde_json::json;

use crate::application::{Made, merge};
use crate::decisions::POOLS;

const LIMIT: Duration = Duration::from_millis(1);
const WRITES: usize = 20_000;

pub(crate) fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let made = Made::new(POOLS)?;
    let renderings = Renderings::default();
    let revisions: BTreeMap<&str, &Revision> =
        made.revisions.iter().map(|known| (known.name.as_str(), known)).collect();
    let revision = |name: &str| revisions.get(name).map(|known| Revision::clone(known));
    let mut times = Vec::new();
    for number in 0..WRITES {
        let place = number * 7919 % POOLS;
        let old = &made.workloads[place];
        let pool = made.pools.iter().find(|pool| pool.name == old.pool).context("it is of a pool")?;
        let mut new = serde_json::Value::clone(&old.object);
        let mut containers = new["spec"]["template"]["spec"]["containers"].clone();
        containers[0]["image"] = json!(format!("stray:{number}"));
        merge(&mut new, &json!({"spec": {"template": {"spec": {"containers": containers}}}}));
        let known = Known {
            application: &made.application,
            version: &made.version,
            renderings: &renderings,
            status: &made.status,
            pool,
            revision: &revision,
        };
        let write = Write { kind: Document::Deployment, old: Some(&old.object), new: &new, is_by_another: true };
        let begun = Instant::now();
        let answer = put_back(&known, write);
        times.push(begun.elapsed());
        ensure!(answer.operations.len() == 1 && answer.warnings.len() == 1, "it is put back: {answer:?}");
    }
    let times = Times::of(times);
    println!("\nwebhook: {WRITES} stray writes to workloads in {POOLS} pools, in process: {times}");
    let ratio = times.p99.as_secs_f64() / LIMIT.as_secs_f64();
    check(missed, format!("p99 / limit of {LIMIT:?}: {ratio:.3}"), ratio <= 1.0);
    let rendered = renderings.made();
    let text = format!("renderings: {rendered} (goal at most one of each of {POOLS} pools)");
    check(missed, text, rendered <= POOLS as u64);
    Ok(())
}

//! What an event costs in process, at 500 pools: from what is cached to what is written and told.

use std::time::Duration;

use anyhow::Context;
use dapple_api::pool::YurtAppSetStatus;
use dapple_bench::goals::check;
use dapple_bench::measure::cost_of;
use dapple_plan::pool::renderings::Renderings;

use crate::application::{Made, pool, replacements};

pub(crate) const POOLS: usize = 500;
/// All that a change of one pool takes, from the first look to the last.
const CHANGE_LIMIT: Duration = Duration::from_millis(5);
const ROUNDS: usize = 40;
const EVENTS: usize = 200;
/// The most pools that a YurtAppSet may name.
const MOST_POOLS: usize = 512;
const STATUS_LIMIT: usize = 200_000;

pub(crate) fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    println!("decisions: a YurtAppSet in {POOLS} pools, in process");
    let mut made = Made::new(POOLS)?;
    let anew = anew(&mut made)?;
    events(&mut made, anew, missed)?;
    changes(&mut made, missed)?;
    status(missed)
}

/// The median cost of a look of which nothing is kept.
fn anew(made: &mut Made) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..9 {
        made.renderings = Renderings::default();
        let (decision, cost) = cost_of(|| made.decide())?;
        decision?;
        times.push(cost.cpu);
    }
    Ok(median(times))
}

/// Workloads of which something is told, one after the other.
fn events(made: &mut Made, anew: Duration, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let before = made.renderings.made();
    let mut times = Vec::new();
    for number in 0..EVENTS {
        made.touch(number * 7919 % POOLS);
        let (decision, cost) = cost_of(|| made.decide())?;
        anyhow::ensure!(made.take(decision?)? == 0, "nothing is to be written");
        times.push(cost.cpu);
    }
    let took = median(times);
    let ratio = took.as_secs_f64() / anew.as_secs_f64();
    println!(
        "  a look at all anew: {:.2} ms; an event of a workload: {:.3} ms, {ratio:.3} of it",
        millis(anew),
        millis(took)
    );
    let rendered = made.renderings.made() - before;
    check(missed, format!("{EVENTS} events of workloads: {rendered} renderings (goal 0)"), rendered == 0);
    Ok(())
}

/// A replacement that says something else of one pool, until nothing is to be done any more.
fn changes(made: &mut Made, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let (mut times, mut writes, before) = (Vec::new(), 0, made.renderings.made());
    for number in 0..ROUNDS {
        let said = replacements(0, &format!("c1:{}", number + 1));
        let (spent, written) = change(made, &said)?;
        times.push(spent);
        writes += written;
    }
    let rendered = made.renderings.made() - before;
    let took = median(times);
    let ratio = took.as_secs_f64() / CHANGE_LIMIT.as_secs_f64();
    let text = format!("a change of {}: {:.2} ms, {ratio:.3} of the limit of {CHANGE_LIMIT:?}", pool(0), millis(took));
    check(missed, text, ratio <= 1.0);
    let text = format!("{ROUNDS} changes of one pool: {rendered} renderings, {writes} writes (goal {ROUNDS} of each)");
    check(missed, text, rendered == ROUNDS as u64 && writes == ROUNDS);
    Ok(())
}

/// What one change costs: the look at which its revision is made, the one that writes, the one that sees what was written, and the
/// one that finds it done.
fn change(made: &mut Made, said: &serde_json::Value) -> anyhow::Result<(Duration, usize)> {
    let (result, cost) = cost_of(|| -> anyhow::Result<()> {
        made.say(said)?;
        made.revise();
        // Once it is seen, it is asked again which is the newest.
        made.revise();
        Ok(())
    })?;
    result?;
    let (mut spent, mut writes) = (cost.cpu, 0);
    for _ in 0..3 {
        let (decision, cost) = cost_of(|| made.decide())?;
        spent += cost.cpu;
        writes += made.take(decision?)?;
        made.pass(11);
    }
    let told = made.status.pools.first().context("there are pools")?;
    anyhow::ensure!(told.state == dapple_api::pool::PoolState::Done, "it is not done: {told:?}");
    Ok((spent, writes))
}

/// How large the status is of as many pools as there may be: all done, and none.
fn status(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let mut made = Made::new(MOST_POOLS)?;
    let done = size(&made)?;
    // None of them can be given what the item says.
    made.say(&serde_json::json!([{"pools": "*", "items": [
        {"image": {"containerName": "a-container-that-none-of-the-templates-has-".repeat(4), "imageClaim": "c:1"}}]}]))?;
    made.revise();
    let decision = made.decide()?;
    made.take(decision)?;
    let failed = size(&made)?;
    for (what, size) in [("all done", done), ("each with something wrong", failed)] {
        let ratio = size as f64 / STATUS_LIMIT as f64;
        check(
            missed,
            format!("the status of {MOST_POOLS} pools, {what}: {size} bytes, {ratio:.3} of the limit"),
            ratio <= 1.0,
        );
    }
    Ok(())
}

fn size(made: &Made) -> anyhow::Result<usize> {
    let common = made.status.clone();
    let pool_replicas = common.pools.iter().map(|pool| (pool.name.clone(), 0)).collect();
    let status = YurtAppSetStatus { common, pool_replicas, ..YurtAppSetStatus::default() };
    Ok(serde_json::to_vec(&status)?.len())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

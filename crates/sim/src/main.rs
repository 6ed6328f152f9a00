//! `dapple-sim`: runs seeds, and replays one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use dapple_sim::hunt::{hunt, mistakes};
use dapple_sim::run::run;
use dapple_sim::scenario::{self, Scenario};
use dapple_sim::shrink::explain;
use dapple_sim::sweep::sweep;
use dapple_sim::trace::Trace;

/// After every so many seeds it is told how far it is: some seconds.
const TOLD: u64 = 200;

/// Most of a run is small pieces of JSON.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs dapple's controllers against an API server in memory, with faults, under virtual time.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// Families to simulate; all if none is given.
    #[arg(long, value_delimiter = ',', value_parser = scenario::find)]
    family: Vec<Scenario>,
    /// Replays this seed: prints its script and everything that happened.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Makes the failure of that seed as small as it gets.
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// How many seeds to run for each family.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Prints only the fingerprint of each run.
    #[arg(long)]
    fingerprints: bool,
    /// Makes every mistake of `dapple_plan::mutant` in turn, and tells which seed notices.
    #[arg(long, conflicts_with_all = ["seed", "fingerprints"])]
    mutants: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let scenarios = if args.family.is_empty() { scenario::ALL.to_vec() } else { args.family.clone() };
    if args.mutants {
        return mutants(&scenarios, args.first..args.first + args.seeds);
    }
    let mut has_failed = false;
    for scenario in scenarios {
        has_failed |= match args.seed {
            Some(seed) if args.shrink => {
                println!("{}", explain(&scenario, seed)?);
                true
            }
            Some(seed) => replay(&scenario, seed)?,
            None if args.fingerprints => {
                fingerprints(&scenario, args.first..args.first + args.seeds)?;
                false
            }
            None => many(&scenario, args.first..args.first + args.seeds)?,
        };
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Looks for every mistake that these families have to notice; a failure if one of them is not found.
fn mutants(scenarios: &[Scenario], seeds: Range<u64>) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let is_asked = |of: &Scenario| scenarios.iter().any(|scenario| scenario.family == of.family);
    for (mutant, scenario) in mistakes().filter(|(_, scenario)| is_asked(scenario)) {
        let name = scenario.family.name;
        match hunt(mutant, scenario, seeds.clone())? {
            Some((seed, what)) => println!("{mutant:?}: found by {name} seed {seed}: {what}"),
            None => {
                println!("{mutant:?}: NOT FOUND in {} {name} seeds", seeds.end - seeds.start);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Prints a run, whether it holds or not; true if it does not.
fn replay(scenario: &Scenario, seed: u64) -> anyhow::Result<bool> {
    let script = (scenario.script)(seed);
    println!("{} seed {seed}\n{script}", scenario.family.name);
    let outcome = run(scenario, &script, &BTreeSet::new(), Trace::kept())?;
    for line in outcome.trace.lines() {
        println!("{line}");
    }
    println!("fingerprint {:016x}, {} requests, {:?}", outcome.trace.fingerprint(), outcome.requests, outcome.lasted);
    if let Some(violation) = &outcome.violation {
        println!("violated after {:?}: {}", violation.at, violation.what);
    }
    Ok(outcome.violation.is_some())
}

fn fingerprints(scenario: &Scenario, seeds: Range<u64>) -> anyhow::Result<()> {
    for seed in seeds {
        let outcome = run(scenario, &(scenario.script)(seed), &BTreeSet::new(), Trace::default())?;
        println!("{} {seed} {:016x}", scenario.family.name, outcome.trace.fingerprint());
    }
    Ok(())
}

/// Runs many seeds, prints the figures, and the first failure as small as it gets. True if any failed.
#[allow(clippy::print_stderr, reason = "how far it is, beside the figures")]
fn many(scenario: &Scenario, seeds: Range<u64>) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let (count, done) = (seeds.end - seeds.start, AtomicU64::new(0));
    let sum = sweep(scenario, seeds, None, |seed, outcome| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(violation) = &outcome.violation {
            eprintln!("FAILED seed {seed}: {}", violation.what);
        } else if done % TOLD == 0 {
            eprintln!("{}: {done} of {count} seeds after {:.0} s", scenario.family.name, begun.elapsed().as_secs_f64());
        }
    })?;
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{}: {count} seeds in {took:.1} s ({:.0} per second), {} requests, {} faults, {} h of virtual time",
        scenario.family.name,
        count as f64 / took,
        sum.requests,
        sum.faults.values().sum::<u64>(),
        sum.lasted.as_secs() / 3600,
    );
    for (kind, count) in &sum.faults {
        println!("  {kind}: {count}");
    }
    for (seed, what) in &sum.failed {
        println!("  FAILED seed {seed}: {what}");
    }
    if let Some((seed, _)) = sum.failed.first() {
        println!("{} of {count} failed; the first, made small:", sum.failed.len());
        println!("{}", explain(scenario, *seed)?);
    }
    Ok(!sum.failed.is_empty())
}

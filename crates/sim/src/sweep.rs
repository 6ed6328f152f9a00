//! Many seeds, on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dapple_plan::mutant::{self, Mutant};

use crate::run::{Outcome, run};
use crate::scenario::Scenario;
use crate::trace::Trace;

/// What came of many runs.
#[derive(Debug, Default)]
pub struct Sum {
    /// Requests that servers answered.
    pub requests: u64,
    /// How long they took together, in virtual time.
    pub lasted: Duration,
    /// How many faults there were of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Seeds that failed, and what did not hold.
    pub failed: Vec<(u64, String)>,
}

impl Sum {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.requests += outcome.requests;
        self.lasted += outcome.lasted;
        for (kind, count) in outcome.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.failed.extend(outcome.violation.map(|violation| (seed, violation.what)));
    }
}

/// Runs seeds on all cores, and tells what came of each. With a mutant, only until it is found.
pub fn sweep(
    scenario: &Scenario,
    seeds: Range<u64>,
    mutant: Option<Mutant>,
    tell: impl Fn(u64, &Outcome) + Sync,
) -> io::Result<Sum> {
    let (next, is_found, sum) = (AtomicU64::new(seeds.start), AtomicBool::new(false), Mutex::new(Sum::default()));
    let work = || -> io::Result<()> {
        mutant::make(mutant);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || is_found.load(Ordering::Relaxed) {
                return Ok(());
            }
            let outcome = run(scenario, &(scenario.script)(seed), &BTreeSet::new(), Trace::default())?;
            is_found.fetch_or(mutant.is_some() && outcome.violation.is_some(), Ordering::Relaxed);
            tell(seed, &outcome);
            sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, outcome);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let died = || io::Error::other("a run panicked");
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(died())))
    })?;
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.failed.sort();
    Ok(sum)
}

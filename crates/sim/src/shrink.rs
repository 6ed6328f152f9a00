//! Makes a failure smaller: fewer events, fewer faults, and still a failure.

use std::collections::BTreeSet;

use crate::run::{Outcome, run};
use crate::scenario::Scenario;
use crate::script::Script;
use crate::trace::Trace;

/// How often a failure is run again to make it smaller.
const RUNS: usize = 400;

/// A failure, made as small as it gets.
pub struct Shrunk {
    /// What is left of the script.
    pub script: Script,
    /// Faults that are left out.
    pub muted: BTreeSet<u64>,
    /// What comes of it.
    pub outcome: Outcome,
}

/// Makes a failure of this script smaller.
pub fn shrink(scenario: &Scenario, script: &Script) -> std::io::Result<Shrunk> {
    let mut script = script.clone();
    let Outcome { violation, drawn, .. } = run(scenario, &script, &BTreeSet::new(), Trace::default())?;
    let mut search = Search { scenario, runs: RUNS, kind: violation.map(|violation| violation.kind()) };
    // Events first: there are few of them, so that runs are left for faults, of which there may be many.
    let events = std::mem::take(&mut script.events);
    script.events = search.fewer(events, |search, events| {
        let script = Script { events: events.to_vec(), ..script.clone() };
        search.fails(&script, &BTreeSet::new())
    })?;
    // With fewer events others are drawn.
    let drawn = drawn.max(run(scenario, &script, &BTreeSet::new(), Trace::default())?.drawn);
    let all: Vec<u64> = (0..drawn).collect();
    let kept = search.fewer(all, |search, kept| search.fails(&script, &mute_all_but(kept, drawn)))?;
    let muted = mute_all_but(&kept, drawn);
    let outcome = run(scenario, &script, &muted, Trace::kept())?;
    Ok(Shrunk { script, muted, outcome })
}

/// A failing seed as small as it gets, to be read: what happens, and every request.
pub fn explain(scenario: &Scenario, seed: u64) -> std::io::Result<String> {
    let shrunk = shrink(scenario, &(scenario.script)(seed))?;
    let name = scenario.family.name;
    let trace = shrunk.outcome.trace.lines().join("\n");
    let whole = format!("cargo run --release -p dapple-sim --features mutants -- --family {name} --seed {seed}");
    Ok(format!("{name} seed {seed}\n{}\n{trace}\nrun it whole with: {whole}", shrunk.script))
}

/// Numbers of all faults but these. Far more than were drawn: without some, others may be drawn that were not before.
fn mute_all_but(kept: &[u64], drawn: u64) -> BTreeSet<u64> {
    (0..drawn * 4 + 1_000).filter(|number| !kept.contains(number)).collect()
}

struct Search<'s> {
    scenario: &'s Scenario,
    runs: usize,
    /// What fails: another failure is another story.
    kind: Option<String>,
}

impl Search<'_> {
    fn fails(&mut self, script: &Script, muted: &BTreeSet<u64>) -> std::io::Result<bool> {
        self.runs = self.runs.saturating_sub(1);
        let violation = run(self.scenario, script, muted, Trace::default())?.violation;
        Ok(violation.map(|violation| violation.kind()) == self.kind)
    }

    /// Leaves out as many as can be, in ever smaller pieces, while it still fails.
    fn fewer<T: Clone>(
        &mut self,
        mut items: Vec<T>,
        fails: impl Fn(&mut Self, &[T]) -> std::io::Result<bool>,
    ) -> std::io::Result<Vec<T>> {
        let mut piece = items.len();
        while piece > 0 {
            let mut start = 0;
            while start < items.len() && self.runs > 0 {
                let end = (start + piece).min(items.len());
                let rest: Vec<T> = items[..start].iter().chain(&items[end..]).cloned().collect();
                if fails(self, &rest)? {
                    items = rest;
                } else {
                    start = end;
                }
            }
            piece /= 2;
        }
        Ok(items)
    }
}

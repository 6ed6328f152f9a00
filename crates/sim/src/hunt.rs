//! Looks for deliberate mistakes, as a check of the simulator itself.

use std::io;
use std::ops::Range;

use dapple_control::family::Family;
use dapple_plan::mutant::Mutant;

use crate::scenario::Scenario;
use crate::sweep::sweep;

/// The families that a mistake is looked for in. What all of them share is looked for in each.
fn families_of(mutant: Mutant) -> &'static [Family] {
    match mutant {
        Mutant::LeaversKept | Mutant::GenerationForgotten => &[Family::Group],
        Mutant::LateSubscriberMisses | Mutant::MissingIsEmpty => &[Family::Group],
        Mutant::FirstListSkipped | Mutant::FailureForgotten => &[Family::DaemonSet, Family::Group],
        _ => &[Family::DaemonSet],
    }
}

/// Every mistake, with each family that has to notice it.
pub fn mistakes() -> impl Iterator<Item = (Mutant, Family)> {
    Mutant::ALL.iter().flat_map(|mutant| families_of(*mutant).iter().map(|family| (*mutant, *family)))
}

/// Makes a mistake, and returns the first of these seeds that notices, with what it says. What needs many faults at once is
/// found by scripts in which less else happens.
pub fn hunt(mutant: Mutant, family: Family, seeds: Range<u64>) -> io::Result<Option<(u64, String)>> {
    let whole = Scenario::of(family);
    let second = Scenario { script: whole.second, ..Scenario::of(family) };
    for scenario in [whole, second] {
        let sum = sweep(&scenario, seeds.clone(), Some(mutant), |_, _| {})?;
        if let Some(found) = sum.failed.into_iter().next() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

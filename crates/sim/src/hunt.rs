//! Looks for deliberate mistakes, as a check of the simulator itself.

use std::io;
use std::ops::Range;

use dapple_control::family::Family;
use dapple_plan::mutant::Mutant;

use crate::scenario::Scenario;
use crate::sweep::sweep;

/// The family that a mistake is looked for in.
fn family_of(mutant: Mutant) -> Family {
    match mutant {
        Mutant::LeaversKept | Mutant::GenerationForgotten => Family::Group,
        _ => Family::DaemonSet,
    }
}

/// Makes a mistake, and returns the first of these seeds that notices, with what it says.
pub fn hunt(mutant: Mutant, seeds: Range<u64>) -> io::Result<Option<(u64, String)>> {
    let sum = sweep(&Scenario::of(family_of(mutant)), seeds, Some(mutant), |_, _| {})?;
    Ok(sum.failed.into_iter().next())
}

//! Deliberate mistakes are found.

use dapple_plan::mutant::Mutant;
use dapple_sim::hunt::hunt;

/// A mistake that is not found in so many seeds is not found.
const SEEDS: u64 = 3_000;

#[test]
fn every_mistake_is_found() {
    let is_missed = |mutant: &&Mutant| hunt(**mutant, 1..SEEDS + 1).unwrap().is_none();
    let survivors: Vec<&Mutant> = Mutant::ALL.iter().filter(is_missed).collect();
    assert!(survivors.is_empty(), "these mistakes were made, and nobody noticed: {survivors:?}");
}

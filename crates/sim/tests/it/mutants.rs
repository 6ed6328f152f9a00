//! Deliberate mistakes are found.

use dapple_sim::hunt::{hunt, mistakes};

/// A mistake that is not found in so many seeds is not found.
const SEEDS: u64 = 3_000;

#[test]
fn every_mistake_is_found() {
    let is_missed = |(mutant, family): &_| hunt(*mutant, *family, 1..SEEDS + 1).unwrap().is_none();
    let survivors: Vec<_> = mistakes().filter(is_missed).collect();
    assert!(survivors.is_empty(), "these mistakes were made, and nobody noticed: {survivors:?}");
}

//! Deliberate mistakes are found.

use dapple_plan::mutant::Mutant;
use dapple_sim::hunt::{hunt, mistakes};
use dapple_sim::scenario::{DAEMON_SET, GROUP, POOL, Scenario};

/// A mistake that is not found in so many seeds is not found.
const SEEDS: u64 = 3_000;

/// Where mistakes that few seeds notice were found last: looked at first, since hunting for them from the start takes
/// minutes. A seed that does not notice any more costs that time; then put the one that is printed here.
const FOUND_BY: [(Mutant, Scenario, u64); 28] = [
    (Mutant::BurstIgnored, DAEMON_SET, 1349),
    (Mutant::DrivenOffForgotten, DAEMON_SET, 71),
    (Mutant::DoubtDropped, DAEMON_SET, 195),
    (Mutant::FailureForgotten, DAEMON_SET, 72),
    (Mutant::FirstListSkipped, DAEMON_SET, 1271),
    (Mutant::HashRestarts, DAEMON_SET, 61),
    (Mutant::HurriesInVain, DAEMON_SET, 114),
    (Mutant::LeaderForLife, DAEMON_SET, 273),
    (Mutant::SelectorAlone, DAEMON_SET, 589),
    (Mutant::StraysLeft, DAEMON_SET, 346),
    (Mutant::BudgetPerGroup, GROUP, 323),
    (Mutant::EndedKeepSeats, GROUP, 191),
    (Mutant::FirstNotAlone, GROUP, 1862),
    (Mutant::HalfListPlaced, GROUP, 15_003),
    (Mutant::JobsMoved, GROUP, 54),
    (Mutant::MinuteForgotten, GROUP, 118),
    (Mutant::MoveWithoutBudget, GROUP, 323),
    (Mutant::MoveWithoutTarget, GROUP, 131),
    (Mutant::OrderForgotten, GROUP, 200),
    (Mutant::QuietForgotten, GROUP, 1690),
    (Mutant::RestartsUncounted, GROUP, 208),
    (Mutant::SilenceForgotten, GROUP, 9969),
    (Mutant::SuspendedMoved, GROUP, 1038),
    (Mutant::TwoBudgets, GROUP, 14_736),
    (Mutant::UnwellGroupForgotten, GROUP, 118),
    (Mutant::ChangedTwiceForgotten, POOL, 1),
    (Mutant::HoldDissolves, POOL, 1),
    (Mutant::LostPoolsUncounted, POOL, 1),
];

fn is_found(mutant: Mutant, scenario: Scenario) -> bool {
    let last = FOUND_BY.iter().find(|(known, of, _)| *known == mutant && of.family.name == scenario.family.name);
    if let Some((.., seed)) = last
        && hunt(mutant, scenario, *seed..seed + 1).unwrap().is_some()
    {
        return true;
    }
    let found = hunt(mutant, scenario, 1..SEEDS + 1).unwrap();
    println!("{mutant:?}, {}: {found:?}", scenario.family.name);
    found.is_some()
}

#[test]
fn every_mistake_is_found() {
    let survivors: Vec<_> = mistakes().filter(|(mutant, scenario)| !is_found(*mutant, *scenario)).collect();
    assert!(survivors.is_empty(), "these mistakes were made, and nobody noticed: {survivors:?}");
}

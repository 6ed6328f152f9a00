//! Looks for deliberate mistakes, as a check of the simulator itself.

use std::io;
use std::ops::Range;

use dapple_plan::mutant::Mutant;

use crate::scenario::{DAEMON_SET, GROUP, MARKER, POOL, Scenario};
use crate::sweep::sweep;

/// The scenarios that a mistake is looked for in. What all families share is looked for in each.
fn scenarios_of(mutant: Mutant) -> &'static [Scenario] {
    match mutant {
        Mutant::LeaversKept | Mutant::GenerationForgotten | Mutant::LabelTakenFromPods | Mutant::GoneStaysBound => {
            &[GROUP]
        }
        Mutant::SelectorForgotten | Mutant::SeatGivenTwice | Mutant::NumberForgotten | Mutant::StartForgotten => {
            &[GROUP]
        }
        Mutant::MoveWithoutBudget | Mutant::EditionWithoutBudget | Mutant::BudgetPerGroup => &[GROUP],
        Mutant::FirstNotAlone | Mutant::OrderForgotten | Mutant::RestartsUncounted => &[GROUP],
        Mutant::RolloutDisturbed | Mutant::FutileForgotten => &[GROUP],
        Mutant::HalfListPlaced | Mutant::SilenceForgotten | Mutant::TwoBudgets => &[GROUP],
        Mutant::MoveWithoutTarget | Mutant::JobsMoved | Mutant::GatedJobsReplaced => &[GROUP],
        Mutant::UnwellGroupForgotten | Mutant::MinuteForgotten | Mutant::QuietForgotten => &[GROUP],
        Mutant::FirstMinuteForgotten | Mutant::SuspendedMoved | Mutant::ProtectedMoved => &[GROUP],
        Mutant::HeldReleased | Mutant::UnknownReleased | Mutant::EndedKeepSeats => &[GROUP],
        Mutant::CopiedLabelsKept => &[GROUP],
        Mutant::LeaversUnguarded | Mutant::NodeWritesUnpaced | Mutant::ReplacedForgotten => &[POOL],
        Mutant::ExecutedUnasked | Mutant::ExecutedAtOnce | Mutant::ExecutedAgain => &[POOL],
        Mutant::ExecutedOntoMore | Mutant::GonePoolIsNone | Mutant::SuspendForgotten => &[POOL],
        Mutant::FoughtForEver => &[POOL],
        Mutant::ChangedTwiceForgotten | Mutant::LostPoolsUncounted => &[POOL],
        Mutant::PoolBudgetForgotten | Mutant::FirstPoolNotAlone | Mutant::PoolsDownUncounted => &[POOL],
        Mutant::PoolSettledForgotten | Mutant::PoolStopForgotten | Mutant::PoolStopUnremembered => &[POOL],
        Mutant::BrokenPoolsLast | Mutant::GraceForgotten | Mutant::HoldForgotten => &[POOL],
        Mutant::HoldDissolves => &[POOL],
        Mutant::RemovalsUnbudgeted | Mutant::LeavingKeptNoted | Mutant::GonePoolsLeave => &[POOL],
        Mutant::UnknownPoolsAreNone | Mutant::ScalingUndone | Mutant::AutoscalerOverruled => &[POOL],
        Mutant::SuspendedAppWritten | Mutant::RepairedForEver | Mutant::DriftLeft => &[POOL],
        Mutant::RevisionRestartsPools | Mutant::RestartUndone | Mutant::PauseUndone => &[POOL],
        Mutant::StrangersTakenIn | Mutant::JoinsAtNewest => &[POOL],
        Mutant::OwnMarksSeen | Mutant::UnknownIsFailed | Mutant::OldResultTaken => &[MARKER],
        Mutant::MarksUnrecorded | Mutant::AllowanceFullAtFirst | Mutant::AllowanceForgotten => &[MARKER],
        Mutant::SeatsNotKept | Mutant::RestsForgotten | Mutant::MarksUnpaced => &[MARKER],
        Mutant::SuspendedMarked | Mutant::OthersValuesTaken | Mutant::ConflictsIgnored => &[MARKER],
        Mutant::LateSubscriberMisses | Mutant::MissingIsEmpty => &[GROUP],
        Mutant::FirstListSkipped | Mutant::FailureForgotten => &[DAEMON_SET, GROUP],
        _ => &[DAEMON_SET],
    }
}

/// Every mistake, with each scenario that has to notice it.
pub fn mistakes() -> impl Iterator<Item = (Mutant, Scenario)> {
    Mutant::ALL.iter().flat_map(|mutant| scenarios_of(*mutant).iter().map(|scenario| (*mutant, *scenario)))
}

/// Makes a mistake, and returns the first of these seeds that notices, with what it says. What needs many faults at once is
/// found by scripts in which less else happens.
pub fn hunt(mutant: Mutant, whole: Scenario, seeds: Range<u64>) -> io::Result<Option<(u64, String)>> {
    let second = Scenario { script: whole.second, ..whole };
    for scenario in [whole, second] {
        let sum = sweep(&scenario, seeds.clone(), Some(mutant), |_, _| {})?;
        if let Some(found) = sum.failed.into_iter().next() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

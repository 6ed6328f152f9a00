//! Every family under faults, by the thousand.

use std::process::Command;

use dapple_control::family::Family;
use dapple_sim::scenario::Scenario;
use dapple_sim::sweep::sweep;

/// How many seeds every family must hold for in every test run.
const SEEDS: u64 = 3_000;

#[test]
fn every_family_holds_for_every_seed() {
    for family in Family::ALL {
        let sum = sweep(&Scenario::of(family), 1..SEEDS + 1, None, |_, _| {}).unwrap();
        assert_eq!(sum.failed, [], "{}: replay one with `dapple-sim --family {0} --seed N`", family.name());
        // A calm sea proves nothing: all kinds of faults were met.
        assert_eq!(sum.faults.len(), 14, "{:?}", sum.faults);
    }
}

/// Seeds of DaemonSets that have found a bug, beyond those of every test run.
const ONCE_BROKEN: [u64; 15] =
    [3711, 7034, 7647, 9067, 15507, 15835, 19220, 19738, 19786, 23022, 25444, 29119, 31242, 44392, 49987];

#[test]
fn what_was_found_once_is_not_found_again() {
    let scenario = Scenario::of(Family::DaemonSet);
    for seed in ONCE_BROKEN {
        let sum = sweep(&scenario, seed..seed + 1, None, |_, _| {}).unwrap();
        assert_eq!(sum.failed, [], "replay it with `dapple-sim --family daemonset --seed {seed}`");
    }
}

#[test]
fn a_seed_gives_the_same_run_in_every_process() {
    let fingerprints = || {
        let mut sim = Command::new(env!("CARGO_BIN_EXE_dapple-sim"));
        let output = sim.args(["--seeds", "40", "--first", "100", "--fingerprints"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (first, second) = (fingerprints(), fingerprints());
    assert_eq!(first.lines().count(), 40 * Family::ALL.len());
    assert_eq!(first, second);
}

//! Every family under faults, by the thousand.

use std::collections::BTreeSet;
use std::process::Command;

use dapple_control::families;
use dapple_plan::mutant::{self, Mutant};
use dapple_sim::nodes::node_comes;
use dapple_sim::run::{Outcome, run};
use dapple_sim::scenario::{DAEMON_SET, GROUP, MARKER, POOL, Scenario};
use dapple_sim::script::Script;
use dapple_sim::shrink::{explain, shrink};
use dapple_sim::sim::Violation;
use dapple_sim::sweep::sweep;
use dapple_sim::trace::Trace;

/// How many seeds each family must hold for in every test run. Together they are 6,000, however many families there are: a
/// new one takes its share from the others. Every family is in it: that is checked.
const SEEDS: [(Scenario, u64); 4] = [(GROUP, 1_800), (DAEMON_SET, 1_800), (POOL, 1_200), (MARKER, 1_200)];

/// How many of them on many nodes.
const MANY: u64 = 60;

/// What can go wrong on the way, and what a script has happen to managers. A calm sea proves nothing: all were met.
const FAULTS: [&str; 22] = [
    "answer without an echo",
    "clock jump",
    "compaction",
    "conflict",
    "death after a request",
    "death before a request",
    "done, said to have timed out",
    "ended watch",
    "isolation",
    "kill",
    "late answer",
    "late request",
    "late watch",
    "lost answer",
    "lost request",
    "request without an echo",
    "server error",
    "silent watch",
    "stop",
    "straggler",
    "too many requests",
    "torn watch",
];

/// Faults that not every family meets.
const FAULTS_OF_SOME: [(&str, &[Scenario]); 4] = [
    ("CRD back", &[GROUP, POOL]),
    ("CRD gone", &[GROUP, POOL]),
    ("lost call", &[GROUP]),
    ("old answer to a call", &[GROUP]),
];

#[test]
fn every_family_holds_for_every_seed() {
    assert_eq!(SEEDS.iter().map(|(_, seeds)| seeds).sum::<u64>(), 6_000);
    assert!(families::ALL.iter().all(|family| SEEDS.iter().any(|(scenario, _)| scenario.family == *family)));
    for (scenario, seeds) in SEEDS {
        let sum = sweep(&scenario, 1..seeds + 1, None, |_, _| {}).unwrap();
        if let Some((seed, _)) = sum.failed.first() {
            panic!("{:?}\n{}", sum.failed, explain(&scenario, *seed).unwrap());
        }
        let meets = |of: &[Scenario]| of.iter().any(|of| of.family == scenario.family);
        let besides = FAULTS_OF_SOME.iter().filter(|(_, of)| meets(of)).map(|(fault, _)| *fault);
        let expected: BTreeSet<&str> = FAULTS.into_iter().chain(besides).collect();
        assert_eq!(sum.faults.keys().copied().collect::<BTreeSet<_>>(), expected);
    }
}

/// Seeds of DaemonSets that have found a bug before there were stories, beyond those of every test run.
const ONCE_BROKEN: [u64; 3] = [33547, 86621, 145_091];

/// As well, before there were faults of the second kind.
const ONCE_BROKEN_PLAINLY: [u64; 23] = [
    3711, 7034, 7647, 9067, 15507, 15835, 19220, 19738, 19786, 23022, 25444, 29119, 31242, 31854, 35124, 36669, 37444,
    40022, 43337, 44187, 44392, 45946, 49987,
];

/// As well, since there are stories.
const ONCE_BROKEN_LATELY: [u64; 59] = [
    821, 3996, 4413, 5504, 5626, 5887, 7321, 8124, 10886, 11149, 13023, 14366, 18556, 19283, 19919, 21287, 21479,
    22755, 23880, 27024, 32788, 32832, 34882, 40490, 40924, 41570, 44247, 44599, 51913, 52797, 56650, 61909, 63029,
    63610, 63837, 68736, 69001, 69409, 71364, 71973, 72382, 73223, 74054, 77811, 79384, 14414, 24706, 83883, 90110,
    99332, 28187, 69590, 16694, 64036, 95061, 52446, 7524, 28129, 79160,
];

/// Those of groups.
const ONCE_BROKEN_GROUPS: [u64; 27] = [
    444, 1237, 1258, 1353, 1851, 2079, 2193, 2299, 2756, 2829, 2915, 3997, 4298, 9452, 9796, 10091, 10336, 10651,
    11987, 12053, 14378, 7287, 9969, 14736, 15003, 17117, 18157,
];

#[test]
fn what_was_found_once_is_not_found_again() {
    let whole = DAEMON_SET;
    let second = Scenario { script: whole.second, ..DAEMON_SET };
    let plain = Scenario { script: whole.plain, ..DAEMON_SET };
    let lists = [
        (&second, &ONCE_BROKEN[..]),
        (&plain, &ONCE_BROKEN_PLAINLY),
        (&whole, &ONCE_BROKEN_LATELY),
        (&GROUP, &ONCE_BROKEN_GROUPS),
    ];
    for (scenario, seeds) in lists {
        for seed in seeds {
            let sum = sweep(scenario, *seed..seed + 1, None, |_, _| {}).unwrap();
            assert_eq!(sum.failed, [], "seed {seed}");
        }
    }
}

/// The script of a seed, on so many nodes that not everything can be done at once.
fn on_many_nodes(seed: u64) -> Script {
    let mut script = (DAEMON_SET.script)(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let more = (0..40).map(|number| node_comes(&format!("more-{number}"), &mut random));
    script.setup.splice(0..0, more);
    script
}

#[test]
fn many_nodes_hold_as_well() {
    let scenario = Scenario { script: on_many_nodes, ..DAEMON_SET };
    let sum = sweep(&scenario, 1..MANY + 1, None, |_, _| {}).unwrap();
    assert_eq!(sum.failed, []);
}

#[test]
fn a_failure_is_made_small() {
    let scenario = GROUP;
    // The mistake is made in this thread only.
    mutant::make(Some(Mutant::LeaversKept));
    let fails = |seed: &u64| {
        let script = (scenario.script)(*seed);
        script.events.len() > 8
            && run(&scenario, &script, &BTreeSet::new(), Trace::default()).unwrap().violation.is_some()
    };
    let seed = (1..1_000).find(fails).unwrap();
    let script = (scenario.script)(seed);
    let whole = run(&scenario, &script, &BTreeSet::new(), Trace::default()).unwrap();
    let small = shrink(&scenario, &script).unwrap();
    let again = run(&scenario, &small.script, &small.muted, Trace::kept()).unwrap();
    let text = explain(&scenario, seed).unwrap();
    mutant::make(None);
    let kind = |outcome: &Outcome| outcome.violation.as_ref().map(Violation::kind);
    assert_eq!(kind(&small.outcome), kind(&whole));
    assert!(small.script.events.len() < script.events.len(), "{}", small.script);
    assert!(small.outcome.faults.values().sum::<u64>() <= whole.faults.values().sum::<u64>());
    // What is shown can be had again, to the letter.
    assert_eq!(again.trace.lines(), small.outcome.trace.lines());
    assert!(text.contains("VIOLATION") && text.contains(&format!("--family group --seed {seed}")), "{text}");
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
    assert_eq!(first.lines().count(), 40 * families::ALL.len());
    assert_eq!(first, second);
}

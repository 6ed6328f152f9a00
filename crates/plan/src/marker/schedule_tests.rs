use dapple_api::marker::PodProbe;
use dapple_api::template::Probe;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// So long after the begin of all times.
fn at(millis: u64) -> Moment {
    let wall = i64::try_from(millis).expect("a time") + 1_000_000;
    Moment { steady: Duration::from_millis(millis), wall: Timestamp::from_millisecond(wall).expect("a time") }
}

fn probe(name: &str, container: &str, definition: Value) -> ContainerProbe {
    ContainerProbe {
        name: name.to_owned(),
        container_name: "a".to_owned(),
        container_id: container.to_owned(),
        started_at: Some(Time(at(0).wall)),
        probe: Probe(definition),
    }
}

fn tcp(period: u32) -> Value {
    json!({"tcpSocket": {"port": 80}, "periodSeconds": period, "failureThreshold": 1})
}

fn exec(period: u32) -> Value {
    json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "periodSeconds": period, "failureThreshold": 1})
}

fn spec(probes: Vec<ContainerProbe>) -> NodePodProbeSpec {
    let ip = Some("10.0.0.1".to_owned());
    let pod = PodProbe { name: "p".into(), namespace: "default".into(), uid: "u".into(), ip, probes };
    NodePodProbeSpec { pod_probes: vec![pod], beyond: None }
}

fn scheduled(probes: Vec<ContainerProbe>) -> Schedule {
    let mut schedule = Schedule::new(true);
    schedule.change(spec(probes), at(0));
    schedule
}

/// What is stored of the only probe: state, container and message.
fn stored(schedule: &Schedule) -> Option<(ProbeState, String, Option<String>)> {
    let status = schedule.status();
    let state = status.pod_probe_statuses.first()?.probe_states.first()?.clone();
    Some((state.state, state.container_id, state.message))
}

/// Lets time pass until an end, each run ended at once with this answer. Returns when runs began.
fn run(schedule: &mut Schedule, until: Duration, answer: &Answer) -> Vec<Duration> {
    let mut begun = Vec::new();
    while let Some(next) = schedule.next_due().filter(|next| *next <= until) {
        for order in schedule.due(next) {
            begun.push(next);
            let now = at(u64::try_from(next.as_millis()).expect("a time"));
            schedule.done(order.number, answer.clone(), now);
        }
    }
    begun
}

#[test]
fn a_probe_runs_once_in_its_period() {
    let mut schedule = scheduled(vec![probe("x", "c", tcp(10))]);
    let begun = run(&mut schedule, seconds(100), &Answer::Succeeded);
    assert_eq!(begun.len(), 10);
    assert!(begun.windows(2).all(|pair| pair[1] - pair[0] == seconds(10)));
    assert!(begun[0] <= seconds(10));
}

#[test]
fn it_waits_from_the_start_of_its_container() {
    let mut definition = tcp(10);
    definition["initialDelaySeconds"] = json!(30);
    let mut schedule = Schedule::new(true);
    schedule.change(spec(vec![probe("x", "c", definition)]), at(20_000));
    let next = schedule.next_due().expect("it is due");
    assert!(next >= seconds(30) && next < seconds(40), "{next:?}");
}

#[test]
fn probes_are_spread_over_the_period() {
    let mut schedule = scheduled((0..100).map(|number| probe(&format!("x{number}"), "c", tcp(10))).collect());
    let begun = run(&mut schedule, Duration::from_millis(9_999), &Answer::Succeeded);
    let in_which: BTreeSet<u64> = begun.iter().map(Duration::as_secs).collect();
    assert_eq!((begun.len(), in_which.len()), (100, 10), "some in each second, and each once");
}

#[test]
fn one_that_takes_long_runs_once_at_a_time_and_makes_up_for_nothing() {
    let mut schedule = scheduled(vec![probe("x", "c", tcp(1))]);
    let first = schedule.next_due().expect("it is due");
    let orders = schedule.due(first);
    assert_eq!((orders.len(), schedule.due(seconds(60)), schedule.next_due()), (1, vec![], None));
    schedule.done(orders[0].number, Answer::Succeeded, at(60_500));
    assert_eq!(schedule.next_due(), Some(Duration::from_millis(60_500)), "it is overdue, once");
    let again = schedule.due(Duration::from_millis(60_500));
    schedule.done(again[0].number, Answer::Succeeded, at(60_510));
    assert!(schedule.next_due() >= Some(seconds(61)), "half a period later at the earliest");
}

#[test]
fn an_order_has_all_that_is_needed() {
    let definition = json!({"exec": {"command": ["a"]}, "timeoutSeconds": 7});
    let mut schedule = scheduled(vec![probe("x", "containerd://c", definition)]);
    let orders = schedule.due(seconds(10));
    let expected = Order {
        number: 1,
        action: Action::Exec { command: vec!["a".to_owned()] },
        timeout: seconds(7),
        address: Some(Arc::from("10.0.0.1")),
        container_id: Arc::from("containerd://c"),
    };
    assert_eq!(orders, [expected]);
}

#[test]
fn thresholds_say_how_often_in_a_row() {
    let definition =
        json!({"tcpSocket": {"port": 80}, "periodSeconds": 1, "successThreshold": 2, "failureThreshold": 3});
    let mut schedule = scheduled(vec![probe("x", "c", definition)]);
    let failed = Answer::Failed("no connection".to_owned());
    let mut now = 0;
    let mut told = |answers: &[&Answer]| {
        let mut changes = Vec::new();
        for answer in answers {
            now += 2_000;
            let orders = schedule.due(at(now).steady);
            changes.push(schedule.done(orders[0].number, (*answer).clone(), at(now)));
        }
        (changes, stored(&schedule).map(|(state, ..)| state))
    };
    let ok = Answer::Succeeded;
    assert_eq!(told(&[&ok]), (vec![false], None), "what is not known is not stored");
    assert_eq!(told(&[&failed, &ok, &ok]), (vec![false, false, true], Some(ProbeState::Succeeded)));
    assert_eq!(told(&[&ok, &failed, &failed]), (vec![false; 3], Some(ProbeState::Succeeded)));
    assert_eq!(told(&[&failed, &failed]), (vec![true, false], Some(ProbeState::Failed)), "stored when it changes");
}

#[test]
fn an_error_is_unknown_at_once_and_no_failure() {
    let mut schedule = scheduled(vec![probe("x", "c", exec(5))]);
    run(&mut schedule, seconds(5), &Answer::Succeeded);
    run(&mut schedule, seconds(10), &Answer::Error("the runtime does not answer".to_owned()));
    let why = Some("the runtime does not answer".to_owned());
    assert_eq!(stored(&schedule), Some((ProbeState::Unknown, "c".to_owned(), why)));
    run(&mut schedule, seconds(15), &Answer::Failed("it ended with 1".to_owned()));
    assert_eq!(stored(&schedule), Some((ProbeState::Failed, "c".to_owned(), Some("it ended with 1".to_owned()))));
}

#[test]
fn three_periods_without_a_run_are_unknown() {
    let mut schedule = scheduled(vec![probe("x", "c", tcp(10))]);
    let last = *run(&mut schedule, seconds(20), &Answer::Succeeded).last().expect("it ran");
    let after = |more: u64| at(u64::try_from(last.as_millis()).expect("a time") + more);
    assert!(!schedule.late(after(30_000)));
    assert!(schedule.late(after(30_001)));
    assert_eq!(stored(&schedule), Some((ProbeState::Unknown, "c".to_owned(), Some(LATE.to_owned()))));
    assert!(!schedule.late(after(40_000)), "it is said once");
    // What runs has its timeout besides.
    let orders = schedule.due(after(40_000).steady);
    schedule.done(orders[0].number, Answer::Succeeded, after(40_000));
    assert_eq!(schedule.due(after(60_000).steady).len(), 1);
    assert!(!schedule.late(after(91_000)) && schedule.late(after(91_001)));
}

#[test]
fn another_run_of_the_container_begins_anew_and_what_is_told_of_the_last_is_passed_over() {
    let mut schedule = scheduled(vec![probe("x", "c", tcp(10))]);
    run(&mut schedule, seconds(10), &Answer::Succeeded);
    let late = schedule.due(seconds(20));
    schedule.change(spec(vec![probe("x", "d", tcp(10))]), at(20_000));
    assert!(!schedule.done(late[0].number, Answer::Failed("it is gone".to_owned()), at(20_100)));
    let kept = Some((ProbeState::Succeeded, "c".to_owned(), None));
    assert_eq!(stored(&schedule), kept, "that it was of the last run can be seen");
    assert!(!schedule.late(at(100_000)), "it is unknown already");
    run(&mut schedule, seconds(100), &Answer::Failed("no".to_owned()));
    assert_eq!(stored(&schedule), Some((ProbeState::Failed, "d".to_owned(), Some("no".to_owned()))));
}

#[test]
fn what_is_not_asked_for_any_more_is_forgotten() {
    let mut schedule = scheduled(vec![probe("x", "c", tcp(10))]);
    run(&mut schedule, seconds(10), &Answer::Succeeded);
    let late = schedule.due(seconds(20));
    assert!(schedule.change(NodePodProbeSpec::default(), at(20_000)), "its result is taken out");
    assert!(!schedule.change(NodePodProbeSpec::default(), at(20_000)));
    assert!(!schedule.has_probes() && schedule.next_due().is_none());
    assert!(!schedule.done(late[0].number, Answer::Succeeded, at(20_100)));
    assert_eq!(schedule.status(), NodePodProbeStatus::default());
}

#[test]
fn what_stays_goes_on() {
    let mut schedule = scheduled(vec![probe("x", "c", tcp(10))]);
    run(&mut schedule, seconds(10), &Answer::Succeeded);
    let next = schedule.next_due();
    schedule.change(spec(vec![probe("x", "c", tcp(10)), probe("y", "c", tcp(1000))]), at(10_000));
    assert_eq!(schedule.status().pod_probe_statuses[0].probe_states.len(), 1);
    assert!(schedule.next_due() <= next);
    let known: Vec<_> = schedule.runtime.order.iter().chain(&schedule.network.order).map(|(at, _)| Some(*at)).collect();
    assert!(known.contains(&next), "nothing is moved by what comes");
}

#[test]
fn results_outlive_a_restart_unless_nobody_was_there_for_long() {
    let mut before = scheduled(vec![probe("x", "c", tcp(10))]);
    run(&mut before, seconds(10), &Answer::Succeeded);
    let status = before.status();
    let restarted = |may_go_on: bool, container: &str| {
        let mut schedule = Schedule::new(true);
        let is_to_be_stored = schedule.restore(&status, may_go_on);
        schedule.change(spec(vec![probe("x", container, tcp(10))]), at(15_000));
        (is_to_be_stored, stored(&schedule).map(|(state, ..)| state))
    };
    assert_eq!(restarted(true, "c"), (false, Some(ProbeState::Succeeded)), "nothing is written");
    assert_eq!(restarted(false, "c"), (true, Some(ProbeState::Unknown)));
    assert_eq!(
        restarted(true, "d"),
        (false, Some(ProbeState::Succeeded)),
        "of the last run of the container, as can be seen"
    );
}

#[test]
fn a_prober_goes_on_where_it_was_heard_all_the_time() {
    let now = at(1_000_000).wall;
    let ago = |seconds: i64| Timestamp::from_second(now.as_second() - seconds).ok();
    for (renewed, expected) in [(ago(0), true), (ago(179), true), (ago(180), false), (ago(-5), false), (None, false)] {
        assert_eq!(may_go_on(renewed, now), expected, "{renewed:?}");
    }
}

#[test]
fn commands_are_run_only_where_that_is_allowed() {
    let mut schedule = Schedule::new(false);
    assert!(schedule.change(spec(vec![probe("x", "c", exec(5))]), at(0)), "that it is unknown is stored");
    assert_eq!((schedule.next_due(), schedule.due(seconds(100))), (None, vec![]));
    assert_eq!(stored(&schedule), Some((ProbeState::Unknown, "c".to_owned(), Some(EXEC_IS_OFF.to_owned()))));
    assert!(!schedule.late(at(1_000_000)));
    assert_eq!(schedule.counts(), BTreeMap::from([(("exec", ProbeState::Unknown), 1)]));
    let unreadable = json!({"tcpSocket": {"port": "web"}});
    assert!(schedule.change(spec(vec![probe("y", "c", unreadable)]), at(0)));
    assert_eq!(stored(&schedule).and_then(|(.., message)| message), Some(UNREADABLE.to_owned()));
}

#[test]
fn so_many_run_at_once_and_the_others_wait() {
    let probes = |count: usize| (0..count).map(|number| probe(&format!("x{number}"), "c", exec(100))).collect();
    let mut schedule = scheduled(probes(25));
    let first = schedule.due(seconds(100));
    assert_eq!((first.len(), schedule.due(seconds(100)).len(), schedule.next_due()), (10, 0, None));
    for order in &first[..4] {
        schedule.done(order.number, Answer::Succeeded, at(100_000));
    }
    assert_eq!(schedule.due(seconds(100)).len(), 4);
    // Runs that are not waited for any more have their room until they end.
    schedule.change(spec(vec![probe("y", "c", tcp(10))]), at(100_000));
    assert_eq!(schedule.due(seconds(110)).len(), 1, "of other means there is enough");
    for order in &first[4..] {
        schedule.done(order.number, Answer::Succeeded, at(110_000));
    }
    assert_eq!(schedule.runtime.running, 4);
}

#[test]
fn too_many_probes_run_more_seldom_and_that_is_said() {
    let probes = (0..100).map(|number| probe(&format!("x{number}"), "c", exec(5))).collect();
    let mut schedule = scheduled(probes);
    let said = "commands take 2.0 times their period: a node runs at most 100 in 10 seconds";
    assert_eq!(schedule.status().message.as_deref(), Some(said));
    let begun = run(&mut schedule, seconds(100), &Answer::Succeeded);
    assert!(begun.len() <= 1_010 && begun.len() > 900, "{}", begun.len());
    let last = at(120_000);
    assert!(!schedule.late(last), "three of the longer periods");
    schedule.change(spec(vec![probe("x1", "c", exec(5))]), last);
    assert_eq!(schedule.status().message, None);
}

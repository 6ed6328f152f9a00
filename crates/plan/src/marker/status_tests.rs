use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;

/// What there may be of causes, younger markers and doubts.
#[derive(Default)]
struct Kept {
    causes: BTreeMap<Cause, usize>,
    outdone: BTreeMap<Arc<str>, usize>,
    doubts: BTreeMap<Doubt, usize>,
}

impl Kept {
    fn facts(&self) -> Facts<'_> {
        Facts {
            generation: Some(4),
            is_suspended: false,
            unusable: None,
            replicas: Replicas::Count(10),
            numbers: Numbers { desired: 10, succeeded: 10, matched: 20, ..Numbers::default() },
            failed: 0,
            causes: &self.causes,
            outdone: &self.outdone,
            doubts: &self.doubts,
            held: Held::default(),
            carrying_out: None,
        }
    }
}

fn time(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(second).expect("a time"))
}

fn told(facts: &Facts<'_>, kind: &str) -> (bool, String, String) {
    let status = status(facts, &PodMarkerStatus::default(), &time(1));
    let known: &Condition = status.conditions.iter().find(|known| known.type_ == kind).expect(kind);
    assert_eq!(known.observed_generation, Some(4));
    (known.status == "True", known.reason.clone(), known.message.clone())
}

fn reason(facts: &Facts<'_>, kind: &str) -> (bool, String) {
    let (is_true, reason, _) = told(facts, kind);
    (is_true, reason)
}

fn is(is_true: bool, reason: &str) -> (bool, String) {
    (is_true, reason.to_owned())
}

#[test]
fn all_numbers_are_told() {
    let kept = Kept::default();
    let numbers = Numbers { desired: 1, succeeded: 2, matched: 3, conflicting: 4, unknown: 5, waiting: 6 };
    let change = SpecChange { generation: 4, pods: 8 };
    let facts = Facts { numbers, failed: 7, carrying_out: Some(change.clone()), ..kept.facts() };
    let status = status(&facts, &PodMarkerStatus::default(), &time(1));
    assert_eq!((status.desired, status.succeeded, status.matched, status.conflicting), (1, 2, 3, 4));
    assert_eq!((status.unknown, status.waiting, status.failed), (5, 6, 7));
    assert_eq!((status.observed_generation, status.carrying_out), (Some(4), Some(change)));
    let kinds: Vec<&str> = status.conditions.iter().map(|known| known.type_.as_str()).collect();
    assert_eq!(kinds, [MARKED, CONFLICT, HELD, PROBES_KNOWN]);
}

#[test]
fn equal_facts_give_an_equal_status() {
    let kept = Kept::default();
    let first = status(&kept.facts(), &PodMarkerStatus::default(), &time(1));
    assert_eq!(status(&kept.facts(), &first, &time(2)), first);
    let held = Facts { held: Held { resting: 1, ..Held::default() }, ..kept.facts() };
    let second = status(&held, &first, &time(3));
    let times: Vec<i64> = second.conditions.iter().map(|known| known.last_transition_time.0.as_second()).collect();
    assert_eq!(times, [1, 1, 3, 1], "only what has changed has another time");
}

#[test]
fn a_status_is_written_once_a_second_at_most() {
    let before = PodMarkerStatus::default();
    let after = PodMarkerStatus { desired: 1, ..PodMarkerStatus::default() };
    assert_eq!(waits(&before, &before, None), None);
    assert_eq!(waits(&after, &before, None), Some(Duration::ZERO));
    assert_eq!(waits(&after, &before, Some(Duration::from_millis(400))), Some(Duration::from_millis(600)));
    assert_eq!(waits(&after, &before, Some(Duration::from_secs(2))), Some(Duration::ZERO));
}

#[test]
fn marked_says_how_far_it_is() {
    let kept = Kept::default();
    let facts = kept.facts();
    assert_eq!(
        told(&facts, MARKED),
        (true, "AllMarked".to_owned(), "As many are marked as should be: 10 pods.".to_owned())
    );
    let numbers = Numbers { desired: 10, succeeded: 7, matched: 20, waiting: 3, ..Numbers::default() };
    let text = "Of 10 pods that should be marked, 7 are; changes that wait: 3.";
    assert_eq!(told(&Facts { numbers, ..facts.clone() }, MARKED), (false, "InProgress".to_owned(), text.to_owned()));
    let few = Numbers { desired: 7, succeeded: 7, matched: 7, ..Numbers::default() };
    assert_eq!(reason(&Facts { numbers: few, ..facts.clone() }, MARKED), is(true, "FewMatch"));
    let zero = Facts { replicas: Replicas::Count(0), numbers: Numbers::default(), ..facts.clone() };
    assert_eq!(reason(&zero, MARKED), is(true, "Cleaned"));
    assert_eq!(reason(&Facts { failed: 1, ..facts.clone() }, MARKED), is(false, "PodsRefused"));
    assert_eq!(reason(&Facts { is_suspended: true, ..facts.clone() }, MARKED), is(false, "Suspended"));
    let (is_marked, reason, text) = told(&Facts { unusable: Some("spec.a: it is wrong".to_owned()), ..facts }, MARKED);
    assert_eq!((is_marked, reason.as_str()), (false, "CannotBeUsed"));
    assert!(text.starts_with("spec.a: it is wrong. "), "{text}");
}

#[test]
fn both_markers_say_that_they_want_one_key() {
    let names = |count: usize| (0..count).map(|number| (Arc::from(format!("m{number}")), 2)).collect();
    let mut young = Kept { causes: BTreeMap::from([(Cause::Marker(Arc::from("old")), 3)]), ..Kept::default() };
    let text = "These pods are left alone: older markers set other values: old (3 pods).";
    assert_eq!(told(&young.facts(), CONFLICT), (true, "OlderMarker".to_owned(), text.to_owned()));
    young.causes.insert(Cause::Value, 1);
    let (_, _, text) = told(&young.facts(), CONFLICT);
    assert!(text.ends_with("; 1 pod with other values, where conflictPolicy is Ignore."), "{text}");
    let old = Kept { outdone: names(7), ..Kept::default() };
    let (is_conflict, reason, text) = told(&old.facts(), CONFLICT);
    assert_eq!((is_conflict, reason.as_str()), (true, "YoungerMarker"));
    assert!(text.ends_with("m4 (2 pods) and 2 more."), "{text}");
    for (cause, expected) in [
        (Cause::Value, "OtherValues"),
        (Cause::OwnersLabel, "OwnersLabels"),
        (Cause::UnreadOwner, "OwnersUnread"),
        (Cause::Policy, "DividedPods"),
    ] {
        let kept = Kept { causes: BTreeMap::from([(cause, 2)]), ..Kept::default() };
        assert_eq!(reason_of(&kept), is(true, expected));
    }
    assert_eq!(reason_of(&Kept::default()), is(false, "NoConflict"));
}

fn reason_of(kept: &Kept) -> (bool, String) {
    reason(&kept.facts(), CONFLICT)
}

#[test]
fn brakes_are_shown() {
    let kept = Kept::default();
    let held = |held: Held| reason(&Facts { held, ..kept.facts() }, HELD);
    assert_eq!(held(Held::default()), is(false, "NotHeld"));
    assert_eq!(held(Held { allowance: Some(10), ..Held::default() }), is(true, "Allowance"));
    assert_eq!(held(Held { resting: 1, ..Held::default() }), is(true, "PodsRest"));
    assert_eq!(held(Held { seats: 1, ..Held::default() }), is(true, "SeatsKept"));
    assert_eq!(held(Held { is_stopped: true, ..Held::default() }), is(true, "Refused"));
    let all = Facts { held: Held { allowance: Some(10), resting: 1, seats: 1, is_stopped: true }, ..kept.facts() };
    let (_, _, text) = told(&all, HELD);
    assert_eq!(text.matches("; ").count(), 3, "{text}");
    assert!(text.contains("in a minute than 10 pods"), "{text}");
}

#[test]
fn what_is_unknown_is_told_with_its_reasons() {
    let kept = Kept { doubts: BTreeMap::from([(Doubt::Silent, 5), (Doubt::Beyond, 7)]), ..Kept::default() };
    let numbers = Numbers { unknown: 12, ..kept.facts().numbers };
    let text = "It is not known of 12 pods whether they match, so their marks stay as they are: 7 with more probes than a node \
                runs, 5 on nodes whose prober is not heard.";
    assert_eq!(
        told(&Facts { numbers, ..kept.facts() }, PROBES_KNOWN),
        (false, "PodsUnknown".to_owned(), text.to_owned())
    );
    assert_eq!(reason(&Kept::default().facts(), PROBES_KNOWN), is(true, "AllKnown"));
    let all = [Doubt::NotRun, Doubt::Error, Doubt::Beyond, Doubt::Silent, Doubt::NodeUnknown, Doubt::NodeGone];
    let texts: std::collections::BTreeSet<&str> = all.into_iter().map(why).collect();
    assert_eq!(texts.len(), all.len());
}

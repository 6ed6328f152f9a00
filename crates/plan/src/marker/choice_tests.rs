use proptest::prelude::*;

use super::super::clash::Clash;
use super::*;

pub(super) const NOW: Duration = Duration::from_secs(1_000);

pub(super) fn text(text: &str) -> Arc<str> {
    Arc::from(text)
}

pub(super) const OWN: Marks = Marks::Own { are_complete: true, set_at: 60 };

/// A pod that matches and has no marks.
fn standing(rank: u32, created: i64) -> Standing {
    Standing { matching: Matching::Yes, marks: Marks::Lacking, rank: Rank::of(rank), created }
}

fn own(standing: Standing) -> Standing {
    Standing { marks: OWN, ..standing }
}

fn unknown(standing: Standing, before: Option<bool>) -> Standing {
    Standing { matching: Matching::Unknown { why: Doubt::Silent, before }, ..standing }
}

fn missed(standing: Standing) -> Standing {
    Standing { matching: Matching::No(Miss::Probe(text("c"))), ..standing }
}

fn choice(replicas: Replicas, pods: &[(&str, Standing)]) -> Choice {
    let mut choice = Choice::new(replicas, 0);
    for (name, standing) in pods {
        put(&mut choice, name, standing.clone());
    }
    choice
}

fn put(choice: &mut Choice, name: &str, standing: Standing) {
    choice.put((&text(name), &text(&format!("uid-{name}"))), &standing, false, NOW);
}

fn names(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

fn marked(choice: &Choice) -> Vec<String> {
    let changes = choice.changes(NOW, usize::MAX);
    assert!(changes.unmark.is_empty() && changes.amend.is_empty(), "{changes:?}");
    names(&changes.mark).into_iter().map(str::to_owned).collect()
}

fn unmarked(choice: &Choice) -> Vec<String> {
    let changes = choice.changes(NOW, usize::MAX);
    assert!(changes.mark.is_empty() && changes.amend.is_empty(), "{changes:?}");
    names(&changes.unmark).into_iter().map(str::to_owned).collect()
}

const NOBODY: [&str; 0] = [];

#[test]
fn the_preferred_come_first_then_the_older_then_by_name() {
    let pods = [
        ("young", standing(0, 9)),
        ("old", standing(0, 5)),
        ("b", standing(1, 1)),
        ("a", standing(1, 1)),
        ("least", standing(2, 0)),
    ];
    assert_eq!(marked(&choice(Replicas::All, &pods)), ["old", "young", "a", "b", "least"]);
    assert_eq!(marked(&choice(Replicas::Count(3), &pods)), ["old", "young", "a"]);
    assert_eq!(marked(&choice(Replicas::Percent(50), &pods)), ["old", "young", "a"], "rounded up");
}

#[test]
fn a_marked_pod_stays_whatever_becomes_preferred() {
    let mut choice = choice(Replicas::Count(1), &[("a", own(standing(0, 1))), ("b", standing(1, 1))]);
    assert_eq!(marked(&choice), NOBODY);
    put(&mut choice, "a", own(standing(2, 1)));
    put(&mut choice, "b", standing(0, 1));
    assert_eq!(marked(&choice), NOBODY);
}

#[test]
fn shrinking_goes_backwards() {
    let pods = [
        ("young", own(standing(0, 9))),
        ("old", own(standing(0, 5))),
        ("b", own(standing(1, 1))),
        ("a", own(standing(1, 1))),
        ("least", own(standing(2, 0))),
    ];
    assert_eq!(unmarked(&choice(Replicas::Count(2), &pods)), ["least", "b", "a"]);
    assert_eq!(unmarked(&choice(Replicas::Count(0), &pods)), ["least", "b", "a", "young", "old"]);
    assert_eq!(choice(Replicas::Count(2), &pods).changes(NOW, 1).unmark.len(), 1, "no more than asked for");
}

#[test]
fn marks_of_others_count_and_are_never_taken_off() {
    let foreign = |created| Standing { marks: Marks::Foreign, ..standing(0, created) };
    let pods = [("a", foreign(1)), ("b", foreign(2)), ("c", own(standing(0, 3))), ("d", standing(0, 4))];
    assert_eq!(marked(&choice(Replicas::Count(3), &pods)), NOBODY);
    assert_eq!(marked(&choice(Replicas::Count(4), &pods)), ["d"]);
    let shrunk = choice(Replicas::Count(1), &pods);
    assert_eq!(unmarked(&shrunk), ["c"]);
    assert_eq!((shrunk.numbers().desired, shrunk.numbers().succeeded), (1, 3));
    assert_eq!(unmarked(&choice(Replicas::Count(0), &pods)), ["c"]);
}

#[test]
fn a_pod_that_stops_matching_loses_its_marks_and_another_is_found() {
    let mut choice = choice(Replicas::Count(1), &[("a", own(standing(0, 1))), ("b", standing(0, 2))]);
    for miss in [Miss::Labels, Miss::NodeLabels, Miss::Probe(text("c"))] {
        put(&mut choice, "a", Standing { matching: Matching::No(miss), ..own(standing(0, 1)) });
        let changes = choice.changes(NOW, usize::MAX);
        assert_eq!((names(&changes.unmark), names(&changes.mark)), (vec!["a"], vec!["b"]));
    }
    put(&mut choice, "a", Standing { matching: Matching::No(Miss::Labels), ..standing(0, 1) });
    assert_eq!(marked(&choice), ["b"]);
}

#[test]
fn conflicting_pods_do_not_match_and_count_in_no_percentage() {
    let conflicting = |marks: Marks| {
        let clash = Clash { cause: Cause::Value, key: text("k") };
        Standing { matching: Matching::Conflict(clash), marks, ..standing(0, 1) }
    };
    let pods =
        [("a", conflicting(Marks::Lacking)), ("b", conflicting(OWN)), ("c", standing(0, 1)), ("d", standing(0, 2))];
    let choice = choice(Replicas::Percent(50), &pods);
    let changes = choice.changes(NOW, usize::MAX);
    assert_eq!((names(&changes.unmark), names(&changes.mark)), (vec!["b"], vec!["c"]), "it looks for another");
    assert_eq!((choice.numbers().matched, choice.numbers().conflicting), (2, 2));
    assert_eq!(choice.causes(), &BTreeMap::from([(Cause::Value, 2)]));
}

#[test]
fn what_is_unknown_moves_no_mark_and_no_percentage() {
    let half = || {
        let pods =
            [("a", own(standing(0, 1))), ("b", own(standing(0, 2))), ("c", standing(0, 3)), ("d", standing(0, 4))];
        choice(Replicas::Percent(50), &pods)
    };
    for (name, marks) in [("a", OWN), ("b", OWN), ("c", Marks::Lacking), ("d", Marks::Lacking)] {
        let mut choice = half();
        put(&mut choice, name, unknown(Standing { marks, ..standing(0, 1) }, None));
        assert_eq!(marked(&choice), NOBODY, "{name}");
        assert_eq!((choice.numbers().matched, choice.numbers().desired, choice.numbers().unknown), (4, 2, 1));
    }
    let mut choice = half();
    put(&mut choice, "c", missed(standing(0, 3)));
    put(&mut choice, "c", unknown(standing(0, 3), Some(true)));
    assert_eq!(choice.numbers().matched, 3, "it did not match when it was last known here");
    assert_eq!(choice.doubts(), &BTreeMap::from([(Doubt::Silent, 1)]));
}

#[test]
fn one_that_was_never_known_does_not_match() {
    let choice = choice(Replicas::All, &[("a", unknown(standing(0, 1), None)), ("b", standing(0, 1))]);
    assert_eq!(marked(&choice), ["b"]);
    assert_eq!((choice.numbers().matched, choice.numbers().unknown), (1, 1));
}

#[test]
fn after_a_takeover_what_is_marked_has_matched_and_what_is_stored_is_what_was() {
    // Led since second 100: whoever led before has marked half of four.
    let mut choice = Choice::new(Replicas::Percent(50), 100);
    put(&mut choice, "a", unknown(own(standing(0, 1)), None));
    put(&mut choice, "b", unknown(own(standing(0, 2)), Some(true)));
    put(&mut choice, "c", unknown(standing(0, 3), Some(true)));
    put(&mut choice, "d", unknown(standing(0, 4), None));
    assert_eq!(marked(&choice), NOBODY, "none goes either: d may have matched");
    assert_eq!(choice.numbers().matched, 3);
    put(&mut choice, "d", missed(standing(0, 4)));
    assert_eq!(unmarked(&choice), NOBODY, "half of three are two");
    put(&mut choice, "c", missed(standing(0, 3)));
    assert_eq!(unmarked(&choice), ["b"], "known, they count");
}

#[test]
fn one_that_did_not_match_and_is_unknown_keeps_its_marks_and_counts_for_nothing() {
    let mut choice = choice(Replicas::Count(1), &[("a", missed(own(standing(0, 1)))), ("b", standing(0, 2))]);
    put(&mut choice, "a", unknown(own(standing(0, 1)), None));
    assert_eq!(marked(&choice), ["b"]);
    choice.ask(Replicas::Count(0), false);
    assert_eq!(unmarked(&choice), ["a"], "zero cleans");
}

#[test]
fn zero_cleans_what_is_unknown_too() {
    let pods = [("a", unknown(own(standing(0, 1)), None)), ("b", own(standing(0, 2))), ("c", standing(0, 3))];
    for replicas in [Replicas::Count(0), Replicas::Percent(0)] {
        assert_eq!(unmarked(&choice(replicas, &pods)), ["b", "a"]);
    }
}

#[test]
fn a_suspended_marker_changes_nothing() {
    let mut choice = choice(Replicas::Count(1), &[("a", missed(own(standing(0, 1)))), ("b", standing(0, 2))]);
    choice.ask(Replicas::Count(1), true);
    assert_eq!(choice.changes(NOW, usize::MAX), Changes::default());
    choice.ask(Replicas::Count(1), false);
    assert_eq!(choice.changes(NOW, usize::MAX).mark, [text("b")]);
}

#[test]
fn marks_that_are_not_as_they_should_be_are_changed_where_they_stay() {
    let stale = |created| Standing { marks: Marks::Own { are_complete: false, set_at: 60 }, ..standing(0, created) };
    let pods = [("a", stale(1)), ("b", own(standing(0, 2))), ("c", stale(3))];
    let choice_of = |replicas| choice(replicas, &pods).changes(NOW, usize::MAX);
    let all = choice_of(Replicas::Count(3));
    assert_eq!((names(&all.amend), all.unmark.len(), all.mark.len()), (vec!["a", "c"], 0, 0), "no mark moves");
    let fewer = choice_of(Replicas::Count(2));
    assert_eq!((names(&fewer.amend), names(&fewer.unmark)), (vec!["a"], vec!["c"]));
    assert_eq!(choice(Replicas::Count(3), &pods).numbers().succeeded, 1);
}

#[test]
fn what_cannot_be_changed_is_passed_over() {
    let fix = |choice: &mut Choice, name: &str, standing: Standing| {
        choice.put((&text(name), &text(&format!("uid-{name}"))), &standing, true, NOW);
    };
    let mut free = choice(Replicas::Count(1), &[("a", standing(0, 1)), ("b", standing(0, 2))]);
    fix(&mut free, "a", standing(0, 1));
    assert_eq!(marked(&free), ["b"]);
    let mut own_pods = choice(Replicas::Count(1), &[("a", own(standing(0, 1))), ("b", own(standing(0, 2)))]);
    fix(&mut own_pods, "b", own(standing(0, 2)));
    assert_eq!(unmarked(&own_pods), ["a"]);
}

#[test]
fn pods_that_ended_do_not_count() {
    let mut choice =
        choice(Replicas::Percent(50), &[("a", standing(0, 1)), ("b", standing(0, 2)), ("c", standing(0, 3))]);
    assert_eq!(choice.numbers().desired, 2);
    choice.ended("c", "uid-c", NOW);
    choice.ended("c", "uid-c", NOW);
    choice.ended("a", "uid-of-another", NOW);
    assert_eq!((choice.numbers().matched, choice.numbers().desired), (2, 1));
    assert_eq!(marked(&choice), ["a"]);
}

#[test]
fn the_seat_of_a_marked_pod_that_ended_goes_to_one_made_after_the_mark() {
    // The mark was set in second 60.
    let mut choice =
        choice(Replicas::Count(1), &[("a", own(standing(0, 1))), ("b", standing(0, 2)), ("c", standing(0, 60))]);
    choice.ended("a", "uid-a", NOW);
    assert_eq!(marked(&choice), NOBODY);
    assert_eq!((choice.barred(NOW), choice.numbers().waiting), (1, 1));
    assert_eq!(choice.next(NOW), Some(NOW + super::super::seats::KEPT));
    put(&mut choice, "successor", standing(3, 61));
    assert_eq!(marked(&choice), ["successor"], "though it is the least preferred");
    choice.ended("successor", "uid-successor", NOW);
    let later = NOW + super::super::seats::KEPT;
    assert_eq!(names(&choice.changes(later, usize::MAX).mark), ["b"], "then to any");
    assert_eq!(choice.barred(later), 0);
}

#[test]
fn a_pod_of_the_same_name_is_another_one() {
    let mut choice = choice(Replicas::Count(1), &[("db-0", own(standing(0, 1))), ("db-1", standing(0, 2))]);
    choice.put((&text("db-0"), &text("another")), &standing(0, 70), false, NOW);
    assert_eq!(marked(&choice), ["db-0"], "it has the seat of the one before it");
}

#[test]
fn seats_that_nobody_had_go_to_any() {
    let mut few = choice(Replicas::Count(5), &[("a", own(standing(0, 1)))]);
    few.ended("a", "uid-a", NOW);
    put(&mut few, "b", standing(0, 2));
    assert_eq!(marked(&few), ["b"], "four of five were free");
    let mut all = choice(Replicas::All, &[("a", own(standing(0, 1)))]);
    all.ended("a", "uid-a", NOW);
    put(&mut all, "b", standing(0, 2));
    assert_eq!(marked(&all), ["b"], "where all are marked there is no seat to wait for");
}

#[test]
fn seats_that_a_leader_missed_are_kept_too() {
    let mut choice = choice(Replicas::Count(2), &[("a", own(standing(0, 1))), ("b", standing(0, 2))]);
    choice.missed(500, NOW);
    assert_eq!(marked(&choice), NOBODY);
    put(&mut choice, "c", standing(5, 501));
    assert_eq!(marked(&choice), ["c"]);
}

/// A controller replaces whatever is marked, a pod after the other, and each new pod matches as the one before.
#[test]
fn a_controller_that_replaces_marked_pods_meets_the_same_ten_again() {
    let pods: Vec<(String, Standing)> = (0..100).map(|number| (format!("p{number:03}"), standing(0, number))).collect();
    let mut choice = Choice::new(Replicas::Count(10), 0);
    for (name, standing) in &pods {
        put(&mut choice, name, standing.clone());
    }
    let mut second = 1_000;
    let mut successors = 0;
    let mark = |choice: &mut Choice, second: i64| {
        for name in choice.changes(NOW, usize::MAX).mark {
            let created = if name.starts_with('s') { second - 1 } else { 0 };
            let marks = Marks::Own { are_complete: true, set_at: second };
            put(choice, &name, Standing { marks, ..standing(0, created) });
        }
    };
    mark(&mut choice, second);
    for _ in 0..50 {
        second += 2;
        let next = choice.lists.own.first().expect("a marked pod").name.clone();
        choice.ended(&next, &format!("uid-{next}"), NOW);
        successors += 1;
        put(&mut choice, &format!("s{successors:03}"), standing(0, second - 1));
        mark(&mut choice, second);
        assert_eq!(choice.numbers().succeeded, 10);
    }
    let untouched = choice.lists.free.iter().filter(|turn| turn.name.starts_with('p')).count();
    assert_eq!(untouched, 90, "no other pod was ever marked");
}

proptest! {
    /// Whatever is asked for: never more than match, and never fewer than can be.
    #[test]
    fn as_many_as_asked_for_are_marked(count in 0_usize..8, percent in 0_usize..=100, pods in 0_usize..8, is_percent in any::<bool>()) {
        let replicas = if is_percent { Replicas::Percent(percent) } else { Replicas::Count(count) };
        let pods: Vec<(String, Standing)> = (0..pods).map(|number| (format!("p{number}"), standing(0, 1))).collect();
        let mut choice = Choice::new(replicas, 0);
        for (name, standing) in &pods {
            put(&mut choice, name, standing.clone());
        }
        let expected = if is_percent { (pods.len() * percent).div_ceil(100) } else { count.min(pods.len()) };
        prop_assert_eq!(choice.changes(NOW, usize::MAX).mark.len(), expected);
        prop_assert_eq!(choice.numbers().desired, expected);
        prop_assert_eq!(choice.changes(NOW, 2).mark.len(), expected.min(2));
    }
}

#[test]
fn pods_with_marks_are_counted_whether_they_match_or_not() {
    let foreign = Standing { marks: Marks::Foreign, ..standing(0, 20) };
    let stray = own(Standing { matching: Matching::No(Miss::Labels), ..standing(0, 30) });
    let all = [("a", own(standing(0, 10))), ("b", foreign), ("c", stray), ("d", standing(0, 40))];
    assert_eq!(choice(Replicas::Count(2), &all).with_marks(), 3);
}

#[test]
fn only_what_is_news_is_told() {
    let mut choice = Choice::new(Replicas::Count(1), 0);
    let (name, uid) = (text("a"), text("u"));
    let mut put = |standing: &Standing, is_fixed: bool| choice.put((&name, &uid), standing, is_fixed, NOW);
    let matches = standing(0, 10);
    assert!(put(&matches, false) && !put(&matches, false));
    assert!(put(&matches, true), "it cannot be changed by now");
    let other = Standing { matching: Matching::No(Miss::Labels), ..matches.clone() };
    assert!(put(&other, false) && !put(&other, false), "one that has nothing to do with it is left out");
    assert!(put(&matches, false));
    assert!(choice.put((&name, &text("another")), &other, false, NOW), "another of its name is another");
    assert!(!choice.ended("a", "another", NOW));
    assert!(choice.put((&name, &uid), &matches, false, NOW) && choice.ended("a", "u", NOW));
}

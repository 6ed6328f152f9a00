//! Pods that come, go and wait.

use dapple_api::group::{NumRange, PropagationPolicySpec, StaticNodeGroupWeight};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn weights(listed: &[i64]) -> Division {
    let item = |(group, weight): (usize, &i64)| StaticNodeGroupWeight {
        node_group_names: vec![format!("g{group}")],
        weight: *weight,
    };
    let static_weight_list = listed.iter().enumerate().map(item).collect();
    Division::of(&PropagationPolicySpec { static_weight_list, ..PropagationPolicySpec::default() }).unwrap()
}

fn ranges(listed: &[(i32, i32)]) -> Division {
    let item = |(group, (min, max)): (usize, &(i32, i32))| NumRange {
        node_group_names: vec![format!("g{group}")],
        min: Some(*min),
        max: Some(*max),
    };
    let num_range = listed.iter().enumerate().map(item).collect();
    Division::of(&PropagationPolicySpec { num_range, ..PropagationPolicySpec::default() }).unwrap()
}

fn pods(count: usize, waiting: &Waiting) -> Vec<(Arc<str>, Waiting)> {
    (0..count).map(|number| (Arc::from(format!("p{number}")), waiting.clone())).collect()
}

/// All groups have room.
const ROOM: HasRoom<'static> = &|_, _, _| true;

/// The groups and seats of so many pods that come at once.
fn placed(division: Division, count: usize, waiting: &Waiting) -> Vec<Option<(usize, Option<usize>)>> {
    let mut seating = Seating::new(division);
    seating.set_live(count);
    seating
        .place(&pods(count, waiting), ROOM)
        .into_iter()
        .map(|place| place.map(|place| (place.group, place.seat)))
        .collect()
}

#[test]
fn pods_that_come_at_once_take_the_first_seats() {
    let expected = [(1, 0), (0, 1), (1, 2), (0, 3), (1, 4)].map(|(group, seat)| Some((group, Some(seat))));
    assert_eq!(placed(weights(&[2, 3]), 5, &Waiting::default()), expected);
    let none = placed(ranges(&[(0, 1), (0, 1)]), 3, &Waiting::default());
    assert_eq!(none[2], None, "every group has its greatest number");
}

#[test]
fn a_seat_that_two_say_is_the_others_once_one_has_it_no_more() {
    let mut seating = Seating::new(weights(&[1]));
    seating.set_live(3);
    let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
    let at = |seat: usize| Placed { group: Some(0), seat: Some(seat) };
    assert_eq!(seating.put(&a, at(0)), Some(0));
    assert_eq!(seating.put(&b, at(1)), Some(1));
    // They are exchanged, and told one after the other.
    assert_eq!(seating.put(&a, at(1)), None);
    assert_eq!(seating.put(&b, at(0)), Some(0));
    let places = seating.place(&[(c.clone(), Waiting::default())], ROOM);
    assert_eq!(places, [Some(Place { group: 0, seat: Some(2) })], "a has the seat that b had");
    // Who says a seat and is gone has no claim any more.
    assert_eq!(seating.put(&b, at(1)), None);
    seating.remove(&b);
    seating.remove(&a);
    assert_eq!(seating.put(&b, at(1)), Some(1));
}

#[test]
fn a_pod_takes_a_free_seat_of_the_group_that_it_was_made_for() {
    for elsewhere in [Suits::Corrected, Suits::Never] {
        let waiting = Waiting { suits: vec![Suits::AsItIs, elsewhere], ..Waiting::default() };
        let groups: Vec<Option<usize>> =
            placed(weights(&[2, 3]), 5, &waiting).into_iter().map(|place| place.map(|(group, _)| group)).collect();
        assert_eq!(groups, [Some(0), Some(0), Some(1), Some(1), Some(1)]);
    }
}

#[test]
fn a_pod_that_must_stay_keeps_the_group_that_it_was_made_for() {
    let groups = |elsewhere: Suits, ordinal: Option<usize>| -> Vec<usize> {
        let suits = vec![Suits::AsItIs, elsewhere];
        let waiting = Waiting { suits, is_kept: true, ordinal, ..Waiting::default() };
        placed(weights(&[1, 1]), 3, &waiting).into_iter().flatten().map(|(group, _)| group).collect()
    };
    assert_eq!(groups(Suits::Never, None), [0, 0, 0]);
    assert_eq!(groups(Suits::Corrected, None), [0, 0, 1], "it can be corrected");
    assert_eq!(groups(Suits::Never, Some(1)), [0, 0, 0], "its index is a seat of the other group");
}

#[test]
fn those_that_can_be_corrected_give_way_to_those_that_cannot() {
    let mut seating = Seating::new(weights(&[1, 1]));
    seating.set_live(2);
    let waits = |suits: [Suits; 2]| Waiting { suits: suits.to_vec(), ..Waiting::default() };
    let waiting = [
        (Arc::from("easy"), waits([Suits::Corrected, Suits::Corrected])),
        (Arc::from("strict"), waits([Suits::AsItIs, Suits::Never])),
    ];
    let groups: Vec<usize> = seating.place(&waiting, ROOM).into_iter().flatten().map(|place| place.group).collect();
    assert_eq!(groups, [1, 0]);
}

#[test]
fn an_ordinal_is_a_seat() {
    let mut seating = Seating::new(weights(&[2, 3]));
    seating.set_live(2);
    let waits = |ordinal| Waiting {
        ordinal: Some(ordinal),
        suits: vec![Suits::AsItIs, Suits::Corrected],
        ..Waiting::default()
    };
    let waiting = [(Arc::from("web-3"), waits(3)), (Arc::from("web-4"), waits(4))];
    let places = seating.place(&waiting, ROOM);
    assert_eq!(places, [Some(Place { group: 0, seat: Some(3) }), Some(Place { group: 1, seat: Some(4) })]);
}

#[test]
fn volumes_come_before_seats() {
    let waiting = Waiting { allowed: Some(BTreeSet::from([0])), ..Waiting::default() };
    let places = placed(weights(&[1, 9]), 3, &waiting);
    assert!(places.iter().all(|place| place.is_some_and(|(group, _)| group == 0)), "{places:?}");
}

#[test]
fn above_its_least_number_a_group_without_room_is_passed_by() {
    let placed = |division: Division, count: usize, waiting: &Waiting, room: &[usize]| {
        let mut seating = Seating::new(division);
        seating.set_live(count);
        seating.place(&pods(count, waiting), &|_, group, besides| besides < room[group])
    };
    let groups = |division, count, waiting: &Waiting, room: &[usize]| -> Vec<usize> {
        placed(division, count, waiting, room).into_iter().flatten().map(|place| place.group).collect()
    };
    let any = Waiting::default();
    assert_eq!(groups(ranges(&[(1, 9), (0, 9)]), 3, &any, &[0, 9]), [0, 1, 1], "its least number it keeps");
    assert_eq!(groups(ranges(&[(0, 9), (0, 9)]), 6, &any, &[1, 9]), [0, 1, 1, 1, 1, 1], "there is room for one");
    assert_eq!(groups(ranges(&[(0, 9), (0, 3)]), 6, &any, &[1, 9]), [0, 1, 1, 1, 0, 0], "the other has its greatest");
    assert_eq!(groups(ranges(&[(0, 9), (0, 9)]), 4, &any, &[0, 1]), [1, 0, 0, 1], "no other has room either");
    assert_eq!(groups(weights(&[1, 1]), 3, &any, &[0, 9]), [0, 1, 0], "by weight, a share is kept");
    let strict = Waiting { suits: vec![Suits::AsItIs, Suits::Never], ..Waiting::default() };
    assert_eq!(
        groups(ranges(&[(0, 9), (0, 9)]), 1, &strict, &[0, 9]),
        [0],
        "it would be made for the same group again"
    );
    let barred = Waiting { barred: BTreeSet::from([1]), ..Waiting::default() };
    assert_eq!(groups(ranges(&[(0, 9), (0, 9)]), 1, &barred, &[0, 9]), [0], "it would wait behind the gate there");
    let numbered = Waiting { ordinal: Some(0), ..Waiting::default() };
    assert_eq!(groups(ranges(&[(0, 9), (0, 9)]), 1, &numbered, &[0, 9]), [0], "its number is its seat");
    let seats: BTreeSet<Option<usize>> =
        placed(ranges(&[(0, 9), (0, 9)]), 6, &any, &[1, 9]).into_iter().map(|place| place.unwrap().seat).collect();
    assert_eq!(seats, [0, 1, 3, 5, 7, 9].map(Some).into(), "each has a seat of the group that it is in");
}

#[test]
fn every_group_has_its_least_number_before_pods_are_sent_on_for_want_of_room() {
    // Made for the first group, which has no room: were they all sent on to the third, the second would get none.
    let mut seating = Seating::new(ranges(&[(2, 9), (1, 9), (1, 4)]));
    seating.set_live(7);
    let has_room = |_: usize, group: usize, _: usize| group == 2;
    for in_second in [Suits::Corrected, Suits::Never] {
        let made_for_first = Waiting { suits: vec![Suits::AsItIs, in_second, Suits::Corrected], ..Waiting::default() };
        let waiting = pods(7, &made_for_first);
        let groups: Vec<usize> = seating.place(&waiting, &has_room).iter().flatten().map(|place| place.group).collect();
        let count = |group: usize| groups.iter().filter(|known| **known == group).count();
        assert_eq!([count(0), count(1), count(2)], [2, 1, 4], "{in_second:?}");
        waiting.iter().for_each(|(pod, _)| seating.remove(pod));
    }
}

#[test]
fn a_seat_that_is_not_the_groups_or_is_taken_or_absurd_is_not_believed() {
    let mut seating = Seating::new(weights(&[2, 3]));
    seating.set_live(5);
    let put = |seating: &mut Seating, pod: &str, group, seat| {
        seating.put(&Arc::from(pod), Placed { group: Some(group), seat: Some(seat) })
    };
    assert_eq!(put(&mut seating, "a", 1, 0), Some(0));
    assert_eq!(put(&mut seating, "b", 1, 0), None, "it is taken");
    assert_eq!(put(&mut seating, "c", 0, 2), None, "it is another group's");
    assert_eq!(put(&mut seating, "d", 0, 2_000_000_000), None);
    assert_eq!(seating.counts(), [(2, 2), (2, 3)], "they count all the same");
    seating.remove("a");
    assert_eq!(put(&mut seating, "b", 1, 0), Some(0));
}

#[derive(Debug, Clone)]
enum Happens {
    Comes(Option<usize>),
    Goes(usize),
    Scales(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => proptest::option::of(0..4_usize).prop_map(Happens::Comes),
        1 => any::<prop::sample::Index>().prop_map(|index| Happens::Goes(index.index(1_000))),
        1 => (0..30_usize).prop_map(Happens::Scales),
    ]
}

proptest! {
    /// Whatever comes and goes: no seat is had twice, all that wait are placed, and who goes last in, first out, leaves exactly
    /// the shares of those that are left.
    #[test]
    fn no_seat_is_had_twice_and_scaling_moves_nobody(
        listed in vec(1_i64..20, 1..5),
        story in vec(happens(), 1..60),
    ) {
        let mut seating = Seating::new(weights(&listed));
        let mut seats: BTreeMap<Arc<str>, Place> = BTreeMap::new();
        let mut made = 0;
        for step in story {
            let mut waiting = Vec::new();
            match step {
                Happens::Comes(made_for) => {
                    let suits = |group| if made_for == Some(group) { Suits::AsItIs } else { Suits::Corrected };
                    let suits = (0..listed.len()).map(suits).collect();
                    waiting.push((Arc::from(format!("p{made}")), Waiting { suits, ..Waiting::default() }));
                    made += 1;
                }
                Happens::Goes(index) => {
                    if let Some(pod) = seats.keys().nth(index % seats.len().max(1)).cloned() {
                        seats.remove(&pod);
                        seating.remove(&pod);
                    }
                }
                Happens::Scales(to) => {
                    // Upstream's order, once all are Ready: the lowest deletion cost, which is the last seat.
                    while seats.len() > to {
                        let last = seats.iter().max_by_key(|(_, place)| place.seat).map(|(pod, _)| pod.clone()).unwrap();
                        seats.remove(&last);
                        seating.remove(&last);
                    }
                    for _ in seats.len()..to {
                        waiting.push((Arc::from(format!("p{made}")), Waiting::default()));
                        made += 1;
                    }
                }
            }
            seating.set_live(seats.len() + waiting.len());
            let places = seating.place(&waiting, ROOM);
            for ((pod, _), place) in waiting.iter().zip(places) {
                prop_assert!(place.is_some_and(|place| place.seat.is_some()), "{:?}", place);
                seats.insert(pod.clone(), place.unwrap());
            }
            let distinct: BTreeSet<Option<usize>> = seats.values().map(|place| place.seat).collect();
            prop_assert_eq!(distinct.len(), seats.len(), "a seat is had twice");
        }
    }

    /// However much room there is: every pod has a place while there is a seat, no seat is had twice, no group has more than its
    /// greatest number nor, while all pods are enough, less than its least; and above that none goes to a group without room
    /// while another that may have it has some.
    #[test]
    fn room_is_used_within_least_and_greatest_numbers(
        listed in vec((0_i32..4, 0_i32..8, 0_usize..12), 1..5),
        bursts in vec(1_usize..6, 1..6),
    ) {
        let listed: Vec<(i32, i32, usize)> =
            listed.into_iter().map(|(min, more, room)| (min, min + more, room)).collect();
        let bounds: Vec<(i32, i32)> = listed.iter().map(|(min, max, _)| (*min, *max)).collect();
        let mut seating = Seating::new(ranges(&bounds));
        let mut places: Vec<Place> = Vec::new();
        let mut counts = vec![0_usize; listed.len()];
        let mut live = 0;
        for (burst, size) in bursts.into_iter().enumerate() {
            live += size;
            seating.set_live(live);
            let waiting: Vec<(Arc<str>, Waiting)> =
                (0..size).map(|number| (Arc::from(format!("{burst}-{number}")), Waiting::default())).collect();
            let before = counts.clone();
            let has_room = |_: usize, group: usize, besides: usize| before[group] + besides < listed[group].2;
            for place in seating.place(&waiting, &has_room) {
                let greatest = |group: usize| usize::try_from(listed[group].1).unwrap();
                let Some(place) = place else {
                    prop_assert!((0..listed.len()).all(|group| counts[group] >= greatest(group)));
                    continue;
                };
                let has = |group: usize| counts[group] < listed[group].2;
                let is_above = counts[place.group] >= usize::try_from(listed[place.group].0).unwrap();
                let elsewhere = (0..listed.len()).any(|group| has(group) && counts[group] < greatest(group));
                prop_assert!(!is_above || has(place.group) || !elsewhere, "{} has no room", place.group);
                counts[place.group] += 1;
                prop_assert!(counts[place.group] <= greatest(place.group));
                places.push(place);
            }
            let least = |group: usize| usize::try_from(listed[group].0).unwrap();
            if live >= (0..listed.len()).map(least).sum() {
                prop_assert!((0..listed.len()).all(|group| counts[group] >= least(group)), "{:?}", counts);
            }
        }
        let seats: Vec<usize> = places.iter().filter_map(|place| place.seat).collect();
        prop_assert_eq!(seats.iter().collect::<BTreeSet<_>>().len(), seats.len(), "a seat is had twice");
    }

    /// Whatever editions pods were made by, and however much room there is: while all pods are enough, no group has less than its
    /// least number, and none ever more than its greatest.
    #[test]
    fn least_and_greatest_numbers_hold_whatever_pods_were_made_for(
        listed in vec((0_i32..4, 0_i32..8, 0_usize..12), 1..5),
        made in vec(vec(0_u8..3, 5), 1..20),
    ) {
        let bounds: Vec<(i32, i32)> = listed.iter().map(|(min, more, _)| (*min, min + more)).collect();
        let mut seating = Seating::new(ranges(&bounds));
        seating.set_live(made.len());
        let suits = |made: &[u8]| -> Vec<Suits> {
            made.iter().map(|how| [Suits::AsItIs, Suits::Corrected, Suits::Never][usize::from(*how)]).collect()
        };
        let waiting: Vec<(Arc<str>, Waiting)> = made.iter().enumerate().map(|(number, made)| {
            (Arc::from(format!("p{number}")), Waiting { suits: suits(made), ..Waiting::default() })
        }).collect();
        let has_room = |_: usize, group: usize, besides: usize| besides < listed[group].2;
        let mut counts = vec![0_usize; listed.len()];
        seating.place(&waiting, &has_room).into_iter().flatten().for_each(|place| counts[place.group] += 1);
        let all: usize = bounds.iter().map(|(min, _)| usize::try_from(*min).unwrap()).sum();
        for (count, (min, max)) in counts.iter().zip(&bounds) {
            prop_assert!(*count <= usize::try_from(*max).unwrap(), "{:?}", counts);
            prop_assert!(made.len() < all || *count >= usize::try_from(*min).unwrap(), "{:?}", counts);
        }
    }
}

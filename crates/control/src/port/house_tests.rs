//! Who keeps a place, and who does not.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn peer(number: u8) -> Peer {
    Peer::from(std::net::IpAddr::from(Ipv4Addr::new(10, 0, 0, number)))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A house, and a clock that is turned by hand.
struct Scene {
    house: House,
    now: Instant,
}

impl Scene {
    fn new(most: usize, per_peer: usize) -> Self {
        Self { house: House::new(Portion { most, per_peer }, Patience::SERVER), now: Instant::now() }
    }

    fn later(&mut self, count: u64) -> &mut Self {
        self.now += seconds(count);
        self
    }

    fn enter(&mut self, number: u8) -> Entry {
        self.house.enter(peer(number), self.now)
    }

    fn silent(&mut self, number: u8) -> Connection {
        let Entry::Taken(connection, _) = self.enter(number) else { panic!("refused") };
        self.house.greeted(connection, false, self.now);
        connection
    }

    fn answering(&mut self, number: u8) -> Connection {
        let connection = self.silent(number);
        self.house.heard(connection, self.now);
        self.house.has_head(connection, self.now);
        self.house.has_request(connection, self.now);
        self.house.is_answered(connection, self.now);
        connection
    }

    fn idle(&mut self, number: u8) -> Connection {
        let connection = self.answering(number);
        self.house.takes_answer(connection, self.now);
        self.house.has_written(connection);
        self.house.has_flushed(connection, self.now);
        assert_eq!(self.house.stage(connection), Some(Stage::Idle));
        connection
    }
}

fn loser(entry: Entry) -> Option<Connection> {
    match entry {
        Entry::Taken(_, cut) => cut.map(|cut| cut.connection),
        Entry::Refused => panic!("refused"),
    }
}

#[test]
fn a_full_house_closes_the_idlest_first() {
    let mut scene = Scene::new(4, 4);
    let answered = scene.idle(1);
    let quiet = scene.later(1).silent(2);
    let busy = scene.answering(3);
    let quiet_later = scene.later(1).silent(2);
    assert_eq!(loser(scene.later(1).enter(4)), Some(quiet), "it has asked nothing, for longest");
    assert_eq!(loser(scene.enter(4)), Some(quiet_later));
    // Both of the new ones have asked nothing yet.
    assert!(loser(scene.enter(4)).is_some_and(|lost| lost > quiet_later));
    assert_eq!(scene.house.stage(answered), Some(Stage::Idle), "it goes after everybody who has asked nothing");
    assert_eq!(scene.house.stage(busy), Some(Stage::Answering), "nobody is cut off who is being answered");
}

#[test]
fn half_a_request_holds_no_place_against_a_new_connection() {
    let mut scene = Scene::new(2, 2);
    let half = scene.silent(1);
    scene.house.heard(half, scene.now);
    let answered = scene.idle(2);
    assert_eq!(loser(scene.later(1).enter(3)), Some(half));
    assert_eq!(scene.house.stage(answered), Some(Stage::Idle));
}

#[test]
fn one_peer_cannot_take_all_and_makes_room_from_its_own() {
    let mut scene = Scene::new(4, 2);
    let other = scene.silent(2);
    let (first, second) = (scene.later(1).silent(1), scene.later(1).silent(1));
    assert_eq!(loser(scene.later(1).enter(1)), Some(first), "its own idlest, though another's is idler");
    assert_eq!(scene.house.stage(other), Some(Stage::Silent));
    assert_eq!(scene.house.stage(second), Some(Stage::Silent));
    let mut scene = Scene::new(4, 2);
    scene.answering(1);
    scene.answering(1);
    assert_eq!(scene.enter(1), Entry::Refused, "both of its places are being answered");
    assert!(matches!(scene.enter(2), Entry::Taken(_, None)), "others have theirs");
}

#[test]
fn who_is_known_keeps_a_place_before_who_is_not() {
    let mut scene = Scene::new(2, 2);
    let known = scene.silent(1);
    scene.house.greeted(known, true, scene.now);
    let stranger = scene.later(9).idle(2);
    assert_eq!(loser(scene.enter(3)), Some(stranger));
    assert_eq!(scene.house.stage(known), Some(Stage::Silent));
}

#[test]
fn each_stage_has_its_time() {
    let mut scene = Scene::new(9, 9);
    let Entry::Taken(greeting, _) = scene.enter(1) else { panic!("refused") };
    let silent = scene.silent(1);
    let half = scene.silent(1);
    scene.house.heard(half, scene.now);
    let (idle, answering) = (scene.idle(1), scene.answering(1));
    let taking = scene.answering(1);
    scene.house.takes_answer(taking, scene.now);
    let known = scene.idle(1);
    scene.house.seats.get_mut(&known).unwrap().is_known = true;
    let begun = scene.now;
    let mut late = |after: u64| -> Vec<(Connection, Stage)> {
        let cuts = scene.house.overdue(begun + seconds(after));
        cuts.iter().map(|cut| (cut.connection, cut.stage)).collect()
    };
    assert_eq!(late(4), []);
    assert_eq!(late(5), [(greeting, Stage::Greeting), (half, Stage::Half)]);
    assert_eq!((late(9), late(10)), (vec![], vec![(silent, Stage::Silent)]));
    assert_eq!((late(29), late(30)), (vec![], vec![(idle, Stage::Idle), (taking, Stage::Taking)]));
    assert_eq!((late(119), late(120)), (vec![], vec![(known, Stage::Idle)]));
    assert_eq!(late(9_999), [], "how long an answer takes is not the caller's fault");
    assert_eq!(scene.house.stage(answering), Some(Stage::Answering));
}

#[test]
fn bytes_that_trickle_in_win_no_time() {
    let mut scene = Scene::new(2, 2);
    let slow = scene.silent(1);
    for _ in 0..4 {
        scene.house.heard(slow, scene.now);
        assert_eq!(scene.house.overdue(scene.now), []);
        scene.later(1);
    }
    scene.house.heard(slow, scene.now);
    assert_eq!(scene.house.overdue(scene.now + seconds(1)).len(), 1, "five seconds after the first byte");
}

#[test]
fn a_request_that_begins_before_the_answer_is_taken_has_begun() {
    let mut scene = Scene::new(2, 2);
    let eager = scene.answering(1);
    scene.house.heard(eager, scene.now);
    scene.house.takes_answer(eager, scene.now);
    scene.house.has_flushed(eager, scene.now);
    assert_eq!(scene.house.stage(eager), Some(Stage::Taking), "the answer is not written yet");
    scene.house.has_written(eager);
    scene.house.has_flushed(eager, scene.now);
    assert_eq!(scene.house.stage(eager), Some(Stage::Half));
}

proptest! {
    /// Whatever happens: nobody has more than a share, whoever is being answered stays, and there is a place for the new one
    /// unless all that its peer could have are being answered.
    #[test]
    fn there_is_a_place_for_whoever_comes(steps in prop::collection::vec((0_u8..5, 1_u8..5, 0_u64..3), 0..300)) {
        let mut scene = Scene::new(6, 3);
        for (step, number, pause) in steps {
            scene.later(pause);
            let known: Vec<Connection> = scene.house.seats.keys().copied().collect();
            let some = known.get(usize::from(number) % known.len().max(1)).copied();
            match (step, some) {
                (0, _) => {
                    let stages = |scene: &Scene, of: Option<Peer>| {
                        let seats = scene.house.seats.values().filter(|seat| of.is_none_or(|of| seat.peer == of));
                        let answering = seats.clone().filter(|seat| seat.stage == Stage::Answering).count();
                        (seats.count(), answering)
                    };
                    let ((all, all_answering), (own, own_answering)) =
                        (stages(&scene, None), stages(&scene, Some(peer(number))));
                    let is_hopeless = (own == 3 && own_answering == 3) || (own < 3 && all == 6 && all_answering == 6);
                    prop_assert_eq!(scene.enter(number) == Entry::Refused, is_hopeless);
                    prop_assert_eq!(stages(&scene, None).1, all_answering, "nobody was cut off");
                }
                (1, Some(some)) => scene.house.heard(some, scene.now),
                (2, Some(some)) => scene.house.is_answered(some, scene.now),
                (3, Some(some)) => scene.house.leave(some),
                (4, _) => drop(scene.house.overdue(scene.now)),
                _ => {}
            }
            prop_assert!(scene.house.seats.len() <= 6);
            for number in 1..5 {
                let own = scene.house.seats.values().filter(|seat| seat.peer == peer(number)).count();
                prop_assert!(own <= 3 && scene.house.taken.of(peer(number)) == own);
            }
        }
    }
}

//! The choice, held against one that looks at all pods anew each time.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::clash::Clash;
use super::tests::{NOW, OWN, text};
use super::*;

/// Pods that were made before are perhaps known to whoever led before.
const SINCE: i64 = 4;

#[derive(Debug, Clone)]
struct Entry {
    uid: Arc<str>,
    standing: Standing,
    is_fixed: bool,
    /// Whether it matched when that was last known.
    last: Option<bool>,
}

impl Entry {
    fn is_unknown(&self) -> bool {
        matches!(self.standing.matching, Matching::Unknown { .. })
    }

    fn counts(&self) -> bool {
        self.standing.matching == Matching::Yes || self.is_unknown() && self.last == Some(true)
    }

    fn is_forgotten(&self) -> bool {
        self.is_unknown() && self.last.is_none() && self.standing.created < SINCE
    }

    fn is_own(&self) -> bool {
        matches!(self.standing.marks, Marks::Own { .. })
    }

    fn has_all(&self) -> bool {
        matches!(self.standing.marks, Marks::Foreign | Marks::Own { are_complete: true, .. })
    }
}

/// All pods, and nothing that follows from them.
#[derive(Debug)]
struct Model {
    replicas: Replicas,
    is_suspended: bool,
    pods: BTreeMap<Arc<str>, Entry>,
    seats: Vec<(i64, Duration)>,
}

impl Model {
    fn put(&mut self, name: &Arc<str>, uid: &Arc<str>, standing: &Standing, is_fixed: bool, now: Duration) {
        let before = self.pods.get(name).filter(|before| before.uid == *uid).cloned();
        if before.is_none() {
            self.end(name, now);
        }
        self.pods.remove(name);
        let is_own = matches!(standing.marks, Marks::Own { .. });
        if is_own && !before.as_ref().is_some_and(Entry::is_own) {
            let fits = |seat: &(i64, Duration)| seat.0 < standing.created && seat.1 > now;
            if let Some(best) = self.seats.iter().filter(|seat| fits(seat)).map(|seat| seat.0).max() {
                let index = self.seats.iter().rposition(|seat| fits(seat) && seat.0 == best).expect("it was found");
                self.seats.remove(index);
            }
        }
        let known = before.and_then(|before| before.last);
        let last = match &standing.matching {
            Matching::Yes => Some(true),
            Matching::No(_) | Matching::Conflict(_) => Some(false),
            Matching::Unknown { before, .. } => known.or(*before).or(is_own.then_some(true)),
        };
        let is_left_out = matches!(&standing.matching, Matching::No(Miss::Labels)) && !is_own;
        if !is_left_out {
            let entry = Entry { uid: uid.clone(), standing: standing.clone(), is_fixed, last };
            self.pods.insert(name.clone(), entry);
        }
    }

    fn end(&mut self, name: &Arc<str>, now: Duration) {
        if let Some(ended) = self.pods.remove(name)
            && let Marks::Own { set_at, .. } = ended.standing.marks
            && ended.counts()
        {
            self.seats.push((set_at, now + super::super::seats::KEPT));
        }
    }

    fn count(&self, is_so: impl Fn(&Entry) -> bool) -> usize {
        self.pods.values().filter(|entry| is_so(entry)).count()
    }

    fn share(&self, of: usize) -> usize {
        match self.replicas {
            Replicas::All => of,
            Replicas::Count(count) => count.min(of),
            Replicas::Percent(percent) => (of * percent).div_ceil(100),
        }
    }

    fn in_order(&self) -> Vec<(&Arc<str>, &Entry)> {
        let mut pods: Vec<_> = self.pods.iter().collect();
        pods.sort_by_key(|(name, entry)| (entry.standing.rank, entry.standing.created, (*name).clone()));
        pods
    }

    fn marked(&self) -> usize {
        self.count(|entry| entry.counts() && (entry.is_own() || entry.standing.marks == Marks::Foreign))
    }

    fn changes(&self, now: Duration) -> Changes {
        if self.is_suspended { Changes::default() } else { self.waiting(now) }
    }

    fn waiting(&self, now: Duration) -> Changes {
        let order = self.in_order();
        let matched = self.count(Entry::counts);
        let most = match self.replicas {
            Replicas::All => usize::MAX,
            Replicas::Count(count) => count,
            Replicas::Percent(_) => self.share(matched + self.count(Entry::is_forgotten)),
        };
        let own: Vec<_> = order.iter().filter(|(_, entry)| entry.is_own() && !entry.is_fixed).collect();
        let strays = own.iter().rev().filter(|(_, entry)| !entry.counts() && !entry.is_unknown());
        let mut unmark: Vec<Arc<str>> = strays.map(|(name, _)| (*name).clone()).collect();
        if self.share(100) == 0 {
            let doubtful = own.iter().rev().filter(|(_, entry)| !entry.counts() && entry.is_unknown());
            unmark.extend(doubtful.map(|(name, _)| (*name).clone()));
        }
        let mut marked = self.marked();
        for (name, _) in own.iter().rev().filter(|(_, entry)| entry.counts()) {
            if marked > most {
                marked -= 1;
                unmark.push((*name).clone());
            }
        }
        let stale = own.iter().filter(|(name, entry)| entry.counts() && !entry.has_all() && !unmark.contains(name));
        let amend = stale.map(|(name, _)| (*name).clone()).collect();
        Changes { amend, mark: self.chosen(&order, now), unmark }
    }

    fn chosen(&self, order: &[(&Arc<str>, &Entry)], now: Duration) -> Vec<Arc<str>> {
        let lacking = self.lacking();
        let free = order.iter().filter(|(_, entry)| {
            entry.standing.matching == Matching::Yes && entry.standing.marks == Marks::Lacking && !entry.is_fixed
        });
        let seats = self.open_seats(lacking, now);
        let (mut chosen, mut created) = (Vec::new(), Vec::new());
        for (name, entry) in free {
            let mut all: Vec<i64> = created.clone();
            all.push(entry.standing.created);
            if chosen.len() < lacking && seats.as_ref().is_none_or(|seats| have_seats(&all, seats)) {
                chosen.push((*name).clone());
                created = all;
            }
        }
        chosen
    }

    /// Marked, or perhaps marked by others when that was known to whoever led before.
    fn taken(&self) -> usize {
        self.marked() + self.count(|entry| entry.is_forgotten() && entry.standing.marks == Marks::Foreign)
    }

    fn lacking(&self) -> usize {
        self.share(self.count(Entry::counts)).saturating_sub(self.taken())
    }

    /// After when pods must have been made for each seat; nothing where there is one for everybody.
    fn open_seats(&self, lacking: usize, now: Duration) -> Option<Vec<i64>> {
        let count = match self.replicas {
            Replicas::All => return None,
            Replicas::Count(count) => count.saturating_sub(self.taken()),
            Replicas::Percent(_) => lacking,
        };
        let mut kept: Vec<i64> = self.seats.iter().filter(|seat| seat.1 > now).map(|seat| seat.0).collect();
        kept.sort_unstable();
        kept.reverse();
        kept.resize(count, i64::MIN);
        Some(kept)
    }

    fn numbers(&self, now: Duration) -> Numbers {
        let matched = self.count(Entry::counts);
        let is_free = |entry: &Entry| {
            entry.standing.matching == Matching::Yes && entry.standing.marks == Marks::Lacking && !entry.is_fixed
        };
        let changes = self.waiting(now);
        Numbers {
            desired: self.share(matched),
            succeeded: self.count(|entry| entry.counts() && entry.has_all()),
            matched,
            conflicting: self.count(|entry| matches!(entry.standing.matching, Matching::Conflict(_))),
            unknown: self.count(Entry::is_unknown),
            waiting: changes.unmark.len() + changes.amend.len() + self.lacking().min(self.count(is_free)),
        }
    }
}

/// Whether each of these pods can have a seat of its own: by Hall's theorem, since who may have one may have all that are less
/// particular.
fn have_seats(created: &[i64], seats: &[i64]) -> bool {
    created.iter().all(|youngest| {
        let pods = created.iter().filter(|created| *created <= youngest).count();
        pods <= seats.iter().filter(|after| *after < youngest).count()
    })
}

#[derive(Debug, Clone)]
enum Event {
    Put(usize, usize, Standing, bool),
    Ended(usize),
    Ask(Replicas, bool),
    Missed(i64),
    Wait(u64),
}

fn some_replicas() -> impl Strategy<Value = Replicas> {
    prop_oneof![
        1 => Just(Replicas::All),
        3 => (0_usize..6).prop_map(Replicas::Count),
        3 => select(vec![0, 1, 30, 50, 99]).prop_map(Replicas::Percent),
    ]
}

fn some_matching() -> impl Strategy<Value = Matching> {
    let clash = Clash { cause: Cause::Value, key: text("k") };
    prop_oneof![
        6 => Just(Matching::Yes),
        1 => Just(Matching::No(Miss::Labels)),
        1 => Just(Matching::No(Miss::Probe(text("c")))),
        1 => Just(Matching::Conflict(clash)),
        3 => select(vec![None, Some(true), Some(false)])
            .prop_map(|before| Matching::Unknown { why: Doubt::Silent, before }),
    ]
}

fn some_marks() -> impl Strategy<Value = Marks> {
    let own = (any::<bool>(), 0_i64..8).prop_map(|(are_complete, set_at)| Marks::Own { are_complete, set_at });
    prop_oneof![4 => Just(Marks::Lacking), 1 => Just(Marks::Foreign), 4 => own]
}

prop_compose! {
    fn some_standing()(matching in some_matching(), marks in some_marks(), rank in 0_u32..3, created in 0_i64..9) -> Standing {
        Standing { matching, marks, rank: Rank::of(rank), created }
    }
}

fn some_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0_usize..7, 0_usize..2, some_standing(), prop::bool::weighted(0.1))
            .prop_map(|(name, uid, standing, is_fixed)| Event::Put(name, uid, standing, is_fixed)),
        3 => (0_usize..7).prop_map(Event::Ended),
        1 => (some_replicas(), prop::bool::weighted(0.1)).prop_map(|(replicas, suspended)| Event::Ask(replicas, suspended)),
        1 => (0_i64..8).prop_map(Event::Missed),
        1 => (0_u64..400).prop_map(Event::Wait),
    ]
}

/// Pods that are known, and none of which is passed over.
fn some_pods() -> impl Strategy<Value = Vec<Standing>> {
    let matching = prop_oneof![6 => Just(Matching::Yes), 1 => Just(Matching::No(Miss::Probe(text("c"))))];
    let one = (matching, some_marks(), 0_u32..3, 0_i64..9);
    let one =
        one.prop_map(|(matching, marks, rank, created)| Standing { matching, marks, rank: Rank::of(rank), created });
    vec(one, 0..10)
}

fn name(number: usize) -> Arc<str> {
    Arc::from(format!("p{number}"))
}

fn choice_of(replicas: Replicas, since: i64, pods: &[Standing]) -> Choice {
    let mut choice = Choice::new(replicas, since);
    for (number, standing) in pods.iter().enumerate() {
        choice.put((&name(number), &text("u")), standing, false, NOW);
    }
    choice
}

/// The pods once all is done that is to be done.
fn done(replicas: Replicas, pods: &[Standing]) -> Vec<Standing> {
    let changes = choice_of(replicas, 0, pods).changes(NOW, usize::MAX);
    let becomes = |number: usize, standing: &Standing| {
        let name = name(number);
        let marks = match () {
            () if changes.unmark.contains(&name) => Marks::Lacking,
            () if changes.mark.contains(&name) || changes.amend.contains(&name) => OWN,
            () => standing.marks,
        };
        Standing { marks, ..standing.clone() }
    };
    pods.iter().enumerate().map(|(number, standing)| becomes(number, standing)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn told_one_by_one_it_answers_as_if_it_looked_anew(
        replicas in some_replicas(),
        events in vec(some_event(), 1..40),
    ) {
        let mut choice = Choice::new(replicas, SINCE);
        let mut model = Model { replicas, is_suspended: false, pods: BTreeMap::new(), seats: Vec::new() };
        let mut now = NOW;
        for event in events {
            match event {
                Event::Put(number, uid, standing, is_fixed) => {
                    let uid = Arc::from(format!("u{uid}"));
                    choice.put((&name(number), &uid), &standing, is_fixed, now);
                    model.put(&name(number), &uid, &standing, is_fixed, now);
                }
                Event::Ended(number) => {
                    let uid = model.pods.get(&name(number)).map_or(text("none"), |known| known.uid.clone());
                    choice.ended(&name(number), &uid, now);
                    model.end(&name(number), now);
                }
                Event::Ask(replicas, is_suspended) => {
                    choice.ask(replicas, is_suspended);
                    (model.replicas, model.is_suspended) = (replicas, is_suspended);
                }
                Event::Missed(set_at) => {
                    choice.missed(set_at, now);
                    model.seats.push((set_at, now + super::super::seats::KEPT));
                }
                Event::Wait(seconds) => now += Duration::from_secs(seconds),
            }
            prop_assert_eq!(choice.changes(now, usize::MAX), model.changes(now));
            prop_assert_eq!(choice.numbers(), model.numbers(now));
        }
    }

    /// Each pod is changed once, as many are marked as can be, and nothing is left to do.
    #[test]
    fn what_was_done_leaves_nothing_to_do(replicas in some_replicas(), pods in some_pods()) {
        let done = done(replicas, &pods);
        let choice = choice_of(replicas, 0, &done);
        prop_assert_eq!(choice.changes(NOW, usize::MAX), Changes::default());
        let numbers = choice.numbers();
        let matching = done.iter().filter(|pod| pod.matching == Matching::Yes);
        let foreign = matching.filter(|pod| pod.marks == Marks::Foreign).count();
        prop_assert_eq!((numbers.succeeded, numbers.waiting), (numbers.desired.max(foreign), 0));
    }

    /// What is marked and should not be is taken off, what is missing is set, and no other pod is touched.
    #[test]
    fn no_fewer_changes_would_do(replicas in some_replicas(), pods in some_pods()) {
        let choice = choice_of(replicas, 0, &pods);
        let (changes, desired) = (choice.changes(NOW, usize::MAX), choice.numbers().desired);
        let count = |is_so: &dyn Fn(&Standing) -> bool| pods.iter().filter(|pod| is_so(pod)).count();
        let is_own = |pod: &Standing| matches!(pod.marks, Marks::Own { .. });
        let is_match = |pod: &Standing| pod.matching == Matching::Yes;
        let marked = count(&|pod| is_match(pod) && pod.marks != Marks::Lacking);
        let free = count(&|pod| is_match(pod) && pod.marks == Marks::Lacking);
        let strays = count(&|pod| is_own(pod) && !is_match(pod));
        let too_many = marked.saturating_sub(desired).min(count(&|pod| is_own(pod) && is_match(pod)));
        prop_assert_eq!(changes.mark.len(), desired.saturating_sub(marked).min(free));
        prop_assert_eq!(changes.unmark.len(), strays + too_many);
        let all = [&changes.mark, &changes.unmark, &changes.amend];
        let touched: BTreeSet<&Arc<str>> = all.into_iter().flatten().collect();
        prop_assert_eq!(touched.len(), all.iter().map(|pods| pods.len()).sum::<usize>(), "each once");
    }

    #[test]
    fn marks_stay_whatever_becomes_preferred(
        replicas in some_replicas(),
        pods in some_pods(),
        ranks in vec(0_u32..3, 10),
    ) {
        let mut pods = done(replicas, &pods);
        for (pod, rank) in pods.iter_mut().zip(ranks) {
            pod.rank = Rank::of(rank);
        }
        prop_assert_eq!(choice_of(replicas, 0, &pods).changes(NOW, usize::MAX), Changes::default());
    }

    /// While some are unknown, and for a leader who knows nothing of before either.
    #[test]
    fn what_is_unknown_changes_no_mark(
        replicas in some_replicas(),
        pods in some_pods(),
        are_unknown in vec(any::<bool>(), 10),
        before in vec(select(vec![None, Some(())]), 10),
    ) {
        let pods = done(replicas, &pods);
        let mut choice = choice_of(replicas, 0, &pods);
        let mut anew = Choice::new(replicas, i64::MAX);
        for (number, pod) in pods.iter().enumerate() {
            let before = before[number].map(|()| pod.matching == Matching::Yes);
            let unknown = Matching::Unknown { why: Doubt::Silent, before };
            let matching = if are_unknown[number] { unknown } else { pod.matching.clone() };
            let standing = Standing { matching, ..pod.clone() };
            choice.put((&name(number), &text("u")), &standing, false, NOW);
            anew.put((&name(number), &text("u")), &standing, false, NOW);
        }
        prop_assert_eq!(choice.changes(NOW, usize::MAX), Changes::default());
        prop_assert_eq!(anew.changes(NOW, usize::MAX), Changes::default());
    }
}

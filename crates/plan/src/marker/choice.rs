//! Which pods a marker marks: kept one pod at a time, so that an event costs its own bookkeeping.
//!
//! Those that match, the preferred ones first; of pods that are as preferred the older first, then by name. Of marks that are there
//! only as many go as are too many, the least preferred first.
//!
//! Invariants, tested as properties:
//! - Told of pods one by one, it answers as if it looked at all of them anew.
//! - A marked pod that matches keeps its marks while there are not too many, whatever becomes preferred.
//! - Of a pod of which it is not known whether it matches no mark comes or goes, unless the number asked for says so; in a percentage
//!   it counts as it did when it was last known.
//! - What was done as it said leaves nothing to do.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::clash::Cause;
use super::result::Doubt;
use super::rule::Replicas;
use super::seats::Seats;
use super::standing::{Marks, Matching, Miss, Rank, Standing};
use crate::mutant::{Mutant, is_on};

/// The pods of one marker that live.
#[derive(Debug)]
pub struct Choice {
    replicas: Replicas,
    is_suspended: bool,
    /// Pods that were made before were perhaps known before this was begun, in seconds since 1970.
    since: i64,
    /// By name. Those that do not match by labels or node and have no marks of this marker are left out.
    pods: BTreeMap<Arc<str>, Known>,
    lists: Lists,
    counts: Counts,
    causes: BTreeMap<Cause, usize>,
    doubts: BTreeMap<Doubt, usize>,
    seats: Seats,
}

/// What is to be done, pods by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pods that lose the marks that this marker set, in the order in which they do.
    pub unmark: Vec<Arc<str>>,
    /// Pods that are marked and stay so, whose marks are not as the marker says now.
    pub amend: Vec<Arc<str>>,
    /// Pods that get the marks, in the order in which they do.
    pub mark: Vec<Arc<str>>,
}

/// How many pods of a marker are what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Those that should be marked.
    pub desired: usize,
    /// Those that match and have all the marks.
    pub succeeded: usize,
    /// Those that match.
    pub matched: usize,
    /// Those that would match, but for something that stands against it.
    pub conflicting: usize,
    /// Those of which it is not known whether they match.
    pub unknown: usize,
    /// Those whose marks are to be set, changed or taken off.
    pub waiting: usize,
}

/// When a pod has its turn: the least comes first, and goes last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: Rank,
    created: i64,
    name: Arc<str>,
}

#[derive(Debug, PartialEq, Eq)]
struct Known {
    uid: Arc<str>,
    turn: Turn,
    matched: Matched,
    marks: Marks,
    /// Whether it cannot be changed for now, so that it is passed over.
    is_fixed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Matched {
    Yes,
    No,
    Conflict(Cause),
    Unknown(Doubt, Before),
}

/// What a pod that is unknown was when it was last known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Matched,
    NotMatched,
    /// It never was.
    Never,
    /// Whoever led before may have known it.
    Forgotten,
}

/// The list that a pod is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// It may be marked.
    Free,
    /// It is marked by this marker, and matches.
    Own,
    /// It is marked by this marker, and does not match.
    Stray,
    /// It is marked by this marker, did not match when that was last known, and is unknown.
    Doubtful,
}

#[derive(Debug, Default)]
struct Lists {
    free: BTreeSet<Turn>,
    own: BTreeSet<Turn>,
    /// Those of `own` whose marks are not as they should be.
    stale: BTreeSet<Turn>,
    strays: BTreeSet<Turn>,
    doubtful: BTreeSet<Turn>,
}

#[derive(Debug, Default)]
struct Counts {
    matched: usize,
    own: usize,
    foreign: usize,
    succeeded: usize,
    conflicting: usize,
    unknown: usize,
    forgotten: usize,
    /// Of these, those that have all the marks, and not by us.
    forgotten_foreign: usize,
}

impl Known {
    /// Whether it counts as matching.
    fn counts(&self) -> bool {
        matches!(self.matched, Matched::Yes | Matched::Unknown(_, Before::Matched))
    }

    /// Whether this marker has marked it.
    fn is_own(&self) -> bool {
        matches!(self.marks, Marks::Own { .. })
    }

    fn list(&self) -> Option<List> {
        match (self.marks, &self.matched) {
            _ if self.is_fixed => None,
            (Marks::Foreign, _) => None,
            (Marks::Lacking, Matched::Yes) => Some(List::Free),
            (Marks::Lacking, _) => None,
            (Marks::Own { .. }, _) if self.counts() => Some(List::Own),
            (Marks::Own { .. }, Matched::Unknown(..)) => Some(List::Doubtful),
            (Marks::Own { .. }, _) => Some(List::Stray),
        }
    }
}

impl Choice {
    /// Of no pods yet. Those that were made before `since`, in seconds since 1970, may have been known to whoever led before.
    #[must_use]
    pub fn new(replicas: Replicas, since: i64) -> Self {
        Self {
            replicas,
            is_suspended: false,
            since,
            pods: BTreeMap::new(),
            lists: Lists::default(),
            counts: Counts::default(),
            causes: BTreeMap::new(),
            doubts: BTreeMap::new(),
            seats: Seats::default(),
        }
    }

    /// What the marker asks for by now. How its pods stand to it is to be told anew where that may have changed.
    pub fn ask(&mut self, replicas: Replicas, is_suspended: bool) {
        (self.replicas, self.is_suspended) = (replicas, is_suspended);
    }

    /// A pod that lives stands so to the marker. `is_fixed`: it cannot be changed for now, and is passed over. Returns whether that
    /// is news.
    pub fn put(
        &mut self,
        (name, uid): (&Arc<str>, &Arc<str>),
        standing: &Standing,
        is_fixed: bool,
        now: Duration,
    ) -> bool {
        let (before, is_another) = match self.take(name) {
            Some(other) if other.uid != *uid => {
                self.open_seat(&other, now);
                (None, true)
            }
            before => (before, false),
        };
        let is_own = matches!(standing.marks, Marks::Own { .. });
        if is_own && !before.as_ref().is_some_and(Known::is_own) {
            self.seats.fill(standing.created, now);
        }
        let matched = match &standing.matching {
            // What a probe says may be unknown next: then it counts what it was. All else is known whenever a pod is.
            Matching::No(miss) if !is_own && !matches!(miss, Miss::Probe(_)) => return is_another || before.is_some(),
            Matching::No(_) => Matched::No,
            Matching::Yes => Matched::Yes,
            Matching::Conflict(clash) => Matched::Conflict(clash.cause.clone()),
            Matching::Unknown { why, before: told } => {
                Matched::Unknown(*why, self.before(before.as_ref(), *told, standing))
            }
        };
        let turn = Turn { rank: standing.rank, created: standing.created, name: name.clone() };
        let known = Known { uid: uid.clone(), turn, matched, marks: standing.marks, is_fixed };
        let is_news = before.as_ref() != Some(&known);
        self.note(&known, true);
        self.pods.insert(name.clone(), known);
        is_news
    }

    /// A pod ended, or is about to. One that had ended when this was begun is told by [`Self::missed`]. Returns whether it was known.
    pub fn ended(&mut self, name: &str, uid: &str, now: Duration) -> bool {
        if self.pods.get(name).is_some_and(|known| *known.uid == *uid)
            && let Some(known) = self.take(name)
        {
            self.open_seat(&known, now);
            return true;
        }
        false
    }

    /// A marked pod ended that was never told of: its mark was set then, in seconds since 1970, or not later. To be told once all
    /// pods are.
    pub fn missed(&mut self, set_at: i64, now: Duration) {
        self.seats.open(set_at, now);
    }

    /// What is to be done, at most so many pods of each kind: marks that are wrong go first.
    #[must_use]
    pub fn changes(&self, now: Duration, most: usize) -> Changes {
        if self.is_suspended && !is_on(Mutant::SuspendedMarked) {
            return Changes::default();
        }
        let names = |turn: &Turn| turn.name.clone();
        let excess = self.excess();
        let doubtful = self.lists.doubtful.iter().rev().take(if self.replicas.is_zero() { usize::MAX } else { 0 });
        let too_many = self.lists.own.iter().rev().take(excess);
        let unmark = self.lists.strays.iter().rev().chain(doubtful).chain(too_many);
        Changes {
            unmark: unmark.take(most).map(names).collect(),
            amend: self.stale(excess).take(most).map(names).collect(),
            mark: self.chosen(now, most),
        }
    }

    /// How many pods are what.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let excess = self.excess();
        let doubtful = if self.replicas.is_zero() { self.lists.doubtful.len() } else { 0 };
        let unmark = self.lists.strays.len() + doubtful + excess;
        Numbers {
            desired: self.desired(),
            succeeded: self.counts.succeeded,
            matched: self.counts.matched,
            conflicting: self.counts.conflicting,
            unknown: self.counts.unknown,
            waiting: unmark + self.stale(excess).count() + self.lacking().min(self.lists.free.len()),
        }
    }

    /// How many pods have marks of this marker, or all of them without. Costs a look at every pod.
    #[must_use]
    pub fn with_marks(&self) -> usize {
        self.pods.values().filter(|known| known.marks != Marks::Lacking).count()
    }

    /// What stands against pods that would match, with how many.
    #[must_use]
    pub fn causes(&self) -> &BTreeMap<Cause, usize> {
        &self.causes
    }

    /// Why it is not known of pods whether they match, with how many.
    #[must_use]
    pub fn doubts(&self) -> &BTreeMap<Doubt, usize> {
        &self.doubts
    }

    /// How many pods wait since the seats that are open are kept for others.
    #[must_use]
    pub fn barred(&self, now: Duration) -> usize {
        if self.seats.next(now).is_none() {
            return 0;
        }
        let wanted = self.lacking().min(self.lists.free.len());
        wanted.saturating_sub(self.chosen(now, usize::MAX).len())
    }

    /// When something is to be done by time alone: a seat that was kept goes to any pod.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        self.seats.next(now)
    }

    fn desired(&self) -> usize {
        self.replicas.desired(self.counts.matched)
    }

    /// How many that match are marked.
    fn marked(&self) -> usize {
        self.counts.own + self.counts.foreign
    }

    fn lacking(&self) -> usize {
        self.desired().saturating_sub(self.taken())
    }

    /// How many are marked or perhaps were known to match with marks of others: no mark comes because they are not known now.
    fn taken(&self) -> usize {
        self.marked() + self.counts.forgotten_foreign
    }

    /// How many marks that this marker set are too many.
    fn excess(&self) -> usize {
        let most = match self.replicas {
            Replicas::All => return 0,
            Replicas::Count(count) => count,
            // Pods that were perhaps known to match count here, so that no mark goes because they are not known now.
            Replicas::Percent(_) => self.replicas.desired(self.counts.matched + self.counts.forgotten),
        };
        self.marked().saturating_sub(most).min(self.lists.own.len())
    }

    /// Marked pods whose marks are to be changed: those that keep them.
    fn stale(&self, excess: usize) -> impl Iterator<Item = &Turn> {
        let first_to_go = excess.checked_sub(1).and_then(|number| self.lists.own.iter().nth_back(number));
        self.lists.stale.iter().take_while(move |turn| first_to_go.is_none_or(|first| *turn < first))
    }

    /// Those that get the marks.
    fn chosen(&self, now: Duration, most: usize) -> Vec<Arc<str>> {
        let lacking = self.lacking();
        let seats = match self.replicas {
            // Nobody competes for a seat.
            Replicas::All => {
                return self.lists.free.iter().take(lacking.min(most)).map(|turn| turn.name.clone()).collect();
            }
            Replicas::Count(count) => count.saturating_sub(self.taken()),
            Replicas::Percent(_) => lacking,
        };
        let mut open = self.seats.among(seats, now);
        let (mut chosen, mut last) = (Vec::new(), None);
        while chosen.len() < lacking.min(most) {
            let Some(turn) = open.after().and_then(|after| self.free_after(last, after)) else { break };
            open.take(turn.created);
            chosen.push(turn.name.clone());
            last = Some(turn);
        }
        chosen
    }

    /// The next pod that may be marked after another one in turn, of those that were made after this second. Costs no more than
    /// there are ranks.
    fn free_after(&self, last: Option<&Turn>, after: i64) -> Option<&Turn> {
        let mut from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.clone()));
        loop {
            let found = self.lists.free.range::<Turn, _>((from, Bound::Unbounded)).next()?;
            if found.created > after {
                return Some(found);
            }
            // On to the first of its rank that is young enough, or to the next rank.
            let name = Arc::from("");
            from = Bound::Included(Turn { rank: found.rank, created: after.saturating_add(1), name });
        }
    }

    /// What a pod that is unknown was when it was last known.
    fn before(&self, known: Option<&Known>, told: Option<bool>, standing: &Standing) -> Before {
        let before = match known.map(|known| &known.matched) {
            Some(Matched::Yes | Matched::Unknown(_, Before::Matched)) => Before::Matched,
            Some(Matched::No | Matched::Conflict(_) | Matched::Unknown(_, Before::NotMatched)) => Before::NotMatched,
            None | Some(Matched::Unknown(..)) => match told {
                Some(true) => Before::Matched,
                Some(false) => Before::NotMatched,
                None if standing.created < self.since => Before::Forgotten,
                None => Before::Never,
            },
        };
        match before {
            // That it is marked says that it matched.
            Before::Never | Before::Forgotten if matches!(standing.marks, Marks::Own { .. }) => Before::Matched,
            before => before,
        }
    }

    fn open_seat(&mut self, ended: &Known, now: Duration) {
        if let Marks::Own { set_at, .. } = ended.marks
            && ended.counts()
        {
            self.seats.open(set_at, now);
        }
    }

    fn take(&mut self, name: &str) -> Option<Known> {
        let known = self.pods.remove(name)?;
        self.note(&known, false);
        Some(known)
    }

    /// A pod comes, or goes.
    fn note(&mut self, known: &Known, comes: bool) {
        let list = known.list();
        let is_own = list == Some(List::Own);
        let is_stale = is_own && matches!(known.marks, Marks::Own { are_complete: false, .. });
        let Lists { free, own, stale, strays, doubtful } = &mut self.lists;
        for (turns, is_in) in [
            (free, list == Some(List::Free)),
            (own, is_own),
            (stale, is_stale),
            (strays, list == Some(List::Stray)),
            (doubtful, list == Some(List::Doubtful)),
        ] {
            match (is_in, comes) {
                (true, true) => _ = turns.insert(known.turn.clone()),
                (true, false) => _ = turns.remove(&known.turn),
                (false, _) => {}
            }
        }
        let (counts, is_unknown) = (known.counts(), matches!(known.matched, Matched::Unknown(..)));
        let is_forgotten = matches!(known.matched, Matched::Unknown(_, Before::Forgotten));
        let is_foreign = known.marks == Marks::Foreign;
        let has_all = is_foreign || matches!(known.marks, Marks::Own { are_complete: true, .. });
        let tally = &mut self.counts;
        for (count, is_counted) in [
            (&mut tally.matched, counts),
            (&mut tally.own, counts && known.is_own()),
            (&mut tally.foreign, counts && is_foreign),
            (&mut tally.succeeded, counts && has_all),
            (&mut tally.conflicting, matches!(known.matched, Matched::Conflict(_))),
            (&mut tally.unknown, is_unknown),
            (&mut tally.forgotten, is_forgotten),
            (&mut tally.forgotten_foreign, is_forgotten && is_foreign),
        ] {
            match (is_counted, comes) {
                (true, true) => *count += 1,
                (true, false) => *count -= 1,
                (false, _) => {}
            }
        }
        match &known.matched {
            Matched::Conflict(cause) => count_one(&mut self.causes, cause, comes),
            Matched::Unknown(why, _) => count_one(&mut self.doubts, why, comes),
            Matched::Yes | Matched::No => {}
        }
    }
}

fn count_one<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, comes: bool) {
    let count = counts.entry(key.clone()).or_default();
    *count = if comes { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "choice_properties.rs"]
mod properties;

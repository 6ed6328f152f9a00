//! Who has a place: which connection is closed for a new one, and which has taken too long.
//!
//! - There is always a place for a new connection, unless every place, or every place that its peer may have, is one that is
//!   being answered at this moment.
//! - The idlest goes first: who has asked nothing yet, then who has been answered, then who is about to ask; among those,
//!   whoever has been so for longest. Callers that are not known go before those that are.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::shares::Shares;
use super::{Connection, Patience, Peer, Portion};

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its handshake is under way.
    Greeting,
    /// It has not begun a request yet.
    Silent,
    /// It has begun a request that is not whole.
    Half,
    /// Its request waits for a turn.
    Waiting,
    /// It is being answered.
    Answering,
    /// It takes its answer.
    Taking,
    /// It has taken its answer, and has not begun another request.
    Idle,
}

/// A connection that is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Which one.
    pub connection: Connection,
    /// What it was at.
    pub stage: Stage,
}

/// What becomes of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It has a place, and this one loses its own.
    Taken(Connection, Option<Cut>),
    /// There is no place that could be had.
    Refused,
}

#[derive(Debug)]
struct Seat {
    peer: Peer,
    is_known: bool,
    /// Whether there was a whole request.
    has_asked: bool,
    /// Whether something of the next request has come already.
    is_early: bool,
    /// Whether all of the answer is written.
    is_written: bool,
    stage: Stage,
    since: Instant,
}

impl Seat {
    fn enter(&mut self, stage: Stage, now: Instant) {
        (self.stage, self.since) = (stage, now);
    }

    /// The order in which places are taken away; nobody is cut off who is being answered.
    fn rank(&self) -> Option<(bool, u8, Instant)> {
        let rank = match self.stage {
            Stage::Answering => return None,
            Stage::Greeting | Stage::Silent => 0,
            Stage::Half if !self.has_asked => 0,
            Stage::Idle => 1,
            Stage::Half => 2,
            Stage::Waiting | Stage::Taking => 3,
        };
        Some((self.is_known, rank, self.since))
    }

    /// How long it may stay as it is.
    fn may_take(&self, patience: &Patience) -> Option<Duration> {
        match self.stage {
            Stage::Greeting | Stage::Half => Some(patience.half_sent),
            Stage::Silent => Some(patience.silent),
            Stage::Idle if self.is_known => Some(patience.idle_known),
            Stage::Idle => Some(patience.idle),
            Stage::Taking => Some(patience.taking),
            // That is our own time.
            Stage::Waiting | Stage::Answering => None,
        }
    }
}

/// All places.
#[derive(Debug)]
pub struct House {
    patience: Patience,
    taken: Shares,
    seats: BTreeMap<Connection, Seat>,
    next: Connection,
}

impl House {
    /// An empty house.
    pub fn new(places: Portion, patience: Patience) -> Self {
        Self { patience, taken: Shares::new(places), seats: BTreeMap::new(), next: 0 }
    }

    /// A connection comes.
    pub fn enter(&mut self, peer: Peer, now: Instant) -> Entry {
        let mut cut = None;
        if !self.taken.has(peer, 1) {
            // One of its own makes room wherever the peer has too many, and also when all have together.
            let whose = |seat: &Seat| seat.peer == peer || self.taken.of(peer) < self.taken.per_peer();
            cut = self.idlest(whose).map(|connection| self.cut(connection));
        }
        if !self.taken.take(peer, 1) {
            return Entry::Refused;
        }
        let connection = self.next;
        self.next += 1;
        let stage = Stage::Greeting;
        let (is_known, has_asked, is_early, is_written) = (false, false, false, false);
        self.seats.insert(connection, Seat { peer, is_known, has_asked, is_early, is_written, stage, since: now });
        Entry::Taken(connection, cut)
    }

    /// Closes the idlest of all, for instance since the machine has no room for more.
    pub fn make_room(&mut self) -> Option<Cut> {
        self.idlest(|_| true).map(|connection| self.cut(connection))
    }

    /// Those that have taken too long. They have no place any more.
    pub fn overdue(&mut self, now: Instant) -> Vec<Cut> {
        let is_late = |seat: &Seat| {
            let limit = seat.may_take(&self.patience);
            limit.is_some_and(|limit| now.saturating_duration_since(seat.since) >= limit)
        };
        let late: Vec<Connection> =
            self.seats.iter().filter(|(_, seat)| is_late(seat)).map(|(number, _)| *number).collect();
        late.into_iter().map(|connection| self.cut(connection)).collect()
    }

    /// A connection has ended.
    pub fn leave(&mut self, connection: Connection) {
        if let Some(seat) = self.seats.remove(&connection) {
            self.taken.give_back(seat.peer, 1);
        }
    }

    /// The handshake is done.
    pub fn greeted(&mut self, connection: Connection, is_known: bool, now: Instant) {
        self.change(connection, |seat| {
            seat.is_known = is_known;
            seat.enter(Stage::Silent, now);
        });
    }

    /// Something has come.
    pub fn heard(&mut self, connection: Connection, now: Instant) {
        self.change(connection, |seat| match seat.stage {
            Stage::Silent | Stage::Idle => seat.enter(Stage::Half, now),
            Stage::Waiting | Stage::Answering | Stage::Taking => seat.is_early = true,
            Stage::Greeting | Stage::Half => {}
        });
    }

    /// The head of a request is whole.
    pub fn has_head(&mut self, connection: Connection, now: Instant) {
        self.change(connection, |seat| {
            (seat.is_early, seat.is_written) = (false, false);
            seat.enter(Stage::Half, now);
        });
    }

    /// All of a request is there.
    pub fn has_request(&mut self, connection: Connection, now: Instant) {
        self.change(connection, |seat| {
            seat.has_asked = true;
            seat.enter(Stage::Waiting, now);
        });
    }

    /// It is its turn.
    pub fn is_answered(&mut self, connection: Connection, now: Instant) {
        self.change(connection, |seat| seat.enter(Stage::Answering, now));
    }

    /// The answer is made.
    pub fn takes_answer(&mut self, connection: Connection, now: Instant) {
        self.change(connection, |seat| seat.enter(Stage::Taking, now));
    }

    /// The answer is written, and may not be on its way yet.
    pub fn has_written(&mut self, connection: Connection) {
        self.change(connection, |seat| seat.is_written = true);
    }

    /// What was written is on its way.
    pub fn has_flushed(&mut self, connection: Connection, now: Instant) {
        self.change(connection, |seat| {
            if seat.stage == Stage::Taking && seat.is_written {
                seat.enter(if seat.is_early { Stage::Half } else { Stage::Idle }, now);
                (seat.is_early, seat.is_written) = (false, false);
            }
        });
    }

    /// What a connection is at, while it has a place.
    pub fn stage(&self, connection: Connection) -> Option<Stage> {
        self.seats.get(&connection).map(|seat| seat.stage)
    }

    fn change(&mut self, connection: Connection, change: impl FnOnce(&mut Seat)) {
        // One that was cut may still be about to end.
        if let Some(seat) = self.seats.get_mut(&connection) {
            change(seat);
        }
    }

    fn idlest(&self, whose: impl Fn(&Seat) -> bool) -> Option<Connection> {
        let ranked = self.seats.iter().filter(|(_, seat)| whose(seat));
        let ranked = ranked.filter_map(|(connection, seat)| Some((seat.rank()?, *connection)));
        ranked.min().map(|(_, connection)| connection)
    }

    fn cut(&mut self, connection: Connection) -> Cut {
        let stage = self.stage(connection).unwrap_or(Stage::Greeting);
        self.leave(connection);
        Cut { connection, stage }
    }
}

#[cfg(test)]
#[path = "house_tests.rs"]
mod tests;

//! Whose turn it is. Whoever has least under way goes first, so that nobody waits behind another's many requests.

use std::collections::BTreeMap;

use super::shares::Shares;
use super::{Caller, Connection, Portion};

/// A place in the line. Earlier ones are smaller.
pub type Ticket = u64;

/// Who waits, and who has had a turn and is not done with it.
#[derive(Debug)]
pub struct Turns {
    under_way: Shares,
    by_connection: BTreeMap<Connection, usize>,
    waiting: BTreeMap<Ticket, Caller>,
    next: Ticket,
}

impl Turns {
    /// Nobody waits.
    pub fn new(portion: Portion) -> Self {
        let (by_connection, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { under_way: Shares::new(portion), by_connection, waiting, next: 0 }
    }

    /// Lines up.
    pub fn line_up(&mut self, caller: Caller) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, caller);
        ticket
    }

    /// Gives the next one its turn, if there is one to be had: of the peer that has fewest under way, by the connection that
    /// has fewest, the one that came first.
    pub fn next_turn(&mut self) -> Option<Ticket> {
        let has_room = |(_, caller): &(&Ticket, &Caller)| self.under_way.has(caller.peer, 1);
        let (ticket, caller) = self.waiting.iter().filter(has_room).min_by_key(|(ticket, caller)| {
            let of_connection = self.by_connection.get(&caller.connection).copied().unwrap_or(0);
            (self.under_way.of(caller.peer), of_connection, **ticket)
        })?;
        let (ticket, caller) = (*ticket, *caller);
        self.waiting.remove(&ticket);
        self.under_way.take(caller.peer, 1);
        *self.by_connection.entry(caller.connection).or_default() += 1;
        Some(ticket)
    }

    /// Leaves the line, or ends the turn.
    pub fn end(&mut self, ticket: Ticket, caller: Caller) {
        if self.waiting.remove(&ticket).is_some() {
            return;
        }
        self.under_way.give_back(caller.peer, 1);
        if let Some(count) = self.by_connection.get_mut(&caller.connection) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_connection.remove(&caller.connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::Peer;
    use super::*;

    fn caller(peer: u8, connection: Connection) -> Caller {
        Caller { peer: Peer(Ipv4Addr::new(10, 0, 0, peer).into()), connection, is_known: false }
    }

    #[test]
    fn who_has_least_under_way_goes_first() {
        let mut turns = Turns::new(Portion { most: 2, per_peer: 2 });
        let crowd: Vec<Ticket> = (0..4).map(|connection| turns.line_up(caller(1, connection))).collect();
        assert_eq!((turns.next_turn(), turns.next_turn(), turns.next_turn()), (Some(crowd[0]), Some(crowd[1]), None));
        let lone = turns.line_up(caller(2, 9));
        assert_eq!(turns.next_turn(), None, "there is no turn to be had");
        turns.end(crowd[0], caller(1, 0));
        assert_eq!(turns.next_turn(), Some(lone), "it came last, and has nothing under way");
        turns.end(crowd[1], caller(1, 1));
        assert_eq!(turns.next_turn(), Some(crowd[2]));
    }

    #[test]
    fn connections_of_one_peer_take_turns_too() {
        let mut turns = Turns::new(Portion { most: 3, per_peer: 3 });
        let greedy: Vec<Ticket> = (0..8).map(|_| turns.line_up(caller(1, 1))).collect();
        assert_eq!(
            (turns.next_turn(), turns.next_turn(), turns.next_turn()),
            (Some(greedy[0]), Some(greedy[1]), Some(greedy[2]))
        );
        let modest = turns.line_up(caller(1, 2));
        turns.end(greedy[0], caller(1, 1));
        assert_eq!(turns.next_turn(), Some(modest), "it shares its address with the other, and nothing else");
    }

    #[test]
    fn one_peer_cannot_have_every_turn() {
        let mut turns = Turns::new(Portion::halved(4));
        let mine: Vec<Ticket> = (0..4).map(|connection| turns.line_up(caller(1, connection))).collect();
        assert_eq!((turns.next_turn(), turns.next_turn(), turns.next_turn()), (Some(mine[0]), Some(mine[1]), None));
        let other = turns.line_up(caller(2, 9));
        assert_eq!(turns.next_turn(), Some(other));
    }

    #[test]
    fn who_leaves_the_line_takes_up_no_turn() {
        let mut turns = Turns::new(Portion { most: 1, per_peer: 1 });
        let (first, second) = (turns.line_up(caller(1, 1)), turns.line_up(caller(1, 2)));
        turns.end(first, caller(1, 1));
        assert_eq!(turns.next_turn(), Some(second));
        turns.end(second, caller(1, 2));
        assert!(turns.by_connection.is_empty() && turns.waiting.is_empty());
    }
}

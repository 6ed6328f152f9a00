//! Waiting for one's turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::turns::{Ticket, Turns};
use super::{Caller, Portion};

/// A line of requests, or of anything else that callers want.
#[derive(Debug, Clone)]
pub struct Line(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    turns: Turns,
    calls: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// A turn, or a place in the line. It ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    line: Line,
    caller: Caller,
    ticket: Ticket,
}

impl Line {
    /// A line for so much at once.
    pub fn new(portion: Portion) -> Self {
        Self(Arc::new(Mutex::new(State { turns: Turns::new(portion), calls: BTreeMap::new() })))
    }

    /// Waits for a turn.
    pub async fn turn(&self, caller: Caller) -> Turn {
        let (call, called) = oneshot::channel();
        let turn = {
            let mut state = self.locked();
            let ticket = state.turns.line_up(caller);
            state.calls.insert(ticket, call);
            state.call_next();
            Turn { line: self.clone(), caller, ticket }
        };
        // It is called before its sender is dropped, or leaves the line.
        let _ = called.await;
        turn
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn call_next(&mut self) {
        while let Some(ticket) = self.turns.next_turn() {
            // Whoever does not listen any more gives the turn back when it is dropped.
            let _ = self.calls.remove(&ticket).map(|call| call.send(()));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.line.locked();
        state.calls.remove(&self.ticket);
        state.turns.end(self.ticket, self.caller);
        state.call_next();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt;

    use super::super::Peer;
    use super::*;

    #[tokio::test]
    async fn a_turn_is_handed_on_and_those_who_left_are_passed_over() {
        let line = Line::new(Portion { most: 1, per_peer: 1 });
        let caller = |connection| Caller {
            peer: Peer::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST)),
            connection,
            is_known: false,
        };
        let first = line.turn(caller(1)).await;
        let mut leaves = Box::pin(line.turn(caller(2)));
        let mut stays = Box::pin(line.turn(caller(3)));
        assert!((&mut leaves).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(leaves);
        drop(first);
        let last = stays.await;
        drop(last);
        // Nothing is left behind, so that the next has it at once.
        assert!(line.turn(caller(4)).now_or_never().is_some());
        assert!(line.locked().calls.is_empty());
    }
}

//! How much of something each peer has taken.

use std::collections::BTreeMap;

use super::{Peer, Portion};

/// What is taken of a [`Portion`].
#[derive(Debug)]
pub struct Shares {
    portion: Portion,
    taken: usize,
    by_peer: BTreeMap<Peer, usize>,
}

impl Shares {
    /// Nothing is taken.
    pub fn new(portion: Portion) -> Self {
        Self { portion, taken: 0, by_peer: BTreeMap::new() }
    }

    /// How much a peer has.
    pub fn of(&self, peer: Peer) -> usize {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }

    /// How much a peer may have.
    pub fn per_peer(&self) -> usize {
        self.portion.per_peer
    }

    /// Whether there is so much for a peer.
    pub fn has(&self, peer: Peer, amount: usize) -> bool {
        let fits = |taken: usize, most: usize| taken.checked_add(amount).is_some_and(|sum| sum <= most);
        fits(self.taken, self.portion.most) && fits(self.of(peer), self.portion.per_peer)
    }

    /// Takes so much for a peer, or nothing at all.
    pub fn take(&mut self, peer: Peer, amount: usize) -> bool {
        let has = self.has(peer, amount);
        if has {
            self.taken += amount;
            *self.by_peer.entry(peer).or_default() += amount;
        }
        has
    }

    /// Gives back what a peer had taken.
    pub fn give_back(&mut self, peer: Peer, amount: usize) {
        self.taken = self.taken.saturating_sub(amount);
        let left = self.of(peer).saturating_sub(amount);
        if left == 0 {
            self.by_peer.remove(&peer);
        } else {
            self.by_peer.insert(peer, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn peer(number: u8) -> Peer {
        Peer(Ipv4Addr::new(10, 0, 0, number).into())
    }

    #[test]
    fn one_peer_cannot_take_all() {
        let mut shares = Shares::new(Portion::halved(100));
        assert!(shares.take(peer(1), 50) && !shares.take(peer(1), 1), "it has its half");
        assert!(shares.take(peer(2), 30) && !shares.take(peer(2), 21));
        assert!(shares.take(peer(3), 20) && !shares.take(peer(4), 1), "everything is taken");
        shares.give_back(peer(1), 1);
        assert!(!shares.take(peer(4), usize::MAX), "more than there can be");
        assert!(shares.take(peer(4), 1));
    }

    proptest! {
        #[test]
        fn what_is_given_back_can_be_taken_again(steps in prop::collection::vec((0_u8..4, 0_usize..40), 0..200)) {
            let mut shares = Shares::new(Portion { most: 100, per_peer: 60 });
            let mut held = Vec::new();
            for (number, amount) in steps {
                if shares.take(peer(number), amount) {
                    held.push((number, amount));
                } else if !held.is_empty() {
                    let (number, amount) = held.remove(amount % held.len());
                    shares.give_back(peer(number), amount);
                }
                let sum = |of: &dyn Fn(u8) -> bool| held.iter().filter(|(n, _)| of(*n)).map(|(_, a)| a).sum::<usize>();
                prop_assert!(sum(&|_| true) <= 100);
                (0..4).try_for_each(|number| {
                    prop_assert_eq!(shares.of(peer(number)), sum(&|other| other == number));
                    prop_assert!(shares.of(peer(number)) <= 60);
                    Ok(())
                })?;
            }
            held.iter().for_each(|(number, amount)| shares.give_back(peer(*number), *amount));
            prop_assert!(shares.taken == 0 && shares.by_peer.is_empty());
        }
    }
}

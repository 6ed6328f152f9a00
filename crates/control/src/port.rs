//! A port that strangers can reach, and that serves those it is for all the same.
//!
//! Anybody who reaches the port may open connections, send half a request, ask what takes long, and never take the answer.
//! So everything that can be held is counted by the address that holds it, and nobody gets all of it: places for
//! connections ([`house`]), turns for requests ([`turns`]) and bytes of requests ([`shares`]). These three decide, and do no
//! I/O; [`serve`] does what they say.

pub mod house;
pub mod line;
pub mod serve;
pub mod shares;
mod stream;
pub mod turns;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// A connection, by a number that no other has had.
pub type Connection = u64;

/// Whom a connection belongs to: an address. Of IPv6 the network of 64 bits, since whoever has one address of it has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// From where.
    pub peer: Peer,
    /// By which connection.
    pub connection: Connection,
    /// Whether it has shown a certificate that we trust.
    pub is_known: bool,
}

/// How much of something there is, and how much of it one peer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    /// For all together.
    pub most: usize,
    /// For one peer.
    pub per_peer: usize,
}

impl Portion {
    /// A half for one peer: nobody can take all of it, and a peer that is alone has as much as it needs.
    pub const fn halved(most: usize) -> Self {
        Self { most, per_peer: most / 2 }
    }
}

/// How long callers may take over what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For what has begun and is not whole: a handshake, the head of a request, its body.
    pub half_sent: Duration,
    /// Until the first request begins.
    pub silent: Duration,
    /// Between an answer and the next request.
    pub idle: Duration,
    /// The same, of callers that are known: longer than they keep a connection that they do not use, so that they end it
    /// first and lose no request by it.
    pub idle_known: Duration,
    /// For taking an answer.
    pub taking: Duration,
}

impl Patience {
    /// What callers of the manager get.
    pub const SERVER: Self = Self {
        half_sent: Duration::from_secs(5),
        silent: Duration::from_secs(10),
        idle: Duration::from_secs(30),
        idle_known: Duration::from_secs(120),
        taking: Duration::from_secs(30),
    };
}

/// What a port gives.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once.
    pub connections: Portion,
    /// Requests that are answered at once; more wait.
    pub requests: Portion,
    /// Bytes of requests at once; beyond them a request is refused.
    pub bytes: Portion,
    /// The largest request at this path.
    pub largest: fn(&str) -> usize,
    /// How long callers may take.
    pub patience: Patience,
    /// How long an answer may take us, once the request is whole.
    pub answer_within: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_one_address_of_a_network_is_one_peer() {
        let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(peer("2001:db8:0:1::7"), peer("2001:db8:0:1:ffff::9"));
        assert_ne!(peer("2001:db8:0:1::7"), peer("2001:db8:0:2::7"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"), "the same address, by a socket for both");
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }
}

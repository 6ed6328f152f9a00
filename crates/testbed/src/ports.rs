//! Choosing ports on the loopback address.

use std::{
    collections::HashSet,
    hash::{BuildHasher, Hasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::error::{Error, Result};

/// Below Linux's range for outgoing connections, so that no connection of somebody's sits on a chosen port.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

/// Whether nothing listens on the port now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A free port that this process has not handed out before. Another process may still be faster: callers retry.
pub(crate) fn choose() -> Result<u16> {
    // Two clusters that start at once in one process must not be given the same port before either listens.
    static HANDED_OUT: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut guard = HANDED_OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let handed_out = guard.get_or_insert_default();
    for _ in 0..4 {
        // Random, so that clusters of different processes seldom try the same.
        let random = RandomState::new().build_hasher().finish();
        if let Some(port) = first_free(random, |port| !handed_out.contains(&port) && is_free(port)) {
            handed_out.insert(port);
            return Ok(port);
        }
        // A process that started very many clusters comes round to ports of those that have ended.
        handed_out.clear();
    }
    Err(Error::NoPort { from: FIRST, to: LAST })
}

/// The first of 256 ports from some place in the range on that may be had.
fn first_free(place: u64, is_to_be_had: impl Fn(u16) -> bool) -> Option<u16> {
    let range = u64::from(LAST - FIRST) + 1;
    let port = |offset: u64| FIRST + u16::try_from(place.wrapping_add(offset) % range).unwrap_or_default();
    (0..256).map(port).find(|port| is_to_be_had(*port))
}

/// The port asked for, if it is free.
pub(crate) fn exactly(port: u16) -> Result<u16> {
    if is_free(port) { Ok(port) } else { Err(Error::PortTaken { port }) }
}

/// Waits until nothing listens on any of the ports, for at most `limit`.
pub(crate) fn wait_until_free(ports: &[u16], limit: Duration) {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline && !ports.iter().all(|port| is_free(*port)) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ports_differ() {
        let ports: HashSet<u16> = (0..50).map(|_| choose().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (FIRST..=LAST).contains(port)));
    }

    // Which ports are free is up to other processes of the machine too: it is tested with what is said of them.
    #[test]
    fn taken_ports_are_passed_over_and_the_range_goes_round() {
        assert_eq!(first_free(0, |_| true), Some(FIRST));
        assert_eq!(first_free(0, |port| port > FIRST + 2), Some(FIRST + 3));
        let last = u64::from(LAST - FIRST);
        assert_eq!(first_free(last, |port| port != LAST), Some(FIRST));
        assert_eq!(first_free(0, |port| port > FIRST + 255), None);
    }

    #[test]
    fn a_port_that_is_listened_on_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }

    #[test]
    fn a_taken_port_is_named_with_the_remedy() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let message = exactly(port).unwrap_err().to_string();
        assert!(message.contains(&format!("port {port} on 127.0.0.1 is taken")), "{message}");
        assert!(!message.contains('\n'));
    }
}

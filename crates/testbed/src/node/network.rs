//! A node's link to this machine.

use std::{
    net::Ipv4Addr,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use super::inside::run_tool;
use crate::{
    error::{Error, Result},
    process::ProcessId,
};

/// Where the API server is for everything inside a node.
pub(super) const API_PORT: u16 = 6443;
/// The same address inside every node, on its loopback device: the only endpoint of the `kubernetes` service.
pub(super) const API_ADDRESS: &str = "10.255.255.1";

/// So many nodes have addresses of their own.
const NUMBERS: u16 = 2_000;

/// Addresses of one node: a link of two addresses, and a range for pods.
#[derive(Debug, Clone)]
pub(super) struct Network {
    host: Ipv4Addr,
    pub(super) node: Ipv4Addr,
    number: u16,
}

impl Network {
    /// Addresses that no other link of this machine uses: of 198.18.0.0/15 (set aside for benchmarks) and 10.88.0.0/13.
    ///
    /// They are in use only once they are linked, a while later: so each node of each process begins to look elsewhere.
    pub(super) fn choose() -> Result<Self> {
        static CHOSEN: AtomicU32 = AtomicU32::new(0);
        let first = std::process::id().wrapping_mul(17).wrapping_add(CHOSEN.fetch_add(1, Ordering::Relaxed));
        let used = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let mut numbers = (0..NUMBERS).map(|number| ((first % u32::from(NUMBERS)) as u16 + number) % NUMBERS);
        let free = numbers.find(|number| !used.contains(&format!(" {}\n", Self::numbered(*number).host)));
        free.map(Self::numbered).ok_or(Error::Interrupted { what: "looking for a free network" })
    }

    fn numbered(number: u16) -> Self {
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + u32::from(number) * 4;
        Self { host: Ipv4Addr::from(base + 1), node: Ipv4Addr::from(base + 2), number }
    }

    /// The range of pod addresses.
    pub(super) fn pod_cidr(&self) -> String {
        let base = u32::from(Ipv4Addr::new(10, 88, 0, 0)) + u32::from(self.number) * 256;
        format!("{}/24", Ipv4Addr::from(base))
    }

    /// Links the node's network namespace with this machine. The link goes when the namespace does.
    pub(super) fn connect(&self, init: &ProcessId) -> Result<()> {
        let device = format!("dapple{}", self.number);
        let pid = init.pid.to_string();
        let (host, node) = (format!("{}/30", self.host), format!("{}/30", self.node));
        let (gateway, range) = (self.node.to_string(), self.pod_cidr());
        let outside = |line: &[&str]| run_tool(Command::new("ip").args(line));
        let inside = |line: &[&str]| {
            run_tool(Command::new("/usr/bin/nsenter").args([&format!("--target={pid}"), "--net", "ip"]).args(line))
        };
        outside(&["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        outside(&["addr", "add", &host, "dev", &device])?;
        outside(&["link", "set", &device, "up"])?;
        inside(&["addr", "add", &node, "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &self.host.to_string()])?;
        inside(&["addr", "add", &format!("{API_ADDRESS}/32"), "dev", "lo"])?;
        // Webhooks in pods, and tests, reach pods from outside.
        outside(&["route", "add", &range, "via", &gateway, "dev", &device])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_addresses_of_their_own() {
        let (one, two) = (Network::numbered(0), Network::numbered(1999));
        assert_eq!((one.host.to_string(), one.node.to_string()), ("198.18.0.1".into(), "198.18.0.2".into()));
        assert_eq!(one.pod_cidr(), "10.88.0.0/24");
        assert_eq!(two.pod_cidr(), "10.95.207.0/24");
        assert_ne!(one.node, two.node);
        let (first, second) = (Network::choose().unwrap(), Network::choose().unwrap());
        assert_ne!(first.number, second.number, "neither is linked yet");
    }
}

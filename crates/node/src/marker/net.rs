//! Connections to pods.

use std::io;
use std::net::IpAddr;

use dapple_plan::marker::schedule::Answer;
use rustix::io::Errno;
use tokio::net::TcpStream;

/// What the machine lacks, not the pod.
const OURS: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::ADDRNOTAVAIL];

/// Connects, or says what that means for a probe.
pub(super) async fn connect(address: IpAddr, port: u16) -> Result<TcpStream, Answer> {
    TcpStream::connect((address, port)).await.map_err(|error| unconnected(&error))
}

/// What it means that there is no connection: that the pod does not answer, unless the prober could not even ask.
pub(super) fn unconnected(error: &io::Error) -> Answer {
    match Errno::from_io_error(error) {
        Some(errno) if OURS.contains(&errno) => Answer::Error(format!("the prober cannot connect: {}", error.kind())),
        _ => Answer::Failed(format!("cannot connect: {}", error.kind())),
    }
}

/// Whether a pod takes connections at a port.
pub(super) async fn probe(address: IpAddr, port: u16) -> Answer {
    connect(address, port).await.map_or_else(|answer| answer, |_| Answer::Succeeded)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn a_port_that_takes_connections_succeeds_and_another_fails() {
        let listener = TcpListener::bind((HERE, 0)).await.expect("any port");
        let port = listener.local_addr().expect("it listens").port();
        assert_eq!(probe(HERE, port).await, Answer::Succeeded);
        drop(listener);
        assert_eq!(probe(HERE, port).await, Answer::Failed("cannot connect: connection refused".to_owned()));
    }

    #[test]
    fn what_the_machine_lacks_is_no_failure_of_the_pod() {
        let answer = |errno: Errno| unconnected(&io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in OURS {
            assert!(matches!(answer(errno), Answer::Error(_)), "{errno}");
        }
        for errno in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::CONNRESET, Errno::NETUNREACH] {
            assert!(matches!(answer(errno), Answer::Failed(_)), "{errno}");
        }
    }
}

//! Running a probe once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use dapple_plan::marker::action::Action;
use dapple_plan::marker::schedule::{Answer, EXEC_IS_OFF, Order};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{exec, grpc, http, net};

/// What probes are run with.
pub(super) struct Tools {
    /// For probes over TLS.
    pub(super) tls: TlsConnector,
    /// Where the runtime listens, if commands are run.
    pub(super) runtime: Option<PathBuf>,
}

/// Runs a probe.
pub(super) async fn run(tools: &Tools, order: &Order) -> Answer {
    if let Action::Exec { command } = &order.action {
        return match &tools.runtime {
            Some(socket) => exec::probe(socket, &order.container_id, command, order.timeout).await,
            None => Answer::Error(EXEC_IS_OFF.to_owned()),
        };
    }
    let Some(address) = order.address.as_deref().and_then(|address| address.parse().ok()) else {
        return Answer::Error("the pod has no address yet".to_owned());
    };
    let asked = over_network(tools, address, &order.action, order.timeout);
    timeout(order.timeout, asked).await.unwrap_or_else(|_| Answer::Failed(too_long(order.timeout)))
}

async fn over_network(tools: &Tools, address: IpAddr, action: &Action, within: Duration) -> Answer {
    match action {
        Action::Http(get) => http::probe(&tools.tls, address, get).await,
        Action::Tcp { port } => net::probe(address, *port).await,
        Action::Grpc { port, service } => grpc::probe(address, *port, service, within).await,
        Action::Exec { .. } => Answer::Error("a command is not run over the network".to_owned()),
    }
}

fn too_long(time: Duration) -> String {
    format!("it took longer than {} s", time.as_secs())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::super::tls::connector;
    use super::*;

    fn order(action: Action, address: Option<&str>) -> Order {
        let (address, container_id) = (address.map(Arc::from), Arc::from("containerd://a"));
        Order { number: 1, action, timeout: Duration::from_secs(1), address, container_id }
    }

    fn tools() -> Tools {
        Tools { tls: connector().expect("TLS"), runtime: None }
    }

    #[tokio::test]
    async fn what_takes_too_long_has_failed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("any port");
        let port = listener.local_addr().expect("it listens").port();
        // It takes connections, and says nothing.
        let action = Action::Grpc { port, service: String::new() };
        let answer = run(&tools(), &order(action, Some("127.0.0.1"))).await;
        assert_eq!(answer, Answer::Failed("it took longer than 1 s".to_owned()));
    }

    #[tokio::test]
    async fn what_cannot_be_run_is_no_failure() {
        for (action, address) in [
            (Action::Exec { command: vec!["a".to_owned()] }, Some("127.0.0.1")),
            (Action::Tcp { port: 1 }, None),
            (Action::Tcp { port: 1 }, Some("nowhere")),
        ] {
            let order = order(action, address);
            assert!(matches!(run(&tools(), &order).await, Answer::Error(_)), "{order:?}");
        }
    }
}

//! Probes by the gRPC health checking protocol.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dapple_plan::marker::schedule::Answer;

use super::net::connect;
use super::unary::{CallError, DEADLINE_EXCEEDED, OK, Question, Reply, UNIMPLEMENTED, ask};
use super::wire::Message;

const CHECK: &str = "/grpc.health.v1.Health/Check";
/// In the question: the service asked about.
const SERVICE: u64 = 1;
/// In the answer: whether it serves.
const STATUS: u64 = 1;
/// That it does.
const SERVING: u64 = 1;

/// Asks a pod how a service of it is, or all of it.
pub(super) async fn probe(address: IpAddr, port: u16, service: &str, within: Duration) -> Answer {
    let stream = match connect(address, port).await {
        Ok(stream) => stream,
        Err(answer) => return answer,
    };
    let message = if service.is_empty() { Message::default() } else { Message::default().text(SERVICE, service) };
    let authority = SocketAddr::new(address, port).to_string();
    judge(ask(stream, Question { authority: &authority, path: CHECK, message, within, field: STATUS }).await)
}

fn judge(answer: Result<Reply, CallError>) -> Answer {
    match answer {
        Ok(Reply { code: OK, number: SERVING }) => Answer::Succeeded,
        Ok(Reply { code: OK, number }) => Answer::Failed(format!("it does not serve: its status is {number}")),
        Ok(Reply { code: UNIMPLEMENTED, .. }) => {
            Answer::Failed("it does not know the gRPC health checking protocol".to_owned())
        }
        Ok(Reply { code: DEADLINE_EXCEEDED, .. }) => Answer::Failed("it took too long".to_owned()),
        Ok(Reply { code, .. }) => Answer::Failed(format!("it answers with gRPC status {code}")),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::testing::{GrpcAnswer, serve};
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const WITHIN: Duration = Duration::from_secs(5);

    async fn answered(answer: GrpcAnswer) -> Answer {
        let listener = TcpListener::bind((HERE, 0)).await.expect("any port");
        let port = listener.local_addr().expect("it listens").port();
        tokio::spawn(async move { serve(listener.accept().await.expect("a connection").0, answer).await });
        probe(HERE, port, "my.Service", WITHIN).await
    }

    #[tokio::test]
    async fn only_one_that_serves_succeeds() {
        let status = |status: u64| GrpcAnswer { message: Some(Message::default().number(STATUS, status)), code: "0" };
        assert_eq!(answered(status(SERVING)).await, Answer::Succeeded);
        for other in [0, 2, 3] {
            assert!(matches!(answered(status(other)).await, Answer::Failed(why) if why.contains(&other.to_string())));
        }
    }

    #[tokio::test]
    async fn a_status_of_grpc_is_a_failure() {
        for (code, said) in [("12", "does not know"), ("4", "too long"), ("5", "gRPC status 5"), ("0", "not gRPC")] {
            let answer = answered(GrpcAnswer { message: None, code }).await;
            assert!(matches!(&answer, Answer::Failed(why) if why.contains(said)), "{code}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn whoever_does_not_speak_it_fails() {
        let listener = TcpListener::bind((HERE, 0)).await.expect("any port");
        let port = listener.local_addr().expect("it listens").port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let _ = stream.read(&mut [0; 64]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsecret").await;
        });
        let answer = probe(HERE, port, "", WITHIN).await;
        assert!(matches!(&answer, Answer::Failed(why) if !why.contains("secret")), "{answer:?}");
    }
}

//! Probes that run a command in a container, by the runtime's own interface (CRI).

use std::path::Path;
use std::time::Duration;

use dapple_plan::marker::schedule::Answer;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::unary::{CallError, DEADLINE_EXCEEDED, OK, Question, Reply, ask};
use super::wire::Message;

const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";
/// In the question.
const CONTAINER_ID: u64 = 1;
const COMMAND: u64 = 2;
const TIMEOUT: u64 = 3;
/// In the answer.
const EXIT_CODE: u64 = 3;
/// A runtime that has not answered so long after the command's time was over will not.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a command in a run of a container, by the runtime that listens at a socket.
pub(super) async fn probe(socket: &Path, container_id: &str, command: &[String], within: Duration) -> Answer {
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error) => return Answer::Error(format!("the runtime cannot be reached: {}", error.kind())),
    };
    let seconds = within.as_secs().max(1);
    let message = Message::default().text(CONTAINER_ID, bare(container_id));
    let message = command.iter().fold(message, |message, word| message.text(COMMAND, word));
    let message = message.number(TIMEOUT, seconds);
    let patience = Duration::from_secs(seconds).saturating_add(GRACE);
    let question = Question { authority: "localhost", path: EXEC_SYNC, message, within: patience, field: EXIT_CODE };
    match timeout(patience, ask(stream, question)).await {
        Ok(answer) => judge(answer, seconds),
        Err(_) => Answer::Error("the runtime does not answer".to_owned()),
    }
}

/// A container's ID as the runtime knows it: the pod's status has the runtime's name before it.
fn bare(container_id: &str) -> &str {
    container_id.split_once("://").map_or(container_id, |(_, id)| id)
}

/// As the kubelet does: how the command ends is a result, and so is that it does not; all else is the runtime's matter.
fn judge(answer: Result<Reply, CallError>, seconds: u64) -> Answer {
    match answer {
        Ok(Reply { code: OK, number: 0 }) => Answer::Succeeded,
        // A number with a sign has 64 bits on the wire.
        Ok(Reply { code: OK, number }) => Answer::Failed(format!("the command ended with {}", number as i64 as i32)),
        Ok(Reply { code: DEADLINE_EXCEEDED, .. }) => {
            Answer::Failed(format!("the command took longer than {seconds} s"))
        }
        Ok(Reply { code, .. }) => Answer::Error(format!("the runtime cannot run the command: gRPC status {code}")),
        Err(error) => Answer::Error(format!("the runtime cannot be asked: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::super::testing::{GrpcAnswer, serve};
    use super::*;

    async fn answered(answer: GrpcAnswer) -> Answer {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("runtime.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::spawn(async move { serve(listener.accept().await.expect("a connection").0, answer).await });
        let command = ["cat".to_owned(), "/tmp/healthy".to_owned()];
        probe(&socket, "containerd://abc", &command, Duration::from_secs(3)).await
    }

    fn exit(code: i32) -> GrpcAnswer {
        // What it prints is passed over, however long.
        let printed = "secret".repeat(50_000);
        let message = Message::default().text(1, &printed).text(2, &printed);
        let message = if code == 0 { message } else { message.number(EXIT_CODE, i64::from(code) as u64) };
        GrpcAnswer { message: Some(message), code: "0" }
    }

    #[tokio::test]
    async fn how_the_command_ends_is_the_result_and_what_it_prints_is_told_nowhere() {
        assert_eq!(answered(exit(0)).await, Answer::Succeeded);
        for code in [1, 127, -1] {
            assert_eq!(answered(exit(code)).await, Answer::Failed(format!("the command ended with {code}")));
        }
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_has_failed() {
        let answer = answered(GrpcAnswer { message: None, code: "4" }).await;
        assert_eq!(answer, Answer::Failed("the command took longer than 3 s".to_owned()));
    }

    #[tokio::test]
    async fn what_the_runtime_cannot_do_is_no_failure() {
        for code in ["2", "5", "9", "14"] {
            let answer = answered(GrpcAnswer { message: None, code }).await;
            assert!(matches!(&answer, Answer::Error(why) if why.ends_with(code)), "{answer:?}");
        }
        let nobody = probe(Path::new("/nowhere/runtime.sock"), "a", &[], Duration::from_secs(1)).await;
        assert_eq!(nobody, Answer::Error("the runtime cannot be reached: entity not found".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_hangs_is_waited_for_no_longer() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("runtime.sock");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let answer = probe(&socket, "a", &["b".to_owned()], Duration::from_secs(3)).await;
        assert_eq!(answer, Answer::Error("the runtime does not answer".to_owned()));
    }

    #[test]
    fn the_runtime_knows_containers_without_its_own_name() {
        assert_eq!((bare("containerd://abc"), bare("cri-o://abc"), bare("abc")), ("abc", "abc", "abc"));
    }
}

//! What a probe does, and when: a definition with defaults filled in, read once.

use std::time::Duration;

use dapple_api::template::Probe;
use serde::Deserialize;

use super::probe::filled;

/// No command is run more often than this in one container for one probe.
pub const LEAST_EXEC_PERIOD: Duration = Duration::from_secs(5);

/// A probe, as it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// What it does.
    pub action: Action,
    /// When.
    pub timing: Timing,
}

/// What a probe does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It runs a command in the container, without a shell.
    Exec {
        /// The command and its arguments.
        command: Vec<String>,
    },
    /// It sends an HTTP request to the pod.
    Http(HttpGet),
    /// It opens a connection to the pod.
    Tcp {
        /// The port.
        port: u16,
    },
    /// It asks the pod by the gRPC health checking protocol.
    Grpc {
        /// The port.
        port: u16,
        /// The service that is asked about; empty for the server as a whole.
        service: String,
    },
}

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGet {
    /// The port.
    pub port: u16,
    /// Path, with the query if there is one.
    pub path: String,
    /// Whether it goes over TLS. No certificate is checked.
    pub is_tls: bool,
    /// Headers, in the order given. One may be there several times.
    pub headers: Vec<(String, String)>,
}

/// When a probe runs, and how often it has to say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// So long after the container's start nothing is done.
    pub initial_delay: Duration,
    /// A run that takes longer has failed.
    pub timeout: Duration,
    /// It runs once in this time.
    pub period: Duration,
    /// So many successes in a row make it succeed.
    pub successes: u32,
    /// So many failures in a row make it fail.
    pub failures: u32,
}

/// What of a node a probe needs: there is only so much of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// The runtime, to run a command.
    Runtime,
    /// A connection.
    Network,
}

impl Action {
    /// What it needs.
    #[must_use]
    pub const fn means(&self) -> Means {
        match self {
            Self::Exec { .. } => Means::Runtime,
            Self::Http(_) | Self::Tcp { .. } | Self::Grpc { .. } => Means::Network,
        }
    }

    /// Its name, as in a probe's definition.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::Http(_) => "httpGet",
            Self::Tcp { .. } => "tcpSocket",
            Self::Grpc { .. } => "grpc",
        }
    }
}

impl Definition {
    /// Of a probe. Nothing if it does not do one thing, or names a port that has no number yet.
    #[must_use]
    pub fn of(probe: &Probe) -> Option<Self> {
        let wire: Wire = serde_json::from_value(filled(&probe.0)?).ok()?;
        let action = wire.action()?;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let period = seconds(wire.period_seconds);
        let period = if action.means() == Means::Runtime { period.max(LEAST_EXEC_PERIOD) } else { period };
        let timing = Timing {
            initial_delay: seconds(wire.initial_delay_seconds),
            timeout: seconds(wire.timeout_seconds),
            period,
            successes: wire.success_threshold,
            failures: wire.failure_threshold,
        };
        Some(Self { action, timing })
    }
}

/// A probe with defaults filled in: of the handlers, it has one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    initial_delay_seconds: u32,
    timeout_seconds: u32,
    period_seconds: u32,
    success_threshold: u32,
    failure_threshold: u32,
    exec: Option<ExecWire>,
    http_get: Option<HttpWire>,
    tcp_socket: Option<TcpWire>,
    grpc: Option<GrpcWire>,
}

#[derive(Deserialize)]
struct ExecWire {
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpWire {
    port: u16,
    path: String,
    scheme: String,
    #[serde(default)]
    http_headers: Vec<HeaderWire>,
}

#[derive(Deserialize)]
struct HeaderWire {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct TcpWire {
    port: u16,
}

#[derive(Deserialize)]
struct GrpcWire {
    port: u16,
    service: String,
}

impl Wire {
    fn action(&self) -> Option<Action> {
        let exec = self.exec.as_ref().filter(|exec| !exec.command.is_empty());
        let exec = exec.map(|exec| Action::Exec { command: exec.command.clone() });
        let http = self.http_get.as_ref().map(|http| {
            Action::Http(HttpGet {
                port: http.port,
                path: http.path.clone(),
                is_tls: http.scheme.eq_ignore_ascii_case("https"),
                headers: http.http_headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect(),
            })
        });
        let tcp = self.tcp_socket.as_ref().map(|tcp| Action::Tcp { port: tcp.port });
        let grpc = self.grpc.as_ref().map(|grpc| Action::Grpc { port: grpc.port, service: grpc.service.clone() });
        exec.or(http).or(tcp).or(grpc)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(probe: Value) -> Option<Definition> {
        Definition::of(&Probe(probe))
    }

    fn action(probe: Value) -> Action {
        of(probe).expect("a probe").action
    }

    #[test]
    fn every_handler_is_read() {
        assert_eq!(
            action(json!({"exec": {"command": ["a", "b"]}})),
            Action::Exec { command: vec!["a".into(), "b".into()] }
        );
        assert_eq!(action(json!({"tcpSocket": {"port": 80}})), Action::Tcp { port: 80 });
        assert_eq!(action(json!({"grpc": {"port": 80}})), Action::Grpc { port: 80, service: String::new() });
        let headers = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B"}]);
        let read = action(json!({"httpGet": {"port": 80, "path": "/a?b", "scheme": "HTTPS", "httpHeaders": headers}}));
        let headers =
            [("A", "1"), ("A", "2"), ("B", "")].map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        assert_eq!(read, Action::Http(HttpGet { port: 80, path: "/a?b".into(), is_tls: true, headers }));
    }

    #[test]
    fn times_are_those_of_the_probe_and_commands_run_every_five_seconds_at_most() {
        let with = |handler: &str, action: Value| {
            let mut probe = json!({"initialDelaySeconds": 4, "timeoutSeconds": 3, "periodSeconds": 2, "successThreshold": 5,
                "failureThreshold": 6});
            probe[handler] = action;
            of(probe).expect("a probe").timing
        };
        let timing = Timing {
            initial_delay: Duration::from_secs(4),
            timeout: Duration::from_secs(3),
            period: Duration::from_secs(2),
            successes: 5,
            failures: 6,
        };
        assert_eq!(with("tcpSocket", json!({"port": 1})), timing);
        assert_eq!(with("exec", json!({"command": ["a"]})), Timing { period: LEAST_EXEC_PERIOD, ..timing });
    }

    #[test]
    fn what_cannot_be_run_is_no_probe() {
        for wrong in [
            json!({}),
            json!({"exec": {"command": []}}),
            json!({"exec": {}}),
            json!({"httpGet": {"port": "web"}}),
            json!({"tcpSocket": {"port": 70000}}),
            json!({"tcpSocket": {"port": 1}, "grpc": {"port": 1}}),
        ] {
            assert_eq!(of(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn each_needs_its_means_and_has_its_name() {
        for (probe, name, means) in [
            (json!({"exec": {"command": ["a"]}}), "exec", Means::Runtime),
            (json!({"httpGet": {"port": 1}}), "httpGet", Means::Network),
            (json!({"tcpSocket": {"port": 1}}), "tcpSocket", Means::Network),
            (json!({"grpc": {"port": 1}}), "grpc", Means::Network),
        ] {
            let action = action(probe);
            assert_eq!((action.name(), action.means()), (name, means));
        }
    }
}

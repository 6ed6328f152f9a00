//! Cases: short scripts of requests, and running one against a client.

use std::time::{Duration, Instant};

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

/// A script.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One request, or something that only one side needs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// A method and a path; `WATCH` for a watch of a few seconds; `COMPACT`, which forgets old versions in memory.
    /// `$ns` is the case's namespace, `$1.metadata.uid` is from the first step's answer.
    #[serde(rename = "do")]
    pub(crate) act: String,
    pub(crate) body: Option<Value>,
    /// `merge`, `json` or `strategic`.
    #[serde(rename = "type")]
    pub(crate) patch: Option<String>,
    /// Asks for metadata alone.
    #[serde(default)]
    pub(crate) brief: bool,
    /// Repeats the request until the answer has this code, or has these fields.
    pub(crate) until: Option<Value>,
    /// Compares these fields alone: other programs write the others on the real side.
    pub(crate) only: Option<Vec<String>>,
    /// Done in memory alone: on the real side kube-controller-manager does it.
    #[serde(default)]
    pub(crate) played: bool,
}

/// What a step was answered with.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

/// One of the two servers.
pub(crate) struct Side {
    pub(crate) client: Client,
    /// The server in memory, if it is this one.
    pub(crate) memory: Option<dapple_sim::server::Server>,
}

/// Short for paths that many cases use.
const SHORT: [(&str, &str); 6] = [
    ("$v1", "/api/v1/namespaces/$ns"),
    ("$apps", "/apis/apps/v1/namespaces/$ns"),
    ("$sets", "/apis/apps.kruise.io/v1beta1/namespaces/$ns/daemonsets"),
    ("$groups", "/apis/groupmanagement.kubeedge.io/v1alpha1/nodegroups"),
    ("$leases", "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"),
    ("$budgets", "/apis/policy/v1/namespaces/$ns/poddisruptionbudgets"),
];

const PATIENCE: Duration = Duration::from_secs(60);

impl Side {
    /// Runs a case in a namespace of its own.
    pub(crate) async fn run(&self, case: &Case, namespace: &str) -> Vec<Said> {
        let made = json!({"metadata": {"name": namespace}});
        let made = self.send(Method::POST, "/api/v1/namespaces", "application/json", false, Some(&made)).await;
        assert_eq!(made.code, 201, "{}: {made:?}", case.name);
        if self.memory.is_none() {
            // Pods are refused before there is one.
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            self.until(&path, false, &json!(200)).await;
        }
        let mut said = Vec::new();
        for step in &case.steps {
            let answer = self.step(step, namespace, &said).await;
            said.push(answer);
        }
        said
    }

    async fn step(&self, step: &Step, namespace: &str, said: &[Said]) -> Said {
        let nothing = Said { code: 0, body: Value::Null };
        if step.played && self.memory.is_none() {
            return nothing;
        }
        let (method, path) = step.act.split_once(' ').unwrap_or((&step.act, ""));
        let path = fill_in(path, namespace, said, true);
        let body = step.body.as_ref().map(|body| fill_in_all(body, namespace, said));
        match method {
            "COMPACT" => {
                self.memory.iter().for_each(|server| server.compact());
                nothing
            }
            "WATCH" => {
                // On a busy machine a real API server takes seconds to tell.
                let seconds = if self.memory.is_some() { 2 } else { 10 };
                let then = if path.contains('?') { '&' } else { '?' };
                let path = format!("{path}{then}watch=1&timeoutSeconds={seconds}");
                let mut answer = self.send(Method::GET, &path, "", step.brief, None).await;
                answer.body = lines(answer.body);
                answer
            }
            _ => {
                if let Some(until) = &step.until {
                    return self.until(&path, step.brief, &fill_in_all(until, namespace, said)).await;
                }
                let kind = match step.patch.as_deref() {
                    Some("merge") => "application/merge-patch+json",
                    Some("json") => "application/json-patch+json",
                    Some("strategic") => "application/strategic-merge-patch+json",
                    Some(other) => other,
                    None => "application/json",
                };
                self.send(method.parse().unwrap(), &path, kind, step.brief, body.as_ref()).await
            }
        }
    }

    /// Asks until the answer is as wanted. In memory, garbage is collected in between.
    async fn until(&self, path: &str, brief: bool, wanted: &Value) -> Said {
        let begun = Instant::now();
        loop {
            if let Some(server) = &self.memory {
                while server.collect_garbage() {}
            }
            let answer = self.send(Method::GET, path, "", brief, None).await;
            let is_wanted = match wanted.as_u64() {
                Some(code) => u64::from(answer.code) == code,
                None => contains(&answer.body, wanted),
            };
            if is_wanted {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is never {wanted}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, kind: &str, brief: bool, body: Option<&Value>) -> Said {
        let is_list = method == Method::GET && (path.contains('?') || path.ends_with('s'));
        let accept = match (brief, is_list) {
            (false, _) => "application/json",
            (true, true) if !path.contains("watch=1") => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            (true, _) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        };
        let mut request = Request::builder().method(method).uri(path).header("accept", accept);
        if body.is_some() {
            request = request.header("content-type", kind);
        }
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        Said { code, body }
    }
}

/// The events of a watch, but for bookmarks, which come when the server likes.
fn lines(body: Value) -> Value {
    let events: Vec<Value> = match &body {
        Value::String(text) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        event if event.get("type").is_some() => vec![body],
        _ => return body,
    };
    events.into_iter().filter(|event| event["type"] != "BOOKMARK").collect()
}

/// Whether `whole` has all of `part`.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().all(|(name, part)| {
            let found = whole.get(name);
            if part.is_null() { found.is_none() } else { found.is_some_and(|whole| contains(whole, part)) }
        }),
        part => whole == part,
    }
}

fn fill_in_all(value: &Value, namespace: &str, said: &[Said]) -> Value {
    match value {
        Value::String(text) => json!(fill_in(text, namespace, said, false)),
        Value::Array(items) => items.iter().map(|item| fill_in_all(item, namespace, said)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(name, value)| (name.clone(), fill_in_all(value, namespace, said))).collect()
        }
        other => other.clone(),
    }
}

/// Puts in what `$` stands for.
fn fill_in(text: &str, namespace: &str, said: &[Said], in_path: bool) -> String {
    let text = SHORT.iter().fold(text.to_owned(), |text, (short, long)| text.replace(short, long));
    let text = text.replace("$ns", namespace);
    let mut parts = text.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| !(letter.is_alphanumeric() || letter == '.')).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let Some((step, path)) = name.split_once('.').filter(|(step, _)| step.parse::<usize>().is_ok()) else {
            // A directive of a patch.
            filled.push('$');
            filled.push_str(part);
            continue;
        };
        let answer = &said[step.parse::<usize>().unwrap() - 1];
        let found = answer.body.pointer(&format!("/{}", path.replace('.', "/")));
        let found = found.and_then(Value::as_str).unwrap_or("missing");
        if in_path {
            filled.extend(form_urlencoded::byte_serialize(found.as_bytes()));
        } else {
            filled.push_str(found);
        }
        filled.push_str(rest);
    }
    filled
}

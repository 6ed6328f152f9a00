//! What the API server was asked, by whom, and what it answered: its audit log.

use std::io::{BufRead, BufReader};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The user of the administrator's kubeconfig, which our managers use too.
const USER: &str = "dapple:admin";
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Where an API server keeps its audit log. It is gone with this.
pub struct Audit(TempDir);

/// A request that was answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// When it came in. As text it has the order of time: all have microseconds.
    pub request_received_timestamp: String,
    /// Who sent it, by its user agent.
    pub user_agent: String,
    /// What for: `list`, `create` and so on.
    pub verb: String,
    /// Its path and parameters.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// What it is about.
    pub object_ref: About,
    /// The answer's code.
    pub response_status: Answer,
    /// The body of a write.
    pub request_object: Value,
    /// The answer to a write.
    pub response_object: Value,
}

/// What a request is about.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    api_group: String,
    resource: String,
    subresource: String,
    /// The object's name; none for a list.
    pub name: String,
}

/// How a request was answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    code: u16,
}

impl Entry {
    /// Resource and group, such as `pods` or `daemonsets/status.apps.kruise.io`.
    pub fn kind(&self) -> String {
        let About { api_group, resource, subresource, .. } = &self.object_ref;
        let parts = [(resource, ""), (subresource, "/"), (api_group, ".")];
        parts.into_iter().filter(|(part, _)| !part.is_empty()).map(|(part, before)| format!("{before}{part}")).collect()
    }

    /// Whether it was done.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// Whether the API server failed to do it, or to say that it did: for want of somebody to tell, too.
    pub fn is_failed(&self) -> bool {
        self.response_status.code >= 500 || self.response_status.code == 0
    }

    /// Whether a list begins with it.
    pub fn is_first_page(&self) -> bool {
        self.verb == "list" && !self.uri.contains("continue=")
    }

    /// Whether it asks for a change that is kept.
    pub fn is_write(&self) -> bool {
        WRITES.contains(&self.verb.as_str()) && !self.is_dry()
    }

    /// Whether it only asks what the API server would say to a change.
    pub fn is_dry(&self) -> bool {
        self.uri.contains("dryRun=")
    }
}

impl Audit {
    /// Makes a place for a log.
    pub fn new() -> anyhow::Result<Self> {
        let (dir, users) = (TempDir::new()?, [USER]);
        let bodies = json!([
            {"group": "", "resources": ["pods", "pods/*", "events"]},
            {"group": "apps", "resources": ["controllerrevisions"]},
            {"group": "events.k8s.io", "resources": ["events"]},
            {"group": "apps.kruise.io", "resources": ["*"]},
            {"group": "groupmanagement.kubeedge.io", "resources": ["*"]},
        ]);
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitManagedFields": true,
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                {"level": "RequestResponse", "users": users, "verbs": WRITES, "resources": bodies},
                {"level": "Metadata", "users": users},
                {"level": "None"},
            ],
        });
        std::fs::write(dir.path().join("policy"), policy.to_string())?;
        Ok(Self(dir))
    }

    /// The API server's arguments for it.
    pub fn api_args(&self) -> Vec<String> {
        let path = |name: &str| self.0.path().join(name).display().to_string();
        vec![
            format!("--audit-policy-file={}", path("policy")),
            format!("--audit-log-path={}", path("log")),
            // All of it in one file: 100 MB would be too little.
            "--audit-log-maxsize=10000".to_owned(),
        ]
    }

    /// What was asked so far by these, in the order in which it came in.
    pub fn entries(&self, agents: &[&str]) -> anyhow::Result<Vec<Entry>> {
        let log = BufReader::new(std::fs::File::open(self.0.path().join("log"))?);
        let mut entries = Vec::new();
        for line in log.lines() {
            let entry: Entry = serde_json::from_str(&line?).context("the audit log cannot be read")?;
            if agents.contains(&entry.user_agent.as_str()) {
                entries.push(entry);
            }
        }
        entries.sort_by(|a, b| a.request_received_timestamp.cmp(&b.request_received_timestamp));
        Ok(entries)
    }
}

//! Reading a request: what it is about, and what it asks for.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds::{CATALOGUE, Kind};

/// What a request is about.
#[derive(Clone, Copy)]
pub(super) struct Target<'r> {
    pub(super) kind: &'static Kind,
    /// Empty for all, and for kinds that have none.
    pub(super) namespace: &'r str,
    /// Empty for all.
    pub(super) name: &'r str,
    /// Empty for the object itself.
    pub(super) subresource: &'r str,
}

impl<'r> Target<'r> {
    /// Reads a path.
    pub(super) fn read(path: &'r str) -> Result<Self, Failure> {
        let mut parts = path.split('/').skip(1);
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let (group, version) = match next() {
            Some("api") => ("", next()),
            Some("apis") => (next().unwrap_or_default(), next()),
            _ => return Err(Failure::unserved(false)),
        };
        let unserved = || {
            let is_built_in = CATALOGUE.kinds.iter().any(|kind| kind.group == group && !kind.is_custom());
            Failure::unserved(is_built_in)
        };
        let version = version.ok_or_else(unserved)?;
        let rest = [next(), next(), next(), next(), next()].map(Option::unwrap_or_default);
        let find = |plural| CATALOGUE.find(group, version, plural);
        let target = match rest {
            // A namespace's own subresources look like what is in it.
            ["namespaces", name, subresource @ ("" | "status" | "finalize"), "", ""] => {
                find("namespaces").map(|kind| Self { kind, namespace: "", name, subresource })
            }
            ["namespaces", namespace, plural, name, subresource] => {
                find(plural).filter(|kind| kind.is_namespaced).map(|kind| Self { kind, namespace, name, subresource })
            }
            [plural, name, subresource, "", ""] => find(plural)
                .filter(|kind| !kind.is_namespaced || name.is_empty())
                .map(|kind| Self { kind, namespace: "", name, subresource }),
            _ => None,
        };
        target.filter(|target| target.is_served()).ok_or_else(unserved)
    }

    /// Whether this is its resource, or the subresource of it.
    pub(super) fn is_called(&self, resource: &str) -> bool {
        match resource.split_once('/') {
            Some((resource, subresource)) => self.kind.qualified == resource && self.subresource == subresource,
            None => self.kind.qualified == resource && self.subresource.is_empty(),
        }
    }

    fn is_served(&self) -> bool {
        match self.subresource {
            "" => true,
            "status" => self.kind.has_status,
            "finalize" => self.kind.is_namespace(),
            "binding" | "eviction" | "resize" => self.kind.is_pod(),
            _ => false,
        }
    }

    pub(super) fn key(&self) -> String {
        self.kind.key(self.namespace, self.name)
    }
}

/// What the query asks for.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) limit: usize,
    pub(super) proceed: String,
    pub(super) version: String,
    pub(super) version_match: String,
    pub(super) labels: String,
    pub(super) fields: String,
    pub(super) dry_run: bool,
    /// A list as a watch, which is not played: whoever needs it has to be told.
    pub(super) initial_events: bool,
    /// The options of a deletion that has no body.
    pub(super) deletion: Value,
}

impl Query {
    pub(super) fn read(query: &str) -> Self {
        let mut read = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "watch" => read.watch = matches!(value.as_ref(), "1" | "true"),
                "allowWatchBookmarks" => read.bookmarks = matches!(value.as_ref(), "1" | "true"),
                "timeoutSeconds" => read.timeout = value.parse().ok().map(Duration::from_secs),
                "limit" => read.limit = value.parse().unwrap_or(0),
                "sendInitialEvents" => read.initial_events = true,
                "continue" => read.proceed = value.into_owned(),
                "resourceVersion" => read.version = value.into_owned(),
                "resourceVersionMatch" => read.version_match = value.into_owned(),
                "labelSelector" => read.labels = value.into_owned(),
                "fieldSelector" => read.fields = value.into_owned(),
                "dryRun" if value == "All" => {
                    read.dry_run = true;
                    read.deletion["dryRun"] = json!(["All"]);
                }
                "gracePeriodSeconds" => read.deletion["gracePeriodSeconds"] = json!(value.parse::<i64>().ok()),
                "propagationPolicy" => read.deletion["propagationPolicy"] = json!(value),
                "orphanDependents" => read.deletion["orphanDependents"] = json!(value == "true"),
                _ => {}
            }
        }
        read
    }

    /// The version to list at or watch from; zero means any.
    pub(super) fn version(&self) -> Result<u64, Failure> {
        if self.version.is_empty() {
            return Ok(0);
        }
        self.version.parse().map_err(|_| {
            let text = &self.version;
            Failure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing \
                 {text:?}: invalid syntax"
            ))
        })
    }
}

/// What form an answer shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Whole,
    /// Metadata alone.
    Partial,
}

impl Shape {
    pub(super) fn of(request: &Request<Vec<u8>>) -> Self {
        let accept = request.headers().get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        // What is named first is preferred, and we have whatever may be named.
        let first = accept.and_then(|accept| accept.split(',').next()).unwrap_or_default();
        if first.contains("as=PartialObjectMetadata") { Self::Partial } else { Self::Whole }
    }
}

/// How a body is to be understood.
pub(super) fn content_type(request: &Request<Vec<u8>>) -> &str {
    let header = request.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    header.and_then(|header| header.split(';').next()).unwrap_or("application/json").trim()
}

/// Reads a body.
pub(super) fn body(request: &Request<Vec<u8>>) -> Result<Value, Failure> {
    serde_json::from_slice(request.body())
        .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))
}

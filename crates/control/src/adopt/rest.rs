//! Requests on whole objects as JSON: what is written back must be what was read, whether our types know it or not.

use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use serde_json::Value;

use super::Error;
use crate::install;

/// As many objects per answer.
const PAGE: usize = 500;
/// Who owns the fields that adopting sets: as after installing, so that installing again finds its own.
const FIELD_MANAGER: &str = "dapple-install";

/// How often a request is sent that the API server has no time for, and how long to wait in between.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// What a list answers with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Whole,
    /// Metadata alone: pods are many and large.
    Metadata,
}

impl Shape {
    fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }
}

/// Whether the API server answered with this code.
pub(super) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// An error about an object.
pub(super) fn refused(object: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let object = object.into();
    |source| install::Error::Refused { object, source: Box::new(source) }.into()
}

/// One object.
pub(super) async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    send(client, Request::get(path), Vec::new()).await
}

/// What `keep` makes of every object below a path, page by page. `query` is more to ask for, such as a selector.
pub(super) async fn list<T>(
    client: &Client,
    path: &str,
    query: &str,
    shape: Shape,
    mut keep: impl FnMut(Value) -> Option<T>,
) -> Result<Vec<T>, kube::Error> {
    let (mut kept, mut token) = (Vec::new(), String::new());
    loop {
        let from = if token.is_empty() { String::new() } else { format!("&continue={token}") };
        let path = format!("{path}?limit={PAGE}{query}{from}");
        let mut page = send(client, Request::get(path).header(ACCEPT, shape.accept()), Vec::new()).await?;
        if let Value::Array(items) = page["items"].take() {
            kept.extend(items.into_iter().filter_map(&mut keep));
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => return Ok(kept),
        }
    }
}

/// Replaces an object by one that names the version it was read at.
pub(super) async fn put(client: &Client, path: &str, object: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::put(format!("{path}?fieldManager={FIELD_MANAGER}"));
    send(client, request.header(CONTENT_TYPE, "application/json"), body).await
}

/// Merges a patch into an object.
pub(super) async fn merge(client: &Client, path: &str, patch: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
    let request = Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}"));
    send(client, request.header(CONTENT_TYPE, "application/merge-patch+json"), body).await
}

/// Asks whether an object would be made, with every field checked. Makes nothing.
pub(super) async fn dry_run(client: &Client, path: &str, object: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::post(format!("{path}?dryRun=All&fieldValidation=Strict"));
    send(client, request.header(CONTENT_TYPE, "application/json"), body).await
}

/// What the API server would store of an object after a merge patch. Writes nothing.
pub(super) async fn dry_merge(client: &Client, path: &str, patch: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
    let request = Request::patch(format!("{path}?dryRun=All"));
    send(client, request.header(CONTENT_TYPE, "application/merge-patch+json"), body).await
}

/// Sends a request. One that the API server has no time for was not done, so it is sent again: right after its CRD was
/// changed, a kind is "(re)initializing" for some seconds.
async fn send(client: &Client, request: http::request::Builder, body: Vec<u8>) -> Result<Value, kube::Error> {
    let (parts, body) = request.body(body).map_err(kube::Error::HttpError)?.into_parts();
    for _ in 1..TRIES {
        match client.request(Request::from_parts(parts.clone(), body.clone())).await {
            Err(error) if is_code(&error, 429) => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    client.request(Request::from_parts(parts, body)).await
}

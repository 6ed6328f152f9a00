//! Writes to the objects of one kind in one namespace, and what has come of each.
//!
//! Every write to an object names it as it was decided on, by UID and version: one that is late, or repeated, or meant for
//! what has become another object changes nothing. Answers are brief: of what was written only the version matters, and
//! fleets write many.

use http::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::is_not_leading;
use crate::slim::Meta;

/// What has come of a write.
#[derive(Debug)]
pub enum Outcome {
    /// It was done: the object has this version now.
    Written(u64),
    /// It was done: the object is gone.
    Gone,
    /// Nothing was done: the object is another one, or has another version by now.
    Conflict,
    /// Nothing was done: there is no such object.
    Missing,
    /// Nothing was done: the name is taken.
    NameTaken,
    /// Nothing was done: it is refused, and would be again.
    Refused(Error),
    /// Nobody knows: it may have been done.
    Unknown(Error),
}

/// Metadata alone.
type Brief = PartialObjectMeta<kube::core::DynamicObject>;
/// How to ask for that.
const BRIEF: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Writes to the objects of one kind in one namespace.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    url: String,
}

impl Writer {
    /// Writes to what this API has.
    pub fn new<K: kube::Resource>(client: &Client, api: &Api<K>) -> Self {
        Self { client: client.clone(), url: api.resource_url().to_owned() }
    }

    fn request(&self) -> kube::core::Request {
        kube::core::Request::new(&self.url)
    }

    /// Makes an object.
    pub async fn create(&self, object: Vec<u8>) -> Outcome {
        match self.send(self.request().create(&PostParams::default(), object)).await {
            Err(Error::Api(status)) if status.code == 409 => Outcome::NameTaken,
            answer => outcome(answer),
        }
    }

    /// Has the API server look at an object, with every field checked, and make none: it would drop a field that it does not
    /// know without a word.
    pub async fn try_create(&self, object: &Value) -> Result<(), Error> {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", self.url);
        let request = http::Request::post(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(object.to_string().into_bytes()).map_err(Error::HttpError)?;
        self.client.request::<Brief>(in_brief(request)).await.map(|_| ())
    }

    /// Patches an object, or a part of it such as its `status`. The patch names what it is meant for.
    pub async fn patch<P: Serialize>(&self, name: &str, part: Option<&str>, patch: &Patch<P>) -> Outcome {
        let (request, params) = (self.request(), PatchParams::default());
        outcome(
            self.send(match part {
                Some(part) => request.patch_subresource(part, name, &params, patch),
                None => request.patch(name, &params, patch),
            })
            .await,
        )
    }

    /// Writes the status of an object, at the version that was looked at. What is to be gone must be null or empty in it.
    pub async fn write_status(&self, meta: &Meta, status: &Value) -> Outcome {
        let only = json!({"uid": &*meta.uid, "resourceVersion": meta.version.to_string()});
        let whole = json!({"metadata": only, "status": status});
        self.patch(&meta.key.name, Some("status"), &Patch::Merge(whole)).await
    }

    /// What the API server would make of an object by a merge patch, if it takes it. Nothing is written.
    pub async fn try_patch(&self, name: &str, patch: &Value) -> Result<Value, Error> {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let request = self.request().patch(name, &params, &Patch::Merge(patch)).map_err(Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// Deletes an object.
    pub async fn delete(&self, name: &str, only: Option<Preconditions>) -> Outcome {
        self.delete_by(name, DeleteParams { preconditions: only, ..DeleteParams::default() }).await
    }

    /// Deletes an object, which stays until everything that it owns is gone.
    pub async fn delete_last(&self, name: &str, only: Preconditions) -> Outcome {
        self.delete_by(name, DeleteParams::foreground().preconditions(only)).await
    }

    async fn delete_by(&self, name: &str, params: DeleteParams) -> Outcome {
        let request = match self.request().delete(name, &params).map_err(Error::BuildRequest) {
            Ok(request) => in_brief(request),
            Err(error) => return outcome(Err(error)),
        };
        match self.client.request_status::<Brief>(request).await {
            Ok(answer) => answer.left().map_or(Outcome::Gone, |left| Outcome::Written(version_of(&left.metadata))),
            Err(error) => outcome(Err(error)),
        }
    }

    /// Asks for a pod to be evicted, as far as its PodDisruptionBudgets allow. A refusal of theirs has code 429.
    pub async fn evict(&self, meta: &Meta) -> Outcome {
        self.evict_with(meta, "").await
    }

    /// As [`Writer::evict`], but nothing is done.
    pub async fn try_evict(&self, meta: &Meta) -> Outcome {
        self.evict_with(meta, "?dryRun=All").await
    }

    async fn evict_with(&self, meta: &Meta, query: &str) -> Outcome {
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": &*meta.key.name, "namespace": &*meta.key.namespace},
            "deleteOptions": {"preconditions": {"uid": &*meta.uid, "resourceVersion": meta.version.to_string()}},
        });
        let request = http::Request::post(format!("{}/{}/eviction{query}", self.url, meta.key.name));
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string().into_bytes());
        let answer = match request.map_err(Error::HttpError) {
            Ok(request) => self.client.request::<Value>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(_) => Outcome::Gone,
            Err(error) => outcome(Err(error)),
        }
    }

    async fn send(&self, request: Result<http::Request<Vec<u8>>, kube::core::request::Error>) -> Result<u64, Error> {
        let request = request.map_err(Error::BuildRequest)?;
        Ok(version_of(&self.client.request::<Brief>(in_brief(request)).await?.metadata))
    }
}

impl Outcome {
    /// Whether the API server takes no such change of the object, whatever its version: a field of it is immutable.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Refused(Error::Api(status)) if status.code == 422)
    }
}

/// By which a deletion is of this very version of an object.
pub fn exactly(meta: &Meta) -> Preconditions {
    Preconditions { uid: Some(meta.uid.to_string()), resource_version: Some(meta.version.to_string()) }
}

/// What an answer means.
pub fn outcome(answer: Result<u64, Error>) -> Outcome {
    match answer {
        Ok(version) => Outcome::Written(version),
        Err(Error::Api(status)) if status.code == 409 => Outcome::Conflict,
        Err(Error::Api(status)) if status.code == 404 => Outcome::Missing,
        Err(error) if is_refusal(&error) => Outcome::Refused(error),
        Err(error) => Outcome::Unknown(error),
    }
}

/// Whether an error says for sure that nothing was done.
pub fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Api(status) => (400..500).contains(&status.code) || is_of_webhook(status),
        // It was never sent.
        Error::BuildRequest(_) => true,
        error => is_not_leading(error),
    }
}

/// Whether a webhook that could not be asked is in the way: then nothing was done, though the API server says 500.
fn is_of_webhook(status: &kube::core::Status) -> bool {
    status.code == 500 && status.message.contains("failed calling webhook")
}

/// The version of an object, as a number.
pub fn version_of(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn in_brief(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(ACCEPT, http::HeaderValue::from_static(BRIEF));
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Error {
        Error::Api(kube::core::Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn only_an_answer_says_that_nothing_was_done() {
        let is_written = |answer| matches!(outcome(answer), Outcome::Written(7));
        assert!(is_written(Ok(7)));
        assert!(matches!(outcome(Err(refused(409, ""))), Outcome::Conflict));
        assert!(matches!(outcome(Err(refused(404, ""))), Outcome::Missing));
        for error in
            [refused(403, ""), refused(422, ""), refused(429, ""), refused(500, "failed calling webhook \"a\"")]
        {
            assert!(matches!(outcome(Err(error)), Outcome::Refused(_)));
        }
        for error in
            [refused(500, "etcdserver: leader changed"), refused(504, ""), Error::LinesCodecMaxLineLengthExceeded]
        {
            assert!(matches!(outcome(Err(error)), Outcome::Unknown(_)), "it may have been done");
        }
    }
}

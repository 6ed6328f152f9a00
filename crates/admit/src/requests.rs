//! Requests to the API server about webhook configurations and certificates, and why they fail.

use dapple_control::writes::client::in_words;
use http::Method;
use kube::Client;
use serde_json::Value;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Why webhooks cannot be registered, or certificates not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("{what}: {}", in_words(error.as_ref()))]
    Refused {
        /// What was tried.
        what: String,
        /// What it said.
        error: Box<kube::Error>,
    },
    /// CRDs could not be looked at.
    #[error(transparent)]
    Install(#[from] dapple_control::install::Error),
    /// No certificate could be made.
    #[error("no certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
    /// There is a Secret that is not ours.
    #[error("{secret} is not dapple's: {remedy}")]
    Foreign {
        /// Which one.
        secret: String,
        /// What to do.
        remedy: &'static str,
    },
    /// There is a Secret that nothing can be served with, and its mending is somebody else's.
    #[error("{secret} cannot be read, or is of the future by this machine's clock: whoever leads makes it anew")]
    Unusable {
        /// Which one.
        secret: String,
    },
    /// There is nothing to register in.
    #[error("there is no {configuration}, and the manager may not make it: `dapple up --cluster` does")]
    Missing {
        /// Which one.
        configuration: String,
    },
    /// The API server would ask, and nobody answer.
    #[error(
        "Service {service} leads to no manager that is ready, so nothing is registered: make the Service, or name another \
         with --webhook-service, or give --webhook-url"
    )]
    Unreachable {
        /// Which one.
        service: String,
    },
    /// Others change it all the time.
    #[error("{configuration} could not be changed in time: others change it too")]
    Busy {
        /// What.
        configuration: &'static str,
    },
    /// A certificate cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Use(#[from] crate::serve::BadCertificate),
    /// The authorities cannot be used.
    #[error("the authorities cannot be used: {0}")]
    Trust(#[from] crate::callers::BadBundle),
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

/// What is made of a refusal.
pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let what = what.into();
    |error| Error::Refused { what, error: Box::new(error) }
}

/// Where configurations of its kind are.
pub(crate) fn path_of(configuration: &Value) -> String {
    format!("{CONFIGURATIONS}/{}s", text(&configuration["kind"]).to_lowercase())
}

/// A value that is text; else none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Sends a request for an object of any kind.
pub(crate) async fn request(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

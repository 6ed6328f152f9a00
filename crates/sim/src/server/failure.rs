//! What the server says when it refuses: `Status` objects, in the words of the real one.

use http::Response;
use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failure {
    code: u16,
    /// Empty for a refusal that no part of the API gave, such as a path that nobody serves.
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// How a list may be continued that has expired.
    proceed: Option<String>,
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) field: String,
    reason: &'static str,
    message: String,
}

impl Fault {
    fn new(field: &str, reason: &'static str, message: String) -> Self {
        Self { field: field.to_owned(), reason, message }
    }

    pub(super) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {value}: {why}"))
    }

    pub(super) fn forbidden(field: &str, why: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {why}"))
    }

    pub(super) fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new(field, "FieldValueRequired", message)
    }

    pub(super) fn wrong_type(field: &str, value: &Value, why: &str) -> Self {
        Self::new(field, "FieldValueTypeInvalid", format!("Invalid value: {value}: {why}"))
    }

    pub(super) fn unsupported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self::new(field, "FieldValueNotSupported", message)
    }

    /// Whether further checks make no sense.
    pub(super) fn is_blocking(&self) -> bool {
        self.reason != "FieldValueInvalid" && self.reason != "FieldValueForbidden"
    }

    fn words(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: String, details: Option<Value>) -> Self {
        Self { code, reason, message, details, proceed: None }
    }

    /// Nobody serves this path. Built-in groups say so themselves.
    pub(super) fn unserved(is_built_in: bool) -> Self {
        if is_built_in {
            let message = "the server could not find the requested resource".to_owned();
            return Self::new(404, "NotFound", message, Some(json!({})));
        }
        Self::new(404, "", "404 page not found\n".to_owned(), None)
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified);
        Self::new(404, "NotFound", message, Some(details(kind, name)))
    }

    pub(super) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified);
        Self::new(409, "AlreadyExists", message, Some(details(kind, name)))
    }

    /// Says so if the object that is there already is being deleted.
    pub(super) fn on_its_way_out(mut self, is_going: bool) -> Self {
        if is_going {
            self.message = format!("object is being deleted: {}", self.message);
        }
        self
    }

    /// Somebody else changed it first.
    pub(super) fn stale(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(&kind.qualified, details(kind, name), name, why)
    }

    /// A conflict about `what`, as it is called in the message.
    pub(super) fn conflict(what: &str, details: Value, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(409, "Conflict", message, Some(details))
    }

    pub(super) fn forbidden(kind: &Kind, name: &str, why: &str, cause: Option<Value>) -> Self {
        let mut about = details(kind, name);
        if let Some(cause) = cause {
            about["causes"] = json!([cause]);
        }
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", kind.qualified)
        } else {
            format!("{} {name:?} is forbidden: {why}", kind.qualified)
        };
        Self::new(403, "Forbidden", message, Some(about))
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into(), None)
    }

    /// `what` is a kind or, where the real server confuses them, a resource.
    pub(super) fn invalid(group: &str, what: &str, name: &str, faults: &[Fault]) -> Self {
        let qualified = if group.is_empty() { what.to_owned() } else { format!("{what}.{group}") };
        let mut words: Vec<String> = Vec::new();
        for said in faults.iter().map(Fault::words) {
            if !words.contains(&said) {
                words.push(said);
            }
        }
        let words = if let [only] = words.as_slice() { only.clone() } else { format!("[{}]", words.join(", ")) };
        let causes: Vec<Value> = faults
            .iter()
            .map(|fault| json!({"reason": fault.reason, "message": fault.message, "field": fault.field}))
            .collect();
        let mut about = json!({"kind": what, "causes": causes});
        if !name.is_empty() {
            about["name"] = json!(name);
        }
        if !group.is_empty() {
            about["group"] = json!(group);
        }
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {words}"), Some(about))
    }

    /// A patch that does not apply.
    pub(super) fn unprocessable(message: String) -> Self {
        Self::new(422, "Invalid", message, Some(json!({})))
    }

    pub(super) fn too_many_requests(cause: &str, retry_after: u32) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
        let mut about = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        if retry_after > 0 {
            about["retryAfterSeconds"] = json!(retry_after);
        }
        Self::new(429, "TooManyRequests", message, Some(about))
    }

    /// Custom resources say what they take.
    pub(super) fn unsupported_media_type(supported: &[&str]) -> Self {
        if supported.is_empty() {
            return Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type".to_owned(), Some(json!({})));
        }
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            supported.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message, None)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::new(405, "MethodNotAllowed", message, Some(json!({})))
    }

    /// A version that is no longer known.
    pub(super) fn expired(message: impl Into<String>, proceed: Option<String>) -> Self {
        Self { proceed, ..Self::new(410, "Expired", message.into(), None) }
    }

    /// A version that is not known yet.
    pub(super) fn too_new(asked: u64, newest: u64) -> Self {
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let about = json!({"causes": [cause], "retryAfterSeconds": 1});
        let message = format!("Too large resource version: {asked}, current: {newest}");
        Self::new(504, "Timeout", format!("Timeout: {message}"), Some(about))
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message.into(), None)
    }

    /// The `Status` object.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(proceed) = &self.proceed {
            status["metadata"]["continue"] = json!(proceed);
        }
        status
    }

    pub(super) fn response(&self) -> Response<Vec<u8>> {
        if self.code == 404 && self.reason.is_empty() {
            return respond(404, "text/plain; charset=utf-8", self.message.clone().into_bytes());
        }
        let mut response = respond(self.code, "application/json", self.status().to_string().into_bytes());
        let wait = self.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
        if let Some(seconds) = wait {
            response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// How a `Status` names an object.
pub(super) fn details(kind: &Kind, name: &str) -> Value {
    let mut details = json!({"kind": kind.plural});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}

/// A `Status` that says that all is well.
pub(super) fn success(details: Option<Value>, code: Option<u16>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if let Some(details) = details {
        status["details"] = details;
    }
    if let Some(code) = code {
        status["code"] = json!(code);
    }
    status
}

/// A response with a body.
pub(super) fn respond(code: u16, content_type: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

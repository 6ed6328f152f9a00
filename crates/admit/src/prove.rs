//! Asking the API server itself whether it would take a pod template: a dry run of a PodTemplate, with every field checked.
//! So a field that is newer than dapple is taken where the cluster knows it, and a typo is refused where it does not.

use std::time::Duration;

use dapple_api::verdict::Reason;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use serde_json::{Value, json};

/// The time for one question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How to ask for a short answer: nobody reads the template that comes back.
const BRIEF: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// What PodTemplates have before their template.
const WITHIN: &str = "template.";

/// What the API server says of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// It would take it.
    Taken,
    /// It would not.
    Refused(Vec<Complaint>),
    /// It did not say.
    Unknown(String),
}

/// What the API server does not like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// The field in the template, such as `spec.containers[0].envv`; empty if it is not known.
    pub field: String,
    /// In which way it is wrong.
    pub reason: Why,
    /// What is wrong with it.
    pub text: String,
}

/// In which way a field is wrong, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It has to be there.
    Required,
    /// There is no such field.
    Unknown,
    /// Anything else.
    Invalid,
}

impl Why {
    /// As a verdict says it.
    pub fn reason(self) -> Reason {
        match self {
            Self::Required => Reason::Required,
            Self::Unknown => Reason::Forbidden,
            Self::Invalid => Reason::Invalid,
        }
    }
}

/// Asks about one template.
pub async fn prove(client: &Client, namespace: &str, template: &Value) -> Proof {
    let body = json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"generateName": "dapple-dry-run-"},
        "template": template,
    });
    let path = format!("/api/v1/namespaces/{namespace}/podtemplates?dryRun=All&fieldValidation=Strict");
    let request = Request::post(path).header(CONTENT_TYPE, "application/json").header(ACCEPT, BRIEF);
    let request = match request.body(body.to_string().into_bytes()) {
        Ok(request) => request,
        Err(error) => return Proof::Unknown(error.to_string()),
    };
    match tokio::time::timeout(ANSWER_WITHIN, client.request::<Value>(request)).await {
        Err(_) => Proof::Unknown(format!("it did not answer within {} s", ANSWER_WITHIN.as_secs())),
        Ok(Ok(_)) => Proof::Taken,
        Ok(Err(kube::Error::Api(status))) => {
            let status = serde_json::to_value(&*status).unwrap_or_default();
            refused(&status).map_or_else(|| Proof::Unknown(message_of(&status).to_owned()), Proof::Refused)
        }
        Ok(Err(error)) => Proof::Unknown(error.to_string()),
    }
}

fn message_of(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// What is wrong with the template, if that is why it was refused.
fn refused(status: &Value) -> Option<Vec<Complaint>> {
    match status["code"].as_u64() {
        // Somebody else's webhook may refuse with the same code: that says nothing about the template.
        Some(400) if message_of(status).contains("cannot be handled as a PodTemplate") => {
            Some(undecoded(message_of(status)))
        }
        Some(422) => {
            let causes = status["details"]["causes"].as_array()?;
            let is_of_template =
                |cause: &Value| cause["field"].as_str().is_some_and(|field| field.starts_with("template"));
            causes.iter().all(is_of_template).then_some(())?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let complaint = |cause: &Value| {
                let field = text(&cause["field"]);
                let required = cause["reason"] == "FieldValueRequired";
                Complaint {
                    field: field.strip_prefix(WITHIN).map(str::to_owned).unwrap_or(field),
                    reason: if required { Why::Required } else { Why::Invalid },
                    text: text(&cause["message"]),
                }
            };
            Some(causes.iter().map(complaint).collect())
        }
        _ => None,
    }
}

/// What a refusal to decode says: fields that there are not, or of the wrong type.
fn undecoded(message: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (what, text) in [("unknown field", "there is no such field"), ("duplicate field", "it is there twice")] {
        let mut rest = message;
        while let Some((_, after)) = rest.split_once(&format!("{what} \"")) {
            let Some((field, after)) = after.split_once('"') else { break };
            let field = field.strip_prefix(WITHIN).unwrap_or(field).to_owned();
            complaints.push(Complaint { field, reason: Why::Unknown, text: text.to_owned() });
            rest = after;
        }
    }
    if complaints.is_empty() {
        let text = message.rsplit_once("cannot be handled as a PodTemplate: ").map_or(message, |(_, text)| text);
        let field = field_of(text).unwrap_or_default();
        complaints.push(Complaint { field, reason: Why::Invalid, text: text.to_owned() });
    }
    complaints
}

/// The field in a message such as `json: cannot unmarshal string into Go struct field Container.template.spec.containers.ports
/// of type ...`. Numbers of items are not in it, so it is a hint to people and no more.
fn field_of(text: &str) -> Option<String> {
    let (_, after) = text.split_once("Go struct field ")?;
    let path = after.split(' ').next()?;
    let (_, path) = path.split_once(&format!(".{WITHIN}"))?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_found_in_the_message() {
        let message = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: strict decoding error: unknown \
                       field \"template.spec.containers[0].envv\", unknown field \"template.spec.x\"";
        let found = undecoded(message);
        let fields: Vec<&str> = found.iter().map(|complaint| complaint.field.as_str()).collect();
        assert_eq!(fields, ["spec.containers[0].envv", "spec.x"]);
        assert!(found.iter().all(|complaint| complaint.reason == Why::Unknown));
    }

    #[test]
    fn causes_lose_what_is_before_the_template() {
        let status = json!({"code": 422, "message": "m", "details": {"causes": [
            {"field": "template.spec.containers[0].image", "reason": "FieldValueRequired", "message": "Required value"}]}});
        let wanted = Complaint {
            field: "spec.containers[0].image".into(),
            reason: Why::Required,
            text: "Required value".into(),
        };
        assert_eq!(refused(&status), Some(vec![wanted]));
        for other in [
            json!({"code": 403, "message": "forbidden"}),
            json!({"code": 400, "message": "admission webhook \"x\" denied the request"}),
            json!({"code": 422, "message": "m", "details": {"causes": [{"message": "denied by policy"}]}}),
        ] {
            assert_eq!(refused(&other), None, "{other}");
        }
    }

    #[test]
    fn a_wrong_type_is_told_with_its_field() {
        let found = undecoded(
            "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: json: cannot unmarshal string into Go \
             struct field PodSpec.template.spec.hostNetwork of type bool",
        );
        assert_eq!(found[0].field, "spec.hostNetwork");
    }
}

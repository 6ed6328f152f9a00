//! What the API server asks, and how it is answered.

use dapple_api::daemonset::convert;
use dapple_api::verdict::Verdict;
use serde::Deserialize;
use serde_json::{Value, json};

/// The API server cuts warnings that are longer.
const LONGEST_WARNING: usize = 256;
/// And drops those beyond this sum.
const ALL_WARNINGS: usize = 4_096;

/// Why a request cannot be answered: it is none.
#[derive(Debug, thiserror::Error)]
pub enum BadReview {
    /// It cannot be read.
    #[error("cannot read the review: {0}")]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("this is a {kind:?} of {version:?} without a request: send one of kind {expected}")]
    Other {
        /// What it is.
        kind: String,
        /// Of which version.
        version: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// What is asked about an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// To be given back.
    pub uid: String,
    /// The kind of object.
    pub kind: Kind,
    /// Its name, unless the API server is yet to make one.
    #[serde(default)]
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Who wants the API server to do it.
    #[serde(default)]
    pub user_info: User,
    /// Whether nothing is to be changed by asking.
    #[serde(default)]
    pub dry_run: bool,
    /// The object as it is to be; null for a deletion.
    #[serde(default)]
    pub object: Value,
    /// The object as it was; null for a new one.
    #[serde(default)]
    pub old_object: Value,
}

/// A user.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct User {
    /// As the API server calls it.
    #[serde(default)]
    pub username: String,
}

/// A kind.
#[derive(Debug, Clone, Deserialize)]
pub struct Kind {
    /// Its group.
    #[serde(default)]
    pub group: String,
    /// Its name.
    pub kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<R>,
}

impl<R: for<'de> Deserialize<'de>> Review<R> {
    fn read(body: &[u8], version: &str, expected: &'static str) -> Result<R, BadReview> {
        let review: Self = serde_json::from_slice(body)?;
        match review.request {
            Some(request) if review.api_version == version && review.kind == expected => Ok(request),
            _ => Err(BadReview::Other { kind: review.kind, version: review.api_version, expected }),
        }
    }
}

impl Request {
    /// Reads an AdmissionReview.
    pub fn read(body: &[u8]) -> Result<Self, BadReview> {
        let mut request: Self = Review::read(body, "admission.k8s.io/v1", "AdmissionReview")?;
        // Of each object of a collection that is deleted, only the object itself says its name.
        if let (true, Some(name)) = (request.name.is_empty(), request.old_object["metadata"]["name"].as_str()) {
            request.name = name.to_owned();
        }
        Ok(request)
    }

    /// The object as it was, if there was one.
    pub fn old(&self) -> Option<&Value> {
        Some(&self.old_object).filter(|old| !old.is_null())
    }

    /// The answer to it: what is wrong, or that nothing is, and how the object is to be changed.
    pub fn answer(&self, verdict: &Verdict, patch: &[Value]) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": verdict.is_ok()});
        if !verdict.is_ok() {
            response["status"] = self.refusal(verdict);
        } else if !patch.is_empty() {
            let text = Value::from(patch).to_string();
            response["patchType"] = "JSONPatch".into();
            response["patch"] = json!(k8s_openapi::ByteString(text.into_bytes()));
        }
        if !verdict.warnings.is_empty() {
            response["warnings"] = shortened(&verdict.warnings).into();
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    /// As the API server itself says that something is invalid, so that kubectl prints it as well.
    fn refusal(&self, verdict: &Verdict) -> Value {
        let made = self.object["metadata"]["generateName"].as_str().unwrap_or_default();
        let name = if self.name.is_empty() { made } else { &self.name };
        let all: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        let all = if let [only] = all.as_slice() { only.clone() } else { format!("[{}]", all.join(", ")) };
        let causes: Vec<Value> = verdict
            .errors
            .iter()
            .map(|error| json!({"reason": error.reason.cause(), "message": error.text, "field": error.field}))
            .collect();
        json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("{}.{} {name:?} is invalid: {all}", self.kind.kind, self.kind.group),
            "reason": "Invalid",
            "details": {"name": name, "group": self.kind.group, "kind": self.kind.kind, "causes": causes},
            "code": 422,
        })
    }
}

/// As many warnings as the API server passes on, and no longer than it takes them.
fn shortened(warnings: &[String]) -> Vec<String> {
    let mut left = ALL_WARNINGS;
    let mut kept = Vec::new();
    for warning in warnings {
        let mut text: String = warning.chars().filter(|letter| !letter.is_control()).collect();
        if text.len() > LONGEST_WARNING {
            let end = (0..=LONGEST_WARNING - 3).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push_str("...");
        }
        let Some(rest) = left.checked_sub(text.len()) else { break };
        left = rest;
        kept.push(text);
    }
    kept
}

#[derive(Deserialize)]
struct Conversion {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(default)]
    objects: Vec<Value>,
}

/// Answers a ConversionReview.
pub fn converted(body: &[u8]) -> Result<Value, BadReview> {
    let request: Conversion = Review::read(body, "apiextensions.k8s.io/v1", "ConversionReview")?;
    let names = |object: &Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("DaemonSet {}/{}", text("namespace"), text("name"))
    };
    let convert_one = |object: Value| {
        let name = names(&object);
        convert(object, &request.desired).map_err(|error| format!("{name}: {error}"))
    };
    let done: Result<Vec<Value>, String> = request.objects.into_iter().map(convert_one).collect();
    let response = match done {
        Ok(objects) => json!({"uid": request.uid, "convertedObjects": objects, "result": {"status": "Success"}}),
        Err(message) => json!({"uid": request.uid, "result": {"status": "Failure", "message": message}}),
    };
    Ok(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}))
}

#[cfg(test)]
mod tests {
    use dapple_api::kinds;
    use dapple_api::verdict::Reason;

    use super::*;

    fn request() -> Request {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "apps.kruise.io", "version": "v1beta1", "kind": "DaemonSet"},
            "operation": "CREATE", "object": {"metadata": {"generateName": "agent-"}}, "oldObject": null}});
        Request::read(review.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn all_mistakes_are_causes() {
        let mut verdict = Verdict::default();
        verdict.refuse("spec.patches", Reason::TooMany, "a DaemonSet may have 10");
        verdict.refuse("spec.selector", Reason::Forbidden, "it cannot be changed");
        let answer = request().answer(&verdict, &[]);
        let status = &answer["response"]["status"];
        assert_eq!(
            status["message"],
            "DaemonSet.apps.kruise.io \"agent-\" is invalid: [spec.patches: a DaemonSet may have 10, spec.selector: it \
             cannot be changed]"
        );
        assert_eq!(status["details"]["causes"][1]["field"], "spec.selector");
        assert_eq!(answer["response"]["allowed"], false);
    }

    #[test]
    fn warnings_are_cut_between_letters() {
        let verdict = Verdict { warnings: vec!["ä".repeat(300), "b\n".repeat(10)], ..Verdict::default() };
        let answer = request().answer(&verdict, &[]);
        let warnings: Vec<String> = serde_json::from_value(answer["response"]["warnings"].clone()).unwrap();
        assert!(warnings[0].len() <= LONGEST_WARNING && warnings[0].ends_with("..."));
        assert_eq!(warnings[1], "b".repeat(10));
        let many = Verdict { warnings: vec!["c".repeat(200); 100], ..Verdict::default() };
        let answer = request().answer(&many, &[]);
        assert_eq!(answer["response"]["warnings"].as_array().unwrap().len(), 20);
    }

    #[test]
    fn an_object_of_a_collection_has_its_name() {
        let review = |old: Value| {
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u", "kind": {"group": "apps.openyurt.io", "kind": "NodePool"}, "name": "", "operation": "DELETE",
                "object": null, "oldObject": old}})
        };
        let name = |old: Value| Request::read(review(old).to_string().as_bytes()).unwrap().name;
        assert_eq!(name(json!({"metadata": {"name": "hangzhou"}})), "hangzhou");
        assert_eq!(name(json!(null)), "");
    }

    #[test]
    fn what_is_no_review_is_named() {
        assert!(Request::read(b"{").is_err());
        let error = Request::read(br#"{"kind": "Pod", "apiVersion": "v1"}"#).unwrap_err().to_string();
        assert_eq!(error, "this is a \"Pod\" of \"v1\" without a request: send one of kind AdmissionReview");
    }

    #[test]
    fn every_version_that_is_served_is_converted_to_every_other() {
        for own in kinds::OWN.into_iter().filter(|own| own.is_converted()) {
            assert_eq!(own.at, crate::register::CONVERTED.at);
            let versions: Vec<String> =
                own.served_versions().map(|version| format!("{}/{version}", own.at.group)).collect();
            for (from, to) in versions.iter().flat_map(|from| versions.iter().map(move |to| (from, to))) {
                let object = json!({"apiVersion": from, "kind": own.at.kind, "metadata": {"name": "a"}, "spec": {}});
                let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
                    "uid": "u", "desiredAPIVersion": to, "objects": [object]}});
                let response = &converted(review.to_string().as_bytes()).unwrap()["response"];
                assert_eq!(response["result"]["status"], "Success", "{from} to {to}: {response}");
                assert_eq!(response["convertedObjects"][0]["apiVersion"], *to);
            }
        }
    }

    #[test]
    fn an_object_that_cannot_be_converted_is_named() {
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": "apps.kruise.io/v1alpha1",
            "objects": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "a"}, "spec": 1}]}});
        let answer = converted(review.to_string().as_bytes()).unwrap();
        let message = answer["response"]["result"]["message"].as_str().unwrap();
        assert!(message.starts_with("DaemonSet /a: "), "{message}");
    }
}

//! The other product's CRD: who wrote it, how its objects are stored, how to read them, and what it becomes.

use std::collections::BTreeSet;

use dapple_api::kinds;
use serde_json::{Value, json};

use super::product::Workload;
use super::{CRD, Refusal, texts};

/// The version that dapple's CRD stores.
pub const BETA: &str = kinds::DAEMON_SET.at.version;
/// The older version, which can be converted.
pub const ALPHA: &str = kinds::DAEMON_SET.other_versions[0].name;

/// What a CRD says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its UID. Objects live as long as the CRD does.
    pub uid: String,
    /// Who serves it, as far as labels, annotations and managed fields tell.
    pub served_by: Vec<String>,
    /// `status.storedVersions`.
    pub stored: Vec<String>,
    /// The service that converts between versions: namespace and name.
    pub conversion_service: Option<(String, String)>,
    /// How versions are converted, for people.
    pub conversion: String,
    /// The Helm release that lists it.
    pub helm_release: Option<String>,
}

impl Facts {
    /// Whether no object is stored in an older version.
    pub fn is_stored_only_as_v1beta1(&self) -> bool {
        self.stored == [BETA]
    }
}

/// What the CRD says.
pub fn facts(crd: &Value) -> Facts {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let metadata = &crd["metadata"];
    let annotation = |name: &str| text(&metadata["annotations"][name]);
    let helm_release = annotation("meta.helm.sh/release-name")
        .map(|name| format!("{}/{name}", annotation("meta.helm.sh/release-namespace").unwrap_or_default()));
    let mut served_by: Vec<String> = helm_release.iter().map(|release| format!("Helm release {release}")).collect();
    for label in ["app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "app.kubernetes.io/name"] {
        served_by.extend(text(&metadata["labels"][label]).map(|value| format!("label {label}={value}")));
    }
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    // Those of the status are the API server's own.
    let managers: BTreeSet<&str> = entries
        .filter(|entry| entry["subresource"] != "status")
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    if !managers.is_empty() {
        served_by.push(format!("written by {}", managers.into_iter().collect::<Vec<_>>().join(", ")));
    }
    let client = &crd["spec"]["conversion"]["webhook"]["clientConfig"];
    let conversion_service = text(&client["service"]["namespace"]).zip(text(&client["service"]["name"]));
    let conversion = match (converts(crd), &conversion_service, text(&client["url"])) {
        (false, ..) => "none".to_owned(),
        (true, Some((namespace, name)), _) => format!("by the webhook of service {namespace}/{name}"),
        (true, None, url) => format!("by the webhook at {}", url.unwrap_or_default()),
    };
    Facts {
        uid: text(&metadata["uid"]).unwrap_or_default(),
        served_by,
        stored: texts(&crd["status"]["storedVersions"]).map(str::to_owned).collect(),
        conversion_service,
        conversion,
        helm_release,
    }
}

fn converts(crd: &Value) -> bool {
    crd["spec"]["conversion"]["strategy"] == "Webhook"
}

/// That a CRD of this name stores nothing.
pub(super) fn unaccepted(name: &str, facts: &Facts) -> Option<Refusal> {
    facts.stored.is_empty().then(|| Refusal {
        object: format!("CRD {name}"),
        field: "status.storedVersions".to_owned(),
        problem: "is empty: the API server has not accepted the CRD".to_owned(),
        remedy: format!("`kubectl describe crd {name}` says why"),
    })
}

pub(super) fn refusals(facts: &Facts) -> Vec<Refusal> {
    let object = format!("CRD {CRD}");
    let field = "status.storedVersions".to_owned();
    if let Some(refusal) = unaccepted(CRD, facts) {
        return vec![refusal];
    }
    let unknown: Vec<&str> =
        facts.stored.iter().map(String::as_str).filter(|name| ![ALPHA, BETA].contains(name)).collect();
    if unknown.is_empty() {
        return Vec::new();
    }
    vec![Refusal {
        object,
        field,
        problem: format!("has {}, which dapple cannot read", unknown.join(", ")),
        remedy: format!(
            "have the other product store its objects as {BETA}, then take the version out of status.storedVersions"
        ),
    }]
}

pub(super) fn unlisted(error: &str, workloads: &[Workload]) -> Refusal {
    let start = workloads.first().map_or_else(
        || "start the other product".to_owned(),
        |workload| format!("`kubectl -n {} scale deploy {} --replicas=1`", workload.namespace, workload.name),
    );
    Refusal {
        object: format!("CRD {CRD}"),
        field: "spec.conversion".to_owned(),
        problem: format!("does not let DaemonSets be listed: {error}"),
        remedy: format!(
            "if some are stored as {ALPHA} and some as {BETA}, they can be read only while the other product converts \
             them: {start}, `kubectl get {CRD} -A -o json | kubectl replace -f -`, stop it again, and run this again"
        ),
    }
}

/// What is worth knowing of the CRD of this name and kind.
pub(super) fn notes(name: &str, kind: &str, facts: &Facts) -> Option<String> {
    let release = facts.helm_release.as_ref()?;
    Some(format!(
        "CRD {name}: the Helm release {release} lists it. `helm uninstall` would delete it with every {kind}, and \
         `helm upgrade` would overwrite it: see docs/adopt.md before you use either"
    ))
}

/// One way to read every object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The version to ask for.
    pub version: &'static str,
    /// The API server only writes this version's name on what is stored in another: what an object is, its fields tell.
    pub is_relabelled: bool,
}

/// Ways to read every object, best first: the next is tried where one gets an error, as it does when objects need the
/// webhook of a product that was stopped.
pub fn readings(crd: &Value) -> Vec<Reading> {
    let versions = crd["spec"]["versions"].as_array();
    let is_served = |name: &&str| {
        versions.into_iter().flatten().any(|version| version["name"] == **name && version["served"] == true)
    };
    let facts = facts(crd);
    let has_alpha = facts.stored.iter().any(|name| name == ALPHA);
    let is_mixed = has_alpha && facts.stored.len() > 1;
    let order = if converts(crd) || !has_alpha || is_mixed { [BETA, ALPHA] } else { [ALPHA, BETA] };
    let reading = |version| Reading { version, is_relabelled: !converts(crd) && has_alpha && version == BETA };
    order.into_iter().filter(is_served).map(reading).collect()
}

/// The CRD with dapple's spec in place of its own. It stays the same object, since its objects go with it. The label
/// that makes it dapple's is not set yet.
pub fn replaced(found: &Value, ours: &Value) -> Value {
    let mut crd = found.clone();
    crd["spec"] = ours["spec"].clone();
    // What is absent might be taken from before.
    crd["spec"]["conversion"] = json!({"strategy": "None"});
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(stored: Value, served: &[&str], strategy: &str) -> Value {
        let versions: Vec<Value> = served.iter().map(|name| json!({"name": name, "served": true})).collect();
        let service = json!({"namespace": "kruise-system", "name": "kruise-webhook-service"});
        json!({"metadata": {"uid": "u"}, "spec": {"versions": versions, "conversion": {"strategy": strategy,
            "webhook": {"clientConfig": {"service": service}}}}, "status": {"storedVersions": stored}})
    }

    #[test]
    fn who_serves_it_is_told_as_far_as_known() {
        let mut found = crd(json!(["v1beta1"]), &["v1beta1"], "Webhook");
        found["metadata"]["annotations"] =
            json!({"meta.helm.sh/release-name": "kruise", "meta.helm.sh/release-namespace": "default"});
        found["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        found["metadata"]["managedFields"] = json!([{"manager": "helm"}, {"manager": "kruise-manager"}, {"manager": "helm"},
            {"manager": "kube-apiserver", "subresource": "status"}]);
        let facts = facts(&found);
        assert_eq!(
            facts.served_by,
            [
                "Helm release default/kruise",
                "label app.kubernetes.io/managed-by=Helm",
                "written by helm, kruise-manager"
            ]
        );
        assert_eq!(facts.conversion, "by the webhook of service kruise-system/kruise-webhook-service");
        assert!(notes(CRD, "DaemonSet", &facts).unwrap().contains("helm uninstall"));
        assert_eq!(super::facts(&json!({})).served_by, Vec::<String>::new());
    }

    #[test]
    fn only_versions_that_can_be_converted_are_taken() {
        let refused = |stored: Value| refusals(&facts(&crd(stored, &[], "None")));
        assert_eq!(refused(json!(["v1alpha1", "v1beta1"])), []);
        assert_eq!(refused(json!(["v1beta1"])), []);
        assert!(refused(json!(["v1beta1", "v2"]))[0].problem.contains("has v2"));
        assert!(refused(json!([]))[0].problem.contains("is empty"));
    }

    #[test]
    fn objects_are_read_as_they_were_meant() {
        let both = ["v1alpha1", "v1beta1"];
        let read = |stored: &[&str], served: &[&str], strategy: &str| -> Vec<(&str, bool)> {
            let found = readings(&crd(json!(stored), served, strategy));
            found.into_iter().map(|reading| (reading.version, reading.is_relabelled)).collect()
        };
        assert_eq!(read(&["v1beta1"], &both, "Webhook"), [("v1beta1", false), ("v1alpha1", false)]);
        assert_eq!(read(&both, &both, "Webhook"), [("v1beta1", false), ("v1alpha1", false)]);
        assert_eq!(read(&["v1alpha1"], &["v1alpha1"], "None"), [("v1alpha1", false)], "an old OpenKruise");
        assert_eq!(read(&["v1alpha1"], &both, "None"), [("v1alpha1", false), ("v1beta1", true)]);
        assert_eq!(read(&both, &["v1beta1"], "None"), [("v1beta1", true)], "our own, half way through");
        assert_eq!(read(&["v1beta1"], &both, "None"), [("v1beta1", false), ("v1alpha1", false)]);
    }

    #[test]
    fn the_crd_stays_and_its_spec_becomes_ours() {
        let found = crd(json!(["v1alpha1"]), &["v1alpha1"], "Webhook");
        let ours = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "dapple"}}, "spec": {"group": "g"}});
        let made = replaced(&found, &ours);
        assert_eq!(made["spec"], json!({"group": "g", "conversion": {"strategy": "None"}}));
        assert_eq!((&made["metadata"], &made["status"]), (&found["metadata"], &found["status"]));
    }
}

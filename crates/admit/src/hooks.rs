//! Every webhook: what it is asked about, and what happens while nobody answers.
//!
//! | webhook | asked about | while dapple is down |
//! |---|---|---|
//! | `daemonset-patches.kruise.io` | new DaemonSets, and changes of their spec | refused: nobody would serve them, and a mistake in one reaches every node |
//! | `podmarkers.dapple.dev` and the other validators | the same of the other kinds | refused, for the same reason |
//! | `nodepool-deletion.dapple.dev` | NodePools that are deleted | deleted: nodes lose nothing by it |
//! | `daemonset-defaults.dapple.dev` | the same as the first | taken as they are: dapple knows the defaults anyway |
//!
//! Nothing else is ever asked about: no deletion but that one, no status, no change that leaves the spec as it is (such as
//! the end of a finalizer), and no DaemonSet of kube-system or of dapple's own namespace, which may have to be there
//! before dapple can run. The kinds are all our own, so no other workload of the cluster waits for us; pods and workloads
//! where somebody asks for policies are the matter of [`crate::gate`], workloads of applications in pools that of [`crate::pool`].

use dapple_api::crd::{MANAGED_BY, MANAGED_BY_LABEL};
use dapple_api::kinds::{self, KindInfo, OwnKind};
use serde_json::{Value, json};

/// The ValidatingWebhookConfiguration for DaemonSets.
pub const DAEMONSET_CONFIGURATION: &str = "daemonset-patches-validator";
/// The ValidatingWebhookConfiguration for everything else.
pub const VALIDATING_CONFIGURATION: &str = "dapple-validator";
/// The MutatingWebhookConfiguration.
pub const MUTATING_CONFIGURATION: &str = "dapple-defaults";
/// The MutatingWebhookConfiguration by which pods are put behind the gate.
pub const GATE_CONFIGURATION: &str = "dapple-group-gate";
/// The MutatingWebhookConfiguration by which stray edits of workloads in pools are put back.
pub const POOL_CONFIGURATION: &str = "dapple-pool-workloads";
/// Where versions are converted.
pub const CONVERT: &str = "/convert";

/// A webhook.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    /// The configuration that it is in.
    pub configuration: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Where it is served.
    pub path: &'static str,
    /// What it does.
    pub job: Job,
    kind: &'static OwnKind,
    operations: &'static [&'static str],
    /// What has to differ for a change to be of interest.
    concerns: &'static [&'static str],
    is_needed: bool,
    may_be_needed_first: bool,
    seconds: u8,
}

/// What a webhook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Judges an object.
    Validate,
    /// Judges a deletion.
    Delete,
    /// Fills in what an object leaves out.
    Default,
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const SPEC: &[&str] = &["spec"];

const fn validator(name: &'static str, path: &'static str, kind: &'static OwnKind) -> Hook {
    Hook {
        configuration: VALIDATING_CONFIGURATION,
        name,
        path,
        job: Job::Validate,
        kind,
        operations: WRITES,
        concerns: SPEC,
        is_needed: true,
        may_be_needed_first: false,
        seconds: 3,
    }
}

/// All of them.
pub const HOOKS: [Hook; 11] = [
    Hook {
        configuration: DAEMONSET_CONFIGURATION,
        may_be_needed_first: true,
        seconds: 5,
        ..validator("daemonset-patches.kruise.io", "/validate-daemonset-patches", &kinds::DAEMON_SET)
    },
    Hook {
        configuration: MUTATING_CONFIGURATION,
        job: Job::Default,
        is_needed: false,
        may_be_needed_first: true,
        ..validator("daemonset-defaults.dapple.dev", "/default-daemonset", &kinds::DAEMON_SET)
    },
    validator("podmarkers.dapple.dev", "/validate-podmarker", &kinds::POD_MARKER),
    validator("nodegroups.dapple.dev", "/validate-nodegroup", &kinds::NODE_GROUP),
    validator("propagationpolicies.dapple.dev", "/validate-propagationpolicy", &kinds::PROPAGATION_POLICY),
    validator("overridepolicies.dapple.dev", "/validate-overridepolicy", &kinds::OVERRIDE_POLICY),
    Hook { ..validator("nodepools.dapple.dev", "/validate-nodepool", &kinds::NODE_POOL) },
    Hook {
        job: Job::Delete,
        operations: &["DELETE"],
        is_needed: false,
        ..validator("nodepool-deletion.dapple.dev", "/delete-nodepool", &kinds::NODE_POOL)
    },
    // As for DaemonSets, the API server is asked about pods, and has time to answer.
    Hook { seconds: 5, ..validator("yurtappsets.dapple.dev", "/validate-yurtappset", &kinds::YURT_APP_SET) },
    Hook { seconds: 5, ..validator("yurtappdaemons.dapple.dev", "/validate-yurtappdaemon", &kinds::YURT_APP_DAEMON) },
    Hook {
        concerns: &["subject", "replacements"],
        ..validator("replacements.dapple.dev", "/validate-replacement", &kinds::REPLACEMENT)
    },
];

/// Where webhooks are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Through a Service.
    Service {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its port.
        port: u16,
    },
    /// Under a URL, without a path.
    Url(String),
}

impl Reach {
    /// The names that a certificate must hold.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Service { name, namespace, .. } => vec![
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}.svc.cluster.local"),
                format!("{name}.{namespace}"),
            ],
            Self::Url(url) => {
                let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                let host = host.split('/').next().unwrap_or_default();
                let host = match host.strip_prefix('[') {
                    Some(six) => six.split(']').next().unwrap_or_default(),
                    None => host.rsplit_once(':').map_or(host, |(host, _)| host),
                };
                vec![host.to_owned()]
            }
        }
    }

    /// As a `clientConfig`.
    pub fn client_config(&self, path: &str, bundle: &str) -> Value {
        let bundle = json!(k8s_openapi::ByteString(bundle.as_bytes().to_vec()));
        match self {
            Self::Service { name, namespace, port } => {
                json!({"service": {"name": name, "namespace": namespace, "path": path, "port": port}, "caBundle": bundle})
            }
            Self::Url(url) => json!({"url": format!("{}{path}", url.trim_end_matches('/')), "caBundle": bundle}),
        }
    }
}

impl Hook {
    /// The CRD of its kind.
    pub fn crd(&self) -> String {
        self.kind.crd()
    }

    /// As part of its configuration. `namespace` is dapple's own.
    fn render(&self, reach: &Reach, bundle: &str, namespace: &str) -> Value {
        let mut conditions = Vec::new();
        if self.operations == WRITES {
            let differs = |field: &&str| format!("object.?{field} != oldObject.?{field}");
            let differs: Vec<String> = self.concerns.iter().map(differs).collect();
            let expression = format!("request.operation == 'CREATE' || {}", differs.join(" || "));
            conditions.push(json!({"name": "says-something-new", "expression": expression}));
        }
        let excluded = json!({"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", namespace],
        }]});
        let mut hook = json!({
            "name": self.name,
            "clientConfig": reach.client_config(self.path, bundle),
            "rules": [{
                "apiGroups": [self.kind.at.group],
                "apiVersions": [self.kind.at.version],
                "operations": self.operations,
                "resources": [self.kind.at.plural],
                "scope": self.kind.scope(),
            }],
            "failurePolicy": if self.is_needed { "Fail" } else { "Ignore" },
            "matchPolicy": "Equivalent",
            "namespaceSelector": if self.may_be_needed_first { excluded } else { json!({}) },
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": self.seconds,
            "admissionReviewVersions": ["v1"],
            "matchConditions": conditions,
        });
        if self.job == Job::Default {
            hook["reinvocationPolicy"] = "IfNeeded".into();
        }
        hook
    }
}

/// The configurations of these hooks, each with its kind.
pub fn configurations(hooks: &[Hook], reach: &Reach, bundle: &str, namespace: &str) -> Vec<Value> {
    let names = [DAEMONSET_CONFIGURATION, VALIDATING_CONFIGURATION, MUTATING_CONFIGURATION];
    let hooks_of = |name: &str| -> Vec<Value> {
        let own = hooks.iter().filter(|hook| hook.configuration == name);
        own.map(|hook| hook.render(reach, bundle, namespace)).collect()
    };
    names.iter().map(|name| configuration(name, hooks_of(name))).collect()
}

/// A webhook that changes objects of others, and that nothing relies on: while nobody answers they are taken as they are.
pub(crate) fn ignored(name: &str, client_config: Value, rules: &Value) -> Value {
    json!({
        "name": name,
        "clientConfig": client_config,
        "rules": rules,
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 2,
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": "Never",
    })
}

/// Objects of a kind, but no part of them such as the status.
pub(crate) fn rule(kind: KindInfo, operations: &[&str]) -> Value {
    json!({"apiGroups": [kind.group], "apiVersions": [kind.version], "operations": operations,
        "resources": [kind.plural], "scope": "Namespaced"})
}

/// A configuration of dapple's with these hooks.
pub(crate) fn configuration(name: &str, hooks: Vec<Value>) -> Value {
    let mutating = [MUTATING_CONFIGURATION, GATE_CONFIGURATION, POOL_CONFIGURATION];
    let kind = if mutating.contains(&name) { "Mutating" } else { "Validating" };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "webhooks": hooks,
    })
}

/// All that may be registered. Only kinds and names matter.
pub(crate) fn registered() -> Vec<Value> {
    let mut all = configurations(&[], &Reach::Url(String::new()), "", "");
    all.extend([GATE_CONFIGURATION, POOL_CONFIGURATION].map(|name| configuration(name, Vec::new())));
    all
}

/// Whether what was found says all that is wanted; what the API server has added is no difference.
pub fn says(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| {
                let found = found.get(key).unwrap_or(&Value::Null);
                // To a selector the API server adds nothing, and what anybody else adds leaves something out.
                says(found, wanted) && (!key.ends_with("Selector") || says(wanted, found))
            })
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| says(found, wanted))
        }
        // An empty list or object is as good as none.
        (Value::Null, Value::Array(one)) | (Value::Array(one), Value::Null) => one.is_empty(),
        (Value::Null, Value::Object(one)) | (Value::Object(one), Value::Null) => one.is_empty(),
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_its_own_name_and_path() {
        let mut names: Vec<&str> = HOOKS.iter().flat_map(|hook| [hook.name, hook.path]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * HOOKS.len());
    }

    #[test]
    fn every_hook_is_asked_about_its_kind_only() {
        let crds = dapple_api::crd::crds();
        for hook in HOOKS {
            let crd = crds.iter().find(|crd| crd["metadata"]["name"] == hook.crd()).unwrap();
            let rendered = hook.render(&Reach::Url(String::new()), "", "");
            let [rule] = rendered["rules"].as_array().unwrap().as_slice() else { panic!("{rendered}") };
            let versions = crd["spec"]["versions"].as_array().unwrap();
            // Whatever is written in another version is asked about in the stored one.
            let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
            assert_eq!(rule["apiGroups"], json!([crd["spec"]["group"]]), "{}", hook.name);
            assert_eq!(rule["apiVersions"], json!([stored["name"]]), "{}", hook.name);
            assert_eq!(rule["resources"], json!([crd["spec"]["names"]["plural"]]), "{}", hook.name);
            assert_eq!(rule["scope"], crd["spec"]["scope"], "{}", hook.name);
            assert_eq!(rendered["matchPolicy"], "Equivalent", "{}", hook.name);
        }
    }

    #[test]
    fn a_certificate_holds_the_names_that_are_called() {
        let url = |url: &str| Reach::Url(url.to_owned()).names();
        assert_eq!(url("https://127.0.0.1:9443"), ["127.0.0.1"]);
        assert_eq!(url("https://[::1]:9443/base"), ["::1"]);
        assert_eq!(url("https://hooks.example"), ["hooks.example"]);
        let service = Reach::Service { name: "a".into(), namespace: "b".into(), port: 443 };
        assert!(service.names().contains(&"a.b.svc".to_owned()));
    }

    #[test]
    fn a_selector_that_selects_less_is_a_difference() {
        let nothing = json!({"objectSelector": {}});
        assert!(says(&json!({}), &nothing) && says(&nothing, &nothing));
        let narrowed = json!({"objectSelector": {"matchLabels": {"a": "b"}}});
        assert!(!says(&narrowed, &nothing));
        let wanted = json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}});
        let mut more = wanted.clone();
        assert!(says(&more, &wanted));
        more["namespaceSelector"]["matchLabels"] = json!({"a": "b"});
        assert!(!says(&more, &wanted));
    }

    #[test]
    fn what_the_api_server_adds_is_no_difference() {
        let wanted = json!({"a": 1, "list": [{"b": 2}], "none": {}});
        assert!(says(&json!({"a": 1, "more": 3, "list": [{"b": 2, "c": 3}]}), &wanted));
        for other in [json!({"a": 2, "list": [{"b": 2}]}), json!({"a": 1, "list": []}), json!({"list": [{"b": 2}]})] {
            assert!(!says(&other, &wanted), "{other}");
        }
    }
}

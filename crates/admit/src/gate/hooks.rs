//! The webhooks by which new pods are put behind the gate: which pods and workloads the API server asks about.

use std::collections::BTreeSet;

use dapple_api::kinds::{KindInfo, NATIVE, POD};
use dapple_plan::group::binding::Pair;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::hooks::{Reach, ignored, rule};

/// Where new pods are asked about.
pub const POD_PATH: &str = "/gate-pod";
/// Where workloads are asked about that ask for policies.
pub const APPLICATION_PATH: &str = "/gate-application";
/// What the name of a namespace is found by.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// All webhooks of the configuration. Pods outside these namespaces are not asked about, but for those that nothing controls
/// and that ask for a policy themselves. Workloads are of the kinds of Kubernetes, and of those that users have listed.
pub fn hooks(reach: &Reach, bundle: &str, own: &str, namespaces: &BTreeSet<String>, listed: &[KindInfo]) -> Vec<Value> {
    let within = |operator: &str, values: &BTreeSet<String>| json!({"matchExpressions": [{"key": NAMESPACE_LABEL, "operator": operator, "values": values}]});
    let never: BTreeSet<String> = ["kube-system".to_owned(), own.to_owned()].into();
    let pods = json!([rule(POD, &["CREATE"])]);
    let mut hooks = Vec::new();
    if !namespaces.is_empty() {
        let mut hook = ignored("pods.group.dapple.dev", reach.client_config(POD_PATH, bundle), &pods);
        hook["namespaceSelector"] = within("In", namespaces);
        hook["matchConditions"] = json!([{"name": "on-no-node", "expression": ON_NO_NODE}]);
        hooks.push(hook);
    }
    let elsewhere = within("NotIn", &never.union(namespaces).cloned().collect());
    let kinds = NATIVE.iter().map(|native| native.at).chain(listed.iter().copied());
    let workloads = json!(kinds.map(|kind| rule(kind, &["CREATE", "UPDATE"])).collect::<Vec<Value>>());
    for (name, asks) in asking() {
        let mut bare = ignored(&format!("{name}.pods.group.dapple.dev"), reach.client_config(POD_PATH, bundle), &pods);
        bare["namespaceSelector"] = elsewhere.clone();
        bare["objectSelector"] = asks.clone();
        bare["matchConditions"] = json!([
            {"name": "controlled-by-nothing", "expression": CONTROLLED_BY_NOTHING},
            {"name": "on-no-node", "expression": ON_NO_NODE},
        ]);
        hooks.push(bare);
        let config = reach.client_config(APPLICATION_PATH, bundle);
        let mut application = ignored(&format!("{name}.applications.group.dapple.dev"), config, &workloads);
        application["namespaceSelector"] = within("NotIn", &never);
        application["objectSelector"] = asks;
        application["sideEffects"] = "NoneOnDryRun".into();
        application["matchConditions"] = json!([{"name": "asks-anew", "expression": asks_anew()}]);
        hooks.push(application);
    }
    hooks
}

const ON_NO_NODE: &str = "object.spec.?nodeName.orValue('') == ''";
const CONTROLLED_BY_NOTHING: &str =
    "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))";

/// Selectors of what asks for a policy. There is no "or" in a selector, and what asks for both is asked about once.
fn asking() -> [(&'static str, Value); 2] {
    let [propagation, overriding] = Pair::ALL.map(Pair::required);
    let term = |key: &str, operator: &str| json!({"key": key, "operator": operator});
    let all = |terms: &[Value]| json!({"matchExpressions": terms});
    [
        ("propagation", all(&[term(propagation, "Exists")])),
        ("override", all(&[term(overriding, "Exists"), term(propagation, "DoesNotExist")])),
    ]
}

/// Whether a workload asks for a policy that it did not ask for before.
fn asks_anew() -> String {
    let differs = |pair: Pair| {
        let label = format!("metadata.?labels[?'{}']", pair.required());
        format!("object.{label} != oldObject.{label}")
    };
    format!("request.operation == 'CREATE' || {}", Pair::ALL.map(differs).join(" || "))
}

/// The namespaces that a configuration asks about.
pub fn namespaces_of(configuration: &Value) -> BTreeSet<String> {
    let hooks = configuration["webhooks"].as_array().into_iter().flatten();
    let terms = hooks.flat_map(|hook| hook["namespaceSelector"]["matchExpressions"].as_array().into_iter().flatten());
    let named = terms.filter(|term| term["key"] == NAMESPACE_LABEL && term["operator"] == "In");
    let values = named.flat_map(|term| term["values"].as_array().into_iter().flatten());
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What callers are told to trust by a configuration; nothing if it has no webhooks.
pub fn bundle_of(configuration: &Value) -> Option<String> {
    let bundle = configuration.pointer("/webhooks/0/clientConfig/caBundle")?;
    let bundle: ByteString = serde_json::from_value(bundle.clone()).ok()?;
    String::from_utf8(bundle.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_which_namespaces_it_asks_about() {
        let names: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let reach = Reach::Url("https://x".to_owned());
        let hooks = |names: &BTreeSet<String>| json!({"webhooks": hooks(&reach, "ca", "dapple-system", names, &[])});
        assert_eq!(namespaces_of(&hooks(&names)), names);
        assert_eq!(bundle_of(&hooks(&names)).as_deref(), Some("ca"));
        assert_eq!(namespaces_of(&hooks(&BTreeSet::new())), BTreeSet::new());
        assert_eq!(hooks(&BTreeSet::new())["webhooks"].as_array().unwrap().len(), 4, "no hook on all pods");
        assert_eq!(bundle_of(&json!({"webhooks": []})), None);
    }

    #[test]
    fn nothing_waits_long_for_us_and_the_clusters_own_pods_never_do() {
        let names: BTreeSet<String> = ["a".to_owned()].into();
        for hook in hooks(&Reach::Url("https://x".to_owned()), "", "dapple-system", &names, &[]) {
            assert_eq!((&hook["failurePolicy"], &hook["timeoutSeconds"]), (&json!("Ignore"), &json!(2)), "{hook}");
            let term = &hook["namespaceSelector"]["matchExpressions"][0];
            let values = term["values"].as_array().unwrap();
            let has = |name: &str| values.contains(&json!(name));
            match term["operator"].as_str().unwrap() {
                "In" => assert_eq!(values, &[json!("a")]),
                _ => assert!(has("kube-system") && has("dapple-system"), "{hook}"),
            }
        }
    }
}

//! Defaults that the CRDs state are those that the types have without an API server.

use dapple_api::crd::crds;
use dapple_api::daemonset::{DaemonSetSpec, MAX_PATCHES};
use dapple_api::pool::{NodePoolSpec, YurtAppDaemonSpec, YurtAppSetSpec};
use serde_json::{Value, json};

/// The schema of `spec` in the first version of a kind, which is the one that is served.
fn spec_schema(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd["spec"]["names"]["kind"] == kind).expect("a kind of ours");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone()
}

#[test]
fn daemon_set() {
    let (schema, spec) = (spec_schema("DaemonSet"), DaemonSetSpec::default());
    assert_eq!(schema["burstReplicas"]["default"], json!(spec.burst_replicas()));
    assert_eq!(schema["revisionHistoryLimit"]["default"], json!(spec.revision_history_limit()));
    let strategy = &schema["updateStrategy"];
    assert_eq!(strategy["default"], json!({"type": spec.update_strategy_type()}));
    assert_eq!(strategy["properties"]["type"]["default"], json!(spec.update_strategy_type()));
    let update_type = &strategy["properties"]["rollingUpdate"]["properties"]["rollingUpdateType"];
    assert_eq!(update_type["default"], json!(spec.rolling_update().rolling_update_type()));
    assert_eq!(schema["patches"]["maxItems"], json!(MAX_PATCHES));
}

#[test]
fn pools() {
    assert_eq!(spec_schema("NodePool")["type"]["default"], json!(NodePoolSpec::default().pool_type()));
    let limit = |kind| spec_schema(kind)["revisionHistoryLimit"]["default"].clone();
    assert_eq!(limit("YurtAppSet"), json!(YurtAppSetSpec::default().revision_history_limit()));
    assert_eq!(limit("YurtAppDaemon"), json!(YurtAppDaemonSpec::default().revision_history_limit()));
}

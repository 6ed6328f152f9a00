//! Webhooks with certificates of somebody else, and what they put back.

use std::path::Path;

use dapple_admit::authority::{authority, sign};
use dapple_plan::certificate::Span;
use serde_json::Value;

use crate::support::eventually;
use crate::webhooks::{Hooked, ok, set};

/// Puts a new authority and a certificate of it into a folder; the authority. `age` tells authorities apart.
fn put_files(folder: &Path, age: i64) -> String {
    let span = Span::beginning(jiff::Timestamp::now().as_second() - age, 100_000);
    let made = authority(span).unwrap();
    let signed = sign(&made.key, span, span, &["127.0.0.1".to_owned()]).unwrap();
    for (name, text) in [("tls.crt", &signed.certificate), ("tls.key", &signed.key), ("ca.crt", &made.certificate)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    made.certificate
}

/// The bundle at a path of an object.
async fn bundle(hooked: &Hooked, path: &str, pointer: &str) -> String {
    let found: Result<Value, _> = hooked.client.request(http::Request::get(path).body(Vec::new()).unwrap()).await;
    let text = found.unwrap_or_default().pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bytes: k8s_openapi::ByteString = serde_json::from_value(text.into()).unwrap();
    String::from_utf8_lossy(&bytes.0).into_owned()
}

const VALIDATOR: (&str, &str) = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/daemonset-patches-validator",
    "/webhooks/0/clientConfig/caBundle",
);
const CONVERSION: (&str, &str) = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daemonsets.apps.kruise.io",
    "/spec/conversion/webhook/clientConfig/caBundle",
);

#[tokio::test(flavor = "multi_thread")]
async fn files_may_change_and_bundles_are_put_back() {
    let hooked = Hooked::start().await;
    let folder = tempfile::tempdir().unwrap();
    let first = put_files(folder.path(), 10);
    let manager = hooked.replica_with(&["--webhook-cert-dir", folder.path().to_str().unwrap()]);
    hooked.asked().await;
    assert_eq!(bundle(&hooked, VALIDATOR.0, VALIDATOR.1).await.trim(), first.trim());
    let second = put_files(folder.path(), 0);
    for (path, pointer) in [VALIDATOR, CONVERSION] {
        eventually("both authorities are trusted", || async {
            let now = bundle(&hooked, path, pointer).await;
            if [&first, &second].iter().all(|one| now.contains(one.trim())) { Ok(()) } else { Err(now) }
        })
        .await;
    }
    // Whatever connections there were, new ones are trusted.
    drop(manager);
    let manager = hooked.replica_with(&["--webhook-cert-dir", folder.path().to_str().unwrap()]);
    hooked.asked().await;
    ok(&hooked.kubectl(&["create", "-f", "-"], &set("fine", "default", "v1beta1").to_string()));

    let spoiled = r#"[{"op": "remove", "path": "/spec/conversion/webhook/clientConfig/caBundle"}]"#;
    ok(&hooked.kubectl(&["patch", "crd/daemonsets.apps.kruise.io", "--type=json", "-p", spoiled], ""));
    eventually("what somebody took from the conversion is put back", || async {
        let now = bundle(&hooked, CONVERSION.0, CONVERSION.1).await;
        if now.contains(second.trim()) { Ok(()) } else { Err(manager.log_text()) }
    })
    .await;
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

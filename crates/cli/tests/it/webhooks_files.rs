//! Webhooks with certificates of somebody else, and what they put back.

use std::net::SocketAddr;
use std::path::Path;

use dapple_admit::authority::{authority, sign};
use dapple_plan::certificate::Span;
use dapple_testbed::trusting;
use k8s_openapi::ByteString;
use serde_json::Value;

use crate::support::{eventually, leads};
use crate::webhooks::{Hooked, ok, set};

/// Puts a new authority and a certificate of it into a folder; the authority. `age` tells authorities apart.
fn put_files(folder: &Path, age: i64) -> String {
    let span = Span::beginning(jiff::Timestamp::now().as_second() - age, 100_000);
    let made = authority(span).unwrap();
    let signed = sign(&made.key, span, span, &["127.0.0.1".to_owned()]).unwrap();
    // The authority first: whoever reads a new certificate then knows of its authority, as where all are replaced at once.
    for (name, text) in [("ca.crt", &made.certificate), ("tls.crt", &signed.certificate), ("tls.key", &signed.key)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    made.certificate
}

/// The bundle at a path of an object.
pub(crate) async fn bundle(hooked: &Hooked, path: &str, pointer: &str) -> String {
    let found: Result<Value, _> = hooked.client.request(http::Request::get(path).body(Vec::new()).unwrap()).await;
    let text = found.unwrap_or_default().pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bytes: ByteString = serde_json::from_value(text.into()).unwrap();
    String::from_utf8_lossy(&bytes.0).into_owned()
}

pub(crate) const VALIDATOR: (&str, &str) = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/daemonset-patches-validator",
    "/webhooks/0/clientConfig/caBundle",
);
const CONVERSION: (&str, &str) = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daemonsets.apps.kruise.io",
    "/spec/conversion/webhook/clientConfig/caBundle",
);

/// Whether a replica can be reached by who trusts this authority alone.
async fn is_reached(address: SocketAddr, authority: &str) -> bool {
    let client = trusting(address, &ByteString(authority.as_bytes().to_vec())).await.unwrap();
    let request = http::Request::get("/healthz").body(Vec::new()).unwrap();
    client.request_text(request).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_serves_with_what_is_not_trusted_yet() {
    let hooked = Hooked::start().await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of_second = hooked.backends[1].address;
    let copy = |from: &Path, to: &Path| {
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    };
    let first = put_files(folders[0].path(), 10);
    copy(folders[0].path(), folders[1].path());
    let start =
        |number: usize| hooked.replica_with(number, &["--webhook-cert-dir", folders[number].path().to_str().unwrap()]);
    let leader = start(0);
    leads(&hooked.client, &leader).await;
    let other = start(1);
    hooked.asked().await;
    eventually("the other one serves", || async {
        if is_reached(of_second, &first).await { Ok(()) } else { Err(other.log_text()) }
    })
    .await;

    // A kubelet brings one its files before the leader.
    let second = put_files(folders[1].path(), 0);
    eventually("it has seen them", || async {
        let said = other.log_text();
        if said.contains("it is used once that one is trusted") { Ok(()) } else { Err(said) }
    })
    .await;
    assert!(is_reached(of_second, &first).await && !is_reached(of_second, &second).await);
    copy(folders[1].path(), folders[0].path());
    for backend in hooked.backends {
        eventually("both serve with them", || async {
            if is_reached(backend.address, &second).await { Ok(()) } else { Err(leader.log_text()) }
        })
        .await;
    }
    drop((leader, other));
    hooked.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_may_change_and_bundles_are_put_back() {
    let hooked = Hooked::start().await;
    let folder = tempfile::tempdir().unwrap();
    let first = put_files(folder.path(), 10);
    let manager = hooked.replica_with(0, &["--webhook-cert-dir", folder.path().to_str().unwrap()]);
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
    let manager = hooked.replica_with(0, &["--webhook-cert-dir", folder.path().to_str().unwrap()]);
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

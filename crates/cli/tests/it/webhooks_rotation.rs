//! Certificates and replicas are replaced, and nobody notices.

use std::time::Duration;

use dapple_testbed::balancer::is_ready;
use kube::Client;
use rustix::process::Signal;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::eventually;
use crate::webhooks::{Hooked, set};
use crate::webhooks_files::{VALIDATOR, bundle};

/// Time enough for every step, also on a machine that does much else.
const LIFETIMES: [&str; 4] = ["--webhook-ca-lifetime", "40s", "--webhook-cert-lifetime", "40s"];

/// Has sets admitted one after the other until the end; how many, and what failed.
async fn admit(client: Client, ended: CancellationToken) -> (usize, Vec<String>) {
    let (mut count, mut failures) = (0, Vec::new());
    let body = set("load", "default", "v1beta1").to_string().into_bytes();
    while !ended.is_cancelled() {
        let path = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets?dryRun=All";
        let request = http::Request::post(path).header("content-type", "application/json").body(body.clone());
        let said: Result<Value, _> = client.request(request.unwrap()).await;
        failures.extend(said.err().map(|error| error.to_string()));
        count += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (count, failures)
}

/// The Secret's certificate.
fn certificate(hooked: &Hooked) -> Vec<u8> {
    let secret = ["get", "secret/dapple-webhook-certificates", "-n", "dapple-system"];
    hooked.kubectl(&[&secret[..], &["-o", "jsonpath={.data.tls\\.crt}"]].concat(), "").stdout
}

async fn ready(hooked: &Hooked, number: usize) {
    let health = hooked.backends[number].health;
    eventually("the replica is ready", || async {
        if is_ready(health).await { Ok(()) } else { Err(format!("replica {number} is not")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_that_certificates_and_replicas_are_replaced() {
    let hooked = Hooked::start().await;
    let mut replicas = [0, 1].map(|number| hooked.replica_with(number, &LIFETIMES));
    hooked.asked().await;
    ready(&hooked, 0).await;
    ready(&hooked, 1).await;
    let (first, certificate_before) = (bundle(&hooked, VALIDATOR.0, VALIDATOR.1).await, certificate(&hooked));
    let ended = CancellationToken::new();
    let admitting = tokio::spawn(admit(hooked.client.clone(), ended.clone()));
    let mut number = 0;
    // Until the authority of the beginning is trusted no more; each replica in turn, and back before the next one goes.
    while bundle(&hooked, VALIDATOR.0, VALIDATOR.1).await.contains(first.trim()) {
        replicas[number].signal(Signal::TERM);
        assert!(replicas[number].wait().success(), "{}", replicas[number].log_text());
        replicas[number] = hooked.replica_with(number, &LIFETIMES);
        ready(&hooked, number).await;
        number = 1 - number;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_ne!(certificate(&hooked), certificate_before);
    // And some more, by those who know the new authority alone.
    tokio::time::sleep(Duration::from_secs(1)).await;
    ended.cancel();
    let (count, failures) = admitting.await.unwrap();
    assert!(count > 0 && failures.is_empty(), "{} of {count} failed: {:?}", failures.len(), failures.first());
    drop(replicas);
    hooked.cluster.stop().await.unwrap();
}

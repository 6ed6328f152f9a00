//! When CRDs are looked at, against an API server that counts it.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::caches::{Caches, WatchContext};
use crate::env::{Env, SystemClock};
use crate::family::{MarkerLimits, PoolLimits, RepairLimits};
use crate::gates::Gates;
use crate::group;
use crate::metrics::Metrics;
use crate::retry::Recovery;
use crate::signal::Signal;
use crate::writes::events::Recorder;

const PART: &Part = &group::FAMILY.parts[0];

#[test]
fn what_another_product_serves_comes_with_the_way_over() {
    let crd = "daemonsets.apps.kruise.io";
    let said = CrdState::Foreign(crd.to_owned()).to_string();
    assert!(said.contains(crd) && said.ends_with(&way_over(crd)), "{said}");
}

/// An API server that lets nobody watch CRDs, and answers for a single one as it is told. A pod waits behind the gate.
struct Server {
    answer: Mutex<(u16, Value)>,
    looks: Mutex<Vec<Instant>>,
    /// Events: the name of what each is about, its reason, and what it says.
    told: Mutex<Vec<[String; 3]>>,
    /// The term in which the process leads that is served.
    leading: Signal,
}

fn refusal(code: u16) -> (u16, Value) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": "Forbidden",
        "message": "no", "metadata": {}});
    (code, status)
}

fn crd(labels: &Value) -> (u16, Value) {
    let conditions = json!([{"type": "Established", "status": "True"}]);
    let name = PART.needs[0].crd();
    (200, json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}))
}

fn ours() -> (u16, Value) {
    crd(&json!({dapple_api::crd::MANAGED_BY_LABEL: dapple_api::crd::MANAGED_BY}))
}

impl Server {
    fn new(answer: (u16, Value)) -> Arc<Self> {
        let (looks, told, leading) = (Mutex::default(), Mutex::default(), Signal::default());
        Arc::new(Self { answer: Mutex::new(answer), looks, told, leading })
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        if path == "/api/v1/pods" {
            let pod = json!({"metadata": {"name": "waits", "namespace": "here", "uid": "u"},
                "spec": {"schedulingGates": [{"name": "dapple.dev/group"}], "containers": []}});
            return (200, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]}));
        }
        if *method == Method::POST && path == "/api/v1/namespaces/here/events" {
            let event: Value = serde_json::from_slice(body).unwrap();
            let told = [&event["involvedObject"]["name"], &event["reason"], &event["message"]];
            self.told.lock().unwrap().push(told.map(|text| text.as_str().unwrap_or_default().to_owned()));
            return (201, event);
        }
        let Some(number) = PART.needs.iter().position(|kind| path.ends_with(&kind.crd())) else {
            return refusal(403);
        };
        // All that it needs are looked at together.
        if number == 0 {
            self.looks.lock().unwrap().push(Instant::now());
        }
        self.answer.lock().unwrap().clone()
    }

    /// Seconds between looks.
    fn pauses(&self) -> Vec<u64> {
        let looks = self.looks.lock().unwrap();
        looks.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect()
    }

    fn served(self: &Arc<Self>) -> Served {
        let server = self.clone();
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect_bytes().await?;
                    let (code, answer) = server.answer(&parts.method, parts.uri.path(), &body);
                    let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                    Ok::<_, tower::BoxError>(answer?)
                }
            }),
            "default",
        );
        let (env, stop, metrics) = (Env::new(SystemClock, 1), CancellationToken::new(), Arc::new(Metrics::new()));
        let (leading, recovery) = (self.leading.clone(), Recovery::default());
        let recorder =
            Arc::new(Recorder::start(client.clone(), "me".into(), env.clone(), leading.clone(), stop.clone()));
        let watches = WatchContext {
            client: client.clone(),
            namespace: Arc::from("dapple-system"),
            env: env.clone(),
            metrics: metrics.clone(),
            recorder: recorder.clone(),
            leading: leading.clone(),
            recovery: recovery.clone(),
            stop: stop.clone(),
        };
        let context = ControllerContext {
            client,
            env,
            metrics,
            recorder,
            gates: Gates::default(),
            places: Signal::default(),
            repair: RepairLimits::default(),
            pool: PoolLimits::default(),
            marker: MarkerLimits::default(),
            namespace: Arc::from("dapple-system"),
            workers: 1,
            leading,
            recovery,
            caches: Caches::new(watches),
            stop: stop.clone(),
        };
        Served::follow(PART, &context, &stop)
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_a_crd_is_looked_at_every_five_minutes() {
    let server = Server::new(crd(&json!({})));
    let served = server.served();
    let waits = tokio::time::timeout(Duration::from_secs(3_000), served.until_ours(|is_known| assert!(is_known))).await;
    assert!(waits.is_err(), "it belongs to another product");
    assert_eq!(server.pauses(), [300; 9]);

    *server.answer.lock().unwrap() = ours();
    served.until_ours(|_| {}).await;
    *server.answer.lock().unwrap() = crd(&json!({}));
    let begun = Instant::now();
    served.until_not_ours().await;
    assert_eq!(begun.elapsed().as_secs(), 300, "a family that was handed back is given up");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_say_is_asked_again_soon_and_ends_no_family() {
    let server = Server::new(refusal(500));
    let served = server.served();
    let waits = tokio::time::timeout(Duration::from_secs(95), served.until_ours(|is_known| assert!(!is_known))).await;
    assert!(waits.is_err(), "nothing is known");
    assert_eq!(server.pauses(), [10; 9]);

    let goes_on = tokio::time::timeout(Duration::from_secs(3_000), served.until_not_ours()).await;
    assert!(goes_on.is_err(), "an API server that fails has not said that the CRD is gone");
    *server.answer.lock().unwrap() = refusal(404);
    served.until_not_ours().await;
}

#[tokio::test(start_paused = true)]
async fn changes_that_come_together_are_looked_at_once() {
    let server = Server::new(crd(&json!({})));
    let served = server.served();
    let changes = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        for _ in 0..9 {
            served.changed.notify_one();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    };
    tokio::select! { () = served.until_ours(|_| {}) => panic!("it is not ours"), () = changes => {} }
    // The last of them may come after the look has begun.
    assert!(matches!(server.pauses()[..], [31] | [31, 1]), "{:?}", server.pauses());
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_family_that_is_off_is_told_why_by_the_leader() {
    let server = Server::new(refusal(404));
    let served = server.served();
    let leads = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*server.told.lock().unwrap(), Vec::<[String; 3]>::new(), "a standby leaves it to the leader");
        server.leading.set(1);
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    let off = served.until_ours(|is_known| assert!(is_known));
    tokio::select! { () = off => panic!("it is not installed"), () = leads => {} }
    let told = server.told.lock().unwrap().clone();
    let [[name, reason, text]] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((name.as_str(), reason.as_str()), ("waits", "NotServed"));
    assert!(text.contains(&CrdState::Missing(PART.needs[0].crd()).to_string()), "{text}");
}

//! The gate: new pods of workloads that ask for policies wait behind it until the leader has found their group.
//!
//! | what | where |
//! |---|---|
//! | which pods the API server asks about | [`hooks`], kept by [`registration`], namespaces by [`scope`] |
//! | whether anybody opens the gate | [`placer`] |
//! | what becomes of a pod | `dapple_plan::group::gate`, by what `dapple_control::group::Gatekeeper` knows |

pub mod hooks;
pub mod placer;
pub mod registration;
pub mod scope;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use dapple_api::verdict::Verdict;
use dapple_control::group::{Admission, Gatekeeper, Made};
use dapple_control::metrics::Metrics;
use dapple_plan::group::binding::Pair;
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;

use self::hooks::{APPLICATION_PATH, POD_PATH};
use self::placer::Placer;
use self::registration::GateRegistration;
use crate::ask::Asker;
use crate::prove::Proof;
use crate::review::{BadReview, Request};
use crate::routes::respond;

/// It is known within this time whether the API server takes an edition: a pod waits meanwhile.
const PROVED_WITHIN: Duration = Duration::from_millis(500);

/// Answers about pods and about workloads that ask for policies.
pub struct Gate {
    /// What is known of what asks for policies.
    pub gatekeeper: Arc<Gatekeeper>,
    /// Whether anybody opens it.
    pub placer: Placer,
    /// By which the API server is told to ask.
    pub registration: Arc<GateRegistration>,
    /// Who asks whether an edition is taken.
    pub asker: Arc<Asker>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
}

/// What is asked about.
#[derive(Clone, Copy)]
enum About {
    Pod,
    Application,
}

impl Gate {
    async fn answer(&self, about: About, body: &[u8]) -> Result<Value, BadReview> {
        let request = Request::read(body)?;
        Ok(match about {
            About::Pod => request.answer(&Verdict::default(), &self.pod(&request).await),
            About::Application => request.answer(&self.application(&request).await, &[]),
        })
    }

    /// How a new pod is put behind the gate, if somebody will open it: made by the edition of its group where that is known, and
    /// known to be taken.
    async fn pod(&self, request: &Request) -> Vec<Value> {
        let is_refused = |meaning: &Vec<Arc<str>>| self.asker.is_refused(meaning);
        let admitted = self.gatekeeper.admit(&request.namespace, &request.object, &is_refused).await;
        let Admission { gate, made } = admitted;
        // A pod that does not wait needs nobody.
        if !gate.is_empty() && !self.placer.is_there().await {
            return Vec::new();
        }
        let Some(Made { patch, rendering, meaning }) = made else { return gate };
        let question = [meaning];
        let asked = self.asker.ask(&question, |_| Some(rendering.clone()));
        let answers = tokio::time::timeout(PROVED_WITHIN, asked).await;
        let is_taken = answers.is_ok_and(|answers| matches!(answers.proofs.as_slice(), [(_, Proof::Taken)]));
        if is_taken { patch } else { gate }
    }

    /// A workload is about to ask for policies: its pods are to be asked about, and policies that are not there are told.
    async fn application(&self, request: &Request) -> Verdict {
        let mut verdict = Verdict::default();
        for pair in Pair::ALL {
            let Some(policy) = request.object["metadata"]["labels"][pair.required()].as_str() else { continue };
            if !self.gatekeeper.may_have_policy(pair, &request.namespace, policy) {
                let (namespace, kind) = (&request.namespace, pair.kind().kind);
                let text = format!("namespace {namespace} has no {kind} {policy:?} yet: pods wait until it is there");
                verdict.warn(&format!("metadata.labels[{}]", pair.required()), text);
            }
        }
        if !request.dry_run
            && let Err(error) = self.registration.add(&request.namespace).await
        {
            let namespace = &request.namespace;
            warn!(namespace, %error, "its pods are not asked about yet; the leader tries again");
        }
        verdict
    }
}

/// The paths.
pub fn routes(gate: Arc<Gate>) -> Router {
    let mut router = Router::new();
    for (path, name, about) in [
        (POD_PATH, "pods.group.dapple.dev", About::Pod),
        (APPLICATION_PATH, "applications.group.dapple.dev", About::Application),
    ] {
        let gate = gate.clone();
        let answer = move |body: Bytes| async move {
            let begun = Instant::now();
            let answer = gate.answer(about, &body).await;
            gate.metrics.admission(name, answer.is_ok(), begun.elapsed());
            respond(answer)
        };
        router = router.route(path, post(answer));
    }
    router
}

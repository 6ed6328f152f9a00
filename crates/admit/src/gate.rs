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

/// A pod is made by its edition, and that proved, within this time, or it comes as it is, behind the gate: the API server waits
/// two seconds at most, of which the lease may take half a one, and what is not answered by then would come without the gate.
const MADE_WITHIN: Duration = Duration::from_secs(1);

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
        let (namespace, pod) = (&request.namespace, &request.object);
        let admission = self.gatekeeper.admit(namespace, pod);
        // A pod that does not wait needs nobody.
        if !admission.gate.is_empty() && !self.placer.is_there().await {
            return Vec::new();
        }
        let question = (!request.dry_run).then_some(request.uid.as_str());
        let made = tokio::time::timeout(MADE_WITHIN, self.make(request, &admission, question)).await;
        if let Some(patch) = made.ok().flatten().filter(|patch| applies(pod, patch)) {
            return patch;
        }
        question.into_iter().for_each(|question| self.gatekeeper.withdraw(namespace, pod, question));
        // One that does not apply would have the pod refused, whatever is said of failures.
        Some(admission.gate).filter(|patch| applies(pod, patch)).unwrap_or_default()
    }

    /// A pod by the newest edition that the API server is known to take, or says that it takes.
    async fn make(&self, request: &Request, admission: &Admission, question: Option<&str>) -> Option<Vec<Value>> {
        let is_refused = |meaning: &Vec<Arc<str>>| self.asker.is_refused(meaning);
        let pod = (request.namespace.as_str(), &request.object);
        loop {
            let made = self.gatekeeper.make(pod, admission, question, &is_refused).await?;
            let Made { patch, rendering, meaning } = made;
            let answers = self.asker.ask(&[meaning], |_| Some(rendering.clone())).await;
            match answers.proofs.as_slice() {
                [(_, Proof::Taken)] => return Some(patch),
                // It is known by now: the next is made by the edition before, in place of this one.
                [(_, Proof::Refused(_))] => {
                    question.into_iter().for_each(|question| self.gatekeeper.withdraw(pod.0, pod.1, question));
                }
                _ => return None,
            }
        }
    }

    /// A workload is about to ask for policies: its pods are to be asked about, and policies that are not there, or do not apply to it,
    /// are told. It is not refused for them: where the label comes before the policy nothing could be, and it makes no difference which
    /// comes first.
    async fn application(&self, request: &Request) -> Verdict {
        let mut verdict = Verdict::default();
        for pair in Pair::ALL {
            let Some(policy) = request.object["metadata"]["labels"][pair.required()].as_str() else { continue };
            let (namespace, kind) = (&request.namespace, pair.kind().kind);
            let of_kind = (request.kind.group.as_str(), request.kind.kind.as_str());
            let field = format!("metadata.labels[{}]", pair.required());
            if !self.gatekeeper.may_have_policy(pair, namespace, policy) {
                let text = format!("namespace {namespace} has no {kind} {policy:?} yet: pods wait until it is there");
                verdict.warn(&field, text);
            } else if pair == Pair::Override
                && let Some(why) = self.gatekeeper.not_applicable((namespace, policy), of_kind, &request.object)
            {
                verdict.warn(&field, format!("{kind} {policy:?} does not apply, so pods wait: {why}"));
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

/// Whether a JSON patch can be carried out on an object.
fn applies(object: &Value, operations: &[Value]) -> bool {
    let operations: Result<json_patch::Patch, _> = serde_json::from_value(operations.into());
    operations.is_ok_and(|operations| json_patch::patch(&mut object.clone(), &operations).is_ok())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_that_cannot_be_carried_out_is_known() {
        let pod = json!({"spec": {}});
        let add = |path: &str| json!({"op": "add", "path": path, "value": 1});
        assert!(applies(&pod, &[]));
        assert!(applies(&pod, &[add("/spec/a")]));
        assert!(!applies(&pod, &[add("/spec/a"), add("/metadata/labels/a")]));
        assert!(!applies(&pod, &[json!({"op": "none"})]));
    }
}

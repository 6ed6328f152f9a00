//! What is asked at which path, and who answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dapple_api::daemonset::default_patch;
use dapple_api::group::{missing_in_override_policy, missing_in_propagation_policy};
use dapple_api::kinds::{self, Name};
use dapple_api::pool::{
    NODE_POOL_LABEL, Other, conflicts, missing_in_replacement, missing_in_yurt_app_set, validate_node_pool_deletion,
};
use dapple_api::reading::read;
use dapple_api::selector::Selector;
use dapple_api::verdict::Verdict;
use dapple_control::metrics::Metrics;
use dapple_control::pool::Blueprints;
use dapple_edit::admission;
use serde_json::Value;
use tokio::time::Instant;

use crate::ask::Asker;
use crate::daemonset::DaemonSets;
use crate::hooks::{CONVERT, HOOKS, Job};
use crate::review::{BadReview, Request, converted};
use crate::surroundings::Surroundings;
use crate::workload;

/// Whoever answers.
pub struct Judges {
    sets: DaemonSets,
    asker: Arc<Asker>,
    known: Arc<Surroundings>,
    /// What is known of applications in pools, where this process serves them.
    blueprints: Option<Arc<Blueprints>>,
    metrics: Arc<Metrics>,
}

impl Judges {
    /// `asker` asks the API server about pod templates.
    pub fn new(
        asker: Arc<Asker>,
        known: Arc<Surroundings>,
        blueprints: Option<Arc<Blueprints>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { sets: DaemonSets::new(asker.clone()), asker, known, blueprints, metrics }
    }

    /// Answers a review.
    pub async fn answer(&self, job: Job, body: &[u8]) -> Result<Value, BadReview> {
        let request = Request::read(body)?;
        Ok(match job {
            Job::Validate => request.answer(&self.validate(&request).await, &[]),
            Job::Delete => request.answer(&self.deletion(&request), &[]),
            Job::Default => request.answer(&Verdict::default(), &default_patch(&request.object)),
        })
    }

    async fn validate(&self, request: &Request) -> Verdict {
        // Of kinds that are none of ours nobody asks.
        let Some(own) = kinds::find(&request.kind.group, &request.kind.kind) else { return Verdict::default() };
        if own.name == Name::DaemonSet {
            return self.daemonset(request).await;
        }
        let mut verdict = admission::judge_change(&request.object, request.old()).unwrap_or_default();
        self.look_around(own.name, request, &mut verdict);
        if own.is_workload {
            workload::ask(&self.asker, &request.object, request.old(), &mut verdict).await;
        }
        verdict
    }

    async fn daemonset(&self, request: &Request) -> Verdict {
        let set = match read(&request.object) {
            Ok(set) => set,
            Err(error) => return Verdict::from(error),
        };
        let old = request.old().and_then(|old| read(old).ok());
        self.sets.judge(&set, old.as_ref(), |selectors| self.known.census().classes(selectors)).await
    }

    /// What only the cluster can tell.
    fn look_around(&self, kind: Name, request: &Request, verdict: &mut Verdict) {
        let has_group = |name: &str| self.known.may_have_group(name);
        let has_pool = |name: &str| self.known.may_have_pool(name);
        let object = &request.object;
        let found = match kind {
            Name::PropagationPolicy => read(object).map(|policy| missing_in_propagation_policy(&policy, has_group)),
            Name::OverridePolicy => read(object).map(|policy| missing_in_override_policy(&policy, has_group)),
            Name::YurtAppSet => read(object).map(|set| missing_in_yurt_app_set(&set, has_pool)),
            Name::Replacement => read(object).map(|replacement| {
                let others = self.known.replacements(&request.namespace);
                let others = others.iter().filter(|known| *known.meta.key.name != *request.name);
                let others = others.map(|known| Other {
                    name: &known.meta.key.name,
                    created: known.created.as_ref(),
                    subject: &known.subject,
                });
                let old = request.old().and_then(|old| read(old).ok());
                let mut verdict = conflicts(&replacement, old.as_ref(), others);
                verdict.extend(missing_in_replacement(&replacement, has_pool));
                if let Some(blueprints) = &self.blueprints {
                    verdict.extend(blueprints.judge(&request.namespace, &replacement));
                }
                verdict
            }),
            // They name no others, or are not judged here.
            Name::PodMarker | Name::NodePodProbe | Name::NodeGroup | Name::NodePool => return,
            Name::DaemonSet | Name::YurtAppDaemon => return,
        };
        if let Ok(found) = found {
            verdict.extend(found);
        }
    }

    fn deletion(&self, request: &Request) -> Verdict {
        validate_node_pool_deletion(&self.known.census().names_of(&Selector::exactly(NODE_POOL_LABEL, &request.name)))
    }
}

/// All paths.
pub fn routes(judges: Arc<Judges>) -> Router {
    let mut router = Router::new().route("/healthz", get(|| async { "ok\n" }));
    for hook in HOOKS {
        let judges = judges.clone();
        let answer = move |body: Bytes| async move {
            let begun = Instant::now();
            let answer = judges.answer(hook.job, &body).await;
            let is_allowed = answer.as_ref().is_ok_and(|answer| answer["response"]["allowed"] == true);
            judges.metrics.admission(hook.name, is_allowed, begun.elapsed());
            respond(answer)
        };
        router = router.route(hook.path, post(answer));
    }
    router.route(CONVERT, post(|body: Bytes| async move { respond(converted(&body)) }))
}

pub(crate) fn respond(answer: Result<Value, BadReview>) -> Response {
    match answer {
        Ok(answer) => ([("content-type", "application/json")], answer.to_string()).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

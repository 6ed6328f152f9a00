//! Workloads of applications in pools: what others change of what applications say is put back before it is taken.
//!
//! The API server asks about Deployments and StatefulSets that have the label of a pool and that an application controls which
//! dapple serves, and about no others. What becomes of a write is decided by `dapple_plan::pool::put_back`.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use dapple_api::kinds::{KindInfo, NATIVE_DEPLOYMENT, NATIVE_STATEFUL_SET};
use dapple_api::pool::POOL_NAME_LABEL;
use dapple_api::verdict::Verdict;
use dapple_control::manager::Shared;
use dapple_control::metrics::Metrics;
use dapple_control::pool::Blueprints;
use dapple_edit::document::Document;
use dapple_plan::pool::put_back::{PutBack, Write};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hooks::{Reach, ignored, rule};
use crate::own_name::{OwnName, learn};
use crate::review::{BadReview, Request};
use crate::routes::respond;

/// The webhook's name.
pub const NAME: &str = "workloads.pool.dapple.dev";
/// Where it is served.
pub const PATH: &str = "/put-back-workload";

/// The webhooks of the configuration, of workloads that applications of these kinds control. `own` is what the API server calls the
/// manager, if that is known: it is not asked about its own writes.
pub fn hooks(reach: &Reach, bundle: &str, owners: &[KindInfo], own: Option<&str>) -> Vec<Value> {
    if owners.is_empty() {
        return Vec::new();
    }
    let rules = [NATIVE_DEPLOYMENT.at, NATIVE_STATEFUL_SET.at].map(|kind| rule(kind, &["CREATE", "UPDATE"]));
    let is_owner = |kind: &KindInfo| {
        format!(
            "owner.apiVersion.startsWith({}) && owner.kind == {}",
            quoted(&format!("{}/", kind.group)),
            quoted(kind.kind)
        )
    };
    let is_owner = owners.iter().map(is_owner).collect::<Vec<_>>().join(" || ");
    let controlled = format!(
        "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && ({is_owner}))"
    );
    let differs = ["metadata.?labels", "metadata.?annotations", "?spec"];
    let differs = differs.map(|field| format!("object.{field} != oldObject.{field}")).join(" || ");
    let mut conditions = vec![
        json!({"name": "of-an-application", "expression": controlled}),
        json!({"name": "says-something-new", "expression": format!("request.operation == 'CREATE' || {differs}")}),
    ];
    if let Some(own) = own {
        let expression = format!("request.userInfo.username != {}", quoted(own));
        conditions.push(json!({"name": "by-another", "expression": expression}));
    }
    let mut hook = ignored(NAME, reach.client_config(PATH, bundle), &json!(rules));
    hook["namespaceSelector"] = json!({});
    hook["objectSelector"] = json!({"matchExpressions": [{"key": POOL_NAME_LABEL, "operator": "Exists"}]});
    hook["matchConditions"] = conditions.into();
    vec![hook]
}

/// A text as a string of CEL: what JSON escapes, CEL reads the same way.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Answers about writes to workloads.
pub struct Workloads {
    /// What is known of their applications.
    pub blueprints: Arc<Blueprints>,
    /// What the API server calls the manager.
    pub own: OwnName,
    /// Where to count.
    pub metrics: Arc<Metrics>,
}

impl Workloads {
    /// Subscribes to what is to be known, and asks what the manager is called.
    pub fn start(shared: &Shared, life: &CancellationToken) -> Self {
        let (blueprints, own) = (Arc::new(Blueprints::start(&shared.caches, life)), OwnName::default());
        tokio::spawn(learn(shared.plain.clone(), own.clone(), life.clone()));
        Self { blueprints, own, metrics: shared.metrics.clone() }
    }

    /// Answers a review.
    pub fn answer(&self, body: &[u8]) -> Result<Value, BadReview> {
        let request = Request::read(body)?;
        let PutBack { operations, warnings } = self.put_back(&request);
        Ok(request.answer(&Verdict { warnings, ..Verdict::default() }, &operations))
    }

    fn put_back(&self, request: &Request) -> PutBack {
        let kind = request.kind.kind.as_str();
        let kind = if kind == NATIVE_DEPLOYMENT.at.kind {
            Document::Deployment
        } else if kind == NATIVE_STATEFUL_SET.at.kind {
            Document::StatefulSet
        } else {
            return PutBack::default();
        };
        let own = self.own.get();
        if own.is_some_and(|own| *own == request.user_info.username) {
            return PutBack::default();
        }
        let write = Write { kind, old: request.old(), new: &request.object, is_by_another: own.is_some() };
        self.blueprints.put_back(&request.namespace, write)
    }
}

/// The path.
pub fn routes(workloads: Arc<Workloads>) -> Router {
    let answer = move |body: Bytes| async move {
        let begun = Instant::now();
        let answer = workloads.answer(&body);
        workloads.metrics.admission(NAME, answer.is_ok(), begun.elapsed());
        respond(answer)
    };
    Router::new().route(PATH, post(answer))
}

#[cfg(test)]
mod tests {
    use dapple_api::kinds::{YURT_APP_DAEMON, YURT_APP_SET};

    use super::*;

    #[test]
    fn only_workloads_of_applications_that_dapple_serves_are_asked_about() {
        let reach = Reach::Url("https://x".to_owned());
        assert!(hooks(&reach, "", &[], None).is_empty(), "nobody asks for nothing");
        let of_one = hooks(&reach, "ca", &[YURT_APP_SET.at], None);
        let [hook] = of_one.as_slice() else { panic!("{of_one:?}") };
        assert_eq!((&hook["failurePolicy"], &hook["timeoutSeconds"]), (&json!("Ignore"), &json!(2)));
        let resources: Vec<&Value> = hook["rules"].as_array().unwrap().iter().map(|rule| &rule["resources"]).collect();
        assert_eq!(resources, [&json!(["deployments"]), &json!(["statefulsets"])], "no subresources");
        assert_eq!(hook["objectSelector"]["matchExpressions"][0]["key"], "apps.openyurt.io/pool-name");
        let controlled = hook["matchConditions"][0]["expression"].as_str().unwrap();
        assert!(controlled.contains("owner.kind == \"YurtAppSet\"") && !controlled.contains("YurtAppDaemon"));
        assert_eq!(hook["matchConditions"].as_array().unwrap().len(), 2);
        let of_both = hooks(&reach, "ca", &[YURT_APP_SET.at, YURT_APP_DAEMON.at], Some("me"));
        assert_eq!(of_both[0]["matchConditions"][2]["expression"], "request.userInfo.username != \"me\"");
    }
}

//! What the API server calls this manager: by that its own writes are told from those of others.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::requests::request;

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const AGAIN: Duration = Duration::from_secs(5);

/// The name, once it is known.
pub type OwnName = Arc<OnceLock<String>>;

/// Asks until the API server has said it, or that it does not.
pub(crate) async fn learn(client: Client, name: OwnName, stop: CancellationToken) {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    loop {
        match request(&client, Method::POST, PATH, Some(&asked)).await {
            Ok(answer) => {
                match user_in(&answer) {
                    // It is asked once: nobody else sets it.
                    Some(user) => _ = name.set(user),
                    None => warn!("the API server does not say what it calls this manager"),
                }
                return;
            }
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                warn!(error = status.message, "the API server does not say what it calls this manager");
                return;
            }
            Err(error) => debug!(%error, "it is not known yet what the API server calls this manager"),
        }
        tokio::select! { biased; () = stop.cancelled() => return, () = tokio::time::sleep(AGAIN) => {} }
    }
}

fn user_in(answer: &Value) -> Option<String> {
    let user = answer["status"]["userInfo"]["username"].as_str()?;
    (!user.is_empty()).then(|| user.to_owned())
}

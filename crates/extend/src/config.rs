//! The configuration by which a scheduler asks.

use dapple_admit::secret::Contents;
use dapple_admit::shared::is_labelled_ours;
use dapple_control::writes::client::in_words;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use crate::{FILTER, PREEMPT, PRIORITIZE};

/// Whom a scheduler's certificate names.
const USER: &str = "kube-scheduler";

/// How much our scores count, unless told otherwise. All of Kubernetes' own plugins together give a node 1,200 at most by
/// default, and one step of our score is ten times this: so which group a pod goes to follows from our scores, and which of its
/// nodes from the plugins'.
pub const WEIGHT: u32 = 200;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("cannot read the Secret {secret}: {}", in_words(error.as_ref()))]
    Refused {
        /// Which one.
        secret: String,
        /// What it said.
        error: Box<kube::Error>,
    },
    /// There is no Secret.
    #[error(
        "there is no Secret {secret}: a manager makes it that is started with --extender-listen; give --namespace or \
         --secret if it is elsewhere"
    )]
    Missing {
        /// Which one.
        secret: String,
    },
    /// There is a Secret that is not ours, or was mangled.
    #[error(
        "the Secret {secret} has no certificates of dapple's: give --secret the name that the manager has as \
         --extender-secret, or delete it and the manager makes another"
    )]
    Unusable {
        /// Which one.
        secret: String,
    },
    /// No certificate could be made.
    #[error("no certificate can be made of the Secret {secret}: {error}; delete it, and the manager makes another")]
    Make {
        /// Which one.
        secret: String,
        /// Why.
        error: rcgen::Error,
    },
}

/// A configuration, and until when its certificates hold.
#[derive(Debug, Clone)]
pub struct Config {
    /// A KubeSchedulerConfiguration.
    pub configuration: Value,
    /// When a scheduler has to be given another.
    pub until: Timestamp,
}

/// The URL by which a scheduler reaches the Service of the extender, unless told otherwise.
#[must_use]
pub fn default_url(namespace: &str) -> String {
    format!("https://{}.{namespace}.svc", crate::SERVICE)
}

/// Makes a configuration for a scheduler that reaches the extender at `url`, with a certificate of its own: the authority is
/// in the Secret, and the certificate is kept nowhere.
pub async fn config(
    client: &Client,
    (namespace, name): (&str, &str),
    url: &str,
    weight: u32,
    now: Timestamp,
) -> Result<Config, Error> {
    let secret = format!("{namespace}/{name}");
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
    let found = found.map_err(|error| Error::Refused { secret: secret.clone(), error: Box::new(error) })?;
    let Some(found) = found else { return Err(Error::Missing { secret }) };
    let Some(contents) = Contents::read(&found).filter(|_| is_labelled_ours(&found)) else {
        return Err(Error::Unusable { secret });
    };
    let (pair, until) = contents.client(USER, now.as_second()).map_err(|error| Error::Make { secret, error })?;
    let until = Timestamp::from_second(until).unwrap_or(Timestamp::MAX);
    let data = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    let tls = json!({
        // Whatever the URL says: the certificate holds this name.
        "serverName": contents.names().first(),
        "caData": data(&contents.bundle()),
        "certData": data(&pair.certificate),
        "keyData": data(&pair.key),
    });
    let extender = json!({
        "urlPrefix": url,
        "filterVerb": FILTER,
        "prioritizeVerb": PRIORITIZE,
        "preemptVerb": PREEMPT,
        "weight": weight,
        "nodeCacheCapable": true,
        "ignorable": true,
        "httpTimeout": "1s",
        "enableHTTPS": true,
        "tlsConfig": tls,
    });
    let configuration = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [extender],
    });
    Ok(Config { configuration, until })
}

//! Kubeconfig files: one user each, with everything inside so that they can be copied.

use std::net::SocketAddr;
use std::path::Path;

use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::{
    certs::{CLUSTER, Certs},
    error::{Error, Result, io_error},
    files::write_private,
};

/// Writes a kubeconfig for the holder of the certificate `name`.
pub(crate) fn write(path: &Path, certs: &Certs, name: &str, user: &str, cluster: &str, server: &str) -> Result<()> {
    let data = |path: String| std::fs::read(&path).map(ByteString).map_err(io_error("read", path));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {
            "server": server,
            "certificate-authority-data": data(certs.cert(CLUSTER))?,
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": data(certs.cert(name))?,
            "client-key-data": data(certs.key(name))?,
        }}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    });
    let text = pretty(&config).map_err(|reason| Error::Kubeconfig { name: path.display().to_string(), reason })?;
    write_private(path, text.as_bytes())
}

/// JSON is YAML, and every reader of kubeconfigs reads it.
fn pretty(value: &Value) -> Result<String, String> {
    serde_json::to_string_pretty(value).map_err(|error| error.to_string())
}

/// A client with the rights of a kubeconfig.
pub(crate) async fn client(path: &Path) -> Result<Client> {
    let broken = |reason: String| Error::Kubeconfig { name: path.display().to_string(), reason };
    let config = Kubeconfig::read_from(path).map_err(|error| broken(error.to_string()))?;
    obedient(config).await.map_err(|error| broken(error.to_string()))
}

/// A client of one server that trusts this authority and no other, as the API server does of a webhook.
pub async fn trusting(address: SocketAddr, authority: &ByteString) -> Result<Client> {
    let server = format!("https://{address}");
    let config = json!({
        "clusters": [{"name": "one", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    });
    let broken = |reason: String| Error::Kubeconfig { name: format!("the authority of {server}"), reason };
    let config = serde_json::from_value(config).map_err(|error| broken(error.to_string()))?;
    obedient(config).await.map_err(|error| broken(error.to_string()))
}

/// A client that does as it is told: no retries of its own.
async fn obedient(config: Kubeconfig) -> Result<Client, Box<dyn std::error::Error>> {
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

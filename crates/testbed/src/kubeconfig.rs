//! Kubeconfig files: one user each, with everything inside so that they can be copied.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    certs::{CLUSTER, Certs},
    error::{Error, Result, io_error},
    files::write_private,
};

/// Writes a kubeconfig for the holder of the certificate `name`.
pub(crate) fn write(path: &Path, certs: &Certs, name: &str, user: &str, cluster: &str, server: &str) -> Result<()> {
    let data = |path: String| std::fs::read(&path).map(|bytes| base64(&bytes)).map_err(io_error("read", path));
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
    let text = pretty(&config).map_err(|reason| Error::Kubeconfig { path: path.to_owned(), reason })?;
    write_private(path, text.as_bytes())
}

/// JSON is YAML, and every reader of kubeconfigs reads it.
fn pretty(value: &Value) -> Result<String, String> {
    serde_json::to_string_pretty(value).map_err(|error| error.to_string())
}

/// A client that does as it is told: no retries of its own.
pub(crate) async fn client(path: &Path) -> Result<kube::Client> {
    let broken = |reason: String| Error::Kubeconfig { path: path.to_owned(), reason };
    let config = kube::config::Kubeconfig::read_from(path).map_err(|error| broken(error.to_string()))?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default())
        .await
        .map_err(|error| broken(error.to_string()))?;
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|error| broken(error.to_string()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_the_rfc() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}

//! Who may ask: callers that show a certificate of an authority that the operator names, or of our own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error as TlsError, RootCertStore, SignatureScheme,
};
use tracing::{info, warn};

/// How often the file is read again.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "--webhook-client-ca {path}: {why}; give a file with the certificates, in PEM, of those who sign callers' certificates"
)]
pub struct BadAuthorities {
    path: String,
    why: String,
}

/// Why certificates of authorities cannot be gone by.
#[derive(Debug, thiserror::Error)]
pub enum BadBundle {
    /// They are not PEM.
    #[error("not PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// They are not certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There are none.
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

/// Authorities of callers' certificates, from a file that is read again when it changes, or as they are told.
#[derive(Clone)]
pub struct Callers(Arc<Known>);

struct Known {
    /// The file; empty where there is none.
    path: PathBuf,
    /// The authorities as a text, and what follows from it; none while nobody is trusted.
    authorities: RwLock<(String, Option<Arc<dyn ClientCertVerifier>>)>,
}

impl Callers {
    /// Reads the file.
    pub fn of(path: PathBuf) -> Result<Self, BadAuthorities> {
        let (text, verifier) = read(&path)?;
        Ok(Self(Arc::new(Known { path, authorities: RwLock::new((text, Some(verifier))) })))
    }

    /// Nobody is trusted until it is told who is.
    pub fn nobody() -> Self {
        Self(Arc::new(Known { path: PathBuf::new(), authorities: RwLock::default() }))
    }

    /// Trusts these authorities from now on, in PEM.
    pub fn trust(&self, bundle: &str) -> Result<(), BadBundle> {
        let mut known = self.0.authorities.write().unwrap_or_else(PoisonError::into_inner);
        if known.0 != bundle {
            *known = (bundle.to_owned(), Some(verifier(bundle)?));
        }
        Ok(())
    }

    /// Reads the file again, for ever. One that cannot be used changes nothing.
    pub async fn keep(self) {
        let mut said = String::new();
        loop {
            tokio::time::sleep(READ_EVERY).await;
            match self.refresh() {
                Ok(true) => {
                    info!(path = %self.0.path.display(), "callers' certificates are judged by other authorities")
                }
                Ok(false) => said.clear(),
                Err(error) if error.to_string() == said => {}
                Err(error) => {
                    warn!(%error, "callers' certificates are judged as before");
                    said = error.to_string();
                }
            }
        }
    }

    /// Reads the file again: whether it says anything else than before.
    pub fn refresh(&self) -> Result<bool, BadAuthorities> {
        let found = read(&self.0.path)?;
        let mut known = self.0.authorities.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.0 != found.0;
        if is_new {
            *known = (found.0, Some(found.1));
        }
        Ok(is_new)
    }

    fn now(&self) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let known = self.0.authorities.read().unwrap_or_else(PoisonError::into_inner).1.clone();
        known.ok_or_else(|| TlsError::General("no authority of callers is known yet".to_owned()))
    }
}

fn read(path: &Path) -> Result<(String, Arc<dyn ClientCertVerifier>), BadAuthorities> {
    let bad = |why: String| BadAuthorities { path: path.display().to_string(), why };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let verifier = verifier(&text).map_err(|error| bad(error.to_string()))?;
    Ok((text, verifier))
}

fn verifier(bundle: &str) -> Result<Arc<dyn ClientCertVerifier>, BadBundle> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    // Who has none is told so in an answer, and may still have something converted.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), ring::default_provider().into());
    Ok(verifier.allow_unauthenticated().build()?)
}

impl fmt::Debug for Callers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Callers").field(&self.0.path).finish()
    }
}

impl ClientCertVerifier for Callers {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// No hints: whatever a caller has, it shows.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.now()?.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.now()?.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.now()?.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_flag() {
        let folder = std::env::temp_dir().join(format!("dapple-callers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in
            [("missing", None), ("empty", Some("")), ("nonsense", Some("-----BEGIN CERTIFICATE-----\n"))]
        {
            let path = folder.join(name);
            text.into_iter().for_each(|text| std::fs::write(&path, text).unwrap());
            let error = Callers::of(path.clone()).expect_err(name).to_string();
            assert!(error.contains("--webhook-client-ca") && error.contains(&*path.to_string_lossy()), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

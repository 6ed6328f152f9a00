//! Making certificates: an authority, and what it signs.

use dapple_plan::certificate::Span;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// Certificates hold a little before they are made: no two clocks are the same.
const CLOCKS_DIFFER: i64 = 300;

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// A new authority.
pub fn authority(span: Span) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(span).self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// A certificate for serving under these names, signed by the authority that was made for `of`.
pub fn sign(authority_key: &str, of: Span, span: Span, names: &[String]) -> Result<Pair, rcgen::Error> {
    signed(authority_key, of, span, ("dapple", names), ExtendedKeyUsagePurpose::ServerAuth)
}

/// A certificate for asking, in the name of a user, signed by the authority that was made for `of`.
pub fn sign_client(authority_key: &str, of: Span, span: Span, user: &str) -> Result<Pair, rcgen::Error> {
    signed(authority_key, of, span, (user, &[]), ExtendedKeyUsagePurpose::ClientAuth)
}

fn signed(
    authority_key: &str,
    of: Span,
    span: Span,
    (user, names): (&str, &[String]),
    usage: ExtendedKeyUsagePurpose,
) -> Result<Pair, rcgen::Error> {
    // The parameters of an authority follow from its span, so its certificate need not be read.
    let issuer = Issuer::new(authority_params(of), KeyPair::from_pem(authority_key)?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, user);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    set_span(&mut params, span);
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn authority_params(span: Span) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Two of them stand side by side for a while, and are told apart by name.
    params.distinguished_name.push(DnType::CommonName, format!("dapple webhooks {}", span.from));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_span(&mut params, span);
    params
}

fn set_span(params: &mut CertificateParams, span: Span) {
    let at = |second: i64| OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_before = at(span.from - CLOCKS_DIFFER);
    params.not_after = at(span.until);
}

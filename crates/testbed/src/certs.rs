//! Certificates of a cluster: made on the fly, valid for a year, thrown away with the cluster.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::{
    error::{Error, Result, io_error},
    files::{make_private_dir, write_private},
};

/// The cluster's own authority.
pub(crate) const CLUSTER: &str = "ca";
/// The authority of the aggregation layer: must be another one, or any client could pose as the front proxy.
pub(crate) const FRONT_PROXY: &str = "front-proxy-ca";

/// The folder of certificates and keys of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Certs {
    dir: PathBuf,
}

/// What a certificate is for.
pub(crate) enum Use<'a> {
    /// Serving TLS under these names and addresses.
    Server(&'a [&'a str]),
    /// Showing who one is: user and groups are in the subject.
    Client,
    /// Both, as etcd's members need.
    Both(&'a [&'a str]),
}

impl Certs {
    /// The certificates in this folder, made or to be made.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The path of a certificate.
    pub(crate) fn cert(&self, name: &str) -> String {
        self.dir.join(format!("{name}.crt")).display().to_string()
    }

    /// The path of a key.
    pub(crate) fn key(&self, name: &str) -> String {
        self.dir.join(format!("{name}.key")).display().to_string()
    }

    /// The path of a public key.
    pub(crate) fn public_key(&self, name: &str) -> String {
        self.dir.join(format!("{name}.pub")).display().to_string()
    }

    /// Makes both authorities, all certificates of the control plane and the key for service account tokens.
    pub(crate) fn make_all(&self, service_ip: &str) -> Result<()> {
        make_private_dir(&self.dir)?;
        self.make_authority(CLUSTER)?;
        self.make_authority(FRONT_PROXY)?;
        let kubernetes =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
        let mut names = vec!["localhost", "127.0.0.1", service_ip];
        names.extend(kubernetes);
        self.issue(CLUSTER, "apiserver", "kube-apiserver", &[], &Use::Server(&names))?;
        self.issue(CLUSTER, "etcd", "etcd", &[], &Use::Both(&["localhost", "127.0.0.1"]))?;
        self.issue(CLUSTER, "component", "component", &[], &Use::Server(&["localhost", "127.0.0.1"]))?;
        self.issue(CLUSTER, "kubelet-client", "kube-apiserver-kubelet-client", &["system:masters"], &Use::Client)?;
        self.issue(FRONT_PROXY, "front-proxy", "front-proxy-client", &[], &Use::Client)?;
        let key = generate("service accounts")?;
        write_private(Path::new(&self.key("service-accounts")), key.serialize_pem().as_bytes())?;
        write_private(Path::new(&self.public_key("service-accounts")), key.public_key_pem().as_bytes())
    }

    fn make_authority(&self, name: &str) -> Result<()> {
        let key = generate(name)?;
        let certificate = authority_params(name)
            .self_signed(&key)
            .map_err(|source| Error::Certificate { subject: name.into(), source })?;
        write_private(Path::new(&self.key(name)), key.serialize_pem().as_bytes())?;
        write_private(Path::new(&self.cert(name)), certificate.pem().as_bytes())
    }

    /// Signs a certificate by one of the authorities and writes it with its key as `name.crt` and `name.key`.
    pub(crate) fn issue(
        &self,
        authority: &str,
        name: &str,
        user: &str,
        groups: &[&str],
        purpose: &Use<'_>,
    ) -> Result<()> {
        let failed = |source| Error::Certificate { subject: user.to_owned(), source };
        let path = self.key(authority);
        let pem = std::fs::read_to_string(&path).map_err(io_error("read", &path))?;
        // The authority's parameters are constants, so its issuer can be had again without parsing its certificate.
        let issuer = Issuer::new(authority_params(authority), KeyPair::from_pem(&pem).map_err(failed)?);
        let (usages, names): (&[_], &[&str]) = match purpose {
            Use::Server(names) => (&[ExtendedKeyUsagePurpose::ServerAuth], names),
            Use::Client => (&[ExtendedKeyUsagePurpose::ClientAuth], &[]),
            Use::Both(names) => (&[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth], names),
        };
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = subject(user, groups);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        let key = generate(user)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        write_private(Path::new(&self.key(name)), key.serialize_pem().as_bytes())?;
        write_private(Path::new(&self.cert(name)), certificate.pem().as_bytes())
    }
}

fn generate(subject: &str) -> Result<KeyPair> {
    KeyPair::generate().map_err(|source| Error::Certificate { subject: subject.to_owned(), source })
}

/// rcgen keeps one value per attribute, so a second group goes under the same OID spelled as a custom attribute.
pub(crate) const MOST_GROUPS: usize = 2;

fn subject(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    let attributes = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (attribute, group) in attributes.into_iter().zip(groups) {
        name.push(attribute, *group);
    }
    name
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("dapple-testbed-{name}"), &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params);
    params
}

/// From yesterday, so that a clock set back a little harms nothing, to next year or the one after it.
fn set_validity(params: &mut CertificateParams) {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let yesterday = today.yesterday().unwrap_or(today);
    let (month, day) = (yesterday.month().unsigned_abs(), yesterday.day().unsigned_abs());
    params.not_before = rcgen::date_time_ymd(i32::from(yesterday.year()), month, day);
    params.not_after = rcgen::date_time_ymd(i32::from(today.year()) + 2, 1, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_what_the_control_plane_needs_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let certs = Certs::at(&dir.path().join("pki"));
        certs.make_all("10.96.0.1").unwrap();
        for name in [CLUSTER, FRONT_PROXY, "apiserver", "etcd", "component", "kubelet-client", "front-proxy"] {
            assert!(std::fs::read_to_string(certs.cert(name)).unwrap().starts_with("-----BEGIN CERTIFICATE"));
            let mode = std::fs::metadata(certs.key(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name}");
        }
    }

    #[test]
    fn two_groups_fit_in_a_subject() {
        let dir = tempfile::tempdir().unwrap();
        let certs = Certs::at(&dir.path().join("pki"));
        certs.make_all("10.96.0.1").unwrap();
        certs.issue(CLUSTER, "alice", "alice", &["dev", "ops"], &Use::Client).unwrap();
        let names: Vec<_> = subject("alice", &["dev", "ops"]).iter().map(|(_, value)| format!("{value:?}")).collect();
        assert_eq!(names.len(), 3);
    }
}

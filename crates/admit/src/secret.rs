//! The Secret that holds the authority and the certificate, for every replica to share.
//!
//! `tls.crt`, `tls.key`: what is served with. `ca.crt`: the bundle that callers trust, the newest authority last.
//! `ca.key`: the key of the newest. Everything else that has to be known is in an annotation.
//!
//! Every change is made at the version that was read: of two replicas that take the same step, one is refused.

use std::collections::BTreeMap;

use dapple_api::crd::{MANAGED_BY, MANAGED_BY_LABEL};
use dapple_plan::certificate::{Held, Lifetimes, Serving, Span, Step};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::authority::{Pair, authority, sign, sign_client};
use crate::serve::certified_key;

const NOTES: &str = "dapple.dev/certificates";
const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// What is in the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The bundle, the newest authority last.
    pub authorities: Vec<String>,
    /// The key of the newest.
    pub authority_key: String,
    /// The certificate for serving.
    pub certificate: String,
    /// Its key.
    pub key: String,
    notes: Notes,
    version: Option<String>,
}

/// What the PEM texts do not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notes {
    authority_from: i64,
    authority_until: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published: Option<i64>,
    serving_from: i64,
    serving_until: i64,
    is_of_newest: bool,
    /// The names that the certificate holds.
    #[serde(default)]
    names: Vec<String>,
}

/// A clock that is ahead by more than this was wrong: what was made by it does not hold yet.
const AHEAD: i64 = 300;

impl Contents {
    /// A new authority and a certificate, where there is nothing.
    pub fn new(names: &[String], lifetimes: Lifetimes, now: i64) -> Result<Self, rcgen::Error> {
        let span = Span::beginning(now, lifetimes.authority);
        let made = authority(span)?;
        let notes = Notes {
            authority_from: span.from,
            authority_until: span.until,
            published: None,
            serving_from: now,
            serving_until: now,
            is_of_newest: true,
            names: Vec::new(),
        };
        let mut contents = Self {
            authorities: vec![made.certificate],
            authority_key: made.key,
            certificate: String::new(),
            key: String::new(),
            notes,
            version: None,
        };
        contents.sign(names, lifetimes, now)?;
        Ok(contents)
    }

    /// Reads a Secret. Nothing if it is not one of ours, or was mangled: then everything is made anew.
    pub fn read(secret: &Secret) -> Option<Self> {
        let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
        let notes = secret.metadata.annotations.as_ref()?.get(NOTES)?;
        let authorities: Vec<String> = text("ca.crt")?
            .split_inclusive(END_OF_CERTIFICATE)
            .filter(|part| part.contains(END_OF_CERTIFICATE))
            .map(|part| format!("{}\n", part.trim()))
            .collect();
        (!authorities.is_empty()).then_some(())?;
        Some(Self {
            authorities,
            authority_key: text("ca.key")?,
            certificate: text("tls.crt")?,
            key: text("tls.key")?,
            notes: serde_json::from_str(notes).ok()?,
            version: secret.metadata.resource_version.clone(),
        })
    }

    /// As a Secret, at the version that it was read at.
    pub fn write(&self, namespace: &str, name: &str) -> Secret {
        let data = [
            ("ca.crt", self.bundle()),
            ("ca.key", self.authority_key.clone()),
            ("tls.crt", self.certificate.clone()),
            ("tls.key", self.key.clone()),
        ];
        let notes = serde_json::to_string(&self.notes).unwrap_or_default();
        Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())])),
                annotations: Some(BTreeMap::from([(NOTES.to_owned(), notes)])),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).into()),
            ..Secret::default()
        }
    }

    /// What callers are to trust.
    pub fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// Whether it was made by a clock that was ahead, so that it does not hold yet.
    pub fn is_of_the_future(&self, now: i64) -> bool {
        self.notes.authority_from.max(self.notes.serving_from) > now.saturating_add(AHEAD)
    }

    /// As deciding sees it. `is_usable` is whether the certificate can be served with, and holds these names.
    pub fn held(&self, is_usable: bool, names: &[String]) -> Held {
        let notes = &self.notes;
        let is_usable = is_usable && notes.names == names;
        let serving = Serving {
            span: Span { from: notes.serving_from, until: notes.serving_until },
            is_of_newest: notes.is_of_newest,
        };
        // One whose key is lost can sign nothing, and is as good as ended.
        let can_sign = self.authorities.last().is_some_and(|it| certified_key(it, &self.authority_key).is_ok());
        let Span { from, until } = self.authority_span();
        Held {
            authority: Span { from, until: if can_sign { until } else { from } },
            published: notes.published,
            has_older: self.authorities.len() > 1,
            serving: is_usable.then_some(serving),
        }
    }

    /// Takes a step. False if there is nothing to write.
    pub fn take(&mut self, step: Step, names: &[String], lifetimes: Lifetimes, now: i64) -> Result<bool, rcgen::Error> {
        match step {
            Step::Rest => return Ok(false),
            Step::AddAuthority => {
                let span = Span::beginning(now, lifetimes.authority);
                let made = authority(span)?;
                self.authorities.drain(..self.authorities.len() - 1);
                self.authorities.push(made.certificate);
                self.authority_key = made.key;
                (self.notes.authority_from, self.notes.authority_until) = (span.from, span.until);
                (self.notes.published, self.notes.is_of_newest) = (None, false);
            }
            Step::NotePublished => self.notes.published = Some(now),
            Step::Sign => self.sign(names, lifetimes, now)?,
            Step::DropOlder => _ = self.authorities.drain(..self.authorities.len() - 1),
        }
        Ok(true)
    }

    fn sign(&mut self, names: &[String], lifetimes: Lifetimes, now: i64) -> Result<(), rcgen::Error> {
        let of = self.authority_span();
        let span = Span { from: now, until: now.saturating_add(lifetimes.serving).min(of.until) };
        let pair = sign(&self.authority_key, of, span, names)?;
        (self.certificate, self.key) = (pair.certificate, pair.key);
        (self.notes.serving_from, self.notes.serving_until) = (span.from, span.until);
        (self.notes.is_of_newest, self.notes.names) = (true, names.to_vec());
        Ok(())
    }

    /// A certificate for asking, in the name of a user, of the newest authority and for as long as that one lasts; and when
    /// that ends.
    pub fn client(&self, user: &str, now: i64) -> Result<(Pair, i64), rcgen::Error> {
        let of = self.authority_span();
        let pair = sign_client(&self.authority_key, of, Span { from: now, until: of.until }, user)?;
        Ok((pair, of.until))
    }

    /// The names that the certificate for serving holds.
    pub fn names(&self) -> &[String] {
        &self.notes.names
    }

    /// From when until when the newest authority holds.
    pub fn authority_span(&self) -> Span {
        Span { from: self.notes.authority_from, until: self.notes.authority_until }
    }
}

#[cfg(test)]
mod tests {
    use dapple_plan::certificate::next;

    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes { authority: 1_000_000, serving: 300_000 };

    fn names() -> Vec<String> {
        vec!["dapple-webhook.dapple-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    #[test]
    fn what_is_written_is_read() {
        let contents = Contents::new(&names(), LIFETIMES, 1_700_000_000).unwrap();
        let secret = contents.write("dapple-system", "dapple-webhook");
        assert_eq!(Contents::read(&secret), Some(contents.clone()));
        assert_eq!(contents.authorities.len(), 1);
        assert!(contents.held(true, &names()).serving.is_some_and(|serving| serving.is_of_newest));
        assert_eq!(contents.held(true, &["other".to_owned()]).serving, None, "callers come by another name");
        assert!(contents.is_of_the_future(1_600_000_000) && !contents.is_of_the_future(1_700_000_000));
    }

    #[test]
    fn an_authority_joins_and_the_older_one_leaves() {
        let mut contents = Contents::new(&names(), LIFETIMES, 1_700_000_000).unwrap();
        let (first, served) = (contents.authorities[0].clone(), contents.certificate.clone());
        assert!(contents.take(Step::AddAuthority, &names(), LIFETIMES, 1_700_700_000).unwrap());
        assert_eq!((contents.authorities.len(), &contents.authorities[0]), (2, &first));
        assert_eq!(contents.certificate, served, "callers do not know the new authority yet");
        assert!(contents.held(true, &names()).serving.is_some_and(|serving| !serving.is_of_newest));
        let secret = contents.write("a", "b");
        assert_eq!(Contents::read(&secret).as_ref(), Some(&contents), "two authorities are read as two");
        assert!(contents.take(Step::Sign, &names(), LIFETIMES, 1_700_700_100).unwrap());
        assert_ne!(contents.certificate, served);
        assert!(contents.take(Step::DropOlder, &names(), LIFETIMES, 1_700_700_200).unwrap());
        assert!(contents.authorities.len() == 1 && contents.authorities[0] != first);
    }

    #[test]
    fn an_authority_whose_key_is_lost_is_replaced() {
        let (now, names) = (1_700_000_000, names());
        let mut contents = Contents::new(&names, LIFETIMES, now).unwrap();
        assert!(contents.take(Step::NotePublished, &names, LIFETIMES, now).unwrap());
        assert_eq!(next(&contents.held(true, &names), true, LIFETIMES, now), Step::Rest);
        let first = contents.authorities.clone();
        contents.authority_key = Contents::new(&names, LIFETIMES, now).unwrap().authority_key;
        assert_eq!(next(&contents.held(true, &names), true, LIFETIMES, now), Step::AddAuthority);
        assert!(contents.take(Step::AddAuthority, &names, LIFETIMES, now).unwrap());
        assert_eq!(contents.authorities[..1], first, "what is served with is trusted until there is another");
        assert_eq!(next(&contents.held(true, &names), true, LIFETIMES, now), Step::NotePublished);
    }

    #[test]
    fn what_was_mangled_is_not_read() {
        let mut secret = Contents::new(&names(), LIFETIMES, 1_700_000_000).unwrap().write("a", "b");
        secret.data.as_mut().unwrap().insert("ca.crt".into(), ByteString(b"nothing".to_vec()));
        assert_eq!(Contents::read(&secret), None);
    }
}

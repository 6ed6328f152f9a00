//! Certificates of a port whose callers are told by a person whom to trust, and not by us: kept in a Secret that all replicas
//! share, renewed by whoever leads. Callers show certificates of the same authority.
//!
//! The steps of a renewal are those of [`dapple_plan::certificate`]. That a new authority is there, a person has to take note
//! of, so it waits for longer before a certificate of it is used.

use std::time::Duration;

use dapple_api::crd::{MANAGED_BY, MANAGED_BY_LABEL};
use dapple_control::env::Env;
use dapple_control::signal::Signal;
use dapple_control::writes::client::in_words;
use dapple_plan::certificate::{Lifetimes, Step, next};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::callers::{BadBundle, Callers};
use crate::secret::Contents;
use crate::serve::{BadCertificate, Identity, certified_key};

/// How often to look.
const EVERY: Duration = Duration::from_secs(5);
/// How long a new authority is there before it is used: time to tell callers of it. A certificate for serving has more than
/// that left when one is made.
const NOTICE: i64 = 20 * 86_400;

/// How long certificates last. A person has to do something when an authority ends: that is not to be often.
pub const LIFETIMES: Lifetimes = Lifetimes { authority: 3_650 * 86_400, serving: 90 * 86_400 };

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("{what}: {}", in_words(error.as_ref()))]
    Refused {
        /// What was tried.
        what: String,
        /// What it said.
        error: Box<kube::Error>,
    },
    /// None could be made.
    #[error("no certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
    /// There is a Secret that is not ours.
    #[error("{secret} is not dapple's: give {flag} another name")]
    Foreign {
        /// Which one.
        secret: String,
        /// The flag that names it.
        flag: &'static str,
    },
    /// There is a Secret that nothing can be served with, and its mending is somebody else's.
    #[error("{secret} cannot be read, or is of the future by this machine's clock: whoever leads makes it anew")]
    Unusable {
        /// Which one.
        secret: String,
    },
    /// The certificate cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Use(#[from] BadCertificate),
    /// The authorities cannot be used.
    #[error("the authorities cannot be used: {0}")]
    Trust(#[from] BadBundle),
}

/// Certificates of one port.
pub struct Certificates {
    /// For what every replica may do.
    pub plain: Client,
    /// For what only the leader may do.
    pub guarded: Client,
    /// The term in which this process leads.
    pub leading: Signal,
    /// dapple's namespace.
    pub namespace: String,
    /// The Secret in it.
    pub secret: String,
    /// The flag that names it.
    pub flag: &'static str,
    /// What tells callers whom to trust.
    pub remedy: &'static str,
    /// The names that callers know the port by.
    pub names: Vec<String>,
    /// Wall time.
    pub env: Env,
    /// What is served with.
    pub identity: Identity,
    /// Who may ask.
    pub callers: Callers,
    /// The last good certificates, should somebody delete or mangle the Secret.
    pub known: Mutex<Option<Contents>>,
}

impl Certificates {
    /// Keeps them until stopped.
    pub async fn keep(&self, stop: &CancellationToken) {
        let mut said = String::new();
        while !stop.is_cancelled() {
            let done = tokio::select! { biased; () = stop.cancelled() => return, done = self.look() => done };
            let text = match done {
                Ok(None) => String::new(),
                Ok(Some(notice)) => notice,
                Err(error) => format!("{error}; trying again"),
            };
            if !text.is_empty() && text != said {
                warn!(secret = self.secret, "{text}");
            }
            said = text;
            tokio::select! { biased; () = stop.cancelled() => return, () = tokio::time::sleep(EVERY) => {} }
        }
    }

    /// Serves with what is there, and renews it if this process leads. Returns what a person has to know.
    async fn look(&self) -> Result<Option<String>, Error> {
        let contents = self.shared().await?;
        self.callers.trust(&contents.bundle())?;
        self.identity.set(&contents.certificate, &contents.key)?;
        if self.leading.get() != 0 {
            self.renew(contents.clone()).await?;
        }
        let since = contents.authority_span().from;
        let is_replaced = contents.authorities.len() > 1;
        Ok(is_replaced.then(|| {
            let days = (since.saturating_add(NOTICE).saturating_sub(self.env.now().as_second()) / 86_400).max(0);
            format!("there is another authority, used in {days} days: {} before that", self.remedy)
        }))
    }

    fn secrets(&self, client: &Client) -> Api<Secret> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    fn refused(&self, error: kube::Error) -> Error {
        Error::Refused { what: self.what(), error: Box::new(error) }
    }

    fn what(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.secret)
    }

    /// The Secret's contents: of several replicas that find none, the first makes them.
    async fn shared(&self) -> Result<Contents, Error> {
        let secrets = self.secrets(&self.plain);
        let found = secrets.get_opt(&self.secret).await.map_err(|error| self.refused(error))?;
        if found.as_ref().is_some_and(|found| !is_ours(found)) {
            return Err(Error::Foreign { secret: self.what(), flag: self.flag });
        }
        let now = self.env.now().as_second();
        let is_good = |contents: &Contents| !contents.is_of_the_future(now);
        let mut known = self.known.lock().await;
        if let Some(contents) = found.as_ref().and_then(Contents::read).filter(is_good) {
            *known = Some(contents.clone());
            return Ok(contents);
        }
        // What callers trust already is better than anything new, and what is new is the leader's to decide wherever there is
        // something: this replica's clock may be the one that is wrong.
        let made = match known.clone().filter(is_good) {
            Some(known) => known,
            None if found.is_some() && self.leading.get() == 0 => return Err(Error::Unusable { secret: self.what() }),
            None => Contents::new(&self.names, LIFETIMES, now)?,
        };
        let mut wanted = made.write(&self.namespace, &self.secret);
        wanted.metadata.resource_version = None;
        let written = match found {
            None => secrets.create(&PostParams::default(), &wanted).await,
            Some(mangled) => {
                wanted.metadata.resource_version = mangled.metadata.resource_version;
                secrets.replace(&self.secret, &PostParams::default(), &wanted).await
            }
        };
        let written = match written {
            Err(kube::Error::Api(status)) if status.code == 409 => secrets.get(&self.secret).await,
            written => written,
        };
        info!(secret = self.secret, "certificates are put there");
        let contents = Contents::read(&written.map_err(|error| self.refused(error))?).unwrap_or(made);
        *known = Some(contents.clone());
        Ok(contents)
    }

    /// Takes the next step of a renewal, if there is one.
    async fn renew(&self, mut contents: Contents) -> Result<(), Error> {
        let now = self.env.now().as_second();
        let step = step(&contents, &self.names, now);
        if !contents.take(step, &self.names, LIFETIMES, now)? {
            return Ok(());
        }
        let wanted = contents.write(&self.namespace, &self.secret);
        match self.secrets(&self.guarded).replace(&self.secret, &PostParams::default(), &wanted).await {
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            written => {
                written.map_err(|error| self.refused(error))?;
                info!(secret = self.secret, ?step, "certificates");
                Ok(())
            }
        }
    }
}

/// The next step of a renewal. A person is told of a new authority by a line in the log, and has time to tell callers.
fn step(contents: &Contents, names: &[String], now: i64) -> Step {
    let is_usable = certified_key(&contents.certificate, &contents.key).is_ok();
    let is_told = contents.authorities.len() == 1 || now.saturating_sub(contents.authority_span().from) >= NOTICE;
    next(&contents.held(is_usable, names), is_told, LIFETIMES, now)
}

/// Whether a Secret is dapple's.
pub fn is_ours(secret: &Secret) -> bool {
    secret.labels().get(MANAGED_BY_LABEL).is_some_and(|by| by == MANAGED_BY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_authority_is_used_once_people_had_time_to_tell_callers_and_before_anything_ends() {
        const DAY: i64 = 86_400;
        let (names, begun) = (vec!["dapple-extender.dapple-system.svc".to_owned()], 1_800_000_000);
        let mut contents = Contents::new(&names, LIFETIMES, begun).unwrap();
        let (mut added, mut used, mut dropped) = (None, None, None);
        let mut now = begun;
        while now < begun + LIFETIMES.authority && dropped.is_none() {
            let step = step(&contents, &names, now);
            match step {
                Step::AddAuthority => added = Some(now),
                Step::Sign if added.is_some() => used = Some(now),
                Step::DropOlder => dropped = Some(now),
                Step::Rest | Step::NotePublished | Step::Sign => {}
            }
            contents.take(step, &names, LIFETIMES, now).unwrap();
            let serving = contents.held(true, &names).serving.unwrap();
            assert!(serving.span.until > now, "on day {} nobody can be served", (now - begun) / DAY);
            now += DAY / 4;
        }
        let (added, used, dropped) = (added.unwrap(), used.unwrap(), dropped.unwrap());
        assert!((added - begun) / DAY >= 2_400, "an authority lasts for years");
        assert!((20..22).contains(&((used - added) / DAY)), "{} days", (used - added) / DAY);
        assert!(dropped > used && contents.authorities.len() == 1);
    }
}

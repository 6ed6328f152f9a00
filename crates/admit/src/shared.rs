//! Certificates in a Secret that all replicas share: of several that find none, the first makes them, and whoever leads renews
//! them.

use dapple_api::crd::{MANAGED_BY, MANAGED_BY_LABEL};
use dapple_control::env::Env;
use dapple_control::signal::Signal;
use dapple_plan::certificate::{Lifetimes, Step, next};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::requests::{Error, refused};
use crate::secret::Contents;
use crate::serve::certified_key;

/// Whether an object that was read as its type is dapple's.
pub fn is_labelled_ours(object: &impl ResourceExt) -> bool {
    object.labels().get(MANAGED_BY_LABEL).is_some_and(|by| by == MANAGED_BY)
}

/// A Secret with certificates.
pub struct SharedSecret {
    /// For what every replica may do.
    pub plain: Client,
    /// For what only the leader may do.
    pub guarded: Client,
    /// The term in which this process leads.
    pub leading: Signal,
    /// dapple's namespace.
    pub namespace: String,
    /// The Secret in it.
    pub name: String,
    /// What to do where it is somebody else's.
    pub remedy: &'static str,
    /// The names that callers know the port by.
    pub names: Vec<String>,
    /// How long certificates last.
    pub lifetimes: Lifetimes,
    /// Wall time.
    pub env: Env,
    /// The last good certificates, should somebody delete or mangle the Secret.
    pub known: Mutex<Option<Contents>>,
}

impl SharedSecret {
    fn secrets(&self, client: &Client) -> Api<Secret> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    fn what(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.name)
    }

    /// The certificates.
    pub async fn load(&self) -> Result<Contents, Error> {
        let secrets = self.secrets(&self.plain);
        let found = secrets.get_opt(&self.name).await.map_err(refused(self.what()))?;
        if found.as_ref().is_some_and(|found| !is_labelled_ours(found)) {
            return Err(Error::Foreign { secret: self.what(), remedy: self.remedy });
        }
        let now = self.env.now().as_second();
        let is_good = |contents: &Contents| !contents.is_of_the_future(now);
        let mut known = self.known.lock().await;
        if let Some(contents) = found.as_ref().and_then(Contents::read).filter(is_good) {
            *known = Some(contents.clone());
            return Ok(contents);
        }
        // What callers trust already is better than anything new, and what is new is the leader's to decide wherever
        // there is something: this replica's clock may be the one that is wrong.
        let made = match known.clone().filter(is_good) {
            Some(known) => known,
            None if found.is_some() && self.leading.get() == 0 => return Err(Error::Unusable { secret: self.what() }),
            None => Contents::new(&self.names, self.lifetimes, now)?,
        };
        let mut wanted = made.write(&self.namespace, &self.name);
        wanted.metadata.resource_version = None;
        let written = match found {
            None => secrets.create(&PostParams::default(), &wanted).await,
            Some(mangled) => {
                warn!(secret = self.name, "it cannot be read, and is made anew");
                wanted.metadata.resource_version = mangled.metadata.resource_version;
                secrets.replace(&self.name, &PostParams::default(), &wanted).await
            }
        };
        let written = match written {
            Err(kube::Error::Api(status)) if status.code == 409 => secrets.get(&self.name).await,
            written => written,
        };
        info!(secret = self.name, "certificates are put there");
        let contents = Contents::read(&written.map_err(refused(self.what()))?).unwrap_or(made);
        *known = Some(contents.clone());
        Ok(contents)
    }

    /// Takes the next step of a renewal, if there is one.
    pub async fn renew(&self, mut contents: Contents, is_told: bool) -> Result<(), Error> {
        let now = self.env.now().as_second();
        let step = step(&contents, &self.names, is_told, self.lifetimes, now);
        if !contents.take(step, &self.names, self.lifetimes, now)? {
            return Ok(());
        }
        let wanted = contents.write(&self.namespace, &self.name);
        match self.secrets(&self.guarded).replace(&self.name, &PostParams::default(), &wanted).await {
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            written => {
                written.map_err(refused(self.what()))?;
                info!(secret = self.name, ?step, "certificates are renewed");
                Ok(())
            }
        }
    }
}

/// The next step of a renewal. `is_told` says whether callers know of all authorities.
pub(crate) fn step(contents: &Contents, names: &[String], is_told: bool, lifetimes: Lifetimes, now: i64) -> Step {
    let is_usable = certified_key(&contents.certificate, &contents.key).is_ok();
    next(&contents.held(is_usable, names), is_told, lifetimes, now)
}

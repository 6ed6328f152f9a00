//! Telling the API server whom to ask: webhook configurations and the conversion of DaemonSets, kept as they should be, and
//! certificates, renewed in time. Done by whoever leads, once it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dapple_api::crd::is_ours;
use dapple_api::kinds::{self, KindInfo, OwnKind};
use dapple_control::families::GROUP;
use dapple_control::install::find_crd;
use dapple_control::manager::Shared;
use dapple_control::signal::Signal;
use dapple_plan::certificate::Lifetimes;
use futures::future::{join_all, try_join_all};
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::gate::registration::GateRegistration;
use crate::hooks::{CONVERT, HOOKS, Hook, POOL_CONFIGURATION, Reach, configuration, configurations, registered, says};
use crate::own_name::OwnName;
use crate::pool;
use crate::requests::{Error, path_of, refused, request, text};
use crate::secret::Contents;
use crate::serve::Identity;
use crate::shared::{SharedSecret, is_labelled_ours};
use crate::trusted::Trusted;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// CRDs are looked at no more often: the API server reads one whole, schema and all, for a word about its version.
const CRDS_EVERY: Duration = Duration::from_secs(5);
/// The kind whose versions are converted.
pub(crate) const CONVERTED: OwnKind = kinds::DAEMON_SET;

/// Where certificates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// dapple makes them, and keeps them in a Secret of this name.
    Own {
        /// The Secret.
        secret: String,
        /// How long they last.
        lifetimes: Lifetimes,
    },
    /// Somebody else makes them: `tls.crt`, `tls.key` and `ca.crt` in this folder, read again when they change.
    Files(std::path::PathBuf),
}

/// What to do where the Secret is somebody else's.
const REMEDY: &str =
    "give --webhook-secret another name, or mount it and give --webhook-cert-dir if its certificate is to be used";

/// Where certificates are.
enum Kept {
    Own(Box<SharedSecret>),
    Files(std::path::PathBuf),
}

/// Keeps certificates and registrations.
pub struct Registrar {
    /// For what every replica may do.
    plain: Client,
    /// For what only the leader may do.
    guarded: Client,
    /// The term in which this process leads.
    leading: Signal,
    /// dapple's namespace.
    namespace: String,
    /// Where webhooks are reached.
    reach: Reach,
    /// Where certificates are.
    kept: Kept,
    /// What is served with.
    pub identity: Identity,
    /// The version of the CRD of DaemonSets at which its conversion was right, with the bundle it had.
    converted: tokio::sync::Mutex<Option<(String, String)>>,
    /// The authorities of somebody else's certificates.
    trusted: tokio::sync::Mutex<Trusted>,
    /// Whether the API server was told whom to ask.
    is_published: AtomicBool,
    /// The webhooks by which pods are put behind the gate.
    gate: Arc<GateRegistration>,
    /// What the API server calls the manager, where this process serves applications in pools.
    own: Option<OwnName>,
    /// The versions of the CRDs that are ours, and since when they are known.
    crds: tokio::sync::Mutex<Option<(Instant, BTreeMap<String, String>)>>,
}

impl Registrar {
    /// Nothing is registered yet, and there is nothing to serve with.
    pub fn new(
        shared: &Shared,
        namespace: String,
        reach: Reach,
        source: Source,
        gate: Arc<GateRegistration>,
        own: Option<OwnName>,
    ) -> Self {
        let kept = match source {
            Source::Own { secret, lifetimes } => Kept::Own(Box::new(SharedSecret {
                plain: shared.plain.clone(),
                guarded: shared.guarded.clone(),
                leading: shared.leading.clone(),
                namespace: namespace.clone(),
                name: secret,
                remedy: REMEDY,
                names: reach.names(),
                lifetimes,
                env: shared.env.clone(),
                known: Default::default(),
            })),
            Source::Files(folder) => Kept::Files(folder),
        };
        Self {
            plain: shared.plain.clone(),
            guarded: shared.guarded.clone(),
            leading: shared.leading.clone(),
            namespace,
            reach,
            kept,
            identity: Identity::default(),
            converted: Default::default(),
            trusted: Default::default(),
            is_published: Default::default(),
            gate,
            own,
            crds: Default::default(),
        }
    }

    /// Has a certificate to serve with, waiting for as long as it takes.
    pub async fn prepare(&self, stop: &CancellationToken) {
        while let Err(error) = self.load().await {
            warn!(%error, "there is nothing to serve webhooks with yet; trying again");
            tokio::select! { biased; () = stop.cancelled() => return, () = tokio::time::sleep(self.pace()) => {} }
        }
    }

    /// Keeps everything right until stopped. Registers nothing before it is called: then there is somebody to be asked.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut said = String::new();
        while !stop.is_cancelled() {
            let done = tokio::select! { biased; () = stop.cancelled() => return, done = self.look() => done };
            match done {
                Ok(()) => said.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        warn!(%error, "webhooks are not as they should be; trying again");
                    }
                    said = text;
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.gate.behind(), if self.leading.get() != 0 => {}
                () = tokio::time::sleep(self.pace()) => {}
            }
        }
    }

    /// How often to look: several times before anybody could be too late.
    fn pace(&self) -> Duration {
        match &self.kept {
            Kept::Own(kept) => {
                Duration::from_secs(kept.lifetimes.settling().unsigned_abs()).div_f64(6.0).min(Duration::from_secs(5))
            }
            Kept::Files(_) => Duration::from_secs(5),
        }
    }

    async fn look(&self) -> Result<(), Error> {
        let (bundle, contents) = self.load().await?;
        if self.leading.get() == 0 {
            return Ok(());
        }
        // Whatever is in the way of one thing is in the way of no other: a certificate ends on its day.
        let published = self.publish(&bundle).await;
        if let (Kept::Own(kept), Some(contents)) = (&self.kept, contents) {
            let is_published = matches!(published, Ok(()) | Err(Error::Missing { .. }));
            kept.renew(contents, is_published).await?;
        }
        published
    }

    /// Reads certificates, makes them if there are none, and serves with them. Returns what callers are to trust.
    async fn load(&self) -> Result<(String, Option<Contents>), Error> {
        match &self.kept {
            Kept::Files(folder) => {
                let read = |name: &str| {
                    let path = folder.join(name);
                    std::fs::read_to_string(&path)
                        .map_err(|error| Error::File { path: path.display().to_string(), error })
                };
                // The authority last: all are replaced at once, perhaps right now, and it must not be older than the rest.
                let (certificate, key, bundle) = (read("tls.crt")?, read("tls.key")?, read("ca.crt")?);
                let published = self.published().await?;
                let mut trusted = self.trusted.lock().await;
                // The leader may get its files later than this replica, and what nobody trusts is no use to anybody.
                if trusted.is_settled(&bundle, &published) || !self.identity.is_set() {
                    self.identity.set(&certificate, &key)?;
                } else {
                    debug!("there is a certificate of another authority: it is used once that one is trusted");
                }
                Ok((trusted.take(bundle, self.leading.get(), &published), None))
            }
            Kept::Own(kept) => {
                let contents = kept.load().await?;
                if let Err(error) = self.identity.set(&contents.certificate, &contents.key) {
                    // The leader makes another. Until then, what was served with is served with.
                    warn!(%error, secret = kept.name, "the certificate cannot be used");
                    if !self.identity.is_set() {
                        return Err(error.into());
                    }
                }
                Ok((contents.bundle(), Some(contents)))
            }
        }
    }

    /// What the API server is told to trust, of every webhook that it is told to ask us for.
    async fn published(&self) -> Result<Vec<String>, Error> {
        let bundle_of = |hook: &Value| {
            let bundle: ByteString =
                serde_json::from_value(hook["clientConfig"]["caBundle"].clone()).unwrap_or_default();
            String::from_utf8_lossy(&bundle.0).into_owned()
        };
        let mut bundles = Vec::new();
        for configuration in registered() {
            let path = format!("{}/{}", path_of(&configuration), text(&configuration["metadata"]["name"]));
            let found = match request(&self.plain, Method::GET, &path, None).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                found => found.map_err(refused(path))?,
            };
            let hooks = found["webhooks"].as_array().filter(|_| is_ours(&found));
            bundles.extend(hooks.into_iter().flatten().map(bundle_of));
        }
        Ok(bundles)
    }

    /// Makes configurations and conversion say what they should, as far as they are ours.
    async fn publish(&self, bundle: &str) -> Result<(), Error> {
        if !self.is_published.load(Ordering::Relaxed) {
            self.be_reachable().await?;
        }
        let versions = self.versions().await?;
        let ours: Vec<Hook> = HOOKS.into_iter().filter(|hook| versions.contains_key(&hook.crd())).collect();
        self.is_published.store(true, Ordering::Relaxed);
        // Conversion first: replicas that wait until an authority is trusted look at configurations.
        let mut converted = Ok(());
        if let Some(version) = versions.get(&CONVERTED.crd()) {
            // A CRD is large: it is read again only if somebody has changed it.
            let looked_at = Some((version.clone(), bundle.to_owned()));
            if *self.converted.lock().await != looked_at {
                let done = self.convert(bundle).await;
                *self.converted.lock().await =
                    done.as_ref().ok().cloned().flatten().map(|version| (version, bundle.to_owned()));
                converted = done.map(|_| ());
                // It may have another version then.
                *self.crds.lock().await = None;
            }
        }
        let mut wanted = configurations(&ours, &self.reach, bundle, &self.namespace);
        wanted.push(self.of_pools(&versions, bundle));
        let is_served = GROUP.needs().all(|kind| versions.contains_key(&kind.crd()));
        // All at once: a slow API server must not make a look take as long as a dozen of its answers.
        let (mut configured, gated) = tokio::join!(
            join_all(wanted.iter().map(|wanted| self.configure(wanted))),
            self.gate.keep(bundle, self.leading.get(), is_served),
        );
        configured.push(gated);
        // What is missing is told last: nobody goes by a bundle that is nowhere, so it holds up no renewal.
        let (missing, rest): (Vec<_>, Vec<_>) =
            configured.into_iter().partition(|done| matches!(done, Err(Error::Missing { .. })));
        rest.into_iter().collect::<Result<(), Error>>().and(converted)?;
        missing.into_iter().collect()
    }

    /// The configuration about workloads of applications in pools: of the kinds that dapple serves.
    fn of_pools(&self, versions: &BTreeMap<String, String>, bundle: &str) -> Value {
        let is_served = |kind: &OwnKind| versions.contains_key(&kind.crd());
        let served = self.own.as_ref().filter(|_| is_served(&kinds::REPLACEMENT));
        let hooks = served.map(|own| {
            let all = [&kinds::YURT_APP_SET, &kinds::YURT_APP_DAEMON].into_iter();
            let owners: Vec<KindInfo> = all.filter(|kind| is_served(kind)).map(|kind| kind.at).collect();
            pool::hooks(&self.reach, bundle, &owners, own.get().map(String::as_str))
        });
        configuration(POOL_CONFIGURATION, hooks.unwrap_or_default())
    }

    /// The versions of those CRDs that are ours.
    async fn versions(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut known = self.crds.lock().await;
        if let Some((since, versions)) = known.as_ref()
            && since.elapsed() < CRDS_EVERY
        {
            return Ok(versions.clone());
        }
        let crds: Api<CustomResourceDefinition> = Api::all(self.guarded.clone());
        let names: BTreeSet<String> = HOOKS.iter().map(Hook::crd).collect();
        let version_of = |crd: String| {
            let crds = crds.clone();
            async move {
                let found = crds.get_metadata_opt(&crd).await.map_err(refused(format!("CRD {crd}")))?;
                let version = found.filter(is_labelled_ours).map(|found| found.resource_version().unwrap_or_default());
                Ok::<_, Error>(version.map(|version| (crd, version)))
            }
        };
        let found = try_join_all(names.into_iter().map(version_of)).await?;
        let versions: BTreeMap<String, String> = found.into_iter().flatten().collect();
        *known = Some((Instant::now(), versions.clone()));
        Ok(versions)
    }

    /// Fails while the Service leads to nobody: every write of our kinds would be refused.
    async fn be_reachable(&self) -> Result<(), Error> {
        let Reach::Service { name, namespace, .. } = &self.reach else { return Ok(()) };
        let slices: Api<EndpointSlice> = Api::namespaced(self.plain.clone(), namespace);
        let params = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let found = slices.list(&params).await.map_err(refused(format!("EndpointSlices of {namespace}/{name}")))?;
        let is_ready = |known: &Endpoint| known.conditions.as_ref().and_then(|known| known.ready) != Some(false);
        if found.iter().flat_map(|slice| slice.endpoints.iter().flatten()).any(is_ready) {
            return Ok(());
        }
        Err(Error::Unreachable { service: format!("{namespace}/{name}") })
    }

    /// Makes one configuration say what it should, unless it is somebody else's.
    async fn configure(&self, wanted: &Value) -> Result<(), Error> {
        let (kind, name, path) = (text(&wanted["kind"]), text(&wanted["metadata"]["name"]), path_of(wanted));
        let what = || format!("{kind} {name}");
        match request(&self.guarded, Method::GET, &format!("{path}/{name}"), None).await {
            Ok(found) if !is_ours(&found) => {
                warn!(
                    configuration = name,
                    "it belongs to another product, and is left alone: nothing is validated by it"
                );
                Ok(())
            }
            Ok(found) if says(&found, wanted) => Ok(()),
            Ok(found) => {
                let mut wanted = wanted.clone();
                wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                request(&self.guarded, Method::PUT, &format!("{path}/{name}"), Some(&wanted))
                    .await
                    .map_err(refused(what()))?;
                info!(configuration = name, "the API server is told whom to ask");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Error::Missing { configuration: what() }),
            Err(error) => Err(refused(what())(error)),
        }
    }

    /// Has both versions of DaemonSets served, and converted by us. Returns the version of the CRD.
    async fn convert(&self, bundle: &str) -> Result<Option<String>, Error> {
        let name = CONVERTED.crd();
        let Some(mut crd) = find_crd(&self.guarded, &name).await? else { return Ok(None) };
        let version_of = |crd: &Value| crd["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let conversion = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": self.reach.client_config(CONVERT, bundle), "conversionReviewVersions": ["v1"]}});
        let mut versions = crd["spec"]["versions"].clone();
        for version in versions.as_array_mut().into_iter().flatten() {
            // Others are not ours to switch: a newer dapple may serve them, while replicas of both run.
            if CONVERTED.served_versions().any(|served| version["name"] == served) {
                version["served"] = true.into();
            }
        }
        if says(&crd["spec"]["conversion"], &conversion) && versions == crd["spec"]["versions"] {
            return Ok(version_of(&crd));
        }
        (crd["spec"]["conversion"], crd["spec"]["versions"]) = (conversion, versions);
        let path = format!("{CRDS}/{name}");
        let written = request(&self.guarded, Method::PUT, &path, Some(&crd)).await;
        let written = written.map_err(refused(format!("CRD {name}")))?;
        info!(crd = name, "all versions are served");
        Ok(version_of(&written))
    }
}

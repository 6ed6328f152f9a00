//! The kinds whose objects may ask for policies: those of Kubernetes, and those that users list in ConfigMap
//! `groupmanagement-config`, which is followed.
//!
//! A kind that is listed and not served, or that the manager may not read, is none of them: it holds up nothing, and is looked for
//! again. A list that cannot be read changes nothing: the last one that could be counts.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dapple_api::group::{APPLICATIONS, CONFIG, ListedKind, read_listed};
use dapple_api::kinds::{CONFIG_MAP, KindInfo, NATIVE};
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::application::{is_news, key_of};
use super::asking::{Application, ApplicationKey, Asking};
use crate::caches::store::Change;
use crate::caches::{Caches, Subscription};
use crate::observed::{KindWire, Wire};
use crate::signal::Signal;
use crate::slim::{Cached, Interner, Meta};

/// How soon to look again for kinds that are listed and not served.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The ConfigMap, as far as it lists kinds.
#[derive(Debug)]
pub(super) struct Config {
    meta: Meta,
    /// The list, as text.
    pub(super) applications: Arc<str>,
}

/// The fields of it that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ConfigWire {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Wire for ConfigWire {
    const ONLY: Option<&'static str> = Some(CONFIG);
}

impl KindWire for ConfigWire {
    const KIND: KindInfo = CONFIG_MAP;
}

impl Cached for Config {
    type Wire = ConfigWire;

    fn slim(meta: Meta, wire: ConfigWire, strings: &mut Interner) -> Self {
        Self { meta, applications: strings.share(wire.data.get(APPLICATIONS).map_or("", String::as_str)) }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The objects of one kind.
pub(super) struct Workload {
    pub(super) kind: KindInfo,
    /// The field that has the pod template.
    pub(super) template_field: Arc<str>,
    /// The field that says how many pods it should have, if users have listed it.
    pub(super) replicas_field: Option<Arc<str>>,
    /// Whether users have listed it.
    pub(super) is_listed: bool,
    pub(super) found: Subscription<Application>,
}

/// The objects of all kinds.
pub(super) struct Workloads {
    all: RwLock<Arc<Vec<Arc<Workload>>>>,
    /// Not zero once the list was read.
    pub(super) read_once: Signal,
    /// Those of Kubernetes, which stay.
    native: Vec<Arc<Workload>>,
}

impl Workloads {
    /// Those of the kinds of Kubernetes.
    pub(super) fn of_kubernetes(
        caches: &Caches,
        life: &CancellationToken,
        on_change: &(impl Fn(ApplicationKey) + Clone + Send + 'static),
    ) -> Self {
        let open = |native: &dapple_api::kinds::NativeKind| {
            let found = subscribe(caches, life, native.at, on_change.clone());
            let template_field = Arc::from(native.template_field);
            Arc::new(Workload { kind: native.at, template_field, replicas_field: None, is_listed: false, found })
        };
        let native: Vec<Arc<Workload>> = NATIVE.iter().map(open).collect();
        Self { all: RwLock::new(Arc::new(native.clone())), read_once: Signal::default(), native }
    }

    /// All of them, as they are now.
    pub(super) fn all(&self) -> Arc<Vec<Arc<Workload>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those of Kubernetes.
    pub(super) fn of_kubernetes_alone(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.native.iter()
    }

    fn set_listed(&self, listed: Vec<Arc<Workload>>) {
        let all = self.native.iter().cloned().chain(listed).collect();
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }
}

fn subscribe(
    caches: &Caches,
    life: &CancellationToken,
    kind: KindInfo,
    on_change: impl Fn(ApplicationKey) + Send + 'static,
) -> Subscription<Application> {
    let opened = caches.open_kind::<Application>(kind).indexed_by([
        Application::BY_UID,
        Application::BY_OWNER,
        Application::BY_POLICY,
        Application::LABELLED,
    ]);
    opened.subscribe(life, move |change: &Change<Application>| {
        if is_news(change, Asking::of_workload) {
            on_change(ApplicationKey { kind, key: key_of(change).clone() });
        }
    })
}

/// Follows the list of kinds, until `stop`.
pub(super) async fn follow(
    caches: Caches,
    workloads: Arc<Workloads>,
    life: CancellationToken,
    stop: CancellationToken,
    on_change: impl Fn(ApplicationKey) + Clone + Send + 'static,
) {
    let changed = Arc::new(Notify::new());
    let wake = changed.clone();
    let config = caches.open::<Config>().subscribe(&life, move |_| wake.notify_one());
    tokio::select! { biased; () = stop.cancelled() => return, () = config.settled() => {} }
    let mut listed: Vec<ListedKind> = Vec::new();
    loop {
        // One that cannot be read changes nothing; whoever reports says so.
        let text = config.all().first().map(|config| config.applications.clone());
        if let Ok(read) = read_listed(text.as_deref().unwrap_or_default()) {
            listed = read;
        }
        let is_whole = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            is_whole = open_all(&caches, &workloads, &life, &listed, on_change.clone()) => is_whole,
        };
        workloads.read_once.set(1);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(LOOK_AGAIN), if !is_whole => {}
        }
    }
}

/// Opens the kinds that are listed and served, and closes those that are not any more. Returns whether all are served.
async fn open_all(
    caches: &Caches,
    workloads: &Workloads,
    life: &CancellationToken,
    listed: &[ListedKind],
    on_change: impl Fn(ApplicationKey) + Clone + Send + 'static,
) -> bool {
    let before = workloads.all();
    let (mut after, mut opened, mut is_whole) = (Vec::new(), Vec::new(), true);
    for wanted in listed {
        let Ok(plural) = find(&caches.client(), wanted).await else {
            is_whole = false;
            continue;
        };
        let kind = caches.kind(&wanted.group, &wanted.version, &wanted.kind, &plural);
        let is_same = |known: &&Arc<Workload>| {
            let fields = (&*known.template_field, known.replicas_field.as_deref());
            known.kind == kind && fields == (&*wanted.template_field, Some(&*wanted.replicas_field))
        };
        let open = || {
            info!(kind = kind.qualified(), "its objects may ask for policies");
            let found = subscribe(caches, life, kind, on_change.clone());
            let template_field = Arc::from(&*wanted.template_field);
            let replicas_field = Some(Arc::from(&*wanted.replicas_field));
            Arc::new(Workload { kind, template_field, replicas_field, is_listed: true, found })
        };
        after.push(before.iter().find(is_same).cloned().unwrap_or_else(|| {
            let workload = open();
            opened.push(workload.clone());
            workload
        }));
    }
    let is_left = |known: &&Arc<Workload>| known.is_listed && !after.iter().any(|other| other.kind == known.kind);
    let left: Vec<Arc<Workload>> = before.iter().filter(is_left).cloned().collect();
    workloads.set_listed(after);
    for known in &left {
        info!(kind = known.kind.qualified(), "its objects are not followed any more");
    }
    // Pods of those that are left are released. Objects of those that are new may have been told of while nobody knew their kind.
    for known in left.iter().chain(&opened) {
        for workload in known.found.all_under(Application::LABELLED) {
            on_change(ApplicationKey { kind: known.kind, key: workload.meta.key.clone() });
        }
    }
    is_whole
}

/// Why a kind that is listed is not followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unserved {
    #[error("the API server serves no {0}: install its CRD, or take it off the list")]
    NotServed(String),
    #[error("{0} is not in namespaces: what is in none cannot ask for policies")]
    NotNamespaced(String),
    #[error(
        "dapple may not read {0}: grant get, list, watch and patch in a ClusterRole with label \
         dapple.dev/aggregate-to-manager: \"true\""
    )]
    NotAllowed(String),
    #[error("the API server did not say whether it serves {0}: {1}")]
    Unknown(String, kube::Error),
}

impl Unserved {
    /// One word in CamelCase, for machines.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotServed(_) => "KindNotServed",
            Self::NotNamespaced(_) => "KindNotNamespaced",
            Self::NotAllowed(_) => "KindNotAllowed",
            Self::Unknown(..) => "KindUnknown",
        }
    }
}

/// The plural of a kind, if it is served, and may be read.
pub(super) async fn find(client: &Client, listed: &ListedKind) -> Result<String, Unserved> {
    let (shown, version) = (listed.shown(), format!("{}/{}", listed.group, listed.version));
    let resources = match client.list_api_group_resources(&version).await {
        Ok(found) => found.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => return Err(Unserved::NotServed(shown)),
        Err(error) => return Err(Unserved::Unknown(shown, error)),
    };
    let resource = resources.into_iter().find(|found| found.kind == listed.kind && !found.name.contains('/'));
    let Some(resource) = resource else { return Err(Unserved::NotServed(shown)) };
    if !resource.namespaced {
        return Err(Unserved::NotNamespaced(shown));
    }
    let api = kube::core::ApiResource {
        group: listed.group.clone(),
        version: listed.version.clone(),
        api_version: version,
        kind: listed.kind.clone(),
        plural: resource.name.clone(),
    };
    let objects = Api::<kube::core::DynamicObject>::all_with(client.clone(), &api);
    match objects.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(resource.name),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(Unserved::NotAllowed(shown)),
        Err(error) => Err(Unserved::Unknown(shown, error)),
    }
}

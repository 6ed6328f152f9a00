//! One kind of objects in a cluster, as commands read it, and what went wrong in words.

use anyhow::{Context, anyhow};
use dapple_api::kinds::{KindInfo, OwnKind};
use dapple_view::daemonset::PodFacts;
use dapple_view::harmless;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;

use crate::args::{ConnectArgs, ObjectArgs};
use crate::connect;
use crate::output::note;
use crate::target::rolled;

/// As many objects per answer.
const PAGE: u32 = 500;

/// A cluster, a kind, and the namespace that a command is about.
pub(crate) struct Reach {
    pub(crate) client: Client,
    pub(crate) own: &'static OwnKind,
    /// Nothing for all of them, and for what is in none.
    pub(crate) namespace: Option<String>,
}

impl Reach {
    /// Connects. Writes are sent once: one without an answer may have been done.
    pub(crate) async fn connect(
        args: &ConnectArgs,
        namespace: Option<&str>,
        own: &'static OwnKind,
    ) -> anyhow::Result<Self> {
        let config = connect::config(args).await?;
        let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
        let namespace = Some(namespace).filter(|_| own.is_namespaced);
        Ok(Self { client: dapple_control::writes::client::connect(config)?, own, namespace })
    }

    /// Connects for a command about one object whose rollout is followed or steered, and says which.
    pub(crate) async fn connect_for(args: &ObjectArgs) -> anyhow::Result<(Self, String)> {
        let (own, name) = rolled(&args.target)?;
        Ok((Self::connect(&args.connect, args.namespace.as_deref(), own).await?, name))
    }

    /// An object, as people name it.
    pub(crate) fn shown(&self, name: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.own.at.kind),
            None => format!("{} {name}", self.own.at.kind),
        }
    }

    /// How the kind is written on the command line.
    pub(crate) fn word(&self) -> String {
        self.own.at.kind.to_lowercase()
    }

    /// How the kind is written in what commands print, as kubectl does.
    pub(crate) fn resource(&self) -> String {
        format!("{}.{}", self.word(), self.own.at.group)
    }

    /// The objects, unread: one that cannot be read must not hide the others.
    pub(crate) fn objects(&self) -> Api<DynamicObject> {
        self.others(self.own.at)
    }

    /// Objects of another kind, in the same place.
    pub(crate) fn others(&self, at: KindInfo) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource_of(at)),
            None => Api::all_with(self.client.clone(), &resource_of(at)),
        }
    }

    /// The pods, those of the objects and others'.
    pub(crate) fn all_pods(&self) -> Api<Pod> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// One object; nothing if it is not there.
    pub(crate) async fn find(&self, name: &str) -> anyhow::Result<Option<DynamicObject>> {
        match self.objects().get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 && names_an_object(&status) => Ok(None),
            Err(error) => Err(self.explained(error, &format!("cannot get {}", self.shown(name)))),
        }
    }

    /// One object.
    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<DynamicObject> {
        let place = self.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        let none = || {
            let (shown, word) = (self.shown(name), self.word());
            anyhow!("there is no {shown}: `dapple get {word}{place}` shows those that there are")
        };
        self.find(name).await?.ok_or_else(none)
    }

    /// All of them, by namespace and name.
    pub(crate) async fn list(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let objects = pages(&self.objects(), ListParams::default()).await;
        let mut objects =
            objects.map_err(|error| self.explained(error, &format!("cannot list {}s", self.own.at.kind)))?;
        objects.sort_by_key(|object| (object.metadata.namespace.clone(), object.metadata.name.clone()));
        Ok(objects)
    }

    /// The revisions of an object's namespace that `is_its` holds for.
    pub(crate) async fn revisions(
        &self,
        namespace: &str,
        is_its: impl Fn(&ObjectMeta) -> bool,
    ) -> anyhow::Result<Vec<ControllerRevision>> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
        let all = pages(&api, ListParams::default()).await;
        let all = all.map_err(|error| self.explained(error, "cannot list the revisions (controllerrevisions.apps)"))?;
        Ok(all.into_iter().filter(|revision| is_its(&revision.metadata)).collect())
    }

    /// The pods that an object controls. Others may carry the same labels, or have had an owner of the same name.
    pub(crate) async fn pods(&self, of: &ObjectMeta, selector: &LabelSelector) -> anyhow::Result<Vec<PodFacts>> {
        // A selector that cannot be used selects nothing.
        let Ok(query) = kube::core::Selector::try_from(selector.clone()) else { return Ok(Vec::new()) };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), of.namespace.as_deref().unwrap_or_default());
        let all = pages(&api, ListParams::default().labels_from(&query)).await;
        let name = of.name.as_deref().unwrap_or_default();
        let all =
            all.map_err(|error| self.explained(error, &format!("cannot list the pods of {}", self.shown(name))))?;
        let is_its = |pod: &&Pod| controller(&pod.metadata).is_some_and(|uid| Some(uid) == of.uid.as_deref());
        Ok(all.iter().filter(is_its).map(PodFacts::of).collect())
    }

    /// What failed, with what to do about it where that is known.
    pub(crate) fn explained(&self, error: kube::Error, what: &str) -> anyhow::Error {
        if is_unserved(&error) {
            let KindInfo { plural, .. } = self.own.at;
            let version = self.own.at.api_version();
            return anyhow!(
                "{what}: this cluster does not serve {plural} of {version}; `dapple up --cluster` installs dapple's APIs"
            );
        }
        match error {
            kube::Error::Api(_) => anyhow!("{what}: {}", reason(&error)),
            other => anyhow::Error::from(other).context(what.to_owned()),
        }
    }

    /// Reads an object, or says that it cannot be read.
    pub(crate) fn read_or_note<T>(
        &self,
        object: &DynamicObject,
        read: impl Fn(&DynamicObject) -> anyhow::Result<T>,
    ) -> Option<T> {
        let told = |error: &anyhow::Error| {
            let (namespace, name) = (object.namespace(), object.name_any());
            let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let kind = self.own.at.kind;
            note(&harmless(&format!("warning: not shown: {kind} {place}{name} cannot be read: {error}")));
        };
        read(object).inspect_err(told).ok()
    }

    /// Reads the object of a name.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        object: &DynamicObject,
        read: impl Fn(&DynamicObject) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        read(object).with_context(|| format!("{} cannot be read", self.shown(name)))
    }
}

/// Where the API server has a kind.
pub(crate) fn resource_of(KindInfo { group, version, kind, plural }: KindInfo) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// An object as its type.
pub(crate) fn typed<T: DeserializeOwned>(object: &DynamicObject) -> anyhow::Result<T> {
    Ok(serde_json::from_value(serde_json::to_value(object)?)?)
}

/// The UID of an object's controller.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// Every object, page by page.
pub(crate) async fn pages<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = params.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Whether a kind is not served.
pub(crate) fn is_unserved(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && !names_an_object(status))
}

/// Whether a 404 is about an object, and not about a kind that is not served.
fn names_an_object(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Why a request failed: what the API server answered, if it did, without the rest of its answer.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(known) = cause {
        if let Some(kube::Error::Api(status)) = known.downcast_ref() {
            return status.message.clone();
        }
        cause = known.source();
    }
    error.to_string()
}

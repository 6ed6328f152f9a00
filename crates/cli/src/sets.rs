//! Reading DaemonSets of apps.kruise.io, their revisions and their pods from a cluster.

use anyhow::{Context, anyhow};
use dapple_api::daemonset::DaemonSet;
use dapple_plan::cause::CHANGE_CAUSE;
use dapple_plan::daemonset::pod::{HASH_LABEL, is_set};
use dapple_plan::daemonset::revision::{
    FORM_ANNOTATION, REPLACES_ANNOTATION, Revision, SINCE_ANNOTATION, began, form_of, number_of,
};
use dapple_view::daemonset::PodFacts;
use dapple_view::daemonset::history::RevisionFacts;
use dapple_view::harmless;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;

use crate::args::{ConnectArgs, SetArgs};
use crate::connect;
use crate::output::note;
use crate::target::daemonset;

/// As many objects per answer.
const PAGE: u32 = 500;

/// How the kind is written in what commands print, as kubectl does.
pub(crate) const RESOURCE: &str = "daemonset.apps.kruise.io";

/// A cluster, and the namespace that a command is about; nothing for all of them.
pub(crate) struct Sets {
    pub(crate) client: Client,
    pub(crate) namespace: Option<String>,
}

/// A DaemonSet as the API server has it, and as it is read.
pub(crate) struct Found {
    pub(crate) object: DynamicObject,
    pub(crate) set: DaemonSet,
}

impl Sets {
    /// Connects. Writes are sent once: one without an answer may have been done.
    pub(crate) async fn connect(args: &ConnectArgs, namespace: Option<&str>) -> anyhow::Result<Self> {
        let config = connect::config(args).await?;
        let namespace = Some(namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned));
        Ok(Self { client: dapple_control::writes::client::connect(config)?, namespace })
    }

    /// Connects for a command about one DaemonSet, and says which.
    pub(crate) async fn connect_for(args: &SetArgs) -> anyhow::Result<(Self, String)> {
        let name = daemonset(&args.target)?.context("say which one: daemonset/NAME")?;
        Ok((Self::connect(&args.connect, args.namespace.as_deref()).await?, name))
    }

    /// A DaemonSet, as people name it.
    pub(crate) fn shown(&self, name: &str) -> String {
        format!("DaemonSet {}/{name}", self.namespace.as_deref().unwrap_or_default())
    }

    /// The DaemonSets, unread: one that cannot be read must not hide the others.
    pub(crate) fn objects(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<DaemonSet>(&());
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// The pods, the DaemonSets' and others'.
    pub(crate) fn all_pods(&self) -> Api<Pod> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// One DaemonSet; nothing if it is not there.
    pub(crate) async fn find(&self, name: &str) -> anyhow::Result<Option<Found>> {
        let object = match self.objects().get(name).await {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.code == 404 && names_an_object(&status) => return Ok(None),
            Err(error) => return Err(explained(error, &format!("cannot get {}", self.shown(name)))),
        };
        let set = read(&object).with_context(|| format!("{} cannot be read", self.shown(name)))?;
        Ok(Some(Found { object, set }))
    }

    /// One DaemonSet.
    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<Found> {
        let none = || {
            let namespace = self.namespace.as_deref().unwrap_or_default();
            anyhow!(
                "there is no {}: `dapple get daemonset -n {namespace}` shows those that there are",
                self.shown(name)
            )
        };
        self.find(name).await?.ok_or_else(none)
    }

    /// All of them, by namespace and name.
    pub(crate) async fn list(&self) -> anyhow::Result<Vec<DaemonSet>> {
        let objects = pages(&self.objects(), ListParams::default()).await;
        let objects = objects.map_err(|error| explained(error, "cannot list DaemonSets"))?;
        let mut sets: Vec<DaemonSet> = objects.iter().filter_map(read_or_note).collect();
        sets.sort_by_key(|set| (set.metadata.namespace.clone(), set.metadata.name.clone()));
        Ok(sets)
    }

    /// The revisions that a DaemonSet controls.
    pub(crate) async fn revisions(&self, set: &DaemonSet) -> anyhow::Result<Vec<RevisionFacts>> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
        let all = pages(&api, ListParams::default()).await;
        let all = all.map_err(|error| explained(error, "cannot list the revisions (controllerrevisions.apps)"))?;
        let own = all.into_iter().filter(|revision| is_owned(&revision.metadata, set));
        Ok(own.map(|revision| revision_facts(set, revision)).collect())
    }

    /// The pods that a DaemonSet controls.
    pub(crate) async fn pods(&self, set: &DaemonSet) -> anyhow::Result<Vec<PodFacts>> {
        let Some(params) = pods_query(set) else { return Ok(Vec::new()) };
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let all = pages(&api, params).await;
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let all = all.map_err(|error| explained(error, &format!("cannot list the pods of {}", self.shown(name))))?;
        Ok(all.iter().filter(|pod| is_controlled(&pod.metadata, set)).map(PodFacts::of).collect())
    }
}

/// What selects the pods of a DaemonSet; nothing if the selector cannot be used.
fn pods_query(set: &DaemonSet) -> Option<ListParams> {
    let selector = kube::core::Selector::try_from(set.spec.selector.clone()).ok()?;
    Some(ListParams::default().labels_from(&selector))
}

/// Whether an object has this DaemonSet as its controller. Others may carry the same labels, or have had the same name.
fn is_controlled(metadata: &ObjectMeta, set: &DaemonSet) -> bool {
    controller(metadata).is_some_and(|uid| Some(uid) == set.metadata.uid.as_deref())
}

/// Whether a revision has this DaemonSet as its controller, by UID, kind and name: the policy on who may write revisions goes by the
/// latter.
fn is_owned(metadata: &ObjectMeta, set: &DaemonSet) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).is_some_and(|owner| {
        is_set(&owner.api_version, &owner.kind)
            && Some(&owner.name) == set.metadata.name.as_ref()
            && Some(&owner.uid) == set.metadata.uid.as_ref()
    })
}

/// The UID of an object's controller.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

fn revision_facts(set: &DaemonSet, object: ControllerRevision) -> RevisionFacts {
    let name = object.metadata.name.unwrap_or_default();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let label = object.metadata.labels.and_then(|mut labels| labels.remove(HASH_LABEL));
    let ending = || name.strip_prefix(&format!("{set_name}-")).unwrap_or(&name).to_owned();
    let mut annotations = object.metadata.annotations.unwrap_or_default();
    let noted = |key: &str| annotations.get(key).map(String::as_str);
    let created = object.metadata.creation_timestamp.map(|time| time.0);
    RevisionFacts {
        revision: Revision {
            replaces: noted(REPLACES_ANNOTATION).map(str::to_owned),
            number: number_of(object.revision),
            hash: label.unwrap_or_else(ending),
            form: form_of(noted(FORM_ANNOTATION)),
            began: began(created, noted(SINCE_ANNOTATION), Timestamp::now()),
            data: object.data.map(|data| data.0).unwrap_or_default(),
            name,
        },
        created,
        change_cause: annotations.remove(CHANGE_CAUSE),
    }
}

/// Reads a DaemonSet.
pub(crate) fn read(object: &DynamicObject) -> anyhow::Result<DaemonSet> {
    Ok(serde_json::from_value(serde_json::to_value(object)?)?)
}

/// Reads a DaemonSet, or says that it cannot be read.
pub(crate) fn read_or_note(object: &DynamicObject) -> Option<DaemonSet> {
    let told = |error: &anyhow::Error| {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        note(&harmless(&format!("warning: not shown: DaemonSet {namespace}/{name} cannot be read: {error}")));
    };
    read(object).inspect_err(told).ok()
}

/// Every object, page by page.
async fn pages<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>, kube::Error>
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

/// Whether a 404 is about an object, and not about a kind that is not served.
fn names_an_object(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// What failed, with what to do about it where that is known.
pub(crate) fn explained(error: kube::Error, what: &str) -> anyhow::Error {
    let is_unserved = matches!(&error, kube::Error::Api(status) if status.code == 404 && !names_an_object(status));
    if is_unserved {
        return anyhow!(
            "{what}: this cluster does not serve daemonsets of apps.kruise.io/v1beta1; `dapple up --cluster` installs dapple's APIs"
        );
    }
    match error {
        kube::Error::Api(_) => anyhow!("{what}: {}", reason(&error)),
        other => anyhow::Error::from(other).context(what.to_owned()),
    }
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

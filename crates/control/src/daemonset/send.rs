//! Requests for what was decided, and what the API server says to them.

use std::sync::Arc;

use dapple_plan::daemonset::cell::{Act, Why};
use dapple_plan::daemonset::desired::Rendered;
use dapple_plan::daemonset::fleet::Action;
use dapple_plan::daemonset::inplace::{self, Difference, Intent, RESIZE_ANNOTATION, Target};
use dapple_plan::daemonset::lifecycle::{self, State};
use dapple_plan::daemonset::pod::{HASH_LABEL, Wanted, pod, pod_name};
use dapple_plan::mutant::{Mutant, is_on};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use serde_json::Value;
use tracing::info;

use super::known::{Known, Rendered as Renderings};
use super::memory::Memory;
use super::pod::{intent, running};
use super::{DaemonSets, Set, version_of};
use crate::caches::store::Key;
use crate::slim::Pod;
use crate::writes::client::is_not_leading;

/// The answer to a write.
type Written = PartialObjectMeta<k8s_openapi::api::core::v1::Pod>;
/// How to ask for that and no more.
const BRIEF: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A request, made ready.
pub(super) enum Request {
    Create(Box<Value>),
    Delete(Arc<Pod>, Why),
    /// A patch of the pod.
    Metadata(Value),
    /// A patch of its status.
    Status(Value),
    /// A patch of the pod that makes it another one.
    Edit(Value),
    /// A patch of its cpu and memory.
    Resize(Value),
}

/// What came of a request.
pub(super) enum Outcome {
    /// Done: the object has this version now.
    Wrote(u64),
    /// Done: the object has this version now, and nothing has come of it.
    Ineffective(u64),
    /// Done: the object is gone.
    Gone,
    /// Nothing was done: the pod is gone, or another one by now.
    Moved,
    /// Nothing was done: there is no reason to.
    Unfounded,
    /// Nobody knows.
    Doubt(kube::Error),
    /// The API server refused it, and will again.
    Refused(kube::Error),
    /// The name is taken by a pod of somebody else.
    Taken,
}

impl DaemonSets {
    pub(super) fn pods_api(&self, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Makes a request ready; nothing if the pod is gone.
    pub(super) fn prepare(&self, set: &Set, memory: &mut Memory, action: &Action) -> Option<(Key, Request)> {
        let key_of = |name: &Arc<str>| Key { namespace: set.meta.key.namespace.clone(), name: name.clone() };
        if action.pod.as_ref().is_some_and(|name| memory.is_open(&key_of(name))) {
            return None;
        }
        let known = memory.known.as_mut()?;
        let now = self.env.now().to_string();
        let Some(name) = &action.pod else {
            let revision = revision_for(known, &action.node)?;
            let node = known.fleet.node(&action.node)?;
            let (rendered, _) = rendered_by(&memory.variants, &revision, &node.wanted)?;
            let gates = lifecycle::gates(&set.spec);
            let wanted = Wanted {
                set: &set.meta.key.name,
                uid: &set.meta.uid,
                node: &action.node,
                template: &rendered.template,
                hash: &rendered.hash,
                revision: &revision,
                gates: &gates,
                collisions: memory.collisions.get(&action.node).copied().unwrap_or(0),
            };
            let key = Key::new(&set.meta.key.namespace, &pod_name(&wanted));
            return Some((key, Request::Create(Box::new(pod(&wanted)))));
        };
        let key = key_of(name);
        // Our view goes on while we ask and wait: what was decided about a pod holds for what it was then.
        let decided = known.fleet.pod(name)?.version;
        let pod = self.pods.get(&key).filter(|pod| pod.meta.version == decided)?;
        let (uid, version) = (&pod.meta.uid, pod.meta.version);
        let request = match action.act {
            Act::Create => return None,
            Act::Delete(why) => Request::Delete(pod, why),
            Act::Mark(state) => Request::Metadata(lifecycle::mark(state, uid, version, &now)),
            Act::Gate { condition, opens } => Request::Status(inplace::gate(condition, opens, uid, version, &now)),
            Act::Edit => {
                let hash = known.fleet.node(&action.node)?.wanted.clone();
                let from = known.fleet.pod(name)?.hash.clone();
                let difference = known.fleet.difference(&from, &hash)?;
                let lifecycle = known.fleet.rules().has_update_hook.then_some(State::Updating);
                let revision = revision_for(known, &action.node)?;
                let (rendered, _) = rendered_by(&memory.variants, &revision, &hash)?;
                Request::Edit(edit(&pod, &difference, (&rendered.hash, &revision), lifecycle, &now))
            }
            Act::Resize => {
                let note = pod.annotations.get(RESIZE_ANNOTATION)?;
                Request::Resize(inplace::resize(note, uid, version)?)
            }
            Act::ClearResize => Request::Metadata(inplace::clear(uid, version)),
        };
        Some((key, request))
    }

    pub(super) async fn send(&self, set: &Set, key: &Key, request: Request) -> Outcome {
        let api = self.pods_api(&set.meta.key.namespace);
        let params = PatchParams::default();
        let name = key.name.as_ref();
        let sent = match request {
            Request::Create(body) => return self.create(set, key, *body).await,
            Request::Delete(pod, why) => {
                if why == Why::NodeGone {
                    match self.is_node_gone(&pod).await {
                        Ok(true) => {}
                        Ok(false) => return Outcome::Unfounded,
                        Err(error) => return Outcome::Doubt(error),
                    }
                }
                info!(set = %set.meta.key, pod = name, ?why, "deleting");
                if why == Why::Ended {
                    self.say_ended(set, &pod);
                }
                let (uid, version) = (pod.meta.uid.to_string(), pod.meta.version.to_string());
                let only = Preconditions { uid: Some(uid), resource_version: Some(version) };
                let preconditions = Some(only).filter(|_| !is_on(Mutant::PreconditionDropped));
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                match self.delete(&api, name, &params).await {
                    Ok(Some(pod)) => Ok(pod.metadata.resource_version),
                    Ok(None) => return Outcome::Gone,
                    Err(error) => Err(error),
                }
            }
            Request::Metadata(patch) => {
                api.patch(name, &params, &Patch::Strategic(patch)).await.map(|pod| pod.metadata.resource_version)
            }
            Request::Status(patch) => {
                api.patch_status(name, &params, &Patch::Strategic(patch)).await.map(|pod| pod.metadata.resource_version)
            }
            Request::Edit(patch) => {
                info!(set = %set.meta.key, pod = name, "updating in place");
                api.patch(name, &params, &Patch::Strategic(patch)).await.map(|pod| pod.metadata.resource_version)
            }
            Request::Resize(patch) => {
                info!(set = %set.meta.key, pod = name, "resizing");
                return self.resize(&api, name, patch).await;
            }
        };
        outcome(sent)
    }

    /// Gives a pod the cpu and memory that are noted on it.
    async fn resize(&self, api: &Api<DynamicObject>, name: &str, patch: Value) -> Outcome {
        match api.patch_subresource("resize", name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            // A webhook of somebody else may set them back: that would go on for ever.
            Ok(pod) if is_pending(&pod) => Outcome::Ineffective(version_of(&pod.metadata.resource_version)),
            answer => outcome(answer.map(|pod| pod.metadata.resource_version)),
        }
    }

    /// Deletes a pod. Nothing if it is gone already.
    async fn delete(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        params: &DeleteParams,
    ) -> Result<Option<Written>, kube::Error> {
        let request = kube::core::Request::new(api.resource_url()).delete(name, params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request_status::<Written>(in_brief(request)).await?.left())
    }

    async fn create(&self, set: &Set, key: &Key, body: Value) -> Outcome {
        let api = self.pods_api(&set.meta.key.namespace);
        let hash = body["metadata"]["labels"][HASH_LABEL].as_str().map(str::to_owned);
        let request = kube::core::Request::new(api.resource_url())
            .create(&PostParams::default(), body.to_string().into_bytes())
            .map_err(kube::Error::BuildRequest);
        let answer = match request {
            Ok(request) => self.client.request::<Written>(in_brief(request)).await,
            Err(error) => Err(error),
        };
        match answer {
            Err(kube::Error::Api(error)) if error.code == 409 => match api.get_opt(&key.name).await {
                Ok(Some(found)) => {
                    let owners = found.metadata.owner_references.iter().flatten();
                    // One that was changed where it runs since has the name of what it was, and is in the way.
                    let is_same =
                        found.metadata.labels.as_ref().and_then(|labels| labels.get(HASH_LABEL)) == hash.as_ref();
                    let is_ours = is_same && owners.into_iter().any(|owner| *owner.uid == *set.meta.uid);
                    // Made before, by us, and on its way into our view, or out of the world.
                    if is_ours { Outcome::Wrote(version_of(&found.metadata.resource_version)) } else { Outcome::Taken }
                }
                Ok(None) => Outcome::Moved,
                Err(error) => Outcome::Doubt(error),
            },
            answer => outcome(answer.map(|pod| pod.metadata.resource_version)),
        }
    }

    /// Has the API server look at a pod, with every field checked, and make none: it would drop a field that it does not
    /// know without a word.
    pub(super) async fn try_create(&self, namespace: &str, pod: &Value) -> Result<(), kube::Error> {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", self.pods_api(namespace).resource_url());
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(pod.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        self.client.request::<Written>(in_brief(request)).await.map(|_| ())
    }

    /// Whether a pod's node is gone for good: our view of pods may be newer than that of nodes.
    async fn is_node_gone(&self, pod: &Pod) -> Result<bool, kube::Error> {
        let Some(node) = &pod.node else { return Ok(false) };
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        Ok(nodes.get_metadata_opt(node).await?.is_none())
    }
}

/// The patch that makes a pod what this hash says, but for cpu and memory.
fn edit(
    pod: &Pod,
    difference: &Difference,
    (hash, revision): (&str, &str),
    lifecycle: Option<State>,
    now: &str,
) -> Value {
    let target = Target {
        uid: &pod.meta.uid,
        version: pod.meta.version,
        hash,
        revision,
        now,
        state: pod.annotations.get(inplace::STATE_ANNOTATION),
        pending: pod.annotations.get(RESIZE_ANNOTATION).filter(|_| intent(pod) == Intent::Pending),
        containers: &running(pod),
        lifecycle: lifecycle.map(State::name),
    };
    inplace::edit(difference, &target)
}

/// Whether a pod is still to be resized.
fn is_pending(pod: &DynamicObject) -> bool {
    let label = pod.labels().get(HASH_LABEL).map(String::as_str).unwrap_or_default();
    let note = pod.annotations().get(RESIZE_ANNOTATION).map(String::as_str);
    inplace::intent(note, label, &pod.data) == Intent::Pending
}

/// Asks for a short answer: of a pod that was written only its version matters, and fleets write many.
fn in_brief(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(BRIEF));
    request
}

/// The revision that a node gets now.
fn revision_for(known: &Known, node: &str) -> Option<Arc<str>> {
    let node = known.fleet.node(node)?;
    let revision = if node.wanted == node.newest { &known.update } else { &known.current };
    Some(revision.meta.key.name.clone())
}

/// What it is in a revision that means this, and how many patches made it.
fn rendered_by<'m>(variants: &'m Renderings, revision: &str, meaning: &str) -> Option<(&'m Rendered, usize)> {
    let all = variants.get(revision)?.1.all().iter();
    let mut rendered = all.filter_map(|variant| Some((variant.rendering.as_ref().ok()?, variant.patches.len())));
    rendered.find(|(rendered, _)| *rendered.meaning == *meaning)
}

/// How many patches made what a node gets now.
pub(super) fn patches_on(memory: &Memory, node: &str) -> Option<usize> {
    let known = memory.known.as_ref()?;
    let revision = revision_for(known, node)?;
    rendered_by(&memory.variants, &revision, &known.fleet.node(node)?.wanted).map(|(_, patches)| patches)
}

fn outcome(sent: Result<Option<String>, kube::Error>) -> Outcome {
    match sent {
        Ok(version) => Outcome::Wrote(version_of(&version)),
        // Gone, or changed since it was looked at.
        Err(kube::Error::Api(error)) if [404, 409].contains(&error.code) => Outcome::Moved,
        Err(error) if is_refusal(&error) => Outcome::Refused(error),
        Err(error) => Outcome::Doubt(error),
    }
}

/// Whether an error says for sure that nothing was done.
pub(super) fn is_refusal(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => (400..500).contains(&status.code) || is_of_webhook(status),
        error => is_not_leading(error),
    }
}

/// Whether a webhook that could not be asked is in the way: then nothing was done, though the API server says 500.
fn is_of_webhook(error: &kube::core::Status) -> bool {
    error.code == 500 && error.message.contains("failed calling webhook")
}

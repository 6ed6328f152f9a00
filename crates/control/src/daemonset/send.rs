//! Requests for what was decided, and what the API server says to them.

use std::sync::Arc;

use dapple_plan::daemonset::cell::{Act, Why};
use dapple_plan::daemonset::consequence::Answered;
use dapple_plan::daemonset::desired::Rendered;
use dapple_plan::daemonset::fleet::Action;
use dapple_plan::daemonset::inplace::{self, Difference, Intent, RESIZE_ANNOTATION, Target};
use dapple_plan::daemonset::lifecycle::{self, State};
use dapple_plan::daemonset::pod::{HASH_LABEL, Wanted, pod, pod_name};
use dapple_plan::mutant::{Mutant, is_on};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::Value;
use tracing::info;

use super::Set;
use super::io::Io;
use super::known::{Known, VariantsOfRevisions};
use super::memory::{PodWrites, View};
use super::pod::intent;
use crate::slim::{Key, Pod};
use crate::writes::client::is_not_leading;
use crate::writes::outcome::{Outcome, exactly, outcome, version_of};

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

/// What has come of a request.
pub(super) enum Sent {
    /// It was written, or not.
    Answered(Outcome),
    /// Done: the object has this version now, and nothing has come of it.
    Ineffective(u64),
    /// Nothing was done: there is no reason to.
    Unfounded,
}

impl Sent {
    /// In the words of deciding.
    pub(super) fn answered(&self) -> Answered {
        match self {
            Self::Answered(Outcome::Written(_)) => Answered::Written,
            Self::Answered(Outcome::Gone) => Answered::Gone,
            Self::Answered(Outcome::Conflict) => Answered::Conflict,
            Self::Answered(Outcome::Missing) => Answered::Missing,
            Self::Answered(Outcome::NameTaken) => Answered::NameTaken,
            Self::Answered(Outcome::Refused(error)) if concerns_all(error) => Answered::Stopped,
            Self::Answered(Outcome::Refused(_)) => Answered::Refused,
            Self::Answered(Outcome::Unknown(_)) => Answered::Unknown,
            Self::Ineffective(_) => Answered::Ineffective,
            Self::Unfounded => Answered::Unfounded,
        }
    }

    /// The version that the object has now, if it was written.
    pub(super) fn version(&self) -> Option<u64> {
        match self {
            Self::Answered(Outcome::Written(version)) | Self::Ineffective(version) => Some(*version),
            _ => None,
        }
    }

    /// What the API server said, if it was not done, or may not have been.
    pub(super) fn error(&self) -> Option<&kube::Error> {
        match self {
            Self::Answered(Outcome::Refused(error) | Outcome::Unknown(error)) => Some(error),
            _ => None,
        }
    }

    /// The same, to be passed on.
    pub(super) fn into_error(self) -> Option<kube::Error> {
        match self {
            Self::Answered(Outcome::Refused(error) | Outcome::Unknown(error)) => Some(error),
            _ => None,
        }
    }
}

/// Whether a refusal is not about this write: this process does not lead, or asks too much.
fn concerns_all(error: &kube::Error) -> bool {
    is_not_leading(error) || matches!(error, kube::Error::Api(error) if error.code == 429)
}

/// Makes a request ready; nothing if the pod is gone.
pub(super) fn prepare(
    io: &Io,
    set: &Set,
    view: &mut View,
    pods: &PodWrites,
    action: &Action,
) -> Option<(Key, Request)> {
    let key_of = |name: &Arc<str>| Key { namespace: set.meta.key.namespace.clone(), name: name.clone() };
    if action.pod.as_ref().is_some_and(|name| pods.is_open(&key_of(name))) {
        return None;
    }
    let known = view.known.as_mut()?;
    let now = io.env.now().to_string();
    let Some(name) = &action.pod else {
        let revision = revision_for(known, &action.node)?;
        let node = known.fleet.node(&action.node)?;
        let (rendered, _) = rendered_by(&view.variants, &revision, &node.wanted)?;
        let gates = lifecycle::gates(&set.spec);
        let wanted = Wanted {
            set: &set.meta.key.name,
            uid: &set.meta.uid,
            node: &action.node,
            template: &rendered.template,
            hash: &rendered.hash,
            revision: &revision,
            gates: &gates,
            collisions: pods.collisions.get(&action.node).copied().unwrap_or(0),
        };
        let key = Key::new(&set.meta.key.namespace, &pod_name(&wanted));
        return Some((key, Request::Create(Box::new(pod(&wanted)))));
    };
    let key = key_of(name);
    // Our view goes on while we ask and wait: what was decided about a pod holds for what it was then.
    let decided = known.fleet.pod(name)?.version;
    let pod = io.pods.get(&key).filter(|pod| pod.meta.version == decided)?;
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
            let (rendered, _) = rendered_by(&view.variants, &revision, &hash)?;
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

pub(super) async fn send(io: &Io, set: &Set, key: &Key, request: Request) -> Sent {
    let pods = io.pod_writer(&set.meta.key.namespace);
    let name = key.name.as_ref();
    Sent::Answered(match request {
        Request::Create(body) => create(io, set, key, &body).await,
        Request::Delete(pod, why) => {
            if why == Why::NodeGone {
                match is_node_gone(io, &pod).await {
                    Ok(true) => {}
                    Ok(false) => return Sent::Unfounded,
                    Err(error) => return Sent::Answered(Outcome::Unknown(error)),
                }
            }
            info!(set = %set.meta.key, pod = name, ?why, "deleting");
            if why == Why::Ended {
                io.reporter.say_ended(set, &pod);
            }
            pods.delete(name, Some(exactly(&pod.meta)).filter(|_| !is_on(Mutant::PreconditionDropped))).await
        }
        Request::Metadata(patch) => pods.patch(name, None, &Patch::Strategic(patch)).await,
        Request::Status(patch) => pods.patch(name, Some("status"), &Patch::Strategic(patch)).await,
        Request::Edit(patch) => {
            info!(set = %set.meta.key, pod = name, "updating in place");
            pods.patch(name, None, &Patch::Strategic(patch)).await
        }
        Request::Resize(patch) => {
            info!(set = %set.meta.key, pod = name, "resizing");
            return resize(io, set, name, patch).await;
        }
    })
}

/// Gives a pod the cpu and memory that are noted on it.
async fn resize(io: &Io, set: &Set, name: &str, patch: Value) -> Sent {
    let api = io.pods_api(&set.meta.key.namespace);
    match api.patch_subresource("resize", name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        // A webhook of somebody else may set them back: that would go on for ever.
        Ok(pod) if is_pending(&pod) => Sent::Ineffective(version_of(&pod.metadata)),
        answer => Sent::Answered(outcome(answer.map(|pod| version_of(&pod.metadata)))),
    }
}

async fn create(io: &Io, set: &Set, key: &Key, body: &Value) -> Outcome {
    let namespace = &set.meta.key.namespace;
    let made = io.pod_writer(namespace).create(body.to_string().into_bytes()).await;
    if !matches!(made, Outcome::NameTaken) {
        return made;
    }
    let hash = body["metadata"]["labels"][HASH_LABEL].as_str();
    match io.pods_api(namespace).get_opt(&key.name).await {
        Ok(Some(found)) => {
            // One that was changed where it runs since has the name of what it was, and is in the way.
            let is_same = found.labels().get(HASH_LABEL).map(String::as_str) == hash;
            let is_ours = is_same && found.owner_references().iter().any(|owner| *owner.uid == *set.meta.uid);
            // Made before, by us, and on its way into our view, or out of the world.
            if is_ours { Outcome::Written(version_of(&found.metadata)) } else { Outcome::NameTaken }
        }
        Ok(None) => Outcome::Conflict,
        Err(error) => Outcome::Unknown(error),
    }
}

/// Whether a pod's node is gone for good: our view of pods may be newer than that of nodes.
async fn is_node_gone(io: &Io, pod: &Pod) -> Result<bool, kube::Error> {
    let Some(node) = &pod.node else { return Ok(false) };
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(io.client.clone());
    Ok(nodes.get_metadata_opt(node).await?.is_none())
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
        containers: &pod.running(),
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

/// The revision that a node gets now.
fn revision_for(known: &Known, node: &str) -> Option<Arc<str>> {
    let node = known.fleet.node(node)?;
    let revision = if node.wanted == node.newest { &known.update } else { &known.current };
    Some(revision.meta.key.name.clone())
}

/// What it is in a revision that means this, and how many patches made it.
fn rendered_by<'m>(variants: &'m VariantsOfRevisions, revision: &str, meaning: &str) -> Option<(&'m Rendered, usize)> {
    let all = variants.get(revision)?.1.all().iter();
    let mut rendered = all.filter_map(|variant| Some((variant.rendering.as_ref().ok()?, variant.patches.len())));
    rendered.find(|(rendered, _)| *rendered.meaning == *meaning)
}

/// How many patches made what a node gets now.
pub(super) fn patches_on(view: &View, node: &str) -> Option<usize> {
    let known = view.known.as_ref()?;
    let revision = revision_for(known, node)?;
    rendered_by(&view.variants, &revision, &known.fleet.node(node)?.wanted).map(|(_, patches)| patches)
}

//! Revisions: making the newest, dropping those that nobody needs, and asking the API server what it thinks of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::daemonset::DaemonSetStatus;
use dapple_plan::daemonset::desired::{Unrendered, Variants};
use dapple_plan::daemonset::pod::{REVISION_ANNOTATION, Wanted, pod};
use dapple_plan::daemonset::revision::{Revision, Step, object, settle, spec_of, surplus};
use dapple_plan::daemonset::rollback::CHANGE_CAUSE;
use dapple_plan::daemonset::status::Problem;
use dapple_plan::fit;
use dapple_plan::mutant::{Mutant, is_on};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use super::look::{hash_label, taints_of};
use super::memory::{Memory, Refusal};
use super::tell::PACE;
use super::{DaemonSets, Set, SetRevision, version_of};
use crate::slim::Node;
use crate::store::{Index, Key};

/// How soon to ask again whether a rendering is taken, in seconds: a quota or a webhook may have changed.
const ASK_AGAIN: i64 = 30;

impl DaemonSets {
    /// Sees to it that the newest revision is what the set says. Nothing if it was written just now.
    pub(super) async fn settle(
        &self,
        set: &Set,
        memory: &mut Memory,
        revisions: &[Arc<SetRevision>],
    ) -> Result<Option<Arc<SetRevision>>, kube::Error> {
        let known: Vec<Revision> = revisions.iter().map(|known| known.as_revision(set)).collect();
        let find = |name: &str| revisions.iter().find(|known| *known.meta.key.name == *name).cloned();
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &set.meta.key.namespace);
        let collisions = set.status.collision_count.unwrap_or(0);
        let written = match settle(&set.meta.key.name, &set.spec, &known, collisions) {
            Step::Keep { name } => return Ok(find(&name)),
            Step::Renumber { name, number } => {
                let version = find(&name).map(|known| known.meta.version.to_string());
                let patch = json!({"metadata": {"resourceVersion": version}, "revision": number});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?
            }
            // A new set may have been left some that are not in our view yet: they are taken in first.
            Step::Create(_) if revisions.is_empty() && self.has_orphans(set, &api).await? => return Ok(None),
            Step::Create(revision) => {
                let cause = set.annotations.get(CHANGE_CAUSE).map(String::as_str);
                let object = object(&revision, (&set.meta.key.name, &set.meta.uid), &set.spec, cause);
                let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
                match api.create(&PostParams::default(), &object).await {
                    Err(kube::Error::Api(error)) if error.code == 409 => {
                        return self.collide(set, memory, (&api, &revision), collisions).await.map(|()| None);
                    }
                    other => other?,
                }
            }
        };
        let key = Key::new(&set.meta.key.namespace, &written.name_any());
        info!(set = %set.meta.key, revision = %key.name, "revision written");
        self.revisions.wrote(&key, version_of(&written.metadata.resource_version));
        memory.wrote_revision(key);
        Ok(None)
    }

    /// Whether there are revisions that the set selects and nobody owns. Asks the API server itself: our view of
    /// revisions may be older than that of sets.
    async fn has_orphans(&self, set: &Set, api: &Api<ControllerRevision>) -> Result<bool, kube::Error> {
        let Some(selector) = &set.selector else { return Ok(false) };
        let all = api.list_metadata(&ListParams::default()).await?;
        Ok(all.iter().any(|known| {
            let is_owned = known.owner_references().iter().any(|owner| owner.controller == Some(true));
            !is_owned && selector.matches(|key| known.labels().get(key).map(String::as_str))
        }))
    }

    /// The name of a new revision is taken: by ourselves, and not seen yet, or by something else. Then another name is
    /// used from now on.
    async fn collide(
        &self,
        set: &Set,
        memory: &mut Memory,
        (api, revision): (&Api<ControllerRevision>, &Revision),
        collisions: i32,
    ) -> Result<(), kube::Error> {
        let found = api.get_opt(&revision.name).await?;
        let is_ours =
            |found: &ControllerRevision| found.owner_references().iter().any(|owner| *owner.uid == *set.meta.uid);
        if found.as_ref().is_none_or(is_ours) {
            return Ok(());
        }
        let status = DaemonSetStatus { collision_count: Some(collisions + 1), ..set.status.clone() };
        self.write_status(set, memory, &status).await.map(|_| ())
    }

    /// Drops revisions beyond the limit that no pod and no node needs, if something has changed that may have set one
    /// free. Returns when to try what had to wait.
    pub(super) async fn prune(&self, set: &Set, memory: &mut Memory) -> Result<Option<Duration>, kube::Error> {
        let Some(known) = memory.known.as_ref().filter(|_| memory.may_prune && !is_on(Mutant::HistoryKept)) else {
            return Ok(None);
        };
        let revisions = self.revisions.find(Index::Owner, &set.meta.uid);
        let limit = usize::try_from(set.spec.revision_history_limit()).unwrap_or(0);
        if revisions.len() <= limit {
            memory.may_prune = false;
            return Ok(None);
        }
        let waited = memory.pruned.map_or(PACE, |pruned| pruned.elapsed());
        if waited < PACE {
            return Ok(Some(PACE - waited));
        }
        let all: Vec<Revision> = revisions.iter().map(|revision| revision.as_revision(set)).collect();
        let pods = self.pods.find(Index::Owner, &set.meta.uid);
        let is_needed = |revision: &Revision| {
            [&known.update, &known.current].iter().any(|known| *known.meta.key.name == *revision.name)
                || pods.iter().any(|pod| match pod.annotations.get(REVISION_ANNOTATION) {
                    Some(name) => name == revision.name,
                    None => hash_label(pod) == revision.hash,
                })
        };
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &set.meta.key.namespace);
        let mut is_all_done = true;
        for spare in surplus(&all, limit, is_needed) {
            let Some(found) = revisions.iter().find(|known| *known.meta.key.name == *spare.name) else { continue };
            // An undo may have made it the newest meanwhile.
            let version = Some(found.meta.version.to_string());
            let only = Preconditions { uid: Some(found.meta.uid.to_string()), resource_version: version };
            let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            info!(set = %set.meta.key, revision = %spare.name, "dropping a revision that nobody needs");
            match api.delete(&spare.name, &params).await {
                Err(kube::Error::Api(error)) if error.code == 404 => {}
                Err(kube::Error::Api(error)) if error.code == 409 => is_all_done = false,
                answer => _ = answer?,
            }
        }
        memory.may_prune = !is_all_done;
        memory.pruned = Some(Instant::now());
        Ok((!is_all_done).then_some(PACE))
    }

    /// Asks the API server whether it would take pods of each variant, before any pod is taken away for one of them:
    /// where it would not, nodes keep what they run. One question for each variant of a revision.
    pub(super) async fn prove(
        &self,
        set: &Set,
        memory: &mut Memory,
        update: &SetRevision,
        nodes: &[Arc<Node>],
    ) -> Result<(), kube::Error> {
        let (now, name) = (self.env.now().as_second(), &update.meta.key.name);
        let Some((_, variants)) = memory.variants.get_mut(name) else { return Ok(()) };
        self.match_patches(&set.meta.key, variants, nodes);
        let rendered: Vec<_> =
            variants.all().iter().filter_map(|known| known.rendering.as_ref().ok()).cloned().collect();
        // What nobody should get any more is not asked for again.
        memory.proven.retain(|hash, _| rendered.iter().any(|known| known.hash == *hash));
        for rendered in rendered {
            let is_open = |proof: &Result<(), Refusal>| proof.as_ref().is_err_and(|refusal| refusal.ask_again <= now);
            if memory.proven.get(&rendered.hash).is_some_and(|proof| !is_open(proof)) {
                continue;
            }
            let wanted = Wanted {
                set: &set.meta.key.name,
                uid: &set.meta.uid,
                node: "dry-run",
                template: &rendered.template,
                hash: &rendered.hash,
                revision: name,
                gates: &[],
                collisions: 0,
            };
            let proof = match self.try_create(&set.meta.key.namespace, &pod(&wanted)).await {
                // That there is no room for one more says nothing about the template: the old pod makes room.
                Err(kube::Error::Api(error)) if error.code == 403 && error.message.contains("exceeded quota") => Ok(()),
                Err(kube::Error::Api(error)) if [400, 403, 422].contains(&error.code) => {
                    self.count_refused(&set.meta.key, variants, &rendered.hash, nodes);
                    Err(Refusal { text: error.message, ask_again: now + ASK_AGAIN })
                }
                // Anything else that fails says nothing about the template: nothing is decided before it is known.
                answer => {
                    answer?;
                    Ok(())
                }
            };
            memory.proven.insert(rendered.hash.clone(), proof);
        }
        Ok(())
    }

    /// What is wrong with what nodes should get.
    pub(super) fn rendering_problems(
        &self,
        memory: &mut Memory,
        update: &SetRevision,
        nodes: &[Arc<Node>],
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        if spec_of(&update.data).is_none() {
            let text = format!("ControllerRevision {} cannot be read; nodes keep what they run", update.meta.key.name);
            problems.push(Problem::new("UnreadableRevision", text));
        }
        let Some((_, variants)) = memory.variants.get_mut(&update.meta.key.name) else { return problems };
        for bad in &variants.bad_selectors {
            problems.push(Problem::new("BadSelector", format!("{bad}; the patch matches no node")));
        }
        let mut counts: Option<BTreeMap<usize, usize>> = None;
        for number in 0..variants.all().len() {
            let variant = &variants.all()[number];
            let places: Vec<String> = variant.patches.iter().map(|place| format!("spec.patches[{place}]")).collect();
            let whose = if places.is_empty() { "spec.template".to_owned() } else { places.join(", ") };
            let (reason, text) = match &variant.rendering {
                Err(error @ Unrendered::Edit(_)) => ("PatchFailed", error.to_string()),
                Err(error @ Unrendered::Unselected) => ("PatchFailed", format!("{whose}: {error}")),
                Ok(rendered) => match memory.proven.get(&rendered.hash) {
                    Some(Err(refusal)) => ("Refused", format!("{whose}: {}", refusal.text)),
                    _ => continue,
                },
            };
            let counts = counts.get_or_insert_with(|| concerned(variants, nodes));
            // Patches for nodes that the set is not for do no harm.
            let Some(count) = counts.get(&number) else { continue };
            let extent = format!("; {count} nodes keep what they run");
            problems.push(Problem { reason, text, extent });
        }
        problems
    }
}

/// By variant: the nodes that should have a pod of it.
fn concerned(variants: &mut Variants, nodes: &[Arc<Node>]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for node in nodes {
        let node = fit::Node { name: node.name(), labels: &node.labels, taints: &taints_of(node) };
        let variant = variants.of(node);
        if variants.misfit(variant, node).is_none() {
            *counts.entry(variant).or_default() += 1;
        }
    }
    counts
}

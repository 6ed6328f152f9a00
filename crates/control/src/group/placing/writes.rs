//! What is written to pods that wait: the gate off with all that goes with it, or another pod in their place.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use dapple_api::kinds::POD;
use dapple_plan::group::costs::DELETION_COST;
use dapple_plan::group::edition::{Correction, EDITION};
use dapple_plan::group::placing::{GATE, Placement};
use dapple_plan::group::seating::Suits;
use k8s_openapi::api::core::v1;
use kube::api::Api;
use serde_json::{Map, Value, json};
use tracing::{debug, info};

use super::super::asking::{Asking, copied_labels, has_outdated_labels};
use super::super::editions::EditionsOfOwner;
use super::super::gates::{opening, whole};
use super::super::owner::OwnerKey;
use super::{Doubt, ECHO, Placements, Waiting};
use crate::queue::Ended;
use crate::slim::Pod;
use crate::writes::outcome::{Outcome, version_of};

impl Placements {
    /// Repeats writes of which nobody knows whether they were done, word for word: one that is still under way may come after it,
    /// and must find either the same done or another version. Nothing is decided until the view is as new as the answer.
    pub(super) async fn resolve(&self, at: &OwnerKey) -> Result<(), kube::Error> {
        let in_doubt = || self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner);
        let own: Vec<Doubt> = in_doubt().values().filter(|doubt| doubt.owner == *at).cloned().collect();
        for Doubt { pod, opening, .. } in own {
            let key = pod.meta.key.clone();
            if let Outcome::Unknown(error) = self.gates.open(&pod, &opening).await {
                return Err(error);
            }
            let api = Api::<v1::Pod>::namespaced(self.client.clone(), &key.namespace);
            if let Some(found) = api.get_metadata_opt(&key.name).await? {
                self.pods().wrote(&key, version_of(&found.metadata));
            }
            in_doubt().remove(&key);
            // If it was not done, no change of the pod will tell.
            self.seatings.pod_changed(&key, BTreeSet::from([at.clone()]));
        }
        Ok(())
    }

    /// Takes the gate off a pod that nothing asks a place for.
    pub(super) async fn release(
        &self,
        at: &OwnerKey,
        pod: Arc<Pod>,
        asking: Option<&Asking>,
    ) -> Result<Ended, kube::Error> {
        let labels = self.labels(at, &pod, asking).await?;
        match self.gates.open(&pod, &opening(&pod, labels, None, Map::new())).await {
            Outcome::Written(_) => {
                info!(pod = %pod.meta.key, "nothing asks where it goes: the gate is off");
                Ok(Ended::Done)
            }
            outcome => failed(outcome),
        }
    }

    /// Places a pod, and notes what has come of it.
    pub(super) async fn place(
        &self,
        at: &OwnerKey,
        waiting: &Waiting<'_>,
        placement: &Placement,
        editions: &EditionsOfOwner,
    ) -> Result<Ended, kube::Error> {
        let Waiting { pod, asking } = waiting;
        let correction = match self.correction(at, waiting, placement, editions).await? {
            Some(Correction::Patch(correction)) => correction,
            Some(Correction::NewPod) => return self.replace(at, waiting).await,
            // It is gone, or another by now.
            None => return Ok(Ended::Failed),
        };
        let mut labels = self.labels(at, pod, Some(asking)).await?;
        labels.insert(GATE.to_owned(), json!(&*placement.group));
        let opening = opening(pod, labels, Some(placement), correction);
        let outcome = self.gates.open(pod, &opening).await;
        // If nobody knows whether it was done, its seat is nobody else's until somebody does.
        if let Outcome::Written(_) | Outcome::Unknown(_) = outcome {
            self.seatings.note_placed(at, pod, placement);
            self.rooms.note_placed(&pod.meta.key, &placement.group);
        }
        match outcome {
            Outcome::Written(_) => {
                self.counted.placed();
                self.replacements.placed(at);
                self.tell_kept(pod, placement);
                Ok(Ended::Done)
            }
            Outcome::Unknown(error) => {
                let mut in_doubt = self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner);
                in_doubt.insert(pod.meta.key.clone(), Doubt { owner: at.clone(), pod: pod.clone(), opening });
                Err(error)
            }
            outcome => failed(outcome),
        }
    }

    /// What a pod that leaves the gate is given of the four labels of policies. Node gateways hand no pod over whose labels ask
    /// for a policy that is not confirmed.
    async fn labels(
        &self,
        at: &OwnerKey,
        pod: &Pod,
        asking: Option<&Asking>,
    ) -> Result<Map<String, Value>, kube::Error> {
        // Only the template tells which of them were copied.
        let template = match has_outdated_labels(asking, &pod.labels) {
            true => self.editions.templates.get(&self.client, &self.applications, at).await?,
            false => None,
        };
        Ok(copied_labels(asking, &pod.labels, template.as_deref().map(|template| &*template.value)))
    }

    /// What a pod has of its own that dapple would have otherwise.
    fn tell_kept(&self, pod: &Pod, placement: &Placement) {
        if placement.has_own_cost {
            let note = format!(
                "it has a {DELETION_COST} of its own, which is left alone: when there are fewer pods, it may go though its \
                 group should keep it"
            );
            self.waits.report(POD, &pod.meta.key, &pod.meta.uid, "DeletionCostKept", note);
        }
        if placement.suits == Suits::Never {
            let note = format!(
                "it was not made by the edition of its group {:?}, and cannot be changed any more; it is placed as it is, since \
                 deleting it would lose it",
                placement.group
            );
            self.waits.report(POD, &pod.meta.key, &pod.meta.uid, "EditionKept", note);
        }
    }

    /// What a pod lacks of the edition of its group. None if it is gone.
    async fn correction(
        &self,
        at: &OwnerKey,
        waiting: &Waiting<'_>,
        placement: &Placement,
        editions: &EditionsOfOwner,
    ) -> Result<Option<Correction>, kube::Error> {
        let pod = &waiting.pod;
        if placement.suits != Suits::Corrected {
            return Ok(Some(Correction::Patch(Map::new())));
        }
        let Some(whole) = whole(&self.client, pod).await? else { return Ok(None) };
        let corrected =
            editions.correct(&waiting.asking.labels, &whole, pod.annotations.get(EDITION), &placement.group);
        let kept = |text: &str| {
            let note = format!("it is placed without the edition of its group {:?}: {text}", placement.group);
            self.waits.report(POD, &pod.meta.key, &pod.meta.uid, "EditionKept", note);
            Ok(Some(Correction::Patch(Map::new())))
        };
        match corrected {
            Ok(Correction::NewPod) if editions.are_kept => {
                kept("of a pod that is there already, Kubernetes lets nobody change what the rules change")
            }
            Ok(correction) => Ok(Some(correction)),
            Err(text) if editions.are_kept => kept(&text),
            Err(text) => {
                debug!(owner = %at, pod = %pod.meta.key, text, "it cannot be corrected");
                Ok(Some(Correction::NewPod))
            }
        }
    }

    /// Deletes a pod that was made by another group's edition: its owner makes one anew.
    pub(super) async fn replace(&self, at: &OwnerKey, waiting: &Waiting<'_>) -> Result<Ended, kube::Error> {
        let Waiting { pod, asking } = waiting;
        if let Err(wait) = self.replacements.replace(at) {
            return Ok(Ended::Again(wait));
        }
        match self.gates.delete(pod).await {
            Outcome::Gone | Outcome::Written(_) | Outcome::Missing => {
                info!(owner = %at, pod = %pod.meta.key, "made by another group's edition: it is replaced behind the gate");
                if self.replacements.are_in_vain(at) {
                    self.tell_in_vain(asking);
                }
                Ok(Ended::Again(ECHO))
            }
            outcome => failed(outcome),
        }
    }

    fn tell_in_vain(&self, asking: &Asking) {
        let key = &asking.meta.key;
        let known = self.applications.by_uid(&key.namespace, &asking.meta.uid);
        let note = "new pods of it are made by the edition of another group time and again, or by none, and replaced behind the \
                    gate, more slowly each time: see whether another webhook takes out of them what rules of its OverridePolicy \
                    change, and whether dapple's webhook for pods is called";
        let kind = known.map_or(POD, |(kind, _)| kind);
        self.waits.report(kind, key, &asking.meta.uid, "EditionReplaced", note.to_owned());
    }
}

/// What follows from a write that was not done.
fn failed(outcome: Outcome) -> Result<Ended, kube::Error> {
    match outcome {
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
        // It is another one by now: what has changed is told, and looked at then.
        _ => Ok(Ended::Failed),
    }
}

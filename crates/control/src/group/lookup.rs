//! What the API server has to be asked about an owner of pods, where the caches do not tell.

use dapple_api::kinds::{NATIVE_DAEMON_SET, POD};
use dapple_plan::mutant::{Mutant, is_on};
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use super::application::{Applicant, Applications, Asking};
use super::owner::{Owner, OwnerKey, number_label};
use super::seated::{Numbering, Seatings};
use crate::observed::Observed;
use crate::slim::Pod;

/// Finds it out.
pub(super) struct Lookup<'a> {
    pub(super) client: &'a Client,
    pub(super) applications: &'a Applications,
    pub(super) seatings: &'a Seatings,
}

impl Lookup<'_> {
    /// What asks in the name of an owner's pods.
    pub(super) async fn applicant(&self, at: &OwnerKey, pod: &Pod) -> Result<Applicant, kube::Error> {
        let Owner::Revision { uid, .. } = &at.owner else { return Ok(Applicant::Is(Asking::of_pod(pod))) };
        if let Some((kind, owner)) = self.applications.by_uid(&at.namespace, uid) {
            // Where pods of a DaemonSet go is decided already.
            let is_daemon = kind == NATIVE_DAEMON_SET.at;
            return Ok(if is_daemon { Applicant::None } else { self.applications.application_of(&owner) });
        }
        // Its owner is not of a kind that can ask, or not known here yet: the API server knows which.
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.namespace, &POD);
        let found = api.get_opt(&pod.meta.key.name).await?.and_then(|found| found.object.ok());
        let Some(whole) = found else { return Ok(Applicant::Unknown) };
        let owners = whole["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut own = owners.filter(|owner| owner["uid"] == **uid);
        let is_listed = own.any(|owner| self.applications.can_ask(&text(&owner["apiVersion"]), &text(&owner["kind"])));
        Ok(if is_listed { Applicant::Unknown } else { Applicant::None })
    }

    /// How an owner numbers its pods.
    pub(super) async fn numbering(&self, at: &OwnerKey) -> Result<Numbering, kube::Error> {
        let Owner::Revision { uid, .. } = &at.owner else { return Ok(Numbering::default()) };
        let Some((kind, owner)) = self.applications.by_uid(&at.namespace, uid) else { return Ok(Numbering::default()) };
        let Some(label) = number_label(kind.kind) else { return Ok(Numbering::default()) };
        if let Some(known) = self.seatings.numbering(at, owner.generation) {
            return Ok(known);
        }
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.namespace, &kind);
        let found = api.get_opt(&owner.meta.key.name).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        let start = found.pointer("/spec/ordinals/start").and_then(Value::as_u64);
        let start = start.filter(|_| !is_on(Mutant::StartForgotten));
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        Ok(Numbering { label: Some(label), start, generation: found["metadata"]["generation"].as_i64() })
    }
}

//! What webhooks know of applications and policies: which new pods have to wait behind the gate, and in which namespaces
//! somebody asks for policies at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::NATIVE_DAEMON_SET;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::gate;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::application::{Applicant, Applications, can_ask, is_served};
use super::policy::Policy;
use crate::caches::{Caches, Subscription};
use crate::slim::{Cached, Key};

/// What is known.
pub struct Gatekeeper {
    applications: Applications,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    overrides: Subscription<Policy<OverridePolicySpec>>,
    own_namespace: String,
}

impl Gatekeeper {
    /// Subscribes. `on_change` is called whenever somebody may ask for policies in another namespace than before.
    pub fn start(
        caches: &Caches,
        life: &CancellationToken,
        own_namespace: &str,
        on_change: impl Fn() + Clone + Send + 'static,
    ) -> Self {
        let (propagation, overriding) = (on_change.clone(), on_change.clone());
        Self {
            applications: Applications::subscribe(caches, life, move |_| on_change()),
            propagations: caches.open().subscribe(life, move |_| propagation()),
            overrides: caches.open().subscribe(life, move |_| overriding()),
            own_namespace: own_namespace.to_owned(),
        }
    }

    /// Whether everything is known.
    pub fn is_complete(&self) -> bool {
        self.propagations.is_known() && self.overrides.is_known() && self.applications.is_known()
    }

    /// Whether there is a policy in this namespace, or something with one of the four labels.
    pub fn is_asked(&self, namespace: &str) -> bool {
        self.applications.has_labelled(namespace)
            || !self.propagations.in_namespace(namespace).is_empty()
            || !self.overrides.in_namespace(namespace).is_empty()
    }

    /// Whether there may be such a policy: there is, or it cannot be read, or the kind is not installed.
    pub fn may_have_policy(&self, pair: Pair, namespace: &str, name: &str) -> bool {
        let key = Key::new(namespace, name);
        match pair {
            Pair::Propagation => may_have(&self.propagations, &key),
            Pair::Override => may_have(&self.overrides, &key),
        }
    }

    /// The operations of a JSON patch that puts a new pod behind the gate; none if it need not wait.
    pub fn patch(&self, namespace: &str, pod: &Value) -> Vec<Value> {
        if !is_served(namespace, &self.own_namespace) {
            return Vec::new();
        }
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten().filter(|owner| owner["controller"] == true);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(owner) = owners.next() else {
            let labels = labels_of(pod);
            return gate::patch(pod, gate::Applicant::Of(&labels));
        };
        if !can_ask(&text(&owner["apiVersion"]), &text(&owner["kind"])) {
            return Vec::new();
        }
        // They belong to their nodes.
        if text(&owner["kind"]) == NATIVE_DAEMON_SET.at.kind {
            return Vec::new();
        }
        match self.applications.by_uid(namespace, &text(&owner["uid"])) {
            Some((_, owner)) => match self.applications.application_of(&owner) {
                Applicant::Is(application) => gate::patch(pod, gate::Applicant::Of(&application.labels)),
                Applicant::None => Vec::new(),
                Applicant::Unknown => gate::patch(pod, gate::Applicant::Unknown),
            },
            None => gate::patch(pod, gate::Applicant::Unknown),
        }
    }

    /// The namespaces in which there is a policy, or something with one of the four labels.
    pub fn namespaces(&self) -> BTreeSet<Arc<str>> {
        let mut found = self.applications.namespaces();
        self.propagations.for_each(|policy| _ = found.insert(policy.meta().key.namespace.clone()));
        self.overrides.for_each(|policy| _ = found.insert(policy.meta().key.namespace.clone()));
        found.retain(|namespace| is_served(namespace, &self.own_namespace));
        found
    }
}

fn labels_of(pod: &Value) -> std::collections::BTreeMap<String, String> {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn may_have<T: Cached>(known: &Subscription<T>, key: &Key) -> bool {
    !known.is_known() || known.get(key).is_some() || known.is_malformed(key)
}

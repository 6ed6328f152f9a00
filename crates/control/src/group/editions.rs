//! The editions that pods of an owner get: what their OverridePolicy makes of their template, by group, and whether the API
//! server takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use dapple_api::group::OverridePolicySpec;
use dapple_api::kinds::NATIVE_JOB;
use dapple_plan::group::binding::{Pair, Situation};
use dapple_plan::group::edition::{Correction, Editions};
use dapple_plan::group::seating::Suits;
use dapple_plan::node::Labels;
use dapple_plan::proof::{Answer, is_to_ask};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use super::application::Applications;
use super::owner::OwnerKey;
use super::policy::Policy;
use super::template::Templates;
use crate::caches::store::Store;
use crate::env::Env;
use crate::proof::ask;
use crate::slim::Key;
use crate::writes::outcome::Writer;

/// Answers are kept of so many renderings.
const MOST_ANSWERS: usize = 1_024;

/// Finds out editions.
pub(super) struct Editioner {
    pub(super) client: Client,
    pub(super) env: Env,
    pub(super) templates: Templates,
    answers: Mutex<BTreeMap<Arc<str>, Answer>>,
}

/// The editions of an owner's pods.
pub(super) struct EditionsOfOwner {
    /// By the OverridePolicy that pods ask for: one, or of pods that nothing owns several.
    by_policy: BTreeMap<Arc<str>, Editions>,
    unrendered: BTreeMap<Arc<str>, String>,
    /// Whether pods must not be replaced by others.
    pub(super) are_kept: bool,
}

impl EditionsOfOwner {
    /// How a pod that names this edition suits each group.
    pub(super) fn suits(&self, groups: &[Arc<str>], edition: Option<&str>) -> Vec<Suits> {
        let mut suits = vec![Suits::AsItIs; groups.len()];
        match edition {
            // Of pods that nothing owns, any may ask for any policy: the worst counts.
            None => self.by_policy.values().for_each(|editions| {
                let of_policy = editions.suits(groups, None);
                suits.iter_mut().zip(of_policy).for_each(|(suits, other)| *suits = other.max(*suits));
            }),
            Some(name) => {
                let known = self.by_policy.values().find(|editions| editions.has(name));
                suits = known.map_or_else(|| vec![Suits::Never; groups.len()], |known| known.suits(groups, edition));
            }
        }
        suits
    }

    /// Groups that have no edition that renders, and why.
    pub(super) fn unrendered(&self) -> &BTreeMap<Arc<str>, String> {
        &self.unrendered
    }

    /// Whether every group has an edition that the API server takes.
    pub(super) fn is_proved(&self) -> bool {
        self.unrendered.is_empty()
    }

    /// How a pod of an application with these labels gets the edition of a group, in place of the one that it names.
    pub(super) fn correct(
        &self,
        labels: &dyn Labels,
        pod: &Value,
        edition: Option<&str>,
        group: &str,
    ) -> Result<Correction, String> {
        let none = Editions::default();
        let policy = policy_name(labels).and_then(|name| self.by_policy.get(name));
        policy.unwrap_or(&none).correct(pod, edition, group)
    }
}

/// The name of the policy by which pods of an application differ, if one is confirmed.
pub(super) fn policy_name(labels: &dyn Labels) -> Option<&str> {
    match Pair::Override.situation(labels) {
        Situation::Bound(name) => Some(name),
        _ => None,
    }
}

/// How people name a policy.
pub(super) fn shown(policy: &Policy<OverridePolicySpec>) -> String {
    format!("OverridePolicy {}", policy.meta.key)
}

impl Editioner {
    pub(super) fn new(client: Client, env: Env) -> Self {
        Self { client, env, templates: Templates::default(), answers: Mutex::default() }
    }

    /// What policies make of an owner's pods in these groups. `asking` has the labels of what asks for each pod. None if their
    /// template is not known.
    pub(super) async fn of_owner<'l, L: Labels + 'l>(
        &self,
        applications: &Applications,
        overrides: &Store<Policy<OverridePolicySpec>>,
        at: &OwnerKey,
        asking: impl Iterator<Item = &'l L>,
        groups: &[Arc<str>],
    ) -> Result<Option<EditionsOfOwner>, kube::Error> {
        let names: BTreeSet<&str> = asking.filter_map(|labels| policy_name(labels)).collect();
        let (mut by_policy, mut unrendered) = (BTreeMap::new(), BTreeMap::new());
        for name in names {
            let key = Key { namespace: at.namespace.clone(), name: Arc::from(name) };
            // One that is gone is not confirmed for long: then its pods wait.
            let Some(policy) = overrides.get(&key) else { return Ok(None) };
            let Some(editions) = self.of_policy(applications, at, &policy, groups).await? else { return Ok(None) };
            unrendered.extend(editions.unrendered.clone());
            by_policy.insert(key.name, editions);
        }
        let kind = at.uid().and_then(|uid| applications.by_uid(&at.namespace, uid)).map(|(kind, _)| kind);
        let are_kept = at.is_nobody() || kind == Some(NATIVE_JOB.at);
        Ok(Some(EditionsOfOwner { by_policy, unrendered, are_kept }))
    }

    /// What a policy makes of an owner's pods in these groups, each rendering proved by a dry run.
    async fn of_policy(
        &self,
        applications: &Applications,
        at: &OwnerKey,
        policy: &Policy<OverridePolicySpec>,
        groups: &[Arc<str>],
    ) -> Result<Option<Editions>, kube::Error> {
        let template = self.templates.get(&self.client, applications, at).await?;
        if template.is_none() && !at.is_nobody() {
            return Ok(None);
        }
        let template = template.map(|template| template.value.clone());
        let mut editions = Editions::of(&shown(policy), &policy.spec, groups, template);
        let Some(template) = editions.template.clone() else { return Ok(Some(editions)) };
        for group in groups {
            let edition = editions.of_group(group);
            let (Some(name), Ok(rendering)) = (&edition.name, edition.render(&template)) else { continue };
            let meaning: Arc<str> = Arc::from(format!("{at} {name} {}", policy.meta.uid));
            if let Some(text) = self.refusal(at, meaning, &rendering).await? {
                editions.unrendered.insert(group.clone(), text);
            }
        }
        Ok(Some(editions))
    }

    /// Why pods of this rendering would not be taken, or are not known to be.
    async fn refusal(
        &self,
        at: &OwnerKey,
        meaning: Arc<str>,
        rendering: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let now = self.env.now().as_second();
        let answers = || self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if is_to_ask(&answers(), &meaning, now) {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": rendering["metadata"], "spec": rendering["spec"]});
            pod["metadata"]["generateName"] = "dapple-dry-run-".into();
            let pods = Api::<Pod>::namespaced(self.client.clone(), &at.namespace);
            let answer = ask(&Writer::new(&self.client, &pods), &pod, &self.env).await?;
            let mut answers = answers();
            if answers.len() >= MOST_ANSWERS {
                answers.clear();
            }
            answers.insert(meaning.clone(), answer);
        }
        Ok(match answers().get(&meaning) {
            Some(Answer::Taken) => None,
            Some(Answer::Refused { text, .. }) => Some(format!("the API server refuses such pods: {text}")),
            Some(Answer::None { text, .. }) => {
                Some(format!("the API server does not say whether it takes them: {text}"))
            }
            None => Some("it is not known yet whether the API server takes them".to_owned()),
        })
    }
}

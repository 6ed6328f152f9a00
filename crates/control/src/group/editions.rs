//! The editions that pods of an owner get: what their OverridePolicy makes of their template, by group, and whether the API
//! server takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::group::OverridePolicySpec;
use dapple_api::kinds::{KindInfo, NATIVE_JOB};
use dapple_plan::group::binding::{Pair, Situation};
use dapple_plan::group::edition::Correction;
use dapple_plan::group::editions::Editions;
use dapple_plan::group::gate::gated;
use dapple_plan::group::seating::Suits;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::node::Labels;
use dapple_plan::proof::{Answer, is_to_ask};
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use super::application::{Applications, Asking};
use super::known_editions::KnownEditions;
use super::owner::OwnerKey;
use super::policy::Policy;
use super::standing::pods_of_application;
use super::template::Templates;
use super::turns::{Availability, Turns};
use super::versions::Versions;
use crate::caches::store::Store;
use crate::env::Env;
use crate::proof::ask;
use crate::slim::{Key, Pod};
use crate::writes::outcome::Writer;

/// Answers are kept of so many renderings.
const MOST_ANSWERS: usize = 1_024;

/// Finds out editions.
pub(super) struct Editioner {
    pub(super) client: Client,
    pub(super) env: Env,
    pub(super) templates: Templates,
    pub(super) versions: Versions,
    known: KnownEditions,
    turns: Turns,
    answers: Mutex<BTreeMap<Arc<str>, Answer>>,
}

/// What is known of applications, policies and pods.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) applications: &'a Applications,
    pub(super) overrides: &'a Store<Policy<OverridePolicySpec>>,
    pub(super) pods: &'a Store<Pod>,
}

/// The editions of an owner's pods.
#[derive(Default)]
pub(super) struct EditionsOfOwner {
    /// By the OverridePolicy that pods ask for: one, or of pods that nothing owns several.
    by_policy: BTreeMap<Arc<str>, Editions>,
    unrendered: BTreeMap<Arc<str>, String>,
    /// Policies that some pods of nobody's ask for, and that are not there: those wait, and no others.
    missing: BTreeSet<Arc<str>>,
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

    /// The policy that a pod of an application with these labels waits for, if that is not there.
    pub(super) fn lacks<'l>(&self, labels: &'l dyn Labels) -> Option<&'l str> {
        policy_name(labels).filter(|name| self.missing.contains(*name))
    }

    /// Whether every group has an edition that the API server takes.
    pub(super) fn is_proved(&self) -> bool {
        self.unrendered.is_empty()
    }

    /// What pods of an application with these labels are made of in a group: as the edition of the group has it, if it renders.
    pub(super) fn template_in(&self, labels: &dyn Labels, group: &str, template: &Arc<Value>) -> Arc<Value> {
        let policy = policy_name(labels).and_then(|name| self.by_policy.get(name));
        let edition = policy.map(|editions| editions.of_group(group)).filter(|edition| edition.name.is_some());
        let rendered = edition.and_then(|edition| edition.render(template).ok());
        rendered.map_or_else(|| template.clone(), Arc::new)
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

fn owner_reference(kind: KindInfo, owner: &Asking) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "name": &*owner.meta.key.name, "uid": &*owner.meta.uid,
        "controller": true})
}

impl Editioner {
    pub(super) fn new(client: Client, env: Env, versions: Versions) -> Self {
        let (templates, turns) = (Templates::default(), Turns::default());
        Self { client, env, templates, versions, known: KnownEditions::default(), turns, answers: Mutex::default() }
    }

    /// What policies make of new pods of an owner in these groups, as far as the turn of each has come. `asking` is what asks for
    /// each pod. None if their template is not known.
    pub(super) async fn of_owner<'l>(
        &self,
        world: World<'_>,
        at: &OwnerKey,
        asking: impl Iterator<Item = &'l Asking>,
        groups: &[Arc<str>],
    ) -> Result<Option<EditionsOfOwner>, kube::Error> {
        let names: BTreeMap<&str, &Asking> =
            asking.filter_map(|asking| Some((policy_name(&asking.labels)?, asking))).collect();
        let (mut by_policy, mut unrendered, mut missing) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for (name, asking) in names {
            let key = Key { namespace: at.namespace.clone(), name: Arc::from(name) };
            // One that is gone is not confirmed for long: then its pods wait.
            let Some(policy) = world.overrides.get(&key) else {
                missing.insert(key.name);
                continue;
            };
            let Some(mut editions) = self.of_policy(world.applications, at, &policy, groups).await? else {
                return Ok(None);
            };
            if self.hold(world, (at, asking), &policy, (groups, &mut editions)).await? {
                // What groups keep was proved when it was the newest, perhaps by another leader.
                self.prove(world.applications, at, &policy, groups, &mut editions).await?;
            }
            unrendered.extend(editions.unrendered.clone());
            by_policy.insert(key.name, editions);
        }
        if !missing.is_empty() && !at.is_nobody() {
            return Ok(None);
        }
        let kind = at.uid().and_then(|uid| world.applications.by_uid(&at.namespace, uid)).map(|(kind, _)| kind);
        let are_kept = at.is_nobody() || kind == Some(NATIVE_JOB.at) && !is_on(Mutant::GatedJobsReplaced);
        Ok(Some(EditionsOfOwner { by_policy, unrendered, missing, are_kept }))
    }

    /// Has groups of an application keep earlier editions whose turn has not come. Tells whether some do.
    async fn hold(
        &self,
        world: World<'_>,
        (at, asking): (&OwnerKey, &Asking),
        policy: &Policy<OverridePolicySpec>,
        (groups, editions): (&[Arc<str>], &mut Editions),
    ) -> Result<bool, kube::Error> {
        let namespace = &at.namespace;
        let kind = world.applications.by_uid(namespace, &asking.meta.uid).map(|(kind, _)| kind);
        let template = self.templates.get(&self.client, world.applications, at).await?;
        let owner = at.uid().and_then(|uid| world.applications.by_uid(namespace, uid)).map(|(kind, _)| kind);
        let is_changed = world.applications.has_pods_changed([kind, owner]);
        let (true, Some(template)) = (is_changed, template) else { return Ok(false) };
        let available = Availability { min_ready: template.min_ready, now: self.env.now().as_second() };
        let pods = || pods_of_application(world.applications, world.pods, namespace, asking);
        Ok(self.turns.hold(&asking.meta.uid, policy, pods, available, (groups, editions)))
    }

    /// What a policy makes of an owner's pods in these groups: of each the newest edition that the API server takes.
    pub(super) async fn of_policy(
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
        let mut editions = self.known.of(&self.versions, policy, groups, template);
        self.prove(applications, at, policy, groups, &mut editions).await?;
        Ok(Some(editions))
    }

    /// Asks the API server about each rendering that counts. In place of one that is refused the one before it counts.
    async fn prove(
        &self,
        applications: &Applications,
        at: &OwnerKey,
        policy: &Policy<OverridePolicySpec>,
        groups: &[Arc<str>],
        editions: &mut Editions,
    ) -> Result<(), kube::Error> {
        // Pods that nothing owns have none: each is asked about on its way in.
        let Some(template) = self.templates.get(&self.client, applications, at).await? else { return Ok(()) };
        for group in groups.iter().filter(|group| !editions.unrendered.contains_key(*group)).collect::<Vec<_>>() {
            loop {
                let edition = editions.of_group(group);
                let Some(name) = &edition.name else { break };
                // What was taken of one template says nothing about the next one of the same owner.
                let meaning: Arc<str> = Arc::from(format!("{at} {name} {} {}", policy.meta.uid, template.hash));
                // Most are known: nothing is rendered for them.
                if matches!(self.answers().get(&meaning), Some(Answer::Taken)) {
                    break;
                }
                let Ok(rendering) = edition.render(&template.value) else { break };
                let rendering = template.with_claims(rendering);
                let owner = at.uid().and_then(|uid| applications.by_uid(&at.namespace, uid));
                let Some(text) = self.refusal((at, owner), meaning, &rendering).await? else { break };
                if !editions.pass_over(group, text) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why pods of this rendering would not be taken, or are not known to be.
    async fn refusal(
        &self,
        (at, owner): (&OwnerKey, Option<(KindInfo, Asking)>),
        meaning: Arc<str>,
        rendering: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let now = self.env.now().as_second();
        if is_to_ask(&self.answers(), &meaning, now) {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": rendering["metadata"], "spec": rendering["spec"]});
            pod["metadata"]["generateName"] = "dapple-dry-run-".into();
            // As the pods come that it stands for: some clusters refuse pods that nothing owns.
            pod["metadata"]["ownerReferences"] =
                owner.map(|(kind, owner)| json!([owner_reference(kind, &owner)])).unwrap_or_default();
            // Our own webhook leaves alone what is behind the gate.
            let pod = gated(pod);
            let pods = Api::<v1::Pod>::namespaced(self.client.clone(), &at.namespace);
            let answer = ask(&Writer::new(&self.client, &pods), &pod, &self.env).await?;
            let mut answers = self.answers();
            if answers.len() >= MOST_ANSWERS {
                answers.clear();
            }
            answers.insert(meaning.clone(), answer);
        }
        Ok(match self.answers().get(&meaning) {
            Some(Answer::Taken) => None,
            Some(Answer::Refused { text, .. }) => Some(format!("the API server refuses such pods: {text}")),
            Some(Answer::None { text, .. }) => {
                Some(format!("the API server does not say whether it takes them: {text}"))
            }
            None => Some("it is not known yet whether the API server takes them".to_owned()),
        })
    }
}

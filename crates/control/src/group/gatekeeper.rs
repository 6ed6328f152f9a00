//! What webhooks know of applications and policies: which new pods have to wait behind the gate and what rules make of them, and
//! in which namespaces something asks for policies at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::{KindInfo, NATIVE_DAEMON_SET, find_native};
use dapple_edit::authored::authored;
use dapple_edit::render::hash;
use dapple_plan::group::binding::{Check, Pair, check_override};
use dapple_plan::group::division::Division;
use dapple_plan::group::editions::Editions;
use dapple_plan::group::gate::{self, MADE_FOR, made_for};
use dapple_plan::group::volumes::Reach;
use dapple_plan::node::Labels;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Group;
use super::application::{Applicant, Applications, Asking, is_served};
use super::editions::shown;
use super::guess::{Guesses, NewPod};
use super::known_editions::KnownEditions;
use super::owner::{OwnerKey, number_label, ordinal};
use super::policy::Policy;
use super::seated::all_groups_of;
use super::standing::pods_of_application;
use super::template::{Template, Templates};
use super::turns::{Availability, Turns};
use super::versions::Versions;
use super::volumes::Volumes;
use crate::caches::store::Change;
use crate::caches::{Caches, Subscription};
use crate::env::Env;
use crate::slim::{Cached, Key, Node, Pod};

/// What is known.
pub struct Gatekeeper {
    applications: Applications,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    overrides: Subscription<Policy<OverridePolicySpec>>,
    own_namespace: String,
    client: Client,
    templates: Templates,
    guesses: Arc<Guesses>,
    /// They are counted as they come, for guesses.
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    groups: Subscription<Group>,
    versions: Versions,
    known: KnownEditions,
    turns: Turns,
    env: Env,
}

/// What becomes of a new pod.
#[derive(Default)]
pub struct Admission {
    /// The operations of a JSON patch that puts it behind the gate; none if it need not wait.
    pub gate: Vec<Value>,
    asks: Asks,
}

/// What asks for policies in the name of a new pod.
#[derive(Default)]
enum Asks {
    /// Nothing, or nobody knows.
    #[default]
    Nothing,
    /// The pod itself, with these labels.
    Itself(BTreeMap<String, String>),
    /// Its application.
    Application(Asking),
    /// Its owner is the DaemonSet of this UID.
    DaemonSet(String),
}

/// Whether what is named so is known to be refused: [`Made::meaning`].
pub type IsRefused<'a> = &'a (dyn Fn(&Vec<Arc<str>>) -> bool + Sync);

/// The labels of what asks in the name of a pod, and that itself, unless it is the pod.
type AsksFor<'a> = (&'a (dyn Labels + Sync), Option<&'a Asking>);

/// A pod as an edition has it.
#[derive(Debug)]
pub struct Made {
    /// The operations of a JSON patch, those of the gate included.
    pub patch: Vec<Value>,
    /// What the edition makes of the pod's template, and what names that: to be proved before a pod gets it.
    pub rendering: Value,
    /// Policy, edition, owner and template.
    pub meaning: Vec<Arc<str>>,
}

impl Gatekeeper {
    /// Subscribes. `on_change` is called whenever something may ask for policies in another namespace than before.
    pub fn start(
        caches: &Caches,
        life: &CancellationToken,
        (client, env): (Client, Env),
        own_namespace: &str,
        on_change: impl Fn() + Clone + Send + 'static,
    ) -> Self {
        let (propagation, overriding) = (on_change.clone(), on_change.clone());
        let guesses = Arc::new(Guesses::default());
        let counting = guesses.clone();
        let count = move |change: &Change<Pod>| {
            if let Change::Object { old, new, .. } = change {
                counting.pod_changed(old.as_deref(), new.as_deref());
            }
        };
        Self {
            applications: Applications::subscribe(caches, life, move |_| on_change()),
            propagations: caches.open().subscribe(life, move |_| propagation()),
            overrides: caches.open().subscribe(life, move |_| overriding()),
            own_namespace: own_namespace.to_owned(),
            client,
            templates: Templates::default(),
            guesses,
            pods: caches.open().subscribe(life, count),
            nodes: caches.open().subscribe(life, |_| {}),
            groups: caches.open().subscribe(life, |_| {}),
            versions: Versions::subscribe(caches, life, |_| {}),
            known: KnownEditions::default(),
            turns: Turns::default(),
            env,
        }
    }

    /// Whether everything is known.
    pub fn is_complete(&self) -> bool {
        self.propagations.is_known()
            && self.overrides.is_known()
            && self.applications.is_known()
            && self.pods.is_known()
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

    /// Why an OverridePolicy would not be confirmed for a workload of this group and kind; none if it would, or that is not known.
    pub fn not_applicable(
        &self,
        (namespace, policy): (&str, &str),
        (group, kind): (&str, &str),
        workload: &Value,
    ) -> Option<String> {
        let policy = self.overrides.get(&Key::new(namespace, policy))?;
        let is_it = |known: &KindInfo| (known.group, known.kind) == (group, kind);
        let native = find_native(group, kind).map(|native| native.at);
        let kind = native.or_else(|| self.listed().into_iter().find(is_it))?;
        let template_field = self.applications.template_field(kind);
        match check_override(&shown(&policy), &policy.spec, workload, &template_field) {
            Check::Unrendered(why) => Some(why),
            Check::Missing | Check::Passed => None,
        }
    }

    /// What becomes of a new pod, by what is known already.
    pub fn admit(&self, namespace: &str, pod: &Value) -> Admission {
        if !is_served(namespace, &self.own_namespace) {
            return Admission::default();
        }
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) else {
            let own = labels_of(pod);
            return Admission { gate: gate::patch(pod, gate::Applicant::Of(&own)), asks: Asks::Itself(own) };
        };
        let (kind, version) = (text(&owner["kind"]), text(&owner["apiVersion"]));
        if !self.applications.can_ask(version, kind) {
            return Admission::default();
        }
        // Pods of DaemonSets belong to their nodes: they never wait.
        if kind == NATIVE_DAEMON_SET.at.kind {
            return Admission { gate: Vec::new(), asks: Asks::DaemonSet(text(&owner["uid"]).to_owned()) };
        }
        let known = self.applications.by_uid(namespace, text(&owner["uid"]));
        match known.map(|(_, owner)| self.applications.application_of(&owner)) {
            Some(Applicant::Is(application)) => Admission {
                gate: gate::patch(pod, gate::Applicant::Of(&application.labels)),
                asks: Asks::Application(application),
            },
            Some(Applicant::None) => Admission::default(),
            // The leader finds out.
            Some(Applicant::Unknown) | None => {
                Admission { gate: gate::patch(pod, gate::Applicant::Unknown), asks: Asks::Nothing }
            }
        }
    }

    /// A new pod by the edition of its group. None if it has none, if that is not known, or does not apply. Of editions that are
    /// known to be refused by the API server, the one before them counts. Which group a pod was made for is remembered by the UID
    /// of the question about it; of a dry run, without one, nothing is.
    pub async fn make(
        &self,
        (namespace, pod): (&str, &Value),
        admission: &Admission,
        question: Option<&str>,
        is_refused: IsRefused<'_>,
    ) -> Option<Made> {
        let is_gated = !admission.gate.is_empty();
        match &admission.asks {
            Asks::DaemonSet(uid) => self.make_daemon(namespace, pod, uid, is_refused).await,
            Asks::Itself(labels) if is_gated => {
                self.make_gated((namespace, pod), (labels, None), question, is_refused).await
            }
            Asks::Application(application) if is_gated => {
                let asks: AsksFor<'_> = (&application.labels, Some(application));
                self.make_gated((namespace, pod), asks, question, is_refused).await
            }
            _ => None,
        }
    }

    /// A pod is not made for a group after all: it comes as it is, or not at all.
    pub fn withdraw(&self, namespace: &str, pod: &Value, question: &str) {
        self.guesses.withdraw(&OwnerKey::of_new(namespace, pod, &labels_of(pod)), question);
    }

    /// The pod as the edition of the group has it that it will probably get. None if that is not known, or does not apply.
    async fn make_gated(
        &self,
        (namespace, pod): (&str, &Value),
        (labels, application): AsksFor<'_>,
        question: Option<&str>,
        is_refused: IsRefused<'_>,
    ) -> Option<Made> {
        // What is asked for counts, confirmed or not: behind the gate the pod waits for that, and some can never be made anew.
        let asked = |pair: Pair| labels.get(pair.required()).map(|name| Key::new(namespace, name));
        let propagation = self.propagations.get(&asked(Pair::Propagation)?)?;
        let policy = self.overrides.get(&asked(Pair::Override)?)?;
        let own = labels_of(pod);
        let owner = OwnerKey::of_new(namespace, pod, &own);
        let template = if owner.is_nobody() {
            None
        } else {
            Some(self.templates.get(&self.client, &self.applications, &owner).await.ok()??)
        };
        let start = template.as_ref().map_or(0, |template| template.start);
        let kind = owner.uid().and_then(|uid| self.applications.by_uid(namespace, uid)).map(|(kind, _)| kind);
        let number = kind.and_then(|kind| own.get(number_label(kind.kind)?));
        let ordinal = number.and_then(|number| ordinal(number, start));
        let groups = Division::of(&propagation.spec)?.groups().to_vec();
        let volumes = Volumes { client: &self.client, nodes: &self.nodes, groups: &self.groups };
        let allowed = match volumes.reach_of_new(namespace, pod, &groups).await.ok()? {
            Reach::All => None,
            Reach::Only(allowed) => Some(allowed),
            Reach::Unbound(_) => return None,
        };
        let new = NewPod { question, ordinal, allowed: allowed.as_ref() };
        let group = self.guesses.guess(&propagation, &owner, new)?;
        let (value, made_of) = template.as_ref().map(|known| (known.value.clone(), known.hash.clone())).unzip();
        let mut editions = self.known.of(&self.versions, &policy, &groups, value.clone());
        if let Some((application, template)) = application.zip(template.as_ref()) {
            self.hold((application, kind), template, &policy, (&groups, &mut editions));
        }
        // Those that nothing owns are each made of something else: what is taken of one says nothing about another.
        let base = value.as_deref().map_or_else(|| authored(pod), Cow::Borrowed);
        let made_of = made_of.unwrap_or_else(|| Arc::from(hash(&json!([base["metadata"]["labels"], base["spec"]]))));
        let named = |edition: &str| meaning(&policy, edition, (&owner, &made_of));
        let meaning = newest_good(&mut editions, &group, named, is_refused)?;
        let mut rendering = editions.of_group(&group).render(&base).ok()?;
        if let Some(template) = &template {
            rendering = template.with_claims(rendering);
        } else {
            // What is proved is a template, which says neither kind nor status.
            let metadata = &rendering["metadata"];
            let metadata = json!({"labels": metadata["labels"], "annotations": metadata["annotations"]});
            rendering = json!({"metadata": metadata, "spec": rendering["spec"]});
        }
        let mut made = editions.make(pod, &group).ok()?;
        made["metadata"]["annotations"][MADE_FOR] = made_for(&group, question.unwrap_or_default()).into();
        let patch = gate::patch_made(pod, &made, labels);
        Some(Made { patch, rendering, meaning })
    }

    /// A pod of a DaemonSet, as the groups of its node have it. None if that is not known, or does not apply.
    async fn make_daemon(&self, namespace: &str, pod: &Value, owner: &str, is_refused: IsRefused<'_>) -> Option<Made> {
        let (_, set) = self.applications.by_uid(namespace, owner)?;
        let Applicant::Is(application) = self.applications.application_of(&set) else { return None };
        // Confirmed or not: the first pods come before that, and those that run get nothing but images.
        let policy = self.overrides.get(&Key::new(namespace, application.labels.get(Pair::Override.required())?))?;
        let groups = [all_groups_of(&self.nodes, &self.groups, &node_of(pod)?)];
        let owner = OwnerKey::of_new(namespace, pod, &labels_of(pod));
        let template = self.templates.get(&self.client, &self.applications, &owner).await.ok()??;
        let mut editions = self.known.of(&self.versions, &policy, &groups, Some(template.value.clone()));
        let named = |edition: &str| meaning(&policy, edition, (&owner, &template.hash));
        let meaning = newest_good(&mut editions, &groups[0], named, is_refused)?;
        let rendering = editions.of_group(&groups[0]).render(&template.value).ok()?;
        let mut made = editions.make(pod, &groups[0]).ok()?;
        made["metadata"]["annotations"][MADE_FOR] = made_for(&groups[0], "").into();
        let patch = gate::patch_ungated(pod, &made, &application.labels);
        Some(Made { patch, rendering, meaning })
    }

    /// Has groups of an application keep earlier editions whose turn has not come. `owner` is the kind of what controls the pod.
    fn hold(
        &self,
        (application, owner): (&Asking, Option<KindInfo>),
        template: &Template,
        policy: &Policy<OverridePolicySpec>,
        of_groups: (&[Arc<str>], &mut Editions),
    ) {
        let namespace = &policy.meta.key.namespace;
        let kind = self.applications.by_uid(namespace, &application.meta.uid).map(|(kind, _)| kind);
        if self.applications.has_pods_changed([kind, owner]) {
            let available = Availability { min_ready: template.min_ready, now: self.env.now().as_second() };
            let pods = || pods_of_application(&self.applications, self.applications.pods(), namespace, application);
            let of_template = (&application.meta.uid, &template.hash);
            self.turns.hold_lately(of_template, policy, pods, available, of_groups);
        }
    }

    /// The kinds that users have listed, as far as they are served: what asks for policies is asked about before it is there.
    pub fn listed(&self) -> Vec<KindInfo> {
        self.applications.listed()
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

/// What names the newest edition of a group that is not known to be refused. That one counts from here on. None if the group has
/// none, and pods are as their template.
fn newest_good(
    editions: &mut Editions,
    group: &Arc<str>,
    named: impl Fn(&str) -> Vec<Arc<str>>,
    is_refused: IsRefused<'_>,
) -> Option<Vec<Arc<str>>> {
    loop {
        let meaning = named(editions.of_group(group).name.as_deref()?);
        if !is_refused(&meaning) {
            return Some(meaning);
        }
        if !editions.pass_over(group, "the API server refuses such pods".to_owned()) {
            return None;
        }
    }
}

/// What names a rendering of an owner's template, by the hash of that: pods of some owners are of no revision, and what is taken of
/// one template says nothing about the next.
fn meaning(
    policy: &Policy<OverridePolicySpec>,
    edition: &str,
    (owner, template): (&OwnerKey, &Arc<str>),
) -> Vec<Arc<str>> {
    vec![policy.meta.uid.clone(), Arc::from(edition), Arc::from(owner.to_string()), template.clone()]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The node that a pod of a DaemonSet is for: its affinity names it before the scheduler has seen the pod.
fn node_of(pod: &Value) -> Option<String> {
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let named = |term: &'_ Value| -> Option<String> {
        let fields = term["matchFields"].as_array()?;
        Some(fields.iter().find(|field| field["key"] == "metadata.name")?["values"][0].as_str()?.to_owned())
    };
    // Each of its terms names it, beside what the template asks for.
    let names: BTreeSet<Option<String>> = pod.pointer(terms)?.as_array()?.iter().map(named).collect();
    names.into_iter().next().flatten()
}

fn labels_of(pod: &Value) -> BTreeMap<String, String> {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn may_have<T: Cached>(known: &Subscription<T>, key: &Key) -> bool {
    !known.is_known() || known.get(key).is_some() || known.is_malformed(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_place_of_what_is_refused_the_edition_before_counts() {
        let says = |word: &str| -> Arc<OverridePolicySpec> {
            let args = json!([{"containerName": "c", "operator": "add", "value": [word]}]);
            Arc::new(serde_json::from_value(json!({"overrideRules": [{"argsOverrider": args}]})).expect("a policy"))
        };
        let groups = [Arc::<str>::from("beijing")];
        let containers = json!([{"name": "c", "image": "c:1"}]);
        let template = json!({"metadata": {"labels": {"app": "c"}}, "spec": {"containers": containers}});
        let of = || Editions::of("p", &["new", "old"].map(says), &groups, Some(Arc::new(template.clone())));
        let named = |edition: &str| -> Vec<Arc<str>> { vec![Arc::from(edition)] };
        let mut editions = of();
        let new = newest_good(&mut editions, &groups[0], named, &|_| false).expect("it has one");
        let old = newest_good(&mut editions, &groups[0], named, &|meaning| *meaning == new).expect("it has another");
        assert_ne!(old, new);
        assert_eq!(editions.make(&template, "beijing").expect("it renders")["spec"]["containers"][0]["args"][0], "old");
        assert!(newest_good(&mut of(), &groups[0], named, &|_| true).is_none(), "none is any good");
    }
}

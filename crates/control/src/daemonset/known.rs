//! What follows from a set, its revisions, its pods and the nodes: the fleet, as the view has it.
//!
//! Nothing is asked or written here: the controller and `dapple plan` come to the same fleet from the same objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_plan::daemonset::cell::Rollout;
use dapple_plan::daemonset::desired::{Rendered, Variants};
use dapple_plan::daemonset::driven_off;
use dapple_plan::daemonset::fleet::Fleet;
use dapple_plan::daemonset::layout::{Proof, Revisions, Seen, Strategy};
use dapple_plan::daemonset::order::{CANARY_ANNOTATION, Canary};
use dapple_plan::daemonset::placement::Prospect;
use dapple_plan::daemonset::pod::REVISION_ANNOTATION;
use dapple_plan::daemonset::renderings::Renderings;
use dapple_plan::daemonset::revision::{self, Current, Revision, spec_of};
use dapple_plan::daemonset::status::Problem;
use dapple_plan::daemonset::touched::{SOAK_ANNOTATION, soak};
use dapple_plan::fit;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::overriding::Overriding;
use jiff::Timestamp;

use super::pod::{hash_label, pod_state};
use super::{Set, SetRevision};
use crate::overriding::Asked;
use crate::slim::{Node, Pod};

/// Renderings of the newest revision and of the one that nodes are held back at, by name, each with the version of the
/// revision that was read.
pub(super) type VariantsOfRevisions = BTreeMap<Arc<str>, (u64, Variants)>;

/// By the hash that pods carry: what a policy made of them that says something else by now. Pods can be changed from it where
/// they run; those of which it is forgotten are replaced.
pub(super) type Past = BTreeMap<Arc<str>, Rendered>;

/// What follows from the set, its revisions and the nodes.
pub(super) struct Known {
    pub(super) fleet: Fleet,
    pub(super) strategy: Strategy,
    pub(super) generation: Option<i64>,
    pub(super) update: Arc<SetRevision>,
    /// The revision that nodes are held back at; the newest, if there is no other.
    pub(super) current: Arc<SetRevision>,
    /// Its name, also if it is gone.
    pub(super) held_at: Arc<str>,
    pub(super) problems: Vec<Problem>,
    /// What pods are, by what they say of themselves.
    pub(super) names: Names,
}

/// What pods say of themselves, and what it stands for.
#[derive(Default)]
pub(super) struct Names {
    /// By name of a revision: its number, and what its template means.
    pub(super) revisions: BTreeMap<Arc<str>, (i64, Arc<str>)>,
    /// By the hash that pods of a revision carry where no patch is for their node: its number.
    pub(super) numbers: BTreeMap<Arc<str>, i64>,
    /// By label of a pod: what its rendering means.
    pub(super) meanings: BTreeMap<Arc<str>, Arc<str>>,
    /// Labels that stand for nothing that is known.
    unknown: BTreeSet<Arc<str>>,
    /// Name and number of the revision that nodes are held back at, if it is gone.
    pub(super) gone: Option<(String, i64)>,
}

impl Names {
    /// Whether it was looked for what this label stands for.
    pub(super) fn has(&self, label: &str) -> bool {
        self.meanings.contains_key(label) || self.unknown.contains(label)
    }
}

/// Everything that a fleet follows from.
pub(super) struct Sources<'a> {
    pub(super) set: &'a Set,
    pub(super) revisions: &'a [Arc<SetRevision>],
    pub(super) update: &'a Arc<SetRevision>,
    pub(super) current: &'a Arc<SetRevision>,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) nodes: &'a [Arc<Node>],
    pub(super) ignores_patches: bool,
    /// What a policy makes of pods.
    pub(super) asked: &'a Asked,
    pub(super) past: &'a Past,
    /// Whether the revision that nodes are held back at is gone.
    pub(super) is_gone: bool,
    /// Whether what the set says is not among the revisions, since it cannot be written: nothing is updated meanwhile.
    pub(super) is_blocked: bool,
    pub(super) now: Timestamp,
}

impl Sources<'_> {
    /// The fleet. `proof` is what the API server says of what a rendering means, `is_unchangeable` whether a pod cannot be
    /// changed where it runs though it looks so.
    pub(super) fn known(
        &self,
        rendered: &mut VariantsOfRevisions,
        proof: impl Fn(&str) -> Proof,
        is_unchangeable: impl Fn(&Pod) -> bool,
    ) -> Known {
        let mut problems = Vec::new();
        let strategy = self.strategy(&mut problems);
        let prospects = {
            let mut revisions = revisions(rendered, self.update, self.current);
            let prospect = |node: &Arc<Node>| prospect(&strategy, revisions.as_mut(), node, &proof);
            self.nodes.iter().filter_map(prospect).collect()
        };
        let (renderings, names) = self.renderings(rendered);
        let noted = self.revisions.iter().map(|known| (known.number, known.driven_off()));
        let mut fleet = Fleet::new(strategy.rules.clone(), strategy.placement(), renderings)
            .with_limits(strategy.limits.clone())
            .with_driven_off(driven_off::counting(&strategy.rules.rollout, noted));
        fleet.put_all(prospects);
        for pod in self.pods {
            if let Some(node) = &pod.node {
                let state = pod_state(self.set, pod, &names, is_unchangeable(pod));
                fleet.observe(&pod.meta.key.name, Some((node, state)));
            }
        }
        let (update, current) = (self.update.clone(), self.current.clone());
        let held_at = self.gone().map_or_else(|| current.meta.key.name.clone(), Arc::from);
        Known { fleet, strategy, generation: self.set.generation, update, current, held_at, problems, names }
    }

    /// What the set says about its rollout; what it says that cannot be used becomes a problem.
    fn strategy(&self, problems: &mut Vec<Problem>) -> Strategy {
        let annotation = |key: &str| self.set.annotations.get(key);
        let canary: Option<Canary> = annotation(CANARY_ANNOTATION).and_then(|text| match text.parse() {
            Ok(canary) => Some(canary),
            Err(error) => {
                problems.push(Problem::new("BadCanary", format!("metadata.annotations: {error}")));
                None
            }
        });
        let soak = annotation(SOAK_ANNOTATION).and_then(|text| match soak(text) {
            Ok(seconds) => Some(seconds),
            Err(error) => {
                problems.push(Problem::new("BadSoak", format!("metadata.annotations: {error}")));
                None
            }
        });
        let mut strategy = Strategy::of(&self.set.spec, canary.as_ref(), self.rollout(soak), self.ignores_patches);
        // Missing pods are made of what is known; nobody is brought to what is not asked for any more.
        strategy.holdback.is_paused |= self.is_blocked || self.asked.is_suspended;
        strategy.is_current_gone = self.is_gone;
        if let Some(name) = self.gone() {
            let text = format!(
                "ControllerRevision {name}, which nodes are held back at, is gone: they keep what they run, and none is made \
                 anew; put it back, or let all nodes have the newest"
            );
            problems.push(Problem::new("RevisionGone", text));
        }
        if let Some(error) = &strategy.bad_selector {
            let text = format!("spec.updateStrategy.rollingUpdate.selector.{error}; everything is held back");
            problems.push(Problem::new("BadSelector", text));
        }
        strategy
    }

    fn variants(&self, revision: &SetRevision) -> Variants {
        variants(self.set, revision, self.ignores_patches, &self.asked.overriding)
    }

    /// The name of the revision that nodes are held back at, if it is gone.
    fn gone(&self) -> Option<&str> {
        self.set.status.current_revision.as_deref().filter(|_| self.is_gone)
    }

    fn rollout(&self, soak: Option<i64>) -> Rollout {
        let status = &self.set.status;
        // Of one that is gone, the number that it had when it was complete.
        let gone = status.current_revision_number.filter(|_| self.is_gone);
        let current = gone.map_or(self.current.number, |number| number.min(self.update.number));
        let is_its = |name: &str| *self.current.meta.key.name == *name || self.current.replaces(name);
        let is_named = self.is_gone || status.current_revision.as_deref().is_some_and(is_its);
        // Never later than the number that it has: nobody but us may have written it.
        let complete = status.current_revision_number.filter(|number| is_named && *number <= current);
        let began = |revision: &SetRevision| revision.as_revision(self.set, self.now).began;
        Rollout {
            began: began(self.update),
            since: began(self.update).min(began(self.current)),
            newest: self.update.number,
            current,
            complete: complete.unwrap_or(current),
            soak,
        }
    }

    /// What the pods that are there mean, as far as that is known.
    pub(super) fn meanings_of_pods(&self, rendered: &VariantsOfRevisions) -> BTreeSet<Arc<str>> {
        let (_, names) = self.renderings(rendered);
        self.pods.iter().filter_map(|pod| names.meanings.get(hash_label(pod)).cloned()).collect()
    }

    /// What every label stands for that a pod or a node has.
    fn renderings(&self, rendered: &VariantsOfRevisions) -> (Renderings, Names) {
        let (mut renderings, mut names) = (Renderings::default(), Names::default());
        names.gone = self.gone().map(str::to_owned).zip(self.set.status.current_revision_number);
        for (name, (_, variants)) in rendered {
            for known in variants.all().iter().filter_map(|variant| variant.rendering.as_ref().ok()) {
                renderings.add(&known.meaning, &known.template);
                if *name == self.update.meta.key.name || !is_on(Mutant::HashRestarts) {
                    names.meanings.insert(known.hash.clone(), known.meaning.clone());
                }
            }
        }
        for revision in self.revisions {
            let (name, number) = (revision.meta.key.name.clone(), revision.number);
            names.numbers.insert(Arc::from(revision.hash(self.set)), number);
            let meaning = match rendered.get(&name) {
                Some((_, variants)) => variants.unpatched().meaning.clone(),
                None => self.variants(revision).unpatched().meaning.clone(),
            };
            names.revisions.insert(name, (number, meaning));
        }
        for revision in self.revisions {
            let known = names.revisions.get(&revision.meta.key.name).cloned();
            if let Some((replaced, known)) = revision.replaced().zip(known) {
                names.revisions.entry(Arc::from(replaced)).or_insert(known);
            }
        }
        for pod in self.pods {
            let label = hash_label(pod);
            if names.has(label) {
                continue;
            }
            let revision = revision_of(self.set, self.revisions, pod).filter(|_| !is_on(Mutant::HashRestarts));
            let past = self.past.get(label).cloned();
            match past.or_else(|| revision.and_then(|revision| self.variants(revision).find(label))) {
                Some(known) => {
                    renderings.add(&known.meaning, &known.template);
                    names.meanings.insert(Arc::from(label), known.meaning);
                }
                None => _ = names.unknown.insert(Arc::from(label)),
            }
        }
        (renderings, names)
    }
}

/// The revision that nodes are held back at; the newest, if there is no other. And whether there is, and it is gone.
pub(super) fn current(
    set: &Set,
    revisions: &[Arc<SetRevision>],
    update: &Arc<SetRevision>,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (Arc<SetRevision>, bool) {
    let named = set.status.current_revision.as_deref();
    let all: Vec<Revision> = revisions.iter().map(|known| known.as_revision(set, now)).collect();
    let of_pods = pods.iter().filter(|pod| pod.leaving_since.is_none());
    let of_pods = of_pods.map(|pod| (pod.annotations.get(REVISION_ANNOTATION), hash_label(pod)));
    match revision::current(named, &update.meta.key.name, &all, of_pods) {
        Current::Known(found) => (called(revisions, &found.name).unwrap_or(update).clone(), false),
        Current::Newest => (update.clone(), false),
        Current::Gone => (update.clone(), !is_on(Mutant::GoneIsNewest)),
    }
}

/// The variants of a revision, with what a policy makes of them.
pub(super) fn variants(set: &Set, revision: &SetRevision, ignores_patches: bool, overriding: &Overriding) -> Variants {
    let (template, patches) = spec_of(&revision.data).unwrap_or_default();
    let patches = if ignores_patches { &[] } else { patches.as_slice() };
    let object = format!("DaemonSet {}", set.meta.key);
    let variants = Variants::new(&object, (template, patches), &set.spec, (&revision.hash(set), revision.form));
    variants.overridden(overriding.clone())
}

/// The renderings of two revisions, or of one that is both.
pub(super) fn revisions<'r>(
    rendered: &'r mut VariantsOfRevisions,
    update: &SetRevision,
    current: &SetRevision,
) -> Option<Revisions<'r>> {
    let (mut newest, mut held) = (None, None);
    for (name, (_, variants)) in rendered {
        if *name == update.meta.key.name {
            newest = Some(variants);
        } else if *name == current.meta.key.name {
            held = Some(variants);
        }
    }
    Some(Revisions { newest: newest?, current: held })
}

/// What a node may get.
pub(super) fn prospect(
    strategy: &Strategy,
    revisions: Option<&mut Revisions<'_>>,
    node: &Node,
    proof: impl Fn(&str) -> Proof,
) -> Option<Prospect> {
    let taints = node.fit_taints();
    let seen = Seen {
        node: fit::Node { name: node.name(), labels: &node.labels, taints: &taints },
        name: &node.meta.key.name,
        health: node.health,
    };
    Some(strategy.prospect(revisions?, seen, proof))
}

/// The revision that a pod was made from: the one that it names, or the one whose hash it carries.
pub(super) fn revision_of<'a>(set: &Set, revisions: &'a [Arc<SetRevision>], pod: &Pod) -> Option<&'a Arc<SetRevision>> {
    match pod.annotations.get(REVISION_ANNOTATION) {
        Some(name) => called(revisions, name),
        None => revisions.iter().find(|known| known.hash(set) == hash_label(pod)),
    }
}

/// The revision that a name stands for: its own before that of one that it was made for.
pub(super) fn called<'a>(revisions: &'a [Arc<SetRevision>], name: &str) -> Option<&'a Arc<SetRevision>> {
    let by_name = revisions.iter().find(|known| *known.meta.key.name == *name);
    by_name.or_else(|| revisions.iter().find(|known| known.replaces(name)))
}

#[cfg(test)]
mod tests {
    use dapple_plan::daemonset::pod::HASH_LABEL;
    use dapple_plan::daemonset::revision::FORM_ANNOTATION;
    use serde_json::{Value, json};

    use super::*;
    use crate::slim::{Interner, read};

    fn template(image: &str, spec: Value) -> Value {
        let mut template = json!({"metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "agent", "image": image}]}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            template["spec"][field] = value.clone();
        }
        template
    }

    fn revision(name: &str, (number, form): (i64, &str), template: &Value) -> Arc<SetRevision> {
        let patch =
            json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": {"metadata": {"labels": {"a": "b"}}}});
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                "labels": {HASH_LABEL: "plain"}, "annotations": {FORM_ANNOTATION: form}},
            "revision": number, "data": {"spec": {"template": template, "patches": [patch]}},
        });
        SetRevision::new(Arc::new(read(&object, &mut Interner::default()).unwrap()))
    }

    /// The variants of a revision, asked for by a patched node, and what that node gets.
    fn patched(set: &Set, revision: &SetRevision) -> (Variants, Rendered) {
        let mut variants = variants(set, revision, false, &Overriding::None);
        let labels = BTreeMap::from([("disk".to_owned(), "large".to_owned())]);
        let number = variants.of(fit::Node { name: "n", labels: &labels, taints: &[] });
        let rendered = variants.all()[number].rendering.clone().unwrap();
        (variants, rendered)
    }

    #[test]
    fn pods_are_known_by_what_they_mean_whatever_their_labels() {
        let before = template("agent:1", json!({"dnsPolicy": "ClusterFirst"}));
        let named = |name: &str| json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"});
        let selector = json!({"matchLabels": {"app": "agent"}});
        let set = json!({"metadata": named("agent"), "spec": {"selector": selector, "template": before}});
        let set: Set = read(&set, &mut Interner::default()).unwrap();
        let older = revision("agent-1", (1, "1"), &before);
        let (_, ran) = patched(&set, &older);
        let mut pod = json!({"metadata": named("agent-x"), "spec": {"nodeName": "n"}});
        pod["metadata"]["labels"] = json!({"app": "agent", HASH_LABEL: *ran.hash});
        pod["metadata"]["annotations"] = json!({REVISION_ANNOTATION: "agent-1"});
        let pod: Arc<Pod> = Arc::new(read(&pod, &mut Interner::default()).unwrap());
        // The first form of hashes names what is written out, too.
        let left_out = template("agent:1", json!({}));
        for (template, is_the_same) in [(left_out, true), (template("agent:2", json!({})), false)] {
            let newest = revision("agent-2", (2, "2"), &template);
            let (variants, wanted) = patched(&set, &newest);
            let rendered = VariantsOfRevisions::from([(Arc::from("agent-2"), (1, variants))]);
            let sources = Sources {
                set: &set,
                revisions: &[older.clone(), newest.clone()],
                update: &newest,
                current: &older,
                pods: std::slice::from_ref(&pod),
                nodes: &[],
                ignores_patches: false,
                asked: &Asked::default(),
                past: &Past::new(),
                is_gone: false,
                is_blocked: false,
                now: Timestamp::UNIX_EPOCH,
            };
            assert_ne!(wanted.hash, ran.hash);
            assert_eq!(sources.meanings_of_pods(&rendered).contains(&wanted.meaning), is_the_same);
        }
    }
}

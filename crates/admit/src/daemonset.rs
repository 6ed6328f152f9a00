//! Judging DaemonSets: by the rules, and by what the API server says of every kind of pod that would come of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use dapple_api::daemonset::{DaemonSet, DaemonSetSpec};
use dapple_api::selector::Selector;
use dapple_api::verdict::{Reason, Verdict};
use dapple_edit::daemonset::{blame, judge_patch, judge_set, place_of};
use dapple_edit::edit::EditError;
use dapple_edit::render::hash;
use dapple_plan::census::Class;
use dapple_plan::daemonset::kinds::{Kind, Overruled, Parts, fights, kinds, selectors};
use serde_json::json;

use crate::ask::{Answers, Asker, Told, locked};
use crate::memory::{Key, Memory};
use crate::prove::{Complaint, Proof, Why};

/// Of a DaemonSet with more patches, only the template is looked at: it has far too many, and each may split all nodes anew.
const MOST_PATCHES: usize = 64;
/// Kinds of pods that are looked through for patches that fight: there may be a thousand, and nobody reads that many.
const MOST_COMPARED: usize = 64;

/// Judges DaemonSets.
pub struct DaemonSets {
    asker: Arc<Asker>,
    /// Patches that overrule each other: it takes several renderings to find out.
    overruled: Mutex<Memory<Arc<[Overruled]>>>,
    /// Patches of which the rules have nothing to say: that takes a rendering of each. What they have something to say of
    /// is corrected, and seldom seen again.
    sound: Mutex<Memory<()>>,
}

/// Names the renderings of a DaemonSet.
struct Hashes {
    template: Arc<str>,
    patches: Vec<Arc<str>>,
}

impl Hashes {
    fn of(spec: &DaemonSetSpec) -> Self {
        let patches = spec.patches.iter().map(|patch| hash(&patch.patch.0).into()).collect();
        Self { template: hash(&spec.template.0).into(), patches }
    }

    fn key(&self, kind: &Kind) -> Key {
        let applied = kind.patches.iter().filter_map(|index| self.patches.get(*index));
        std::iter::once(&self.template).chain(applied).cloned().collect()
    }

    /// Names what a verdict on a patch follows from. Its place says nothing where there is nothing to be said.
    fn key_of_patch(&self, spec: &DaemonSetSpec, place: usize) -> Key {
        let selectors = hash(&json!([spec.selector, spec.patches[place].selector]));
        vec![self.template.clone(), self.patches[place].clone(), selectors.into()]
    }
}

/// The kinds of pods that a DaemonSet had before a change: what was taken once is not in the way of its correction.
#[derive(Default)]
struct Before(BTreeMap<Key, bool>);

impl Before {
    /// Those that would come of it on the nodes of today.
    fn of(spec: &DaemonSetSpec, hashes: &Hashes, classes: impl FnOnce(&[Selector]) -> Vec<Class>) -> Self {
        let mut before = Self::default();
        for kind in kinds_without(|_| false, spec, classes) {
            *before.0.entry(hashes.key(&kind)).or_default() |= is_real(&kind);
        }
        before
    }

    fn has(&self, key: &Key, kind: &Kind) -> bool {
        self.0.get(key).is_some_and(|was_real| *was_real || !is_real(kind))
    }
}

/// Whether a kind is more than a patch that was tried alone, since no node matches it.
fn is_real(kind: &Kind) -> bool {
    kind.nodes > 0 || kind.patches.is_empty()
}

/// The kinds of pods that would come of a DaemonSet on the nodes of today, without patches that are wrong.
fn kinds_without(
    is_wrong: impl Fn(usize) -> bool,
    spec: &DaemonSetSpec,
    classes: impl FnOnce(&[Selector]) -> Vec<Class>,
) -> Vec<Kind> {
    if spec.patches.len() > MOST_PATCHES {
        return vec![Kind { patches: Vec::new(), nodes: 0 }];
    }
    let wrong: BTreeSet<usize> = (0..spec.patches.len()).filter(|place| is_wrong(*place)).collect();
    let mut selectors = selectors(spec);
    wrong.iter().for_each(|place| selectors[*place] = Selector::nothing());
    let mut kinds = kinds(spec, &classes(&selectors));
    kinds.retain(|kind| !kind.patches.iter().any(|place| wrong.contains(place)));
    kinds
}

/// As [`kinds_without`], without the patches that the verdict has something against: of those enough is said already, and
/// all that is wrong with the others is to be said as well.
fn sound_kinds(spec: &DaemonSetSpec, classes: impl FnOnce(&[Selector]) -> Vec<Class>, verdict: &Verdict) -> Vec<Kind> {
    let is_wrong = |place: usize| {
        let patch = format!("spec.patches[{place}]");
        verdict.errors.iter().any(|error| error.field.starts_with(&patch))
    };
    kinds_without(is_wrong, spec, classes)
}

impl DaemonSets {
    /// Asks the API server by this.
    pub fn new(asker: Arc<Asker>) -> Self {
        Self { asker, overruled: Mutex::default(), sound: Mutex::default() }
    }

    /// Everything that is to be said of a DaemonSet. `classes` sorts the nodes of the cluster by selectors.
    pub async fn judge(
        &self,
        set: &DaemonSet,
        old: Option<&DaemonSet>,
        classes: impl Fn(&[Selector]) -> Vec<Class>,
    ) -> Verdict {
        let (spec, hashes) = (&set.spec, Hashes::of(&set.spec));
        let mut verdict = self.by_rules(set, old, &hashes);
        let old = old.map(|old| (old, Hashes::of(&old.spec)));
        if let Some((old, hashes)) = &old {
            verdict.excuse(&self.by_rules(old, None, hashes));
        }
        let (parts, kinds) = (Parts::of(spec), sound_kinds(spec, &classes, &verdict));
        // Without any node there is nothing to be said of those that patches match.
        if kinds.iter().any(|kind| kind.nodes > 0) {
            for kind in kinds.iter().filter(|kind| kind.nodes == 0) {
                if let [only] = kind.patches.as_slice() {
                    verdict.warn(&format!("spec.patches[{only}]"), "it matches no node today");
                }
            }
        }
        let some = &kinds[..kinds.len().min(MOST_COMPARED)];
        verdict.warnings.extend(fights(spec, some, |kind| self.overruled(&parts, kind, hashes.key(kind))));
        let before = old.map(|(old, hashes)| Before::of(&old.spec, &hashes, classes)).unwrap_or_default();
        self.ask_new(spec, (&parts, &hashes), &kinds, &before, &mut verdict).await;
        verdict
    }

    /// What is to be said of a DaemonSet without a cluster.
    fn by_rules(&self, set: &DaemonSet, old: Option<&DaemonSet>, hashes: &Hashes) -> Verdict {
        judge_set(set, old, |place| {
            let key = hashes.key_of_patch(&set.spec, place);
            if locked(&self.sound).get(&key).is_some() {
                return Verdict::default();
            }
            let verdict = judge_patch(&set.spec, place);
            if verdict == Verdict::default() {
                locked(&self.sound).put(key, ());
            }
            verdict
        })
    }

    /// Which patches of a kind overrule which.
    fn overruled(&self, parts: &Parts<'_>, kind: &Kind, key: Key) -> Arc<[Overruled]> {
        if let Some(known) = locked(&self.overruled).get(&key) {
            return known;
        }
        let found: Arc<[Overruled]> = parts.overruled(&kind.patches).into();
        locked(&self.overruled).put(key, found.clone());
        found
    }

    /// Has the API server look at every kind of pod that `old` did not have, except those of patches that the verdict has
    /// something against already.
    pub async fn ask(
        &self,
        spec: &DaemonSetSpec,
        old: Option<&DaemonSetSpec>,
        classes: impl Fn(&[Selector]) -> Vec<Class>,
        verdict: &mut Verdict,
    ) {
        let kinds = sound_kinds(spec, &classes, verdict);
        let before = old.map(|old| Before::of(old, &Hashes::of(old), classes)).unwrap_or_default();
        self.ask_new(spec, (&Parts::of(spec), &Hashes::of(spec)), &kinds, &before, verdict).await;
    }

    async fn ask_new(
        &self,
        spec: &DaemonSetSpec,
        (parts, hashes): (&Parts<'_>, &Hashes),
        kinds: &[Kind],
        before: &Before,
        verdict: &mut Verdict,
    ) {
        let named = kinds.iter().map(|kind| (hashes.key(kind), kind));
        let (keys, new): (Vec<Key>, Vec<&Kind>) = named.filter(|(key, kind)| !before.has(key, kind)).unzip();
        let mut broken = Vec::new();
        let render = |number: usize| {
            let rendered = parts.rendered(&new[number].patches);
            rendered.map_err(|error| broken.push((new[number], error))).ok()
        };
        let answers = self.asker.ask(&keys, render).await;
        broken.iter().for_each(|(kind, error)| tell_broken(parts, kind, error, verdict));
        tell(spec, &new, answers, verdict);
    }
}

/// Patches that cannot be put together, where nodes would have to get them.
fn tell_broken(parts: &Parts<'_>, kind: &Kind, error: &EditError, verdict: &mut Verdict) {
    let rule = &error.source_of_edit.rule;
    // One that fails on the template alone is told of by the rules.
    let fails_alone = place_of(rule).is_none_or(|place| parts.rendered(&[place]).is_err());
    let field = format!("{rule}.patch");
    if kind.nodes == 0 || fails_alone || has_error(verdict, &field) {
        return;
    }
    let others = kind.patches.iter().map(|place| format!("spec.patches[{place}]")).filter(|other| other != rule);
    let others = others.collect::<Vec<_>>().join(", ");
    let text = format!("it cannot be used together with {others}, as on {} nodes: {}", kind.nodes, error.problem);
    verdict.refuse(field, Reason::Invalid, text);
}

fn has_error(verdict: &Verdict, field: &str) -> bool {
    verdict.errors.iter().any(|known| known.field == field)
}

/// Puts what the API server said into the verdict: each complaint once, at the field that it is about.
fn tell(spec: &DaemonSetSpec, kinds: &[&Kind], answers: Answers, verdict: &mut Verdict) {
    if answers.unasked > 0 {
        let text = format!("{} further kinds of pods are looked at before any pod is replaced", answers.unasked);
        verdict.warn("spec.patches", text);
    }
    if let Some(why) = answers.unsaid {
        let text = format!(
            "the API server did not say whether it takes such pods: {why}; dapple asks again before it replaces any"
        );
        verdict.warn("spec.template", text);
    }
    let proofs = answers.proofs.into_iter().map(|(number, proof)| (kinds[number], proof));
    let mut proofs: Vec<(&Kind, Proof)> = proofs.collect();
    // What counts most first: of a complaint that is told already no more is said, and a warning must not be in the way of
    // a refusal in the same words.
    proofs.sort_by_key(|(kind, _)| (!is_real(kind), kind.patches.len(), kind.patches.clone()));
    let mut told = Told::of(verdict);
    for (kind, proof) in proofs {
        let Proof::Refused(complaints) = proof else { continue };
        for Complaint { field, reason, text } in complaints {
            let field = blame(spec, &kind.patches, &field);
            if !told.is_new(&field, &text) {
                continue;
            }
            // A patch that no node matches was tried alone, and may be meant to go with another.
            if is_real(kind) || reason == Why::Unknown {
                verdict.refuse(field, reason.reason(), text);
            } else {
                verdict.warn(&field, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dapple_api::template::PodTemplate;

    use super::*;

    #[test]
    fn a_warning_is_not_in_the_way_of_a_refusal_in_the_same_words() {
        let template = json!({"spec": {"containers": [{"name": "c", "volumeMounts": [{"name": "cache"}]}]}});
        let spec = DaemonSetSpec { template: PodTemplate(template), ..DaemonSetSpec::default() };
        let (alone, real) = (Kind { patches: vec![2], nodes: 0 }, Kind { patches: vec![0, 1], nodes: 3 });
        let complaint = Complaint {
            field: "spec.containers[0].volumeMounts[0].name".into(),
            reason: Why::Invalid,
            text: "there is no such volume".into(),
        };
        let refused = || Proof::Refused(vec![complaint.clone()]);
        for order in [[0, 1], [1, 0]] {
            let proofs = order.map(|number| (number, refused())).to_vec();
            let mut verdict = Verdict::default();
            tell(&spec, &[&alone, &real], Answers { proofs, ..Answers::default() }, &mut verdict);
            assert_eq!((verdict.errors.len(), verdict.warnings.len()), (1, 0), "{verdict:?}");
        }
    }
}

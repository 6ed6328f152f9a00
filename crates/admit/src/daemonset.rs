//! Judging DaemonSets: by the rules, and by what the API server says of every kind of pod that would come of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::daemonset::{DaemonSet, DaemonSetSpec};
use dapple_api::selector::Selector;
use dapple_api::verdict::Verdict;
use dapple_edit::daemonset::{blame, judge_set};
use dapple_edit::render::hash;
use dapple_plan::census::Class;
use dapple_plan::daemonset::kinds::{Kind, Overruled, Parts, fights, kinds, selectors};
use futures::StreamExt;
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::prove::{Complaint, Proof, Why, prove};

/// So many kinds of pods are asked about for one request; the controller asks about the rest.
const MOST_QUESTIONS: usize = 32;
/// Questions under way at once.
const AT_ONCE: usize = 8;
/// The time for all of them. The API server waits for our answer meanwhile, and must not give up.
const ASK_WITHIN: Duration = Duration::from_millis(2_500);
/// Requests that may ask at once.
const MOST_ASKING: usize = 16;
/// Kinds of pods that are looked through for patches that fight: there may be a thousand, and nobody reads that many.
const MOST_COMPARED: usize = 64;
/// Kinds of pods that are remembered.
const MOST_KNOWN: usize = 4_096;
/// A refusal is asked for again after this time: the cluster may know more by then.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// What names a rendering: the hash of its template, and of each patch in order.
type Key = Vec<String>;

/// Judges DaemonSets.
pub struct DaemonSets {
    client: Client,
    namespace: String,
    /// What the API server has said, and when.
    proofs: Mutex<Memory<(Proof, Instant)>>,
    /// Patches that overrule each other: it takes several renderings to find out.
    overruled: Mutex<Memory<Arc<[Overruled]>>>,
    /// Requests that may ask the API server at once: the others must not wait behind those that wait for it.
    asking: Semaphore,
}

/// Names the renderings of a DaemonSet.
#[derive(Default)]
struct Hashes {
    template: String,
    patches: Vec<String>,
}

impl Hashes {
    fn of(spec: &DaemonSetSpec) -> Self {
        let patches = spec.patches.iter().map(|patch| hash(&patch.patch.0)).collect();
        Self { template: hash(&spec.template.0), patches }
    }

    fn key(&self, kind: &Kind) -> Key {
        let applied = kind.patches.iter().filter_map(|index| self.patches.get(*index));
        std::iter::once(&self.template).chain(applied).cloned().collect()
    }

    /// Whether a rendering may have been one of these: what was taken once is not in the way of its correction.
    fn cover(&self, key: &Key) -> bool {
        let are_known = |patches: &[String]| patches.iter().all(|patch| self.patches.contains(patch));
        key.split_first().is_some_and(|(template, patches)| *template == self.template && are_known(patches))
    }
}

/// What was found out about kinds of pods. What nobody has asked for longest is forgotten first.
struct Memory<T> {
    known: BTreeMap<Key, (T, u64)>,
    order: BTreeMap<u64, Key>,
    next: u64,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }
}

impl<T: Clone> Memory<T> {
    fn get(&mut self, key: &Key) -> Option<T> {
        let (found, number) = self.known.get_mut(key)?;
        // What is asked for stays.
        if let Some(key) = self.order.remove(number) {
            self.order.insert(self.next, key);
        }
        *number = self.next;
        self.next += 1;
        Some(found.clone())
    }

    fn put(&mut self, key: Key, found: T) {
        if let Some((_, number)) = self.known.insert(key.clone(), (found, self.next)) {
            self.order.remove(&number);
        }
        self.order.insert(self.next, key);
        self.next += 1;
        while self.known.len() > MOST_KNOWN {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.known.remove(&oldest);
        }
    }
}

fn locked<T>(memory: &Mutex<T>) -> MutexGuard<'_, T> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether what the API server said is still worth something.
fn still_holds((proof, since): &(Proof, Instant)) -> bool {
    !matches!(proof, Proof::Refused(_)) || since.elapsed() <= REFUSED_FOR
}

impl DaemonSets {
    /// Asks the API server by this client, in dapple's own namespace.
    pub fn new(client: Client, namespace: String) -> Self {
        let asking = Semaphore::new(MOST_ASKING);
        Self { client, namespace, proofs: Mutex::default(), overruled: Mutex::default(), asking }
    }

    /// Everything that is to be said of a DaemonSet.
    pub async fn judge(
        &self,
        set: &DaemonSet,
        old: Option<&DaemonSet>,
        classes: impl FnOnce(&[Selector]) -> Vec<Class>,
    ) -> Verdict {
        let mut verdict = judge_set(set, old);
        if let Some(old) = old {
            verdict.excuse(&judge_set(old, None));
        }
        if !verdict.is_ok() {
            return verdict;
        }
        let spec = &set.spec;
        let classes = classes(&selectors(spec));
        let kinds = kinds(spec, &classes);
        let (parts, hashes) = (Parts::of(spec), Hashes::of(spec));
        // Without any node there is nothing to be said of those that patches match.
        if !classes.is_empty() {
            for kind in kinds.iter().filter(|kind| kind.nodes == 0) {
                if let [only] = kind.patches.as_slice() {
                    verdict.warn(&format!("spec.patches[{only}]"), "it matches no node today");
                }
            }
        }
        let some = &kinds[..kinds.len().min(MOST_COMPARED)];
        verdict.warnings.extend(fights(spec, some, |kind| self.overruled(&parts, kind, hashes.key(kind))));
        self.ask_new(spec, (&parts, &hashes), &kinds, old.map(|old| &old.spec), &mut verdict).await;
        verdict
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

    /// Has the API server look at every kind of pod that `old` did not have.
    pub async fn ask(&self, spec: &DaemonSetSpec, kinds: &[Kind], old: Option<&DaemonSetSpec>, verdict: &mut Verdict) {
        self.ask_new(spec, (&Parts::of(spec), &Hashes::of(spec)), kinds, old, verdict).await;
    }

    async fn ask_new(
        &self,
        spec: &DaemonSetSpec,
        (parts, hashes): (&Parts<'_>, &Hashes),
        kinds: &[Kind],
        old: Option<&DaemonSetSpec>,
        verdict: &mut Verdict,
    ) {
        let before = old.map(Hashes::of).unwrap_or_default();
        let (mut proofs, mut open) = (Vec::new(), Vec::new());
        for kind in kinds {
            let key = hashes.key(kind);
            if before.cover(&key) {
                continue;
            }
            match locked(&self.proofs).get(&key).filter(still_holds) {
                Some((proof, _)) => proofs.push((kind, proof)),
                None => open.push(kind),
            }
        }
        let unasked = open.split_off(open.len().min(MOST_QUESTIONS));
        let mut questions = Vec::new();
        let place = self.asking.try_acquire();
        if place.is_err() && !open.is_empty() {
            proofs.push((open[0], Proof::Unknown("dapple asks too much already".to_owned())));
            open.clear();
        }
        for kind in open {
            if let Ok(template) = parts.rendered(&kind.patches) {
                questions.push(self.ask_about(kind, template));
            }
        }
        let (mut waiting, first) = (questions.len(), kinds.first());
        let mut answers = futures::stream::iter(questions).buffer_unordered(AT_ONCE);
        let end = tokio::time::sleep(ASK_WITHIN);
        tokio::pin!(end);
        while waiting > 0 {
            let answer = tokio::select! { biased; answer = answers.next() => answer, () = &mut end => None };
            let Some((kind, proof)) = answer else { break };
            waiting -= 1;
            if !matches!(proof, Proof::Unknown(_)) {
                locked(&self.proofs).put(hashes.key(kind), (proof.clone(), Instant::now()));
            }
            proofs.push((kind, proof));
        }
        if waiting > 0 {
            proofs.extend(first.map(|kind| (kind, Proof::Unknown("it took too long".to_owned()))));
        }
        if !unasked.is_empty() {
            let text = format!("{} further kinds of pods are looked at before any pod is replaced", unasked.len());
            verdict.warn("spec.patches", text);
        }
        tell(spec, proofs, verdict);
    }

    async fn ask_about<'k>(&self, kind: &'k Kind, template: Value) -> (&'k Kind, Proof) {
        (kind, prove(&self.client, &self.namespace, &template).await)
    }
}

/// Puts what the API server said into the verdict: each complaint once, at the field that it is about.
fn tell(spec: &DaemonSetSpec, mut proofs: Vec<(&Kind, Proof)>, verdict: &mut Verdict) {
    proofs.sort_by_key(|(kind, _)| kind.patches.len());
    // What is wrong with the template is wrong with everything that is made of it, and so is what a patch has wrong.
    let mut told: BTreeSet<Complaint> = BTreeSet::new();
    for (kind, proof) in proofs {
        match proof {
            Proof::Taken => {}
            Proof::Refused(complaints) => {
                for complaint in complaints.into_iter().filter(|complaint| told.insert(complaint.clone())) {
                    let Complaint { field, reason, text } = complaint;
                    let field = blame(spec, &kind.patches, &field);
                    // A patch that no node matches was tried alone, and may be meant to go with another.
                    if kind.nodes == 0 && !kind.patches.is_empty() && reason != Why::Unknown {
                        verdict.warn(&field, text);
                    } else {
                        verdict.refuse(field, reason.reason(), text);
                    }
                }
            }
            Proof::Unknown(why) => {
                let text = format!(
                    "the API server did not say whether it takes such pods: {why}; dapple asks again before \
                                    it replaces any"
                );
                if !verdict.warnings.iter().any(|known| known.contains("did not say whether")) {
                    verdict.warn("spec.template", text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_is_forgotten_first() {
        let mut memory = Memory::default();
        let key = |number: usize| vec![number.to_string()];
        (0..MOST_KNOWN).for_each(|number| memory.put(key(number), number));
        assert_eq!(memory.get(&key(0)), Some(0));
        memory.put(key(MOST_KNOWN), MOST_KNOWN);
        assert_eq!(memory.get(&key(1)), None, "the one that was asked for longest ago");
        assert_eq!(memory.get(&key(0)), Some(0));
        assert_eq!(memory.known.len(), memory.order.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_asked_for_again() {
        let now = Instant::now();
        let (taken, refused) = ((Proof::Taken, now), (Proof::Refused(Vec::new()), now));
        assert!(still_holds(&taken) && still_holds(&refused));
        tokio::time::advance(REFUSED_FOR * 2).await;
        assert!(still_holds(&taken) && !still_holds(&refused));
    }
}

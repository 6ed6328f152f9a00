//! Asking the API server about several pod templates: only what is new, not too much of it, and never for too long.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::verdict::Verdict;
use dapple_control::port::Portion;
use dapple_control::port::line::Line;
use futures::StreamExt;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use crate::memory::{Key, Memory};
use crate::prove::{Proof, prove};
use crate::serve::caller;

/// So many kinds of pods are asked about for one request; the controller asks about the rest.
const MOST_QUESTIONS: usize = 32;
/// Questions under way at once, of one request.
const AT_ONCE: usize = 8;
/// And of all requests. Whoever has fewest under way goes first, so that nobody's questions wait behind all of another's: a
/// request whose questions are not answered in time passes.
const ALL_AT_ONCE: Portion = Portion::halved(64);
/// The time for all of them. The API server waits for our answer meanwhile, and must not give up.
const ASK_WITHIN: Duration = Duration::from_millis(2_500);
/// A refusal is asked for again after this time: the cluster may know more by then.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Asks the API server, and remembers what it said.
pub struct Asker {
    client: Client,
    namespace: String,
    /// What the API server has said, and when.
    proofs: Mutex<Memory<(Proof, Instant)>>,
    /// Questions take turns.
    line: Line,
}

/// What came of some questions.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// What the API server said, with the number of the question.
    pub(crate) proofs: Vec<(usize, Proof)>,
    /// Why it did not say more, if it did not.
    pub(crate) unsaid: Option<String>,
    /// How many were not asked, since there are too many.
    pub(crate) unasked: usize,
}

/// What is told of an object already. What is wrong with a template is wrong with everything that is made of it, and what is
/// wrong by the rules is often so for the API server, too.
pub(crate) struct Told {
    by_rules: BTreeSet<String>,
    by_cluster: BTreeSet<(String, String)>,
}

impl Told {
    /// What the rules have said.
    pub(crate) fn of(verdict: &Verdict) -> Self {
        let by_rules = verdict.errors.iter().map(|error| error.field.clone()).collect();
        Self { by_rules, by_cluster: BTreeSet::new() }
    }

    /// Whether a complaint about a field is worth telling. It counts as told from then on.
    pub(crate) fn is_new(&mut self, field: &str, text: &str) -> bool {
        !self.by_rules.contains(field) && self.by_cluster.insert((field.to_owned(), text.to_owned()))
    }
}

impl Asker {
    /// Asks by this client, in dapple's own namespace.
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, proofs: Mutex::default(), line: Line::new(ALL_AT_ONCE) }
    }

    /// Whether the template of this name is known to be refused.
    pub(crate) fn is_refused(&self, key: &Key) -> bool {
        let known = locked(&self.proofs).get(key).filter(still_holds);
        known.is_some_and(|(proof, _)| matches!(proof, Proof::Refused(_)))
    }

    /// Asks about the templates of these names. Only of what is not known yet is the template wanted; one that there is not
    /// is passed over.
    pub(crate) async fn ask(&self, keys: &[Key], mut template: impl FnMut(usize) -> Option<Value>) -> Answers {
        let (mut answers, mut open) = (Answers::default(), Vec::new());
        for (number, key) in keys.iter().enumerate() {
            match locked(&self.proofs).get(key).filter(still_holds) {
                Some((proof, _)) => answers.proofs.push((number, proof)),
                None => open.push(number),
            }
        }
        if open.is_empty() {
            return answers;
        }
        answers.unasked = open.len().saturating_sub(MOST_QUESTIONS);
        open.truncate(MOST_QUESTIONS);
        let ready = open.into_iter().filter_map(|number| Some((number, template(number)?)));
        let questions: Vec<_> = ready.map(|(number, template)| self.ask_one(number, template)).collect();
        let mut waiting = questions.len();
        let mut said = futures::stream::iter(questions).buffer_unordered(AT_ONCE);
        let end = tokio::time::sleep(ASK_WITHIN);
        tokio::pin!(end);
        while waiting > 0 {
            let answer = tokio::select! { biased; answer = said.next() => answer, () = &mut end => None };
            let Some((number, proof)) = answer else {
                answers.unsaid = Some("it took too long".to_owned());
                break;
            };
            waiting -= 1;
            if let Proof::Unknown(why) = proof {
                answers.unsaid.get_or_insert(why);
                continue;
            }
            locked(&self.proofs).put(keys[number].clone(), (proof.clone(), Instant::now()));
            answers.proofs.push((number, proof));
        }
        answers
    }

    async fn ask_one(&self, number: usize, template: Value) -> (usize, Proof) {
        let _turn = match caller() {
            Some(caller) => Some(self.line.turn(caller).await),
            None => None,
        };
        (number, prove(&self.client, &self.namespace, &template).await)
    }
}

/// Whatever happened to somebody else with it: there is nothing in it that can be half done.
pub(crate) fn locked<T>(memory: &Mutex<T>) -> MutexGuard<'_, T> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether what the API server said is still worth something.
fn still_holds((proof, since): &(Proof, Instant)) -> bool {
    !matches!(proof, Proof::Refused(_)) || since.elapsed() <= REFUSED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_asked_for_again() {
        let now = Instant::now();
        let (taken, refused) = ((Proof::Taken, now), (Proof::Refused(Vec::new()), now));
        assert!(still_holds(&taken) && still_holds(&refused));
        tokio::time::advance(REFUSED_FOR * 2).await;
        assert!(still_holds(&taken) && !still_holds(&refused));
    }
}

//! Answering: the bytes of a question in, the text of an answer out. Whatever is asked, there is an answer that lets the
//! scheduler go on.

use std::borrow::Cow;
use std::sync::Arc;

use dapple_control::group::extender::{Answer, AskedPod};
use dapple_plan::group::extender::Judged;

use crate::metrics::Ended;
use crate::wire::{Preemption, Question, priorities, unreadable};

/// Has nodes judged, and returns the group that the pod goes to then.
pub type Judge<'j> = &'j mut dyn FnMut(&Judged<'_>) -> Option<Arc<str>>;

/// Which nodes may have a pod. `ask` is asked about the pod.
pub fn filter(body: &[u8], ask: impl FnOnce(&AskedPod, Judge<'_>) -> Answer) -> (String, Ended) {
    let Question { pod, nodes } = match Question::read(body) {
        Ok(question) => question,
        Err(error) => return (unreadable(&error), Ended::Unreadable),
    };
    // Nobody knows which pod it is, or which node: everything stays as it is.
    let Some(pod) = pod else { return (nodes.all_pass(), Ended::Unreadable) };
    let mut told = None;
    let mut judge = |judged: &Judged<'_>| {
        let names = nodes.names().ok()?;
        let filtered = judged.filter(names.iter().map(Cow::as_ref));
        let group = filtered.group.clone();
        told = Some(nodes.filtered(&names, &filtered));
        group
    };
    match ask(&pod, &mut judge) {
        Answer::Untouched => (nodes.all_pass(), Ended::Untouched),
        Answer::Refused(reason) => match nodes.names() {
            Ok(names) => (nodes.none_passes(&names, &reason), Ended::Refused),
            Err(_) => (nodes.all_pass(), Ended::Unreadable),
        },
        Answer::Judged => match told {
            Some(told) => (told, Ended::Judged),
            None => (nodes.all_pass(), Ended::Unreadable),
        },
    }
}

/// The scores of nodes; none where nothing is to be said.
pub fn prioritize(body: &[u8], ask: impl FnOnce(&AskedPod, Judge<'_>) -> Answer) -> (String, Ended) {
    let nothing = |ended| ("[]".to_owned(), ended);
    let Ok(Question { pod: Some(pod), nodes }) = Question::read(body) else { return nothing(Ended::Unreadable) };
    let mut told = None;
    let mut judge = |judged: &Judged<'_>| {
        let names = nodes.names().ok()?;
        let (scores, group) = judged.scores(names.iter().map(Cow::as_ref));
        told = Some(priorities(&names, &scores));
        group
    };
    match ask(&pod, &mut judge) {
        Answer::Untouched => nothing(Ended::Untouched),
        Answer::Refused(_) => nothing(Ended::Refused),
        Answer::Judged => told.map_or_else(|| nothing(Ended::Unreadable), |told| (told, Ended::Judged)),
    }
}

/// On which nodes other pods may go for a pod: those that its policy has room on. For the others a scheduler would kill for nothing.
pub fn preempt(body: &[u8], ask: impl FnOnce(&AskedPod, Judge<'_>) -> Answer) -> (String, Ended) {
    let asked = match Preemption::read(body) {
        Ok(asked) => asked,
        Err(error) => return (unreadable(&error), Ended::Unreadable),
    };
    let Some(pod) = &asked.pod else { return (asked.on(|_| true), Ended::Unreadable) };
    let mut told = None;
    let mut judge = |judged: &Judged<'_>| {
        let filtered = judged.filter(asked.victims.keys().map(String::as_str));
        told = Some(asked.on(|number| filtered.nodes[number].is_none()));
        // Nobody passes by it.
        None
    };
    match ask(pod, &mut judge) {
        Answer::Untouched => (asked.on(|_| true), Ended::Untouched),
        Answer::Refused(_) => (asked.on(|_| false), Ended::Refused),
        Answer::Judged => told.map_or_else(|| (asked.on(|_| true), Ended::Unreadable), |told| (told, Ended::Judged)),
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;

//! Says why pods wait behind the gate: once for each reason, on the first few of an application and on the application.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use dapple_api::kinds::{KindInfo, POD};
use dapple_plan::group::why::{MOST_TOLD, Why};

use super::application::Asking;
use super::metrics::GroupMetrics;
use super::owner::is_gated;
use crate::caches::store::Store;
use crate::slim::{Key, Pod};
use crate::writes::events::{EventType, Recorder, Report};

/// What was said so far, by application.
pub(super) struct Waits {
    recorder: Arc<Recorder>,
    counted: Arc<GroupMetrics>,
    pods: Arc<Store<Pod>>,
    /// By the UID of the application. Those of which no pod waits any more are dropped.
    told: Mutex<BTreeMap<Arc<str>, Told>>,
}

#[derive(Default)]
struct Told {
    pods: BTreeMap<Key, Why>,
    /// Reasons that the application has said. A hundred claims that are not bound are one.
    application: BTreeSet<&'static str>,
}

/// What asks in the name of a pod that waits, the pod, and why it waits.
pub(super) type WaitingPod<'a> = (&'a Asking, Arc<Pod>, Why);

impl Told {
    /// Whether a pod is to say why it waits: not what it has said before, and only the first few.
    fn is_news(&mut self, pod: &Key, why: &Why) -> bool {
        let is_new = self.pods.get(pod) != Some(why);
        let is_told = is_new && (self.pods.contains_key(pod) || self.pods.len() < MOST_TOLD);
        if is_told {
            self.pods.insert(pod.clone(), why.clone());
        }
        is_told
    }

    /// Whether the application is to say why a pod of it waits.
    fn is_news_of_application(&mut self, why: &Why) -> bool {
        self.application.insert(why.reason())
    }
}

impl Waits {
    pub(super) fn new(recorder: Arc<Recorder>, counted: Arc<GroupMetrics>, pods: Arc<Store<Pod>>) -> Self {
        Self { recorder, counted, pods, told: Mutex::default() }
    }

    /// Says why pods wait, each with what asks in its name. `kind` is that of the application; a pod of nobody's is its own.
    pub(super) fn tell(&self, kind: KindInfo, waiting: &[WaitingPod<'_>]) {
        self.counted.notes.waiting(&self.pods, waiting.iter().map(|(_, pod, why)| (pod, why)));
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, told| {
            told.pods.retain(|key, _| self.pods.get(key).is_some_and(|pod| is_gated(&pod)));
            !told.pods.is_empty()
        });
        for (asking, pod, why) in waiting {
            let told = all.entry(asking.meta.uid.clone()).or_default();
            let key = &pod.meta.key;
            if told.is_news(key, why) {
                self.report(POD, key, &pod.meta.uid, why.reason(), why.to_string());
            }
            if kind != POD && told.is_news_of_application(why) {
                let note = format!("pods of it wait to be placed; the first of them: {why}");
                self.report(kind, &asking.meta.key, &asking.meta.uid, why.reason(), note);
            }
        }
    }

    /// Says something about a pod or an application.
    pub(super) fn report(&self, about: KindInfo, key: &Key, uid: &str, reason: &'static str, note: String) {
        self.recorder.report(Report {
            about,
            key: key.clone(),
            uid: uid.to_owned(),
            event_type: EventType::Warning,
            action: "Placing",
            reason,
            note,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_pods_of_an_application_say_each_reason_once() {
        let mut told = Told::default();
        let seat = Why::NoSeat { policy: "spread".to_owned() };
        let group = Why::NoGroup { group: Arc::from("beijing"), policy: "spread".to_owned() };
        let keys: Vec<Key> = (0..30).map(|number| Key::new("here", &format!("web-{number:02}"))).collect();
        let mut say = |why: &Why| keys.iter().filter(|key| told.is_news(key, why)).count();
        assert_eq!((say(&seat), say(&seat)), (20, 0));
        assert_eq!((say(&group), say(&group)), (20, 0), "another reason, of those that have spoken before");
    }

    #[test]
    fn an_application_says_each_reason_once_whatever_its_pods_wait_for() {
        let mut told = Told::default();
        let mut whys: Vec<Why> =
            (0..100).map(|number| Why::Unbound { claim: Arc::from(format!("data-web-{number}")) }).collect();
        whys.push(Why::NoSeat { policy: "spread".to_owned() });
        assert_eq!(whys.iter().filter(|why| told.is_news_of_application(why)).count(), 2);
    }
}

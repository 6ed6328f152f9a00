//! `dapple get -w`: DaemonSets and their pods as they change.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::time::Duration;

use dapple_api::daemonset::DaemonSet;
use dapple_view::daemonset::{DaemonSetView, PodFacts};
use dapple_view::harmless;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use tokio::time::Instant;

use crate::args::GetOutput;
use crate::get::none_of;
use crate::get::screen::{Screen, Seen};
use crate::output::note;
use crate::sets::{Sets, controller, read_or_note, reason};
use crate::sources::with_notice;

/// The shortest time between two pictures.
const BETWEEN: Duration = Duration::from_millis(250);
/// Ages change even if nothing else does.
const TICK: Duration = Duration::from_secs(1);

/// The objects of a kind as a watch brings them, by namespace and name.
struct Mirror<V> {
    known: BTreeMap<(String, String), V>,
    /// What a list under way has brought: it takes the place of what is known once it is whole.
    listed: BTreeMap<(String, String), V>,
    is_whole: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: BTreeMap::new(), is_whole: false }
    }
}

impl<V> Mirror<V> {
    fn take<K: ResourceExt>(&mut self, event: Event<K>, read: impl Fn(&K) -> Option<V>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                if let Some(value) = read(&object) {
                    self.listed.insert(key(&object), value);
                }
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.listed);
                self.is_whole = true;
            }
            Event::Apply(object) => match read(&object) {
                Some(value) => _ = self.known.insert(key(&object), value),
                None => _ = self.known.remove(&key(&object)),
            },
            Event::Delete(object) => _ = self.known.remove(&key(&object)),
        }
    }
}

/// A pod and the UID of its controller.
type Owned = (String, PodFacts);

#[derive(Default)]
struct World {
    sets: Mirror<DaemonSet>,
    pods: Mirror<Owned>,
    /// Why something is not seen at the moment.
    trouble: Option<String>,
}

impl World {
    fn seen(&self, now: Timestamp, then: Timestamp) -> Vec<Seen> {
        let mut of: HashMap<&str, Vec<PodFacts>> = HashMap::new();
        for (uid, pod) in self.pods.known.values() {
            of.entry(uid).or_default().push(pod.clone());
        }
        let view = |set: &DaemonSet| {
            let pods = set.metadata.uid.as_deref().and_then(|uid| of.get(uid)).map(Vec::as_slice).unwrap_or_default();
            Seen { now: DaemonSetView::new(set, pods, now), then: DaemonSetView::new(set, pods, then) }
        };
        self.sets.known.values().map(view).collect()
    }

    /// Takes in what a watch brought.
    fn take<K>(&mut self, event: Option<Result<Event<K>, watcher::Error>>, into: impl FnOnce(&mut Self, Event<K>)) {
        match event {
            Some(Ok(event)) => {
                // An `Init` only says that a list is about to be tried.
                if !matches!(event, Event::Init) {
                    self.trouble = None;
                }
                into(self, event);
            }
            Some(Err(error)) => {
                self.trouble = Some(harmless(&format!("the watch broke and is tried again: {}", reason(&error))))
            }
            None => {}
        }
    }
}

pub(super) async fn run(sets: &Sets, name: Option<&str>, output: GetOutput) -> anyhow::Result<ExitCode> {
    let (mut of_sets, mut of_pods) = (Config::default(), Config::default());
    let first = async {
        // What cannot be read at all is an error now, not something to wait for.
        match name {
            Some(name) => sets.get(name).await.map(|found| Some(found.set)),
            None => sets.list().await.map(|_| None),
        }
    };
    if let (Some(set), Some(name)) = (with_notice("reading the cluster ...", first).await?, name) {
        of_sets = of_sets.fields(&format!("metadata.name={name}"));
        if let Ok(selector) = kube::core::Selector::try_from(set.spec.selector) {
            of_pods = of_pods.labels_from(&selector);
        }
    }
    let objects = watch(sets.objects(), of_sets).default_backoff().boxed();
    let pods = watch(sets.all_pods(), of_pods).default_backoff().boxed();
    follow(objects, pods, &none_of(sets), output).await
}

async fn follow(
    mut objects: impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Unpin,
    mut pods: impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Unpin,
    none: &str,
    output: GetOutput,
) -> anyhow::Result<ExitCode> {
    let owned = |pod: &Pod| Some((controller(&pod.metadata)?.to_owned(), PodFacts::of(pod)));
    let (mut world, mut screen, then) = (World::default(), Screen::new(output), Timestamp::now());
    let mut tick = tokio::time::interval(TICK);
    let mut due = Instant::now();
    let (mut is_dirty, mut told) = (false, None);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let is_whole = world.sets.is_whole && world.pods.is_whole;
        tokio::select! {
            biased;
            _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep_until(due), if is_dirty && is_whole => {
                let aside = world.trouble.clone().or_else(|| world.sets.known.is_empty().then(|| none.to_owned()));
                if !screen.show(world.seen(Timestamp::now(), then), aside.as_deref(), output)? {
                    return Ok(ExitCode::SUCCESS);
                }
                if !screen.is_live() && aside != told {
                    aside.iter().for_each(|aside| note(aside));
                    told = aside;
                }
                is_dirty = false;
                due = Instant::now() + BETWEEN;
            }
            event = objects.next() => {
                world.take(event, |world, event| world.sets.take(event, read_or_note));
                is_dirty = true;
            }
            event = pods.next() => {
                world.take(event, |world, event| world.pods.take(event, owned));
                is_dirty = true;
            }
            _ = tick.tick(), if screen.is_live() => is_dirty = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod
    }

    #[test]
    fn a_list_takes_the_place_of_what_was_known() {
        let mut mirror: Mirror<String> = Mirror::default();
        let read = |pod: &Pod| pod.metadata.name.clone().filter(|name| name != "unreadable");
        mirror.take(Event::Init, read);
        for name in ["a", "b", "unreadable"] {
            mirror.take(Event::InitApply(pod(name)), read);
        }
        assert!(!mirror.is_whole && mirror.known.is_empty());
        mirror.take(Event::InitDone, read);
        mirror.take(Event::Apply(pod("c")), read);
        mirror.take(Event::Delete(pod("a")), read);
        assert_eq!(mirror.known.values().cloned().collect::<Vec<_>>(), ["b", "c"]);
        mirror.take(Event::Init, read);
        mirror.take(Event::InitApply(pod("d")), read);
        assert_eq!(mirror.known.len(), 2, "until the list is whole");
        mirror.take(Event::InitDone, read);
        assert_eq!(mirror.known.values().cloned().collect::<Vec<_>>(), ["d"]);
    }
}

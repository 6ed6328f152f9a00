//! `dapple get -w`: objects as they change, with their pods where those are shown.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use dapple_view::daemonset::PodFacts;
use dapple_view::harmless;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use tokio::time::Instant;

use crate::args::GetOutput;
use crate::get::kind::Shown;
use crate::get::none_of;
use crate::get::screen::{Screen, Seen};
use crate::mirror::Mirror;
use crate::output::note;
use crate::reach::{Reach, controller, reason};
use crate::sources::with_notice;

/// The shortest time between two pictures.
const BETWEEN: Duration = Duration::from_millis(250);
/// Ages change even if nothing else does.
const TICK: Duration = Duration::from_secs(1);

/// A pod and the UID of its controller.
type Owned = (String, PodFacts);

/// What a watch of a kind has brought.
struct World<K: Shown> {
    /// Objects, with their UIDs.
    objects: Mirror<(Option<String>, K::Object)>,
    pods: Mirror<Owned>,
    /// Why something is not seen at the moment.
    trouble: Option<String>,
}

impl<K: Shown> World<K> {
    fn new() -> Self {
        let pods = if K::HAS_PODS { Mirror::default() } else { Mirror::of_nothing() };
        Self { objects: Mirror::default(), pods, trouble: None }
    }

    fn seen(&self, now: Timestamp, then: Timestamp) -> Vec<Seen<K::View>> {
        let mut of: HashMap<&str, Vec<PodFacts>> = HashMap::new();
        for (uid, pod) in self.pods.known.values() {
            of.entry(uid).or_default().push(pod.clone());
        }
        let view = |(uid, object): &(Option<String>, K::Object)| {
            let pods = uid.as_deref().and_then(|uid| of.get(uid)).map(Vec::as_slice).unwrap_or_default();
            Seen { now: K::view(object, pods, now), then: K::view(object, pods, then) }
        };
        self.objects.known.values().map(view).collect()
    }

    /// Takes in what a watch brought.
    fn take<T>(&mut self, event: Option<Result<Event<T>, watcher::Error>>, into: impl FnOnce(&mut Self, Event<T>)) {
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

pub(super) async fn run<K: Shown>(reach: &Reach, name: Option<&str>, output: GetOutput) -> anyhow::Result<ExitCode> {
    let (mut of_objects, mut of_pods) = (Config::default(), Config::default());
    let first = async {
        // What cannot be read at all is an error now, not something to wait for.
        match name {
            Some(name) => reach.read(name, &reach.get(name).await?, K::read).map(Some),
            None => reach.list().await.map(|_| None),
        }
    };
    if let (Some(object), Some(name)) = (with_notice("reading the cluster ...", first).await?, name) {
        of_objects = of_objects.fields(&format!("metadata.name={name}"));
        if let Some(selector) = K::selector(&object)
            && let Ok(selector) = kube::core::Selector::try_from(selector.clone())
        {
            of_pods = of_pods.labels_from(&selector);
        }
    }
    let objects = watch(reach.objects(), of_objects).default_backoff().boxed();
    let pods = match K::HAS_PODS {
        true => watch(reach.all_pods(), of_pods).default_backoff().boxed(),
        false => futures::stream::pending().boxed(),
    };
    follow::<K>(reach, objects, pods, output).await
}

async fn follow<K: Shown>(
    reach: &Reach,
    mut objects: impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Unpin,
    mut pods: impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Unpin,
    output: GetOutput,
) -> anyhow::Result<ExitCode> {
    let owned = |pod: &Pod| Some((controller(&pod.metadata)?.to_owned(), PodFacts::of(pod)));
    let read = |object: &DynamicObject| Some((object.metadata.uid.clone(), reach.read_or_note(object, K::read)?));
    let (none, resource) = (none_of(reach), reach.resource());
    let (mut world, mut screen, then) = (World::<K>::new(), Screen::<K::View>::new(output), Timestamp::now());
    let mut tick = tokio::time::interval(TICK);
    let mut due = Instant::now();
    let (mut is_dirty, mut told) = (false, None);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let is_whole = world.objects.is_whole && world.pods.is_whole;
        tokio::select! {
            biased;
            _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep_until(due), if is_dirty && is_whole => {
                let aside = world.trouble.clone().or_else(|| world.objects.known.is_empty().then(|| none.clone()));
                let seen = world.seen(Timestamp::now(), then);
                if !screen.show::<K>(seen, aside.as_deref(), (resource.as_str(), output))? {
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
                world.take(event, |world, event| world.objects.take(event, read));
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

//! The markers of a namespace, with what is kept of each. They are decided about together: over one key the older one wins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::marker::allowance::Limit;
use dapple_plan::marker::rule::{Rule, Rules};

use super::cache::Marker;
use super::job::Job;
use super::memory::{Answered, Memory, Next};
use super::owners::Unread;
use super::view::{Seen, View, concerns, is_live};
use crate::caches::store::Store;
use crate::slim::{Key, Pod};

/// The markers of a namespace.
pub(super) struct Site {
    namespace: Arc<str>,
    /// When this process began to lead: in seconds since 1970, and by the view's clock.
    since: (i64, Duration),
    /// Those that can be used.
    rules: Rules,
    /// How often these have changed.
    edition: u64,
    memories: BTreeMap<Arc<str>, Memory>,
    /// By UID: owners that are to be read before markers are told of their pods.
    unread: BTreeMap<Arc<str>, Unread>,
    /// Markers for which something was news in a look at another one.
    news: BTreeSet<Arc<str>>,
}

impl Site {
    fn new(namespace: Arc<str>, since: (i64, Duration)) -> Self {
        let (rules, memories, unread, news) = (Rules::new(), BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { namespace, since, rules, edition: 0, memories, unread, news }
    }

    /// What a marker asks for by now; none if it is gone, or cannot be used. Returns whether that is news.
    pub(super) fn ask(&mut self, marker: &Arc<str>, rule: Option<Rule>) -> bool {
        if self.rules.get(marker).map(|known| &**known) == rule.as_ref() {
            return false;
        }
        self.edition += 1;
        match rule {
            Some(rule) => _ = self.rules.insert(marker.clone(), Arc::new(rule)),
            None => _ = self.rules.remove(marker),
        }
        true
    }

    /// The names of all markers that can be used.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.rules.keys().cloned().collect()
    }

    /// Nothing is kept of a marker any more.
    pub(super) fn forget(&mut self, marker: &str) {
        self.memories.remove(marker);
    }

    /// Whether any marker asks for probes.
    pub(super) fn has_probes(&self) -> bool {
        self.rules.values().any(|rule| !rule.probes.is_empty())
    }

    pub(super) fn rule(&self, marker: &str) -> Option<Arc<Rule>> {
        self.rules.get(marker).cloned()
    }

    pub(super) fn memory(&mut self, marker: &str) -> Option<&mut Memory> {
        self.memories.get_mut(marker)
    }

    /// Tells markers of a pod as it is in the view. Returns those for which that is news.
    pub(super) fn tell(&mut self, view: &View, pod: Arc<Pod>) -> BTreeSet<Arc<str>> {
        if !is_live(&pod) {
            return self.ended(view, &pod);
        }
        let Some(seen) = self.see(view, pod) else { return self.memories.keys().cloned().collect() };
        let Self { rules, memories, .. } = self;
        let mut news = BTreeSet::new();
        for (name, memory) in memories {
            let Some(rule) = rules.get(name) else { continue };
            let before: Vec<Arc<str>> = memory.outdone_by().map(|(older, _)| older.clone()).collect();
            if memory.tell(view, &seen, rule, rules) {
                news.insert(name.clone());
                // These say so.
                news.extend(before);
                news.extend(memory.outdone_by().map(|(older, _)| older.clone()));
            }
        }
        news
    }

    /// A pod with all that markers look at; nothing if its owner is to be read before.
    fn see(&mut self, view: &View, pod: Arc<Pod>) -> Option<Seen> {
        // What has nothing to do with any marker is told without: it has no marks, and gets none.
        let owner = if concerns(&self.rules, &pod) { view.owners.of(&pod) } else { Some(Arc::default()) };
        let Some(owner) = owner else {
            self.unread.extend(Unread::of(&pod));
            return None;
        };
        Some(Seen::new(view, pod, owner))
    }

    /// A pod ended, or is about to. Returns the markers for which that is news.
    pub(super) fn ended(&mut self, view: &View, pod: &Pod) -> BTreeSet<Arc<str>> {
        let memories = self.memories.iter_mut();
        memories.filter_map(|(name, memory)| memory.ended(view, pod).then(|| name.clone())).collect()
    }

    /// Owners that are to be read. Until they are, markers do not know all of their pods.
    pub(super) fn unread(&self) -> BTreeMap<Arc<str>, Unread> {
        self.unread.clone()
    }

    /// One of them was read.
    pub(super) fn is_read(&mut self, uid: &str) {
        self.unread.remove(uid);
    }

    /// Brings what is kept of a marker up to what all markers ask for now. Nothing if it cannot be used.
    pub(super) fn prepare(&mut self, view: &View, marker: &Marker) -> Option<()> {
        let name = &marker.meta.key.name;
        let rule = self.rules.get(name)?.clone();
        if self.memories.get(name).is_some_and(|memory| memory.uid != marker.meta.uid) {
            self.memories.remove(name);
        }
        let since = self.since;
        let memory = self.memories.entry(name.clone());
        let memory = memory.or_insert_with(|| Memory::new(marker.meta.uid.clone(), &rule, since));
        memory.choice.ask(rule.replicas, rule.is_suspended);
        if memory.told == Some(self.edition) {
            let over = memory.rested(view.now());
            self.tell_again(view, &over);
            return Some(());
        }
        self.tell_all(view, &rule);
        let (edition, memory) = (self.edition, self.memories.get_mut(name)?);
        memory.told = Some(edition);
        Some(())
    }

    /// Tells a marker of all pods.
    fn tell_all(&mut self, view: &View, rule: &Rule) {
        for pod in view.pods.in_namespace(&self.namespace).into_iter().filter(|pod| is_live(pod)) {
            let Some(seen) = self.see(view, pod) else { continue };
            if let Some(memory) = self.memories.get_mut(rule.name()) {
                memory.tell(view, &seen, rule, &self.rules);
            }
        }
    }

    /// Tells markers of these pods again, in a look at one of them.
    pub(super) fn tell_again(&mut self, view: &View, pods: &[Arc<str>]) {
        for name in pods {
            let key = Key { namespace: self.namespace.clone(), name: name.clone() };
            if let Some(pod) = view.pods.get(&key) {
                let news = self.tell(view, pod);
                self.news.extend(news);
            }
        }
    }

    /// Markers for which something was news in a look at another one: they are to be looked at too.
    pub(super) fn take_news(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.news)
    }

    /// What may be done next for a marker.
    pub(super) fn next(&mut self, view: &View, marker: &str, limit: Limit) -> Next {
        let Self { memories, namespace, .. } = self;
        memories.get_mut(marker).map(|memory| memory.next(view, namespace, limit)).unwrap_or_default()
    }

    /// Begins with what may be done next for a marker, if it still asks for what it did.
    pub(super) fn begin(&mut self, view: &View, marker: &Marker, limit: Limit) -> Option<Job> {
        let name = &marker.meta.key.name;
        let (pod, task) = self.next(view, name, limit).found?;
        // The view may be newer than what was told of it.
        let news = self.tell(view, pod.clone());
        self.news.extend(news);
        let (again, still) = self.next(view, name, limit).found?;
        if again.meta != pod.meta || still != task {
            return None;
        }
        let rule = self.rules.get(name)?.clone();
        let Some(owner) = view.owners.of(&pod) else {
            self.unread.extend(Unread::of(&pod));
            return None;
        };
        let mut job = Job::new(Seen::new(view, pod, owner), (rule, &self.rules), task, view.second());
        let memory = self.memories.get_mut(name).filter(|memory| memory.told == Some(self.edition))?;
        memory.begin(view, &mut job, &self.rules);
        Some(job)
    }

    /// A patch was answered.
    pub(super) fn answered(&mut self, view: &View, marker: &str, job: &Job, answer: Answered) {
        if let Some(memory) = self.memories.get_mut(marker) {
            memory.answered(view, job, answer);
        }
        let news = match view.pods.get(&job.seen.pod.meta.key) {
            Some(pod) if pod.meta.uid == job.seen.pod.meta.uid => self.tell(view, pod),
            _ => self.ended(view, &job.seen.pod),
        };
        self.news.extend(news);
    }

    /// Younger markers that look for other pods since this one is older, with how many pods each.
    pub(super) fn outdone(&self, marker: &str) -> BTreeMap<Arc<str>, usize> {
        let count =
            |memory: &Memory| memory.outdone_by().find(|(older, _)| ***older == *marker).map(|(_, count)| count);
        self.memories.iter().filter_map(|(name, memory)| Some((name.clone(), count(memory)?))).collect()
    }
}

/// The markers of all namespaces.
#[derive(Default)]
pub(super) struct Sites(Mutex<Known>);

#[derive(Default)]
struct Known {
    term: u64,
    since: (i64, Duration),
    sites: BTreeMap<Arc<str>, Arc<Mutex<Site>>>,
}

impl Sites {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a namespace, if there are any.
    pub(super) fn get(&self, namespace: &str) -> Option<Arc<Mutex<Site>>> {
        self.lock().sites.get(namespace).cloned()
    }

    /// Those of a namespace.
    pub(super) fn of(&self, namespace: &Arc<str>) -> Arc<Mutex<Site>> {
        let mut known = self.lock();
        let since = known.since;
        let site = || Arc::new(Mutex::new(Site::new(namespace.clone(), since)));
        known.sites.entry(namespace.clone()).or_insert_with(site).clone()
    }

    /// This process leads, in this term: what was kept is of another. If that is news, `forget` forgets the rest.
    pub(super) fn begin(&self, term: u64, since: (i64, Duration), markers: &Store<Marker>, forget: impl FnOnce()) {
        let mut known = self.lock();
        if term == 0 || known.term == term {
            return;
        }
        let mut sites: BTreeMap<Arc<str>, Site> = BTreeMap::new();
        for marker in markers.all() {
            let Key { namespace, name } = &marker.meta.key;
            let site = sites.entry(namespace.clone()).or_insert_with(|| Site::new(namespace.clone(), since));
            site.ask(name, Rule::of(&marker.object).ok());
        }
        let sites = sites.into_iter().map(|(namespace, site)| (namespace, Arc::new(Mutex::new(site)))).collect();
        *known = Known { term, since, sites };
        forget();
    }
}

/// The markers of a namespace, for as long as they are looked at.
pub(super) fn locked(site: &Mutex<Site>) -> MutexGuard<'_, Site> {
    site.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;

//! The objects of a kind as a watch brings them.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// Objects by namespace and name.
pub(crate) struct Mirror<V> {
    pub(crate) known: BTreeMap<(String, String), V>,
    /// What a list under way has brought: it takes the place of what is known once it is whole.
    listed: BTreeMap<(String, String), V>,
    pub(crate) is_whole: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: BTreeMap::new(), is_whole: false }
    }
}

impl<V> Mirror<V> {
    /// One that nothing is watched for, so that nothing is waited for.
    pub(crate) fn of_nothing() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Takes in what a watch brought. What `read` makes nothing of is not there.
    pub(crate) fn take<K: ResourceExt>(&mut self, event: Event<K>, read: impl Fn(&K) -> Option<V>) {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

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

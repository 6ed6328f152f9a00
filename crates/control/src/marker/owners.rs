//! What the owners of pods select on, read once of each: those of apps and batch cannot change it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::kinds::{self, KindInfo};
use dapple_edit::marker::OwnerKeys;
use dapple_plan::marker::owner::keys_of;
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use crate::observed::Observed;
use crate::slim::Pod;

/// By UID of the owner.
#[derive(Default)]
pub(super) struct Owners(Mutex<BTreeMap<Arc<str>, Arc<OwnerKeys>>>);

/// An owner that is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unread {
    /// The namespace of its pods.
    pub(super) namespace: Arc<str>,
    /// API version, kind and name, with blanks between them.
    object: Arc<str>,
}

impl Unread {
    /// The owner of a pod; nothing if it has none.
    pub(super) fn of(pod: &Pod) -> Option<(Arc<str>, Self)> {
        let (uid, object) = (pod.owner.clone()?, pod.owner_object.clone()?);
        Some((uid, Self { namespace: pod.meta.key.namespace.clone(), object }))
    }

    /// Its kind, if it is one that dapple knows, and its name.
    fn place(&self) -> Option<(KindInfo, &str)> {
        let mut words = self.object.split(' ');
        let (version, kind, name) = (words.next()?, words.next()?, words.next()?);
        let (group, _) = version.split_once('/').unwrap_or_default();
        let native = kinds::find_native(group, kind).map(|native| native.at);
        Some((native.or_else(|| kinds::find(group, kind).map(|own| own.at))?, name))
    }
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<OwnerKeys>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the owner of a pod selects on; nothing if it has not been read yet.
    pub(super) fn of(&self, pod: &Pod) -> Option<Arc<OwnerKeys>> {
        match &pod.owner {
            None => Some(Arc::default()),
            Some(uid) => self.lock().get(uid).cloned(),
        }
    }

    /// Nothing is owned by it any more.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Reads an owner. One that is not there, that may not be read, or that dapple does not know, cannot be read.
    pub(super) async fn read(&self, client: &Client, uid: &Arc<str>, owner: &Unread) -> Result<(), kube::Error> {
        let keys = match owner.place() {
            None => OwnerKeys::Unread,
            Some((kind, name)) => {
                let api = Api::<Observed<Value>>::namespaced_with(client.clone(), &owner.namespace, &kind);
                match api.get(name).await {
                    Ok(found) => found.object.map_or(OwnerKeys::Unread, |object| keys_by_uid(&object, uid)),
                    Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => OwnerKeys::Unread,
                    Err(error) => return Err(error),
                }
            }
        };
        self.lock().insert(uid.clone(), Arc::new(keys));
        Ok(())
    }
}

/// What an object selects on, if it is this very one.
fn keys_by_uid(object: &Value, uid: &str) -> OwnerKeys {
    if object["metadata"]["uid"] == *uid { keys_of(object) } else { OwnerKeys::Unread }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_are_found_where_pods_say() {
        let place = |object: &str| {
            let unread = Unread { namespace: Arc::from("default"), object: Arc::from(object) };
            unread.place().map(|(kind, name)| (kind.qualified(), name.to_owned()))
        };
        let found = |kind: &str, name: &str| Some((kind.to_owned(), name.to_owned()));
        assert_eq!(place("apps/v1 ReplicaSet web-1"), found("ReplicaSet.apps", "web-1"));
        assert_eq!(place("v1 ReplicationController web"), found("ReplicationController", "web"));
        assert_eq!(place("apps.kruise.io/v1alpha1 DaemonSet agent"), found("DaemonSet.apps.kruise.io", "agent"));
        for unknown in ["v1 Node n", "example.com/v1 ReplicaSet web", "", " "] {
            assert_eq!(place(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn another_of_the_name_is_another() {
        let object = json!({"metadata": {"uid": "a"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        assert!(keys_by_uid(&object, "a").has("app"));
        assert_eq!(keys_by_uid(&object, "b"), OwnerKeys::Unread);
    }
}

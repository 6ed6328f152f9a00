//! What kube-controller-manager does about owners: dependents of what is gone are deleted, and namespaces emptied.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::delete::{FOREGROUND, ORPHAN, Options, delete};
use super::kinds::{CATALOGUE, Kind};
use super::store::{Object, State};
use super::tidy::{finalizers, meta, set, set_finalizers};

/// An object, and where it is.
struct Item {
    kind: &'static Kind,
    key: String,
    object: Object,
}

impl Item {
    fn uid(&self) -> &str {
        meta(&self.object.value, "uid")
    }

    fn owners(&self) -> impl Iterator<Item = &Value> {
        self.object.value["metadata"]["ownerReferences"].as_array().into_iter().flatten()
    }

    fn is_going(&self) -> bool {
        self.object.value["metadata"].get("deletionTimestamp").is_some()
    }

    fn has_finalizer(&self, name: &str) -> bool {
        finalizers(&self.object.value).iter().any(|known| known == name)
    }

    /// Whether it waits for its dependents to go first.
    fn waits(&self) -> bool {
        self.is_going() && self.has_finalizer(FOREGROUND)
    }
}

/// All that there is, by UID.
fn everything(state: &State) -> BTreeMap<String, Item> {
    let mut items = BTreeMap::new();
    for kind in (0..CATALOGUE.stores).filter_map(|store| CATALOGUE.of_store(store)) {
        for (key, object) in state.all(kind.store) {
            let item = Item { kind, key: key.clone(), object: object.clone() };
            items.insert(item.uid().to_owned(), item);
        }
    }
    items
}

/// One pass over everything. True if something was changed.
pub(super) fn collect(state: &mut State) -> bool {
    let before = state.version();
    empty_namespaces(state);
    let items = everything(state);
    let mut dependents: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in items.values() {
        for owner in item.owners() {
            dependents.entry(owner["uid"].as_str().unwrap_or_default()).or_default().push(item);
        }
    }
    for item in items.values() {
        let children = dependents.get(item.uid()).map(Vec::as_slice).unwrap_or_default();
        if item.is_going() && item.has_finalizer(ORPHAN) {
            children.iter().for_each(|child| forget_owners(state, child, &[item.uid().to_owned()]));
            drop_finalizer(state, item, ORPHAN);
        } else if item.waits() && !children.iter().any(|child| blocks(child, item.uid())) {
            drop_finalizer(state, item, FOREGROUND);
        }
        if !item.is_going() || item.waits() {
            judge(state, &items, item, !children.is_empty());
        }
    }
    state.version() != before
}

/// Whether a dependent keeps its owner from going.
fn blocks(child: &Item, owner: &str) -> bool {
    child.owners().any(|known| known["uid"] == owner && known["blockOwnerDeletion"] == true)
}

/// Deletes an object of which no owner is left, or lets it forget those that are gone.
fn judge(state: &mut State, items: &BTreeMap<String, Item>, item: &Item, has_dependents: bool) {
    let is_served = |owner: &Value| of_reference(owner).is_some();
    if !item.owners().all(is_served) {
        // Of a kind that is not served nobody can say whether it is there.
        return;
    }
    let (mut solid, mut lost, mut waiting) = (0, Vec::new(), Vec::new());
    for reference in item.owners() {
        let uid = reference["uid"].as_str().unwrap_or_default();
        match items.get(uid).filter(|owner| is_meant(owner, reference, item)) {
            None => lost.push(uid.to_owned()),
            Some(owner) if owner.waits() && reference["blockOwnerDeletion"] == true => waiting.push(uid.to_owned()),
            Some(_) => solid += 1,
        }
    }
    if solid == 0 && lost.is_empty() && waiting.is_empty() {
        return;
    }
    if solid > 0 {
        lost.extend(waiting);
        if !lost.is_empty() {
            forget_owners(state, item, &lost);
        }
        return;
    }
    if item.is_going() {
        return;
    }
    let policy = match (!waiting.is_empty() && has_dependents, item.has_finalizer(ORPHAN)) {
        (true, _) => "Foreground",
        (false, true) => "Orphan",
        (false, false) if item.has_finalizer(FOREGROUND) => "Foreground",
        (false, false) => "Background",
    };
    // Whatever it is refused for, the next pass sees it again.
    let _ = delete(state, item.kind, &item.key, &Options::exactly(item.uid(), policy));
}

/// Whether an owner reference names the object that has its UID: by kind and name, and in the same namespace.
fn is_meant(owner: &Item, reference: &Value, item: &Item) -> bool {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let kind = of_reference(reference);
    let namespace = meta(&owner.object.value, "namespace");
    kind.is_some_and(|kind| kind.store == owner.kind.store)
        && meta(&owner.object.value, "name") == text("name")
        && (namespace.is_empty() || namespace == meta(&item.object.value, "namespace"))
}

/// The kind that an owner reference names, if it is served.
fn of_reference(reference: &Value) -> Option<&'static Kind> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    CATALOGUE.of_object(text("apiVersion"), text("kind"))
}

/// Changes an object as it is by now. One that is gone, or another one, is left alone.
fn change(state: &mut State, item: &Item, act: impl FnOnce(&mut Value)) {
    let Some(current) = state.get(item.kind, &item.key).filter(|now| meta(&now.value, "uid") == item.uid()) else {
        return;
    };
    let mut object = Value::clone(&current.value);
    act(&mut object);
    if object == *current.value {
        return;
    }
    let is_going = object["metadata"].get("deletionTimestamp").is_some();
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if is_going && grace == 0 && finalizers(&object).is_empty() && !item.kind.is_namespace() {
        state.remove(item.kind, &item.key);
    } else {
        state.put(item.kind, &item.key, object);
    }
}

fn forget_owners(state: &mut State, item: &Item, uids: &[String]) {
    change(state, item, |object| {
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let is_kept = |owner: &Value| !uids.iter().any(|uid| owner["uid"] == *uid);
        let kept: Vec<Value> = owners.into_iter().filter(is_kept).collect();
        let kept = (!kept.is_empty()).then(|| json!(kept));
        set(&mut object["metadata"], "ownerReferences", kept.as_ref());
    });
}

fn drop_finalizer(state: &mut State, item: &Item, name: &str) {
    change(state, item, |object| {
        let kept: Vec<String> = finalizers(object).into_iter().filter(|known| known != name).collect();
        set_finalizers(object, &kept);
    });
}

/// Deletes what is in namespaces that are to go, and those that are empty.
fn empty_namespaces(state: &mut State) {
    let Some(namespaces) = CATALOGUE.named("namespaces") else { return };
    let all = state.all(namespaces.store).iter();
    let going = all.filter(|(_, namespace)| namespace.value["metadata"].get("deletionTimestamp").is_some());
    let going: Vec<String> = going.map(|(name, _)| name.clone()).collect();
    for name in going {
        let prefix = format!("{name}/");
        let mut is_empty = true;
        for kind in (0..CATALOGUE.stores).filter_map(|store| CATALOGUE.of_store(store)) {
            if !kind.is_namespaced {
                continue;
            }
            let inside = state.all(kind.store).range(prefix.clone()..).map(|(key, _)| key.clone());
            let inside: Vec<String> = inside.take_while(|key| key.starts_with(&prefix)).collect();
            for key in inside {
                let _ = delete(state, kind, &key, &Options::default());
                is_empty &= state.get(kind, &key).is_none();
            }
        }
        if is_empty {
            finish_namespace(state, namespaces, &name);
        }
    }
}

fn finish_namespace(state: &mut State, kind: &Kind, name: &str) {
    let Some(found) = state.get(kind, name).cloned() else { return };
    if finalizers(&found.value).is_empty() {
        state.remove(kind, name);
        return;
    }
    let mut namespace = Value::clone(&found.value);
    namespace["spec"] = json!({});
    if namespace != *found.value {
        state.put(kind, name, namespace);
    }
}

//! Creating and changing objects.

use serde_json::{Value, json};

use super::failure::{Failure, Fault, details};
use super::kinds::{CATALOGUE, Generation, Kind};
use super::pods;
use super::request::Target;
use super::store::{Object, State, Stored};
use super::tidy::{content, finalizers, meta, set, tidy};

/// Creates an object. Whoever only asks gets it without a version.
pub(super) fn create(state: &mut State, target: &Target<'_>, body: Value, dry: bool) -> Result<Object, Failure> {
    let kind = target.kind;
    let mut object = tidy(kind, body)?;
    place(target, &mut object)?;
    let is_numbered = object["metadata"]["resourceVersion"].take() != Value::Null;
    name(state, kind, &mut object)?;
    let (uid, now) = (state.uid(), state.now());
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(uid);
    metadata["creationTimestamp"] = json!(now);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"] {
        set(metadata, field, None);
    }
    if kind.generation != Generation::None {
        metadata["generation"] = json!(1);
    }
    let name = meta(&object, "name").to_owned();
    may_create_in(state, target, &name)?;
    prepare_new(kind, &mut object);
    let faults = faults_of_new(kind, &object);
    if !faults.is_empty() {
        return Err(Failure::invalid(&kind.group, &kind.kind, &name, &faults));
    }
    if is_numbered {
        return Err(Failure::internal("resourceVersion should not be set on objects to be created"));
    }
    let key = kind.key(target.namespace, &name);
    if let Some(found) = state.get(kind, &key) {
        let is_going = found.value["metadata"].get("deletionTimestamp").is_some();
        return Err(Failure::already_exists(kind, &name).on_its_way_out(is_going));
    }
    Ok(if dry { Stored::new(object) } else { state.put(kind, &key, object) })
}

/// Sees to it that an object is in the namespace of the request.
fn place(target: &Target<'_>, object: &mut Value) -> Result<(), Failure> {
    let (found, wanted) = (meta(object, "namespace"), target.namespace);
    if !found.is_empty() && found != wanted && target.kind.is_namespaced {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(why));
    }
    let namespace = target.kind.is_namespaced.then(|| json!(wanted));
    set(&mut object["metadata"], "namespace", namespace.as_ref());
    Ok(())
}

/// Gives an object a name if it wants one made.
fn name(state: &mut State, kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    if !meta(object, "name").is_empty() {
        return Ok(());
    }
    let base = meta(object, "generateName");
    if base.is_empty() {
        let fault = Fault::required("metadata.name", "name or generateName is required");
        return Err(Failure::invalid(&kind.group, &kind.kind, "", &[fault]));
    }
    // As long as a label may be, with what is added.
    let kept: String = base.chars().take(58).collect();
    let name = format!("{kept}{}", state.suffix());
    object["metadata"]["name"] = json!(name);
    Ok(())
}

/// Whether the namespace takes something new.
fn may_create_in(state: &State, target: &Target<'_>, name: &str) -> Result<(), Failure> {
    if !target.kind.is_namespaced {
        return Ok(());
    }
    let Some(namespaces) = CATALOGUE.named("namespaces") else { return Ok(()) };
    let namespace = target.namespace;
    let found = state.get(namespaces, namespace).ok_or_else(|| Failure::not_found(namespaces, namespace))?;
    if found.value["metadata"].get("deletionTimestamp").is_none() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = json!({
        "reason": "NamespaceTerminating", "field": "metadata.namespace",
        "message": format!("namespace {namespace} is being terminated"),
    });
    Err(Failure::forbidden(target.kind, name, &why, Some(cause)))
}

/// What the server itself sets in a new object.
fn prepare_new(kind: &Kind, object: &mut Value) {
    if kind.is_namespace() {
        object["status"] = json!({"phase": "Active"});
        if object["spec"]["finalizers"].as_array().is_none_or(|list| !list.contains(&json!("kubernetes"))) {
            let mut list = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
            list.push(json!("kubernetes"));
            object["spec"]["finalizers"] = json!(list);
        }
        let name = object["metadata"]["name"].clone();
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    } else if kind.is_pod() {
        object["status"] = json!({"phase": "Pending", "qosClass": pods::quality(object)});
    } else if kind.is_custom() && kind.has_status {
        set(object, "status", None);
    } else if kind.has_status && kind.plural != "nodes" {
        object["status"] = json!({});
    }
}

fn faults_of_new(kind: &Kind, object: &Value) -> Vec<Fault> {
    let mut faults = faults_of_owners(object);
    match &kind.schema {
        Some(schema) => faults.extend(schema.faults(object)),
        None if kind.is_pod() => faults.extend(pods::faults_of_new(object)),
        None => {}
    }
    faults
}

/// An object has one controller at most.
fn faults_of_owners(object: &Value) -> Vec<Fault> {
    let owners = &object["metadata"]["ownerReferences"];
    let controllers = owners.as_array().into_iter().flatten().filter(|owner| owner["controller"] == true).count();
    let fault =
        || Fault::invalid("metadata.ownerReferences", owners, "Only one reference can have Controller set to true");
    if controllers > 1 { vec![fault()] } else { Vec::new() }
}

/// A change of an object: which, through which subresource, and how.
pub(super) struct Update<'r> {
    pub(super) target: Target<'r>,
    /// A PUT, which says what the whole shall be; else a patch of what there is.
    pub(super) is_whole: bool,
    pub(super) dry: bool,
}

impl Update<'_> {
    /// Makes the change. True if it created the object.
    pub(super) fn make(
        &self,
        state: &mut State,
        new: impl FnOnce(&Value) -> Result<Value, Failure>,
    ) -> Result<(Object, bool), Failure> {
        let Target { kind, name, .. } = self.target;
        let key = self.target.key();
        let new = |old: &Value| {
            let mut object = tidy(kind, new(old)?)?;
            if self.is_whole {
                self.check_name(&mut object)?;
            }
            Ok(object)
        };
        let Some(existing) = state.get(kind, &key).cloned() else {
            return self.make_new(state, new).map(|object| (object, true));
        };
        let old = &*existing.value;
        let mut object = new(old)?;
        if self.is_whole {
            self.check_uid(&object, old)?;
        }
        self.check_version(&object, old)?;
        self.prepare(&mut object, old);
        let faults = self.faults(&object, old);
        if !faults.is_empty() {
            return Err(Failure::invalid(&kind.group, &kind.kind, name, &faults));
        }
        self.admit(state, &object, old)?;
        if is_finished(kind, &object, old) {
            if !self.dry {
                state.remove(kind, &key);
            }
            return Ok((Stored::new(object), false));
        }
        if object == *old {
            return Ok((existing, false));
        }
        Ok((if self.dry { Stored::new(object) } else { state.put(kind, &key, object) }, false))
    }

    /// There is nothing to change: some kinds are created by a PUT.
    fn make_new(
        &self,
        state: &mut State,
        new: impl FnOnce(&Value) -> Result<Value, Failure>,
    ) -> Result<Object, Failure> {
        let Target { kind, name, subresource, .. } = self.target;
        let mut object = if self.is_whole { new(&Value::Null)? } else { Value::Null };
        if !self.is_whole || !kind.creates_on_update || !subresource.is_empty() {
            return Err(Failure::not_found(kind, name));
        }
        self.check_uid(&object, &Value::Null)?;
        set(&mut object["metadata"], "resourceVersion", None);
        create(state, &self.target, object, self.dry)
    }

    /// What a PUT says of itself must be what it is sent to.
    fn check_name(&self, object: &mut Value) -> Result<(), Failure> {
        let name = self.target.name;
        let found = meta(object, "name");
        if !found.is_empty() && found != name {
            let why = format!("the name of the object ({found}) does not match the name on the URL ({name})");
            return Err(Failure::bad_request(why));
        }
        object["metadata"]["name"] = json!(name);
        place(&self.target, object)
    }

    /// A PUT that names a UID is meant for that very object.
    fn check_uid(&self, object: &Value, old: &Value) -> Result<(), Failure> {
        let Target { kind, namespace, name, .. } = self.target;
        let (wanted, found) = (meta(object, "uid"), meta(old, "uid"));
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
                registry_key(kind, namespace, name)
            );
            return Err(Failure::conflict(&kind.qualified, details(kind, name), name, &why));
        }
        Ok(())
    }

    fn check_version(&self, object: &Value, old: &Value) -> Result<(), Failure> {
        let Target { kind, name, .. } = self.target;
        match meta(object, "resourceVersion") {
            "" | "0" if kind.unconditional => Ok(()),
            "" | "0" => {
                let why = "must be specified for an update";
                let fault = Fault::invalid("metadata.resourceVersion", &json!(0), why);
                Err(Failure::invalid(&kind.group, &kind.plural, name, &[fault]))
            }
            version if version != meta(old, "resourceVersion") => Err(Failure::stale(kind, name)),
            _ => Ok(()),
        }
    }

    /// Puts back what this request cannot change, and counts the generation.
    fn prepare(&self, object: &mut Value, old: &Value) {
        let kind = self.target.kind;
        let kept = ["resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"];
        for field in kept.into_iter().chain(["deletionGracePeriodSeconds", "name", "namespace"]) {
            set(&mut object["metadata"], field, old["metadata"].get(field));
        }
        if meta(object, "uid").is_empty() {
            set(&mut object["metadata"], "uid", old["metadata"].get("uid"));
        }
        match self.target.subresource {
            "status" => prepare_status(kind, object, old),
            "resize" => pods::prepare_resize(object, old),
            _ => {
                if kind.has_status {
                    set(object, "status", old.get("status"));
                }
                if kind.is_namespace() && self.target.subresource.is_empty() {
                    set(object, "spec", old.get("spec"));
                }
            }
        }
        let is_changed = match kind.generation {
            Generation::None => false,
            Generation::Of(field) => object.get(field) != old.get(field),
            Generation::Custom => !content(object).eq(content(old)),
        };
        if is_changed {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
        }
    }

    /// A resize must fit on the pod's node.
    fn admit(&self, state: &State, pod: &Value, old: &Value) -> Result<(), Failure> {
        let Target { kind, name, subresource, .. } = self.target;
        let is_changed = pod["metadata"]["generation"] != old["metadata"]["generation"];
        let (Some(nodes), Some(node)) = (CATALOGUE.named("nodes"), pod["spec"]["nodeName"].as_str()) else {
            return Ok(());
        };
        if subresource != "resize" || !is_changed {
            return Ok(());
        }
        let Some(found) = state.get(nodes, node) else {
            return Err(Failure::forbidden(kind, name, &format!("node {node:?} not found"), None));
        };
        match pods::refusal_of_resize(pod, &found.value) {
            Some(why) => Err(Failure::forbidden(kind, name, &why, Some(json!({"reason": "NodeCapacity"})))),
            None => Ok(()),
        }
    }

    fn faults(&self, object: &Value, old: &Value) -> Vec<Fault> {
        let kind = self.target.kind;
        let mut faults = Vec::new();
        if object["metadata"]["uid"] != old["metadata"]["uid"] {
            faults.push(Fault::invalid("metadata.uid", &object["metadata"]["uid"], "field is immutable"));
        }
        if old["metadata"].get("deletionTimestamp").is_some() {
            let had = finalizers(old);
            let added: Vec<String> = finalizers(object).into_iter().filter(|name| !had.contains(name)).collect();
            if !added.is_empty() {
                let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
                let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
                let why = format!("{why} []string{{{}}}", added.join(", "));
                faults.push(Fault::forbidden("metadata.finalizers", &why));
            }
        }
        faults.extend(faults_of_owners(object));
        // The real server checks metadata twice, for all kinds and for each, and names every cause each time.
        faults.extend(faults.clone());
        if let Some(schema) = &kind.schema {
            faults.extend(schema.faults(object));
        }
        if kind.is_pod() {
            faults.extend(match self.target.subresource {
                "" => pods::faults_of_change(object, old),
                "resize" => pods::faults_of_resize(object, old),
                "status" => pods::faults_of_status(object, old),
                _ => Vec::new(),
            });
        }
        faults
    }
}

/// A status is written alone; of built-in kinds, metadata along with it.
fn prepare_status(kind: &Kind, object: &mut Value, old: &Value) {
    if kind.is_custom() {
        let status = object.get("status").cloned();
        *object = old.clone();
        set(object, "status", status.as_ref());
        return;
    }
    let (metadata, status) = (object["metadata"].take(), object.get("status").cloned());
    *object = old.clone();
    object["metadata"] = metadata;
    set(object, "status", status.as_ref());
    if kind.is_pod() {
        set(&mut object["metadata"], "ownerReferences", old["metadata"].get("ownerReferences"));
        if object["status"].get("qosClass").is_none() {
            object["status"]["qosClass"] = old["status"]["qosClass"].clone();
        }
    } else if kind.plural == "deployments" {
        set(&mut object["metadata"], "labels", old["metadata"].get("labels"));
    }
}

/// Whether the object was waiting for its last finalizer alone, which is gone now.
fn is_finished(kind: &Kind, object: &Value, old: &Value) -> bool {
    let has_own = kind.is_namespace() && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    finalizers(object).is_empty()
        && !has_own
        && old["metadata"].get("deletionTimestamp").is_some()
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}

/// The key in etcd, which some messages show.
fn registry_key(kind: &Kind, namespace: &str, name: &str) -> String {
    let place = match kind.qualified.as_str() {
        "nodes" => "minions",
        "services" => "services/specs",
        _ => &kind.plural,
    };
    let group = if kind.is_custom() || kind.plural == "customresourcedefinitions" { &kind.group } else { "" };
    let group = if group.is_empty() { String::new() } else { format!("{group}/") };
    format!("/registry/{group}{place}/{}", kind.key(namespace, name))
}

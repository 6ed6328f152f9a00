//! Deleting: grace, finalizers and what becomes of dependents.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::failure::{Failure, details, success};
use super::kinds::Kind;
use super::request::{Query, Target};
use super::selector::Selector;
use super::store::{Object, State, Stored, written};
use super::tidy::{finalizers, meta, set_finalizers};

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// How to delete.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) grace: Option<i64>,
    policy: Option<String>,
    orphan: Option<bool>,
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    pub(super) dry: bool,
}

impl Options {
    /// Reads options from a body, or from a query as if it were one.
    pub(super) fn read(options: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            grace: options["gracePeriodSeconds"].as_i64().map(|grace| if grace < 0 { 1 } else { grace }),
            policy: text(&options["propagationPolicy"]),
            orphan: options["orphanDependents"].as_bool(),
            uid: text(&options["preconditions"]["uid"]),
            version: text(&options["preconditions"]["resourceVersion"]),
            dry: options["dryRun"].as_array().is_some_and(|list| list.contains(&json!("All"))),
        }
    }

    /// As the garbage collector deletes: this very object, with this policy.
    pub(super) fn exactly(uid: &str, policy: &str) -> Self {
        Self { uid: Some(uid.to_owned()), policy: Some(policy.to_owned()), ..Self::default() }
    }

    /// The finalizers that the policy asks for, in place of those that others asked for.
    fn finalizers(&self, kind: &Kind, object: &Value) -> Vec<String> {
        let had = finalizers(object);
        // Nothing depends on events.
        if kind.plural == "events" {
            return had;
        }
        let has = |name: &str| had.iter().any(|known| known == name);
        let (orphan, foreground) = match (self.orphan, self.policy.as_deref()) {
            (Some(orphan), _) => (orphan, false),
            (None, Some("Orphan")) => (true, false),
            (None, Some("Foreground")) => (false, true),
            (None, Some(_)) => (false, false),
            (None, None) => (has(ORPHAN), has(FOREGROUND)),
        };
        let mut wanted: Vec<String> = had.into_iter().filter(|name| name != ORPHAN && name != FOREGROUND).collect();
        wanted.extend(orphan.then(|| ORPHAN.to_owned()));
        wanted.extend(foreground.then(|| FOREGROUND.to_owned()));
        wanted
    }

    /// Whether an object is the one that is meant.
    pub(super) fn check(&self, kind: &Kind, object: &Value) -> Result<(), Failure> {
        let name = meta(object, "name");
        let refused = |why: String| {
            // The real server confuses resource and kind here.
            let what = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
            let mut about = details(kind, name);
            about["kind"] = json!(kind.kind);
            Failure::conflict(&what, about, name, &why)
        };
        let (uid, version) = (meta(object, "uid"), meta(object, "resourceVersion"));
        if let Some(wanted) = self.uid.as_ref().filter(|wanted| *wanted != uid) {
            return Err(refused(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might \
                 have been deleted and then recreated"
            )));
        }
        if let Some(wanted) = self.version.as_ref().filter(|wanted| *wanted != version) {
            return Err(refused(format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            )));
        }
        Ok(())
    }
}

/// What came of a deletion.
pub(super) enum Deleted {
    /// The object as it is now, or was.
    Object(Object),
    /// It is gone, and this says so.
    Status(Value),
}

/// How a pod goes.
enum Going {
    /// At once, without a word.
    Now,
    /// Somebody has asked already, and for no more time.
    Already,
    /// It is told, and given this long.
    In(i64),
}

/// Deletes one object.
pub(super) fn delete(state: &mut State, kind: &Kind, key: &str, options: &Options) -> Result<Deleted, Failure> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let existing = state.get(kind, key).cloned().ok_or_else(|| Failure::not_found(kind, name))?;
    if kind.is_namespace()
        && let Some(going) = delete_namespace(state, kind, key, &existing, options)?
    {
        return Ok(Deleted::Object(going));
    }
    options.check(kind, &existing.value)?;
    let mut object = Value::clone(&existing.value);
    let going = if kind.is_pod() { ask_to_go(&mut object, options, state.instant()) } else { Going::Now };
    if matches!(going, Going::Already) {
        return Ok(gone(kind, existing));
    }
    let wanted = options.finalizers(kind, &object);
    set_finalizers(&mut object, &wanted);
    let stays = !wanted.is_empty();
    match going {
        Going::In(grace) => {
            let told = write(state, kind, key, &existing, object, options.dry);
            if stays || grace > 0 || options.dry {
                return Ok(Deleted::Object(told));
            }
        }
        _ if stays => {
            mark_as_deleting(&mut object, state.instant());
            return Ok(Deleted::Object(write(state, kind, key, &existing, object, options.dry)));
        }
        _ => {}
    }
    let last = if options.dry { existing } else { state.remove(kind, key).unwrap_or(existing) };
    Ok(gone(kind, last))
}

fn write(state: &mut State, kind: &Kind, key: &str, existing: &Object, object: Value, dry: bool) -> Object {
    if object == *existing.value {
        existing.clone()
    } else if dry {
        Stored::new(object)
    } else {
        state.put(kind, key, object)
    }
}

fn gone(kind: &Kind, object: Object) -> Deleted {
    if kind.returns_deleted {
        return Deleted::Object(object);
    }
    let mut about = details(kind, meta(&object.value, "name"));
    about["uid"] = object.value["metadata"]["uid"].clone();
    Deleted::Status(success(Some(about), None))
}

/// A pod on a node is given time to end.
fn ask_to_go(pod: &mut Value, options: &Options, now: Timestamp) -> Going {
    let since = meta(pod, "deletionTimestamp").parse::<Timestamp>().ok();
    let Some(due) = since else {
        let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        let is_placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let asked = options.grace.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
        let grace = if has_ended || !is_placed { 0 } else { asked };
        let grace = if grace < 0 { 1 } else { grace };
        announce(pod, later(now, grace), grace);
        count_generation(pod);
        return Going::In(grace);
    };
    let given = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    match options.grace {
        _ if given == 0 => Going::Now,
        Some(grace) if grace < given => {
            // The time may only become shorter, and not end in the past.
            let sooner = later(due, grace - given);
            let (sooner, grace) = if sooner < now { (now, grace.min(1)) } else { (sooner, grace) };
            announce(pod, sooner, grace);
            Going::In(grace)
        }
        _ => Going::Already,
    }
}

fn later(from: Timestamp, seconds: i64) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(from)
}

fn announce(object: &mut Value, due: Timestamp, grace: i64) {
    object["metadata"]["deletionTimestamp"] = json!(written(due));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
}

/// That an object is to go is a change that controllers must see.
fn count_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

fn mark_as_deleting(object: &mut Value, now: Timestamp) {
    let since = meta(object, "deletionTimestamp").parse::<Timestamp>().ok();
    if since.is_none() {
        count_generation(object);
    }
    announce(object, since.map_or(now, |since| since.min(now)), 0);
}

/// A namespace goes once it is empty: until then it is terminating, whatever is asked.
fn delete_namespace(
    state: &mut State,
    kind: &Kind,
    key: &str,
    existing: &Object,
    options: &Options,
) -> Result<Option<Object>, Failure> {
    let old = &existing.value;
    for (field, label, wanted) in
        [("uid", "UID", &options.uid), ("resourceVersion", "ResourceVersion", &options.version)]
    {
        let found = meta(old, field);
        if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) {
            let why =
                format!("Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}");
            return Err(Failure::conflict(&kind.qualified, details(kind, key), key, &why));
        }
    }
    if old["metadata"].get("deletionTimestamp").is_some() {
        let is_held = old["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        return Ok(is_held.then(|| existing.clone()));
    }
    let mut object = Value::clone(old);
    object["metadata"]["deletionTimestamp"] = json!(state.now());
    object["status"]["phase"] = json!("Terminating");
    let wanted = options.finalizers(kind, &object);
    set_finalizers(&mut object, &wanted);
    Ok(Some(write(state, kind, key, existing, object, options.dry)))
}

/// Deletes everything that is selected, and returns it.
pub(super) fn delete_all(
    state: &mut State,
    target: &Target<'_>,
    query: &Query,
    options: &Options,
) -> Result<Vec<Object>, Failure> {
    let selector = Selector::read(target, query)?;
    let all = state.all(target.kind.store).iter();
    let wanted = all.filter(|(key, object)| selector.has_key(key) && selector.matches(&object.value));
    let wanted: Vec<(String, Object)> = wanted.map(|(key, object)| (key.clone(), object.clone())).collect();
    for (key, _) in &wanted {
        delete(state, target.kind, key, options)?;
    }
    Ok(wanted.into_iter().map(|(_, object)| object).collect())
}

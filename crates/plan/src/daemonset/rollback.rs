//! Going back to an earlier revision: template and patches as they were.

use dapple_api::daemonset::{DaemonSet, DaemonSetPatch};
use serde_json::{Value, json};

use super::revision::{Revision, data_of, meaning_of, spec_of};

/// What going back comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Undo {
    /// The DaemonSet is so already.
    Skipped {
        /// The revision.
        number: i64,
    },
    /// Template and patches of this revision come back.
    Back(Restored),
}

/// What a revision brings back.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// The revision.
    pub number: i64,
    /// Its template.
    pub template: Value,
    /// Its patches.
    pub patches: Vec<DaemonSetPatch>,
}

/// Why there is no going back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UndoError {
    /// There are no revisions.
    #[error("has no revisions yet: is a dapple manager running?")]
    NoRevisions,
    /// There is one revision only.
    #[error("has only revision {0}: there is nothing before it to go back to")]
    NoneBefore(i64),
    /// The number is not one of a revision.
    #[error("has no revision {number}; it has {known}")]
    Unknown {
        /// The number that was asked for.
        number: i64,
        /// Those that there are.
        known: String,
    },
    /// The newest revision is not the present state, so it is not clear which one is meant.
    #[error(
        "has changed since its newest revision {0} was written, so the one before is not clear: wait until the manager has \
         seen the change, or name the revision with --to-revision"
    )]
    Unsettled(i64),
    /// The revision cannot be brought back.
    #[error(transparent)]
    Unreadable(#[from] RevisionError),
}

/// Why a revision cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("has the revision {number} (ControllerRevision {name}), which cannot be read: {reason}")]
pub struct RevisionError {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Decides what to go back to: the revision of this number, or else the one before the newest.
pub fn undo(set: &DaemonSet, revisions: &[Revision], to: Option<i64>) -> Result<Undo, UndoError> {
    let mut sorted: Vec<&Revision> = revisions.iter().collect();
    sorted.sort_by_key(|revision| (revision.number, &revision.name));
    let newest = sorted.last().ok_or(UndoError::NoRevisions)?;
    let present = meaning_of(&data_of(&set.spec));
    let found = match to {
        Some(number) => find(&sorted, number)?,
        None if meaning_of(&newest.data) != present => return Err(UndoError::Unsettled(newest.number)),
        None => sorted.iter().rev().nth(1).ok_or(UndoError::NoneBefore(newest.number))?,
    };
    let restored = read(found)?;
    if meaning_of(&found.data) == present {
        return Ok(Undo::Skipped { number: found.number });
    }
    Ok(Undo::Back(restored))
}

/// The revision of a number, from some in order.
pub fn find<'a>(sorted: &[&'a Revision], number: i64) -> Result<&'a Revision, UndoError> {
    let known = || sorted.iter().map(|revision| revision.number.to_string()).collect::<Vec<_>>().join(", ");
    match sorted.iter().rev().find(|revision| revision.number == number) {
        Some(found) => Ok(found),
        None if sorted.is_empty() => Err(UndoError::NoRevisions),
        None => Err(UndoError::Unknown { number, known: known() }),
    }
}

/// What a revision holds, if all of it is understood: one that a newer version wrote may say more, and half of it brought
/// back is something that never was.
pub fn read(revision: &Revision) -> Result<Restored, RevisionError> {
    let failed = |reason: String| RevisionError { number: revision.number, name: revision.name.clone(), reason };
    let data = &revision.data;
    let unknown = |of: &Value, field: &str, known: &[&str]| {
        let mut names = of.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let found = names.find(|name| !known.contains(name))?;
        Some(failed(format!("{field}.{found} is a field that this version of dapple does not know: use a newer one")))
    };
    if let Some(error) = unknown(data, "data", &["spec"]) {
        return Err(error);
    }
    if let Some(error) = unknown(&data["spec"], "data.spec", &["template", "patches", "$patch"]) {
        return Err(error);
    }
    let Some((template, patches)) = spec_of(data) else {
        let is_template = data["spec"]["template"].is_object();
        let (field, what) = if is_template { ("patches", "a list of patches") } else { ("template", "a pod template") };
        return Err(failed(format!("data.spec.{field} is not {what}")));
    };
    match lost(&data["spec"]["patches"], &json!(patches), "data.spec.patches") {
        Some(field) => {
            Err(failed(format!("{field} is a field that this version of dapple does not know: use a newer one")))
        }
        None => Ok(Restored { number: revision.number, template, patches }),
    }
}

/// The first field that did not survive being read. What is null or empty may.
fn lost(written: &Value, read: &Value, field: &str) -> Option<String> {
    match (written, read) {
        (Value::Null, _) => None,
        (Value::Object(written), Value::Object(read)) => written
            .iter()
            .find_map(|(name, value)| lost(value, read.get(name).unwrap_or(&Value::Null), &format!("{field}.{name}"))),
        (Value::Array(written), Value::Array(read)) => {
            let items = written.iter().enumerate();
            items.into_iter().find_map(|(index, value)| {
                lost(value, read.get(index).unwrap_or(&Value::Null), &format!("{field}[{index}]"))
            })
        }
        (Value::Object(written), Value::Null) if written.is_empty() => None,
        (Value::Array(written), Value::Null) if written.is_empty() => None,
        (_, Value::Null) => Some(field.to_owned()),
        _ => None,
    }
}

impl Restored {
    /// Puts template and patches into a DaemonSet as the API server has it. The whole object is written then: a merge
    /// patch could not, since the API server drops nulls from the lists in one, and a patch says by null what it deletes.
    pub fn put_into(&self, object: &mut Value) {
        object["spec"]["template"] = self.template.clone();
        if let Some(spec) = object["spec"].as_object_mut() {
            if self.patches.is_empty() {
                spec.remove("patches");
            } else {
                spec.insert("patches".to_owned(), json!(self.patches));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(image: &str, patches: Value) -> DaemonSet {
        serde_json::from_value(json!({"spec": {
            "selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}, "patches": patches}}))
        .unwrap()
    }

    fn revision(number: i64, data: Value) -> Revision {
        Revision { name: format!("a-{number}"), replaces: None, number, hash: String::new(), form: 1, began: 0, data }
    }

    fn of(number: i64, image: &str, patches: Value) -> Revision {
        revision(number, data_of(&set(image, patches).spec))
    }

    /// A patch that deletes a field.
    fn deletes() -> Value {
        json!([{"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"containers": [
            {"name": "c", "securityContext": null}]}}, "priority": 3}])
    }

    #[test]
    fn it_goes_back_to_the_one_before_the_newest() {
        let all = [of(3, "c:3", json!([])), of(1, "c:1", json!([])), of(2, "c:2", deletes())];
        let now = set("c:3", json!([]));
        let Undo::Back(restored) = undo(&now, &all, None).unwrap() else { panic!("nothing to do") };
        assert_eq!(restored.number, 2);
        let mut object = json!({"spec": {"template": {"x": 1}, "minReadySeconds": 5, "selector": {}}});
        restored.put_into(&mut object);
        assert_eq!(object["spec"]["template"], json!({"spec": {"containers": [{"name": "c", "image": "c:2"}]}}));
        assert_eq!(object["spec"]["patches"], deletes(), "nulls included");
        assert_eq!(object["spec"]["minReadySeconds"], 5, "all else is left alone");

        let Undo::Back(first) = undo(&now, &all, Some(1)).unwrap() else { panic!("nothing to do") };
        first.put_into(&mut object);
        assert!(object["spec"].get("patches").is_none(), "{object}");
    }

    #[test]
    fn what_is_so_already_is_skipped() {
        let all = [of(1, "c:1", json!([])), of(2, "c:2", json!([]))];
        let mut now = set("c:2", json!([]));
        now.spec.template.0["metadata"] = json!({"creationTimestamp": null});
        now.spec.template.0["spec"]["dnsPolicy"] = json!("ClusterFirst");
        assert_eq!(undo(&now, &all, Some(2)), Ok(Undo::Skipped { number: 2 }));
        assert!(matches!(undo(&now, &all, Some(1)), Ok(Undo::Back(_))));
    }

    #[test]
    fn no_going_back_names_what_is_missing() {
        let now = set("c:1", json!([]));
        let one = [of(4, "c:1", json!([]))];
        assert_eq!(undo(&now, &[], None), Err(UndoError::NoRevisions));
        assert_eq!(undo(&now, &one, None), Err(UndoError::NoneBefore(4)));
        let two = [of(4, "c:0", json!([])), of(5, "c:1", json!([]))];
        let said = undo(&now, &two, Some(3)).unwrap_err().to_string();
        assert_eq!(said, "has no revision 3; it has 4, 5");
        // The manager has not written the revision of this image.
        assert_eq!(undo(&set("c:9", json!([])), &two, None), Err(UndoError::Unsettled(5)));
        assert!(matches!(undo(&set("c:9", json!([])), &two, Some(5)), Ok(Undo::Back(_))));
    }

    #[test]
    fn one_that_is_not_understood_is_not_brought_back() {
        let template = json!({"$patch": "replace", "spec": {"fieldOfNextYear": 1}});
        for (data, part) in [
            (json!({"spec": {"template": 7}}), "data.spec.template is not a pod template"),
            (json!({"spec": {}}), "data.spec.template is not a pod template"),
            (json!(null), "data.spec.template is not a pod template"),
            (json!({"spec": {"template": template, "patches": {}}}), "data.spec.patches is not a list of patches"),
            (json!({"spec": {"template": template, "rollout": 1}}), "data.spec.rollout is a field"),
            (json!({"spec": {"template": template}, "more": 1}), "data.more is a field"),
            (
                json!({"spec": {"template": template, "patches": [
                    {"selector": {}, "patch": {}}, {"selector": {"matchNames": ["a"]}, "patch": {}}]}}),
                "data.spec.patches[1].selector.matchNames is a field",
            ),
        ] {
            let error = read(&revision(8, data)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("revision 8 (ControllerRevision a-8)"), "{error}");
        }
        // A template is a JSON value: what Kubernetes adds next year passes through.
        let fine = json!({"spec": {"template": template, "patches": [
            {"selector": {"matchLabels": null}, "patch": {"spec": null}, "priority": null}]}});
        let restored = read(&revision(8, fine)).unwrap();
        assert_eq!(restored.template, json!({"spec": {"fieldOfNextYear": 1}}));
        assert_eq!(json!(restored.patches)[0]["patch"], json!({"spec": null}));
    }
}

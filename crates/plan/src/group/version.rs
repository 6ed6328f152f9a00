//! Versions of an OverridePolicy: a revision in the cluster for each, so that a group whose turn has not come can keep its edition,
//! and a new leader knows what the last one knew.

use dapple_api::group::OverridePolicySpec;
use dapple_edit::render::hash;
use serde_json::{Value, json};

/// So many versions of a policy are kept.
pub const MOST_KEPT: usize = 10;
/// As much of a policy's name is in those of its revisions: they are as long as names may be.
const NAME_LENGTH: usize = 200;

/// A revision, as far as it is looked at here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its name.
    pub name: String,
    /// The greatest is the newest.
    pub number: i64,
}

/// What has to be done so that the newest revision is what the policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Nothing.
    Keep,
    /// An earlier version has returned: its revision gets this number.
    Renumber(i64),
    /// One is made, with this number.
    Create(i64),
}

/// The name of the revision for what a policy says.
#[must_use]
pub fn name_of(policy: &str, spec: &OverridePolicySpec) -> String {
    let start = policy.char_indices().nth(NAME_LENGTH).map_or(policy, |(end, _)| &policy[..end]);
    format!("{start}-{}", hash(&json!(spec)))
}

/// No revision of ours comes near this number: one beyond it is somebody else's, and would leave no number for the next.
const MOST_NUMBERED: i64 = i64::MAX / 2;

/// Whether a revision has a number that ours could have.
#[must_use]
pub fn is_numbered(number: i64) -> bool {
    (0..MOST_NUMBERED).contains(&number)
}

/// What a revision of a policy says; none if that is not what its name says, or cannot be read: then it is not ours.
#[must_use]
pub fn spec_of(policy: &str, name: &str, data: &Value) -> Option<OverridePolicySpec> {
    let spec: OverridePolicySpec = serde_json::from_value(data["spec"].clone()).ok()?;
    (name_of(policy, &spec) == name).then_some(spec)
}

/// What has to be done so that the revision of this name is the newest.
#[must_use]
pub fn settle(name: &str, known: &[Revision]) -> Settled {
    let newest = known.iter().map(|revision| revision.number).max().unwrap_or(0);
    let others = known.iter().filter(|revision| revision.name != name).map(|revision| revision.number);
    match known.iter().find(|revision| revision.name == name) {
        // One who did not know of another has given it the same number.
        Some(found) if others.max().is_none_or(|other| other < found.number) => Settled::Keep,
        Some(_) => Settled::Renumber(newest + 1),
        None => Settled::Create(newest + 1),
    }
}

/// The revisions that are dropped: the oldest beyond the limit.
#[must_use]
pub fn surplus(known: &[Revision]) -> Vec<&str> {
    let mut oldest: Vec<&Revision> = known.iter().collect();
    oldest.sort_by_key(|revision| revision.number);
    let spare = known.len().saturating_sub(MOST_KEPT);
    oldest.into_iter().take(spare).map(|revision| revision.name.as_str()).collect()
}

/// A revision of a policy with this name and UID. It goes when the policy does.
#[must_use]
pub fn object((policy, uid): (&str, &str), spec: &OverridePolicySpec, number: i64) -> Value {
    let at = dapple_api::kinds::OVERRIDE_POLICY.at;
    let owner = json!({"apiVersion": format!("{}/{}", at.group, at.version), "kind": at.kind, "name": policy, "uid": uid,
        "controller": true, "blockOwnerDeletion": true});
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name_of(policy, spec), "ownerReferences": [owner]},
        "data": {"spec": spec},
        "revision": number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revisions(numbers: &[i64]) -> Vec<Revision> {
        numbers.iter().map(|number| Revision { name: format!("p-{number}"), number: *number }).collect()
    }

    #[test]
    fn the_newest_revision_is_what_the_policy_says() {
        assert_eq!(settle("p-1", &[]), Settled::Create(1));
        assert_eq!(settle("p-2", &revisions(&[1, 2])), Settled::Keep);
        assert_eq!(settle("p-3", &revisions(&[1, 2])), Settled::Create(3));
        assert_eq!(settle("p-1", &revisions(&[1, 2])), Settled::Renumber(3), "an earlier one has returned");
        let twins = [("p-a", 2), ("p-b", 2)].map(|(name, number)| Revision { name: name.to_owned(), number });
        assert_eq!(settle("p-b", &twins), Settled::Renumber(3), "nobody could tell which is newer");
    }

    #[test]
    fn the_oldest_beyond_the_limit_are_dropped() {
        let numbers: Vec<i64> = (1..=12).rev().collect();
        assert_eq!(surplus(&revisions(&numbers)), ["p-1", "p-2"]);
        assert!(surplus(&revisions(&[1, 2])).is_empty());
    }

    #[test]
    fn names_are_no_longer_than_they_may_be() {
        let spec: OverridePolicySpec = serde_json::from_value(json!({"overrideRules": []})).expect("a policy");
        assert!(name_of(&"p".repeat(253), &spec).len() <= 253);
        assert_ne!(name_of("a", &spec), name_of("b", &spec));
        let made = object(("a", "u"), &spec, 1);
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "OverridePolicy");
        let read: OverridePolicySpec =
            serde_json::from_value(made["data"]["spec"].clone()).expect("it can be read again");
        assert_eq!(name_of("a", &read), name_of("a", &spec));
    }

    #[test]
    fn a_revision_says_what_its_name_says() {
        let spec: OverridePolicySpec = serde_json::from_value(json!({"overrideRules": [{"imageOverrider": [
            {"component": "Registry", "operator": "replace", "value": "a.example"}]}]}))
        .expect("a policy");
        let mut made = object(("a", "u"), &spec, 1);
        let name = name_of("a", &spec);
        assert_eq!(spec_of("a", &name, &made["data"]), Some(spec));
        assert_eq!(spec_of("b", &name, &made["data"]), None, "it is another policy's");
        made["data"]["spec"]["overrideRules"][0]["imageOverrider"][0]["value"] = json!("forged.example");
        assert_eq!(spec_of("a", &name, &made["data"]), None);
        assert_eq!(spec_of("a", &name, &json!({"spec": 7})), None);
        assert!(is_numbered(0) && is_numbered(77) && !is_numbered(i64::MAX) && !is_numbered(-1));
    }
}

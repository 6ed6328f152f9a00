//! Which labels the owner of a pod selects on: a pod that loses one of them is released, and another is made for it.

use dapple_edit::marker::OwnerKeys;
use serde_json::Value;

use crate::native::selector;

/// What an owner selects on, as it was read once: that of the kinds of apps and batch cannot be changed. One that does not say it
/// as Kubernetes' own kinds do counts as one that could not be read.
#[must_use]
pub fn keys_of(owner: &Value) -> OwnerKeys {
    match selector(owner) {
        Some(selector) => {
            OwnerKeys::Known(selector.requirements().iter().map(|requirement| requirement.key.clone()).collect())
        }
        None => OwnerKeys::Unread,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_keys_of_a_selector_are_the_owners() {
        let expressions =
            json!([{"key": "tier", "operator": "In", "values": ["a"]}, {"key": "old", "operator": "DoesNotExist"}]);
        for (selector, expected) in [
            (json!({"matchLabels": {"app": "web", "pod-template-hash": "h"}}), vec!["app", "pod-template-hash"]),
            (json!({"matchLabels": {"app": "web"}, "matchExpressions": expressions}), vec!["app", "old", "tier"]),
            // That of a ReplicationController.
            (json!({"app": "web"}), vec!["app"]),
        ] {
            let OwnerKeys::Known(keys) = keys_of(&json!({"spec": {"selector": selector}})) else {
                panic!("{selector} is not read")
            };
            assert_eq!(keys.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn one_that_says_nothing_of_it_is_not_read() {
        for owner in [json!({}), json!({"spec": {}}), json!({"spec": {"selector": "app=web"}}), json!(null)] {
            assert_eq!(keys_of(&owner), OwnerKeys::Unread, "{owner}");
        }
    }
}

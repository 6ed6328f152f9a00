//! Whose objects are whose: patches that take in what nobody owns, and let go of what is an owner's no more.
//!
//! Each names the object by UID and version: one that has got another owner meanwhile is left alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::slim::Meta;

/// Makes this the owner of an object. A strategic merge patch.
pub fn adoption(owner: &Value, object: &Meta) -> Value {
    patch(object, owner)
}

/// Takes the owner of this UID away from an object. A strategic merge patch.
pub fn release(owner: &str, object: &Meta) -> Value {
    patch(object, &json!({"$patch": "delete", "uid": owner}))
}

fn patch(object: &Meta, owner: &Value) -> Value {
    let Meta { uid, version, .. } = object;
    json!({"metadata": {"uid": &**uid, "resourceVersion": version.to_string(), "ownerReferences": [owner]}})
}

/// Whether an owner is there, and not on its way out. Asks the API server itself: one that goes must not take in what it
/// would take along.
pub async fn may_adopt<K>(api: &Api<K>, owner: &Meta) -> Result<bool, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = api.get_metadata_opt(&owner.key.name).await?.map(|found| found.metadata);
    let is_it = |found: &ObjectMeta| found.uid.as_deref() == Some(&*owner.uid) && found.deletion_timestamp.is_none();
    Ok(found.as_ref().is_some_and(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slim::Key;
    use std::sync::Arc;

    #[test]
    fn a_claim_is_of_this_very_version() {
        let meta = Meta { key: Key::new("default", "a"), uid: Arc::from("of-a"), version: 7 };
        let taken = adoption(&json!({"uid": "of-owner"}), &meta);
        assert_eq!(
            taken,
            json!({"metadata": {"uid": "of-a", "resourceVersion": "7", "ownerReferences": [{"uid": "of-owner"}]}})
        );
        let given_up = release("of-owner", &meta);
        assert_eq!(given_up["metadata"]["ownerReferences"], json!([{"$patch": "delete", "uid": "of-owner"}]));
        assert_eq!(given_up["metadata"]["resourceVersion"], "7");
    }
}

//! One object as a watch delivers it: readable, or not.
//!
//! A watch decodes whole events, so one object that does not parse would end the stream and, through the relist that
//! follows, keep every other object from being seen. [`Observed`] decodes in two steps: the few fields that name the
//! object, then the rest. If the rest fails, the object is passed over by name.

use std::borrow::Cow;

pub use dapple_api::kinds::KindInfo;
use dapple_api::reading::in_plain_words;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// The part of an object that is read off the wire. Fields nobody asks for are skipped while parsing.
pub trait Wire: DeserializeOwned + Clone + Send + Sync + std::fmt::Debug + 'static {
    /// Whether metadata is all that is asked for: the API server sends nothing else then.
    const IS_METADATA: bool = false;
    /// The only object that is asked for, by name, in dapple's own namespace; none if all are.
    const ONLY: Option<&'static str> = None;
    /// The only namespace that is asked for; none if all are.
    const NAMESPACE: Option<&'static str> = None;
    /// The label that objects must have to be asked for; none if all are.
    const LABELLED: Option<&'static str> = None;
}

/// All of it, of whatever kind.
impl Wire for serde_json::Value {}

/// The part of an object of one kind.
pub trait KindWire: Wire {
    /// Where the API server keeps it.
    const KIND: KindInfo;
}

/// An object from the watch: its wire form, or why that could not be read.
#[derive(Debug, Clone)]
pub struct Observed<W> {
    meta: ObjectMeta,
    /// The wire form, or the reason it cannot be had.
    pub object: Result<W, String>,
}

/// What every object has, if it can be named at all.
#[derive(Deserialize)]
struct Identity {
    metadata: IdentityMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl<'de, W: Wire> Deserialize<'de> for Observed<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Identity { metadata } = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        let meta = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            ..ObjectMeta::default()
        };
        let object = serde_json::from_str(raw.get()).or_else(|_| explain(raw.get()));
        Ok(Self { meta, object })
    }
}

/// Reads it once more, slowly, to tell which field is wrong. Only what cannot be read pays for this.
fn explain<W: Wire>(text: &str) -> Result<W, String> {
    let reader = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        // The position is in the API server's own text, which nobody sees.
        let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
        format!("{path}: {}", in_plain_words(reason))
    })
}

impl<W: Wire> kube::Resource for Observed<W> {
    type DynamicType = KindInfo;
    type Scope = DynamicResourceScope;

    fn kind(at: &KindInfo) -> Cow<'_, str> {
        at.kind.into()
    }

    fn group(at: &KindInfo) -> Cow<'_, str> {
        at.group.into()
    }

    fn version(at: &KindInfo) -> Cow<'_, str> {
        at.version.into()
    }

    fn plural(at: &KindInfo) -> Cow<'_, str> {
        at.plural.into()
    }

    fn metadata_api() -> bool {
        W::IS_METADATA
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use kube::ResourceExt;
    use kube::api::WatchEvent;

    #[derive(Debug, Clone, Deserialize)]
    struct Counted {
        count: u8,
    }

    impl Wire for Counted {}

    fn observe(object: &str) -> Observed<Counted> {
        let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        match serde_json::from_str::<WatchEvent<Observed<Counted>>>(&line).unwrap() {
            WatchEvent::Added(observed) => observed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_readable_object_is_read() {
        let observed = observe(r#"{"metadata":{"name":"a","resourceVersion":"7"},"count":3}"#);
        assert_eq!((observed.name_any().as_str(), observed.object.unwrap().count), ("a", 3));
    }

    #[test]
    fn an_unreadable_object_keeps_its_name_and_says_where_it_fails() {
        let observed = observe(r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"count":"three"}"#);
        assert_eq!(observed.resource_version().as_deref(), Some("7"));
        let reason = observed.object.unwrap_err();
        assert_eq!(reason, "count: this must be a whole number, and it is text");
    }
}

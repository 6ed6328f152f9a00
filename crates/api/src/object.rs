//! What every object has in common: `apiVersion`, `kind`, and their place in the Kubernetes API.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use kube::Resource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// The `apiVersion` of a `K`: always the same text, so it takes no memory, and a different one is refused on reading.
pub struct ApiVersion<K>(PhantomData<fn() -> K>);

/// The `kind` of a `K`: always the same text, so it takes no memory, and a different one is refused on reading.
pub struct Kind<K>(PhantomData<fn() -> K>);

/// Both markers behave alike but for the text they stand for.
macro_rules! constant_text {
    ($marker:ident, $text:ident) => {
        impl<K> Default for $marker<K> {
            fn default() -> Self {
                Self(PhantomData)
            }
        }

        impl<K> Clone for $marker<K> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<K> Copy for $marker<K> {}

        impl<K> PartialEq for $marker<K> {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }

        impl<K> Eq for $marker<K> {}

        impl<K: Resource<DynamicType = ()>> fmt::Debug for $marker<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&K::$text(&()))
            }
        }

        impl<K: Resource<DynamicType = ()>> Serialize for $marker<K> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&K::$text(&()))
            }
        }

        impl<'de, K: Resource<DynamicType = ()>> Deserialize<'de> for $marker<K> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let found = Cow::<'de, str>::deserialize(deserializer)?;
                let expected = K::$text(&());
                if found == expected {
                    Ok(Self::default())
                } else {
                    Err(D::Error::custom(format_args!("expected {expected:?}, found {found:?}")))
                }
            }
        }

        impl<K> JsonSchema for $marker<K> {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($marker).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string"})
            }
        }
    };
}

constant_text!(ApiVersion, api_version);
constant_text!(Kind, kind);

/// Declares the type of an object: what every object has, and the fields given. It gets its place in the Kubernetes API, so
/// that `kube::Api<T>` works: that of its kind in the table, in the version that is stored, or in another one if it says so.
macro_rules! resource {
    ($(#[$about:meta])* pub struct $kind:ident: $own:ident, $scope:ident { $($fields:tt)* }) => {
        crate::object::resource! {
            $(#[$about])* pub struct $kind: $own, crate::kinds::$own.at.version, $scope { $($fields)* }
        }
    };
    ($(#[$about:meta])* pub struct $kind:ident: $own:ident, $version:expr, $scope:ident { $($fields:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $kind {
            /// Always that of this type.
            #[serde(default)]
            pub api_version: crate::object::ApiVersion<Self>,
            /// Always that of this type.
            #[serde(default)]
            pub kind: crate::object::Kind<Self>,
            /// Name, labels and what else every object has.
            #[serde(default)]
            #[schemars(schema_with = "crate::schema::metadata")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($fields)*
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                crate::kinds::$own.at.kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                crate::kinds::$own.at.group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                crate::kinds::$own.at.plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use resource;

#[cfg(test)]
mod tests {
    use crate::group::NodeGroup;

    #[test]
    fn constants_are_written_and_checked() {
        let group: NodeGroup =
            serde_json::from_str(r#"{"metadata":{"name":"beijing"},"spec":{}}"#).expect("no apiVersion is fine");
        let json = serde_json::to_value(&group).expect("serialises");
        assert_eq!(json["apiVersion"], "groupmanagement.kubeedge.io/v1alpha1");
        assert_eq!(json["kind"], "NodeGroup");

        let other = serde_json::from_str::<NodeGroup>(r#"{"kind":"NodePool","metadata":{},"spec":{}}"#);
        let message = other.expect_err("another kind").to_string();
        assert!(message.contains(r#"expected "NodeGroup", found "NodePool""#), "{message}");
    }
}

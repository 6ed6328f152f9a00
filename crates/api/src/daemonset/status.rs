//! What the status of a DaemonSet has in every version.

/// Declares the status of one version: what every version has, and the fields given.
macro_rules! status {
    ($($fields:tt)*) => {
        /// How far a DaemonSet has come.
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct DaemonSetStatus {
            /// Nodes that should run a pod and do.
            #[serde(default)]
            pub current_number_scheduled: i32,
            /// Nodes that run a pod and should not.
            #[serde(default)]
            pub number_misscheduled: i32,
            /// Nodes that should run a pod.
            #[serde(default)]
            pub desired_number_scheduled: i32,
            /// Nodes that should run a pod and have a ready one.
            #[serde(default)]
            pub number_ready: i32,
            /// The `metadata.generation` that this status describes.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub observed_generation: Option<i64>,
            /// Nodes whose pod has the newest revision.
            #[serde(default)]
            pub updated_number_scheduled: i32,
            /// Nodes that should run a pod and have none available.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub number_unavailable: Option<i32>,
            /// Changes where the name of a new revision is taken already.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub collision_count: Option<i32>,
            /// The name of the ControllerRevision that nodes held back get: the last one whose rollout was complete. A name and no
            /// hash, since revisions that differ in patches alone share the hash.
            // OpenKruise has no such field. It is one here, since writes of the spec can lose an annotation, but no status.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub current_revision: Option<String>,
            /// `Progressing`, `Available`, `Degraded` and `Paused`, with what is being waited for.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(schema_with = "crate::schema::conditions")]
            pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
            $($fields)*
        }
    };
}
pub(super) use status;

//! The Advanced DaemonSet: one pod per node, with patches by node label.

mod convert;
mod defaulting;
mod defaults;
mod status;
pub mod v1alpha1;
pub mod v1beta1;
mod validate;

use crate::crd::{Crd, Version, age, column, wide};
use crate::kinds;

pub use convert::{ConversionError, V1ALPHA1_ANNOTATION, V1BETA1_ANNOTATION, convert};
pub use defaulting::default_patch;
pub use v1beta1::{
    DaemonSet, DaemonSetPatch, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy, Lifecycle, LifecycleHook,
    RollingUpdate, RollingUpdateType, ScaleStrategy, UpdateStrategyType, VariantStatus,
};
pub use validate::{check_template as validate_template, validate};

/// The API group of DaemonSet.
pub const GROUP: &str = "apps.kruise.io";

/// The most patches that one DaemonSet may have.
pub const MAX_PATCHES: usize = 10;

/// The most bytes that one patch may have, as compact JSON.
pub const MAX_PATCH_BYTES: usize = 1024;

pub(crate) fn crds() -> Vec<Crd> {
    let count = |name, field: &str, description| column(name, "integer", &format!(".status.{field}"), description);
    let columns = vec![
        count("Desired", "desiredNumberScheduled", "Nodes that should run a pod"),
        count("Current", "currentNumberScheduled", "Nodes that should run a pod and do"),
        count("Ready", "numberReady", "Nodes whose pod is ready"),
        count("Up-to-date", "updatedNumberScheduled", "Nodes whose pod is of the newest revision"),
        count("Available", "numberAvailable", "Nodes whose pod has been ready for minReadySeconds"),
        age(),
        wide("Strategy", "string", ".spec.updateStrategy.type", "When pods are replaced"),
        wide("Image", "string", ".spec.template.spec.containers[0].image", "Image of the template's first container"),
    ];
    let revision = wide("Revision", "string", ".status.updateRevision", "The newest revision");
    vec![Crd {
        kind: &kinds::DAEMON_SET,
        versions: vec![
            Version::of::<DaemonSet>([columns.clone(), vec![revision]].concat()),
            Version::of::<v1alpha1::DaemonSet>(columns),
        ],
    }]
}

//! What every object's metadata must be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::syntax;
use crate::verdict::{Reason, Verdict};

/// Annotation of an object by which dapple changes others: `"true"`, and nothing is changed by it.
pub const SUSPEND_ANNOTATION: &str = "dapple.dev/suspend";

/// Annotation of a pod that a PropagationPolicy divides, with its like, among groups: the number of its seat.
pub const SEAT_ANNOTATION: &str = "dapple.dev/seat";

/// Checks an object's name, namespace, labels and annotations.
pub fn check(metadata: &ObjectMeta, verdict: &mut Verdict) {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    match (given(&metadata.name), given(&metadata.generate_name)) {
        (Some(name), _) => verdict.check("metadata.name", syntax::dns_subdomain(&name)),
        // Letters and digits are added to it, so it may end in anything that may stand inside a name.
        (None, Some(start)) => verdict.check("metadata.generateName", syntax::dns_subdomain(&format!("{start}x"))),
        (None, None) => verdict.refuse("metadata.name", Reason::Required, "an object needs a name"),
    }
    if let Some(namespace) = given(&metadata.namespace) {
        verdict.check("metadata.namespace", syntax::dns_label(&namespace));
    }
    syntax::labels(metadata.labels.as_ref().unwrap_or(&Default::default()), "metadata.labels", verdict);
    syntax::annotations(metadata.annotations.as_ref().unwrap_or(&Default::default()), "metadata.annotations", verdict);
}

/// Checks that labels can carry the object's name, beside all that [`check`] does.
pub fn check_label_sized(metadata: &ObjectMeta, verdict: &mut Verdict) {
    check(metadata, verdict);
    if let Some(name) = metadata.name.as_deref().filter(|name| syntax::dns_subdomain(name).is_ok()) {
        verdict.check("metadata.name", syntax::label_sized_name(name));
    }
}

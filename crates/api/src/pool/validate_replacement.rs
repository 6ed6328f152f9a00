//! What a YurtAppConfigurationReplacement must be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::validate::check_pools;
use super::{EnvItem, GROUP, Item, POOL_PLACEHOLDER, Replacement, Rules, Subject, YurtAppConfigurationReplacement};
use crate::verdict::{Reason, Verdict};
use crate::{metadata, syntax};

/// Everything that is to be said of a YurtAppConfigurationReplacement by itself.
pub fn validate_replacement(object: &YurtAppConfigurationReplacement) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&object.metadata, &mut verdict);
    check_rollout(&object.metadata, &mut verdict);
    check_subject(&object.subject, object.metadata.namespace.as_deref(), &mut verdict);
    verdict.at_most("replacements", object.replacements.len(), 256);
    for (index, replacement) in object.replacements.iter().enumerate() {
        let field = format!("replacements[{index}]");
        check_pools(&replacement.pools, &format!("{field}.pools"), &mut verdict);
        check_items(replacement, &field, &mut verdict);
    }
    verdict
}

/// Checks what annotations say of rollouts.
pub fn check_rollout(metadata: &ObjectMeta, verdict: &mut Verdict) {
    let annotations = metadata.annotations.as_ref();
    if let Err(wrong) = Rules::of(|key| annotations?.get(key).map(String::as_str)) {
        verdict.refuse(syntax::entry("metadata.annotations", wrong.annotation), Reason::Invalid, wrong.text);
    }
}

/// Another replacement object of the same namespace.
pub struct Other<'a> {
    /// Its name.
    pub name: &'a str,
    /// When it was created.
    pub created: Option<&'a Time>,
    /// The application that it changes.
    pub subject: &'a Subject,
}

/// What is to be said of a replacement object beside others of its namespace: an application may have one. `old` is what
/// the object was before an update. One that is new, or comes to another application, is refused however old it is: the
/// API server has set its time already, in whole seconds, and another may be of the same second. Where several slipped
/// in, the oldest counts and can still be changed.
pub fn conflicts<'a>(
    object: &YurtAppConfigurationReplacement,
    old: Option<&YurtAppConfigurationReplacement>,
    others: impl IntoIterator<Item = Other<'a>>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let subject = &object.subject;
    let is_same = |other: &Subject| other.kind == subject.kind && other.name == subject.name;
    let own_name = object.metadata.name.as_deref().unwrap_or_default();
    let rivals = others.into_iter().filter(|other| other.name != own_name && is_same(other.subject));
    let age = |created: Option<&Time>, name: &str| (created.map(|time| time.0), name.to_owned());
    let Some(oldest) = rivals.min_by_key(|other| age(other.created, other.name)) else { return verdict };
    let (application, other) = (format!("{:?} {}", subject.kind, subject.name), oldest.name);
    let was_here = old.is_some_and(|old| is_same(&old.subject));
    if was_here && age(object.metadata.creation_timestamp.as_ref(), own_name) < age(oldest.created, other) {
        let text = format!("{other} changes {application} too; this object is older, so {other} does not count");
        verdict.warn("subject", text);
    } else {
        let text = format!("{application} is changed by {other} already: add the replacements there");
        verdict.refuse("subject", Reason::Duplicate, text);
    }
    verdict
}

fn check_subject(subject: &Subject, own_namespace: Option<&str>, verdict: &mut Verdict) {
    if let Some(version) = subject.api_version.as_deref().filter(|version| !is_version(version)) {
        let text = format!("{version:?} has no applications: use {GROUP}/v1alpha1");
        verdict.refuse("subject.apiVersion", Reason::NotSupported, text);
    }
    if let (Some(one), Some(other)) = (&subject.name_space, &subject.namespace)
        && one != other
    {
        let text = "subject.nameSpace and subject.namespace are two spellings of one field: remove one of them";
        verdict.refuse("subject", Reason::Invalid, text);
    }
    let spelling =
        if subject.name_space.as_ref().is_some_and(|text| !text.is_empty()) { "nameSpace" } else { "namespace" };
    // Without a namespace of its own, the object gets the one that it is sent to: nobody knows here which.
    if let (Some(wanted), Some(own)) = (subject.namespace(), own_namespace.filter(|own| !own.is_empty()))
        && wanted != own
    {
        let text = format!("the application must be in the object's own namespace, {own}: leave this out");
        verdict.refuse(format!("subject.{spelling}"), Reason::Invalid, text);
    }
    verdict.check("subject.name", syntax::dns_subdomain(&subject.name));
}

fn is_version(text: &str) -> bool {
    let version = text.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix("/v"));
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    version.is_some_and(|version| !version.is_empty() && version.chars().all(fits))
}

fn check_items(replacement: &Replacement, field: &str, verdict: &mut Verdict) {
    let items = format!("{field}.items");
    verdict.at_most(&items, replacement.items.len(), 128);
    if replacement.items.is_empty() {
        verdict.warn(&items, "there are none, so nothing changes in these pools");
    }
    for (index, item) in replacement.items.iter().enumerate() {
        check_item(item, &format!("{items}[{index}]"), verdict);
    }
    let has_replicas = |item: &&Item| item.replicas.is_some();
    let has_strategy = |item: &&Item| item.upgrade_strategy.is_some();
    let counts = [
        ("replicas", replacement.items.iter().filter(has_replicas).count()),
        ("upgradeStrategy", replacement.items.iter().filter(has_strategy).count()),
    ];
    for (name, _) in counts.into_iter().filter(|(_, count)| *count > 1) {
        let text = format!("items may have {name} only once: use another replacement for other pools");
        verdict.refuse(&items, Reason::Duplicate, text);
    }
}

fn check_item(item: &Item, field: &str, verdict: &mut Verdict) {
    let set = [
        item.image.is_some(),
        item.config_map.is_some(),
        item.secret.is_some(),
        item.env.is_some(),
        item.persistent_volume_claim.is_some(),
        item.replicas.is_some(),
        item.upgrade_strategy.is_some(),
    ];
    if set.into_iter().filter(|is_set| *is_set).count() != 1 {
        let text = "an item must have exactly one of image, configMap, secret, env, persistentVolumeClaim, replicas \
                    and upgradeStrategy: use one item for each";
        verdict.refuse(field, Reason::Invalid, text);
    }
    if let Some(image) = &item.image {
        let field = format!("{field}.image");
        check_container(&image.container_name, &field, verdict);
        if image.image_claim.trim().is_empty() {
            verdict.refuse(format!("{field}.imageClaim"), Reason::Required, "say which image the container gets");
        }
    }
    if let Some(env) = &item.env {
        check_env(env, &format!("{field}.env"), verdict);
    }
    if let Some(map) = &item.config_map {
        let names = [("configMapSource", &map.config_map_source), ("configMapTarget", &map.config_map_target)];
        check_names(names, &format!("{field}.configMap"), verdict);
    }
    if let Some(secret) = &item.secret {
        let names = [("secretSource", &secret.secret_source), ("secretTarget", &secret.secret_target)];
        check_names(names, &format!("{field}.secret"), verdict);
    }
    if let Some(claim) = &item.persistent_volume_claim {
        let names = [("pvcSource", &claim.pvc_source), ("pvcTarget", &claim.pvc_target)];
        check_names(names, &format!("{field}.persistentVolumeClaim"), verdict);
    }
    if let Some(replicas) = item.replicas.filter(|replicas| *replicas < 0) {
        let text = format!("a number of pods is at least 0, and this is {replicas}");
        verdict.refuse(format!("{field}.replicas"), Reason::Invalid, text);
    }
}

/// The text with a pool's name where one belongs.
fn in_some_pool(text: &str) -> String {
    text.replace(POOL_PLACEHOLDER, "pool")
}

fn check_container(name: &str, field: &str, verdict: &mut Verdict) {
    verdict.check(format!("{field}.containerName"), syntax::dns_label(&in_some_pool(name)));
}

fn check_env(env: &EnvItem, field: &str, verdict: &mut Verdict) {
    check_container(&env.container_name, field, verdict);
    let claim = format!("{field}.envClaim");
    if env.env_claim.is_empty() {
        verdict.refuse(&claim, Reason::Required, "name at least one variable");
    }
    for name in env.env_claim.keys() {
        verdict.check(&claim, syntax::env_name(name));
    }
}

/// Checks the names of an object that is referred to, and of the one that takes its place.
fn check_names(names: [(&str, &String); 2], field: &str, verdict: &mut Verdict) {
    for (name, value) in names {
        let field = format!("{field}.{name}");
        if value.is_empty() {
            verdict.refuse(field, Reason::Required, "an object's name is needed here");
        } else if let Err(text) = syntax::dns_subdomain(&in_some_pool(value)) {
            verdict.warn(&field, format_args!("no object can have this name; {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, subject: &str, created: Option<&str>) -> YurtAppConfigurationReplacement {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "subject": {"kind": "YurtAppSet", "name": subject},
        }))
        .expect("parses")
    }

    fn told(
        object: &YurtAppConfigurationReplacement,
        old: Option<&YurtAppConfigurationReplacement>,
        others: &[&YurtAppConfigurationReplacement],
    ) -> Verdict {
        let others = others.iter().map(|other| Other {
            name: other.metadata.name.as_deref().unwrap_or_default(),
            created: other.metadata.creation_timestamp.as_ref(),
            subject: &other.subject,
        });
        conflicts(object, old, others)
    }

    const FIRST: Option<&str> = Some("2026-11-15T04:00:00Z");
    const SECOND: Option<&str> = Some("2026-11-15T05:00:00Z");

    #[test]
    fn an_application_has_one_replacement() {
        let (old, young) = (object("old", "demo", FIRST), object("young", "demo", SECOND));
        let elsewhere = object("elsewhere", "other", FIRST);
        // One that is made in the same second, and one whose name comes first.
        for new in [object("new", "demo", SECOND), object("a", "demo", FIRST), object("a", "demo", None)] {
            assert_eq!(told(&new, None, &[&elsewhere]), Verdict::default());
            let refused = told(&new, None, &[&elsewhere, &young, &old]);
            assert_eq!(
                refused.errors[0].to_string(),
                "subject: YurtAppSet demo is changed by old already: add the replacements there"
            );
        }
        assert!(!told(&young, Some(&young), &[&old]).is_ok());
        let moved = object("elsewhere", "demo", FIRST);
        assert!(!told(&moved, Some(&elsewhere), &[&young]).is_ok(), "it is older, but was not here");
        assert_eq!(told(&elsewhere, Some(&moved), &[&young]), Verdict::default());
    }

    #[test]
    fn where_several_slipped_in_the_oldest_can_be_changed() {
        let (old, young) = (object("old", "demo", FIRST), object("young", "demo", SECOND));
        assert_eq!(told(&old, Some(&old), &[&old]), Verdict::default(), "it is no rival of itself");
        let warned = told(&old, Some(&old), &[&young]);
        assert!(warned.is_ok() && warned.warnings[0].contains("so young does not count"), "{warned:?}");
        let twin = object("twin", "demo", FIRST);
        assert!(told(&old, Some(&old), &[&twin]).is_ok() && !told(&twin, Some(&twin), &[&old]).is_ok());
    }
}

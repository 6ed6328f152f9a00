//! What would be refused of the objects in files: by dapple's rules, and with `--server` by the API server itself.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context;
use dapple_admit::ask::Asker;
use dapple_admit::daemonset::DaemonSets;
use dapple_admit::workload;
use dapple_api::daemonset::{ConversionError, DaemonSet, convert};
use dapple_api::group::{OverridePolicy, missing_in_override_policy};
use dapple_api::kinds::{self, Name, OwnKind, Serving};
use dapple_api::manifest::Manifest;
use dapple_api::pool::v1alpha1::as_stored;
use dapple_api::reading::read;
use dapple_api::selector::Selector;
use dapple_api::verdict::{FieldError, Reason, Verdict};
use dapple_control::install::{self, api_of, find};
use dapple_edit::admission::{judge, judge_change};
use dapple_plan::world::name_of;
use dapple_view::harmless;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::sources::{Live, Sources, with_notice};

/// Who asks the API server, should anybody look.
const FIELD_MANAGER: &str = "dapple-plan";

/// Kinds that plans are made of: what is probably not meant in them, plans tell themselves.
const PLANNED: [Name; 4] = [Name::DaemonSet, Name::YurtAppSet, Name::YurtAppDaemon, Name::Replacement];

/// What is to be said of the objects in files.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// What would be refused, each with its place.
    pub(crate) errors: Vec<String>,
    /// What is probably not meant in kinds that no plan is made of, and what the API server did not say.
    pub(crate) warnings: Vec<String>,
}

impl Checks {
    /// Holds every object of the files against the rules of its kind, and against what the cluster has of it.
    pub(crate) async fn of(sources: &Sources, asks_server: bool) -> anyhow::Result<Self> {
        let mut checks = Self::default();
        for manifest in &sources.manifests {
            match stored(manifest.value()) {
                Ok(object) => {
                    if let Some(verdict) = check(sources, &object, manifest.value(), asks_server).await? {
                        checks.take(manifest, verdict);
                    }
                }
                Err(error) => checks.take(manifest, error.into()),
            }
        }
        Ok(checks)
    }

    fn take(&mut self, manifest: &Manifest, verdict: Verdict) {
        let name = name_of(manifest.value());
        self.errors.extend(verdict.errors.into_iter().map(|FieldError { field, text, .. }| {
            let place = format!("{}:{}: {name}", manifest.file(), manifest.locate(&field));
            harmless(&if field.is_empty() { format!("{place}: {text}") } else { format!("{place}: {field}: {text}") })
        }));
        self.warnings.extend(verdict.warnings.into_iter().map(|warning| {
            // A warning begins with its field.
            let field = warning.split_once(": ").map_or("", |(field, _)| field);
            harmless(&format!("{}:{}: {name}: {warning}", manifest.file(), manifest.locate(field)))
        }));
    }
}

/// The object in the version that is judged, which is the stored one.
pub(crate) fn stored(object: &Value) -> Result<Cow<'_, Value>, FieldError> {
    let told =
        |error: ConversionError| FieldError { field: String::new(), reason: Reason::Invalid, text: error.to_string() };
    match kinds::of(object).and_then(|(own, version)| Some((own, own.serving(version)?))) {
        Some((own, Serving::Converted)) => convert(object.clone(), &own.at.api_version()).map(Cow::Owned).map_err(told),
        Some((_, Serving::AsStored)) => Ok(Cow::Owned(as_stored(object))),
        Some((_, Serving::Declared)) | None => Ok(Cow::Borrowed(object)),
    }
}

/// What is to be said of an object, which is `written` like this; nothing of kinds that are none of dapple's.
async fn check(
    sources: &Sources,
    object: &Value,
    written: &Value,
    asks_server: bool,
) -> anyhow::Result<Option<Verdict>> {
    let Some((own, _)) = kinds::of(object).filter(|_| judge(object, None).is_some()) else { return Ok(None) };
    let old = match &sources.live {
        Some(live) => current(live, object).await?,
        None => None,
    };
    let mut verdict = judge_change(object, old.as_ref()).unwrap_or_default();
    if PLANNED.contains(&own.name) {
        verdict.warnings.clear();
    }
    if let (Name::OverridePolicy, true, Ok(policy)) = (own.name, verdict.is_ok(), read::<OverridePolicy>(object)) {
        verdict.extend(missing_in_override_policy(&policy, |name| sources.next.has_group(name)));
    }
    if let Some(live) = sources.live.as_ref().filter(|_| asks_server) {
        let asked = ask(live, sources, (own, object, written), old.as_ref(), &mut verdict);
        with_notice("asking the API server ...", asked).await?;
    }
    Ok(Some(verdict))
}

/// What the cluster has of an object. Nothing where it does not know the kind.
async fn current(live: &Live, object: &Value) -> anyhow::Result<Option<Value>> {
    match find(&live.client, object).await {
        Err(install::Error::Unserved { .. }) => Ok(None),
        found => found.with_context(|| format!("cannot get {}", name_of(object))),
    }
}

/// Has the API server look at an object and every kind of pod that would come of it. Nothing is changed.
async fn ask(
    live: &Live,
    sources: &Sources,
    (own, object, written): (&OwnKind, &Value, &Value),
    old: Option<&Value>,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let asker = Arc::new(Asker::new(live.client.clone(), name_of(object).namespace));
    match own.name {
        Name::DaemonSet => {
            if let Ok(set) = read::<DaemonSet>(object) {
                let old = old.and_then(|old| read::<DaemonSet>(old).ok());
                let classes = |selectors: &[Selector]| sources.next.census().classes(selectors);
                DaemonSets::new(asker).ask(&set.spec, old.as_ref().map(|old| &old.spec), classes, verdict).await;
            }
        }
        _ if own.is_workload => workload::ask(&asker, object, old, verdict).await,
        _ => {}
    }
    // Where dapple's webhooks are, they would say the same again.
    if verdict.is_ok() {
        verdict.extend(dry_run(live, written).await?);
    }
    Ok(())
}

/// What the API server says to an object, with everything that is asked before it takes one.
async fn dry_run(live: &Live, object: &Value) -> anyhow::Result<Verdict> {
    let name = name_of(object);
    let mut verdict = Verdict::default();
    let api = match api_of(&live.client, object).await {
        Err(error @ install::Error::Unserved { .. }) => {
            verdict.refuse("apiVersion", Reason::NotSupported, error.to_string());
            return Ok(verdict);
        }
        api => api.with_context(|| format!("cannot ask about {name}"))?,
    };
    let params = PatchParams::apply(FIELD_MANAGER).force().dry_run().validation_strict();
    match api.patch(&name.name, &params, &Patch::Apply(object)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes = causes.filter(|cause| !cause.field.is_empty());
            verdict.errors.extend(causes.map(|cause| FieldError {
                field: cause.field.clone(),
                reason: Reason::Invalid,
                text: cause.message.clone(),
            }));
            if verdict.is_ok() {
                verdict.refuse("", Reason::Invalid, status.message.clone());
            }
        }
        Err(error) => return Err(error).with_context(|| format!("cannot ask about {name}")),
    }
    Ok(verdict)
}

//! Applications that are taken over: which pools' pods would restart, and why.
//!
//! What dapple would write is held against what is there, as its controller does it. Where the pod templates differ, the API server
//! is asked what it would store: another webhook may have made the difference, and will make it again.

mod restarts;

use std::collections::BTreeMap;

use dapple_api::kinds::{self, KindInfo};
use dapple_api::pool::{
    GROUP, NodePool, POOL_NAME_LABEL, POOL_REVISION_LABEL, SubjectKind, Taint, YurtAppConfigurationReplacement,
    YurtAppDaemon, YurtAppSet,
};
use dapple_api::reading::read;
use dapple_api::selector::Selector;
use dapple_api::verdict::FieldError;
use dapple_edit::document::Document;
use serde_json::Value;

use super::{Observed, Told, application_of, uid};
use crate::adopt::{Refusal, name_of};
use crate::pool::revision::{Revision, number_of, version_for};
use crate::pool::stored::{Beside, Difference, difference, patch, wanted};
use crate::pool::version::{Application, InForce, Pools, Version};
use crate::pool::workload::{Rendered, Unrendered, declared_replicas, render};

/// What the API server said of a workload that it was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It would store the pod template that is there.
    AsStored,
    /// It would store another one.
    Changed,
    /// It would refuse the write.
    Refused(String),
}

/// A write to ask the API server about.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Where the workload is.
    pub path: String,
    /// A merge patch of it.
    pub patch: Value,
    /// The workload's UID.
    pub uid: String,
    document: Document,
    stored: Value,
}

impl Trial {
    /// What an answer means: the workload as it would be stored.
    pub fn answered(&self, answer: &Value) -> Answer {
        let is_another = difference(self.document, &self.stored, answer).template;
        if is_another { Answer::Changed } else { Answer::AsStored }
    }

    /// What it means that the API server did not take the write.
    pub fn refused(&self, code: u16, message: &str) -> Answer {
        // It is gone, or changes just now: nothing is known of it.
        if [404, 409].contains(&code) { Answer::Changed } else { Answer::Refused(message.to_owned()) }
    }
}

/// An application that is taken over, with all that is its own.
pub(super) struct Found<'a> {
    application: Application,
    version: Version,
    revisions: Vec<Revision>,
    /// Its workloads, by pool, those that count first.
    workloads: BTreeMap<&'a str, Vec<&'a Value>>,
    /// Workloads of the kind that its template is not of.
    of_other_kind: Vec<&'a Value>,
    /// The pools that it should be in, with the taints of their nodes if those matter; or why that is not known.
    pools: Result<BTreeMap<String, Vec<Taint>>, String>,
}

/// What stands in a pool beside what should.
struct Compared {
    rendered: Rendered,
    wanted: Value,
    /// What the pool got of its workload's own revision.
    own: Option<Value>,
    difference: Difference,
}

/// All applications that are taken over and can be read.
pub(super) fn read_all(observed: &Observed) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    for seen in &observed.kinds {
        let (Some(kind), Ok(objects)) = (seen.taken.subject, &seen.objects) else { continue };
        found.extend(objects.iter().filter_map(|object| Found::new(kind, object, observed)));
    }
    found
}

/// The writes to ask the API server about: those by which dapple would change a pod template.
pub fn trials(observed: &Observed) -> Vec<Trial> {
    let mut trials = Vec::new();
    for found in &read_all(observed) {
        for pool in found.pools.iter().flat_map(|pools| pools.keys()) {
            let Some(workload) = found.first(pool) else { continue };
            let Some(Ok(compared)) = found.compare(pool, workload) else { continue };
            let Difference { template, fixed, .. } = &compared.difference;
            if *template && fixed.is_empty() && has_pods(workload) {
                trials.push(found.trial(workload, compared));
            }
        }
    }
    trials
}

/// Replacements that cannot be read: while there is one, dapple writes nothing in its namespace.
pub(super) fn unreadable_replacements(observed: &Observed) -> Told {
    let unread = observed.replacements.iter().filter_map(|object| {
        let error = read::<YurtAppConfigurationReplacement>(object).err()?;
        Some(Refusal {
            object: format!("{} {}", kinds::REPLACEMENT.at.kind, name_of(object)),
            field: error.field,
            problem: format!("cannot be read: {}", error.text),
            remedy: "correct or delete it, and run this again".to_owned(),
        })
    });
    Told { refusals: unread.collect(), ..Told::default() }
}

/// What an application of either kind says, without replacements.
fn said(kind: SubjectKind, object: &Value) -> Result<(Application, Version), FieldError> {
    let (metadata, version, selector, limit) = match kind {
        SubjectKind::YurtAppSet => {
            let YurtAppSet { metadata, spec, .. } = read(object)?;
            (metadata, Version::of_set(&spec, None), spec.selector.clone(), spec.revision_history_limit())
        }
        SubjectKind::YurtAppDaemon => {
            let YurtAppDaemon { metadata, spec, .. } = read(object)?;
            (metadata, Version::of_daemon(&spec, None), spec.selector.clone(), spec.revision_history_limit())
        }
    };
    let application = Application {
        kind,
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        selector,
        history_limit: usize::try_from(limit).unwrap_or_default(),
    };
    Ok((application, version))
}

impl<'a> Found<'a> {
    fn new(kind: SubjectKind, object: &Value, observed: &'a Observed) -> Option<Self> {
        let (application, mut version) = said(kind, object).ok()?;
        version.replacements = in_force(&application, &observed.replacements);
        let is_its = |object: &&Value| application_of(object).is_some_and(|owner| owner == application.uid);
        let revisions = observed.revisions.iter().filter(is_its).map(|object| Revision {
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            number: number_of(object["revision"].as_i64().unwrap_or_default()),
            data: object["data"].clone(),
        });
        let (deployments, stateful_sets) = (&observed.deployments, &observed.stateful_sets);
        let (right, other) = match version.base() {
            Some((Document::StatefulSet, _)) => (stateful_sets, deployments),
            _ => (deployments, stateful_sets),
        };
        let mut workloads: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for workload in right.iter().filter(is_its) {
            let pool = workload["metadata"]["labels"][POOL_NAME_LABEL].as_str().unwrap_or_default();
            workloads.entry(pool).or_default().push(workload);
        }
        // Of two for one pool the older counts.
        workloads.values_mut().for_each(|of_pool| of_pool.sort_by_key(|workload| age(workload)));
        Some(Self {
            revisions: revisions.collect(),
            workloads,
            of_other_kind: other.iter().filter(is_its).collect(),
            pools: asked(&version, observed),
            application,
            version,
        })
    }

    /// As people name it.
    pub(super) fn object(&self) -> String {
        self.application.object()
    }

    /// The kind of its workloads.
    pub(super) fn document(&self) -> Option<Document> {
        self.version.base().map(|(document, _)| document)
    }

    /// Whether it is what an object of this metadata names as its subject.
    pub(super) fn is(&self, subject: &Value, metadata: &Value) -> bool {
        let Application { kind, namespace, name, .. } = &self.application;
        subject["kind"] == format!("{kind:?}")
            && subject["name"] == *name
            && metadata["namespace"] == *namespace
            && subject["apiVersion"].as_str().is_none_or(|version| version.split('/').next() == Some(GROUP))
    }

    /// What to do about changes that no item of a replacement makes.
    pub(super) fn place_of_patches(&self) -> String {
        match self.application.kind {
            SubjectKind::YurtAppSet => {
                format!("put what it does into spec.topology.pools[].patch of {}", self.object())
            }
            SubjectKind::YurtAppDaemon => format!("put what it does into its template, that of {}", self.object()),
        }
    }

    /// All its workloads.
    pub(super) fn workloads(&self) -> Vec<&'a Value> {
        self.workloads.values().flatten().chain(&self.of_other_kind).copied().collect()
    }

    /// The workload of a pool that counts.
    fn first(&self, pool: &str) -> Option<&'a Value> {
        self.workloads.get(pool)?.first().copied()
    }

    fn render(&self, version: &Version, pool: &str) -> Option<Result<Rendered, Unrendered>> {
        let taints = self.pools.as_ref().ok()?.get(pool)?;
        Some(render(&self.application, version, pool, taints))
    }

    /// What a pool has, held against what it should have. None if the application is not in the pool.
    fn compare(&self, pool: &str, workload: &Value) -> Option<Result<Compared, Unrendered>> {
        let rendered = match self.render(&self.version, pool)? {
            Ok(rendered) => rendered,
            Err(error) => return Some(Err(error)),
        };
        let own = self.own_version(workload, pool).and_then(|(_, version)| {
            let own = render(&self.application, &version, pool, &[]).ok()?;
            Some(Value::clone(&own.workload))
        });
        let wanted = wanted(&rendered, workload, Beside { is_autoscaled: false, own: own.as_ref() });
        let difference = difference(rendered.document, workload, &wanted);
        Some(Ok(Compared { rendered, wanted, own, difference }))
    }

    /// The revision that a workload names, and what that says.
    fn own_version(&self, workload: &Value, pool: &str) -> Option<(String, Version)> {
        let name = workload["metadata"]["labels"].get(POOL_REVISION_LABEL)?.as_str()?;
        let revision = self.revisions.iter().find(|known| known.name == name)?;
        Some((name.to_owned(), version_for(&revision.data, &self.version, pool)?))
    }

    fn trial(&self, workload: &Value, compared: Compared) -> Trial {
        let Compared { rendered, wanted, own, .. } = compared;
        let name = workload["metadata"]["name"].as_str().unwrap_or_default();
        let revision = workload["metadata"]["labels"][POOL_REVISION_LABEL].as_str().unwrap_or_default();
        let mut patch = patch((rendered.document, workload), &wanted, revision, (own.as_ref(), &BTreeMap::new()));
        // Its status goes on, and with it its version.
        if let Some(metadata) = patch["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let KindInfo { group, version, plural, .. } = match rendered.document {
            Document::StatefulSet => kinds::NATIVE_STATEFUL_SET.at,
            Document::Deployment | Document::PodTemplate => kinds::NATIVE_DEPLOYMENT.at,
        };
        Trial {
            path: format!("/apis/{group}/{version}/namespaces/{}/{plural}/{name}", self.application.namespace),
            patch,
            uid: uid(workload).to_owned(),
            document: rendered.document,
            stored: workload.clone(),
        }
    }
}

/// The pools that an application should be in.
fn asked(version: &Version, observed: &Observed) -> Result<BTreeMap<String, Vec<Taint>>, String> {
    let selector = match &version.pools {
        Pools::Named(topology) => {
            return Ok(topology.pools.iter().map(|pool| (pool.name.clone(), Vec::new())).collect());
        }
        Pools::Selected(selector) => selector.as_ref(),
    };
    let found = observed.pools.as_ref().map_err(|error| format!("NodePools cannot be listed: {error}"))?;
    let Some(selector) = selector else { return Ok(BTreeMap::new()) };
    let selector = Selector::new(selector).map_err(|error| format!("spec.nodepoolSelector: {error}"))?;
    let mut pools = BTreeMap::new();
    for object in found {
        let Ok(pool) = read::<NodePool>(object) else { continue };
        let label = |key: &str| pool.metadata.labels.as_ref()?.get(key).map(String::as_str);
        if selector.matches(label) {
            pools.insert(name_of(object), pool.spec.taints.clone());
        }
    }
    Ok(pools)
}

/// The replacement that counts for an application: the oldest of those for it.
fn in_force(application: &Application, replacements: &[Value]) -> Option<InForce> {
    let is_its = |known: &YurtAppConfigurationReplacement| {
        known.subject.kind == application.kind
            && known.subject.name == application.name
            && known.metadata.namespace.as_deref() == Some(&*application.namespace)
            && known.subject.namespace().is_none_or(|namespace| namespace == application.namespace)
    };
    let all =
        replacements.iter().filter_map(|object| read::<YurtAppConfigurationReplacement>(object).ok()).filter(is_its);
    let age = |known: &YurtAppConfigurationReplacement| {
        (known.metadata.creation_timestamp.as_ref().map(|time| time.0), known.metadata.name.clone())
    };
    let oldest = all.min_by(|one, other| age(one).cmp(&age(other)))?;
    Some(InForce { name: oldest.metadata.name.unwrap_or_default(), replacements: oldest.replacements })
}

/// How old a workload is, and its name.
fn age(workload: &Value) -> (String, String) {
    let text = |field: &str| workload["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("creationTimestamp"), text("name"))
}

/// Whether there is a pod that could restart.
fn has_pods(workload: &Value) -> bool {
    declared_replicas(workload) > 0 || workload["status"]["replicas"].as_i64().is_some_and(|replicas| replicas > 0)
}

#[cfg(test)]
#[path = "applications_tests.rs"]
mod tests;

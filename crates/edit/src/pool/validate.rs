//! What is to be said of applications in pools: YurtAppSets and YurtAppDaemons.

use std::collections::BTreeSet;

use dapple_api::pool::{Pool, WorkloadTemplate, YurtAppDaemon, YurtAppSet, check_rollout};
use dapple_api::selector::{self, Selector};
use dapple_api::verdict::{Reason, Verdict};
use dapple_api::{metadata, syntax};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use super::validate_nodes::{check_term, check_toleration};
use crate::check::{check_patch, check_value, refuse_identity, tell};
use crate::document::Document;
use crate::meaning::meaning;
use crate::merge::patch_value;

/// A template of an application's workloads.
struct Template {
    kind: Document,
    /// Its name in `workloadTemplate`.
    name: &'static str,
    document: Value,
}

impl Template {
    /// Those that are there. Each came from JSON and goes back to it.
    fn all(of: &WorkloadTemplate) -> Vec<Self> {
        let deployment = of.deployment_template.as_ref().map(|template| Self {
            kind: Document::Deployment,
            name: "deploymentTemplate",
            document: serde_json::to_value(template).unwrap_or_default(),
        });
        let stateful_set = of.stateful_set_template.as_ref().map(|template| Self {
            kind: Document::StatefulSet,
            name: "statefulSetTemplate",
            document: serde_json::to_value(template).unwrap_or_default(),
        });
        deployment.into_iter().chain(stateful_set).collect()
    }

    fn field(&self) -> String {
        format!("spec.workloadTemplate.{}", self.name)
    }
}

/// Everything that is to be said of a YurtAppSet. `old` is what it was before an update.
pub fn validate_yurt_app_set(set: &YurtAppSet, old: Option<&YurtAppSet>) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&set.metadata, &mut verdict);
    check_rollout(&set.metadata, &mut verdict);
    let spec = &set.spec;
    check_selector(&spec.selector, old.map(|old| &old.spec.selector), &mut verdict);
    check_history_limit(spec.revision_history_limit, &mut verdict);
    let before = old.map(|old| &old.spec.workload_template);
    let templates = check_templates(&spec.workload_template, before, &spec.selector, &mut verdict);
    for template in templates.iter().filter(|template| !template.document["spec"]["replicas"].is_null()) {
        let text =
            format!("{}.spec.replicas must be left out: give each pool its own in topology.pools", template.name);
        verdict.refuse(format!("{}.spec.replicas", template.field()), Reason::Forbidden, text);
    }
    let pools = &spec.topology.pools;
    verdict.at_most("spec.topology.pools", pools.len(), 512);
    let mut known = BTreeSet::new();
    for (index, pool) in pools.iter().enumerate() {
        let field = format!("spec.topology.pools[{index}]");
        if !known.insert(&pool.name) {
            let text = format!("{:?} is there already: a pool gets one workload", pool.name);
            verdict.refuse(format!("{field}.name"), Reason::Duplicate, text);
        }
        let before = old.and_then(|old| old.spec.topology.pools.iter().find(|known| known.name == pool.name));
        check_pool(pool, before, &field, &mut verdict);
        if let ([template], Some(patch)) = (templates.as_slice(), &pool.patch) {
            check_pool_patch(template, &patch.0, &spec.selector, &format!("{field}.patch"), &mut verdict);
        }
        let replicas_of_patch = pool.patch.as_ref().map_or(&Value::Null, |patch| &patch.0["spec"]["replicas"]);
        if pool.replicas.is_some() && !replicas_of_patch.is_null() {
            verdict.warn(&format!("{field}.replicas"), "the patch sets replicas too, and wins");
        }
    }
    verdict
}

/// Everything that is to be said of a YurtAppDaemon. `old` is what it was before an update.
pub fn validate_yurt_app_daemon(daemon: &YurtAppDaemon, old: Option<&YurtAppDaemon>) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&daemon.metadata, &mut verdict);
    check_rollout(&daemon.metadata, &mut verdict);
    let spec = &daemon.spec;
    check_selector(&spec.selector, old.map(|old| &old.spec.selector), &mut verdict);
    check_history_limit(spec.revision_history_limit, &mut verdict);
    let before = old.map(|old| &old.spec.workload_template);
    let templates = check_templates(&spec.workload_template, before, &spec.selector, &mut verdict);
    for template in &templates {
        let replicas = template.document["spec"]["replicas"].as_i64();
        check_replicas(replicas, &format!("{}.spec.replicas", template.field()), &mut verdict);
    }
    match &spec.node_pool_selector {
        Some(selector) => selector::check(selector, "spec.nodepoolSelector", &mut verdict),
        None => verdict.warn("spec.nodepoolSelector", "it is not there, so no pool is selected: {} selects every pool"),
    }
    verdict
}

fn check_selector(selector: &LabelSelector, old: Option<&LabelSelector>, verdict: &mut Verdict) {
    let field = "spec.selector";
    if old.is_some_and(|old| old != selector) {
        let text = "selector cannot be changed: delete the object with --cascade=orphan and create it anew";
        verdict.refuse(field, Reason::Forbidden, text);
    }
    let is_empty = selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        let text = "selector must not be empty: give it a label that the template has too";
        verdict.refuse(field, Reason::Required, text);
    }
    selector::check(selector, field, verdict);
}

fn check_history_limit(limit: Option<i32>, verdict: &mut Verdict) {
    if let Some(limit) = limit.filter(|limit| *limit < 0) {
        let text = format!("a number of revisions is at least 0, and this is {limit}");
        verdict.refuse("spec.revisionHistoryLimit", Reason::Invalid, text);
    }
}

fn check_replicas(replicas: Option<i64>, field: &str, verdict: &mut Verdict) {
    if let Some(replicas) = replicas.filter(|replicas| *replicas < 0) {
        let text = format!("a number of pods is at least 0, and this is {replicas}");
        verdict.refuse(field, Reason::Invalid, text);
    }
}

/// Checks the templates that are there, and that there is one.
fn check_templates(
    of: &WorkloadTemplate,
    old: Option<&WorkloadTemplate>,
    selector: &LabelSelector,
    verdict: &mut Verdict,
) -> Vec<Template> {
    let (templates, before) = (Template::all(of), old.map(Template::all).unwrap_or_default());
    if templates.len() != 1 {
        let text = "workloadTemplate must have one of deploymentTemplate and statefulSetTemplate";
        verdict.refuse("spec.workloadTemplate", Reason::Invalid, text);
    }
    if let ([template], [before]) = (templates.as_slice(), before.as_slice())
        && template.name != before.name
    {
        let text = format!("{} cannot be switched for {}: create another application", before.name, template.name);
        verdict.refuse("spec.workloadTemplate", Reason::Forbidden, text);
    }
    for template in &templates {
        let field = template.field();
        tell(check_value(template.kind.shape(), &template.document), &field, verdict);
        for needed in ["selector", "template"] {
            if template.document["spec"][needed].is_null() {
                let text = format!("a {:?} needs it", template.kind);
                verdict.refuse(format!("{field}.spec.{needed}"), Reason::Required, text);
            }
        }
        if let Some(selector) = own_selector(&template.document) {
            selector::check(&selector, &format!("{field}.spec.selector"), verdict);
        }
        if !template.document["spec"]["updateStrategy"]["rollingUpdate"]["partition"].is_null() {
            let text = "leave it out: it would hold back the same pods in every pool";
            verdict.refuse(format!("{field}.spec.updateStrategy.rollingUpdate.partition"), Reason::Forbidden, text);
        }
        for mismatch in mismatches(template, &template.document, selector) {
            verdict.refuse(format!("{field}.{}", mismatch.field), Reason::Invalid, mismatch.text);
        }
        if let Some(before) = before.iter().find(|before| before.name == template.name) {
            check_change(template, before, verdict);
        }
    }
    templates
}

/// Checks that nothing of a template changes that Kubernetes does not change of the workloads that there are.
fn check_change(template: &Template, old: &Template, verdict: &mut Verdict) {
    let spec = |template: &Template| match &mut meaning(template.kind, &template.document)["spec"] {
        Value::Object(spec) => std::mem::take(spec),
        _ => Map::new(),
    };
    let (new, old) = (spec(template), spec(old));
    let names: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    for name in names.into_iter().filter(|name| !template.kind.is_changeable(name) && new.get(*name) != old.get(*name))
    {
        let text = format!(
            "Kubernetes does not change this of a {:?} that is there: put it back, or create another application",
            template.kind
        );
        verdict.refuse(format!("{}.spec.{name}", template.field()), Reason::Forbidden, text);
    }
}

/// What does not fit in a workload: labels that something selects on and that are not there, and pods that end.
struct Mismatch {
    field: &'static str,
    text: String,
}

/// Whether a workload has the labels that its application selects on, its pods those and the ones that it selects on
/// itself, and whether they run for ever, as pods of its kind do.
fn mismatches(template: &Template, document: &Value, selector: &LabelSelector) -> Vec<Mismatch> {
    let mut found = Vec::new();
    if !selects(selector, document) {
        let text = format!(
            "{}.metadata.labels must contain every label of spec.selector.matchLabels, and meet its matchExpressions",
            template.name
        );
        found.push(Mismatch { field: "metadata.labels", text });
    }
    let pods = &document["spec"]["template"];
    let own =
        own_selector(document).filter(|own| !selects(own, pods)).map(|_| format!("{}.spec.selector", template.name));
    let whole = (!selects(selector, pods)).then(|| "spec.selector".to_owned());
    let missed: Vec<String> = own.into_iter().chain(whole).collect();
    if !missed.is_empty() && pods.is_object() {
        let text = format!("the labels of the pods must match {}", missed.join(" and "));
        found.push(Mismatch { field: "spec.template.metadata.labels", text });
    }
    let policy = pods["spec"]["restartPolicy"].as_str().unwrap_or_default();
    if !["", "Always"].contains(&policy) {
        let text = format!("this must be Always for the pods of a {:?}, and it is {policy:?}", template.kind);
        found.push(Mismatch { field: "spec.template.spec.restartPolicy", text });
    }
    if !pods["spec"]["activeDeadlineSeconds"].is_null() {
        let text = format!("the pods of a {:?} run for ever: leave it out", template.kind);
        found.push(Mismatch { field: "spec.template.spec.activeDeadlineSeconds", text });
    }
    found
}

fn own_selector(document: &Value) -> Option<LabelSelector> {
    let selector = document["spec"].get("selector").filter(|selector| !selector.is_null())?;
    serde_json::from_value(selector.clone()).ok()
}

/// Whether a selector selects what has these labels. One that is wrong is told of elsewhere.
fn selects(selector: &LabelSelector, labelled: &Value) -> bool {
    let label = |key: &str| labelled["metadata"]["labels"].get(key).and_then(Value::as_str);
    Selector::new(selector).map_or(true, |selector| selector.matches(label))
}

fn check_pool(pool: &Pool, old: Option<&Pool>, field: &str, verdict: &mut Verdict) {
    verdict.check(format!("{field}.name"), syntax::label_sized_name(&pool.name));
    check_replicas(pool.replicas.map(i64::from), &format!("{field}.replicas"), verdict);
    let (term, tolerations) = (format!("{field}.nodeSelectorTerm"), format!("{field}.tolerations"));
    if let Some(old) = old {
        for (place, name, is_same) in [
            (&term, "nodeSelectorTerm", old.node_selector_term == pool.node_selector_term),
            (&tolerations, "tolerations", old.tolerations == pool.tolerations),
        ] {
            if !is_same {
                let text = format!("{name} of a pool cannot be changed: remove the pool, then add it anew");
                verdict.refuse(place.as_str(), Reason::Forbidden, text);
            }
        }
    }
    if let Some(value) = &pool.node_selector_term {
        check_term(&value.0, &term, verdict);
    }
    verdict.at_most(&tolerations, pool.tolerations.len(), 64);
    for (index, toleration) in pool.tolerations.iter().enumerate() {
        check_toleration(&toleration.0, &format!("{tolerations}[{index}]"), verdict);
    }
}

/// Checks a pool's patch, and what becomes of the template by it.
fn check_pool_patch(template: &Template, patch: &Value, selector: &LabelSelector, field: &str, verdict: &mut Verdict) {
    let errors_before = verdict.errors.len();
    tell(check_patch(template.kind, patch), field, verdict);
    for inside in [&[][..], &["spec", "template"]] {
        refuse_identity(patch, inside, field, verdict);
    }
    if verdict.errors.len() > errors_before {
        return;
    }
    let mut document = template.document.clone();
    if let Err(error) = patch_value(&mut document, patch, template.kind.shape()) {
        verdict.refuse(field, Reason::Invalid, error.to_string());
        return;
    }
    // What is wrong without the patch is told of there.
    let known = mismatches(template, &template.document, selector);
    for mismatch in mismatches(template, &document, selector) {
        if known.iter().all(|known| known.field != mismatch.field) {
            let text = format!("with this patch, {} would not fit any more: {}", mismatch.field, mismatch.text);
            verdict.refuse(field, Reason::Invalid, text);
        }
    }
}

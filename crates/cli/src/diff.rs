//! `dapple diff`: what two nodes, or two revisions, do not have in common.

use std::process::ExitCode;

use anyhow::{Context, bail};
use dapple_edit::edit::EditError;
use dapple_plan::variant::{ObjectName, Variant};
use dapple_plan::world::kind_name;
use dapple_view::diff::DiffView;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::args::{DiffArgs, SourceArgs, ViewOutput};
use crate::connect;
use crate::output::{is_coloured, say, yaml};
use crate::sources::{Sources, manifests};
use crate::target::{Target, plan_of, variant_of};

pub(crate) async fn run(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let (kind, name) = match &args.target {
        Target::Workload { kind, name } => (kind, name),
        Target::Pod(_) => bail!("pods are compared by their nodes: name the workload and two nodes"),
        Target::Marker(_) => {
            bail!("nodes get nothing of a PodMarker: `dapple explain podmarker/NAME` tells of its pods")
        }
    };
    let object = ObjectName { kind: (*kind).to_owned(), namespace: args.namespace.clone(), name: name.clone() };
    let view = match (args.nodes_to_compare.as_slice(), args.revision.as_slice()) {
        ([left, right], []) => of_nodes(&Sources::read(&args.sources).await?, &object, left, right)?,
        ([], [left, right]) => of_revisions(&args.sources, &object, *left, *right).await?,
        _ => bail!("say what to compare: two nodes, or --revision twice"),
    };
    match args.output {
        ViewOutput::Text => say!("{}", view.text(is_coloured()).trim_end()),
        ViewOutput::Json => say!("{}", serde_json::to_string_pretty(&view)?),
        ViewOutput::Yaml => say!("{}", yaml(&serde_json::to_value(&view)?)),
    }
    Ok(ExitCode::from(u8::from(view.differs())))
}

fn of_nodes(sources: &Sources, object: &ObjectName, left: &str, right: &str) -> anyhow::Result<DiffView> {
    let plans = sources.next.plans();
    let plan = plan_of(&plans, object)?;
    let rendered = |node: &str| -> anyhow::Result<Value> {
        let variant: &Variant = variant_of(plan, node)?;
        let rendering = variant.rendering.as_ref().map_err(EditError::clone)?;
        Ok(rendering.document.clone())
    };
    let names = (format!("node {left}"), format!("node {right}"));
    let documents = (rendered(left)?, rendered(right)?);
    Ok(DiffView::new(&object.to_string(), plan.document, (&names.0, &documents.0), (&names.1, &documents.1)))
}

async fn of_revisions(sources: &SourceArgs, object: &ObjectName, left: i64, right: i64) -> anyhow::Result<DiffView> {
    let all = revisions(sources, object).await?;
    let known = || all.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(", ");
    let find = |number: i64| -> anyhow::Result<&Value> {
        let found = all.iter().find(|(known, _)| *known == number);
        let none = || match all.is_empty() {
            true => format!("{object} has no revisions"),
            false => format!("{object} has no revision {number}; it has {}", known()),
        };
        found.map(|(_, data)| data).with_context(none)
    };
    let names = (format!("revision {left}"), format!("revision {right}"));
    let documents = (find(left)?, find(right)?);
    let document = dapple_edit::document::Document::Deployment;
    Ok(DiffView::new(&object.to_string(), document, (&names.0, documents.0), (&names.1, documents.1)))
}

/// The revisions of a workload by number, from the files and from the cluster, each as `{spec: {template, ...}}`.
async fn revisions(sources: &SourceArgs, object: &ObjectName) -> anyhow::Result<Vec<(i64, Value)>> {
    let mut found: Vec<ControllerRevision> = Vec::new();
    for manifest in manifests(sources)?.iter().filter(|manifest| manifest.value()["kind"] == "ControllerRevision") {
        found.push(manifest.parse()?);
    }
    if sources.nodes.is_none() {
        let client = Client::try_from(connect::config(&sources.connect).await?)?;
        let api: Api<ControllerRevision> = Api::namespaced(client, &object.namespace);
        let listed = api.list(&ListParams::default()).await.context("cannot list the revisions")?;
        found.extend(listed.items);
    }
    let is_owned = |revision: &ControllerRevision| {
        let mut owners = revision.metadata.owner_references.iter().flatten();
        let is_there = revision.metadata.namespace.as_deref().unwrap_or("default") == object.namespace;
        is_there
            && owners
                .any(|owner| kind_name(&owner.api_version, &owner.kind) == object.kind && owner.name == object.name)
    };
    let mut numbered: Vec<(i64, Value)> = found
        .into_iter()
        .filter(is_owned)
        .map(|revision| (revision.revision, cleaned(revision.data.map(|data| data.0).unwrap_or_default())))
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    Ok(numbered)
}

/// Controllers store a template as a patch that replaces the whole: the directive is no part of it. Revisions of an application in
/// pools hold the replacements that were in force, too.
fn cleaned(mut data: Value) -> Value {
    for template in ["/spec/template", "/spec/workloadTemplate"] {
        if let Some(template) = data.pointer_mut(template).and_then(Value::as_object_mut) {
            template.remove("$patch");
        }
    }
    match data.get("replacements").filter(|replacements| !replacements.is_null()) {
        Some(replacements) => json!({"spec": data["spec"], "replacements": replacements}),
        None => json!({"spec": data["spec"]}),
    }
}

//! `dapple plan`: what each kind of node would get, before anything is applied.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use dapple_api::daemonset::DaemonSet;
use dapple_plan::daemonset::plan;
use dapple_plan::group::Labels;
use dapple_testbed::Fleet;
use dapple_view::plan::PlanView;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::args::{Output, PlanArgs};
use crate::connect;
use crate::output::say;

/// The names and labels of nodes.
type Nodes = BTreeMap<String, BTreeMap<String, String>>;

pub(crate) async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let mut documents = Vec::new();
    for path in &args.filename {
        for file in files(path)? {
            documents.extend(read(&file)?.into_iter().map(|document| (file.clone(), document)));
        }
    }
    let is_planned =
        |document: &Value| document["apiVersion"] == "apps.kruise.io/v1beta1" && document["kind"] == "DaemonSet";
    let (planned, others): (Vec<_>, Vec<_>) = documents.into_iter().partition(|(_, document)| is_planned(document));
    if planned.is_empty() {
        bail!("no DaemonSet of apps.kruise.io/v1beta1 in {}", shown(&args.filename));
    }
    let nodes = match &args.nodes {
        Some(path) => nodes_from(path)?,
        None => nodes_of(&Client::try_from(connect::config(&args.connect).await?)?).await?,
    };
    let views =
        planned.iter().map(|(file, document)| view(file, document, &nodes)).collect::<anyhow::Result<Vec<_>>>()?;
    match args.output {
        Output::Json => say!("{}", serde_json::to_string_pretty(&views)?),
        Output::Text => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            for view in &views {
                say!("{}", view.text(colour));
            }
            if !others.is_empty() {
                say!("{} other objects were not planned: only DaemonSets are, so far", others.len());
            }
        }
    }
    // As `kubectl diff`: 0 for no difference, 1 for some, 2 for an error.
    let code = if views.iter().any(PlanView::fails) { 2 } else { u8::from(views.iter().any(PlanView::differs)) };
    Ok(ExitCode::from(code))
}

fn view(file: &Path, document: &Value, nodes: &Nodes) -> anyhow::Result<PlanView> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let set: DaemonSet = serde_path_to_error::deserialize(document)
        .map_err(|error| anyhow!("{}: DaemonSet {name}: {}: {}", file.display(), error.path(), error.inner()))?;
    let object = format!("DaemonSet {}/{name}", set.metadata.namespace.as_deref().unwrap_or("default"));
    let each = nodes.iter().map(|(name, labels)| (name.as_str(), labels as &dyn Labels));
    let planned = plan(&object, &set.spec, each);
    Ok(PlanView::new(&object, &set.spec.template.0, &planned))
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A file, or every YAML and JSON file below a folder, by name.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut entries = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    for entry in entries {
        let is_manifest =
            entry.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
        if entry.is_dir() || is_manifest {
            found.extend(files(&entry)?);
        }
    }
    Ok(found)
}

/// The documents of a file.
fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let documents =
        serde_saphyr::from_multiple::<Value>(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Nodes from a file: Node objects, a list of them, or a fleet description.
fn nodes_from(path: &Path) -> anyhow::Result<Nodes> {
    let documents = read(path)?;
    let is_kubernetes = documents.iter().any(|document| document["kind"].is_string());
    let nodes: Vec<Value> = if is_kubernetes {
        let items = |document: Value| match document.get("items").and_then(Value::as_array) {
            Some(items) => items.clone(),
            None => vec![document],
        };
        documents
            .into_iter()
            .flat_map(items)
            .filter(|object| object["kind"].is_null() || object["kind"] == "Node")
            .collect()
    } else {
        Fleet::from_yaml(&std::fs::read_to_string(path)?, &path.display().to_string())?.nodes()
    };
    nodes
        .into_iter()
        .map(|node| labelled(&node).with_context(|| format!("{}: not a Node: {node}", path.display())))
        .collect()
}

fn labelled(node: &Value) -> Option<(String, BTreeMap<String, String>)> {
    let name = node["metadata"]["name"].as_str()?.to_owned();
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    Some((name, labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()))
}

async fn nodes_of(client: &Client) -> anyhow::Result<Nodes> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.context("cannot list nodes")?;
    Ok(nodes.into_iter().map(|node| (node.name_any(), node.labels().clone())).collect())
}

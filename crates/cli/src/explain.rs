//! `dapple explain`: why a node, or a pod, has what it has.

use std::process::ExitCode;

use anyhow::{Context, bail};
use dapple_plan::variant::ObjectName;
use dapple_view::explain::ExplainView;
use serde_json::Value;

use crate::args::{ExplainArgs, ViewOutput};
use crate::live;
use crate::output::{is_coloured, say, yaml};
use crate::sources::Sources;
use crate::target::{Target, plan_of, variant_of, variant_of_pod};

pub(crate) async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    // What the arguments lack is told before a cluster is read.
    let view = match (&args.target, &args.node) {
        (Target::Workload { .. }, None) => bail!("say for which node: --node NAME"),
        (Target::Pod(_), _) if args.sources.nodes.is_some() => bail!("a pod runs in a cluster: leave out --nodes"),
        (Target::Workload { kind, name }, Some(node)) => {
            let object = ObjectName { kind: (*kind).to_owned(), namespace: args.namespace.clone(), name: name.clone() };
            of_node(&Sources::read(&args.sources).await?, &object, node)?
        }
        (Target::Pod(name), _) => of_pod(&Sources::read(&args.sources).await?, &args.namespace, name).await?,
    };
    match (&args.field, args.output) {
        (None, ViewOutput::Text) => say!("{}", view.text(is_coloured()).trim_end()),
        (Some(field), ViewOutput::Text) => say!("{}", view.field_text(field, is_coloured())?.trim_end()),
        (None, output) => print(&serde_json::to_value(&view)?, output)?,
        (Some(field), output) => print(&view.field_value(field)?, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(value: &Value, output: ViewOutput) -> anyhow::Result<()> {
    match output {
        ViewOutput::Yaml => say!("{}", yaml(value)),
        ViewOutput::Json | ViewOutput::Text => say!("{}", serde_json::to_string_pretty(value)?),
    }
    Ok(())
}

fn of_node(sources: &Sources, object: &ObjectName, node: &str) -> anyhow::Result<ExplainView> {
    let plans = sources.next.plans();
    let plan = plan_of(&plans, object)?;
    let variant = variant_of(plan, node)?;
    Ok(ExplainView::new(plan, variant, &format!("node {node}"))?)
}

async fn of_pod(sources: &Sources, namespace: &str, name: &str) -> anyhow::Result<ExplainView> {
    let live = sources.live.as_ref().context("a pod runs in a cluster")?;
    let (pod, owner) = live::pod(&live.client, namespace, name).await?;
    let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) else {
        bail!("the pod {namespace}/{name} has no node yet");
    };
    let plans = sources.next.plans();
    let plan = plan_of(&plans, &owner).with_context(|| format!("the pod {namespace}/{name} belongs to {owner}"))?;
    let group = pod.pointer("/metadata/labels").and_then(|labels| labels[live::GROUP_LABEL].as_str());
    let variant = variant_of_pod(plan, node, group)?;
    let view = ExplainView::new(plan, variant, &format!("node {node}, pod {namespace}/{name}"))?;
    Ok(view.beside(&pod))
}

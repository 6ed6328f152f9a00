//! `dapple explain`: why a node, or a pod, has what it has, and why pods are marked.

use std::process::ExitCode;

use anyhow::{Context, bail};
use dapple_api::group::REQUIRED_PROPAGATION_LABEL;
use dapple_api::kinds;
use dapple_api::pool::POOL_NAME_LABEL;
use dapple_plan::group::volumes::Claims;
use dapple_plan::variant::ObjectName;
use dapple_plan::world::{Inquiry, Stand};
use dapple_view::explain::ExplainView;
use dapple_view::marker::AccountView;
use dapple_view::story::StoryView;
use kube::Client;
use serde_json::Value;

use crate::args::{ExplainArgs, ViewOutput};
use crate::live::{self, Owned};
use crate::output::{is_coloured, say, yaml};
use crate::sources::{Sources, with_notice};
use crate::target::{Target, plan_of, variant_of, variant_of_pod};
use crate::{connect, markers};

pub(crate) async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    // What the arguments lack is told before a cluster is read.
    let target = Target::of(&args.target)?;
    let view = match (&target, &args.node) {
        (Target::Marker(name), _) => return of_marker(&args, name).await,
        (Target::Workload { kind, .. }, None) if !is_of_pools(kind) || args.sources.nodes.is_some() => {
            bail!("say for which node: --node NAME")
        }
        (Target::Pod(_), _) if args.sources.nodes.is_some() => bail!("a pod runs in a cluster: leave out --nodes"),
        (Target::Workload { kind, name }, node) => {
            let object = ObjectName { kind: (*kind).to_owned(), namespace: args.namespace.clone(), name: name.clone() };
            let sources = Sources::read(&args.sources).await?;
            match (of_workload(&sources, &object).await?, node) {
                (Some(view), _) => view,
                (None, Some(node)) => of_node(&sources, &object, node)?,
                (None, None) => bail!("{object} is not the workload of a pool: say for which node: --node NAME"),
            }
        }
        (Target::Pod(name), _) => {
            let (story, view) = of_pod(&Sources::read(&args.sources).await?, &args.namespace, name).await?;
            let Some(view) = view.map(|view| view.of_pod(story.clone())) else {
                return tell(&args, &story);
            };
            view
        }
    };
    match (&args.field, args.output) {
        (None, ViewOutput::Text) => say!("{}", view.text(is_coloured()).trim_end()),
        (Some(field), ViewOutput::Text) => say!("{}", view.field_text(field, is_coloured())?.trim_end()),
        (None, output) => print(&serde_json::to_value(&view)?, output)?,
        (Some(field), output) => print(&view.field_value(field)?, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Says why each pod is marked by a marker, is not, or waits.
async fn of_marker(args: &ExplainArgs, name: &str) -> anyhow::Result<ExitCode> {
    if args.node.is_some() || args.field.is_some() {
        bail!("a PodMarker is explained with all its pods: leave out --node and --field");
    }
    if !args.sources.filename.is_empty() {
        bail!("a PodMarker is explained as the cluster has it: leave out -f; `dapple plan -f` tells of those in files");
    }
    let client = Client::try_from(connect::config(&args.sources.connect).await?)?;
    let namespace = args.namespace.as_str();
    let reading = async {
        let mut seen = markers::seen(&client, namespace).await?;
        markers::add_results(&client, &mut seen).await?;
        anyhow::Ok(seen)
    };
    let seen = with_notice("reading the cluster ...", reading).await?;
    let account = seen.account(name).with_context(|| {
        let there = format!("`dapple get podmarker -n {namespace}` shows those that there are");
        format!("there is no PodMarker {namespace}/{name}: {there}")
    })?;
    let view = AccountView::new(namespace, name, account);
    match args.output {
        ViewOutput::Text => say!("{}", view.text(is_coloured()).trim_end()),
        output => print(&serde_json::to_value(&view)?, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how a pod stands that has nothing else to explain.
fn tell(args: &ExplainArgs, story: &StoryView) -> anyhow::Result<ExitCode> {
    if args.field.is_some() {
        bail!("the pod {} has no fields to explain: it {}", story.pod, story.line());
    }
    match args.output {
        ViewOutput::Text => say!("{}", story.text(is_coloured()).trim_end()),
        output => print(&serde_json::json!({"place": story}), output)?,
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

/// Whether pools have such workloads.
fn is_of_pools(kind: &str) -> bool {
    [kinds::NATIVE_DEPLOYMENT.at.kind, kinds::NATIVE_STATEFUL_SET.at.kind].contains(&kind)
}

/// What is explained of a workload that a pool of an application has; nothing of others.
async fn of_workload(sources: &Sources, object: &ObjectName) -> anyhow::Result<Option<ExplainView>> {
    let native = kinds::NATIVE.iter().find(|native| is_of_pools(native.at.kind) && native.at.kind == object.kind);
    let (Some(native), Some(live)) = (native, &sources.live) else { return Ok(None) };
    let Some(workload) = live::object(&live.client, object, native.at).await? else { return Ok(None) };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(owner) = live::controller(&workload).filter(|owner| is_application(owner)) else { return Ok(None) };
    let owner =
        ObjectName { kind: text(&owner["kind"]), namespace: object.namespace.clone(), name: text(&owner["name"]) };
    let pool = text(&workload["metadata"]["labels"][POOL_NAME_LABEL]);
    let plans = sources.next.plans();
    let plan = plan_of(&plans, &owner).with_context(|| format!("{object} belongs to {owner}"))?;
    let place = format!("pool {pool}");
    let variant = plan.variants.iter().find(|variant| variant.places.contains(&place));
    let variant =
        variant.with_context(|| format!("{owner} is not in the pool {pool:?} any more, which {object} is for"))?;
    Ok(Some(ExplainView::new(plan, variant, "")?.of_workload(&object.to_string(), &pool, &workload)))
}

/// Whether an owner is an application in pools.
fn is_application(owner: &Value) -> bool {
    let version = owner["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let kinds = [kinds::YURT_APP_SET.at, kinds::YURT_APP_DAEMON.at];
    kinds.iter().any(|at| at.group == group && owner["kind"] == at.kind)
}

/// What is explained of a pod: how it stands with its policies, and why it has what it has, if it has a node.
async fn of_pod(sources: &Sources, namespace: &str, name: &str) -> anyhow::Result<(StoryView, Option<ExplainView>)> {
    let live = sources.live.as_ref().context("a pod runs in a cluster")?;
    let Owned { pod, owners, workload } = live::pod(&live.client, namespace, name).await?;
    let pods = match (owners.first(), pod["metadata"]["labels"][REQUIRED_PROPAGATION_LABEL].as_str()) {
        (Some(owner), _) => live::pods_controlled_by(&live.client, namespace, owner).await?,
        (None, Some(policy)) => live::bare_pods(&live.client, namespace, policy).await?,
        (None, None) => vec![pod.clone()],
    };
    let is_led = live::is_led(&live.client).await;
    let story_by =
        |claims: &Claims| sources.next.story(&Inquiry { pod: &pod, owners: &owners, pods: &pods, is_led, claims });
    let mut story = story_by(&Claims::new());
    if !story.unread.is_empty() {
        story = story_by(&live::claims(&live.client, namespace, &story.unread).await);
    }
    let has_policy = story.stand != Stand::Anywhere;
    let story = StoryView::new(&format!("{namespace}/{name}"), story);
    let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) else { return Ok((story, None)) };
    let plans = sources.next.plans();
    let plan = match plan_of(&plans, &workload) {
        // That nothing else concerns it is no error where its place was asked for.
        Err(_) if has_policy => return Ok((story, None)),
        found => found.with_context(|| format!("the pod {namespace}/{name} belongs to {workload}"))?,
    };
    let group = pod.pointer("/metadata/labels").and_then(|labels| labels[live::GROUP_LABEL].as_str());
    let variant = match variant_of_pod(plan, node, group) {
        // One that is not where it belongs gets nothing there.
        Err(_) if has_policy => return Ok((story, None)),
        found => found?,
    };
    let view = ExplainView::new(plan, variant, &format!("node {node}, pod {namespace}/{name}"))?;
    Ok((story, Some(view.beside(&pod))))
}

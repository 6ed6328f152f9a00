//! `dapple plan`: what each kind of node would get, and which pods would be marked, before anything is applied.

mod markers;
mod pools;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use dapple_api::daemonset::DaemonSet;
use dapple_control::daemonset::forecast::{Cluster, Forecast, Overridden};
use dapple_control::gates::Gates;
use dapple_plan::fate::{Fates, fates, is_changed, is_same_base};
use dapple_plan::group::volumes::Claims;
use dapple_plan::variant::Plan;
use dapple_plan::world::{Divided, World};
use dapple_view::marker::MarkerPlanView;
use dapple_view::plan::PlanView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use crate::args::{PlanArgs, PlanOutput};
use crate::checks::Checks;
use crate::live;
use crate::output::{is_coloured, is_coloured_for, note, say};
use crate::sources::{Live, Sources, with_notice};

/// Where `kubectl apply` keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(crate) async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let sources = Sources::read(&args.sources).await?;
    let plans = sources.next.plans();
    let now = sources.live.as_ref().map(|live| live.world.plans()).unwrap_or_default();
    let mut views = Vec::new();
    for plan in &plans {
        let before = now.iter().find(|known| known.object == plan.object);
        let is_changed = before.is_none_or(|before| is_changed(before, plan));
        if sources.live.is_some() && !sources.has(&plan.object) && !is_changed {
            continue;
        }
        let view = PlanView::new(plan, &|rule| sources.locate(rule));
        views.push(match &sources.live {
            Some(live) => beside(live, &sources, (before, plan, is_changed), view).await?,
            None => view,
        });
    }
    let markers = match &sources.live {
        Some(live) => markers::views(live, &sources).await?,
        None => Vec::new(),
    };
    let checks = Checks::of(&sources, args.server).await?;
    let is_silent = checks.errors.is_empty() && checks.warnings.is_empty();
    if views.is_empty() && markers.is_empty() && sources.concerned == 0 && is_silent {
        bail!(
            "nothing to plan in {}: give DaemonSets of apps.kruise.io, YurtAppSets, YurtAppDaemons, workloads \
             that ask for a policy by label, policies that such workloads of the cluster ask for, or PodMarkers, \
             which are planned with a cluster only",
            shown(&args)
        );
    }
    print(&views, &markers, args.output)?;
    for notice in sources.notices() {
        note(&notice.text(is_coloured_for(&std::io::stderr())));
    }
    checks.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    checks.errors.iter().for_each(|error| note(&format!("error: {error}")));
    // As `kubectl diff`: 0 for no difference, 1 for some, 2 for an error.
    let all = each(&views, &markers);
    let fails = !checks.errors.is_empty() || all.iter().any(Each::fails);
    let code = if fails { 2 } else { u8::from(all.iter().any(Each::differs)) };
    Ok(ExitCode::from(code))
}

/// What is planned.
#[derive(Serialize)]
#[serde(untagged)]
enum Each<'a> {
    Workload(&'a PlanView),
    Marker(&'a MarkerPlanView),
}

impl Each<'_> {
    fn differs(&self) -> bool {
        match self {
            Self::Workload(view) => view.differs(),
            Self::Marker(view) => view.differs(),
        }
    }

    fn fails(&self) -> bool {
        match self {
            Self::Workload(view) => view.fails(),
            Self::Marker(view) => view.fails(),
        }
    }

    fn text(&self, colour: bool, wide: bool) -> String {
        match self {
            Self::Workload(view) => view.text(colour, wide),
            Self::Marker(view) => view.text(colour, wide),
        }
    }

    fn name(&self) -> String {
        let (kind, name) = match self {
            Self::Workload(view) => (view.kind.as_str(), &view.name),
            Self::Marker(view) => (view.kind, &view.name),
        };
        format!("{}/{name}", kind.to_lowercase())
    }
}

/// Workloads, and then markers.
fn each<'a>(views: &'a [PlanView], markers: &'a [MarkerPlanView]) -> Vec<Each<'a>> {
    views.iter().map(Each::Workload).chain(markers.iter().map(Each::Marker)).collect()
}

fn print(views: &[PlanView], markers: &[MarkerPlanView], output: PlanOutput) -> anyhow::Result<()> {
    let all = each(views, markers);
    match output {
        PlanOutput::Json => say!("{}", serde_json::to_string_pretty(&all)?),
        PlanOutput::Yaml => {
            for view in &all {
                say!("---\n{}", dapple_api::yaml::document(&serde_json::to_value(view)?).trim_end());
            }
        }
        PlanOutput::Name => {
            for view in all.iter().filter(|view| view.differs() || view.fails()) {
                say!("{}", view.name());
            }
        }
        PlanOutput::Text | PlanOutput::Wide if all.is_empty() => say!("No workload changes."),
        PlanOutput::Text | PlanOutput::Wide => {
            let texts: Vec<String> =
                all.iter().map(|view| view.text(is_coloured(), output == PlanOutput::Wide)).collect();
            say!("{}", texts.join("\n").trim_end());
        }
    }
    Ok(())
}

/// The view of a plan beside the cluster: what becomes of what runs.
async fn beside(
    live: &Live,
    sources: &Sources,
    (before, plan, is_changed): (Option<&Plan>, &Plan, bool),
    view: PlanView,
) -> anyhow::Result<PlanView> {
    if let Some(forecast) = forecast(live, &sources.next, plan).await? {
        let view = view.beside(&forecast.ahead.fates, is_changed);
        return Ok(view.foretold(&forecast.ahead, &forecast.hashes).warned(&forecast.problems));
    }
    if let Some((ahead, fates)) = pools::forecast(live, sources, plan).await? {
        return Ok(view.beside(&fates, is_changed).in_pools(&ahead));
    }
    let (fates, divided) = fates_of(live, &sources.next, before, plan).await?;
    let view = view.beside(&fates, is_changed);
    Ok(divided.iter().fold(view, PlanView::divided))
}

/// What the controller would do about a DaemonSet that is as the files say; nothing for other workloads.
async fn forecast(live: &Live, next: &World, plan: &Plan) -> anyhow::Result<Option<Forecast>> {
    let Some((set, after, is_suspended)) = next.own_daemonset(&plan.object) else { return Ok(None) };
    let mut cluster = Cluster::with_nodes_of(&live.nodes);
    let namespace = &plan.object.namespace;
    let (now, before) = live.world.own_daemonset(&plan.object).map(|(set, by, _)| (set, by)).unzip();
    // Pods that are there have what the selector of today selects.
    let selector = &now.unwrap_or(set).spec.selector;
    let reading = live::rollout_of(&live.client, namespace, selector, &mut cluster);
    with_notice(&format!("reading the pods of {} ...", plan.object), reading).await?;
    let applied = applied(now, set)?;
    let policy = Overridden { before: before.unwrap_or_default(), after, is_suspended };
    let forecast = cluster.forecast(&applied, policy, &Gates::default(), Timestamp::now());
    forecast.map(Some).map_err(|error| anyhow!("{}: {error}", plan.object))
}

/// A DaemonSet as it is once the files are applied: what a file does not say of it stays.
fn applied(now: Option<&DaemonSet>, next: &DaemonSet) -> anyhow::Result<Value> {
    let Some(now) = now else { return Ok(serde_json::to_value(next)?) };
    let mut set = now.clone();
    set.spec = next.spec.clone();
    set.metadata.annotations = Some(annotations_applied(&now.metadata, &next.metadata));
    Ok(serde_json::to_value(set)?)
}

/// The annotations of an object once the files are applied.
fn annotations_applied(now: &ObjectMeta, next: &ObjectMeta) -> BTreeMap<String, String> {
    let given = next.annotations.clone().unwrap_or_default();
    let mut annotations = now.annotations.clone().unwrap_or_default();
    // As kubectl does it: what was applied before and is not in the file any more goes.
    let last: Value =
        annotations.get(LAST_APPLIED).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    annotations.retain(|key, _| last["metadata"]["annotations"][key].is_null() || given.contains_key(key));
    annotations.extend(given);
    annotations
}

/// What becomes of a workload's pods, and how a policy divides them now.
async fn fates_of(
    live: &Live,
    next: &World,
    before: Option<&Plan>,
    plan: &Plan,
) -> anyhow::Result<(Fates, Option<Divided>)> {
    let pods = match live.world.selector_of(&plan.object) {
        Some(selector) => live::pods(&live.client, &plan.object, &selector).await?,
        None => Vec::new(),
    };
    let before = before.unwrap_or(plan);
    let mut fates = fates(before, plan, &live::on_nodes(&pods));
    let mut divided = next.divided(&plan.object, &pods, &Claims::new());
    if let Some(unread) = divided.as_ref().map(|divided| &divided.unread).filter(|unread| !unread.is_empty()) {
        let claims = live::claims(&live.client, &plan.object.namespace, unread).await;
        divided = next.divided(&plan.object, &pods, &claims);
    }
    // A rollout makes all pods anew, and those go where they belong.
    if let Some(divided) = divided.as_ref().filter(|_| is_same_base(before, plan)) {
        fates.settle(&divided.moves);
    }
    Ok((fates, divided))
}

fn shown(args: &PlanArgs) -> String {
    let paths = args.sources.filename.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

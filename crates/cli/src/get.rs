//! `dapple get`: DaemonSets, and how far their rollouts are.

mod screen;
mod watch;

use std::process::ExitCode;

use dapple_view::daemonset::{DaemonSetView, table};
use jiff::Timestamp;

use crate::args::{GetArgs, GetOutput};
use crate::output::{is_coloured, note, say, yaml};
use crate::sets::{RESOURCE, Sets};
use crate::sources::with_notice;
use crate::target::daemonset;

pub(crate) async fn run(args: GetArgs) -> anyhow::Result<ExitCode> {
    let name = daemonset(&args.target)?;
    if name.is_some() && args.all_namespaces {
        anyhow::bail!("a name is one in one namespace: leave out --all-namespaces, or the name");
    }
    let mut sets = Sets::connect(&args.connect, args.namespace.as_deref()).await?;
    if args.all_namespaces {
        sets.namespace = None;
    }
    if args.watch {
        return watch::run(&sets, name.as_deref(), args.output).await;
    }
    let views = with_notice("reading the cluster ...", views(&sets, name.as_deref())).await?;
    if views.is_empty() && matches!(args.output, GetOutput::Text | GetOutput::Wide) {
        note(&none_of(&sets));
        return Ok(ExitCode::SUCCESS);
    }
    match (&views[..], name) {
        // Who names one gets one, not a list of one.
        ([view], Some(_)) if args.output == GetOutput::Json => say!("{}", serde_json::to_string_pretty(view)?),
        ([view], Some(_)) if args.output == GetOutput::Yaml => say!("{}", yaml(&serde_json::to_value(view)?)),
        (views, _) => say!("{}", printed(views, args.output, is_coloured())?.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

async fn views(sets: &Sets, name: Option<&str>) -> anyhow::Result<Vec<DaemonSetView>> {
    let found = match name {
        Some(name) => vec![sets.get(name).await?.set],
        None => sets.list().await?,
    };
    let mut views = Vec::new();
    for set in found {
        let view = DaemonSetView::new(&set, &[], Timestamp::now());
        // Pods are shown that are not available: where all are, there is nothing to read.
        let is_whole = view.done && view.counts.available == view.counts.desired;
        views.push(if is_whole { view } else { DaemonSetView::new(&set, &sets.pods(&set).await?, Timestamp::now()) });
    }
    Ok(views)
}

/// What there is to say where there are none.
fn none_of(sets: &Sets) -> String {
    match &sets.namespace {
        Some(namespace) => {
            format!("No daemonsets.apps.kruise.io in the namespace {namespace}; -A looks in all of them.")
        }
        None => "No daemonsets.apps.kruise.io in this cluster.".to_owned(),
    }
}

/// Views in the form that was asked for.
fn printed(views: &[DaemonSetView], output: GetOutput, colour: bool) -> anyhow::Result<String> {
    Ok(match output {
        GetOutput::Text | GetOutput::Wide => table(views, colour, output == GetOutput::Wide),
        GetOutput::Json => serde_json::to_string_pretty(views)?,
        GetOutput::Yaml => {
            let mut text = String::new();
            for view in views {
                text += &format!("---\n{}\n", yaml(&serde_json::to_value(view)?));
            }
            text
        }
        GetOutput::Name => views.iter().map(|view| format!("{RESOURCE}/{}\n", view.name)).collect(),
    })
}

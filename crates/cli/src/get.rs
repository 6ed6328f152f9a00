//! `dapple get`: objects of dapple's kinds, and how far their rollouts are.

mod kind;
mod screen;
mod watch;

use std::process::ExitCode;

use anyhow::bail;
use dapple_api::kinds::Name;
use jiff::Timestamp;

use crate::args::{GetArgs, GetOutput};
use crate::get::kind::{DaemonSets, NodePools, PodMarkers, Replacements, Shown, YurtAppDaemons, YurtAppSets};
use crate::output::{is_coloured, note, say, yaml};
use crate::reach::Reach;
use crate::sources::with_notice;
use crate::target::shown;

pub(crate) async fn run(args: GetArgs) -> anyhow::Result<ExitCode> {
    let (own, name) = shown(&args.target)?;
    if name.is_some() && args.all_namespaces && own.is_namespaced {
        bail!("a name is one in one namespace: leave out --all-namespaces, or the name");
    }
    let mut reach = Reach::connect(&args.connect, args.namespace.as_deref(), own).await?;
    if args.all_namespaces {
        reach.namespace = None;
    }
    let name = name.as_deref();
    match own.name {
        Name::PodMarker => show::<PodMarkers>(&reach, name, &args).await,
        Name::NodePool => show::<NodePools>(&reach, name, &args).await,
        Name::YurtAppSet => show::<YurtAppSets>(&reach, name, &args).await,
        Name::YurtAppDaemon => show::<YurtAppDaemons>(&reach, name, &args).await,
        Name::Replacement => show::<Replacements>(&reach, name, &args).await,
        // No other is let through.
        _ => show::<DaemonSets>(&reach, name, &args).await,
    }
}

async fn show<K: Shown>(reach: &Reach, name: Option<&str>, args: &GetArgs) -> anyhow::Result<ExitCode> {
    if args.watch {
        return watch::run::<K>(reach, name, args.output).await;
    }
    let views = with_notice("reading the cluster ...", views::<K>(reach, name)).await?;
    if views.is_empty() && matches!(args.output, GetOutput::Text | GetOutput::Wide) {
        note(&none_of(reach));
        return Ok(ExitCode::SUCCESS);
    }
    match (&views[..], name) {
        // Who names one gets one, not a list of one.
        ([view], Some(_)) if args.output == GetOutput::Json => say!("{}", serde_json::to_string_pretty(view)?),
        ([view], Some(_)) if args.output == GetOutput::Yaml => say!("{}", yaml(&serde_json::to_value(view)?)),
        (views, _) => {
            let text = printed::<K>(views, &reach.resource(), (args.output, is_coloured()))?;
            say!("{}", text.trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn views<K: Shown>(reach: &Reach, name: Option<&str>) -> anyhow::Result<Vec<K::View>> {
    let objects = match name {
        Some(name) => vec![reach.get(name).await?],
        None => reach.list().await?,
    };
    let mut views = Vec::new();
    for object in objects {
        let read = match name {
            Some(name) => Some(reach.read(name, &object, K::read)?),
            None => reach.read_or_note(&object, K::read),
        };
        let Some(read) = read else { continue };
        let view = K::view(&read, &[], Timestamp::now());
        // Pods are shown that are not available: where all are, there is nothing to read.
        views.push(match K::pods_beside(&read, &view) {
            Some(selector) => {
                let pods = reach.pods(&object.metadata, selector).await?;
                K::view(&read, &pods, Timestamp::now())
            }
            None => view,
        });
    }
    Ok(views)
}

/// What there is to say where there are none.
fn none_of(reach: &Reach) -> String {
    let kind = reach.own.crd();
    match &reach.namespace {
        Some(namespace) => format!("No {kind} in the namespace {namespace}; -A looks in all of them."),
        None => format!("No {kind} in this cluster."),
    }
}

/// Views in the form that was asked for, and coloured or not. `resource` is how the kind is written before a name.
fn printed<K: Shown>(views: &[K::View], resource: &str, (output, colour): (GetOutput, bool)) -> anyhow::Result<String> {
    Ok(match output {
        GetOutput::Text | GetOutput::Wide => K::table(views, colour, output == GetOutput::Wide),
        GetOutput::Json => serde_json::to_string_pretty(views)?,
        GetOutput::Yaml => {
            let mut text = String::new();
            for view in views {
                text += &format!("---\n{}\n", yaml(&serde_json::to_value(view)?));
            }
            text
        }
        GetOutput::Name => views.iter().map(|view| format!("{resource}/{}\n", K::key(view).1)).collect(),
    })
}

//! `dapple rollout history`: the revisions of a DaemonSet, or of an application in pools.

use std::process::ExitCode;

use anyhow::anyhow;
use dapple_api::kinds::Name;
use dapple_plan::{daemonset, pool};
use dapple_view::daemonset::history as of_daemonset;
use dapple_view::pool::history as of_pool;
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{HistoryArgs, ViewOutput};
use crate::output::{is_coloured, note, say, yaml};
use crate::reach::Reach;
use crate::sources::with_notice;
use crate::{applications, sets};

pub(crate) async fn run(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let (reach, name) = Reach::connect_for(&args.object).await?;
    match reach.own.name {
        Name::DaemonSet => of_set(&reach, &name, &args).await,
        _ => of_application(&reach, &name, &args).await,
    }
}

async fn of_set(reach: &Reach, name: &str, args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    use daemonset::revision::Revision;
    use daemonset::rollback::{UndoError, find, read};
    let work = async {
        let set = sets::get(reach, name).await?;
        let revisions = sets::revisions(reach, &set).await?;
        // Who asks for one revision asks for what it says, not for who has it.
        let pods = if args.revision == 0 { reach.pods(&set.metadata, &set.spec.selector).await? } else { Vec::new() };
        anyhow::Ok((set, revisions, pods))
    };
    let (set, revisions, pods) = with_notice("reading the revisions ...", work).await?;
    if args.revision != 0 {
        let mut sorted: Vec<&Revision> = revisions.iter().map(|facts| &facts.revision).collect();
        sorted.sort_by_key(|revision| (revision.number, &revision.name));
        let failed = |error: UndoError| anyhow!("{} {error}", reach.shown(name));
        let restored = read(find(&sorted, args.revision).map_err(failed)?).map_err(|error| failed(error.into()))?;
        let view = of_daemonset::RevisionDetailView::new(&set, restored);
        return print(&view, args.output, || view.text(is_coloured()));
    }
    let view = of_daemonset::HistoryView::new(&set, &revisions, &pods, Timestamp::now());
    note_none(reach, name, view.revisions.is_empty());
    print(&view, args.output, || view.text(is_coloured()))
}

async fn of_application(reach: &Reach, name: &str, args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    use pool::object::in_force;
    use pool::revision::Revision;
    use pool::rollback::{UndoError, find, read};
    let work = async {
        let object = reach.get(name).await?;
        let found = applications::Found::beside(reach, name, &object).await?;
        let revisions = applications::revisions(reach, &found.application).await?;
        anyhow::Ok((found, revisions))
    };
    let (found, revisions) = with_notice("reading the revisions ...", work).await?;
    if args.revision != 0 {
        let mut sorted: Vec<&Revision> = revisions.iter().map(|facts| &facts.revision).collect();
        sorted.sort_by_key(|revision| (revision.number, &revision.name));
        let failed = |error: UndoError| anyhow!("{} {error}", reach.shown(name));
        let now = found.application.version(found.replacement().map(in_force));
        let version = find(&sorted, args.revision).and_then(|revision| read(revision, &now)).map_err(failed)?;
        let view = of_pool::RevisionDetailView::new(&found.application, args.revision, &version);
        return print(&view, args.output, || view.text(is_coloured()));
    }
    let view = of_pool::HistoryView::new(&found.application, &revisions, Timestamp::now());
    note_none(reach, name, view.revisions.is_empty());
    print(&view, args.output, || view.text(is_coloured()))
}

fn note_none(reach: &Reach, name: &str, are_none: bool) {
    if are_none {
        note(&format!("{} has no revisions yet: is a dapple manager running?", reach.shown(name)));
    }
}

fn print(view: &impl Serialize, output: ViewOutput, text: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    match output {
        ViewOutput::Text => say!("{}", text().trim_end()),
        ViewOutput::Json => say!("{}", serde_json::to_string_pretty(view)?),
        ViewOutput::Yaml => say!("{}", yaml(&serde_json::to_value(view)?)),
    }
    Ok(ExitCode::SUCCESS)
}

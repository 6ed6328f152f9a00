//! `dapple rollout history`: the revisions of a DaemonSet.

use std::process::ExitCode;

use anyhow::anyhow;
use dapple_plan::daemonset::revision::Revision;
use dapple_plan::daemonset::rollback::{UndoError, find, read};
use dapple_view::daemonset::history::{HistoryView, RevisionDetailView};
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{HistoryArgs, ViewOutput};
use crate::output::{is_coloured, note, say, yaml};
use crate::sets::Sets;
use crate::sources::with_notice;

pub(crate) async fn run(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let (sets, name) = Sets::connect_for(&args.set).await?;
    let work = async {
        let found = sets.get(&name).await?;
        let revisions = sets.revisions(&found.set).await?;
        // Who asks for one revision asks for what it says, not for who has it.
        let pods = if args.revision == 0 { sets.pods(&found.set).await? } else { Vec::new() };
        anyhow::Ok((found.set, revisions, pods))
    };
    let (set, revisions, pods) = with_notice("reading the revisions ...", work).await?;
    if args.revision != 0 {
        let mut sorted: Vec<&Revision> = revisions.iter().map(|facts| &facts.revision).collect();
        sorted.sort_by_key(|revision| (revision.number, &revision.name));
        let failed = |error: UndoError| anyhow!("{} {error}", sets.shown(&name));
        let restored = read(find(&sorted, args.revision).map_err(failed)?).map_err(|error| failed(error.into()))?;
        let view = RevisionDetailView::new(&set, restored);
        return print(&view, args.output, || view.text(is_coloured()));
    }
    let view = HistoryView::new(&set, &revisions, &pods, Timestamp::now());
    if view.revisions.is_empty() {
        note(&format!("{} has no revisions yet: is a dapple manager running?", sets.shown(&name)));
    }
    print(&view, args.output, || view.text(is_coloured()))
}

fn print(view: &impl Serialize, output: ViewOutput, text: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    match output {
        ViewOutput::Text => say!("{}", text().trim_end()),
        ViewOutput::Json => say!("{}", serde_json::to_string_pretty(view)?),
        ViewOutput::Yaml => say!("{}", yaml(&serde_json::to_value(view)?)),
    }
    Ok(ExitCode::SUCCESS)
}

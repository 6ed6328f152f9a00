//! `dapple crds`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

use crate::args::CrdsArgs;

pub(crate) fn run(args: &CrdsArgs) -> anyhow::Result<ExitCode> {
    let files = dapple_api::crd::crd_files();
    match &args.write {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            for (name, text) in files {
                let path = folder.join(name);
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        None => {
            let documents: Vec<String> = files.into_iter().map(|(_, text)| text).collect();
            std::io::stdout().write_all(documents.join("---\n").as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

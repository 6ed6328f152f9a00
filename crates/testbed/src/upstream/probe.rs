//! Programs that are on this machine already.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::modules::Binary;
use crate::progress::Progress;

/// Those of the wanted programs found in `KUBEBUILDER_ASSETS` or PATH in a version that fits.
pub(super) fn on_this_machine(wanted: &[Binary], progress: &dyn Progress) -> BTreeMap<Binary, PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    in_folders(wanted, assets.as_deref(), &std::env::split_paths(&path).collect::<Vec<_>>(), progress)
}

fn in_folders(
    wanted: &[Binary],
    assets: Option<&Path>,
    path: &[PathBuf],
    progress: &dyn Progress,
) -> BTreeMap<Binary, PathBuf> {
    let search = |binary: Binary| {
        // Who names a folder wants to know why its programs aren't used; what happens to be in PATH is no news.
        let tell = |line: &str| progress.note(line);
        let found = assets.and_then(|folder| usable(binary, folder, &tell));
        found.or_else(|| path.iter().find_map(|folder| usable(binary, folder, &|_| {})))
    };
    // Each is asked for its version, which takes a Go program a tenth of a second: all at once.
    std::thread::scope(|scope| {
        let search = &search;
        let searches: Vec<_> =
            wanted.iter().map(|binary| scope.spawn(move || Some((*binary, search(*binary)?)))).collect();
        searches.into_iter().filter_map(|search| search.join().ok().flatten()).collect()
    })
}

fn usable(binary: Binary, folder: &Path, tell: &dyn Fn(&str)) -> Option<PathBuf> {
    let path = folder.join(binary.name());
    if !path.is_file() {
        return None;
    }
    let reason = match version(binary, &path) {
        Some(answer) if fits(binary, &answer) => return Some(path),
        Some(answer) => answer.lines().next().unwrap_or_default().to_owned(),
        None => "it doesn't run".to_owned(),
    };
    tell(&format!("passing over {} ({reason}): {}x is needed", path.display(), binary.version_prefix()));
    None
}

fn version(binary: Binary, path: &Path) -> Option<String> {
    let output = Command::new(path).args(binary.version_args()).stdin(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

/// Whether a word of the answer is a version that we take.
fn fits(binary: Binary, answer: &str) -> bool {
    let wanted = binary.version_prefix();
    answer.split_ascii_whitespace().any(|word| {
        let bare = word.strip_prefix('v').filter(|_| !wanted.starts_with('v')).unwrap_or(word);
        bare.starts_with(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{progress::Quiet, upstream::write_script};

    fn fake(folder: &Path, binary: Binary, answer: &str) {
        std::fs::create_dir_all(folder).unwrap();
        write_script(&folder.join(binary.name()), &format!("#!/bin/sh\necho '{answer}'\n"));
    }

    #[test]
    fn takes_the_first_that_fits() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fake(&old, Binary::KubeApiserver, "Kubernetes v1.35.9");
        fake(&new, Binary::KubeApiserver, "Kubernetes v1.36.1");
        fake(&old, Binary::Etcd, "etcd Version: 3.5.9");
        fake(&new, Binary::Kwok, "kwok version v0.8.0 go1.26.8 (linux/amd64)");
        fake(&old, Binary::Containerd, "containerd github.com/containerd/containerd/v2 v2.1.0 abc");
        let wanted = [Binary::KubeApiserver, Binary::Etcd, Binary::Kwok, Binary::Containerd];
        let found = in_folders(&wanted, Some(&old), std::slice::from_ref(&new), &Quiet);
        assert_eq!(found.get(&Binary::KubeApiserver), Some(&new.join("kube-apiserver")));
        assert_eq!(found.get(&Binary::Etcd), None);
        assert_eq!(found.get(&Binary::Kwok), Some(&new.join("kwok")));
        assert_eq!(found.get(&Binary::Containerd), Some(&old.join("containerd")));
    }
}

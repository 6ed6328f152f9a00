//! `config/crds` is what the types say.

use std::collections::BTreeSet;
use std::fs;

use dapple_api::crd::{REGENERATE, crd_files, crds};
use serde_json::Value;

use crate::files::{documents, repository, yaml_files};

#[test]
fn checked_in_crds_are_current() {
    let folder = repository("config/crds");
    let mut expected = BTreeSet::new();
    for (name, text) in crd_files() {
        let found = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(found == text, "config/crds/{name} is out of date: run `{REGENERATE}`");
        expected.insert(folder.join(name));
    }
    let stale: Vec<_> = yaml_files(&folder).into_iter().filter(|path| !expected.contains(path)).collect();
    assert!(stale.is_empty(), "remove {stale:?}, which no type stands for");
}

#[test]
fn files_hold_the_crds_and_nothing_else() {
    let read: Vec<Value> =
        crd_files().iter().map(|(name, _)| documents(&repository("config/crds").join(name)).remove(0)).collect();
    assert_eq!(read, crds());
}

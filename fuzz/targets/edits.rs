//! Any edits on any template: operations of JSON patch, images, words, environment, references.
#![no_main]

use dapple_api::group::OverridePolicy;
use dapple_api::manifest::read;
use dapple_api::pool::YurtAppConfigurationReplacement;
use dapple_edit::document::Document;
use dapple_edit::edit::{
    Change, Edit, ImageOperator, PlainOperator, ReferenceKind, Source, UpgradeStrategy, WordList, WordOperator,
};
use dapple_edit::field::find;
use dapple_edit::image::{Component, Image};
use dapple_edit::{group, pool};
use dapple_fuzz::{anything, check, template, word};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const PATHS: [&str; 14] = [
    "",
    "/",
    "spec",
    "/spec/containers/0/image",
    "/spec/containers/-",
    "/spec/containers/00",
    "/spec/containers/18446744073709551616",
    "/spec/containers/0/args/1",
    "/spec/initContainers/1/image",
    "/spec/volumes/0/name",
    "/metadata/labels/a~1b~01",
    "/metadata/labels",
    "/spec/~2",
    "//",
];

fn path(bytes: &mut Unstructured<'_>) -> Result<String> {
    if bytes.ratio(1, 8)? { bytes.arbitrary() } else { Ok((*bytes.choose(&PATHS)?).to_owned()) }
}

fn change(bytes: &mut Unstructured<'_>) -> Result<Change> {
    let few = |bytes: &mut Unstructured<'_>| -> Result<Vec<String>> {
        (0..bytes.int_in_range(0..=2)?).map(|_| word(bytes)).collect()
    };
    Ok(match bytes.int_in_range(0..=9)? {
        0 => Change::Merge(template(bytes, true)?),
        1 => Change::Plain {
            path: path(bytes)?,
            operator: *bytes.choose(&[PlainOperator::Add, PlainOperator::Replace, PlainOperator::Remove])?,
            value: anything(bytes, 3)?,
        },
        2 => Change::Image {
            only_at: if bytes.arbitrary()? { Some(path(bytes)?) } else { None },
            component: *bytes.choose(&[Component::Registry, Component::Repository, Component::Tag])?,
            operator: match bytes.int_in_range(0..=2)? {
                0 => ImageOperator::Add(word(bytes)?),
                1 => ImageOperator::Replace(word(bytes)?),
                _ => ImageOperator::Remove,
            },
        },
        3 => Change::Words {
            container: word(bytes)?,
            list: *bytes.choose(&[WordList::Command, WordList::Args])?,
            operator: *bytes.choose(&[WordOperator::Add, WordOperator::Remove])?,
            words: few(bytes)?,
        },
        4 => Change::SetImage { container: word(bytes)?, image: word(bytes)? },
        5 => Change::SetEnv { container: word(bytes)?, variables: few(bytes)?.into_iter().zip(few(bytes)?).collect() },
        6 => Change::Place {
            term: if bytes.arbitrary()? { Some(anything(bytes, 3)?) } else { None },
            tolerations: (0..bytes.int_in_range(0..=2)?).map(|_| anything(bytes, 1)).collect::<Result<_>>()?,
        },
        7 => Change::Replicas(bytes.arbitrary()?),
        8 => Change::Strategy(*bytes.choose(&[
            UpgradeStrategy::RollingUpdate,
            UpgradeStrategy::Recreate,
            UpgradeStrategy::OnDelete,
        ])?),
        _ => Change::Refer {
            kind: *bytes.choose(&[
                ReferenceKind::ConfigMap,
                ReferenceKind::Secret,
                ReferenceKind::PersistentVolumeClaim,
            ])?,
            from: word(bytes)?,
            to: word(bytes)?,
        },
    })
}

/// A template, and the edits of policies and replacements for one group and one pool.
fn written(bytes: &[u8]) -> Option<(Value, Vec<Edit>)> {
    let manifests = read("seed", bytes).ok()?;
    let (template, rules) = manifests.split_first()?;
    let mut all = Vec::new();
    for rule in rules {
        if let Ok(policy) = rule.parse::<OverridePolicy>() {
            all.extend(group::edits("OverridePolicy a/b", &policy.spec, &["beijing"]));
        }
        if let Ok(object) = rule.parse::<YurtAppConfigurationReplacement>() {
            let object_name = "YurtAppConfigurationReplacement a/b";
            all.extend(pool::edits(object_name, &object.replacements, "beijing"));
        }
    }
    Some((template.value().clone(), all))
}

fn generated(bytes: &mut Unstructured<'_>) -> Result<(Value, Vec<Edit>)> {
    let edits = (0..bytes.int_in_range(1..=4)?)
        .map(|number| {
            let source = Source { object: "OverridePolicy a/b".to_owned(), rule: format!("rules[{number}]") };
            Ok(Edit { source, change: change(bytes)? })
        })
        .collect::<Result<_>>()?;
    Ok((template(bytes, false)?, edits))
}

fuzz_target!(|bytes: &[u8]| {
    let input = if bytes.starts_with(b"---") { written(bytes) } else { generated(&mut Unstructured::new(bytes)).ok() };
    let Some((base, edits)) = input else { return };
    let edits: Vec<&Edit> = edits.iter().collect();
    check(Document::PodTemplate, &base, &edits);
    let workload = json!({"spec": {"template": base.clone()}});
    check(if bytes.len() % 2 == 0 { Document::Deployment } else { Document::StatefulSet }, &workload, &edits);
    // An image name that is read is written as it was.
    for edit in edits {
        if let Change::Plain { path, .. } = &edit.change {
            let _ = find(&base, path);
        }
        if let Change::SetImage { image, .. } = &edit.change
            && let Ok(parsed) = image.parse::<Image>()
        {
            assert_eq!(&parsed.to_string(), image);
        }
    }
});

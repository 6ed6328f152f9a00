//! Any patches on any template: merged, checked, rendered, and who set what told.
#![no_main]

use dapple_edit::check::check_patch;
use dapple_edit::document::Document;
use dapple_edit::edit::{Change, Edit, Source};
use dapple_edit::merge::patch_template;
use dapple_fuzz::{check, templates};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn merge(rule: &str, patch: &Value) -> Edit {
    let source = Source { object: "DaemonSet default/agent".to_owned(), rule: rule.to_owned() };
    Edit { source, change: Change::Merge(patch.clone()) }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(values) = templates(bytes, 3) else { return };
    let Some((base, patches)) = values.split_first() else { return };

    let mut untouched = base.clone();
    if patch_template(&mut untouched, &json!({})).is_ok() && !base.is_null() {
        assert_eq!(&untouched, base, "an empty patch changed something");
    }
    for patch in patches {
        for finding in check_patch(Document::PodTemplate, patch) {
            let _ = finding.to_string();
        }
    }

    let edits: Vec<Edit> = patches.iter().enumerate().map(|(n, patch)| merge(&format!("p[{n}]"), patch)).collect();
    // One patch has a shorter way through the renderer than several.
    let edits: Vec<&Edit> = edits.iter().take(1 + bytes.len() % 2).collect();
    check(Document::PodTemplate, base, &edits);
});

//! Any bytes as a file: read, located, parsed as every kind, written and read again.
#![no_main]

use dapple_api::manifest::{Manifest, ManifestError, Position, Problem, read};
use dapple_api::{daemonset, group, marker, pool};
use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;

const PATHS: [&str; 6] = [
    "",
    "metadata.name",
    "spec.patches[1].patch.spec.containers[0].imagee",
    "spec.template.spec.containers[name=agent].env[0]",
    "spec.overrideRules[0].overriders.plaintext[0].path",
    "a[0][1].b",
];

fn parse<K: DeserializeOwned>(manifest: &Manifest) -> Result<(), ManifestError> {
    manifest.parse::<K>().map(drop)
}

const KINDS: [fn(&Manifest) -> Result<(), ManifestError>; 13] = [
    parse::<daemonset::DaemonSet>,
    parse::<daemonset::v1alpha1::DaemonSet>,
    parse::<marker::PodMarker>,
    parse::<marker::NodePodProbe>,
    parse::<group::NodeGroup>,
    parse::<group::PropagationPolicy>,
    parse::<group::OverridePolicy>,
    parse::<pool::NodePool>,
    parse::<pool::v1alpha1::NodePool>,
    parse::<pool::YurtAppSet>,
    parse::<pool::v1beta1::YurtAppSet>,
    parse::<pool::YurtAppDaemon>,
    parse::<pool::YurtAppConfigurationReplacement>,
];

fuzz_target!(|bytes: &[u8]| {
    let lines = 1 + bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    let inside = |position: Position| (1..=lines).contains(&position.line) && position.column >= 1;
    match read("f", bytes) {
        Ok(manifests) => manifests.iter().for_each(|manifest| use_it(manifest, bytes.len(), inside)),
        Err(error) => {
            assert!(inside(error.position), "{error}");
            assert!(error.to_string().len() < 8192, "{error}");
        }
    }
});

fn use_it(manifest: &Manifest, length: usize, inside: impl Fn(Position) -> bool) {
    for path in PATHS {
        assert!(inside(manifest.locate(path)), "{path} is at {}", manifest.locate(path));
    }
    // One kind each time, told by the length: the fuzzer goes through them all, and is many times as fast.
    let parse = KINDS[length % KINDS.len()];
    if let Err(error) = parse(manifest) {
        assert!(inside(error.position), "{error}");
        assert!(error.to_string().len() < 8192, "{error}");
    }
    let written = manifest.value().to_string();
    match read("again", written.as_bytes()) {
        Ok(again) => {
            assert_eq!(again.len(), 1, "{written}");
            assert_eq!(again[0].value(), manifest.value(), "{written}");
        }
        // JSON allows characters and long keys that YAML does not.
        Err(error) => {
            let is_unusual = |letter: char| letter.is_control() || ('\u{FEFE}'..='\u{FFFF}').contains(&letter);
            let is_allowed = matches!(error.problem, Problem::Control { .. })
                || written.contains(is_unusual)
                || written.len() > 1000;
            assert!(is_allowed, "{error} in {written}");
        }
    }
}

//! The cases for the API server are well-formed: a test with a cluster loops over them.

use crate::files::{documents, repository, yaml_files};

#[test]
fn every_case_says_what_to_expect() {
    let mut count = 0;
    for path in yaml_files(&repository("crates/api/tests/cases")) {
        for case in documents(&path) {
            let expect = case["metadata"]["annotations"]["dapple.dev/expect"].as_str().unwrap_or_default();
            let message = expect.strip_prefix("refused: ").unwrap_or_default();
            assert!(expect == "accepted" || message.len() > 5, "{}: {}", path.display(), case["metadata"]);
            count += 1;
        }
    }
    assert!(count > 100, "{count} cases");
}

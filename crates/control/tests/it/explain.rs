//! What `kubectl explain` tells people.

use dapple_testbed::Cluster;

use crate::support::{cluster, eventually, kubectl};

/// What kubectl says of a field. The API server describes a new kind a moment after it serves it.
async fn explained(cluster: &Cluster, args: &[&str]) -> String {
    eventually(&format!("{args:?} is explained"), || async {
        let output = kubectl(cluster, &[&["explain"], args].concat(), "");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_fields_are_explained_and_the_template_has_its_tree() {
    let (cluster, _) = cluster().await;
    let version = "--api-version=apps.kruise.io/v1beta1";
    let patches = explained(&cluster, &["daemonsets.spec.patches", version]).await;
    for part in ["FIELD: patches <[]Object>", "selector", "priority", "strategic merge patch", "win"] {
        assert!(patches.contains(part), "{part} is not in:\n{patches}");
    }
    assert_eq!(patches, explained(&cluster, &["ads.spec.patches"]).await, "the short name says the same");
    let probe = explained(&cluster, &["ads.spec.template.spec.containers.livenessProbe.httpGet"]).await;
    assert!(probe.contains("httpHeaders") && probe.contains("scheme"), "{probe}");
    for kind in [
        "podmarkers.spec",
        "nodepodprobes.spec",
        "nodegroups.spec",
        "gpp.spec",
        "gop.spec",
        "np.spec",
        "yas.spec",
        "yad.spec",
        "yacr",
    ] {
        let text = explained(&cluster, &[kind]).await;
        assert!(
            text.contains("DESCRIPTION:") && text.contains("FIELDS:") && !text.contains("<empty>"),
            "{kind}:\n{text}"
        );
    }
}

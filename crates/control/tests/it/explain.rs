//! What `kubectl explain` tells people.

use crate::support::{cluster, kubectl_ok};

#[tokio::test(flavor = "multi_thread")]
async fn our_own_fields_are_explained_and_the_template_has_its_tree() {
    let (cluster, _) = cluster().await;
    let version = "--api-version=apps.kruise.io/v1beta1";
    let patches = kubectl_ok(&cluster, &["explain", "daemonsets.spec.patches", version], "");
    for part in ["FIELD: patches <[]Object>", "selector", "priority", "strategic merge patch", "win"] {
        assert!(patches.contains(part), "{part} is not in:\n{patches}");
    }
    assert_eq!(patches, kubectl_ok(&cluster, &["explain", "ads.spec.patches"], ""), "the short name says the same");
    let probe = kubectl_ok(&cluster, &["explain", "ads.spec.template.spec.containers.livenessProbe.httpGet"], "");
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
        let text = kubectl_ok(&cluster, &["explain", kind], "");
        assert!(
            text.contains("DESCRIPTION:") && text.contains("FIELDS:") && !text.contains("<empty>"),
            "{kind}:\n{text}"
        );
    }
}

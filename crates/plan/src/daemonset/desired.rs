//! What every node should have of a DaemonSet: variants rendered once each, and where pods may run.

use std::collections::BTreeMap;

use dapple_api::daemonset::DaemonSetPatch;
use dapple_edit::daemonset::{self, Patch};
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, EditError};
use dapple_edit::render::render_plain;
use serde_json::Value;

use crate::fit::{Fit, Misfit, Node};

/// What nodes should have.
#[derive(Debug, Default)]
pub struct Desired {
    /// Renderings, each for the nodes that match the same patches.
    pub variants: Vec<Variant>,
    /// By node: its variant, and why no pod may start there.
    pub nodes: BTreeMap<String, (usize, Option<Misfit>)>,
}

/// What nodes that match the same patches should have.
#[derive(Debug)]
pub struct Variant {
    /// The template and what names it, or the patch that does not apply: these nodes keep what they run.
    pub rendering: Result<(Value, String), EditError>,
}

/// What a revision gives to nodes. A node without a patch has the revision's own hash, so that pods which another product
/// made from it are as they should be; a patched one that of its rendering.
pub fn desired<'a>(
    object: &str,
    (template, patches): (&Value, &[DaemonSetPatch]),
    revision_hash: &str,
    nodes: impl Iterator<Item = Node<'a>>,
) -> Desired {
    let (patches, _) = daemonset::patches(object, patches);
    let mut by_patches: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    let mut fits: Vec<Option<Fit>> = Vec::new();
    let mut desired = Desired::default();
    for node in nodes {
        let matches = |patch: &Patch| patch.selector.matches(|key| node.labels.get(key));
        let matching: Vec<usize> = (0..patches.len()).filter(|index| matches(&patches[*index])).collect();
        let variant = *by_patches.entry(matching).or_insert_with_key(|matching| {
            let edits: Vec<&Edit> = matching.iter().map(|index| &patches[*index].edit).collect();
            let rendering = render_plain(Document::PodTemplate, template, &edits).map(|(rendered, hash)| {
                let hash = if matching.is_empty() { revision_hash.to_owned() } else { hash };
                (rendered, hash)
            });
            fits.push(rendering.as_ref().ok().map(|(rendered, _)| Fit::of_daemon(rendered)));
            desired.variants.push(Variant { rendering });
            desired.variants.len() - 1
        });
        let misfit = fits[variant].as_ref().and_then(|fit| fit.judge(node).err());
        desired.nodes.insert(node.name.to_owned(), (variant, misfit));
    }
    desired
}

impl Desired {
    /// The template and hash that a node should have; nothing where its patches do not apply.
    pub fn of(&self, node: &str) -> Option<&(Value, String)> {
        let (variant, _) = self.nodes.get(node)?;
        self.variants[*variant].rendering.as_ref().ok()
    }

    /// Patches that do not apply, with the number of nodes that they hold up.
    pub fn failures(&self) -> Vec<(&EditError, usize)> {
        let count = |variant: usize| self.nodes.values().filter(|(known, _)| *known == variant).count();
        let failed = self.variants.iter().enumerate();
        failed.filter_map(|(index, variant)| Some((variant.rendering.as_ref().err()?, count(index)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_share_renderings_and_only_patched_ones_have_their_own_hash() {
        let template =
            json!({"spec": {"containers": [{"name": "c", "image": "c:1"}], "nodeSelector": {"os": "linux"}}});
        let patches: Vec<DaemonSetPatch> = serde_json::from_value(json!([
            {"selector": {"matchLabels": {"disk": "large"}}, "patch": {"metadata": {"labels": {"a": "b"}}}},
            {"selector": {"matchLabels": {"disk": "odd"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}},
        ]))
        .unwrap();
        let labels = |os: &str, disk: &str| {
            BTreeMap::from([("os".to_owned(), os.to_owned()), ("disk".to_owned(), disk.to_owned())])
        };
        let nodes = [
            ("a", labels("linux", "small")),
            ("b", labels("linux", "large")),
            ("c", labels("windows", "large")),
            ("d", labels("linux", "odd")),
        ];
        let each = nodes.iter().map(|(name, labels)| Node { name, labels, taints: &[] });
        let desired = desired("DaemonSet default/a", (&template, &patches), "revision", each);
        assert_eq!(desired.variants.len(), 3);
        assert_eq!(desired.of("a").unwrap(), &(template.clone(), "revision".to_owned()));
        assert_eq!(desired.of("b").unwrap().1.len(), 16);
        assert_eq!(desired.of("d"), None);
        assert_eq!(desired.nodes["c"].1, Some(Misfit::NodeSelector { key: "os".to_owned() }));
        assert_eq!(desired.nodes["b"].1, None);
        let failures = desired.failures();
        assert_eq!((failures.len(), failures[0].1), (1, 1));
        assert!(failures[0].0.to_string().contains("spec.patches[1]"), "{}", failures[0].0);
    }
}

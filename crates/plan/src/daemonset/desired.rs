//! What nodes should have of a revision: variants, each rendered once, and where pods may run.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::daemonset::{DaemonSetPatch, DaemonSetSpec, MAX_PATCHES};
use dapple_api::selector::Selector;
use dapple_edit::daemonset::{self, Patch};
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, EditError};
use dapple_edit::meaning::{NEWEST_FORM, hash_in_form};
use dapple_edit::render::render_unnamed;
use serde_json::Value;

use crate::fit::{Fit, Misfit, Node, Reach};

/// What nodes that match the same patches should have.
#[derive(Debug)]
pub struct Variant {
    /// The places of its patches in `spec.patches`, in the order in which they apply.
    pub patches: Vec<usize>,
    /// The template and what names it, or the patch that does not apply: these nodes keep what they run.
    pub rendering: Result<Rendered, Unrendered>,
    fit: Fit,
}

/// Why nodes cannot be given anything.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unrendered {
    /// A patch does not apply.
    #[error("{0}")]
    Edit(#[from] EditError),
    /// The DaemonSet would not know such pods as its own, and make them again and again.
    #[error("the labels of the rendered template are not those that spec.selector selects")]
    Unselected,
}

/// A rendered template.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// What pods are made from.
    pub template: Arc<Value>,
    /// What pods made from it carry: the revision's own hash where no patch is for the node, else a hash in the form of
    /// the revision.
    pub hash: Arc<str>,
    /// Names what it means by all that is known today: renderings that mean the same have the same, whatever their
    /// revisions and hashes.
    pub meaning: Arc<str>,
}

/// The variants of one revision, rendered as nodes ask for them.
#[derive(Debug)]
pub struct Variants {
    unpatched: Rendered,
    form: u8,
    selector: Option<Selector>,
    patches: Vec<Patch>,
    /// Patches whose selector cannot be used, with what is wrong.
    pub bad_selectors: Vec<String>,
    known: BTreeMap<Vec<usize>, usize>,
    variants: Vec<Variant>,
}

impl Variants {
    /// The variants of a template and patches. A node without a patch has the revision's own hash, so that pods which
    /// another product made from it are as they should be; a patched one that of its rendering, in the revision's form.
    pub fn new(
        object: &str,
        (template, patches): (Value, &[DaemonSetPatch]),
        spec: &DaemonSetSpec,
        (hash, form): (&str, u8),
    ) -> Self {
        let (patches, bad) = daemonset::patches(object, patches);
        let meaning = Arc::from(hash_in_form(NEWEST_FORM, Document::PodTemplate, &template));
        Self {
            selector: Selector::new(&spec.selector).ok(),
            unpatched: Rendered { template: Arc::new(template), hash: Arc::from(hash), meaning },
            form: form.min(NEWEST_FORM),
            patches,
            bad_selectors: bad.iter().map(ToString::to_string).collect(),
            known: BTreeMap::new(),
            variants: Vec::new(),
        }
    }

    /// The number of a node's variant.
    pub fn of(&mut self, node: Node<'_>) -> usize {
        let matching = daemonset::matching(&self.patches, |key| node.labels.get(key));
        self.with_patches(matching)
    }

    fn with_patches(&mut self, matching: Vec<usize>) -> usize {
        if let Some(known) = self.known.get(&matching) {
            return *known;
        }
        let edits: Vec<&Edit> = matching.iter().map(|index| &self.patches[*index].edit).collect();
        let rendering = match edits.as_slice() {
            [] => Ok(self.unpatched.clone()),
            _ => render_unnamed(Document::PodTemplate, &self.unpatched.template, &edits)
                .map(|template| named(template, self.form))
                .map_err(Unrendered::from),
        };
        let selector = self.selector.as_ref();
        let is_selected = |rendered: &Rendered| {
            let labels = &rendered.template["metadata"]["labels"];
            selector.is_some_and(|selector| selector.matches(|key| labels[key].as_str()))
        };
        let rendering =
            rendering.and_then(|known| if is_selected(&known) { Ok(known) } else { Err(Unrendered::Unselected) });
        // Where nobody knows what nodes should have, the template tells whether they should have anything.
        let fit = Fit::of_daemon(rendering.as_ref().map_or(&self.unpatched.template, |known| &known.template));
        let patches = matching.iter().map(|index| self.patches[*index].place).collect();
        self.variants.push(Variant { patches, rendering, fit });
        let number = self.variants.len() - 1;
        self.known.insert(matching, number);
        number
    }

    /// Why no pod of a variant may start on a node.
    pub fn misfit(&self, variant: usize, node: Node<'_>) -> Option<Misfit> {
        self.variants[variant].fit.judge(node).err()
    }

    /// As [`Variants::misfit`], and whether the node is one of those that the variant's template is for all the same.
    pub fn judge(&self, variant: usize, node: Node<'_>) -> (Option<Misfit>, Reach) {
        let misfit = self.misfit(variant, node);
        let reach = self.variants[variant].fit.reach(node, misfit.as_ref());
        (misfit, reach)
    }

    /// What nodes get that no patch is for.
    pub fn unpatched(&self) -> &Rendered {
        &self.unpatched
    }

    /// The patches, with the nodes that each is for.
    pub fn patches(&self) -> &[Patch] {
        &self.patches
    }

    /// Where pods of each variant may run.
    pub fn fits(&self) -> impl Iterator<Item = &Fit> {
        self.variants.iter().map(|variant| &variant.fit)
    }

    /// Every variant that a node has asked for.
    pub fn all(&self) -> &[Variant] {
        &self.variants
    }

    /// The template that a hash stands for, whichever patches made it: labels of its node may have changed since.
    pub fn find(&mut self, hash: &str) -> Option<Rendered> {
        let is_it = |rendered: &&Rendered| *rendered.hash == *hash;
        let known = self.variants.iter().filter_map(|variant| variant.rendering.as_ref().ok());
        if let Some(found) = known.clone().find(is_it) {
            return Some(found.clone());
        }
        // As many patches as a DaemonSet may have make a thousand combinations, tried once for a hash nobody knows.
        let count = self.patches.len().min(MAX_PATCHES);
        for chosen in 0_usize..1 << count {
            let number = self.with_patches((0..count).filter(|index| chosen >> index & 1 == 1).collect());
            if let Some(found) = self.variants[number].rendering.as_ref().ok().filter(is_it) {
                return Some(found.clone());
            }
        }
        None
    }
}

/// A patched template with its names.
fn named(template: Value, form: u8) -> Rendered {
    let meaning: Arc<str> = hash_in_form(NEWEST_FORM, Document::PodTemplate, &template).into();
    // Hashing takes longer than the rest.
    let hash = match form {
        NEWEST_FORM => meaning.clone(),
        form => hash_in_form(form, Document::PodTemplate, &template).into(),
    };
    Rendered { template: Arc::new(template), hash, meaning }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn variants() -> Variants {
        variants_of("revision", NEWEST_FORM, json!({}))
    }

    fn variants_of(hash: &str, form: u8, more: Value) -> Variants {
        let mut template = json!({"metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "c:1"}], "nodeSelector": {"os": "linux"}}});
        for (field, value) in more.as_object().into_iter().flatten() {
            template["spec"][field] = value.clone();
        }
        let patches: Vec<DaemonSetPatch> = serde_json::from_value(json!([
            {"selector": {"matchLabels": {"disk": "large"}}, "patch": {"metadata": {"labels": {"a": "b"}}}, "priority": 5},
            {"selector": {"matchLabels": {"disk": "odd"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}},
            {"selector": {"matchLabels": {"gpu": "yes"}}, "patch": {"metadata": {"labels": {"g": "y"}}}},
            {"selector": {"matchLabels": {"disk": "other"}}, "patch": {"metadata": {"labels": {"app": "b"}}}},
        ]))
        .unwrap();
        let spec: DaemonSetSpec =
            serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}, "template": template})).unwrap();
        Variants::new("DaemonSet default/a", (template, &patches), &spec, (hash, form))
    }

    fn labels(os: &str, disk: &str, gpu: &str) -> BTreeMap<String, String> {
        [("os", os), ("disk", disk), ("gpu", gpu)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn node(labels: &BTreeMap<String, String>) -> Node<'_> {
        Node { name: "n", labels, taints: &[] }
    }

    #[test]
    fn nodes_share_renderings_and_only_patched_ones_have_their_own_hash() {
        let mut variants = variants();
        let mut hash_on = |labels: BTreeMap<String, String>| {
            let number = variants.of(node(&labels));
            let rendering = variants.all()[number].rendering.as_ref();
            (number, rendering.map(|rendered| rendered.hash.to_string()).map_err(ToString::to_string))
        };
        assert_eq!(hash_on(labels("linux", "small", "no")), (0, Ok("revision".to_owned())));
        let (large, hash) = hash_on(labels("linux", "large", "no"));
        assert_eq!((large, hash.unwrap().len()), (1, 16));
        assert_eq!(hash_on(labels("windows", "large", "no")).0, large);
        let (_, odd) = hash_on(labels("linux", "odd", "no"));
        assert!(odd.unwrap_err().contains("spec.patches[1]"));
        let (_, other) = hash_on(labels("linux", "other", "no"));
        assert!(other.unwrap_err().contains("spec.selector"), "its pods would not be known");
        let (both, _) = hash_on(labels("linux", "large", "yes"));
        assert_eq!(variants.all()[both].patches, [2, 0], "the one of higher priority applies last");
        let windows = labels("windows", "large", "no");
        assert_eq!(variants.misfit(large, node(&windows)), Some(Misfit::NodeSelector { key: "os".to_owned() }));
        assert_eq!(variants.misfit(large, node(&labels("linux", "large", "no"))), None);
    }

    #[test]
    fn a_rendering_is_found_by_its_hash_though_no_node_has_it_now() {
        let mut asked = variants();
        let both = labels("linux", "large", "yes");
        let number = asked.of(node(&both));
        let rendered = asked.all()[number].rendering.as_ref().unwrap().clone();
        assert_eq!(variants().find(&rendered.hash), Some(rendered));
        assert_eq!(
            variants().find("revision").unwrap().template.pointer("/metadata/labels"),
            Some(&json!({"app": "a"}))
        );
        assert_eq!(variants().find("another"), None);
    }

    #[test]
    fn renderings_that_mean_the_same_are_the_same_whatever_pods_carry() {
        let written = json!({"dnsPolicy": "ClusterFirst", "hostNetwork": false});
        let mut of_last_version = variants_of("old", 1, written);
        let mut of_this_one = variants_of("new", NEWEST_FORM, json!({}));
        let mut of_a_newer = variants_of("newer", u8::MAX, json!({}));
        for labels in [labels("linux", "small", "no"), labels("linux", "large", "no")] {
            let rendered = |variants: &mut Variants| {
                let number = variants.of(node(&labels));
                variants.all()[number].rendering.as_ref().unwrap().clone()
            };
            let (old, new) = (rendered(&mut of_last_version), rendered(&mut of_this_one));
            assert_eq!(old.meaning, new.meaning);
            assert_ne!(old.hash, new.hash);
            assert_eq!(rendered(&mut of_a_newer).meaning, new.meaning);
            assert_eq!(rendered(&mut variants_of("other", NEWEST_FORM, json!({}))).meaning, new.meaning);
            let other = json!({"dnsPolicy": "Default"});
            assert_ne!(rendered(&mut variants_of("new", NEWEST_FORM, other)).meaning, new.meaning);
        }
        // As the last version named what it made for patched nodes.
        let of_patched = of_last_version.all()[1].rendering.as_ref().unwrap();
        assert_eq!(*of_patched.hash, *dapple_edit::render::hash(&of_patched.template));
        assert_eq!(of_last_version.all()[0].rendering.as_ref().unwrap().hash, "old".into());
    }
}

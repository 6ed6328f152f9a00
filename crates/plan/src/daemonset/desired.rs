//! What nodes should have of a revision: variants, each rendered once, and where pods may run.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::overriding::Overriding;

/// So many renderings are tried for a hash that nobody knows.
const MOST_TRIED: usize = 4096;

/// What nodes that match the same patches, and that the same rules of a policy are for, should have.
#[derive(Debug)]
pub struct Variant {
    /// The places of its patches in `spec.patches`, in the order in which they apply.
    pub patches: Vec<usize>,
    /// The places of the rules of its OverridePolicy, which apply after the patches.
    pub rules: Vec<usize>,
    /// The template and what names it, or what does not apply: these nodes keep what they run.
    pub rendering: Result<Rendered, Unrendered>,
    fit: Fit,
}

/// Why nodes cannot be given anything.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unrendered {
    /// A patch or a rule does not apply.
    #[error("{0}")]
    Edit(#[from] EditError),
    /// The DaemonSet would not know such pods as its own, and make them again and again.
    #[error("the labels of the rendered template are not those that spec.selector selects")]
    Unselected,
    /// A policy has a part in it, and what it says is not known or not to be used yet.
    #[error("{0}")]
    Waits(String),
}

/// A rendered template.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// What pods are made from.
    pub template: Arc<Value>,
    /// What pods made from it carry: the revision's own hash where no patch and no rule is for the node, else a hash in the
    /// form of the revision.
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
    overriding: Overriding,
    /// By the places of patches in their order, and of rules.
    known: BTreeMap<(Vec<usize>, Vec<usize>), usize>,
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
            overriding: Overriding::None,
            known: BTreeMap::new(),
            variants: Vec::new(),
        }
    }

    /// With the rules of a policy, which apply after patches.
    #[must_use]
    pub fn overridden(self, overriding: Overriding) -> Self {
        Self { overriding, known: BTreeMap::new(), variants: Vec::new(), ..self }
    }

    /// The number of a node's variant.
    pub fn of(&mut self, node: Node<'_>) -> usize {
        let matching = daemonset::matching(&self.patches, |key| node.labels.get(key));
        let asked = (matching, self.overriding.rules_of(node));
        if let Some(known) = self.known.get(&asked) {
            return *known;
        }
        let rendering = match &self.overriding {
            Overriding::Waits(why) => Err(Unrendered::Waits(why.clone())),
            Overriding::None | Overriding::By(_) => self.render(&asked.0, &asked.1),
        };
        // Where nobody knows what nodes should have, the template tells whether they should have anything.
        let fit = Fit::of_daemon(rendering.as_ref().map_or(&self.unpatched.template, |known| &known.template));
        let patches = asked.0.iter().map(|index| self.patches[*index].place).collect();
        self.variants.push(Variant { patches, rules: asked.1.clone(), rendering, fit });
        let number = self.variants.len() - 1;
        self.known.insert(asked, number);
        number
    }

    /// What these patches, and then these rules, make of the template.
    fn render(&self, matching: &[usize], rules: &[usize]) -> Result<Rendered, Unrendered> {
        let ruled = self.overriding.rules().map(|all| all.edits(rules)).unwrap_or_default();
        let patched = matching.iter().map(|index| &self.patches[*index].edit);
        let edits: Vec<&Edit> = patched.chain(&ruled).collect();
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
        rendering.and_then(|known| if is_selected(&known) { Ok(known) } else { Err(Unrendered::Unselected) })
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

    /// How it stands with the policy that has a part in them.
    pub fn overriding(&self) -> &Overriding {
        &self.overriding
    }

    /// What makes a variant what it is, as people name it: patches, and rules of a policy.
    pub fn made_by(&self, variant: usize) -> String {
        let Variant { patches, rules, .. } = &self.variants[variant];
        let mut names: Vec<String> = patches.iter().map(|place| format!("spec.patches[{place}]")).collect();
        names.extend(self.overriding.rules().into_iter().flat_map(|all| all.names(rules)));
        if names.is_empty() { "spec.template".to_owned() } else { names.join(", ") }
    }

    /// Where pods of each variant may run.
    pub fn fits(&self) -> impl Iterator<Item = &Fit> {
        self.variants.iter().map(|variant| &variant.fit)
    }

    /// Every variant that a node has asked for.
    pub fn all(&self) -> &[Variant] {
        &self.variants
    }

    /// The same, given away.
    pub fn into_all(self) -> Vec<Variant> {
        self.variants
    }

    /// The template that a hash stands for, whichever patches and rules made it: labels of its node may have changed since.
    pub fn find(&self, hash: &str) -> Option<Rendered> {
        let is_it = |rendered: &Rendered| *rendered.hash == *hash;
        let known = self.variants.iter().filter_map(|variant| variant.rendering.as_ref().ok());
        if let Some(found) = known.clone().find(|rendered| is_it(rendered)) {
            return Some(found.clone());
        }
        // As many patches as a DaemonSet may have make a thousand combinations, tried once for a hash nobody knows.
        let count = self.patches.len().min(MAX_PATCHES);
        let of_nodes = self.known.keys().map(|(_, rules)| rules.clone());
        let of_groups = self.overriding.rules().map(|all| all.of_groups()).unwrap_or_default();
        let all: BTreeSet<Vec<usize>> = of_nodes.chain(of_groups).chain([Vec::new()]).collect();
        let tried = all.iter().flat_map(|rules| (0_usize..1 << count).map(move |chosen| (rules, chosen)));
        let mut found = tried.take(MOST_TRIED).filter_map(|(rules, chosen)| {
            let matching: Vec<usize> = (0..count).filter(|index| chosen >> index & 1 == 1).collect();
            self.render(&matching, rules).ok()
        });
        found.find(is_it)
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
#[path = "desired_tests.rs"]
mod tests;

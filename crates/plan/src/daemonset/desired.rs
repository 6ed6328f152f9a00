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

use super::overriding::Overriding;
use crate::fit::{Fit, Misfit, Node, Reach};

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
mod tests {
    use std::collections::BTreeMap;

    use dapple_api::group::NodeGroupSpec;
    use serde_json::json;

    use super::super::overriding::GroupRules;
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

    /// Rules for groups `east`, whose nodes have a label, and `named`, which names the node `n`.
    fn overridden(rules: Value) -> Variants {
        let east = NodeGroupSpec { match_labels: [("zone".into(), "e".into())].into(), ..NodeGroupSpec::default() };
        let named = NodeGroupSpec { nodes: vec!["n".into()], ..NodeGroupSpec::default() };
        let spec = Arc::new(serde_json::from_value(json!({"overrideRules": rules})).unwrap());
        let groups = [("east", &east), ("named", &named)].into_iter();
        let rules = GroupRules::new("OverridePolicy default/p".to_owned(), spec, groups);
        variants().overridden(Overriding::By(Arc::new(rules)))
    }

    fn annotates(groups: Value, value: &str) -> Value {
        let add = json!([{"path": "/metadata/labels/a", "operator": "add", "value": value}]);
        json!({"targetNodeGroup": groups, "plaintext": add})
    }

    #[test]
    fn rules_of_a_policy_apply_after_patches_and_share_renderings() {
        let mut variants =
            overridden(json!([annotates(json!(["east"]), "policy"), annotates(json!(["named"]), "named")]));
        let mut plain = labels("linux", "large", "no");
        let mut told = |name: &str, labels: &BTreeMap<String, String>| {
            let number = variants.of(Node { name, labels, taints: &[] });
            let rendered = variants.all()[number].rendering.as_ref().unwrap();
            let label = rendered.template["metadata"]["labels"]["a"].as_str().map(str::to_owned);
            (number, label.unwrap_or_default(), variants.made_by(number))
        };
        assert_eq!(told("a", &plain), (0, "b".to_owned(), "spec.patches[0]".to_owned()));
        plain.insert("zone".into(), "e".into());
        let by_both = "spec.patches[0], OverridePolicy default/p spec.overrideRules[0]".to_owned();
        assert_eq!(told("a", &plain), (1, "policy".to_owned(), by_both.clone()));
        assert_eq!(told("b", &plain), (1, "policy".to_owned(), by_both), "one rendering for all of its kind");
        let (both, label, _) = told("n", &plain);
        assert_eq!((both, label.as_str()), (2, "named"), "each rule once, the later one wins");
        plain.insert("disk".into(), "small".into());
        assert_eq!(told("a", &plain).2, "OverridePolicy default/p spec.overrideRules[0]");
        let hash = |number: usize| variants.all()[number].rendering.as_ref().unwrap().hash.clone();
        assert_eq!((0..3).map(hash).collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(hash(1), hash(3), "what the patch has set, the rule has set anew");
        // Of a node that was in another group when its pod was made.
        let anew = overridden(json!([annotates(json!(["east"]), "policy"), annotates(json!(["named"]), "named")]));
        assert_eq!(anew.find(&hash(1)).unwrap().template["metadata"]["labels"]["a"], "policy");
        let unruled = overridden(json!([]));
        assert_eq!(unruled.find(&hash(0)).unwrap().hash, hash(0));
        assert_eq!(unruled.find(&hash(1)), None);
    }

    #[test]
    fn a_rule_that_changes_nothing_restarts_nobody() {
        let mut variants = overridden(json!([annotates(json!(["named"]), "b")]));
        let labels = labels("linux", "large", "no");
        let mut meaning = |name: &str| {
            let number = variants.of(Node { name, labels: &labels, taints: &[] });
            (number, variants.all()[number].rendering.as_ref().unwrap().meaning.clone())
        };
        let (ruled, plain) = (meaning("n"), meaning("a"));
        assert_ne!(ruled.0, plain.0);
        assert_eq!(ruled.1, plain.1);
    }

    #[test]
    fn a_rule_that_does_not_apply_holds_up_the_nodes_that_it_is_for() {
        let taken = json!({"targetNodeGroup": ["named"], "plaintext": [
            {"path": "/metadata/labels/app", "operator": "replace", "value": "b"}]});
        let broken = json!({"targetNodeGroup": ["named"], "plaintext": [
            {"path": "/spec/nothing", "operator": "remove"}]});
        let labels = labels("linux", "small", "no");
        for (rule, said) in [(taken, "spec.selector"), (broken, "OverridePolicy default/p spec.overrideRules[0]")] {
            let mut variants = overridden(json!([rule]));
            let [held, free] = ["n", "a"].map(|name| variants.of(Node { name, labels: &labels, taints: &[] }));
            let error = variants.all()[held].rendering.as_ref().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert_eq!(*variants.all()[free].rendering.as_ref().unwrap().hash, *"revision");
        }
    }

    #[test]
    fn while_a_policy_is_waited_for_nobody_gets_anything_and_pods_are_known() {
        let mut waiting = variants().overridden(Overriding::Waits("not confirmed".to_owned()));
        let large = labels("linux", "large", "no");
        let number = waiting.of(node(&large));
        let expected = Unrendered::Waits("not confirmed".to_owned());
        assert_eq!(waiting.all()[number].rendering, Err(expected));
        let mut plain = variants();
        let number = plain.of(node(&large));
        let hash = plain.all()[number].rendering.as_ref().unwrap().hash.clone();
        assert!(waiting.find(&hash).is_some());
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

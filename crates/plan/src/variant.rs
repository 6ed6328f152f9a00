//! Variants: the nodes of a fleet that get the same of a workload, and what that is.
//!
//! Every family sorts nodes its own way, by patches, groups or pools, into drafts; from there on they are alike: each
//! distinct list of edits is rendered once, whatever the number of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dapple_api::selector::Selector;
use dapple_edit::check::{Finding, check_patch};
use dapple_edit::document::Document;
use dapple_edit::edit::{Change, Edit, EditError, EditProblem, Source};
use dapple_edit::path::Step;
use dapple_edit::render::{Origin, Rendering, hash, render, render_plain};
use serde_json::Value;

use crate::fate::Update;
use crate::fit::{Fit, Misfit, Node};

/// An object, as people name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What a workload gives to a fleet.
#[derive(Debug)]
pub struct Plan {
    /// The workload.
    pub object: ObjectName,
    /// What its base and renderings are.
    pub document: Document,
    /// Whether every node that fits has a pod of its own.
    pub is_daemon: bool,
    /// How pods get what has changed for them.
    pub update: Update,
    /// What nodes get that no rule concerns.
    pub base: Value,
    /// Hash of the base.
    pub base_hash: String,
    /// The variants.
    pub variants: Vec<Variant>,
    /// How its pods are divided among groups, if a policy says so.
    pub spread: Option<Spread>,
    /// What is probably not meant.
    pub warnings: Vec<Warning>,
}

/// How the pods of a workload are divided among groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Each group of the policy, in its order.
    pub groups: Vec<Share>,
    /// Pods that have no place in any group: all have their greatest number.
    pub without_place: usize,
    /// So many pods that nothing owns are divided together; none for pods of a workload.
    pub together: Option<usize>,
}

/// The pods of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The group.
    pub group: String,
    /// How many pods it gets.
    pub pods: usize,
    /// Whether there is such a group; if not, its pods wait for it.
    pub is_there: bool,
    /// The edition of its pods; none if no rule is for the group.
    pub edition: Option<String>,
    /// A pod as it is once it is placed there; none if there is no such group, or rules do not apply.
    pub pod: Option<Value>,
}

/// Nodes that get the same.
#[derive(Debug)]
pub struct Variant {
    /// The groups or pools that they make up; none where patches alone decide.
    pub places: Vec<String>,
    /// The rules that made it, in the order they apply.
    pub rules: Vec<Source>,
    /// Names of the nodes, sorted.
    pub nodes: Vec<String>,
    /// Nodes that it would be for, but cannot run on, sorted by name.
    pub misfits: Vec<(String, Misfit)>,
    /// What they get, or the rule that does not apply. Then these nodes keep what they run, and only these.
    pub rendering: Result<Rendering, EditError>,
}

/// Something that is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What kind of thing.
    pub reason: Reason,
    /// The rule.
    pub rule: Source,
    /// In words.
    pub text: String,
}

/// Kinds of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A selector that cannot be used.
    BadSelector,
    /// A rule that says what cannot be done.
    BadRule,
    /// A rule for nothing that is there.
    Unused,
    /// A rule that changes nothing wherever it applies.
    Overruled,
    /// Two rules of equal standing that set one field differently.
    Fight,
    /// An environment variable that a container has twice.
    Twice,
    /// A field that Kubernetes does not know, or a value of the wrong type.
    Mistake,
    /// An object that is named and not there.
    Missing,
    /// Something else.
    Odd,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// Nodes that the same edits are for, not rendered yet.
pub(crate) struct Draft<'a> {
    pub(crate) places: Vec<String>,
    pub(crate) edits: Vec<&'a Edit>,
    pub(crate) nodes: Vec<Node<'a>>,
}

/// A workload on its way to a plan.
pub(crate) struct Sketch<'a> {
    pub(crate) object: ObjectName,
    pub(crate) document: Document,
    pub(crate) base: &'a Value,
    /// Where the workload has the base.
    pub(crate) base_field: &'static str,
    /// Whether pods belong to their nodes, so that every node is judged for fit.
    pub(crate) is_daemon: bool,
    pub(crate) update: Update,
    /// Whether one rule that overrules another is probably not meant.
    pub(crate) fight: &'a dyn Fn(&Source, &Source) -> bool,
    /// Whether a rule is a default, there to be overruled.
    pub(crate) is_default: &'a dyn Fn(&Source) -> bool,
}

impl Sketch<'_> {
    /// Renders the drafts, those with the same edits once, and looks for what is probably not meant.
    pub(crate) fn plan(self, drafts: Vec<Draft<'_>>) -> Plan {
        let mut warnings = self.base_mistakes();
        warnings.extend(drafts.iter().filter(|draft| draft.nodes.is_empty()).flat_map(|draft| self.deserted(draft)));
        let drafts = merged(drafts);
        let variants: Vec<Variant> = drafts.iter().map(|draft| self.variant(draft)).collect();
        for rendering in variants.iter().filter_map(|variant| variant.rendering.as_ref().ok()) {
            warnings.extend(rendering.warnings.iter().map(|known| Warning {
                reason: Reason::Odd,
                rule: known.source.clone(),
                text: known.text.clone(),
            }));
            warnings.extend(self.fights(rendering));
            warnings.extend(self.doubled(rendering));
        }
        // Whoever is told more about a rule need not be told that it has no effect.
        let idle = self
            .idle(&drafts, &variants)
            .into_iter()
            .filter(|idle| !(self.is_default)(&idle.rule) && !warnings.iter().any(|known| known.rule == idle.rule));
        let idle: Vec<Warning> = idle.collect();
        warnings.extend(idle);
        // Several variants may have the same thing to say.
        let mut distinct: Vec<Warning> = Vec::new();
        for warning in warnings {
            if !distinct.contains(&warning) {
                distinct.push(warning);
            }
        }
        Plan {
            object: self.object,
            document: self.document,
            is_daemon: self.is_daemon,
            update: self.update,
            base: self.base.clone(),
            base_hash: hash(self.base),
            variants,
            spread: None,
            warnings: distinct,
        }
    }

    /// What Kubernetes would not take of the base.
    fn base_mistakes(&self) -> Vec<Warning> {
        let source = Source { object: self.object.to_string(), rule: self.base_field.to_owned() };
        mistakes_in(self.document, self.base, &source)
    }

    /// Groups and pools without a node.
    fn deserted(&self, draft: &Draft<'_>) -> Vec<Warning> {
        let rule = |place: &String| Source { object: self.object.to_string(), rule: place.clone() };
        let places = draft.places.iter();
        places
            .map(|place| Warning { reason: Reason::Unused, rule: rule(place), text: "it has no node".to_owned() })
            .collect()
    }

    fn variant(&self, draft: &Draft<'_>) -> Variant {
        let rendering = render(self.document, self.base, &draft.edits);
        let mut rules: Vec<Source> = Vec::new();
        for edit in &draft.edits {
            if rules.last() != Some(&edit.source) {
                rules.push(edit.source.clone());
            }
        }
        let fit = rendering.as_ref().ok().filter(|_| self.is_daemon).map(|known| Fit::of_daemon(&known.document));
        let (mut nodes, mut misfits) = (Vec::new(), Vec::new());
        for node in &draft.nodes {
            match fit.as_ref().map_or(Ok(()), |fit| fit.judge(*node)) {
                Ok(()) => nodes.push(node.name.to_owned()),
                Err(misfit) => misfits.push((node.name.to_owned(), misfit)),
            }
        }
        nodes.sort();
        nodes.dedup();
        misfits.sort_by(|one, other| one.0.cmp(&other.0));
        Variant { places: draft.places.clone(), rules, nodes, misfits, rendering }
    }

    /// Rules that set the same fields differently, each pair once.
    fn fights(&self, rendering: &Rendering) -> Vec<Warning> {
        let mut pairs: BTreeMap<(&Source, &Source), Vec<String>> = BTreeMap::new();
        for origin in rendering.origins.iter().chain(&rendering.undone) {
            for (loser, value) in &origin.overruled {
                if *value != origin.after && *loser != origin.set_by && (self.fight)(&origin.set_by, loser) {
                    pairs.entry((loser, &origin.set_by)).or_default().push(origin.path.to_string());
                }
            }
        }
        let warning = |((loser, winner), fields): ((&Source, &Source), Vec<String>)| Warning {
            reason: Reason::Fight,
            rule: loser.clone(),
            text: format!(
                "{} sets {} differently, and applies later",
                winner.beside(&self.object.to_string()),
                fields.join(", ")
            ),
        };
        pairs.into_iter().map(warning).collect()
    }

    /// Rules without which everything would be the same.
    fn idle(&self, drafts: &[Draft<'_>], variants: &[Variant]) -> Vec<Warning> {
        let (mut all, mut effective, mut overruled) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (draft, variant) in drafts.iter().zip(variants) {
            all.extend(&variant.rules);
            let Ok(rendering) = &variant.rendering else {
                // A variant that does not render says so itself.
                effective.extend(&variant.rules);
                continue;
            };
            for origin in &rendering.origins {
                effective.insert(&origin.set_by);
                effective.extend(&origin.built_on);
            }
            for origin in rendering.origins.iter().chain(&rendering.undone) {
                overruled.extend(origin.overruled.iter().map(|(loser, _)| loser));
            }
            // Who set nothing that lasts may still have made room for what does.
            for rule in
                variant.rules.iter().filter(|rule| !rendering.origins.iter().any(|origin| origin.set_by == **rule))
            {
                let others: Vec<&Edit> = draft.edits.iter().copied().filter(|edit| edit.source != *rule).collect();
                let without = render_plain(self.document, self.base, &others);
                if without.map_or(true, |(_, hash)| hash != rendering.hash) {
                    effective.insert(rule);
                }
            }
        }
        let warning = |rule: &Source| {
            let text = match overruled.contains(rule) {
                true => "it changes nothing: later rules set the same fields",
                false => "it changes nothing: what it says is so already",
            };
            Warning { reason: Reason::Overruled, rule: rule.clone(), text: text.to_owned() }
        };
        all.into_iter().filter(|rule| !effective.contains(rule)).map(warning).collect()
    }

    /// Kubernetes takes the last of two variables with one name, and says nothing.
    fn doubled(&self, rendering: &Rendering) -> Vec<Warning> {
        let Some(template) = self.document.template(&rendering.document) else { return Vec::new() };
        let lists = ["initContainers", "containers"].iter().flat_map(|list| template["spec"][list].as_array());
        let mut warnings = Vec::new();
        for container in lists.flatten() {
            let names: Vec<&str> =
                container["env"].as_array().into_iter().flatten().filter_map(|known| known["name"].as_str()).collect();
            let twice = names.iter().enumerate().filter(|(number, name)| names[..*number].contains(name));
            for (_, name) in twice {
                let container = container["name"].as_str().unwrap_or_default();
                let field = format!("[name={container}].env");
                let by = rendering.origins.iter().find(|origin| origin.path.to_string().contains(&field));
                let rule = by.map_or_else(
                    || Source { object: self.object.to_string(), rule: self.base_field.to_owned() },
                    |origin| origin.set_by.clone(),
                );
                let text = format!("the container {container:?} has the variable {name:?} twice; the last one counts");
                warnings.push(Warning { reason: Reason::Twice, rule, text });
            }
        }
        warnings
    }
}

/// Drafts with equal edits become one, so that each distinct list of edits is rendered once.
fn merged(drafts: Vec<Draft<'_>>) -> Vec<Draft<'_>> {
    let mut all: Vec<Draft<'_>> = Vec::new();
    for draft in drafts {
        match all.iter_mut().find(|known| known.edits == draft.edits) {
            Some(known) => {
                known.places.extend(draft.places);
                known.nodes.extend(draft.nodes);
            }
            None => all.push(draft),
        }
    }
    all
}

/// Fails variants whose pods their owner would not know as its own any more, since a policy changes a label that its selector
/// needs. It would make pods without end.
pub(crate) fn fail_unselected(plan: &mut Plan, selector: &Selector) {
    let owner = plan.object.to_string();
    let is_around = |origin: &Origin, key: &str| {
        let label = ["metadata", "labels", key];
        let steps = origin.path.steps();
        steps.len() <= label.len()
            && steps.iter().zip(label).all(|(step, name)| matches!(step, Step::Field(field) if field == name))
    };
    for variant in &mut plan.variants {
        let Ok(rendering) = &variant.rendering else { continue };
        let Some(key) = unselected_label(selector, &plan.base, &rendering.document) else { continue };
        let policies = rendering.origins.iter().filter(|origin| origin.set_by.object != owner);
        if let Some(origin) = policies.rev().find(|origin| is_around(origin, key)) {
            let problem = EditProblem::SelectedLabel { key: key.to_owned() };
            variant.rendering = Err(EditError { source_of_edit: origin.set_by.clone(), problem });
        }
    }
}

/// The label of a template that a selector needs, and that the rendering has not got as it should be.
pub(crate) fn unselected_label<'s>(selector: &'s Selector, template: &Value, rendering: &Value) -> Option<&'s str> {
    let matches = |document: &Value, key: &str| {
        let labels = &document["metadata"]["labels"];
        selector.about(key).matches(|key| labels[key].as_str())
    };
    let mut keys = selector.requirements().iter().map(|requirement| requirement.key.as_str());
    keys.find(|key| matches(template, key) && !matches(rendering, key))
}

/// What Kubernetes would not take of a patch, each with its place; `patch_field` leads from the rule to the patch.
pub(crate) fn mistakes(kind: Document, edit: &Edit, patch_field: &str) -> Vec<Warning> {
    let Change::Merge(patch) = &edit.change else { return Vec::new() };
    let rule = format!("{}{patch_field}", edit.source.rule);
    mistakes_in(kind, patch, &Source { object: edit.source.object.clone(), rule })
}

fn mistakes_in(kind: Document, value: &Value, at: &Source) -> Vec<Warning> {
    let warning = |finding: Finding| Warning {
        reason: Reason::Mistake,
        rule: Source {
            object: at.object.clone(),
            rule: [at.rule.as_str(), &finding.path.to_string()].join(".").trim_start_matches('.').to_owned(),
        },
        text: finding.mistake.to_string(),
    };
    check_patch(kind, value).into_iter().map(warning).collect()
}

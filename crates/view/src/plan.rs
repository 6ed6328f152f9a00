//! What each kind of node gets, as `dapple plan` shows it.

mod pods;
mod pools;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use dapple_api::yaml;
use dapple_edit::edit::Source;
use dapple_edit::meaning::{NEWEST_FORM, hash_in_form};
use dapple_edit::render::Origin;
use dapple_plan::daemonset::fleet::ahead::Ahead;
use dapple_plan::daemonset::status::Problem;
use dapple_plan::fate::Fates;
use dapple_plan::pool::ahead::Ahead as PoolsAhead;
use dapple_plan::variant::{Plan, Variant, Warning};
use dapple_plan::world::Divided;
use serde::Serialize;
use serde_json::Value;

pub use pods::{PodView, PodsView, RolloutView, StepView};
pub use pools::{PoolView, PoolsView, TargetView};
pub use spread::{ShareView, SpreadView};

use crate::paint::{Tone, count, few, harmless, paint, paint_diff, unified};

/// One workload and its variants.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    /// The workload, as people name it.
    pub object: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its variants.
    pub variants: Vec<VariantView>,
    /// How many pods each group gets, if a policy divides them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadView>,
    /// What is probably not meant.
    pub warnings: Vec<WarningView>,
    /// What becomes of its pods; nothing where no cluster was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsView>,
    /// How the controller goes about it; nothing where no controller was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutView>,
    /// What becomes of the pools of an application, and in which wave; nothing where no cluster was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pools: Option<PoolsView>,
    /// Whether the cluster has something else now, or nothing of it; nothing where no cluster was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
}

/// Nodes that get the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VariantView {
    /// The groups or pools that they make up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
    /// The rules that made it, in the order they apply.
    pub rules: Vec<RuleView>,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Nodes that it cannot run on, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub misfits: BTreeMap<String, String>,
    /// Names the rendering; of a DaemonSet, what its pods carry as `controller-revision-hash`.
    pub hash: Option<String>,
    /// The pod template that these nodes get.
    pub template: Option<Value>,
    /// Why there is no rendering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Every field that differs from the base.
    pub changes: Vec<ChangeView>,
    /// The difference to the base, line by line.
    pub diff: String,
}

/// A rule of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleView {
    /// The object.
    pub object: String,
    /// The rule in it.
    pub rule: String,
}

/// A field that differs from the base.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeView {
    /// The field.
    pub field: String,
    /// What the base has.
    pub before: Option<Value>,
    /// What these nodes get.
    pub after: Option<Value>,
    /// The rule that set it.
    pub set_by: String,
    /// The rules that changed it before, and still have a part in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub built_on: Vec<String>,
    /// The rules that set it before and were overruled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overruled: Vec<OverruledView>,
}

/// A rule that set a field before another did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverruledView {
    /// The rule.
    pub rule: String,
    /// What it set.
    pub value: Option<Value>,
}

/// Something that is probably not meant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WarningView {
    /// What kind of thing, in one word.
    pub reason: String,
    /// Where it is written, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The rule.
    pub rule: String,
    /// In words.
    pub text: String,
}

impl PlanView {
    /// The view of a plan. `locate` says where a rule is written.
    pub fn new(plan: &Plan, locate: &dyn Fn(&Source) -> Option<String>) -> Self {
        let object = plan.object.to_string();
        let base = yaml::document(&plan.base);
        Self {
            kind: plan.object.kind.clone(),
            namespace: plan.object.namespace.clone(),
            name: plan.object.name.clone(),
            variants: plan.variants.iter().map(|variant| VariantView::new(plan, variant, &base, locate)).collect(),
            spread: plan.spread.as_ref().map(SpreadView::new),
            warnings: plan.warnings.iter().map(|known| WarningView::new(known, &object, locate)).collect(),
            pods: None,
            rollout: None,
            pools: None,
            changed: None,
            object,
        }
    }

    /// Beside a cluster: what becomes of its pods, and whether it has something else now.
    #[must_use]
    pub fn beside(mut self, fates: &Fates, changed: bool) -> Self {
        self.pods = Some(PodsView::new(fates));
        self.changed = Some(changed);
        self
    }

    /// With how its pods are divided among groups now.
    #[must_use]
    pub fn divided(mut self, divided: &Divided) -> Self {
        self.spread.iter_mut().for_each(|spread| spread.beside(divided));
        self
    }

    /// As the controller would go about it. `hashes` has, by what a rendering means, what its pods carry.
    #[must_use]
    pub fn foretold(mut self, ahead: &Ahead, hashes: &BTreeMap<Arc<str>, Arc<str>>) -> Self {
        for hash in self.variants.iter_mut().filter_map(|variant| variant.hash.as_mut()) {
            if let Some(carried) = hashes.get(hash.as_str()) {
                *hash = carried.to_string();
            }
        }
        self.rollout = Some(RolloutView::new(ahead));
        self
    }

    /// As the controller would go about the pools of an application.
    #[must_use]
    pub fn in_pools(mut self, ahead: &PoolsAhead) -> Self {
        self.pools = Some(PoolsView::new(ahead));
        self
    }

    /// With what the controller could not use of the workload.
    #[must_use]
    pub fn warned(mut self, problems: &[Problem]) -> Self {
        let rule = self.object.clone();
        self.warnings.extend(problems.iter().map(|problem| WarningView {
            reason: problem.reason.to_owned(),
            at: None,
            rule: rule.clone(),
            text: problem.text.clone(),
        }));
        self
    }

    /// Whether something would change in the cluster that was asked, and else whether some node gets something else than
    /// the base.
    pub fn differs(&self) -> bool {
        let is_pool_touched = self.pools.as_ref().is_some_and(PoolsView::differs);
        match (&self.pods, self.changed) {
            (Some(pods), changed) => {
                changed == Some(true) || is_pool_touched || pods.each.iter().any(PodView::is_touched)
            }
            (None, _) => self.variants.iter().any(|variant| !variant.changes.is_empty()),
        }
    }

    /// Whether some node gets nothing, because a rule does not apply.
    pub fn fails(&self) -> bool {
        self.variants.iter().any(|variant| variant.error.is_some())
    }

    /// For a terminal: with colour or without, `wide` with every node, field and pod.
    pub fn text(&self, colour: bool, wide: bool) -> String {
        // A node in several groups may get several variants.
        let nodes: BTreeSet<&String> = self.variants.iter().flat_map(|variant| &variant.nodes).collect();
        let heading =
            format!("{}: {}, {}", self.object, count(nodes.len(), "node"), count(self.variants.len(), "variant"));
        let mut text = format!("{}\n", paint(&heading, Tone::Heading, colour));
        if let Some(spread) = &self.spread {
            let _ = writeln!(text, "  {}", harmless(&spread.text()));
        }
        for variant in &self.variants {
            variant.write(&mut text, &self.object, colour, wide);
        }
        if let Some(pods) = &self.pods {
            pods.write(&mut text, wide);
        }
        if let Some(rollout) = &self.rollout {
            rollout.write(&mut text, wide);
        }
        if let Some(pools) = &self.pools {
            pools.write(&mut text, colour, wide);
        }
        if !self.warnings.is_empty() {
            text.push('\n');
        }
        for known in &self.warnings {
            let _ = writeln!(text, "  {}", known.text(colour));
        }
        text
    }
}

impl WarningView {
    /// The view of a warning beside a workload, whose own rules need no name. `locate` says where a rule is written.
    pub fn new(warning: &Warning, workload: &str, locate: &dyn Fn(&Source) -> Option<String>) -> Self {
        Self {
            reason: format!("{:?}", warning.reason),
            at: locate(&warning.rule),
            rule: warning.rule.beside(workload),
            text: warning.text.clone(),
        }
    }

    /// For a terminal.
    pub fn text(&self, colour: bool) -> String {
        let at = self.at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default();
        paint(&format!("warning: {at}{}: {}", self.rule, self.text), Tone::Warning, colour)
    }
}

impl VariantView {
    fn new(plan: &Plan, variant: &Variant, base: &str, locate: &dyn Fn(&Source) -> Option<String>) -> Self {
        let object = plan.object.to_string();
        let misfits = variant.misfits.iter().map(|(node, misfit)| (node.clone(), misfit.to_string())).collect();
        let mut view = Self {
            places: variant.places.clone(),
            rules: variant.rules.iter().map(RuleView::new).collect(),
            nodes: variant.nodes.clone(),
            misfits,
            hash: None,
            template: None,
            error: None,
            changes: Vec::new(),
            diff: String::new(),
        };
        match &variant.rendering {
            Ok(rendering) => {
                view.hash = Some(hash_in_form(NEWEST_FORM, plan.document, &rendering.document));
                view.template = plan.document.template(&rendering.document).cloned();
                view.changes = rendering.origins.iter().map(|origin| ChangeView::new(origin, &object)).collect();
                view.diff = unified(base, &yaml::document(&rendering.document));
            }
            Err(error) => {
                let at = locate(&error.source_of_edit).map(|at| format!("{at}: ")).unwrap_or_default();
                view.error = Some(format!("{at}{error}"));
            }
        }
        view
    }

    fn write(&self, text: &mut String, object: &str, colour: bool, wide: bool) {
        let places = if self.places.is_empty() { String::new() } else { format!("{}: ", self.places.join(", ")) };
        let names = if wide { self.nodes.join(", ") } else { few(&self.nodes) };
        let names = if names.is_empty() { String::new() } else { format!(" ({names})") };
        let heading = format!("{places}{}{names}", count(self.nodes.len(), "node"));
        let _ = writeln!(text, "\n  {}", paint(&heading, Tone::Heading, colour));
        if self.rules.is_empty() {
            let _ = writeln!(text, "    the template as it is");
        }
        for rules in self.rules.chunk_by(|one, other| one.object == other.object) {
            let names: Vec<&str> = rules.iter().map(|known| known.rule.as_str()).collect();
            let of = if rules[0].object == object { String::new() } else { format!("{} ", rules[0].object) };
            let _ = writeln!(text, "    {}", harmless(&format!("by {of}{}", names.join(", "))));
        }
        if let Some(error) = &self.error {
            let kept = if self.nodes.is_empty() { "" } else { "; these nodes keep what they run" };
            let line = format!("error: {error}{kept}");
            let _ = writeln!(text, "    {}", paint(&line, Tone::Bad, colour));
        }
        text.push_str(&paint_diff(&self.diff, "    ", colour));
        for change in
            self.changes.iter().filter(|change| wide || !change.overruled.is_empty() || !change.built_on.is_empty())
        {
            change.write(text, colour, wide);
        }
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (node, why) in &self.misfits {
            reasons.entry(why).or_default().push(node.clone());
        }
        for (why, nodes) in reasons {
            let names = if wide { nodes.join(", ") } else { few(&nodes) };
            let line = format!("not on {} ({names}): {why}", count(nodes.len(), "node"));
            let _ = writeln!(text, "    {}", paint(&line, Tone::Aside, colour));
        }
    }
}

impl RuleView {
    fn new(source: &Source) -> Self {
        Self { object: source.object.clone(), rule: source.rule.clone() }
    }
}

impl ChangeView {
    pub(crate) fn new(origin: &Origin, object: &str) -> Self {
        let overruled =
            |(by, value): &(Source, Option<Value>)| OverruledView { rule: by.beside(object), value: value.clone() };
        Self {
            field: origin.path.to_string(),
            before: origin.before.clone(),
            after: origin.after.clone(),
            set_by: origin.set_by.beside(object),
            built_on: origin.built_on.iter().map(|source| source.beside(object)).collect(),
            overruled: origin.overruled.iter().map(overruled).collect(),
        }
    }

    fn write(&self, text: &mut String, colour: bool, wide: bool) {
        let mut line = format!("{}: {}", self.field, self.set_by);
        if wide {
            let _ = match (&self.before, &self.after) {
                (Some(before), Some(after)) => write!(line, " changes {before} to {after}"),
                (Some(before), None) => write!(line, " removes {before}"),
                (None, after) => write!(line, " adds {}", shown(after.as_ref())),
            };
        }
        if !self.built_on.is_empty() {
            let _ = write!(line, "{}on top of {}", if wide { ", " } else { " " }, self.built_on.join(", "));
        }
        if !self.overruled.is_empty() {
            let rules: Vec<&str> = self.overruled.iter().map(|known| known.rule.as_str()).collect();
            let _ = write!(line, "{}overrules {}", if wide { ", " } else { " " }, rules.join(", "));
        }
        let _ = writeln!(text, "    {}", paint(&line, Tone::Aside, colour));
    }
}

/// A value in a sentence.
pub(crate) fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

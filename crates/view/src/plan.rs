//! What each kind of node gets, as `dapple plan` shows it.

use std::fmt::Write;

use dapple_plan::daemonset::{Plan, Variant, Warning};
use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// One workload and its variants.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    /// The workload, as people name it.
    pub object: String,
    /// Its variants.
    pub variants: Vec<VariantView>,
    /// What is probably not meant.
    pub warnings: Vec<String>,
}

/// Nodes that get the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VariantView {
    /// The rules that made it, in the order they apply.
    pub rules: Vec<String>,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Names the rendering.
    pub hash: Option<String>,
    /// Why there is no rendering.
    pub error: Option<String>,
    /// Every field that differs from the base.
    pub changes: Vec<ChangeView>,
    /// The difference to the base, line by line.
    pub diff: String,
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
    /// The rules that set it before and were overruled.
    pub overruled: Vec<String>,
}

impl PlanView {
    /// The view of a plan on this base template.
    pub fn new(object: &str, base: &Value, plan: &Plan) -> Self {
        let base_text = yaml(base);
        let variants = plan.variants.iter().map(|variant| VariantView::new(variant, &base_text)).collect();
        Self { object: object.to_owned(), variants, warnings: plan.warnings.iter().map(warning).collect() }
    }

    /// Whether some node gets something else than the base.
    pub fn differs(&self) -> bool {
        self.variants.iter().any(|variant| !variant.changes.is_empty())
    }

    /// Whether some node gets nothing, because a rule does not apply.
    pub fn fails(&self) -> bool {
        self.variants.iter().any(|variant| variant.error.is_some())
    }

    /// For a terminal, with colour or without.
    pub fn text(&self, colour: bool) -> String {
        let mut text = format!("{}\n", self.object);
        for variant in &self.variants {
            variant.write(&mut text, colour);
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "  {}", paint(&format!("warning: {warning}"), "33", colour));
        }
        text
    }
}

impl VariantView {
    fn new(variant: &Variant, base: &str) -> Self {
        let (rules, nodes) = (variant.rules.clone(), variant.nodes.clone());
        let rendering = match &variant.rendering {
            Ok(rendering) => rendering,
            Err(error) => {
                let error = Some(error.to_string());
                return Self { rules, nodes, hash: None, error, changes: Vec::new(), diff: String::new() };
            }
        };
        let change = |origin: &dapple_edit::render::Origin| ChangeView {
            field: origin.path.to_string(),
            before: origin.before.clone(),
            after: origin.after.clone(),
            set_by: origin.set_by.rule.clone(),
            overruled: origin.overruled.iter().map(|(by, _)| by.rule.clone()).collect(),
        };
        Self {
            rules,
            nodes,
            hash: Some(rendering.hash.clone()),
            error: None,
            changes: rendering.origins.iter().map(change).collect(),
            diff: unified(base, &yaml(&rendering.template)),
        }
    }

    fn write(&self, text: &mut String, colour: bool) {
        let count = self.nodes.len();
        let by = if self.rules.is_empty() { "the template as it is".to_owned() } else { self.rules.join(", ") };
        let plural = if count == 1 { "" } else { "s" };
        let heading = format!("{count} node{plural} ({}): {by}", few(&self.nodes));
        let _ = writeln!(text, "\n  {}", paint(&heading, "1", colour));
        if let Some(error) = &self.error {
            let _ = writeln!(
                text,
                "    {}",
                paint(&format!("error: {error}; these nodes keep what they run"), "31", colour)
            );
        }
        for line in self.diff.lines() {
            let code = match line.as_bytes().first() {
                Some(b'+') => "32",
                Some(b'-') => "31",
                Some(b'@') => "36",
                _ => "0",
            };
            let _ = writeln!(text, "    {}", if code == "0" { line.to_owned() } else { paint(line, code, colour) });
        }
        for change in self.changes.iter().filter(|change| !change.overruled.is_empty()) {
            let line = format!("{}: {} overrules {}", change.field, change.set_by, change.overruled.join(", "));
            let _ = writeln!(text, "    {line}");
        }
    }
}

fn warning(warning: &Warning) -> String {
    match warning {
        Warning::BadSelector(bad) => format!("{bad}; the patch matches no node"),
        Warning::NoNode { rule } => format!("{rule} matches no node"),
        Warning::NoEffect { rule } => format!("{rule} changes nothing: later patches, or the template, set the same"),
        Warning::Odd { rule, text } => format!("{rule}: {text}"),
    }
}

/// The first names of many.
fn few(nodes: &[String]) -> String {
    let first = nodes.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if nodes.len() > 3 { format!("{first}, …") } else { first }
}

fn paint(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// A unified difference without file names, three lines of context.
fn unified(before: &str, after: &str) -> String {
    let mut text = String::new();
    for hunk in TextDiff::from_lines(before, after).unified_diff().context_radius(3).iter_hunks() {
        let _ = writeln!(text, "{}", hunk.header());
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let _ = writeln!(text, "{sign}{}", change.value().trim_end_matches('\n'));
        }
    }
    text
}

//! The rules of an OverridePolicy as edits.

use dapple_api::group::{
    CommandArgsOverrider, ImageComponent, ImageOverrider, OverridePolicySpec, OverriderOperator, PlaintextOverrider,
    RuleWithNodeGroup,
};
use serde_json::Value;

use crate::edit::{Change, Edit, ImageOperator, PlainOperator, Source, WordList, WordOperator};
use crate::image::Component;

mod fields;
mod validate;

pub use fields::refuse_unknown_fields;
pub use validate::validate_override_policy;

/// The edits for pods in these groups: rules in list order, each once; in a rule images, commands, arguments, then any
/// field. A pod in no group gets none, not even of a rule for all groups. A rule with a field that there is not fails where it
/// applies: it may be for other groups than it seems.
pub fn edits(object: &str, spec: &OverridePolicySpec, groups: &[&str]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let targets = |rule: &RuleWithNodeGroup| groups.iter().any(|group| rule.targets(group));
    for (index, rule) in spec.override_rules.iter().enumerate().filter(|(_, rule)| targets(rule)) {
        if let Some(field) = rule.unknown.keys().next() {
            let rule = format!("spec.overrideRules[{index}].{field}");
            let source = Source { object: object.to_owned(), rule };
            let change = Change::Impossible("there is no such field, so what the rule is for is not known: correct it");
            edits.push(Edit { source, change });
            continue;
        }
        let overriders = rule.overriders();
        let within = if rule.overriders.is_some() { ".overriders" } else { "" };
        let mut add = |list: &str, item: usize, change: Result<Change, &'static str>| {
            let rule = format!("spec.overrideRules[{index}]{within}.{list}[{item}]");
            let change = change.unwrap_or_else(Change::Impossible);
            edits.push(Edit { source: Source { object: object.to_owned(), rule }, change });
        };
        for (item, image) in overriders.image_overrider.iter().enumerate() {
            add("imageOverrider", item, image_change(image));
        }
        for (item, words) in overriders.command_overrider.iter().enumerate() {
            add("commandOverrider", item, words_change(words, WordList::Command));
        }
        for (item, words) in overriders.args_overrider.iter().enumerate() {
            add("argsOverrider", item, words_change(words, WordList::Args));
        }
        for (item, plain) in overriders.plaintext.iter().enumerate() {
            add("plaintext", item, plain_change(plain));
        }
    }
    edits
}

fn image_change(overrider: &ImageOverrider) -> Result<Change, &'static str> {
    let value = overrider.value.clone().filter(|value| !value.is_empty());
    let value = value.ok_or("value is required for the operators add and replace");
    let operator = match overrider.operator {
        OverriderOperator::Add => ImageOperator::Add(value?),
        OverriderOperator::Replace => ImageOperator::Replace(value?),
        OverriderOperator::Remove => ImageOperator::Remove,
    };
    let only_at = overrider.predicate.as_ref().map(|predicate| predicate.path.clone());
    Ok(Change::Image { only_at, component: component(overrider.component), operator })
}

fn component(component: ImageComponent) -> Component {
    match component {
        ImageComponent::Registry => Component::Registry,
        ImageComponent::Repository => Component::Repository,
        ImageComponent::Tag => Component::Tag,
    }
}

fn words_change(overrider: &CommandArgsOverrider, list: WordList) -> Result<Change, &'static str> {
    let operator = match overrider.operator {
        OverriderOperator::Add => WordOperator::Add,
        OverriderOperator::Remove => WordOperator::Remove,
        OverriderOperator::Replace => {
            return Err("operator replace is not possible here: remove the old items, then add");
        }
    };
    Ok(Change::Words { container: overrider.container_name.clone(), list, operator, words: overrider.value.clone() })
}

fn plain_change(overrider: &PlaintextOverrider) -> Result<Change, &'static str> {
    let value = overrider.value.clone().ok_or("value is required for the operators add and replace");
    let (operator, value) = match overrider.operator.canonical() {
        OverriderOperator::Add => (PlainOperator::Add, value?),
        OverriderOperator::Replace => (PlainOperator::Replace, value?),
        OverriderOperator::Remove => (PlainOperator::Remove, Value::Null),
    };
    Ok(Change::Plain { path: overrider.path.clone(), operator, value })
}

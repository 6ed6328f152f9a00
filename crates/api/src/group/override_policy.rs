//! OverridePolicy: how an application's pods differ between groups.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::OverridePolicyStatus;
use crate::object::resource;

resource! {
    /// Changes the pods of an application by the node group they run in. A workload of the same namespace asks for it with
    /// the label `groupmanagement.kubeedge.io/required-overridepolicy`.
    pub struct OverridePolicy: OVERRIDE_POLICY, NamespaceResourceScope {
        /// What changes in which group.
        pub spec: OverridePolicySpec,
        /// What dapple found out about the policy. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<OverridePolicyStatus>,
    }
}

/// What changes in which group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicySpec {
    /// Rules, applied in order; the last one wins where two change the same field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub override_rules: Vec<RuleWithNodeGroup>,
}

/// Changes for some groups. They are written under `overriders`, or directly beside `targetNodeGroup`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", from = "WrittenRule")]
// Without its misspelt `targetNodeGroup`, a rule would be for all groups: what is not known is kept, and refused.
#[schemars(!from, extend("x-kubernetes-preserve-unknown-fields" = true), extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.overriders) || !(has(self.imageOverrider) || has(self.commandOverrider) || \
                 has(self.argsOverrider) || has(self.plaintext))",
        "message": "write overriders either under `overriders` or directly in the rule, not both"
    },
    {
        "rule": "has(self.overriders) || has(self.imageOverrider) || has(self.commandOverrider) || \
                 has(self.argsOverrider) || has(self.plaintext)",
        "message": "a rule needs an imageOverrider, commandOverrider, argsOverrider or plaintext"
    }
]))]
pub struct RuleWithNodeGroup {
    /// Names of the groups that the rule is for. Absent: all groups. Names compare without case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub target_node_group: Option<Vec<String>>,
    /// The changes, unless they stand directly in the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overriders: Option<Overriders>,
    /// The changes, where they stand directly in the rule. Read them with [`RuleWithNodeGroup::overriders`].
    #[serde(flatten)]
    pub direct: Overriders,
    /// Fields that there are not, such as a misspelt `targetNodeGroup`. A rule with any of them changes nothing.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// A rule as it is written. A field that cannot be read is told with its name only where none of the others is part of a type
/// of its own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRule {
    target_node_group: Option<Vec<String>>,
    overriders: Option<Overriders>,
    #[serde(default)]
    image_overrider: Vec<ImageOverrider>,
    #[serde(default)]
    command_overrider: Vec<CommandArgsOverrider>,
    #[serde(default)]
    args_overrider: Vec<CommandArgsOverrider>,
    #[serde(default)]
    plaintext: Vec<PlaintextOverrider>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl From<WrittenRule> for RuleWithNodeGroup {
    fn from(rule: WrittenRule) -> Self {
        let WrittenRule { target_node_group, overriders, unknown, .. } = rule;
        let direct = Overriders {
            image_overrider: rule.image_overrider,
            command_overrider: rule.command_overrider,
            args_overrider: rule.args_overrider,
            plaintext: rule.plaintext,
        };
        Self { target_node_group, overriders, direct, unknown }
    }
}

/// Changes to a pod, applied in the order image, command, args, plaintext.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Overriders {
    /// Changes to parts of image names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub image_overrider: Vec<ImageOverrider>,
    /// Changes to the command of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command_overrider: Vec<CommandArgsOverrider>,
    /// Changes to the arguments of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub args_overrider: Vec<CommandArgsOverrider>,
    /// Changes to any field, one JSON patch operation each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub plaintext: Vec<PlaintextOverrider>,
}

/// A change to one part of image names, which are `[registry/]repository[:tag|@digest]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("x-kubernetes-validations" = [{
    "rule": "self.operator == 'remove' || (has(self.value) && size(self.value) > 0)",
    "message": "value is required for the operators add and replace"
}]))]
pub struct ImageOverrider {
    /// Which image to change. Absent: those of all containers, init containers excepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// The part to change.
    pub component: ImageComponent,
    /// What to do with the part: add appends the value to it, replace sets it, remove clears it.
    pub operator: OverriderOperator,
    /// The text to append or set, for example `hangzhou.registry.io`. Ignored by remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub value: Option<String>,
}

/// Which image to change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ImagePredicate {
    /// JSON pointer to the image in the pod, for example `/spec/initContainers/0/image`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

/// A part of an image name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageComponent {
    /// The host before the first slash, such as registry.example:10443.
    Registry,
    /// The path, such as library/nginx.
    Repository,
    /// The tag or digest, such as v1.19.1 or sha256:dbcc1c…
    Tag,
}

/// What to do with the target of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OverriderOperator {
    /// Append the value.
    Add,
    /// Set the value.
    Replace,
    /// Clear the target.
    Remove,
}

/// A change to the command or arguments of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("x-kubernetes-validations" = [{
    "rule": "self.operator != 'replace'",
    "message": "operator replace is not possible for command and args: remove the old items, then add the new ones"
}]))]
pub struct CommandArgsOverrider {
    /// The container's name.
    #[schemars(length(min = 1, max = 63))]
    pub container_name: String,
    /// What to do: add appends the items, remove drops every item that equals one of them.
    #[schemars(extend("enum" = ["add", "remove", "replace"]))]
    pub operator: OverriderOperator,
    /// The items. Absent or empty, nothing changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub value: Vec<String>,
}

/// A change to any field of a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct PlaintextOverrider {
    /// JSON pointer to the field in the pod, for example `/spec/terminationGracePeriodSeconds`. The first slash may be
    /// missing; `/` in a key is written `~1`, `~` is written `~0`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// What to do with the field, as in a JSON patch: replace needs the field to be there.
    pub operator: PlaintextOperator,
    /// The value for add and replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// What to do with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlaintextOperator {
    /// Set the field, or insert into a list.
    Add,
    /// Set the field, which must be there.
    Replace,
    /// Another word for replace.
    Update,
    /// Remove the field, which must be there.
    Remove,
}

impl RuleWithNodeGroup {
    /// The changes, wherever they are written: those under `overriders` first, then those directly in the rule.
    pub fn overriders(&self) -> Cow<'_, Overriders> {
        let Some(nested) = &self.overriders else {
            return Cow::Borrowed(&self.direct);
        };
        if self.direct == Overriders::default() {
            return Cow::Borrowed(nested);
        }
        let mut all = nested.clone();
        all.image_overrider.extend(self.direct.image_overrider.iter().cloned());
        all.command_overrider.extend(self.direct.command_overrider.iter().cloned());
        all.args_overrider.extend(self.direct.args_overrider.iter().cloned());
        all.plaintext.extend(self.direct.plaintext.iter().cloned());
        Cow::Owned(all)
    }

    /// Whether the rule is for a group of this name, whatever its case.
    pub fn targets(&self, group: &str) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name.eq_ignore_ascii_case(group));
        self.target_node_group.as_ref().is_none_or(named)
    }
}

impl PlaintextOperator {
    /// The operator with one word for one thing: update is replace.
    pub fn canonical(self) -> OverriderOperator {
        match self {
            Self::Add => OverriderOperator::Add,
            Self::Replace | Self::Update => OverriderOperator::Replace,
            Self::Remove => OverriderOperator::Remove,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> RuleWithNodeGroup {
        serde_json::from_str(json).expect("parses")
    }

    #[test]
    fn overriders_are_read_in_both_places() {
        let image = r#""imageOverrider": [{"component": "Tag", "operator": "remove"}]"#;
        let nested = rule(&format!(r#"{{"overriders": {{{image}}}}}"#));
        let direct = rule(&format!(r#"{{{image}}}"#));
        let both = rule(&format!(r#"{{"overriders": {{{image}}}, {image}}}"#));
        assert_eq!(nested.overriders(), direct.overriders());
        assert_eq!(both.overriders().image_overrider.len(), 2);
        assert_eq!(direct.overriders().image_overrider[0].operator, OverriderOperator::Remove);
    }

    #[test]
    fn what_cannot_be_read_directly_in_a_rule_has_its_field() {
        for (json, field) in [
            (r#"{"imageOverrider": [{"component": "Tag", "operator": "take"}]}"#, "imageOverrider[0].operator"),
            (r#"{"commandOverrider": {}}"#, "commandOverrider"),
            (
                r#"{"argsOverrider": [{"containerName": "c", "operator": "add", "value": [1]}]}"#,
                "argsOverrider[0].value[0]",
            ),
            (r#"{"plaintext": [{"path": "/spec", "operator": "add"}, {"path": "/spec"}]}"#, "plaintext[1].operator"),
            (r#"{"overriders": {"plaintext": [{"operator": "add"}]}}"#, "overriders.plaintext[0].path"),
            (r#"{"targetNodeGroup": ["a", 1]}"#, "targetNodeGroup[1]"),
        ] {
            let value: Value = serde_json::from_str(json).expect("JSON");
            let error = crate::reading::read::<RuleWithNodeGroup>(&value).expect_err(json);
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn fields_that_there_are_not_are_kept() {
        let json = r#"{"targetNodegroup":["a"],"plaintext":[{"path":"/spec/x","operator":"remove"}]}"#;
        let misspelt = rule(json);
        assert_eq!(misspelt.unknown.keys().collect::<Vec<_>>(), ["targetNodegroup"]);
        assert!(misspelt.target_node_group.is_none() && misspelt.direct.plaintext.len() == 1);
        let written: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(serde_json::to_value(&misspelt).expect("JSON"), written);
    }

    #[test]
    fn groups_compare_without_case_and_absent_means_all() {
        let beijing = rule(r#"{"targetNodeGroup": ["Beijing"]}"#);
        assert!(beijing.targets("beijing") && !beijing.targets("hangzhou"));
        assert!(rule("{}").targets("hangzhou"));
        assert!(!rule(r#"{"targetNodeGroup": []}"#).targets("hangzhou"));
    }

    #[test]
    fn update_is_replace() {
        use PlaintextOperator::{Add, Remove, Replace, Update};
        let canonical = [Add, Replace, Update, Remove].map(PlaintextOperator::canonical);
        use OverriderOperator as Op;
        assert_eq!(canonical, [Op::Add, Op::Replace, Op::Replace, Op::Remove]);
    }
}

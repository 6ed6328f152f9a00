//! PropagationPolicy: how many pods of an application run in each group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PropagationPolicyStatus;
use crate::object::resource;

resource! {
    /// Divides the pods of an application among node groups. A workload of the same namespace asks for it with the label
    /// `groupmanagement.kubeedge.io/required-propagationpolicy`.
    pub struct PropagationPolicy: PROPAGATION_POLICY, NamespaceResourceScope {
        /// How pods are divided.
        pub spec: PropagationPolicySpec,
        /// What dapple found out about the policy. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<PropagationPolicyStatus>,
    }
}

/// How pods are divided among groups. Groups that are not listed get none. Names compare without case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.propagationStrategy) || !(has(self.staticWeightList) && size(self.staticWeightList) > 0 && \
                 has(self.numRange) && size(self.numRange) > 0)",
        "message": "staticWeightList and numRange are both set: say which one counts with propagationStrategy"
    },
    {
        "rule": "!has(self.propagationStrategy) || self.propagationStrategy != 'StaticWeight' || \
                 (has(self.staticWeightList) && size(self.staticWeightList) > 0)",
        "message": "propagationStrategy StaticWeight needs staticWeightList"
    },
    {
        "rule": "!has(self.propagationStrategy) || self.propagationStrategy != 'NumRange' || \
                 (has(self.numRange) && size(self.numRange) > 0)",
        "message": "propagationStrategy NumRange needs numRange"
    },
    {
        "rule": "(has(self.staticWeightList) && size(self.staticWeightList) > 0) || \
                 (has(self.numRange) && size(self.numRange) > 0)",
        "message": "set staticWeightList or numRange, or no group gets a pod"
    }
]))]
pub struct PropagationPolicySpec {
    /// Which of the two lists counts. Default: the one that is set; if both are, this is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation_strategy: Option<PropagationStrategy>,
    /// Weights of groups: with 2 for beijing and 3 for hangzhou, five pods become two and three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub static_weight_list: Vec<StaticNodeGroupWeight>,
    /// Least and greatest numbers of pods in groups. Every group gets its least number, in list order; the rest is
    /// spread evenly up to the greatest numbers; what is left waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub num_range: Vec<NumRange>,
}

/// How pods are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PropagationStrategy {
    /// In proportion to the weights of `staticWeightList`.
    StaticWeight,
    /// Within the numbers of `numRange`.
    NumRange,
}

/// The weight of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticNodeGroupWeight {
    /// Names of the groups. Each of them gets the weight.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 253)))]
    pub node_group_names: Vec<String>,
    /// The weight, at least 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: i64,
}

/// The number of pods in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.max) || (has(self.min) ? self.min : 0) <= self.max",
    "message": "min must not be above max"
}]))]
pub struct NumRange {
    /// Names of the groups. Each of them gets the range.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 253)))]
    pub node_group_names: Vec<String>,
    /// The least number of pods in the group. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min: Option<i32>,
    /// The greatest number of pods in the group. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max: Option<i32>,
}

impl PropagationPolicySpec {
    /// Which list counts: as stated, or the one that is set. `None` where both or none are set without a statement,
    /// which the API server refuses.
    pub fn strategy(&self) -> Option<PropagationStrategy> {
        let implied = match (self.static_weight_list.is_empty(), self.num_range.is_empty()) {
            (false, true) => Some(PropagationStrategy::StaticWeight),
            (true, false) => Some(PropagationStrategy::NumRange),
            _ => None,
        };
        self.propagation_strategy.or(implied)
    }
}

impl NumRange {
    /// The least number of pods: 0 by default.
    pub fn min(&self) -> i32 {
        self.min.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_that_is_set_decides() {
        let weights = vec![StaticNodeGroupWeight::default()];
        let ranges = vec![NumRange::default()];
        let mut spec = PropagationPolicySpec { static_weight_list: weights.clone(), ..Default::default() };
        assert_eq!(spec.strategy(), Some(PropagationStrategy::StaticWeight));
        spec.num_range = ranges.clone();
        assert_eq!(spec.strategy(), None);
        spec.propagation_strategy = Some(PropagationStrategy::NumRange);
        assert_eq!(spec.strategy(), Some(PropagationStrategy::NumRange));
        let spec = PropagationPolicySpec { num_range: ranges, ..Default::default() };
        assert_eq!(spec.strategy(), Some(PropagationStrategy::NumRange));
        assert_eq!(spec.num_range[0].min(), 0);
        assert_eq!(PropagationPolicySpec::default().strategy(), None);
    }
}

//! What a DaemonSet means where it says nothing. The CRD states some of these defaults too, but objects also come from
//! files, from other products, and from tests.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{DaemonSetPatch, DaemonSetSpec, RollingUpdate, RollingUpdateType, UpdateStrategyType};

/// The rolling update of a spec that has none.
static NO_ROLLING_UPDATE: RollingUpdate = RollingUpdate {
    rolling_update_type: None,
    max_unavailable: None,
    max_surge: None,
    selector: None,
    partition: None,
    paused: None,
};

impl DaemonSetSpec {
    /// When pods are replaced: `RollingUpdate` by default.
    pub fn update_strategy_type(&self) -> UpdateStrategyType {
        self.update_strategy.as_ref().and_then(|strategy| strategy.kind).unwrap_or_default()
    }

    /// How a rolling update proceeds; all fields absent by default. `OnDelete` ignores whatever is written there: it may
    /// be left from before.
    pub fn rolling_update(&self) -> &RollingUpdate {
        match self.update_strategy_type() {
            UpdateStrategyType::RollingUpdate => self.written_rolling_update(),
            UpdateStrategyType::OnDelete => &NO_ROLLING_UPDATE,
        }
    }

    /// What is written as the rolling update, whether it counts or not.
    pub fn written_rolling_update(&self) -> &RollingUpdate {
        let written = self.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        written.unwrap_or(&NO_ROLLING_UPDATE)
    }

    /// Seconds that a pod must be ready before it counts as available: 0 by default.
    pub fn min_ready_seconds(&self) -> i32 {
        self.min_ready_seconds.unwrap_or(0)
    }

    /// How many pods may be created, deleted or updated in place at once: 250 by default.
    pub fn burst_replicas(&self) -> IntOrString {
        self.burst_replicas.clone().unwrap_or(IntOrString::Int(250))
    }

    /// How many old revisions to keep: 10 by default.
    pub fn revision_history_limit(&self) -> i32 {
        self.revision_history_limit.unwrap_or(10)
    }

    /// Whether the partition holds back creation too: not by default.
    pub fn partitioned_scaling(&self) -> bool {
        self.scale_strategy.as_ref().and_then(|strategy| strategy.partitioned_scaling).unwrap_or(false)
    }
}

impl DaemonSetPatch {
    /// Its priority: 0 by default.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }
}

impl RollingUpdate {
    /// How a pod gets its new template: `Standard` by default.
    pub fn rolling_update_type(&self) -> RollingUpdateType {
        self.rolling_update_type.unwrap_or_default()
    }

    /// How many nodes may be without an available pod: 1 by default, 0 where `maxSurge` is above 0.
    pub fn max_unavailable(&self) -> IntOrString {
        let default = if is_zero(&self.max_surge()) { 1 } else { 0 };
        self.max_unavailable.clone().unwrap_or(IntOrString::Int(default))
    }

    /// How many nodes may run old and new pod side by side: 0 by default.
    pub fn max_surge(&self) -> IntOrString {
        self.max_surge.clone().unwrap_or(IntOrString::Int(0))
    }

    /// How many nodes to hold back on the old revision: 0 by default.
    pub fn partition(&self) -> IntOrString {
        self.partition.clone().unwrap_or(IntOrString::Int(0))
    }

    /// Whether updates are stopped: not by default.
    pub fn paused(&self) -> bool {
        self.paused.unwrap_or(false)
    }
}

/// Whether a number or percentage is zero.
pub(super) fn is_zero(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(text) => text.trim_end_matches('%') == "0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemonset::{DaemonSetUpdateStrategy, ScaleStrategy};

    #[test]
    fn an_empty_spec_has_the_documented_defaults() {
        let spec = DaemonSetSpec::default();
        assert_eq!(spec.update_strategy_type(), UpdateStrategyType::RollingUpdate);
        assert_eq!(spec.rolling_update().rolling_update_type(), RollingUpdateType::Standard);
        assert_eq!(spec.rolling_update().max_unavailable(), IntOrString::Int(1));
        assert_eq!(spec.rolling_update().max_surge(), IntOrString::Int(0));
        assert_eq!(spec.rolling_update().partition(), IntOrString::Int(0));
        assert!(!spec.rolling_update().paused());
        assert_eq!(spec.min_ready_seconds(), 0);
        assert_eq!(spec.burst_replicas(), IntOrString::Int(250));
        assert_eq!(spec.revision_history_limit(), 10);
        assert!(!spec.partitioned_scaling());
    }

    #[test]
    fn a_full_spec_keeps_what_it_says() {
        let percent = |text: &str| Some(IntOrString::String(text.into()));
        let rolling_update = RollingUpdate {
            rolling_update_type: Some(RollingUpdateType::InPlaceIfPossible),
            max_unavailable: percent("20%"),
            partition: percent("50%"),
            paused: Some(true),
            ..RollingUpdate::default()
        };
        let spec = DaemonSetSpec {
            update_strategy: Some(DaemonSetUpdateStrategy {
                kind: Some(UpdateStrategyType::RollingUpdate),
                rolling_update: Some(rolling_update.clone()),
            }),
            scale_strategy: Some(ScaleStrategy { partitioned_scaling: Some(true) }),
            ..DaemonSetSpec::default()
        };
        assert_eq!(spec.update_strategy_type(), UpdateStrategyType::RollingUpdate);
        assert_eq!(*spec.rolling_update(), rolling_update);
        assert_eq!(Some(spec.rolling_update().max_unavailable()), percent("20%"));
        assert!(spec.rolling_update().paused() && spec.partitioned_scaling());
    }

    #[test]
    fn on_delete_ignores_what_is_left_of_a_rolling_update() {
        let left = RollingUpdate {
            rolling_update_type: Some(RollingUpdateType::InPlaceIfPossible),
            max_surge: Some(IntOrString::Int(3)),
            partition: Some(IntOrString::Int(2)),
            paused: Some(true),
            ..RollingUpdate::default()
        };
        let kind = Some(UpdateStrategyType::OnDelete);
        let strategy = DaemonSetUpdateStrategy { kind, rolling_update: Some(left.clone()) };
        let spec = DaemonSetSpec { update_strategy: Some(strategy), ..DaemonSetSpec::default() };
        assert_eq!(*spec.rolling_update(), RollingUpdate::default());
        assert_eq!(*spec.written_rolling_update(), left, "it is still checked, and comes back with RollingUpdate");
    }

    #[test]
    fn surge_alone_leaves_nothing_unavailable() {
        for (surge, unavailable) in [("0%", 1), ("10%", 0)] {
            let update =
                RollingUpdate { max_surge: Some(IntOrString::String(surge.into())), ..RollingUpdate::default() };
            assert_eq!(update.max_unavailable(), IntOrString::Int(unavailable), "{surge}");
        }
    }
}

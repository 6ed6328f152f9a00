//! How the pods of a workload are divided among groups.

use dapple_plan::variant::{Share, Spread};
use serde::Serialize;

/// How the pods of a workload are divided among groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadView {
    /// Each group, in the order of the policy.
    pub groups: Vec<ShareView>,
    /// Pods that have no place in any group.
    pub without_place: usize,
}

/// The pods of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareView {
    /// The group.
    pub group: String,
    /// How many pods it gets.
    pub pods: usize,
    /// Whether there is such a group.
    pub is_there: bool,
}

impl SpreadView {
    pub(super) fn new(spread: &Spread) -> Self {
        let share =
            |share: &Share| ShareView { group: share.group.clone(), pods: share.pods, is_there: share.is_there };
        Self { groups: spread.groups.iter().map(share).collect(), without_place: spread.without_place }
    }

    pub(super) fn text(&self) -> String {
        let share = |share: &ShareView| {
            let waits = if share.is_there || share.pods == 0 { "" } else { " (no such group: they wait for it)" };
            format!("{} {}{waits}", share.group, share.pods)
        };
        let shares: Vec<String> = self.groups.iter().map(share).collect();
        let waiting = match self.without_place {
            0 => String::new(),
            1 => "; 1 pod waits: every group has its greatest number".to_owned(),
            pods => format!("; {pods} pods wait: every group has its greatest number"),
        };
        format!("pods per group: {}{waiting}", shares.join(", "))
    }
}

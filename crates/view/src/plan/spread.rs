//! How the pods of a workload are divided among groups.

use dapple_plan::variant::{Share, Spread};
use dapple_plan::world::Divided;
use serde::Serialize;
use serde_json::Value;

/// How the pods of a workload are divided among groups.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadView {
    /// Each group, in the order of the policy.
    pub groups: Vec<ShareView>,
    /// Pods that have no place in any group.
    pub without_place: usize,
    /// So many pods that nothing owns are divided together; nothing for pods of a workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<usize>,
}

/// The pods of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareView {
    /// The group.
    pub group: String,
    /// How many pods it gets.
    pub pods: usize,
    /// How many it has now; nothing where no cluster was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<usize>,
    /// Whether there is such a group.
    pub is_there: bool,
    /// The edition of its pods; nothing if no rule is for the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edition: Option<String>,
    /// A pod as it is once it is placed there; nothing if there is no such group, or rules do not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Value>,
}

impl SpreadView {
    pub(super) fn new(spread: &Spread) -> Self {
        let share = |share: &Share| ShareView {
            group: share.group.clone(),
            pods: share.pods,
            current: None,
            is_there: share.is_there,
            edition: share.edition.clone(),
            pod: share.pod.clone(),
        };
        Self {
            groups: spread.groups.iter().map(share).collect(),
            without_place: spread.without_place,
            together: spread.together,
        }
    }

    /// Beside a cluster: how many pods each group has now.
    pub(super) fn beside(&mut self, divided: &Divided) {
        for share in &mut self.groups {
            let known = divided.current.iter().find(|(group, _)| *group == share.group);
            share.current = known.map(|(_, pods)| *pods);
        }
    }

    pub(super) fn text(&self) -> String {
        let share = |share: &ShareView| {
            let waits = if share.is_there || share.pods == 0 { "" } else { " (no such group: they wait for it)" };
            let now = match share.current {
                Some(current) if current != share.pods => format!(" (now {current})"),
                _ => String::new(),
            };
            format!("{} {}{now}{waits}", share.group, share.pods)
        };
        let shares: Vec<String> = self.groups.iter().map(share).collect();
        let waiting = match self.without_place {
            0 => String::new(),
            1 => "; 1 pod waits: every group has its greatest number".to_owned(),
            pods => format!("; {pods} pods wait: every group has its greatest number"),
        };
        let together = self.together.map(|pods| format!(", of {pods} that nothing owns and that ask for the policy"));
        format!("pods per group{}: {}{waiting}", together.unwrap_or_default(), shares.join(", "))
    }
}

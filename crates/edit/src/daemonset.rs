//! The patches of a DaemonSet as edits, and what is to be said of them.

mod blame;
mod judge;

use dapple_api::daemonset::DaemonSetPatch;
use dapple_api::selector::{Selector, SelectorError};

use crate::edit::{Change, Edit, Source};

pub use blame::blame;
pub use judge::{judge, judge_patch, judge_set};

/// A patch, ready to be applied to the nodes it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// Its place in `spec.patches`.
    pub place: usize,
    /// Which nodes it is for.
    pub selector: Selector,
    /// What it does there.
    pub edit: Edit,
}

/// A patch whose selector cannot be used. It matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}.selector.{error}")]
pub struct BadSelector {
    /// The patch.
    pub rule: String,
    /// What is wrong.
    pub error: SelectorError,
}

/// The patches of a DaemonSet in the order they apply: ascending priority, list order within one priority. One that is
/// wrong does not keep the others from being used.
pub fn patches(object: &str, patches: &[DaemonSetPatch]) -> (Vec<Patch>, Vec<BadSelector>) {
    let mut in_order: Vec<_> = patches.iter().enumerate().collect();
    in_order.sort_by_key(|(_, patch)| patch.priority());
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (index, patch) in in_order {
        let rule = format!("spec.patches[{index}]");
        match Selector::new(&patch.selector) {
            Ok(selector) => {
                let source = Source { object: object.to_owned(), rule };
                good.push(Patch {
                    place: index,
                    selector,
                    edit: Edit { source, change: Change::Merge(patch.patch.0.clone()) },
                });
            }
            Err(error) => bad.push(BadSelector { rule, error }),
        }
    }
    (good, bad)
}

/// The place in `spec.patches` that a rule of ours names.
pub fn place_of(rule: &str) -> Option<usize> {
    rule.strip_prefix("spec.patches[")?.strip_suffix(']')?.parse().ok()
}

/// The patches for a node with these labels, by their place in the order. Nodes with the same share one rendering.
pub fn matching<'l>(patches: &[Patch], label: impl Fn(&str) -> Option<&'l str>) -> Vec<usize> {
    (0..patches.len()).filter(|index| patches[*index].selector.matches(&label)).collect()
}

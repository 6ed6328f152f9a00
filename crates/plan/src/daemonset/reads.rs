//! What of its nodes a DaemonSet reads: a node that changes in anything else is none of its business.

use std::collections::BTreeSet;

use dapple_api::selector::Selector;

use super::desired::Variants;
use super::layout::Strategy;
use crate::fit::{OUT_OF_SERVICE, Taint};

/// Labels and taints that a DaemonSet goes by. They follow from its strategy and from what nodes have of it today: a node
/// that gets something else makes it to be read anew.
#[derive(Debug, Default)]
pub struct Reads {
    labels: BTreeSet<String>,
    /// One for each variant: the taints that keep its pods away.
    fits: Vec<crate::fit::Fit>,
}

impl Reads {
    /// What is read for these variants.
    pub fn of<'v>(strategy: &Strategy, variants: impl Iterator<Item = &'v Variants>) -> Self {
        let mut reads = Self::default();
        let keys = |selector: &Selector| -> Vec<String> {
            selector.requirements().iter().map(|known| known.key.clone()).collect()
        };
        reads.labels.extend(strategy.selectors().flat_map(keys));
        for known in variants {
            reads.labels.extend(known.patches().iter().flat_map(|patch| keys(&patch.selector)));
            for fit in known.fits() {
                reads.labels.extend(fit.label_keys().map(str::to_owned));
                reads.fits.push(fit.clone());
            }
        }
        reads
    }

    /// Whether a label matters.
    pub fn has_label(&self, key: &str) -> bool {
        self.labels.contains(key)
    }

    /// Every label that matters.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(String::as_str)
    }

    /// Whether it matters that a taint comes or goes.
    pub fn has_taint(&self, taint: &Taint) -> bool {
        taint.key == OUT_OF_SERVICE || self.fits.iter().any(|fit| fit.is_repelled_by(taint))
    }
}

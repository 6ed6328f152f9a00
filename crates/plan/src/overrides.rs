//! What policies outside a workload do to its pods. One family makes it, and the others plan with it.

use std::collections::BTreeMap;

use dapple_edit::edit::Edit;

/// Edits of pods that belong to their nodes.
#[derive(Debug, Default)]
pub struct Overrides {
    lists: Vec<Vec<Edit>>,
    /// Which of the lists is for a node; some nodes have none.
    by_node: BTreeMap<String, usize>,
}

impl Overrides {
    /// Lists of edits, and the place of the list that is for a node.
    pub(crate) fn new(lists: Vec<Vec<Edit>>, by_node: BTreeMap<String, usize>) -> Self {
        Self { lists, by_node }
    }

    /// The same edits for each of these nodes.
    #[cfg(test)]
    pub(crate) fn same<'a>(edits: Vec<Edit>, nodes: impl Iterator<Item = &'a str>) -> Self {
        Self { lists: vec![edits], by_node: nodes.map(|node| (node.to_owned(), 0)).collect() }
    }

    pub(crate) fn list_for(&self, node: &str) -> Option<usize> {
        self.by_node.get(node).copied()
    }

    pub(crate) fn edits(&self, list: Option<usize>) -> &[Edit] {
        list.and_then(|list| self.lists.get(list)).map_or(&[], Vec::as_slice)
    }
}

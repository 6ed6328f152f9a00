//! Nodes as every family sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fit::Taint;

/// The labels of one node, whatever they are kept in.
pub trait Labels {
    /// The value of the label `key`, if the node has it.
    fn get(&self, key: &str) -> Option<&str>;
    /// Every label of the node.
    fn each(&self, visit: &mut dyn FnMut(&str, &str));
}

impl Labels for BTreeMap<String, String> {
    fn get(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (key, value) in self {
            visit(key, value);
        }
    }
}

/// What has changed of a node.
#[derive(Debug, Default)]
pub struct NodeChange {
    /// It came, went, or its condition is another: that concerns all who read nodes.
    pub is_whole: bool,
    /// Labels that came, went or have another value.
    pub labels: Vec<Arc<str>>,
    /// Taints that came or went.
    pub taints: Vec<Taint>,
}

//! NodePools in the simulator, and applications in pools.

mod apps;
mod execution;
mod leaving;
pub mod properties;
pub mod script;

use dapple_api::pool::{PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES};
use dapple_plan::pool::attributes::remembered_pool;
use serde_json::Value;

/// The resource, as the server names it.
pub const POOLS: &str = "nodepools.apps.openyurt.io";

/// The pool that has put on a node what is there still.
fn remembered(node: &Value) -> Option<String> {
    let annotation = |name: &str| node["metadata"]["annotations"][name].as_str();
    remembered_pool(annotation(PREVIOUS_ATTRIBUTES), annotation(REPLACED_ATTRIBUTES))
}

//! What must hold of NodePools.

use std::sync::Arc;

use dapple_api::pool::NODE_POOL_LABEL;
use serde_json::{Value, json};

use super::POOLS;
use super::script::NAMES;
use crate::object::{is_ready, text};
use crate::server::Server;
use crate::sim::{Properties, Write};

/// The properties.
#[derive(Default)]
pub struct PoolProperties;

impl Properties for PoolProperties {
    fn see(&mut self, write: &Write<'_>, _: &Server) -> Result<(), String> {
        write.allow(write.change.resource == POOLS && write.is_of_status())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        let nodes = server.list("nodes");
        NAMES.iter().try_for_each(|name| is_told(name, &nodes, server))
    }
}

/// Whether a pool says which nodes it has.
fn is_told(name: &str, nodes: &[Arc<Value>], server: &Server) -> Result<(), String> {
    let Some(pool) = server.get(POOLS, "", name) else { return Err(format!("the pool {name} is gone")) };
    let members: Vec<&Arc<Value>> =
        nodes.iter().filter(|node| node["metadata"]["labels"][NODE_POOL_LABEL] == name).collect();
    let names: Vec<&str> = members.iter().map(|node| text(&node["metadata"]["name"])).collect();
    let ready = members.iter().filter(|node| is_ready(node)).count();
    let (status, generation) = (&pool["status"], &pool["metadata"]["generation"]);
    let told: Vec<&str> = status["nodes"].as_array().into_iter().flatten().map(text).collect();
    let counts = [&status["readyNodeNum"], &status["unreadyNodeNum"]];
    if told != names
        || status["observedGeneration"] != *generation
        || counts != [&json!(ready), &json!(names.len() - ready)]
    {
        return Err(format!("a pool says: {name}, {status}, and has {names:?}, {ready} of them ready"));
    }
    Ok(())
}

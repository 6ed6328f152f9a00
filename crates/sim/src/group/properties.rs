//! What must hold of NodeGroups.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::GROUPS;
use super::script::NAMES;
use crate::server::Server;
use crate::sim::{Properties, Write};

/// The properties.
#[derive(Default)]
pub struct GroupProperties;

impl Properties for GroupProperties {
    fn see(&mut self, write: &Write<'_>, _: &Server) -> Result<(), String> {
        write.allow(write.change.resource == GROUPS && write.leaves_spec())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        if let Some(gone) = NAMES.iter().find(|name| server.get(GROUPS, "", name).is_none()) {
            return Err(format!("the group {gone} is gone"));
        }
        let nodes = server.list("nodes");
        for group in server.list(GROUPS) {
            let wanted: BTreeSet<&str> = nodes
                .iter()
                .filter(|node| is_in(&group, node))
                .filter_map(|node| node["metadata"]["name"].as_str())
                .collect();
            let status = &group["status"];
            let told = status["containedNodes"].as_array().into_iter().flatten();
            let told: BTreeSet<&str> = told.filter_map(Value::as_str).collect();
            if told != wanted || status["observedGeneration"] != group["metadata"]["generation"] {
                return Err(format!("a group says: {}, {told:?}, not {wanted:?}", group["metadata"]["name"]));
            }
            if status["nodeCount"] != json!(wanted.len()) {
                return Err(format!(
                    "{} counts {}, not {}",
                    group["metadata"]["name"],
                    status["nodeCount"],
                    wanted.len()
                ));
            }
        }
        Ok(())
    }
}

fn is_in(group: &Value, node: &Value) -> bool {
    let spec = &group["spec"];
    let is_named = spec["nodes"].as_array().into_iter().flatten().any(|name| *name == node["metadata"]["name"]);
    let labels = spec["matchLabels"].as_object().filter(|labels| !labels.is_empty());
    let has_labels = |labels: &serde_json::Map<String, Value>| {
        labels.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value)
    };
    is_named || labels.is_some_and(has_labels)
}

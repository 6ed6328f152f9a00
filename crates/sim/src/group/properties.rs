//! What must hold of NodeGroups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::GROUPS;
use super::script::NAMES;
use crate::object::{list, text};
use crate::server::Server;
use crate::sim::{Properties, Write};

/// Objects as they were, with until when; the last are as they are now.
type Past<T> = Vec<(Duration, T)>;

/// The properties.
#[derive(Default)]
pub struct GroupProperties {
    /// All nodes.
    nodes: Past<Vec<Arc<Value>>>,
    /// Each group, by name.
    groups: BTreeMap<String, Past<Arc<Value>>>,
}

impl Properties for GroupProperties {
    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        write.allow(write.change.resource == GROUPS && write.is_of_status())?;
        match write.change.resource {
            "nodes" => remember(&mut self.nodes, write, server.list("nodes")),
            GROUPS if write.is_ours() => return self.told(write),
            GROUPS => {
                let group = write.change.object.clone();
                remember(self.groups.entry(text(&group["metadata"]["name"]).to_owned()).or_default(), write, group);
            }
            _ => {}
        }
        Ok(())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        if let Some(gone) = NAMES.iter().find(|name| server.get(GROUPS, "", name).is_none()) {
            return Err(format!("the group {gone} is gone"));
        }
        let (nodes, groups) = (server.list("nodes"), server.list(GROUPS));
        for group in &groups {
            let wanted = members(group, &nodes);
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
            let others = groups.iter().filter(|other| other["metadata"]["name"] != group["metadata"]["name"]);
            let is_shared = others.into_iter().any(|other| !members(other, &nodes).is_disjoint(&wanted));
            let exclusive = list(&status["conditions"]).iter().find(|known| known["type"] == "Exclusive");
            if exclusive.is_none_or(|told| told["status"] != if is_shared { "False" } else { "True" }) {
                return Err(format!("{} says of nodes in other groups: {exclusive:?}", group["metadata"]["name"]));
            }
        }
        Ok(())
    }
}

impl GroupProperties {
    /// What a manager tells of a group was true: of the group as it was at the generation that is told, and of the nodes as
    /// they were at some time.
    fn told(&self, write: &Write<'_>) -> Result<(), String> {
        let group = &write.change.object;
        let since = write.at.saturating_sub(write.memory);
        let told: BTreeSet<&str> = list(&group["status"]["containedNodes"]).iter().map(text).collect();
        let name = text(&group["metadata"]["name"]);
        let none = Vec::new();
        let is_told =
            |group: &Value| group["metadata"]["generation"] == write.change.object["status"]["observedGeneration"];
        let groups = self.groups.get(name).unwrap_or(&none).iter();
        let groups = groups.filter(|(until, group)| *until >= since && is_told(group));
        let was_true = |group: &Value| {
            let nodes = self.nodes.iter().filter(|(until, _)| *until >= since);
            nodes.into_iter().any(|(_, nodes)| members(group, nodes) == told)
        };
        if groups.into_iter().any(|(_, group)| was_true(group)) {
            return Ok(());
        }
        Err(format!("a group is told to have nodes that it did not have: {name}, {told:?}"))
    }
}

/// Adds what is from now on, and drops what nobody can still believe.
fn remember<T>(past: &mut Past<T>, write: &Write<'_>, now: T) {
    if let Some((until, _)) = past.last_mut() {
        *until = write.at;
    }
    past.retain(|(until, _)| *until + write.memory >= write.at);
    past.push((Duration::MAX, now));
}

fn members<'n>(group: &Value, nodes: &'n [Arc<Value>]) -> BTreeSet<&'n str> {
    nodes.iter().filter(|node| is_in(group, node)).map(|node| text(&node["metadata"]["name"])).collect()
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

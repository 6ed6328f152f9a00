//! What must hold of NodePools, and of the nodes that they have to do with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::pool::{NODE_POOL_LABEL, PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES, SUSPEND_ANNOTATION};
use serde_json::{Map, Value, json};

use super::apps::{self, Apps};
use super::execution::Executed;
use super::leaving::Leavers;
use super::script::{ANNOTATIONS, LABELS, NAMES, TAINTS};
use super::{POOLS, remembered};
use crate::object::{is_ready, list, text};
use crate::past::{Past, believed, note};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Properties, Write};

/// So many nodes may be written in less than a second: what the rate allows, and one more for each worker, which may have been held
/// up on the way.
const WRITES_OF_A_SECOND: usize = 7;

/// The properties.
#[derive(Default)]
pub struct PoolProperties {
    pools: BTreeMap<String, Past>,
    /// When each manager sent its last writes of nodes.
    sent: BTreeMap<Actor, Vec<Duration>>,
    /// Nodes on which somebody else has changed what a pool put there.
    contested: BTreeSet<String>,
    executed: Executed,
    leavers: Leavers,
    /// When a manager has put a node right, while its pool said one thing.
    repairs: BTreeMap<(Actor, String, String), Vec<Duration>>,
    /// What was seen of applications.
    apps: Apps,
}

impl Properties for PoolProperties {
    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let resource = write.change.resource;
        let is_of_pools = resource == POOLS && write.is_of_status() || resource == "nodes";
        write.allow(is_of_pools || apps::is_of_apps(write))?;
        match resource {
            "nodes" => {
                if write.is_ours() {
                    self.written(write, server)?;
                } else if is_contested(write) {
                    self.contested.insert(text(&write.change.object["metadata"]["name"]).to_owned());
                }
                self.executed.see(write);
                self.leavers.see(write);
            }
            POOLS => self.remember(write),
            _ => {}
        }
        self.apps.see(write, server)
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        let nodes = server.list("nodes");
        NAMES.iter().try_for_each(|name| is_told(name, &nodes, server))?;
        nodes.iter().try_for_each(|node| self.is_done(node, server))?;
        apps::is_settled(server)
    }
}

impl PoolProperties {
    /// Takes in what becomes of a pool.
    fn remember(&mut self, write: &Write<'_>) {
        let name = text(&write.change.object["metadata"]["name"]).to_owned();
        if write.change.kind == ChangeKind::Deleted {
            self.leavers.forget(&name);
        }
        note(self.pools.entry(name).or_default(), write);
    }

    /// What whoever wrote this may have believed of a pool.
    fn believed(&self, name: &str, write: &Write<'_>) -> Past {
        self.pools.get(name).map(|past| believed(past, write)).unwrap_or_default()
    }

    /// What a manager wrote to a node was its pool's to write.
    fn written(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (after, none) = (&*write.change.object, Value::Null);
        let before = write.change.previous.as_deref().unwrap_or(&none);
        let name = text(&after["metadata"]["name"]);
        let rest = |node: &Value| {
            let mut rest = node.clone();
            for field in ["labels", "annotations", "resourceVersion", "managedFields"] {
                rest["metadata"][field] = Value::Null;
            }
            rest["spec"]["taints"] = Value::Null;
            rest
        };
        if write.change.kind != ChangeKind::Modified || rest(before) != rest(after) {
            return Err(format!("a node is written beyond what pools give: {name}"));
        }
        let sent = self.sent.entry(write.actor).or_default();
        let at = write.at.saturating_sub(write.under_way);
        sent.retain(|then| then.abs_diff(at) < Duration::from_secs(1));
        sent.push(at);
        if sent.len() > WRITES_OF_A_SECOND {
            return Err(format!("nodes are written too fast: {} in a second", sent.len()));
        }
        let label = before["metadata"]["labels"][NODE_POOL_LABEL].as_str();
        let believed = label.map(|label| self.believed(label, write));
        let pools: Vec<Arc<Value>> = believed.iter().flatten().filter_map(|(_, pool)| pool.clone()).collect();
        if label.is_some() && pools.is_empty() {
            return Err(format!("a node is written whose pool is not there: {name}, of {label:?}"));
        }
        let is_suspended = |pool: &Arc<Value>| pool["metadata"]["annotations"][SUSPEND_ANNOTATION] == "true";
        if !pools.is_empty() && pools.iter().all(is_suspended) {
            return Err(format!("a node of a suspended pool is written: {name}"));
        }
        attributes_are_its_own(before, after, &pools)?;
        if label.is_some() {
            keeps_what_is_wanted(before, after, &pools)?;
        }
        // However often its status was written meanwhile, it said the same.
        if let Some(pool) = pools.last()
            && pools.iter().all(|known| known["spec"] == pool["spec"])
        {
            self.repaired(write, before, pool)?;
        }
        self.executed.written(write, &pools)?;
        let from = remembered(before).filter(|from| Some(from.as_str()) != label && !from.is_empty());
        if let Some(from) = from {
            let believed = self.believed(&from, write);
            self.leavers.written(write, &from, &believed, server)?;
        }
        Ok(())
    }

    /// A manager gives way to whoever keeps changing a node.
    fn repaired(&mut self, write: &Write<'_>, before: &Value, pool: &Value) -> Result<(), String> {
        let said = before["metadata"]["annotations"][PREVIOUS_ATTRIBUTES].as_str();
        let set: Value = said.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default();
        let is_repair = ["labels", "annotations"].iter().any(|field| {
            let is_changed = |(key, value): (&String, &Value)| {
                pool["spec"][field].get(key) == Some(value) && before["metadata"][field].get(key) != Some(value)
            };
            entries(&set[field]).iter().any(is_changed)
        });
        if !is_repair {
            return Ok(());
        }
        let name = text(&before["metadata"]["name"]).to_owned();
        let version = format!("{} {}", pool["metadata"]["uid"], pool["metadata"]["generation"]);
        let repairs = self.repairs.entry((write.actor, name.clone(), version)).or_default();
        repairs.retain(|then| write.at.saturating_sub(*then) < Duration::from_secs(600));
        repairs.push(write.at);
        if repairs.len() > 3 {
            return Err(format!("a node is put right again and again: {name}, {} times", repairs.len()));
        }
        Ok(())
    }

    /// Whether a node has what its pool gives, or nothing of any pool.
    fn is_done(&self, node: &Value, server: &Server) -> Result<(), String> {
        let (name, metadata) = (text(&node["metadata"]["name"]), &node["metadata"]);
        if self.contested.contains(name) {
            return Ok(());
        }
        let Some(pool) = metadata["labels"][NODE_POOL_LABEL].as_str() else {
            for annotation in [PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES] {
                if !metadata["annotations"][annotation].is_null() {
                    return Err(format!("a node without a pool is not as before: {name}, {}", metadata["annotations"]));
                }
            }
            let left = |map: &Value, keys: &[&str]| keys.iter().any(|key| !map[*key].is_null());
            let has_taint = list(&node["spec"]["taints"]).iter().any(|known| TAINTS.contains(&text(&known["key"])));
            if left(&metadata["labels"], &LABELS) || left(&metadata["annotations"], &ANNOTATIONS) || has_taint {
                return Err(format!("a node without a pool keeps something of one: {name}, {node}"));
            }
            return Ok(());
        };
        let Some(pool) = server.get(POOLS, "", pool) else { return Ok(()) };
        for field in ["labels", "annotations"] {
            for (key, value) in entries(&pool["spec"][field]) {
                if metadata[field][&key] != value {
                    return Err(format!("a node lacks what its pool gives: {name}, {field} {key}={value}"));
                }
            }
        }
        for taint in list(&pool["spec"]["taints"]).iter().filter(|taint| taint["effect"] != "NoExecute") {
            if !list(&node["spec"]["taints"]).iter().any(|known| is_same(known, taint)) {
                return Err(format!("a node lacks what its pool gives: {name}, taint {taint}"));
            }
        }
        Ok(())
    }
}

/// Whether somebody has changed what a pool has put on a node. Whoever takes the label off leaves it as it is.
fn is_contested(write: &Write<'_>) -> bool {
    let (Some(before), after) = (write.change.previous.as_deref(), &write.change.object) else { return false };
    let owned = |field: &str, keys: &[&str]| {
        keys.iter().any(|key| before["metadata"][field][*key] != after["metadata"][field][*key])
    };
    let labels = [&LABELS[..], &[crate::nodes::DISK]].concat();
    owned("labels", &labels)
        || owned("annotations", &ANNOTATIONS)
        || before["spec"]["taints"] != after["spec"]["taints"]
}

/// Every label, annotation and taint that a write changes is one that a pool wants, or one that the node remembers to be a pool's,
/// and what was replaced is put back.
fn attributes_are_its_own(before: &Value, after: &Value, pools: &[Arc<Value>]) -> Result<(), String> {
    let read = |annotation: &str| -> Value {
        let said = before["metadata"]["annotations"][annotation].as_str();
        said.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default()
    };
    let (set, replaced) = (read(PREVIOUS_ATTRIBUTES), read(REPLACED_ATTRIBUTES));
    let name = text(&after["metadata"]["name"]);
    for field in ["labels", "annotations"] {
        let (was, is) = (entries(&before["metadata"][field]), entries(&after["metadata"][field]));
        let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for key in keys.into_iter().filter(|key| ![PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES].contains(&key.as_str())) {
            let (was, is) = (was.get(key), is.get(key));
            if was == is {
                continue;
            }
            let is_wanted = pools.iter().any(|pool| is.is_some() && pool["spec"][field].get(key) == is);
            let is_put_back = !set[field][key].is_null() && replaced[field].get(key) == is;
            if !is_wanted && !is_put_back {
                return Err(format!(
                    "a node has what is no pool's to give: {name}, {field} {key} {was:?} is {is:?} now"
                ));
            }
        }
    }
    let (was, is) = (list(&before["spec"]["taints"]), list(&after["spec"]["taints"]));
    let has = |list: &[Value], taint: &Value| list.iter().any(|known| is_same(known, taint));
    for taint in is.iter().filter(|taint| !has(was, taint)) {
        let is_wanted = pools.iter().any(|pool| has(list(&pool["spec"]["taints"]), taint));
        if !is_wanted && !has(list(&replaced["taints"]), taint) {
            return Err(format!("a node has what is no pool's to give: {name}, taint {taint}"));
        }
    }
    for taint in was.iter().filter(|taint| !has(is, taint)) {
        let is_replaced = pools
            .iter()
            .flat_map(|pool| list(&pool["spec"]["taints"]))
            .any(|known| known["key"] == taint["key"] && known["effect"] == taint["effect"]);
        if !has(list(&set["taints"]), taint) && !is_replaced {
            return Err(format!("a node loses what is no pool's to take: {name}, taint {taint}"));
        }
    }
    Ok(())
}

/// A node that is in a pool keeps what the pool has put there for as long as the pool wants it; if the pool is gone, as long as it
/// wanted it last.
fn keeps_what_is_wanted(before: &Value, after: &Value, pools: &[Arc<Value>]) -> Result<(), String> {
    let said = before["metadata"]["annotations"][PREVIOUS_ATTRIBUTES].as_str();
    let set: Value = said.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default();
    let name = text(&after["metadata"]["name"]);
    for field in ["labels", "annotations"] {
        for (key, value) in entries(&set[field]) {
            let has = |node: &Value| node["metadata"][field].get(&key) == Some(&value);
            let is_wanted = pools.iter().all(|pool| pool["spec"][field].get(&key) == Some(&value));
            if has(before) && !has(after) && is_wanted {
                return Err(format!("a node loses what its pool gives it: {name}, {field} {key}={value}"));
            }
        }
    }
    for taint in list(&set["taints"]) {
        let has = |known: &Value| list(&known["spec"]["taints"]).iter().any(|known| is_same(known, taint));
        if has(before) && !has(after) && pools.iter().all(|pool| has(pool)) {
            return Err(format!("a node loses what its pool gives it: {name}, taint {taint}"));
        }
    }
    Ok(())
}

pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    ["key", "effect"].iter().all(|field| one[field] == other[field]) && text(&one["value"]) == text(&other["value"])
}

fn entries(map: &Value) -> Map<String, Value> {
    map.as_object().cloned().unwrap_or_default()
}

/// Whether a pool says which nodes it has.
fn is_told(name: &str, nodes: &[Arc<Value>], server: &Server) -> Result<(), String> {
    let Some(pool) = server.get(POOLS, "", name) else { return Err(format!("the pool {name} is gone")) };
    let members: Vec<&Arc<Value>> =
        nodes.iter().filter(|node| node["metadata"]["labels"][NODE_POOL_LABEL] == name).collect();
    let mut names: Vec<&str> = members.iter().map(|node| text(&node["metadata"]["name"])).collect();
    names.sort_unstable();
    let ready = members.iter().filter(|node| is_ready(node)).count();
    let (status, generation) = (&pool["status"], &pool["metadata"]["generation"]);
    let told: Vec<&str> = list(&status["nodes"]).iter().map(text).collect();
    let counts = [&status["readyNodeNum"], &status["unreadyNodeNum"]];
    if told != names
        || status["observedGeneration"] != *generation
        || counts != [&json!(ready), &json!(names.len() - ready)]
    {
        return Err(format!("a pool says: {name}, {status}, and has {names:?}, {ready} of them ready"));
    }
    Ok(())
}

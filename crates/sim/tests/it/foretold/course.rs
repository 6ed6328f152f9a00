//! The course of what was foretold: whose turn comes when, on how many nodes at once, and what keeps the rest.

use std::collections::BTreeSet;

use dapple_control::daemonset::forecast::Forecast;
use dapple_plan::daemonset::fleet::ahead::Ahead;
use dapple_plan::fate::{Fate, HeldBy};
use dapple_sim::daemonset::{NAME, NAMESPACE, SETS};
use dapple_sim::object::{is_out_of_service, is_ready, is_terminating, list, ready_of, text};
use dapple_sim::server::Server;
use serde_json::Value;

use super::{Pods, is_its, node_of};

/// What is to happen after a change that came when nothing else did.
pub(super) struct Course {
    /// Nodes whose pods are replaced or changed, in the order of their turns.
    order: Vec<String>,
    /// So many of them at once; none where nothing rolls out by itself.
    at_once: Option<usize>,
    held: BTreeSet<HeldBy>,
    /// The pods that were there.
    before: Pods,
    /// Nodes whose turn has come.
    touched: BTreeSet<String>,
}

impl Course {
    pub(super) fn of(told: &Forecast, before: &Pods) -> Self {
        let Ahead { order, at_once, .. } = &told.ahead;
        let held = held_back(told).map(|(_, by)| by).collect();
        Self { order: order.clone(), at_once: *at_once, held, before: before.clone(), touched: BTreeSet::new() }
    }

    /// Whether a rollout was to be seen, and all of it was.
    pub(super) fn is_over(&self) -> bool {
        self.order.len() > 1 && self.touched.len() == self.order.len()
    }

    /// A manager has done something about a pod on a node: its turn has come. Those that have theirs at once may come in any
    /// order.
    pub(super) fn touch(&mut self, node: &str, server: &Server) -> Result<(), String> {
        let (Some(at_once), Some(place)) = (self.at_once, self.order.iter().position(|known| known == node)) else {
            return Ok(());
        };
        if self.touched.insert(node.to_owned()) {
            let waits = |known: &&String| !self.touched.contains(*known) && is_counted(known, server);
            let waiting: Vec<&String> = self.order[..place].iter().filter(waits).collect();
            if waiting.len() >= at_once.max(1) {
                return Err(format!(
                    "{node} has its turn before {waiting:?}, which was not foretold: {:?}",
                    self.order
                ));
            }
        }
        self.is_within(at_once, server)
    }

    /// No more nodes are under way than was foretold.
    fn is_within(&self, at_once: usize, server: &Server) -> Result<(), String> {
        let all = server.list("pods");
        let is_live = |pod: &Value| !is_terminating(pod) && pod["status"]["phase"] != "Failed";
        let is_under_way = |node: &&String| {
            let live = all.iter().filter(|pod| is_its(pod) && is_live(pod) && node_of(pod) == **node);
            let (old, new): (Vec<_>, Vec<_>) = live.partition(|pod| self.is_as_it_was(pod));
            // Where there is none but the old one, nothing has come of its turn yet.
            if new.is_empty() { old.is_empty() } else { !old.is_empty() || !new.iter().any(|pod| is_ready(pod)) }
        };
        let counted = self.order.iter().filter(|node| is_counted(node, server));
        let under_way: Vec<&String> = counted.filter(is_under_way).collect();
        if under_way.len() > at_once {
            return Err(format!("under way at once are {under_way:?}, and {at_once} were foretold"));
        }
        Ok(())
    }

    fn is_as_it_was(&self, pod: &Value) -> bool {
        let known = self.before.get(text(&pod["metadata"]["name"]));
        known.is_some_and(|(uid, _, contents)| {
            pod["metadata"]["uid"] == uid.as_str() && pod["spec"]["containers"] == *contents
        })
    }

    /// The controller says in the end what keeps pods as they are, as it was foretold. Where nodes are not well, it has more to
    /// say.
    pub(super) fn is_told(&self, server: &Server) -> Result<(), String> {
        let are_well =
            server.list("nodes").iter().all(|node| is_ready(node) && list(&node["spec"]["taints"]).is_empty());
        let expected: &[&str] = match () {
            () if self.held.contains(&HeldBy::Budget) => &["RollingOut", "Stalled"],
            () if !are_well => return Ok(()),
            () if self.held.contains(&HeldBy::Pause) => &["Paused"],
            () if self.held.contains(&HeldBy::Partition) || self.held.contains(&HeldBy::Selector) => &["HeldBack"],
            () => return Ok(()),
        };
        let set = server.get(SETS, NAMESPACE, NAME).ok_or("the set is gone")?;
        let conditions = list(&set["status"]["conditions"]);
        let said = conditions.iter().find(|known| known["type"] == "Progressing").map(|known| text(&known["reason"]));
        if said.is_some_and(|said| expected.contains(&said)) {
            return Ok(());
        }
        Err(format!("the controller says {said:?}, where {:?} was foretold to keep pods", self.held))
    }
}

/// Nodes whose pods stay as they are for now, with what keeps each.
fn held_back(told: &Forecast) -> impl Iterator<Item = (&String, HeldBy)> {
    let all = told.ahead.fates.pods.values();
    all.filter_map(|(node, fate)| if let Fate::HeldBack(by) = fate { Some((node, *by)) } else { None })
}

/// What is said to keep a pod as it is, is there and does.
pub(super) fn is_bound(told: &Forecast, set: &Value, server: &Server) -> Result<(), String> {
    let (rolling, pods) = (&set["spec"]["updateStrategy"]["rollingUpdate"], server.list("pods"));
    let is_served = |node: &Value| {
        let mut pods = pods.iter().filter(|pod| is_its(pod));
        is_ready(node) && pods.any(|pod| node["metadata"]["name"] == node_of(pod) && is_ready(pod))
    };
    for (name, by) in held_back(told) {
        let node = server.get("nodes", "", name).ok_or_else(|| format!("{name} is held back, and there is none"))?;
        let is_so = match by {
            HeldBy::Pause => rolling["paused"] == true,
            HeldBy::Partition => !rolling["partition"].is_null() && rolling["partition"] != 0,
            HeldBy::Selector => rolling["selector"].is_object(),
            HeldBy::Kubelet => !["True", "False"].contains(&ready_of(&node)),
            HeldBy::Taint => !list(&node["spec"]["taints"]).is_empty(),
            HeldBy::Budget => told.ahead.at_once == Some(0) || !server.list("nodes").iter().all(|node| is_served(node)),
            // What comes of patches is not looked at here.
            HeldBy::Rendering => true,
            // These keep pods of applications in pools.
            HeldBy::Stop | HeldBy::Target | HeldBy::Removal => false,
        };
        if !is_so {
            return Err(format!("{name} is said to be held back by {by:?}, of {rolling}: {}", node["spec"]));
        }
    }
    Ok(())
}

/// Nobody waits for a node that is lost for good.
fn is_counted(node: &str, server: &Server) -> bool {
    server.get("nodes", "", node).is_some_and(|node| !is_out_of_service(&node))
}

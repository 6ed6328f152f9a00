//! A cluster, or the files that are to become one: workloads, the policies that concern them, and nodes.

use std::collections::{BTreeMap, BTreeSet};

use dapple_api::daemonset::DaemonSet;
use dapple_api::group::{
    NodeGroup, OverridePolicy, PropagationPolicy, REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL,
};
use dapple_api::pool::{NodePool, SubjectKind, YurtAppConfigurationReplacement, YurtAppDaemon, YurtAppSet};
use dapple_edit::edit::Source;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fit::{Node, Taint};
use crate::group::Rule;
use crate::group::workload::{Groups, Named, Overrides, Workload, plan as plan_workload};
use crate::pool::{Replacements, plan_daemon, plan_set};
use crate::variant::{ObjectName, Plan, Reason, Warning};
use crate::{daemonset, native};

/// Namespace and name.
type Key = (String, String);

/// What planning looks at. Objects are added one by one; a later one of the same name takes the place of an earlier one,
/// so files can be laid over what a cluster has.
#[derive(Debug, Default, Clone)]
pub struct World {
    nodes: BTreeMap<String, NodeRecord>,
    node_groups: BTreeMap<String, NodeGroup>,
    node_pools: BTreeMap<String, NodePool>,
    daemonsets: BTreeMap<Key, DaemonSet>,
    natives: BTreeMap<ObjectName, Value>,
    propagation_policies: BTreeMap<Key, PropagationPolicy>,
    override_policies: BTreeMap<Key, OverridePolicy>,
    sets: BTreeMap<Key, YurtAppSet>,
    daemons: BTreeMap<Key, YurtAppDaemon>,
    replacements: BTreeMap<Key, YurtAppConfigurationReplacement>,
}

/// A node, as far as planning looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeRecord {
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

/// An object that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {problem}")]
pub struct Malformed {
    /// The object, as people name it.
    pub object: String,
    /// Where in it.
    pub field: String,
    /// What is wrong there.
    pub problem: String,
}

impl World {
    /// Takes an object in. Says whether its kind matters to planning.
    pub fn add(&mut self, object: &Value) -> Result<bool, Malformed> {
        let name = name_of(object);
        let key = (name.namespace.clone(), name.name.clone());
        let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        match (api_version.split_once('/').unwrap_or(("", api_version)), kind) {
            (("", "v1"), "Node") => _ = self.nodes.insert(name.name, record(object)),
            (("apps.kruise.io", "v1beta1"), "DaemonSet") => _ = self.daemonsets.insert(key, parse(object, &name)?),
            (("groupmanagement.kubeedge.io", _), "NodeGroup") => {
                _ = self.node_groups.insert(key.1, parse(object, &name)?);
            }
            (("groupmanagement.kubeedge.io", _), "PropagationPolicy") => {
                _ = self.propagation_policies.insert(key, parse(object, &name)?);
            }
            (("groupmanagement.kubeedge.io", _), "OverridePolicy") => {
                _ = self.override_policies.insert(key, parse(object, &name)?);
            }
            (("apps.openyurt.io", "v1beta1"), "NodePool") => _ = self.node_pools.insert(key.1, parse(object, &name)?),
            (("apps.openyurt.io", "v1alpha1"), "YurtAppSet") => _ = self.sets.insert(key, parse(object, &name)?),
            (("apps.openyurt.io", "v1alpha1"), "YurtAppDaemon") => _ = self.daemons.insert(key, parse(object, &name)?),
            (("apps.openyurt.io", "v1alpha1"), "YurtAppConfigurationReplacement") => {
                _ = self.replacements.insert(key, parse(object, &name)?);
            }
            ((group, _), kind) if native::template_of(group, kind, object).is_some() => {
                _ = self.natives.insert(name, object.clone());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How many nodes it has.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    fn nodes(&self) -> impl Iterator<Item = Node<'_>> + Clone {
        self.nodes.iter().map(|(name, record)| Node { name, labels: &record.labels, taints: &record.taints })
    }

    /// The plan of every workload that a rule of ours may concern, by kind and name.
    pub fn plans(&self) -> Vec<Plan> {
        let groups = self.groups();
        let mut plans: Vec<Plan> = Vec::new();
        plans.extend(self.daemonsets.iter().map(|(key, set)| self.daemonset(key, set, &groups)));
        plans.extend(self.natives.iter().filter_map(|(name, object)| self.native(name, object, &groups)));
        plans.extend(self.sets.iter().map(|(key, set)| self.set(key, set)));
        plans.extend(self.daemons.iter().map(|(key, daemon)| self.daemon(key, daemon)));
        plans
    }

    /// What a workload's pods are selected by.
    pub fn selector_of(&self, object: &ObjectName) -> Option<LabelSelector> {
        let key = (object.namespace.clone(), object.name.clone());
        match object.kind.as_str() {
            "DaemonSet" if self.daemonsets.contains_key(&key) => Some(self.daemonsets.get(&key)?.spec.selector.clone()),
            "YurtAppSet" => Some(self.sets.get(&key)?.spec.selector.clone()),
            "YurtAppDaemon" => Some(self.daemons.get(&key)?.spec.selector.clone()),
            _ => serde_json::from_value(self.natives.get(object)?.pointer("/spec/selector")?.clone()).ok(),
        }
    }

    fn groups(&self) -> Groups {
        let members = |group: &NodeGroup| {
            let rule = Rule::from(&group.spec);
            let members = self.nodes().filter(|node| rule.matches(node.name, node.labels));
            members.map(|node| node.name.to_owned()).collect::<BTreeSet<_>>()
        };
        self.node_groups.iter().map(|(name, group)| (name.clone(), members(group))).collect()
    }

    fn daemonset(&self, key: &Key, set: &DaemonSet, groups: &Groups) -> Plan {
        let object = object_name("DaemonSet", key);
        let labels = set.metadata.labels.clone().unwrap_or_default();
        let mut missing = Vec::new();
        let policy = self.overrides_for(&object, &labels, &mut missing);
        let overrides = policy.map(|policy| Overrides::new(&policy, groups)).unwrap_or_default();
        let mut plan = daemonset::plan(object, &set.spec, self.nodes(), &overrides);
        plan.warnings.splice(0..0, missing);
        plan
    }

    /// A native workload, if it asks for a policy.
    fn native(&self, name: &ObjectName, object: &Value, groups: &Groups) -> Option<Plan> {
        let labels: BTreeMap<String, String> = labels_of(object);
        if !labels.contains_key(REQUIRED_OVERRIDE_LABEL) && !labels.contains_key(REQUIRED_PROPAGATION_LABEL) {
            return None;
        }
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let template = native::template_of(group, &name.kind, object)?;
        let mut missing = Vec::new();
        let overrides = self.overrides_for(name, &labels, &mut missing);
        let mut plan = if name.kind == "DaemonSet" {
            let overrides = overrides.map(|policy| Overrides::new(&policy, groups)).unwrap_or_default();
            native::plan_daemonset(name.clone(), template, self.nodes(), &overrides)
        } else {
            let propagation = self.propagation_for(name, &labels, &mut missing);
            let workload = Workload { object: name.clone(), template, propagation, overrides };
            plan_workload(&workload, groups, self.nodes())
        };
        plan.warnings.splice(0..0, missing);
        Some(plan)
    }

    fn set(&self, key: &Key, set: &YurtAppSet) -> Plan {
        let object = object_name("YurtAppSet", key);
        let (replacements, others) = self.replacements_for(SubjectKind::YurtAppSet, key);
        let mut plan = plan_set(object, &set.spec, replacements.as_ref(), self.nodes());
        plan.warnings.extend(others);
        plan
    }

    fn daemon(&self, key: &Key, daemon: &YurtAppDaemon) -> Plan {
        let object = object_name("YurtAppDaemon", key);
        let (replacements, others) = self.replacements_for(SubjectKind::YurtAppDaemon, key);
        let pools = self.node_pools.iter().map(|(name, pool)| (name.as_str(), pool));
        let mut plan = plan_daemon(object, &daemon.spec, pools, replacements.as_ref(), self.nodes());
        plan.warnings.extend(others);
        plan
    }

    /// The replacements for an application: of several objects the older one counts.
    fn replacements_for(&self, kind: SubjectKind, key: &Key) -> (Option<Replacements<'_>>, Vec<Warning>) {
        let is_for = |(namespace, _): &Key, object: &YurtAppConfigurationReplacement| {
            *namespace == key.0 && object.subject.kind == kind && object.subject.name == key.1
        };
        let mut found: Vec<_> = self.replacements.iter().filter(|(known, object)| is_for(known, object)).collect();
        // Without a time it is about to be created, after all that are there.
        found.sort_by_key(|(_, object)| {
            let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created.is_none(), created)
        });
        let name = |key: &Key| object_name("YurtAppConfigurationReplacement", key).to_string();
        let mut found = found.into_iter();
        let first = found.next().map(|(key, object)| Replacements { object: name(key), list: &object.replacements });
        let others = found.map(|(key, _)| Warning {
            reason: Reason::Overruled,
            rule: Source { object: name(key), rule: "subject".to_owned() },
            text: format!(
                "an application can have one replacement object, and it has {}",
                first.as_ref().map_or("another", |first| first.object.as_str())
            ),
        });
        let others = others.collect();
        (first, others)
    }

    fn overrides_for<'a>(
        &'a self,
        object: &ObjectName,
        labels: &BTreeMap<String, String>,
        missing: &mut Vec<Warning>,
    ) -> Option<Named<'a, dapple_api::group::OverridePolicySpec>> {
        let name = labels.get(REQUIRED_OVERRIDE_LABEL)?;
        let key = (object.namespace.clone(), name.clone());
        let Some(policy) = self.override_policies.get(&key) else {
            missing.push(no_policy(object, REQUIRED_OVERRIDE_LABEL, &object_name("OverridePolicy", &key)));
            return None;
        };
        Some(Named { object: object_name("OverridePolicy", &key).to_string(), spec: &policy.spec })
    }

    fn propagation_for<'a>(
        &'a self,
        object: &ObjectName,
        labels: &BTreeMap<String, String>,
        missing: &mut Vec<Warning>,
    ) -> Option<Named<'a, dapple_api::group::PropagationPolicySpec>> {
        let name = labels.get(REQUIRED_PROPAGATION_LABEL)?;
        let key = (object.namespace.clone(), name.clone());
        let Some(policy) = self.propagation_policies.get(&key) else {
            missing.push(no_policy(object, REQUIRED_PROPAGATION_LABEL, &object_name("PropagationPolicy", &key)));
            return None;
        };
        Some(Named { object: object_name("PropagationPolicy", &key).to_string(), spec: &policy.spec })
    }
}

fn no_policy(object: &ObjectName, label: &str, policy: &ObjectName) -> Warning {
    let rule = Source { object: object.to_string(), rule: format!("metadata.labels[{label}]") };
    Warning { reason: Reason::Missing, rule, text: format!("there is no {policy}") }
}

fn object_name(kind: &str, (namespace, name): &Key) -> ObjectName {
    ObjectName { kind: kind.to_owned(), namespace: namespace.clone(), name: name.clone() }
}

/// An object's name, as people say it; objects without a namespace are in `default`.
pub fn name_of(object: &Value) -> ObjectName {
    let namespace = Some(text(object, "/metadata/namespace")).filter(|text| !text.is_empty()).unwrap_or("default");
    let (kind, name) = (text(object, "/kind").to_owned(), text(object, "/metadata/name").to_owned());
    ObjectName { kind, namespace: namespace.to_owned(), name }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn record(object: &Value) -> NodeRecord {
    let taints = object.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let taint = |taint: &Value| Taint {
        key: text(taint, "/key").to_owned(),
        value: text(taint, "/value").to_owned(),
        effect: text(taint, "/effect").to_owned(),
    };
    NodeRecord { labels: labels_of(object), taints: taints.map(taint).collect() }
}

fn parse<T: DeserializeOwned>(object: &Value, name: &ObjectName) -> Result<T, Malformed> {
    serde_path_to_error::deserialize(object).map_err(|error| Malformed {
        object: name.to_string(),
        field: error.path().to_string(),
        problem: error.inner().to_string(),
    })
}

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;

//! A cluster, or the files that are to become one: workloads, the policies that concern them, and nodes.

mod divided;
mod pools;
pub(crate) mod read;
mod story;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::daemonset::DaemonSet;
use dapple_api::group::{
    NodeGroup, OverridePolicy, OverridePolicySpec, PropagationPolicy, REQUIRED_OVERRIDE_LABEL,
    REQUIRED_PROPAGATION_LABEL, SUSPEND_ANNOTATION,
};
use dapple_api::kinds::{self, Name};
use dapple_api::pool::{NodePool, SubjectKind, YurtAppConfigurationReplacement, YurtAppDaemon, YurtAppSet};
use dapple_edit::edit::Source;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::census::Census;
use crate::fit::Node;
use crate::group::Rule;
use crate::group::binding::Pair;
use crate::group::edition::Edition;
use crate::group::standing::placed;
use crate::group::workload::{Groups, Named, Workload, overrides, plan as plan_workload, unused};
use crate::overrides::Overrides;
use crate::overriding::{GroupRules, Overriding};
use crate::pool::{Replacements, plan_daemon, plan_set};
use crate::variant::{ObjectName, Plan, Reason, Spread, Warning, fail_unselected};
use crate::{daemonset, native};
use read::{NodeRecord, labels_of, read, record, text};

pub use divided::{Divided, Moved};
pub use read::{Malformed, is_known, kind_name, name_of};

pub use story::{Inquiry, Stand, Story};

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
    /// Fields that objects have and their kinds do not.
    unknown_fields: BTreeMap<ObjectName, Vec<String>>,
}

impl World {
    /// Takes an object in. Says whether its kind matters to planning.
    pub fn add(&mut self, object: &Value) -> Result<bool, Malformed> {
        let name = name_of(object);
        if is_known(object) && name.name.is_empty() {
            let problem = "an object needs a name".to_owned();
            return Err(Malformed { object: name.kind, field: "metadata.name".to_owned(), problem });
        }
        let (object_name, mut unknown) = (name.clone(), Vec::new());
        let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let own = kinds::find(group, kind).filter(|own| own.is_planned);
        // Of groups there is one version; objects of another are told to be malformed.
        let own = own.filter(|own| own.at.version == version || own.family == "group");
        match own {
            Some(own) => self.add_own(own.name, object, &name, &mut unknown)?,
            None if (api_version, kind) == (kinds::NODE.version, kinds::NODE.kind) => {
                _ = self.nodes.insert(name.name, record(object));
            }
            None => {
                let native = kinds::find_native(group, kind).map(|native| native.template_field);
                // A pod that nothing controls asks for itself; the others are what their workload makes of them.
                let is_bare = (api_version, kind) == (kinds::POD.version, kinds::POD.kind) && !is_controlled(object);
                let Some(field) = native.or(is_bare.then_some("")) else { return Ok(false) };
                let labels = labels_of(object);
                if !labels.contains_key(REQUIRED_OVERRIDE_LABEL) && !labels.contains_key(REQUIRED_PROPAGATION_LABEL) {
                    // It may have asked for one before.
                    return Ok(self.natives.remove(&name).is_some());
                }
                let malformed = |field: &str, problem: &str| {
                    Err(Malformed { object: name.to_string(), field: field.to_owned(), problem: problem.to_owned() })
                };
                if native::template(field, object).is_none() {
                    return malformed(field, "a workload needs a pod template");
                }
                if name.name.is_empty() {
                    return malformed("metadata.name", "an object needs a name");
                }
                _ = self.natives.insert(name, object.clone());
            }
        }
        self.unknown_fields.insert(object_name, unknown);
        Ok(true)
    }

    /// Takes in an object of a kind of ours.
    fn add_own(
        &mut self,
        kind: Name,
        object: &Value,
        name: &ObjectName,
        unknown: &mut Vec<String>,
    ) -> Result<(), Malformed> {
        let key = (name.namespace.clone(), name.name.clone());
        match kind {
            Name::DaemonSet => _ = self.daemonsets.insert(key, read(object, name, unknown)?),
            Name::NodeGroup => _ = self.node_groups.insert(key.1, read(object, name, unknown)?),
            Name::PropagationPolicy => _ = self.propagation_policies.insert(key, read(object, name, unknown)?),
            Name::OverridePolicy => _ = self.override_policies.insert(key, read(object, name, unknown)?),
            Name::NodePool => _ = self.node_pools.insert(key.1, read(object, name, unknown)?),
            Name::YurtAppSet => _ = self.sets.insert(key, read(object, name, unknown)?),
            Name::YurtAppDaemon => _ = self.daemons.insert(key, read(object, name, unknown)?),
            Name::Replacement => _ = self.replacements.insert(key, read(object, name, unknown)?),
            // Nobody plans them.
            Name::PodMarker | Name::NodePodProbe => {}
        }
        Ok(())
    }

    /// How many nodes it has.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has a group of this name.
    pub fn has_group(&self, name: &str) -> bool {
        self.node_groups.contains_key(name)
    }

    /// Which nodes have which labels.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for (name, record) in &self.nodes {
            let labels = record.labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())));
            census.put(name, labels);
        }
        census
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

    /// What is probably not meant beyond any one plan: fields that their kinds have not got, policies that no workload
    /// asks for, and replacements for applications that are not there.
    pub fn notices(&self) -> Vec<Warning> {
        let unknown = self.unknown_fields.iter().flat_map(|(object, fields)| {
            fields.iter().map(|field| Warning {
                reason: Reason::Mistake,
                rule: Source { object: object.to_string(), rule: field.clone() },
                text: "there is no such field".to_owned(),
            })
        });
        unknown.chain(self.orphans()).collect()
    }

    fn orphans(&self) -> Vec<Warning> {
        let asked = |label: &str, key: &Key| {
            let asks = |namespace: &str, labels: Option<&BTreeMap<String, String>>| {
                namespace == key.0 && labels.and_then(|labels| labels.get(label)) == Some(&key.1)
            };
            self.daemonsets.iter().any(|(known, set)| asks(&known.0, set.metadata.labels.as_ref()))
                || self.natives.iter().any(|(name, object)| asks(&name.namespace, Some(&labels_of(object))))
        };
        let orphan = |kind: &str, key: &Key, rule: &str, text: String| Warning {
            reason: Reason::Unused,
            rule: Source { object: object_name(kind, key).to_string(), rule: rule.to_owned() },
            text,
        };
        let nobody = |label: &str| format!("no workload asks for it with the label {label}");
        let mut warnings = Vec::new();
        for key in self.override_policies.keys().filter(|key| !asked(REQUIRED_OVERRIDE_LABEL, key)) {
            warnings.push(orphan("OverridePolicy", key, "metadata.name", nobody(REQUIRED_OVERRIDE_LABEL)));
        }
        for key in self.propagation_policies.keys().filter(|key| !asked(REQUIRED_PROPAGATION_LABEL, key)) {
            warnings.push(orphan("PropagationPolicy", key, "metadata.name", nobody(REQUIRED_PROPAGATION_LABEL)));
        }
        for (key, object) in &self.replacements {
            let subject = (key.0.clone(), object.subject.name.clone());
            let (kind, is_there) = match object.subject.kind {
                SubjectKind::YurtAppSet => ("YurtAppSet", self.sets.contains_key(&subject)),
                SubjectKind::YurtAppDaemon => ("YurtAppDaemon", self.daemons.contains_key(&subject)),
            };
            if !is_there {
                let text = format!("there is no {}", object_name(kind, &subject));
                warnings.push(orphan("YurtAppConfigurationReplacement", key, "subject", text));
            }
        }
        warnings
    }

    /// A DaemonSet of ours, and what the OverridePolicy that it asks for makes of its pods, once it is confirmed; and whether
    /// that policy is suspended.
    pub fn own_daemonset(&self, object: &ObjectName) -> Option<(&DaemonSet, Overriding, bool)> {
        let set = self.daemonsets.get(&(object.namespace.clone(), object.name.clone()))?;
        let asked = set.metadata.labels.as_ref().and_then(|labels| labels.get(REQUIRED_OVERRIDE_LABEL));
        let policy = asked.map(|name| self.override_policies.get(&(object.namespace.clone(), name.clone())));
        let (overriding, is_suspended) = match (asked, policy.flatten()) {
            (None, _) => (Overriding::None, false),
            (Some(name), None) => (Overriding::Waits(format!("there is no OverridePolicy {name:?}")), false),
            (Some(name), Some(policy)) => {
                let groups = self.node_groups.iter().map(|(name, group)| (name.as_str(), &group.spec));
                let named = format!("OverridePolicy {}/{name}", object.namespace);
                let rules = GroupRules::new(named, Arc::new(policy.spec.clone()), groups);
                let suspend = policy.metadata.annotations.as_ref().and_then(|known| known.get(SUSPEND_ANNOTATION));
                (Overriding::By(Arc::new(rules)), suspend.is_some_and(|said| said == "true"))
            }
        };
        (object.kind == "DaemonSet").then_some((set, overriding, is_suspended))
    }

    /// What a workload's pods are selected by.
    pub fn selector_of(&self, object: &ObjectName) -> Option<LabelSelector> {
        let key = (object.namespace.clone(), object.name.clone());
        match object.kind.as_str() {
            "DaemonSet" => Some(self.daemonsets.get(&key)?.spec.selector.clone()),
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
        let overrides = daemon_overrides(policy, groups, &mut missing);
        missing.extend(unpropagated(&object, &labels));
        let mut plan = daemonset::plan(object, &set.spec, self.nodes(), &overrides);
        plan.warnings.splice(0..0, missing);
        plan
    }

    /// A native workload that asks for a policy.
    fn native(&self, name: &ObjectName, object: &Value, groups: &Groups) -> Option<Plan> {
        let labels: BTreeMap<String, String> = labels_of(object);
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let kind = kinds::find_native(group, text(object, "/kind"));
        let template_field = kind.map_or("", |kind| kind.template_field);
        let bare = kind.is_none().then(|| native::template_of_pod(object));
        let template = bare.as_ref().or_else(|| native::template(template_field, object))?;
        let update = native::update_of(object);
        let mut missing = Vec::new();
        let overrides = self.overrides_for(name, &labels, &mut missing);
        let mut plan = if kind.is_some_and(|kind| kind.at == kinds::NATIVE_DAEMON_SET.at) {
            let overrides = daemon_overrides(overrides, groups, &mut missing);
            missing.extend(unpropagated(name, &labels));
            native::plan_daemonset(name.clone(), template, update, self.nodes(), &overrides)
        } else {
            let asked = ("PropagationPolicy", REQUIRED_PROPAGATION_LABEL);
            let propagation = asked_for(&self.propagation_policies, asked, name, &labels, &mut missing);
            let propagation = propagation.map(|(object, policy)| Named { object, spec: &policy.spec });
            let together = bare.is_some().then(|| self.bare_pods(name, &labels));
            let (object, pods) = (name.clone(), together.unwrap_or_else(|| native::pods_of(object)));
            let workload = Workload { object, template, template_field, update, pods, propagation, overrides };
            let mut plan = plan_workload(&workload, groups, self.nodes());
            if let Some(spread) = &mut plan.spread {
                spread.together = together;
                self.place(spread, template, &labels, workload.overrides.as_ref());
            }
            plan
        };
        if let Some(selector) = native::selector(object) {
            fail_unselected(&mut plan, &selector);
        }
        plan.warnings.splice(0..0, missing);
        Some(plan)
    }

    /// How many pods that nothing controls are divided with one of them.
    fn bare_pods(&self, name: &ObjectName, labels: &BTreeMap<String, String>) -> usize {
        let policy = labels.get(REQUIRED_PROPAGATION_LABEL);
        let with_it = |(other, object): &(&ObjectName, &Value)| {
            other.kind == name.kind
                && other.namespace == name.namespace
                && labels_of(object).get(REQUIRED_PROPAGATION_LABEL) == policy
        };
        self.natives.iter().filter(with_it).count()
    }

    /// Says what pods of each group are like once they are placed.
    fn place(
        &self,
        spread: &mut Spread,
        template: &Value,
        labels: &BTreeMap<String, String>,
        overrides: Option<&Named<'_, OverridePolicySpec>>,
    ) {
        // What is confirmed is what is asked for.
        let asked: BTreeMap<String, String> = Pair::ALL
            .into_iter()
            .filter_map(|pair| Some((pair, labels.get(pair.required())?)))
            .flat_map(|(pair, policy)| [pair.required(), pair.binding()].map(|key| (key.to_owned(), policy.clone())))
            .collect();
        for share in &mut spread.groups {
            let edition =
                overrides.map(|policy| Edition::of(&policy.object, policy.spec, &share.group)).unwrap_or_default();
            let group = self.node_groups.get(&share.group);
            share.pod = group.and_then(|group| placed(template, &asked, (&share.group, &group.spec), &edition).ok());
            share.edition = edition.name;
        }
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

    fn overrides_for<'a>(
        &'a self,
        object: &ObjectName,
        labels: &BTreeMap<String, String>,
        missing: &mut Vec<Warning>,
    ) -> Option<Named<'a, OverridePolicySpec>> {
        let asked = ("OverridePolicy", REQUIRED_OVERRIDE_LABEL);
        let (object, policy) = asked_for(&self.override_policies, asked, object, labels, missing)?;
        Some(Named { object, spec: &policy.spec })
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
}

/// A DaemonSet that asks for a PropagationPolicy, which can have no say in where its pods are.
fn unpropagated(object: &ObjectName, labels: &BTreeMap<String, String>) -> Option<Warning> {
    let name = labels.get(REQUIRED_PROPAGATION_LABEL)?;
    Some(Warning {
        reason: Reason::Unused,
        rule: Source { object: object.to_string(), rule: format!("metadata.labels[{REQUIRED_PROPAGATION_LABEL}]") },
        text: format!(
            "the pods of a DaemonSet belong to their nodes: PropagationPolicy {name:?} has no say in where they are"
        ),
    })
}

/// The policy that an object asks for with a label; one that is not there is told.
fn asked_for<'a, T>(
    policies: &'a BTreeMap<Key, T>,
    (kind, label): (&str, &str),
    object: &ObjectName,
    labels: &BTreeMap<String, String>,
    missing: &mut Vec<Warning>,
) -> Option<(String, &'a T)> {
    let key = (object.namespace.clone(), labels.get(label)?.clone());
    let name = object_name(kind, &key);
    let found = policies.get(&key);
    if found.is_none() {
        let rule = Source { object: object.to_string(), rule: format!("metadata.labels[{label}]") };
        missing.push(Warning { reason: Reason::Missing, rule, text: format!("there is no {name}") });
    }
    Some((name.to_string(), found?))
}

/// What a policy does to pods that belong to their nodes, and its rules that do nothing.
fn daemon_overrides(
    policy: Option<Named<'_, OverridePolicySpec>>,
    groups: &Groups,
    warnings: &mut Vec<Warning>,
) -> Overrides {
    let Some(policy) = policy else { return Overrides::default() };
    warnings.extend(unused(&policy, groups.keys().map(String::as_str)));
    overrides(&policy, groups)
}

/// Whether something controls an object.
fn is_controlled(object: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["controller"] == true)
}

fn object_name(kind: &str, (namespace, name): &Key) -> ObjectName {
    ObjectName { kind: kind.to_owned(), namespace: namespace.clone(), name: name.clone() }
}

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;

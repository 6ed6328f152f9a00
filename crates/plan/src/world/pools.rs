//! Applications in pools, as their controller looks at them.

use dapple_api::pool::{NODE_POOL_LABEL, YurtAppConfigurationReplacement};
use dapple_api::selector::{Selector, SelectorError};

use super::World;
use crate::pool::application::AskedPool;
use crate::pool::object::{ApplicationObject, counting};
use crate::pool::version::{Pools, Version};
use crate::variant::ObjectName;

impl World {
    /// An application in pools; nothing if there is none of this name, or it is something else.
    pub fn application(&self, object: &ObjectName) -> Option<ApplicationObject> {
        let key = (object.namespace.clone(), object.name.clone());
        let mut found: ApplicationObject = match object.kind.as_str() {
            "YurtAppSet" => self.sets.get(&key)?.clone().into(),
            "YurtAppDaemon" => self.daemons.get(&key)?.clone().into(),
            _ => return None,
        };
        // In files it may be left out.
        found.metadata.namespace = Some(key.0);
        Some(found)
    }

    /// The object whose replacements count for an application.
    pub fn replacement_of(&self, application: &ApplicationObject) -> Option<&YurtAppConfigurationReplacement> {
        let is_beside = |namespace: &str| namespace == application.namespace();
        let beside = self.replacements.iter().filter(|((namespace, _), _)| is_beside(namespace));
        counting(beside.map(|(_, replacement)| replacement), application)
    }

    /// The pools that an application should be in, by name.
    pub fn asked_pools(&self, version: &Version) -> Result<Vec<AskedPool>, SelectorError> {
        let selector = match &version.pools {
            Pools::Named(topology) => {
                let named = topology.pools.iter().map(|pool| AskedPool { name: pool.name.clone(), taints: Vec::new() });
                return Ok(named.collect());
            }
            Pools::Selected(selector) => selector.as_ref().map(Selector::new).transpose()?,
        };
        let selected = self.node_pools.iter().filter(|(_, pool)| {
            let label = |key: &str| pool.metadata.labels.as_ref()?.get(key).map(String::as_str);
            selector.as_ref().is_some_and(|selector| selector.matches(label))
        });
        Ok(selected.map(|(name, pool)| AskedPool { name: name.clone(), taints: pool.spec.taints.clone() }).collect())
    }

    /// Whether nothing may be changed in a pool of an application that selects its pools: its NodePool is gone while nodes carry its
    /// label.
    pub fn is_untouchable(&self, version: &Version, pool: &str) -> bool {
        let is_labelled =
            || self.nodes.values().any(|node| node.labels.get(NODE_POOL_LABEL).is_some_and(|name| name == pool));
        matches!(version.pools, Pools::Selected(_)) && !self.node_pools.contains_key(pool) && is_labelled()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn world(objects: &[Value]) -> World {
        let mut world = World::default();
        for object in objects {
            assert_eq!(world.add(object), Ok(true), "{object}");
        }
        world
    }

    fn of(kind: &str, name: &str, more: Value) -> Value {
        let version = if kind == "NodePool" { "v1beta1" } else { "v1alpha1" };
        let mut object =
            json!({"apiVersion": format!("apps.openyurt.io/{version}"), "kind": kind, "metadata": {"name": name}});
        for (field, value) in more.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    }

    fn application(kind: &str, more: Value) -> Value {
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}},
            "workloadTemplate": {"deploymentTemplate": {"spec": {"template": {}}}}});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        of(kind, "web", json!({"spec": spec}))
    }

    fn name(kind: &str) -> ObjectName {
        ObjectName { kind: kind.to_owned(), namespace: "default".to_owned(), name: "web".to_owned() }
    }

    #[test]
    fn an_application_has_its_replacement_and_its_pools() {
        let pool = |name: &str, site: &str| {
            let taints = json!([{"key": "edge", "effect": "NoSchedule"}]);
            of(
                "NodePool",
                name,
                json!({"metadata": {"name": name, "labels": {"site": site}}, "spec": {"taints": taints}}),
            )
        };
        let daemon = application("YurtAppDaemon", json!({"nodepoolSelector": {"matchLabels": {"site": "a"}}}));
        let replacement = of(
            "YurtAppConfigurationReplacement",
            "r",
            json!({
            "subject": {"kind": "YurtAppDaemon", "name": "web"}, "replacements": []}),
        );
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {NODE_POOL_LABEL: "gone"}}});
        let world = world(&[pool("one", "a"), pool("two", "b"), daemon, replacement, node]);
        let found = world.application(&name("YurtAppDaemon")).unwrap();
        assert_eq!((found.namespace(), found.name()), ("default", "web"));
        assert!(world.replacement_of(&found).is_some());
        let version = found.version(None);
        let pools = world.asked_pools(&version).unwrap();
        assert_eq!(pools.iter().map(|pool| (&*pool.name, pool.taints.len())).collect::<Vec<_>>(), [("one", 1)]);
        assert!(world.is_untouchable(&version, "gone"));
        assert!(!world.is_untouchable(&version, "two") && !world.is_untouchable(&version, "empty"));
        assert_eq!(world.application(&name("YurtAppSet")), None);
    }

    #[test]
    fn a_set_names_its_pools_itself() {
        let topology = json!({"topology": {"pools": [{"name": "x"}, {"name": "y"}]}});
        let world = world(&[application("YurtAppSet", topology)]);
        let found = world.application(&name("YurtAppSet")).unwrap();
        let version = found.version(None);
        assert_eq!(world.asked_pools(&version).map(|pools| pools.len()), Ok(2));
        assert!(world.replacement_of(&found).is_none() && !world.is_untouchable(&version, "z"));
    }
}

//! Tenants in one control plane: which DaemonSets are where they may not be.

use std::collections::BTreeMap;

use dapple_api::partition::{SYSTEM_TENANT, TenantLabel};
use serde::Serialize;

/// A namespace, as far as tenancy looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl Namespace {
    /// Whose it is: without the label, the system tenant's.
    pub fn tenant(&self, label: &TenantLabel) -> &str {
        self.labels.get(label.key()).map_or(SYSTEM_TENANT, String::as_str)
    }
}

/// A DaemonSet of any API group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DaemonSet {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its API group: `apps` or `apps.kruise.io`.
    pub group: String,
}

/// A DaemonSet in a tenant's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// Its API group.
    pub group: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whose the namespace is.
    pub tenant: String,
    /// What to do about it.
    pub remedy: String,
}

/// Every DaemonSet outside the system tenant, by namespace, name and group. One whose namespace is not there any more is
/// on its way out too.
pub fn violations(namespaces: &[Namespace], sets: &[DaemonSet], label: &TenantLabel) -> Vec<Violation> {
    let tenants: BTreeMap<&str, &str> =
        namespaces.iter().map(|namespace| (namespace.name.as_str(), namespace.tenant(label))).collect();
    let mut foreign: Vec<(&DaemonSet, &str)> = sets
        .iter()
        .filter_map(|set| Some((set, *tenants.get(set.namespace.as_str())?)))
        .filter(|(_, tenant)| *tenant != SYSTEM_TENANT)
        .collect();
    foreign.sort_unstable();
    foreign.into_iter().map(|(set, tenant)| violation(set, tenant, label)).collect()
}

fn violation(set: &DaemonSet, tenant: &str, label: &TenantLabel) -> Violation {
    let DaemonSet { namespace, name, group } = set.clone();
    let remedy = format!(
        "create it in a namespace of the system tenant and `kubectl delete daemonset.{group} -n {namespace} {name}`; \
         if the namespace is the system tenant's: `kubectl label namespace {namespace} {label}-`"
    );
    Violation { group, namespace, name, tenant: tenant.to_owned(), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Namespace { name: name.to_owned(), labels }
    }

    fn set(group: &str, namespace: &str, name: &str) -> DaemonSet {
        DaemonSet { namespace: namespace.to_owned(), name: name.to_owned(), group: group.to_owned() }
    }

    fn found(namespaces: &[Namespace], sets: &[DaemonSet], label: &TenantLabel) -> Vec<String> {
        let shown = |is: &Violation| format!("{}/{}/{} of {}", is.group, is.namespace, is.name, is.tenant);
        violations(namespaces, sets, label).iter().map(shown).collect()
    }

    #[test]
    fn only_namespaces_of_other_tenants_break_the_rule() {
        let label = TenantLabel::default();
        let namespaces = [
            namespace("kube-system", &[]),
            namespace("infra", &[("dapple.dev/tenant", "system")]),
            namespace("acme", &[("dapple.dev/tenant", "acme")]),
            namespace("blank", &[("dapple.dev/tenant", "")]),
            namespace("other", &[("team", "blue")]),
        ];
        let sets = [
            set("apps", "kube-system", "proxy"),
            set("apps", "infra", "agent"),
            set("apps.kruise.io", "acme", "agent"),
            set("apps", "acme", "agent"),
            set("apps", "acme", "a"),
            set("apps", "blank", "agent"),
            set("apps", "other", "agent"),
            set("apps", "gone", "agent"),
        ];
        let expected = [
            "apps/acme/a of acme",
            "apps/acme/agent of acme",
            "apps.kruise.io/acme/agent of acme",
            // An empty value is somebody's mistake, and the system tenant is the one that must not be had by mistake.
            "apps/blank/agent of ",
        ];
        assert_eq!(found(&namespaces, &sets, &label), expected);
        assert_eq!(found(&namespaces, &sets, &"team".parse().expect("a key")), ["apps/other/agent of blue"]);
        assert_eq!(found(&namespaces, &[], &label), [""; 0]);
    }

    #[test]
    fn a_violation_says_what_to_do() {
        let namespaces = [namespace("acme", &[("team", "acme")])];
        let label: TenantLabel = "team".parse().expect("a key");
        let found = violations(&namespaces, &[set("apps.kruise.io", "acme", "agent")], &label);
        assert!(found[0].remedy.contains("`kubectl delete daemonset.apps.kruise.io -n acme agent`"), "{found:?}");
        assert!(found[0].remedy.contains("`kubectl label namespace acme team-`"), "{found:?}");
    }
}

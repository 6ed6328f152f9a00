//! Tenants in one control plane: DaemonSets belong to the system tenant, since they run on everybody's nodes.
//!
//! The rule is kept by ValidatingAdmissionPolicies, which the API server judges by itself: nothing that could be down.

mod authors;
mod manager;
mod policies;
mod pools;
mod probers;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::crd::{MANAGED_BY, MANAGED_BY_LABEL};

pub use authors::{AuthorPolicy, author_policies};
pub use policies::{policies_of, tenancy_policies};
pub use probers::prober_account;

/// The namespace label that names a tenant, unless another key is configured.
pub const TENANT_LABEL: &str = "dapple.dev/tenant";
/// The tenant that DaemonSets belong to, and every namespace without the label.
pub const SYSTEM_TENANT: &str = "system";
/// What every refusal of a DaemonSet begins with.
pub const REFUSAL: &str = "only system tenant is allowed to have DaemonSet";
/// Where a policy says which label it goes by, as text that need not be found in an expression.
pub const LABEL_ANNOTATION: &str = "dapple.dev/tenant-label";

/// Name of the policy on DaemonSets, and of its binding.
pub const DAEMONSET_POLICY: &str = "dapple-system-daemonsets";
/// Name of the policy on the tenant label of namespaces, and of its binding.
pub const NAMESPACE_POLICY: &str = "dapple-namespace-tenants";
/// Name of the ClusterRole that grants [`PERMISSION`].
pub const ROLE: &str = "dapple-system-daemonsets";

/// The permission to manage DaemonSets and tenants. No such resource exists: only the right to it is asked for.
pub const PERMISSION: Permission = Permission { verb: "manage", resource: "systemdaemonsets", group: "dapple.dev" };

/// A right that RBAC can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// What may be done.
    pub verb: &'static str,
    /// To which resource.
    pub resource: &'static str,
    /// Of which API group.
    pub group: &'static str,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on {}.{}", self.verb, self.resource, self.group)
    }
}

/// The key of the namespace label that names a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLabel(String);

impl TenantLabel {
    /// The key as Kubernetes writes it.
    pub fn key(&self) -> &str {
        &self.0
    }
}

impl Default for TenantLabel {
    fn default() -> Self {
        Self(TENANT_LABEL.to_owned())
    }
}

impl fmt::Display for TenantLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text cannot be a label's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no label key; give one such as {TENANT_LABEL}: [PREFIX/]NAME of letters, digits, '-', '_' and '.'")]
pub struct NoLabelKey(String);

impl FromStr for TenantLabel {
    type Err = NoLabelKey;

    fn from_str(text: &str) -> Result<Self, NoLabelKey> {
        let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
        let framed = |part: &str| {
            let ends = [part.chars().next(), part.chars().last()];
            ends.iter().all(|end| end.is_some_and(|letter| letter.is_ascii_alphanumeric()))
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        let is_domain =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '.');
        let name_fits = name.len() <= 63 && framed(name) && name.chars().all(is_name);
        let prefix_fits =
            prefix.is_none_or(|prefix| prefix.len() <= 253 && framed(prefix) && prefix.chars().all(is_domain));
        if name_fits && prefix_fits { Ok(Self(text.to_owned())) } else { Err(NoLabelKey(text.to_owned())) }
    }
}

/// What happens to a request that breaks the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It passes, and the API server's audit log has it.
    Audit,
    /// It passes, whoever sent it is warned, and the audit log has it.
    Warn,
    /// It is refused.
    Deny,
}

impl Action {
    /// The `validationActions` of a binding.
    pub fn validation_actions(self) -> &'static [&'static str] {
        match self {
            Self::Audit => &["Audit"],
            Self::Warn => &["Audit", "Warn"],
            Self::Deny => &["Deny"],
        }
    }

    /// The action that a binding's `validationActions` come to.
    pub fn of_binding(binding: &Value) -> Option<Self> {
        let actions = binding["spec"]["validationActions"].as_array()?;
        [(Self::Deny, "Deny"), (Self::Warn, "Warn"), (Self::Audit, "Audit")]
            .into_iter()
            .find(|(_, name)| actions.iter().any(|action| action == name))
            .map(|(action, _)| action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Audit => "audit",
            Self::Warn => "warn",
            Self::Deny => "deny",
        })
    }
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceAccount {
    /// The user that the API server takes it for.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// How tenants are told apart, and what happens where the rule is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenancy {
    /// The namespace label that names the tenant.
    pub label: TenantLabel,
    /// What happens to a request that breaks the rule.
    pub action: Action,
    /// dapple's manager, which counts among the cluster's own controllers.
    pub manager: ServiceAccount,
}

/// The ClusterRole that grants the permission, for accounts such as those of GitOps tools.
pub fn system_daemonsets_role() -> Value {
    let Permission { verb, resource, group } = PERMISSION;
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}],
    })
}

/// A text as a string of CEL: what JSON escapes, CEL reads the same way.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_are_checked() {
        for good in ["tenant", TENANT_LABEL, "a.b-c/D_e.f", "x/1"] {
            assert_eq!(good.parse::<TenantLabel>().map(|label| label.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(64);
        for bad in ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "A/b", "a'b", "a b", "a\"", long.as_str()] {
            let error = bad.parse::<TenantLabel>().expect_err(bad);
            assert!(error.to_string().contains("is no label key"), "{error}");
        }
    }

    #[test]
    fn actions_are_read_back_from_bindings() {
        for action in [Action::Audit, Action::Warn, Action::Deny] {
            let binding = json!({"spec": {"validationActions": action.validation_actions()}});
            assert_eq!(Action::of_binding(&binding), Some(action));
        }
        assert_eq!(Action::of_binding(&json!({})), None);
    }

    #[test]
    fn what_is_quoted_stays_inside_its_quotes() {
        assert_eq!(quoted(r#"a"b\"#), r#""a\"b\\""#);
    }
}

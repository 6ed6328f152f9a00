//! How a cluster stands by the rule that DaemonSets are the system tenant's, as `dapple tenancy check` shows it.

use std::fmt;

use dapple_api::partition::{Action, REFUSAL};
use dapple_plan::partition::Violation;
use serde::Serialize;

use crate::paint::{Tone, count, harmless, paint};

/// What was found, to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenancyView {
    /// The namespace label that names the tenant.
    pub tenant_label: String,
    /// How the rule is enforced; `None` if it is not.
    pub enforced: Option<Action>,
    /// How many DaemonSets there are, of every API group.
    pub daemon_sets: usize,
    /// Those that are not the system tenant's.
    pub violations: Vec<Violation>,
    /// Whether with colour.
    #[serde(skip)]
    pub colour: bool,
}

impl fmt::Display for TenancyView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let enforced = match self.enforced {
            Some(action) => format!("as {action}"),
            None => "no: `dapple tenancy enforce` starts it".to_owned(),
        };
        let sets = count(self.daemon_sets, "DaemonSet");
        let broken = match self.violations.len() {
            0 => "all of them the system tenant's".to_owned(),
            number => format!("of which {number} not the system tenant's"),
        };
        let found = if self.daemon_sets == 0 { "none".to_owned() } else { format!("{sets}, {broken}") };
        for (name, text) in [
            ("tenants", format!("by label {} of namespaces", self.tenant_label)),
            ("enforced", enforced),
            ("found", found),
        ] {
            writeln!(f, "  {name:<9} {}", harmless(&text))?;
        }
        if self.violations.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{}", paint(&format!("Breaks the rule: {REFUSAL}"), Tone::Heading, self.colour))?;
        for Violation { group, namespace, name, tenant, remedy } in &self.violations {
            let what = format!("DaemonSet {namespace}/{name} ({group}): its namespace belongs to tenant {tenant:?}");
            writeln!(f, "  - {}", paint(&what, Tone::Bad, self.colour))?;
            writeln!(f, "    {}", harmless(remedy))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_well() {
        let violation = Violation {
            group: "apps".into(),
            namespace: "acme".into(),
            name: "agent".into(),
            tenant: "ac\u{1b}me".into(),
            remedy: "delete it".into(),
        };
        let mut view = TenancyView {
            tenant_label: "dapple.dev/tenant".into(),
            enforced: Some(Action::Warn),
            daemon_sets: 5,
            violations: vec![violation],
            colour: false,
        };
        let expected = r#"  tenants   by label dapple.dev/tenant of namespaces
  enforced  as warn
  found     5 DaemonSets, of which 1 not the system tenant's

Breaks the rule: only system tenant is allowed to have DaemonSet
  - DaemonSet acme/agent (apps): its namespace belongs to tenant "ac\u{1b}me"
    delete it
"#;
        assert_eq!(view.to_string(), expected);
        assert_eq!(serde_json::to_value(&view).expect("it serialises")["enforced"], "warn");
        (view.enforced, view.violations) = (None, Vec::new());
        let text = view.to_string();
        assert!(text.contains("`dapple tenancy enforce` starts it") && text.contains("all of them"), "{text}");
    }
}

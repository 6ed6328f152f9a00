//! What `dapple adopt pool` found, will do, and cannot do yet.

use std::fmt::{self, Display};

use dapple_api::yaml;
use dapple_plan::adopt::pool::manager::{Manager, controllers};
use dapple_plan::adopt::pool::{AdoptedKind, Adoption, Taken};

use super::{Report, or};
use crate::paint::{count, harmless};

/// An adoption of kinds of pools, to be shown.
#[derive(Debug, Clone, Copy)]
pub struct PoolAdoptView<'a> {
    /// What to show.
    pub adoption: &'a Adoption,
    /// Address of the API server.
    pub server: &'a str,
    /// Whether with colour.
    pub colour: bool,
}

impl Display for PoolAdoptView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Adoption { kinds, managers, hooks, workloads, replacements, notes, refusals, .. } = self.adoption;
        let mut report = Report { f, colour: self.colour };
        for adopted in kinds {
            report.heading(&format!("CRD {} at {}", adopted.taken.kind.crd(), self.server))?;
            report.line("served by", &or(adopted.crd.served_by.join("; "), "nobody who says so"))?;
            report.line("stored as", &or(adopted.crd.stored.join(", "), "nothing"))?;
            report.line("conversion", &adopted.crd.conversion)?;
            report.line("objects", &objects(adopted))?;
        }
        let taken: Vec<&'static Taken> = kinds.iter().map(|adopted| adopted.taken).collect();
        report.heading("OpenYurt")?;
        let pods = usize::try_from(self.adoption.pods()).unwrap_or(0);
        report.line("workloads", &format!("{}, {}", count(workloads.len(), "workload"), count(pods, "pod")))?;
        let shown: Vec<String> = managers.iter().map(|manager| shown_manager(manager, &taken)).collect();
        report.line("manager", &or(shown.join("; "), "none found"))?;
        let names: Vec<String> = hooks.iter().map(|edited| format!("{} {}", edited.kind, edited.name)).collect();
        report.line("webhooks", &or(names.join(", "), "none to be changed"))?;
        report.outcome(&self.adoption.steps(), notes, refusals)?;
        if replacements.is_empty() {
            return Ok(());
        }
        report.section("Replacements to apply")?;
        for replacement in replacements {
            writeln!(report.f, "---")?;
            for line in yaml::document(replacement).lines() {
                writeln!(report.f, "{}", harmless(line))?;
            }
        }
        Ok(())
    }
}

fn objects(adopted: &AdoptedKind) -> String {
    if !adopted.is_listed {
        return "cannot be listed".to_owned();
    }
    count(adopted.objects.len(), adopted.taken.kind.at.kind)
}

fn shown_manager(manager: &Manager, taken: &[&'static Taken]) -> String {
    let replicas = count(usize::try_from(manager.wanted).unwrap_or(0), "replica");
    let all = controllers(taken);
    let on: Vec<&str> = all.iter().filter(|known| manager.is_on(**known)).map(|known| known.name).collect();
    let on = or(on.join(", "), "none of these kinds");
    format!("{} with {replicas}; controllers that are on: {on}", manager.object())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dapple_plan::adopt::pool::{NODE_POOLS, Observed, SeenKind, judge};
    use serde_json::json;

    use super::*;

    fn observed() -> Observed {
        let crd = json!({"metadata": {"uid": "u", "labels": {"app.kubernetes.io/managed-by": "He\u{1b}lm"}},
            "status": {"storedVersions": ["v1beta1"]}});
        let kind = SeenKind { taken: &NODE_POOLS, crd, objects: Ok(Vec::new()), names: Vec::new() };
        Observed {
            kinds: vec![kind],
            others: Vec::new(),
            deployments: vec![json!({"metadata": {"namespace": "kube-system", "name": "yurt-manager"},
                "spec": {"template": {"spec": {"containers": [{"image": "openyurt/yurt-manager:v1.4.4"}]}}}})],
            stateful_sets: Vec::new(),
            leases: Vec::new(),
            hooks: vec![
                json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "yurt-manager-validating"},
                "webhooks": [{"name": "v.nodepool", "rules": [{"apiGroups": ["apps.openyurt.io"], "resources": ["nodepools"]}]}]}),
            ],
            pools: Ok(Vec::new()),
            nodes: Vec::new(),
            revisions: Vec::new(),
            overriders: Vec::new(),
            replacements: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    #[test]
    fn a_report_has_what_is_found_done_and_missing() {
        let mut adoption = judge(&observed(), false, 0);
        adoption.notes.push("a note".to_owned());
        adoption.replacements.push(json!({"kind": "R", "subject": {"name": "a"}}));
        let text = PoolAdoptView { adoption: &adoption, server: "https://x", colour: false }.to_string();
        let expected = r#"CRD nodepools.apps.openyurt.io at https://x
  served by   label app.kubernetes.io/managed-by=He\u{1b}lm
  stored as   v1beta1
  conversion  none
  objects     0 NodePools
OpenYurt
  workloads   0 workloads, 0 pods
  manager     Deployment kube-system/yurt-manager with 1 replica; controllers that are on: nodepool-controller
  webhooks    ValidatingWebhookConfiguration yurt-manager-validating

What will be done
  1. remove v.nodepool from ValidatingWebhookConfiguration yurt-manager-validating
  2. replace the spec of CRD nodepools.apps.openyurt.io; the CRD stays, and so do its objects
  3. check that all of 0 objects can be read and no pod template of 0 workloads has changed
  4. label CRD nodepools.apps.openyurt.io as dapple's: a manager of dapple serves it from then on

Good to know
  - a note

Stands in the way
  - Deployment kube-system/yurt-manager: spec.template.spec.containers[0].args leaves nodepool-controller on, which act on what is to be adopted; switch them off, and let all else go on: `kubectl -n kube-system patch deploy yurt-manager --type=json -p '[{"op":"add","path":"/spec/template/spec/containers/0/args","value":["--controllers=*,-nodepool-controller"]}]'`

Replacements to apply
---
kind: R
subject:
  name: a
"#;
        assert_eq!(text, expected);
    }
}

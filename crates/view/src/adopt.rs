//! What `dapple adopt` found, will do, and cannot do yet.

pub mod pool;

use std::fmt::{self, Display};

use dapple_plan::adopt::product::{Holder, Workload};
use dapple_plan::adopt::{Adoption, CRD, Refusal};

use crate::paint::{Tone, count, harmless, paint};

/// An adoption, to be shown.
#[derive(Debug, Clone, Copy)]
pub struct AdoptView<'a> {
    /// What to show.
    pub adoption: &'a Adoption,
    /// Address of the API server.
    pub server: &'a str,
    /// Whether with colour.
    pub colour: bool,
}

impl Display for AdoptView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Adoption { crd, workloads, holders, is_listed, sets, pods, revisions, hooks, notes, refusals } =
            self.adoption;
        let mut report = Report { f, colour: self.colour };
        report.heading(&format!("CRD {CRD} at {}", self.server))?;
        report.line("served by", &or(crd.served_by.join("; "), "nobody who says so"))?;
        report.line("stored as", &or(crd.stored.join(", "), "nothing"))?;
        report.line("conversion", &crd.conversion)?;
        let objects =
            [count(sets.len(), "DaemonSet"), count(pods.len(), "pod"), count(*revisions, "ControllerRevision")];
        report.line("objects", &if *is_listed { objects.join(", ") } else { "cannot be listed".to_owned() })?;
        let parts = workloads.iter().map(shown_workload).chain(holders.iter().map(shown_holder));
        report.line("controller", &or(parts.collect::<Vec<_>>().join("; "), "none found"))?;
        let names: Vec<String> = hooks.iter().map(|edited| format!("{} {}", edited.kind, edited.name)).collect();
        report.line("webhooks", &or(names.join(", "), "none for DaemonSets"))?;
        report.outcome(&self.adoption.steps(), notes, refusals)
    }
}

/// What the reports of all families have in common.
struct Report<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    colour: bool,
}

impl Report<'_, '_> {
    fn heading(&mut self, text: &str) -> fmt::Result {
        writeln!(self.f, "{}", paint(text, Tone::Heading, self.colour))
    }

    /// A heading with an empty line before it.
    fn section(&mut self, text: &str) -> fmt::Result {
        writeln!(self.f)?;
        self.heading(text)
    }

    fn line(&mut self, name: &str, text: &str) -> fmt::Result {
        writeln!(self.f, "  {name:<11} {}", harmless(text))
    }

    /// What will be done, what is worth knowing, and what stands in the way.
    fn outcome(&mut self, steps: &[String], notes: &[String], refusals: &[Refusal]) -> fmt::Result {
        self.section("What will be done")?;
        for (index, step) in steps.iter().enumerate() {
            writeln!(self.f, "  {}. {}", index + 1, harmless(step))?;
        }
        for (title, lines, tone) in [
            ("Good to know", notes.to_vec(), Tone::Warning),
            ("Stands in the way", refusals.iter().map(ToString::to_string).collect(), Tone::Bad),
        ] {
            if lines.is_empty() {
                continue;
            }
            self.section(title)?;
            for line in lines {
                writeln!(self.f, "  - {}", paint(&line, tone, self.colour))?;
            }
        }
        Ok(())
    }
}

fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

fn shown_workload(workload: &Workload) -> String {
    let replicas = count(usize::try_from(workload.wanted).unwrap_or(0), "replica");
    format!("Deployment {}/{} with {replicas}", workload.namespace, workload.name)
}

fn shown_holder(holder: &Holder) -> String {
    let state = if holder.is_held { "held" } else { "ended" };
    format!("lease {} of {}, {state}", holder.lease, holder.identity)
}

#[cfg(test)]
mod tests {
    use dapple_plan::adopt::{Observed, judge};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_what_is_found_done_and_missing() {
        let observed = Observed {
            crd: json!({"metadata": {"uid": "u", "labels": {"app.kubernetes.io/managed-by": "He\u{1b}lm"}},
                "status": {"storedVersions": ["v1beta1"]}}),
            deployments: vec![json!({"metadata": {"namespace": "kruise-system", "name": "kruise-controller-manager",
                "labels": {"control-plane": "controller-manager"}}})],
            leases: Vec::new(),
            hooks: vec![json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "kruise-validating"},
                "webhooks": [{"name": "vdaemonset", "rules": [{"apiGroups": ["apps.kruise.io"], "resources": ["daemonsets"]}]},
                    {"name": "vpod", "rules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["DELETE"]}]}]})],
            sets: Ok(Vec::new()),
            revisions: Vec::new(),
            pods: Vec::new(),
            refused: Vec::new(),
        };
        let adoption = judge(&observed, false, 0);
        let text = AdoptView { adoption: &adoption, server: "https://x", colour: false }.to_string();
        let expected = r"CRD daemonsets.apps.kruise.io at https://x
  served by   label app.kubernetes.io/managed-by=He\u{1b}lm
  stored as   v1beta1
  conversion  none
  objects     0 DaemonSets, 0 pods, 0 ControllerRevisions
  controller  Deployment kruise-system/kruise-controller-manager with 1 replica
  webhooks    ValidatingWebhookConfiguration kruise-validating

What will be done
  1. remove vdaemonset from ValidatingWebhookConfiguration kruise-validating
  2. replace the spec of CRD daemonsets.apps.kruise.io; the CRD stays, and so do its objects
  3. check that all of 0 DaemonSets can be read and none of 0 pods changed
  4. label the CRD as dapple's: a manager of dapple serves it from then on

Good to know
  - ValidatingWebhookConfiguration kruise-validating: vpod concerns pods and is left alone; its failurePolicy is Fail: while OpenKruise is stopped, the API server refuses to delete pods that it selects. Set it to Ignore, or remove the webhook

Stands in the way
  - Deployment kruise-system/kruise-controller-manager: spec.replicas is 1: the other controller still runs; stop it: `kubectl -n kruise-system scale deploy kruise-controller-manager --replicas=0` (that stops its other kinds as well)
";
        assert_eq!(text, expected);
    }
}

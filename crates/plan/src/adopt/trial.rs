//! Pods that the API server is asked about beforehand: what it would refuse is told before anything is adopted.

use serde_json::Value;

use super::Refusal;
use super::sets::Set;
use crate::daemonset::desired::Variants;
use crate::daemonset::lifecycle::gates;
use crate::daemonset::pod::{Wanted, pod};
use crate::fit;
use crate::world::read::{NodeRecord, record};

/// A node that pods may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    name: String,
    record: NodeRecord,
}

/// A node, as the API server gave it.
pub fn node(object: &Value) -> Node {
    Node { name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), record: record(object) }
}

/// A pod to ask about: it stands for all that a DaemonSet would make of one rendering.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its namespace.
    pub namespace: String,
    /// The pod.
    pub pod: Value,
    object: String,
    field: String,
    nodes: usize,
}

/// The pods to ask about for a DaemonSet, one for each rendering that it has on these nodes, and what does not render.
pub fn trials(set: &Set, nodes: &[Node]) -> (Vec<Trial>, Vec<Refusal>) {
    let source = (set.spec.template.0.clone(), set.spec.patches.as_slice());
    let mut variants = Variants::new(&set.to_string(), source, &set.spec, ("dry-run", 1));
    let mut counts: Vec<usize> = Vec::new();
    for Node { name, record } in nodes {
        let node = fit::Node { name, labels: &record.labels, taints: &record.taints };
        let variant = variants.of(node);
        counts.resize(variants.all().len(), 0);
        counts[variant] += usize::from(variants.misfit(variant, node).is_none());
    }
    let (mut trials, mut refusals) = (Vec::new(), Vec::new());
    let gates = gates(&set.spec);
    for (variant, nodes) in variants.all().iter().zip(counts).filter(|(_, nodes)| *nodes > 0) {
        let places: Vec<String> = variant.patches.iter().map(|place| format!("spec.patches[{place}]")).collect();
        let field = if places.is_empty() { "spec.template".to_owned() } else { places.join(", ") };
        let object = set.to_string();
        match &variant.rendering {
            Ok(rendered) => {
                let wanted = Wanted {
                    set: &set.name,
                    uid: &set.uid,
                    node: "dry-run",
                    template: &rendered.template,
                    hash: &rendered.hash,
                    revision: "dry-run",
                    gates: &gates,
                    collisions: 0,
                };
                trials.push(Trial { namespace: set.namespace.clone(), pod: pod(&wanted), object, field, nodes });
            }
            Err(error) => refusals.push(Refusal {
                object,
                field,
                problem: format!("would change no pod on {nodes} nodes: {error}"),
                remedy: "correct it: until then these nodes keep what they run".to_owned(),
            }),
        }
    }
    (trials, refusals)
}

impl Trial {
    /// What an answer other than "taken" says; nothing if it says nothing about the pod. `fields` are those that it names.
    pub fn refused(&self, code: u16, message: &str, fields: &[&str]) -> Option<Refusal> {
        // That there is no room for one more says nothing about the template: the old pod makes room.
        if code == 403 && message.contains("exceeded quota") {
            return None;
        }
        let unknown = || Some(message.split_once("unknown field \"")?.1.split_once('"')?.0);
        let named = fields.first().copied().or_else(unknown).filter(|_| self.field == "spec.template");
        let field = named.map_or_else(|| self.field.clone(), |named| format!("spec.template.{named}"));
        let (problem, remedy) = if code >= 500 {
            (
                "cannot be tried in a pod",
                "mend or remove what fails: until then no pod can be made that has to be, and none is replaced",
            )
        } else if code == 400 {
            ("would be refused", "correct it with the next change: pods of a template that ran before are still made")
        } else {
            ("would be refused", "correct it, or change what refuses it: until then no pod can be made that has to be")
        };
        let problem = format!("{problem}, for {} nodes: {message}", self.nodes);
        Some(Refusal { object: self.object.clone(), field, problem, remedy: remedy.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adopt::crd::Reading;
    use crate::adopt::sets::read;

    fn set(patches: Value) -> Set {
        let template = json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"nodeSelector": {"os": "linux"}, "containers": [{"name": "c", "image": "c:1"}]}});
        let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template, "patches": patches});
        let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec});
        read(object, Reading { version: "v1beta1", is_relabelled: false }).unwrap()
    }

    fn nodes() -> Vec<Node> {
        let labels = [
            json!({"os": "linux"}),
            json!({"os": "linux", "disk": "large"}),
            json!({"os": "linux", "disk": "odd"}),
            json!({"os": "windows", "disk": "large"}),
        ];
        labels.iter().map(|labels| node(&json!({"metadata": {"name": "x", "labels": labels}}))).collect()
    }

    #[test]
    fn one_pod_is_asked_about_for_each_rendering() {
        let patch = |disk: &str, patch: Value| json!({"selector": {"matchLabels": {"disk": disk}}, "patch": patch});
        let patches = json!([
            patch("large", json!({"spec": {"hostNetwork": true}})),
            patch("odd", json!({"spec": {"containers": [{"image": "x"}]}})),
            patch("nowhere", json!({"spec": {"hostPID": true}})),
        ]);
        let (trials, refusals) = trials(&set(patches), &nodes());
        let asked: Vec<(&str, usize)> = trials.iter().map(|trial| (trial.field.as_str(), trial.nodes)).collect();
        assert_eq!(asked, [("spec.template", 1), ("spec.patches[0]", 1)]);
        assert_eq!(trials[1].pod["spec"]["hostNetwork"], true);
        assert_eq!(trials[1].namespace, "n");
        let told = refusals[0].to_string();
        assert!(
            refusals.len() == 1 && told.starts_with("DaemonSet n/a: spec.patches[1] would change no pod"),
            "{told}"
        );
        assert_eq!(super::trials(&set(json!([])), &nodes()[3..]), (Vec::new(), Vec::new()), "it runs nowhere");
    }

    #[test]
    fn what_would_be_refused_is_told_with_its_field_and_what_to_do() {
        let (trials, _) = trials(&set(json!([])), &nodes());
        let told = |code: u16, message: &str, fields: &[&str]| {
            trials[0].refused(code, message, fields).map(|refusal| refusal.to_string())
        };
        let strict = r#"strict decoding error: unknown field "spec.containers[0].envv""#;
        for (code, message, fields, parts) in [
            (400, strict, &[][..], ["spec.template.spec.containers[0].envv would be refused", "with the next change"]),
            (
                422,
                "invalid",
                &["spec.dnsPolicy"],
                ["spec.template.spec.dnsPolicy would be refused", "no pod can be made"],
            ),
            (
                403,
                "violates PodSecurity",
                &[],
                ["spec.template would be refused, for 3 nodes: violates", "what refuses it"],
            ),
            (500, "failed calling webhook", &[], ["spec.template cannot be tried", "mend or remove what fails"]),
        ] {
            let told = told(code, message, fields).unwrap();
            assert!(told.starts_with("DaemonSet n/a: ") && parts.iter().all(|part| told.contains(part)), "{told}");
        }
        assert_eq!(told(403, "exceeded quota: q", &[]), None);
    }
}

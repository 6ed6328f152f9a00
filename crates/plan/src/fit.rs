//! Which nodes a pod template may run on, as Kubernetes' DaemonSet controller judges it: node name, node selector,
//! required node affinity and taints. Room on the node is the scheduler's matter.

use std::fmt;

use serde_json::Value;

use crate::node::Labels;

/// What planning needs to know of a node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a dyn Labels,
    /// Its taints.
    pub taints: &'a [Taint],
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty for none.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Why a template may not run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// `spec.nodeName` names another node.
    NodeName,
    /// A label that `spec.nodeSelector` asks for is missing or different.
    NodeSelector {
        /// The label.
        key: String,
    },
    /// No term of the required node affinity matches.
    Affinity,
    /// A taint that is not tolerated.
    Taint {
        /// The taint's key.
        key: String,
        /// Its effect.
        effect: String,
    },
}

impl Misfit {
    /// Whether pods that run there already may stay.
    pub fn lets_stay(&self) -> bool {
        matches!(self, Self::Taint { effect, .. } if effect == "NoSchedule")
    }
}

/// Taints of these prefixes follow a node's condition, or stand on it until its cloud provider knows it: they come and go in
/// an outage, and say nothing about which nodes a template is for.
const PASSING: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// The taint by which people say that a node is lost for good.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether a node is one of those that a template is for, whatever keeps pods from it just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// It is: nothing but passing taints keep pods from it.
    Always,
    /// As long as it runs a pod: a taint keeps new ones away.
    WithPod,
    /// It is not.
    #[default]
    Never,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName => f.write_str("spec.nodeName names another node"),
            Self::NodeSelector { key } => write!(f, "spec.nodeSelector asks for another value of {key}"),
            Self::Affinity => f.write_str("the required node affinity does not match"),
            Self::Taint { key, effect } => write!(f, "the taint {key}:{effect} is not tolerated"),
        }
    }
}

/// Where a template may run, read once and asked for every node.
#[derive(Debug, Clone, Default)]
pub struct Fit {
    node_name: Option<String>,
    selector: Vec<(String, String)>,
    /// Alternatives; `None` where nothing is required.
    terms: Option<Vec<Term>>,
    tolerations: Vec<Toleration>,
}

#[derive(Debug, Clone)]
struct Term {
    labels: Vec<Requirement>,
    /// On the node's name: the only field there is.
    names: Vec<Requirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Debug, Clone)]
struct Toleration {
    key: Option<String>,
    operator: String,
    value: String,
    effect: Option<String>,
}

impl Fit {
    /// Reads a pod template. What is malformed matches nothing.
    pub fn of(template: &Value) -> Self {
        let spec = &template["spec"];
        let selector = spec["nodeSelector"].as_object().into_iter().flatten();
        let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        Self {
            node_name: text(&spec["nodeName"]),
            selector: selector.map(|(key, value)| (key.clone(), text(value).unwrap_or_default())).collect(),
            terms: required.is_object().then(|| list(&required["nodeSelectorTerms"]).map(Term::of).collect()),
            tolerations: list(&spec["tolerations"]).map(Toleration::of).collect(),
        }
    }

    /// Of a pod that belongs to its node: with the tolerations that every DaemonSet's pods have.
    pub fn of_daemon(template: &Value) -> Self {
        let mut fit = Self::of(template);
        let added = daemon_tolerations(template["spec"]["hostNetwork"] == true);
        fit.tolerations.extend(added.map(|(key, effect)| Toleration {
            key: Some(key.to_owned()),
            operator: "Exists".to_owned(),
            value: String::new(),
            effect: Some(effect.to_owned()),
        }));
        fit
    }

    /// Whether pods may run on the node, and if not, why not.
    pub fn judge(&self, node: Node<'_>) -> Result<(), Misfit> {
        if self.node_name.as_ref().is_some_and(|name| name != node.name) {
            return Err(Misfit::NodeName);
        }
        let differs = |(key, value): &&(String, String)| node.labels.get(key) != Some(value);
        if let Some((key, _)) = self.selector.iter().find(differs) {
            return Err(Misfit::NodeSelector { key: key.clone() });
        }
        if self.terms.as_ref().is_some_and(|terms| !terms.iter().any(|term| term.matches(node))) {
            return Err(Misfit::Affinity);
        }
        // What drives pods out is worse than what keeps them from starting.
        let drives_out = |taint: &&Taint| taint.effect == "NoExecute" && self.is_repelled_by(taint);
        let keeps_out = |taint: &&Taint| self.is_repelled_by(taint);
        match node.taints.iter().find(drives_out).or_else(|| node.taints.iter().find(keeps_out)) {
            Some(taint) => Err(Misfit::Taint { key: taint.key.clone(), effect: taint.effect.clone() }),
            None => Ok(()),
        }
    }

    /// Whether a taint matters to pods of the template.
    pub fn is_repelled_by(&self, taint: &Taint) -> bool {
        taint.effect != "PreferNoSchedule" && !self.tolerations.iter().any(|known| known.tolerates(taint))
    }

    /// Whether a node of which [`Fit::judge`] said this is one of those that the template is for.
    pub fn reach(&self, node: Node<'_>, judged: Option<&Misfit>) -> Reach {
        match judged {
            None => return Reach::Always,
            Some(Misfit::Taint { .. }) => {}
            Some(_) => return Reach::Never,
        }
        let is_passing = |taint: &Taint| PASSING.iter().any(|prefix| taint.key.starts_with(prefix));
        let lasting = || node.taints.iter().filter(|taint| self.is_repelled_by(taint) && !is_passing(taint));
        match () {
            () if lasting().next().is_none() => Reach::Always,
            () if lasting().all(|taint| taint.effect == "NoSchedule") => Reach::WithPod,
            () => Reach::Never,
        }
    }

    /// Every label that decides where pods may run.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let of_terms = self.terms.iter().flatten().flat_map(|term| &term.labels).map(|known| known.key.as_str());
        self.selector.iter().map(|(key, _)| key.as_str()).chain(of_terms)
    }
}

const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
const DAEMON_TOLERATIONS: [(&str, &str); 7] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
    (NETWORK_UNAVAILABLE, "NoSchedule"),
];

/// Keys and effects of the taints that every DaemonSet's pods tolerate.
pub(crate) fn daemon_tolerations(on_host_network: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    DAEMON_TOLERATIONS.iter().copied().filter(move |(key, _)| *key != NETWORK_UNAVAILABLE || on_host_network)
}

/// Whether a node meets a node selector term.
pub fn term_matches(term: &Value, node: Node<'_>) -> bool {
    Term::of(term).matches(node)
}

impl Term {
    fn of(term: &Value) -> Self {
        Self {
            labels: list(&term["matchExpressions"]).map(Requirement::of).collect(),
            names: list(&term["matchFields"]).map(Requirement::of).collect(),
        }
    }

    /// An empty term matches nothing, as in Kubernetes.
    fn matches(&self, node: Node<'_>) -> bool {
        let names = |known: &Requirement| known.key == "metadata.name" && known.matches(Some(node.name));
        !(self.labels.is_empty() && self.names.is_empty())
            && self.labels.iter().all(|known| known.matches(node.labels.get(&known.key)))
            && self.names.iter().all(names)
    }
}

impl Requirement {
    fn of(value: &Value) -> Self {
        Self {
            key: text(&value["key"]).unwrap_or_default(),
            operator: text(&value["operator"]).unwrap_or_default(),
            values: list(&value["values"]).filter_map(text).collect(),
        }
    }

    fn matches(&self, found: Option<&str>) -> bool {
        let is_listed = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" => self.compares(found, |found, limit| found > limit),
            "Lt" => self.compares(found, |found, limit| found < limit),
            _ => false,
        }
    }

    fn compares(&self, found: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        match (number(found), number(self.values.first().map(String::as_str))) {
            (Some(found), Some(limit)) => holds(found, limit),
            _ => false,
        }
    }
}

impl Toleration {
    fn of(value: &Value) -> Self {
        let given = |field: &str| text(&value[field]).filter(|text| !text.is_empty());
        Self {
            key: given("key"),
            operator: given("operator").unwrap_or_else(|| "Equal".to_owned()),
            value: given("value").unwrap_or_default(),
            effect: given("effect"),
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let value_holds = || match self.operator.as_str() {
            "Exists" => true,
            "Equal" => self.key.is_some() && self.value == taint.value,
            "Gt" => number(&taint.value).zip(number(&self.value)).is_some_and(|(found, limit)| found > limit),
            "Lt" => number(&taint.value).zip(number(&self.value)).is_some_and(|(found, limit)| found < limit),
            _ => false,
        };
        self.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && value_holds()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Whether a template with this spec runs on a node named `n` with two labels and these taints.
    fn runs(spec: Value, taints: &[(&str, &str)]) -> Result<(), Misfit> {
        let labels = BTreeMap::from([("disk".to_owned(), "ssd".to_owned()), ("cores".to_owned(), "8".to_owned())]);
        let taint = |(key, effect): &(&str, &str)| {
            let (key, value) = key.split_once('=').unwrap_or((key, ""));
            Taint { key: key.to_owned(), value: value.to_owned(), effect: (*effect).to_owned() }
        };
        let taints: Vec<Taint> = taints.iter().map(taint).collect();
        Fit::of_daemon(&json!({"spec": spec})).judge(Node { name: "n", labels: &labels, taints: &taints })
    }

    fn affinity(term: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "absent", "operator": "Exists"}]}, term]}}}})
    }

    #[test]
    fn names_and_labels_decide() {
        assert_eq!(runs(json!({}), &[]), Ok(()));
        assert_eq!(runs(json!({"nodeName": "m"}), &[]), Err(Misfit::NodeName));
        assert_eq!(runs(json!({"nodeSelector": {"disk": "ssd"}}), &[]), Ok(()));
        let other = runs(json!({"nodeSelector": {"disk": "hdd"}}), &[]);
        assert_eq!(other, Err(Misfit::NodeSelector { key: "disk".to_owned() }));
    }

    #[test]
    fn one_term_of_the_affinity_is_enough() {
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (term, matches) in [
            (expression("disk", "In", json!(["hdd", "ssd"])), true),
            (expression("disk", "NotIn", json!(["ssd"])), false),
            (expression("other", "NotIn", json!(["ssd"])), true),
            (expression("disk", "DoesNotExist", json!([])), false),
            (expression("cores", "Gt", json!(["7"])), true),
            (expression("cores", "Lt", json!(["8"])), false),
            (expression("disk", "Gt", json!(["1"])), false),
            (expression("disk", "Like", json!(["ssd"])), false),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}), true),
            (json!({"matchFields": [{"key": "metadata.uid", "operator": "NotIn", "values": ["n"]}]}), false),
            (json!({}), false),
        ] {
            assert_eq!(runs(affinity(term.clone()), &[]).is_ok(), matches, "{term}");
        }
    }

    #[test]
    fn taints_repel_unless_tolerated() {
        let gpu = [("gpu=yes", "NoSchedule")];
        let tolerates = |toleration: Value| runs(json!({"tolerations": [toleration]}), &gpu).is_ok();
        assert_eq!(
            runs(json!({}), &gpu),
            Err(Misfit::Taint { key: "gpu".to_owned(), effect: "NoSchedule".to_owned() })
        );
        assert!(tolerates(json!({"operator": "Exists"})));
        assert!(tolerates(json!({"key": "gpu", "value": "yes"})));
        assert!(tolerates(json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"})));
        assert!(!tolerates(json!({"key": "gpu", "value": "no"})));
        assert!(!tolerates(json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})));
        assert_eq!(runs(json!({}), &[("any", "PreferNoSchedule")]), Ok(()));
    }

    #[test]
    fn what_passes_takes_no_node_from_a_template() {
        let labels = BTreeMap::new();
        let fit = Fit::of_daemon(&json!({"spec": {"nodeSelector": {}}}));
        let reach = |taints: &[(&str, &str)]| {
            let taint = |(key, effect): &(&str, &str)| Taint {
                key: (*key).to_owned(),
                value: String::new(),
                effect: (*effect).to_owned(),
            };
            let taints: Vec<Taint> = taints.iter().map(taint).collect();
            let node = Node { name: "n", labels: &labels, taints: &taints };
            fit.reach(node, fit.judge(node).err().as_ref())
        };
        assert_eq!(reach(&[]), Reach::Always);
        assert_eq!(reach(&[(NETWORK_UNAVAILABLE, "NoSchedule")]), Reach::Always);
        assert_eq!(reach(&[("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")]), Reach::Always);
        assert_eq!(reach(&[(OUT_OF_SERVICE, "NoExecute")]), Reach::Always);
        assert_eq!(reach(&[("team", "NoSchedule"), (NETWORK_UNAVAILABLE, "NoSchedule")]), Reach::WithPod);
        assert_eq!(reach(&[("team", "NoSchedule"), ("broken", "NoExecute")]), Reach::Never);
        let picky = Fit::of_daemon(&json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
        let node = Node { name: "n", labels: &labels, taints: &[] };
        assert_eq!(picky.reach(node, picky.judge(node).err().as_ref()), Reach::Never);
        assert_eq!(picky.label_keys().collect::<Vec<_>>(), ["disk"]);
    }

    #[test]
    fn daemons_stay_on_nodes_in_trouble() {
        let trouble =
            [("node.kubernetes.io/unschedulable", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")];
        assert_eq!(runs(json!({}), &trouble), Ok(()));
        let no_network = [(NETWORK_UNAVAILABLE, "NoSchedule")];
        assert!(runs(json!({}), &no_network).is_err());
        assert_eq!(runs(json!({"hostNetwork": true}), &no_network), Ok(()));
    }
}

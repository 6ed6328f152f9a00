//! The markers of a namespace and its pods, as they are read once: how each pod stands to a marker, and what is to be done about it.
//!
//! It decides as the controller does, but for what only that knows: which pods rest, which seats are kept, and what is
//! left of the allowance. What of these holds a marker back, its status says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::marker::{ContainerProbeState, NodePodProbe, PodMarker};

use super::choice::{Changes, Choice, Numbers};
use super::explain::{Look, Reason, hold, reason};
use super::result::{Container, Outcome, Told, outcome};
use super::rule::{Asked, Rule, Rules, Unusable};
use super::standing::{Marks, Matching, NodeOf, Pod, Standing, standing};
use super::whole::{WholeNode, WholePod};

/// What there is in a namespace.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    markers: BTreeMap<Arc<str>, PodMarker>,
    rules: Rules,
    unusable: BTreeMap<Arc<str>, Unusable>,
    /// Those that live.
    pods: BTreeMap<Arc<str>, WholePod>,
    nodes: BTreeMap<Arc<str>, WholeNode>,
    /// By UID of the pod and name of the probe.
    results: BTreeMap<(Arc<str>, Arc<str>), ContainerProbeState>,
    asked: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Nodes of which more probes are asked for than they run.
    full: BTreeSet<Arc<str>>,
    /// Nodes whose probers are heard.
    heard: BTreeSet<Arc<str>>,
}

/// How a marker stands with the pods of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// How many pods are what.
    pub numbers: Numbers,
    /// What changes wait for that are to be made.
    pub hold: Reason,
    /// Whether it cannot be used, so that no pod stands to it in any way.
    pub is_unusable: bool,
    /// The pods that live, by name.
    pub pods: Vec<PodAccount>,
}

/// How a pod stands to a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAccount {
    /// Its name.
    pub pod: Arc<str>,
    /// Its node.
    pub node: Option<Arc<str>>,
    /// Whether it is marked, or is to be.
    pub state: State,
    /// Why.
    pub reason: Reason,
}

/// Whether a pod is marked, or is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has the marks, and keeps them.
    Marked,
    /// It is to get them.
    ToMark,
    /// It has some, and is to get those that the marker names now.
    ToAmend,
    /// It is to lose them.
    ToUnmark,
    /// It has not got them, and gets none.
    NotMarked,
}

impl Seen {
    /// A marker of the namespace; one takes the place of another of its name.
    pub fn add_marker(&mut self, marker: PodMarker) {
        let name: Arc<str> = Arc::from(marker.metadata.name.as_deref().unwrap_or_default());
        self.rules.remove(&name);
        self.unusable.remove(&name);
        match Rule::of(&marker) {
            Ok(rule) => _ = self.rules.insert(name.clone(), Arc::new(rule)),
            Err(why) => _ = self.unusable.insert(name.clone(), why),
        }
        self.markers.insert(name, marker);
    }

    /// A pod of the namespace.
    pub fn add_pod(&mut self, pod: WholePod) {
        if !pod.has_ended {
            self.pods.insert(pod.name.clone(), pod);
        }
    }

    /// A node.
    pub fn add_node(&mut self, name: &str, node: WholeNode) {
        self.nodes.insert(Arc::from(name), node);
    }

    /// What a node is to probe, and the results.
    pub fn add_probes(&mut self, probes: NodePodProbe) {
        if probes.spec.beyond.is_some_and(|beyond| beyond > 0) {
            self.full.insert(Arc::from(probes.metadata.name.as_deref().unwrap_or_default()));
        }
        for pod in probes.spec.pod_probes {
            let uid: Arc<str> = Arc::from(pod.uid);
            self.asked.extend(pod.probes.into_iter().map(|probe| (uid.clone(), Arc::<str>::from(probe.name))));
        }
        for pod in probes.status.into_iter().flat_map(|status| status.pod_probe_statuses) {
            let uid: Arc<str> = Arc::from(pod.uid);
            let states = pod.probe_states.into_iter();
            self.results.extend(states.map(|state| ((uid.clone(), Arc::<str>::from(state.name.as_str())), state)));
        }
    }

    /// The prober of a node is heard.
    pub fn add_heard(&mut self, node: &str) {
        self.heard.insert(Arc::from(node));
    }

    /// A marker, as it was added.
    #[must_use]
    pub fn marker(&self, name: &str) -> Option<&PodMarker> {
        self.markers.get(name)
    }

    /// Whether some marker has probes.
    #[must_use]
    pub fn has_probes(&self) -> bool {
        self.rules.values().any(|rule| !rule.probes.is_empty())
    }

    /// How a marker stands with the pods; nothing if there is no such marker.
    #[must_use]
    pub fn account(&self, name: &str) -> Option<Account> {
        let marker = self.markers.get(name)?;
        let Some(rule) = self.rules.get(name) else {
            let hold = hold(marker, false, self.unusable.get(name));
            return Some(Account { numbers: Numbers::default(), hold, is_unusable: true, pods: Vec::new() });
        };
        // Whoever leads may have known what is not known now: so in a percentage nothing moves by it.
        let mut choice = Choice::new(rule.replicas, i64::MAX);
        let mut standings = Vec::new();
        for pod in self.pods.values() {
            let standing = self.look(rule, pod, |look| standing(look.rule, look.pod, &self.rules, look.outcome));
            choice.put((&pod.name, &pod.uid), &standing, false, Duration::ZERO);
            standings.push((pod, standing));
        }
        let (numbers, states) = (choice.numbers(), states(choice.changes(Duration::ZERO, usize::MAX)));
        let account = |(pod, standing): (&WholePod, Standing)| {
            let to_come = states.get(&pod.name).copied();
            let (state, reason) = self.look(rule, pod, |look| told(look, &standing, to_come, numbers.desired));
            PodAccount { pod: pod.name.clone(), node: pod.node.clone(), state, reason }
        };
        let pods = standings.into_iter().map(account).collect();
        Some(Account { numbers, hold: hold(marker, rule.is_suspended, None), is_unusable: false, pods })
    }

    /// Looks at a pod for a marker.
    fn look<T>(&self, rule: &Rule, pod: &WholePod, look: impl FnOnce(&Look<'_>) -> T) -> T {
        let node = match &pod.node {
            None => NodeOf::Unbound,
            Some(name) => self.nodes.get(name).map_or(NodeOf::Gone, |node| NodeOf::There(&node.labels)),
        };
        let seen: Pod<'_> = pod.on(node);
        let outcome = |container: &Container, asked: &Asked| self.outcome(pod, container, asked);
        let message = |asked: &Asked| self.results.get(&(pod.uid.clone(), asked.name.clone()))?.message.clone();
        look(&Look { rule, pod: &seen, outcome: &outcome, message: &message })
    }

    fn outcome(&self, pod: &WholePod, container: &Container, asked: &Asked) -> Outcome {
        let node = pod.node.as_deref().unwrap_or_default();
        let probe = (pod.uid.clone(), asked.name.clone());
        let told = Told {
            stored: self.results.get(&probe),
            is_heard: self.heard.contains(node),
            is_beyond: self.full.contains(node) && !self.asked.contains(&probe),
            is_node_unknown: self.nodes.get(node).is_some_and(|known| known.is_unknown),
        };
        outcome(&container.run, &told)
    }
}

/// What is to be done, by pod.
fn states(changes: Changes) -> BTreeMap<Arc<str>, State> {
    let all = [(changes.unmark, State::ToUnmark), (changes.amend, State::ToAmend), (changes.mark, State::ToMark)];
    all.into_iter().flat_map(|(pods, state)| pods.into_iter().map(move |pod| (pod, state))).collect()
}

/// Whether a pod is marked, and why. `to_come`: what is to be done about it; `desired`: how many are to be marked.
fn told(look: &Look<'_>, standing: &Standing, to_come: Option<State>, desired: usize) -> (State, Reason) {
    let against = look.against(&standing.matching);
    match (to_come, standing.marks, against) {
        (Some(State::ToUnmark), _, _) if look.rule.replicas.is_zero() => (State::ToUnmark, cleaned()),
        (Some(State::ToUnmark), _, Some(why)) => (State::ToUnmark, why),
        (Some(State::ToUnmark), _, None) => (State::ToUnmark, others(desired)),
        (Some(State::ToAmend), _, _) => {
            (State::ToAmend, reason("MarksDiffer", "its marks are not what spec.markItems says now"))
        }
        (Some(state), _, _) => (state, matches()),
        (None, Marks::Own { .. }, None) => (State::Marked, matches()),
        (None, Marks::Own { .. }, Some(Reason { word, text })) => {
            let text = match standing.matching {
                Matching::Unknown { .. } => format!("its marks stay while it is not known whether it matches: {text}"),
                _ => text,
            };
            (State::Marked, Reason { word, text })
        }
        (None, Marks::Foreign, None) => {
            (State::Marked, reason("MarkedByOthers", "it has all the marks, set by others: it counts, and keeps them"))
        }
        (None, Marks::Foreign, Some(Reason { word, text })) => {
            (State::NotMarked, Reason { word, text: format!("its marks are others', and {text}") })
        }
        (None, Marks::Lacking, Some(why)) => (State::NotMarked, why),
        (None, Marks::Lacking, None) if look.rule.replicas.is_zero() => (State::NotMarked, cleaned()),
        (None, Marks::Lacking, None) => (State::NotMarked, others(desired)),
    }
}

fn matches() -> Reason {
    reason("Matches", "it has all that spec.matchRequirements asks for")
}

fn cleaned() -> Reason {
    reason("Cleaned", "spec.strategy.replicas is 0: no pod is to have marks")
}

fn others(desired: usize) -> Reason {
    let are = if desired == 1 { "pod is" } else { "pods are" };
    reason("OthersFirst", format!("it matches, and others come first: {desired} {are} to be marked"))
}

#[cfg(test)]
#[path = "seen_tests.rs"]
mod tests;

//! Why a pod waits, or where it should be: decided as the controllers decide it, from what a cluster has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{OverridePolicySpec, PropagationPolicy, SUSPEND_ANNOTATION};
use dapple_api::kinds::find_native;
use serde_json::Value;

use super::World;
use super::read::{labels_of, text};
use super::volumes::{Volumes, Waiting};
use crate::fit::Fit;
use crate::group::binding::{Check, Pair, check_override, check_propagation};
use crate::group::division::Division;
use crate::group::editions::Editions;
use crate::group::placing::{Decision, GATE, Known, Placing, PodFacts, PodRule, selector};
use crate::group::repair::{Facts, MOVED, Next, PodState, ROLLOUT_MAX, misplaced, next};
use crate::group::standing::{Around, is_gated, is_live, is_rolling_out, number_label, state_of};
use crate::group::volumes::Claims;
use crate::group::workload::Groups;
use crate::native;
use crate::variant::ObjectName;

/// A pod, and what is known beside the world.
pub struct Inquiry<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// What controls it, and what controls that, from below.
    pub owners: &'a [Value],
    /// All pods that are divided with it: those of its controller, or those that nothing controls and that ask for its policy. It
    /// is among them.
    pub pods: &'a [Value],
    /// Whether a manager leads that places pods.
    pub is_led: bool,
    /// What is known of PersistentVolumeClaims.
    pub claims: &'a Claims,
}

/// How a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// No policy says where it goes.
    Anywhere,
    /// It waits behind the gate.
    Gated,
    /// It is placed in a group, and has no node.
    Pending,
    /// It is in another group than should have it.
    Misplaced,
    /// It is where it belongs.
    Placed,
}

/// Why a pod waits, or where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// How it stands.
    pub stand: Stand,
    /// The policy that it is divided by, as people name it.
    pub policy: Option<String>,
    /// The group that it is in.
    pub group: Option<String>,
    /// The group that should have it, where that is another, or it is in none yet.
    pub belongs: Option<String>,
    /// Why, or what is waited for: a word in CamelCase for programs, and a sentence.
    pub reasons: Vec<(&'static str, String)>,
    /// Claims of which nothing is known, though they may make it another story.
    pub unread: BTreeSet<Arc<str>>,
}

impl Story {
    /// Of a pod of which nothing is known but how it stands.
    fn of(stand: Stand) -> Self {
        let (group, belongs, reasons, unread) = (None, None, Vec::new(), BTreeSet::new());
        Self { stand, policy: None, group, belongs, reasons, unread }
    }
}

/// The policy of a pod, as far as it is there.
struct Asked<'w> {
    propagation: Option<&'w PropagationPolicy>,
    overrides: Option<(String, &'w OverridePolicySpec)>,
}

impl World {
    /// Why a pod waits, or where it should be.
    #[must_use]
    pub fn story(&self, inquiry: &Inquiry<'_>) -> Story {
        // The topmost that has a label of policies asks in the name of those below.
        let asks = |object: &&Value| {
            let labels = labels_of(object);
            Pair::ALL.iter().any(|pair| labels.contains_key(pair.required()) || labels.contains_key(pair.binding()))
        };
        let namespace =
            Some(text(inquiry.pod, "/metadata/namespace")).filter(|name| !name.is_empty()).unwrap_or("default");
        let own = [inquiry.pod.clone()];
        let candidates = if inquiry.owners.is_empty() { &own[..] } else { inquiry.owners };
        let application = candidates.iter().rfind(asks);
        let labels = application.map(labels_of).unwrap_or_default();
        let policy = |pair: Pair| labels.get(pair.required()).map(|name| (namespace.to_owned(), name.clone()));
        let asked = Asked {
            propagation: policy(Pair::Propagation).and_then(|key| self.propagation_policies.get(&key)),
            overrides: policy(Pair::Override).and_then(|key| {
                let name =
                    ObjectName { kind: "OverridePolicy".to_owned(), namespace: key.0.clone(), name: key.1.clone() };
                Some((name.to_string(), &self.override_policies.get(&key)?.spec))
            }),
        };
        let mut story = match (PodRule::of(&labels), application) {
            (PodRule::Hold { pair, policy }, Some(application)) => held(inquiry, application, pair, policy, &asked),
            (PodRule::Divide(_), Some(application)) => self.divided_story(inquiry, application, &asked, &labels),
            _ => anywhere(inquiry),
        };
        let named = policy(Pair::Propagation);
        story.policy = named.map(|(namespace, name)| format!("PropagationPolicy {namespace}/{name}"));
        if story.stand == Stand::Gated && !inquiry.is_led {
            let text = "no manager is seen to lead and to place pods, so nobody opens the gate: look at the managers and their lease, or \
                        open it for good with dapple down --cluster";
            story.reasons.push(("NoLeader", text.to_owned()));
        }
        story
    }

    fn divided_story(
        &self,
        inquiry: &Inquiry<'_>,
        application: &Value,
        asked: &Asked<'_>,
        labels: &BTreeMap<String, String>,
    ) -> Story {
        let group = inquiry.pod["metadata"]["labels"][GATE].as_str().map(str::to_owned);
        let mut story = Story { group, ..Story::of(Stand::Placed) };
        let Some((policy, mut division)) =
            asked.propagation.and_then(|policy| Some((policy, Division::of(&policy.spec)?)))
        else {
            let name = labels.get(Pair::Propagation.required()).cloned().unwrap_or_default();
            return held(inquiry, application, Pair::Propagation, &name, asked);
        };
        let (groups, selector_of) = (self.groups(), |group: &str| self.selector_of_group(group));
        let owner = inquiry.owners.first();
        let start = owner.and_then(|owner| owner.pointer("/spec/ordinals/start")).and_then(Value::as_u64);
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        let owner_kind = owner.map_or("", |owner| text(owner, "/kind"));
        let live: Vec<&Value> = inquiry.pods.iter().filter(|pod| is_live(pod)).collect();
        let mut states: Vec<PodState> = {
            let around = Around { division: &division, groups: &groups, selector_of: &selector_of, owner_kind, start };
            live.iter().map(|pod| state_of(pod, &around)).collect()
        };
        let own = text(inquiry.pod, "/metadata/name");
        if is_gated(inquiry.pod) {
            story.stand = Stand::Gated;
            self.waiting(&mut story, inquiry, policy, asked, (owner_kind, start));
            return story;
        }
        let mut volumes = Volumes::new(self, (&groups, division.groups()), inquiry.claims);
        volumes.pin(&mut division, &mut states, &live);
        story.unread = volumes.unread;
        let state = states.iter().find(|state| &*state.name == own);
        if let Some(state) = state {
            let stands = state.group.or(state.near.first().copied());
            story.group = stands.map(|group| division.groups()[group].to_string());
        }
        let moves = misplaced(&mut division, &states);
        let known = moves.iter().find(|known| &*states[known.pod].name == own);
        let has_node = inquiry.pod["spec"]["nodeName"].is_string();
        if let Some(known) = known.filter(|_| MOVED.contains(&owner_kind)) {
            let target = division.groups()[known.to].clone();
            story.belongs = Some(target.to_string()).filter(|target| story.group.as_ref() != Some(target));
            story.stand = if story.belongs.is_some() { Stand::Misplaced } else { Stand::Pending };
            let fits = self.fitting(inquiry.pod, &target, &groups).0 > 0;
            story.reasons = held_back(application, policy, &mut division, &states, (known.pod, moves.len(), fits));
        } else if !has_node {
            story.stand = Stand::Pending;
        }
        if let (false, Some(group)) = (has_node, story.group.clone()) {
            story.reasons.push(match state.is_some_and(|state| state.is_stale) {
                true => stale(&group, MOVED.contains(&owner_kind)),
                false => self.pending(inquiry.pod, &group, &groups),
            });
        }
        story
    }

    /// What the nodes of a group are selected by.
    pub(super) fn selector_of_group(&self, group: &str) -> Option<BTreeMap<String, String>> {
        self.node_groups.get(group).map(|found| selector(group, &found.spec))
    }

    /// What is decided about a pod behind the gate.
    fn waiting(
        &self,
        story: &mut Story,
        inquiry: &Inquiry<'_>,
        policy: &PropagationPolicy,
        asked: &Asked<'_>,
        (owner_kind, start): (&str, usize),
    ) {
        let name = policy.metadata.name.clone().unwrap_or_default();
        let Some(mut placing) = Placing::new(&name, &policy.spec) else { return };
        let mut live: Vec<&Value> = inquiry.pods.iter().filter(|pod| is_live(pod)).collect();
        // Those that say their group first: the others count where there is room beside them.
        live.sort_by_key(|pod| pod["metadata"]["labels"][GATE].is_null());
        placing.expect(live.iter().map(|pod| Arc::from(text(pod, "/metadata/name"))));
        let groups = self.groups();
        for pod in &live {
            tell(&mut placing, pod, &groups, (owner_kind, start));
        }
        let listed = placing.groups().to_vec();
        let template = inquiry.owners.first().and_then(|owner| {
            let group = text(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            native::template(find_native(group, text(owner, "/kind"))?.template_field, owner)
        });
        let editions = asked.overrides.as_ref().map(|(name, spec)| {
            let template = template.map(|template| Arc::new(template.clone()));
            Editions::of(name, &[Arc::new((*spec).clone())], &listed, template)
        });
        let editions = editions.unwrap_or_default();
        let mut volumes = Volumes::new(self, (&groups, &listed), inquiry.claims);
        let Waiting { allowed, mut unbound } = volumes.of_waiting(live.into_iter().filter(|pod| is_gated(pod)));
        story.unread = volumes.unread;
        let are_kept = inquiry.owners.is_empty() || owner_kind == "Job";
        let decided = placing.decide(&Known {
            selector_of: &|group| self.selector_of_group(group),
            suits: &|edition| editions.suits(&listed, edition),
            unrendered: &editions.unrendered,
            allowed: &allowed,
            // Which group it gets by range may differ where its own is full; that it gets one does not.
            has_room: &|_, _, _| true,
            are_kept,
        });
        let own = text(inquiry.pod, "/metadata/name");
        let decided = decided.into_iter().find(|(pod, _)| **pod == *own);
        match decided.map(|(_, decision)| unbound.remove(own).map_or(decision, Decision::Wait)) {
            Some(Decision::Wait(why)) => story.reasons.push((why.reason(), why.to_string())),
            Some(Decision::Place(placement)) => {
                story.belongs = Some(placement.group.to_string());
                let text = format!(
                    "nothing is in its way to group {:?}, unless the API server refuses its edition: then an Event \
                     WaitingForEdition on the pod says so",
                    placement.group
                );
                story.reasons.push(("BeingPlaced", text));
            }
            Some(Decision::Replace) => {
                let text = "it was made by the edition of another group and cannot be corrected: it is deleted behind the gate, \
                            and its owner makes another";
                story.reasons.push(("BeingReplaced", text.to_owned()));
            }
            None => {}
        }
    }

    /// How many nodes of a group a pod could run on, and what is wrong with the first that it could not.
    fn fitting(&self, pod: &Value, group: &str, groups: &Groups) -> (usize, Option<String>) {
        let Some((found, nodes)) = self.node_groups.get(group).zip(groups.get(group)) else { return (0, None) };
        let mut pod = pod.clone();
        // Another one is asked about, which has no node yet.
        if let Some(spec) = pod["spec"].as_object_mut() {
            spec.remove("nodeName");
        }
        // The selector of the group that it has now is none of its own.
        let others = self.node_groups.iter().flat_map(|(name, other)| selector(name, &other.spec));
        let others: BTreeSet<String> = others.map(|(key, _)| key).collect();
        if let Some(own) = pod["spec"]["nodeSelector"].as_object_mut() {
            own.retain(|key, _| !others.contains(key));
        }
        for (key, value) in selector(group, &found.spec) {
            pod["spec"]["nodeSelector"][key] = value.into();
        }
        let wanted = Fit::of(&pod);
        let judged: Vec<_> =
            self.nodes().filter(|node| nodes.contains(node.name)).map(|node| (node.name, wanted.judge(node))).collect();
        let misfit = judged.iter().find_map(|(name, judged)| judged.as_ref().err().map(|why| format!("{name}: {why}")));
        (judged.iter().filter(|(_, judged)| judged.is_ok()).count(), misfit)
    }

    /// Why a pod that is placed has no node.
    fn pending(&self, pod: &Value, group: &str, groups: &Groups) -> (&'static str, String) {
        let nodes = groups.get(group).map_or(0, BTreeSet::len);
        let (fitting, misfit) = self.fitting(pod, group, groups);
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut unscheduled = conditions.filter(|known| known["type"] == "PodScheduled" && known["status"] == "False");
        let said = unscheduled.next().and_then(|known| known["message"].as_str());
        let said = said.map(|said| format!("; the scheduler says: {said}")).unwrap_or_default();
        match (nodes, fitting, misfit) {
            (0, _, _) => ("GroupEmpty", format!("its group {group:?} has no node: it waits until one joins{said}")),
            (_, 0, Some(why)) => {
                ("NoNodeFits", format!("no node of its group {group:?} fits it, for example {why}{said}"))
            }
            (_, fitting, _) => {
                let text = format!(
                    "{fitting} of {nodes} nodes of its group {group:?} fit it, and the scheduler has taken none: \
                                    they may have no room{said}"
                );
                ("NoRoom", text)
            }
        }
    }
}

/// Has a pod's facts told.
fn tell(placing: &mut Placing, pod: &Value, groups: &Groups, (owner_kind, start): (&str, usize)) {
    let map = |path: &str| -> BTreeMap<String, String> {
        let entries = pod.pointer(path).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let (labels, annotations, node_selector) =
        (map("/metadata/labels"), map("/metadata/annotations"), map("/spec/nodeSelector"));
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let is_on = |(name, nodes): (&String, &BTreeSet<String>)| nodes.contains(node).then(|| Arc::from(name.as_str()));
    let groups_of_node: BTreeSet<Arc<str>> = groups.iter().filter_map(is_on).collect();
    let number = number_label(owner_kind).and_then(|label| labels.get(label)?.parse::<usize>().ok());
    let created = text(pod, "/metadata/creationTimestamp").parse::<k8s_openapi::jiff::Timestamp>();
    let facts = PodFacts {
        is_gated: is_gated(pod),
        is_live: is_live(pod),
        labels: &labels,
        annotations: &annotations,
        node_selector: &node_selector,
        groups_of_node: &groups_of_node,
        ordinal: number.and_then(|number| number.checked_sub(start)),
        created: created.map_or(0, |created| created.as_second()),
    };
    placing.put(&Arc::from(text(pod, "/metadata/name")), &facts);
}

/// A pod of no policy.
fn anywhere(inquiry: &Inquiry<'_>) -> Story {
    let mut story = Story::of(Stand::Anywhere);
    if is_gated(inquiry.pod) {
        story.stand = Stand::Gated;
        let text = "nothing asks where it goes: the gate is about to be taken off";
        story.reasons.push(("BeingReleased", text.to_owned()));
    }
    story
}

/// A pod of an application whose policy is not confirmed.
fn held(inquiry: &Inquiry<'_>, application: &Value, pair: Pair, policy: &str, asked: &Asked<'_>) -> Story {
    let check = match pair {
        Pair::Propagation => asked.propagation.map_or(Check::Missing, |policy| check_propagation(&policy.spec)),
        Pair::Override => asked.overrides.as_ref().map_or(Check::Missing, |(name, spec)| {
            let group = text(application, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            let field = find_native(group, text(application, "/kind")).map_or("", |native| native.template_field);
            check_override(name, spec, application, field)
        }),
    };
    let kind = pair.kind().kind;
    let why = match check {
        Check::Missing => format!(
            "there is no {kind} {policy:?} in its namespace: create it, or take the label {} off",
            pair.required()
        ),
        Check::Unrendered(why) => format!("the {kind} {policy:?} does not apply: {why}"),
        Check::Passed => format!("the {kind} {policy:?} is there and applies, and is about to be confirmed"),
    };
    let is_waiting = is_gated(inquiry.pod);
    let stand = if is_waiting { Stand::Gated } else { Stand::Placed };
    let group = inquiry.pod["metadata"]["labels"][GATE].as_str().map(str::to_owned);
    let text = if is_waiting { why } else { format!("it stays as it is; {why}") };
    Story { group, reasons: vec![("WaitingForPolicy", text)], ..Story::of(stand) }
}

/// Why a pod that is placed has no node, where its group selects its nodes by other labels than when it was placed.
fn stale(group: &str, comes_back: bool) -> (&'static str, String) {
    let what = if comes_back {
        "it is evicted, and its owner makes another"
    } else {
        "nobody makes another for it, so it is left to you: delete it, or make it anew"
    };
    let text = format!("its nodeSelector is that of its group {group:?} as it was when the pod was placed: {what}");
    ("SelectorOutdated", text)
}

/// What holds back the move of a misplaced pod.
fn held_back(
    application: &Value,
    policy: &PropagationPolicy,
    division: &mut Division,
    states: &[PodState],
    (pod, all, fits): (usize, usize, bool),
) -> Vec<(&'static str, String)> {
    let mut reasons = Vec::new();
    let annotation = |key: &str| policy.metadata.annotations.as_ref().and_then(|known| known.get(key));
    if annotation(SUSPEND_ANNOTATION).is_some_and(|said| said == "true") {
        reasons.push(("Suspended", "its policy is suspended: nothing is moved".to_owned()));
    }
    if states[pod].is_protected {
        reasons.push(("Protected", "an annotation of it says that it must not be evicted".to_owned()));
    }
    if is_rolling_out(application) {
        reasons
            .push(("RollingOut", "its workload rolls out or scales: nothing is moved before that is over".to_owned()));
    }
    if !fits {
        reasons.push(("NoNodeFits", "no node of the group that should have it fits it".to_owned()));
    }
    let count =
        |path: &str| application.pointer(path).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
    let most_away = annotation(ROLLOUT_MAX).and_then(|most| most.parse().ok()).filter(|most| *most > 0).unwrap_or(1);
    let facts = Facts {
        desired: count("/spec/replicas").unwrap_or(1),
        available: count("/status/availableReplicas").unwrap_or(0),
        pods: states.to_vec(),
        stranded: 0,
        most_away,
    };
    let decided = next(division, &facts, |_, _| true);
    if decided == Next::Wait {
        let text = "too many pods of its application are unavailable: the next is moved when they are back";
        reasons.push(("OthersUnavailable", text.to_owned()));
    }
    if reasons.is_empty() {
        let text = match decided {
            Next::Evict(known) if known.pod == pod => "it is the next to be moved".to_owned(),
            _ => format!("{all} pods of its application are misplaced, and others are moved first"),
        };
        let text = format!(
            "{text}, unless a PodDisruptionBudget refuses it (Event MoveRefused); not within five minutes of a change of the groups' \
             nodes (--repair-after), nor beyond the limit of the cluster (--repair-per-minute)"
        );
        reasons.push(("ToBeMoved", text));
    }
    reasons
}

#[cfg(test)]
#[path = "story_tests.rs"]
mod tests;

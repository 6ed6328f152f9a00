//! What becomes of the pods that run, if a plan takes the place of the one in effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dapple_edit::document::Document;
use dapple_edit::meaning::meaning;
use dapple_edit::path::Path;
use dapple_edit::render::changes;
use serde_json::Value;

use crate::daemonset::inplace::{self, Place};
use crate::variant::{Plan, Variant};
use crate::world::Moved;

/// How pods get what has changed for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// They are replaced.
    Recreate,
    /// They are changed where they run if everything that differs can be, and else replaced.
    InPlaceIfPossible,
    /// They keep what they have until somebody deletes them.
    OnDelete,
    /// A policy that changes nothing but images does so where they run; the workload itself replaces pods.
    PolicyImagesInPlace,
}

/// A pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// The group it was made for, if it says so.
    pub group: Option<String>,
}

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is replaced by one that has the changes.
    Recreated,
    /// It is changed where it runs.
    InPlace,
    /// It goes, and another comes on a node of another place.
    Moved,
    /// It goes, and none comes.
    Removed,
    /// It keeps what it has until somebody deletes it.
    Waits,
    /// It keeps what it has for now.
    HeldBack(HeldBy),
    /// Nothing changes for it.
    LeftAlone,
}

/// What keeps a pod as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldBy {
    /// The rollout is paused.
    Pause,
    /// The partition.
    Partition,
    /// The strategy's selector does not match its node.
    Selector,
    /// Patches of its node do not apply.
    Rendering,
    /// The kubelet of its node does not answer.
    Kubelet,
    /// A taint of its node: the next pod could not start there.
    Taint,
    /// As many nodes, or pools, as may be are out of service, and stay so.
    Budget,
    /// The rollout was stopped, since pools were not done in time.
    Stop,
    /// It would refer to what does not exist.
    Target,
    /// Its pool is leaving, and many are: somebody has to confirm it.
    Removal,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "paused",
            Self::Partition => "partition",
            Self::Selector => "selector",
            Self::Rendering => "patch error",
            Self::Kubelet => "node unreachable",
            Self::Taint => "node tainted",
            Self::Budget => "budget used up",
            Self::Stop => "rollout stopped",
            Self::Target => "target missing",
            Self::Removal => "removal not confirmed",
        })
    }
}

/// What becomes of a workload's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fates {
    /// Each pod, by name.
    pub pods: BTreeMap<String, (String, Fate)>,
    /// Nodes that get a pod and have none.
    pub created_on: BTreeSet<String>,
    /// The group that should have a pod, of those that are moved since a policy says so.
    pub moved_to: BTreeMap<String, String>,
}

impl Fates {
    /// As a policy moves pods: those that are not where they belong, and no others.
    pub fn settle(&mut self, moves: &[Moved]) {
        for (pod, (_, fate)) in &mut self.pods {
            match moves.iter().find(|known| known.pod == *pod) {
                Some(known) => {
                    *fate = Fate::Moved;
                    self.moved_to.insert(pod.clone(), known.to.clone());
                }
                None if *fate == Fate::Moved => *fate = Fate::LeftAlone,
                None => {}
            }
        }
    }
}

/// Compares the plan in effect with the next one, for the pods there are.
///
/// A pod that is still behind the plan in effect is on its way there already, and counts as if it had arrived.
pub fn fates(now: &Plan, next: &Plan, pods: &[Pod]) -> Fates {
    let (now_index, next_index) = (Index::new(now), Index::new(next));
    let mut fates = Fates::default();
    for pod in pods {
        let fate = match next_index.variant(pod) {
            // Pods of a workload that a policy divides go elsewhere; a pool's, or a node's own, have nowhere to go.
            None if next.is_daemon || next.document != Document::PodTemplate => Fate::Removed,
            None => Fate::Moved,
            Some((variant, can_start)) => {
                let before = now_index.variant(pod).map(|(variant, _)| variant);
                match changed_fate(now, next, before, variant) {
                    // No other could start in its place.
                    Fate::Recreated if !can_start => Fate::LeftAlone,
                    fate => fate,
                }
            }
        };
        fates.pods.insert(pod.name.clone(), (pod.node.clone(), fate));
    }
    if next.is_daemon {
        let served: BTreeSet<&str> = pods.iter().map(|pod| pod.node.as_str()).collect();
        let wanted = next.variants.iter().filter(|variant| variant.rendering.is_ok()).flat_map(|known| &known.nodes);
        fates.created_on = wanted.filter(|node| !served.contains(node.as_str())).cloned().collect();
    }
    fates
}

/// Whether some node, group or pool gets something else than before.
pub fn is_changed(before: &Plan, after: &Plan) -> bool {
    let renderings = |plan: &Plan| -> Vec<(Vec<String>, Vec<String>, Option<Value>)> {
        let rendered =
            |known: &Variant| known.rendering.as_ref().ok().map(|done| meaning(plan.document, &done.document));
        plan.variants.iter().map(|known| (known.places.clone(), known.nodes.clone(), rendered(known))).collect()
    };
    renderings(before) != renderings(after)
}

/// Whether the template itself means the same as before: if not, the workload replaces its pods.
pub fn is_same_base(before: &Plan, after: &Plan) -> bool {
    meaning(before.document, &before.base) == meaning(after.document, &after.base)
}

fn changed_fate(now: &Plan, next: &Plan, before: Option<&Variant>, after: &Variant) -> Fate {
    fn template<'a>(plan: &'a Plan, variant: &'a Variant) -> Option<&'a Value> {
        plan.document.template(&variant.rendering.as_ref().ok()?.document)
    }
    let waits = after.rendering.as_ref().is_ok_and(|known| is_on_delete(&known.document));
    // What does not render changes nothing: these nodes keep what they run.
    let Some(after) = template(next, after) else { return Fate::LeftAlone };
    let before = before.and_then(|variant| template(now, variant));
    // What others filled in is no reason to touch a pod.
    let (before, after) =
        (before.map(|before| meaning(Document::PodTemplate, before)), meaning(Document::PodTemplate, after));
    if before.as_ref() == Some(&after) {
        return Fate::LeftAlone;
    }
    let is_possible = || before.as_ref().is_some_and(|before| inplace::difference(before, &after).is_some());
    let is_images_alone = || {
        let changed = before.as_ref().map(|before| changes(Document::PodTemplate, before, &after));
        changed.is_some_and(|changed| changed.iter().all(|change| is_image(&change.path)))
    };
    match next.update {
        Update::OnDelete => Fate::Waits,
        _ if waits => Fate::Waits,
        Update::InPlaceIfPossible if is_possible() => Fate::InPlace,
        Update::PolicyImagesInPlace if is_same_base(now, next) && is_images_alone() => Fate::InPlace,
        _ => Fate::Recreated,
    }
}

/// Whether a rendered workload replaces no pod by itself.
fn is_on_delete(document: &Value) -> bool {
    document.pointer("/spec/updateStrategy/type").is_some_and(|kind| kind == "OnDelete")
}

/// Finds the variant that a pod belongs to, and whether a pod could start there today: a taint that only keeps new pods
/// away lets those that run stay.
struct Index<'a> {
    by_node: BTreeMap<&'a str, Vec<(&'a Variant, bool)>>,
}

impl<'a> Index<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut by_node: BTreeMap<&str, Vec<(&Variant, bool)>> = BTreeMap::new();
        for variant in &plan.variants {
            for node in &variant.nodes {
                by_node.entry(node).or_default().push((variant, true));
            }
            for (node, _) in variant.misfits.iter().filter(|(_, misfit)| misfit.lets_stay()) {
                by_node.entry(node).or_default().push((variant, false));
            }
        }
        Self { by_node }
    }

    /// A node may be in several groups: then the one counts that the pod was made for.
    fn variant(&self, pod: &Pod) -> Option<(&'a Variant, bool)> {
        let variants = self.by_node.get(pod.node.as_str())?;
        let place = pod.group.as_ref().map(|group| format!("group {group}"));
        let is_its_own =
            |(variant, _): &&(&Variant, bool)| place.as_ref().is_some_and(|place| variant.places.contains(place));
        variants.iter().find(is_its_own).or(variants.first()).copied()
    }
}

fn is_image(path: &Path) -> bool {
    matches!(inplace::place(path), Some(Place::Image(_)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::World;

    fn daemonset(strategy: Value, image: &str, patches: Value) -> Value {
        json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}}, "updateStrategy": strategy, "patches": patches,
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
            },
        })
    }

    fn planned(workload: Value, nodes: &[(&str, &str)]) -> Plan {
        let mut world = World::default();
        for (name, disk) in nodes {
            let node =
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"disk": disk}}});
            world.add(&node).unwrap();
        }
        world.add(&workload).unwrap();
        world.plans().remove(0)
    }

    fn pod(node: &str) -> Pod {
        Pod { name: format!("agent-{node}"), node: node.to_owned(), group: None }
    }

    const NODES: [(&str, &str); 3] = [("a", "large"), ("b", "small"), ("c", "small")];

    fn on_large(patch: Value) -> Value {
        json!([{"selector": {"matchLabels": {"disk": "large"}}, "patch": patch}])
    }

    #[test]
    fn only_pods_whose_rendering_changes_are_touched() {
        let now = planned(daemonset(json!({}), "c:1", json!([])), &NODES);
        let patch = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}});
        let next = planned(daemonset(json!({}), "c:1", on_large(patch)), &NODES);
        let fates = fates(&now, &next, &[pod("a"), pod("b")]);
        let told: Vec<Fate> = fates.pods.values().map(|(_, fate)| *fate).collect();
        assert_eq!(told, [Fate::Recreated, Fate::LeftAlone]);
        assert_eq!(fates.created_on.into_iter().collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn images_change_in_place_where_the_strategy_says_so() {
        let in_place = json!({"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "InPlaceIfPossible"}});
        for (strategy, expected) in [
            (in_place, Fate::InPlace),
            (json!({"type": "OnDelete"}), Fate::Waits),
            (json!({"type": "RollingUpdate"}), Fate::Recreated),
        ] {
            let now = planned(daemonset(strategy.clone(), "c:1", json!([])), &NODES);
            let next = planned(daemonset(strategy.clone(), "c:2", json!([])), &NODES);
            assert_eq!(fates(&now, &next, &[pod("a")]).pods["agent-a"].1, expected, "{strategy}");
        }
    }

    #[test]
    fn a_pod_goes_from_a_node_that_it_no_longer_fits() {
        let now = planned(daemonset(json!({}), "c:1", json!([])), &NODES);
        let picky = json!({"spec": {"nodeSelector": {"disk": "huge"}}});
        let next = planned(daemonset(json!({}), "c:1", on_large(picky)), &NODES);
        assert_eq!(fates(&now, &next, &[pod("a")]).pods["agent-a"].1, Fate::Removed);
    }

    #[test]
    fn what_the_api_server_filled_in_changes_nothing() {
        let next = planned(daemonset(json!({}), "c:1", json!([])), &NODES);
        let mut filled = daemonset(json!({}), "c:1", json!([]));
        filled["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        filled["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        let now = planned(filled, &NODES);
        assert_eq!(fates(&now, &next, &[pod("a")]).pods["agent-a"].1, Fate::LeftAlone);
    }

    #[test]
    fn pods_stay_on_a_node_that_takes_no_new_ones() {
        let node = |taints: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"taints": taints}});
        let planned = |image: &str, effect: &str| {
            let mut world = World::default();
            world.add(&node(json!([{"key": "full", "effect": effect}]))).unwrap();
            world.add(&daemonset(json!({}), image, json!([]))).unwrap();
            world.plans().remove(0)
        };
        let fate =
            |effect: &str| fates(&planned("c:1", effect), &planned("c:2", effect), &[pod("a")]).pods["agent-a"].1;
        assert_eq!(fate("NoSchedule"), Fate::LeftAlone);
        assert_eq!(fate("NoExecute"), Fate::Removed);
        assert_eq!(fate("PreferNoSchedule"), Fate::Recreated);
    }

    #[test]
    fn what_does_not_render_leaves_its_pods_alone() {
        let now = planned(daemonset(json!({}), "c:1", json!([])), &NODES);
        let broken = json!({"spec": {"containers": [{"image": "no name"}]}});
        let next = planned(daemonset(json!({}), "c:2", on_large(broken)), &NODES);
        let fates = fates(&now, &next, &[pod("a"), pod("b")]);
        assert_eq!(fates.pods["agent-a"].1, Fate::LeftAlone);
        assert_eq!(fates.pods["agent-b"].1, Fate::Recreated);
    }
}

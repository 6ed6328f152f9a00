//! The order of a rollout, and who is held back in it, kept up to date node by node.
//!
//! One order, by name, for everything: the partition holds back the first nodes of it, and a rollout goes from its end to
//! its beginning. So lowering the partition step by step goes on where it stopped, as with a StatefulSet. Canaries stand
//! at the end: they are the first to be updated and the last to be held back.
//!
//! Invariants, tested below as properties:
//! - Told of nodes one by one, it says the same as if it had been told of all at once.
//! - What passes (a node's condition, and taints that follow from it) changes neither the order nor who is held back.
//! - With a selector and a partition, no more nodes get the newest revision than the partition leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::cell::{Class, Hold, NodeState, Rank, Rules};
use super::order::{budget, held_back};
use crate::fit::Reach;
use crate::health::Health;
use crate::mutant::{Mutant, is_on};

/// What one revision gives a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given {
    /// Names what the rendering means; none if its patches do not apply, or the API server refuses it.
    pub rendering: Option<Arc<str>>,
    /// The number of its variant.
    pub variant: usize,
    /// Whether a pod may start.
    pub can_start: bool,
    /// Whether one that runs may stay.
    pub can_stay: bool,
    /// Whether the template is for the node, whatever its taints.
    pub is_selected: bool,
    /// Whether the node has a place in the order.
    pub reach: Reach,
    /// Whether the API server has not said yet whether it takes such a pod.
    pub is_unproven: bool,
    /// Whether the revision is gone: nobody knows what it would give. A pod that runs stays.
    pub is_gone: bool,
}

/// A node, and what it may get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prospect {
    /// The node's name.
    pub name: Arc<str>,
    /// How it is.
    pub health: Health,
    /// Whether people say that it is lost for good.
    pub is_out_of_service: bool,
    /// What the newest revision gives it.
    pub next: Given,
    /// What the revision gives it that nodes are held back at, if that is another one.
    pub now: Option<Given>,
    /// Whether labels make it a canary.
    pub is_canary: bool,
    /// Whether the strategy's selector matches it; so it is where there is none.
    pub is_chosen: bool,
}

impl Prospect {
    /// The variant by which the node is one of those that a problem concerns: it should have a pod of it, and nobody can give
    /// it one, or the API server has not said yet whether it takes it.
    pub fn troubled(&self) -> Option<usize> {
        let Given { rendering, can_start, is_unproven, variant, .. } = &self.next;
        (*can_start && (rendering.is_none() || *is_unproven)).then_some(*variant)
    }
}

/// What a node has of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    /// A pod, however it is.
    pub has_pod: bool,
    /// A live pod of the newest revision.
    pub has_newest: bool,
    /// No live pod: it is being replaced, or yet to be made.
    pub is_replaced: bool,
}

/// What a strategy says of who is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdback {
    /// So many nodes, or per cent of them.
    pub partition: IntOrString,
    /// Nobody is updated.
    pub is_paused: bool,
    /// Only nodes that a selector matches are updated.
    pub has_selector: bool,
    /// Everything is held back: the selector cannot be used.
    pub is_blocked: bool,
    /// One node of each variant is a canary.
    pub has_canary_of_each: bool,
}

impl Default for Holdback {
    fn default() -> Self {
        let partition = IntOrString::Int(0);
        Self { partition, is_paused: false, has_selector: false, is_blocked: false, has_canary_of_each: false }
    }
}

/// Numbers of a strategy that may be shares of the nodes that should run a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How many nodes may be without an available pod.
    pub max_unavailable: IntOrString,
    /// How many nodes may have two pods.
    pub max_surge: IntOrString,
    /// How many things may be done at once.
    pub burst: IntOrString,
}

impl Limits {
    /// Sets what rules say for so many nodes.
    pub fn apply(&self, rules: &mut Rules, nodes: usize) {
        rules.budget = budget(&self.max_unavailable, nodes);
        rules.surge = budget(&self.max_surge, nodes);
        rules.burst = if is_on(Mutant::BurstIgnored) { 1_000_000 } else { budget(&self.burst, nodes).max(1) };
    }
}

#[derive(Debug, Clone)]
struct Entry {
    prospect: Prospect,
    holding: Holding,
    class: Class,
}

impl Entry {
    /// Whether the node has a place in the order: one that fits either revision has, since one that is held back keeps its
    /// pod though the newest template does not fit it any more.
    fn is_placed(&self) -> bool {
        let is_for_it = |given: &Given| match given.reach {
            _ if given.is_gone => self.holding.has_pod,
            _ if given.rendering.is_none() => false,
            _ if is_on(Mutant::PercentOfReady) => given.can_start && self.prospect.health.is_ready(),
            Reach::Always => true,
            Reach::WithPod => self.holding.has_pod,
            Reach::Never => false,
        };
        is_for_it(&self.prospect.next) || self.prospect.now.as_ref().is_some_and(is_for_it)
    }

    fn rank(&self) -> Rank {
        Rank { class: self.class, name: self.prospect.name.clone() }
    }
}

/// All nodes in the order of the rollout.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    holdback: Holdback,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Those that have a place, sorted.
    order: Vec<Rank>,
    /// By variant: names of those that have a place. Kept where one of each is a canary.
    by_variant: BTreeMap<usize, BTreeSet<Arc<str>>>,
    /// With a selector and a partition: those that may have the newest revision.
    assigned: BTreeSet<Arc<str>>,
    /// Whether something has changed that this follows from.
    is_unshared: bool,
}

impl Placement {
    /// Without nodes.
    pub fn new(holdback: Holdback) -> Self {
        Self { holdback, ..Self::default() }
    }

    /// Takes in many nodes at once, and says what holds for all.
    pub fn put_all(&mut self, prospects: Vec<Prospect>) -> Vec<NodeState> {
        for prospect in prospects {
            let holding = self.entries.get(&prospect.name).map(|known| known.holding).unwrap_or_default();
            let name = prospect.name.clone();
            self.entries.insert(name, Entry { prospect, holding, class: Class::Placeless });
        }
        self.by_variant.clear();
        if self.holdback.has_canary_of_each {
            let names: Vec<Arc<str>> = self.entries.keys().cloned().collect();
            names.iter().for_each(|name| self.note_variant(name));
        }
        for entry in self.entries.values_mut() {
            entry.class = class(&self.holdback, &self.by_variant, entry);
        }
        // By name already, and within a class that is the order.
        let of_class = |class: Class| self.entries.values().filter(move |entry| entry.class == class);
        self.order = of_class(Class::Plain).chain(of_class(Class::Canary)).map(Entry::rank).collect();
        let plain = of_class(Class::Plain).count();
        self.assign();
        let mut next = [0, plain];
        let place_of = |entry: &Entry| {
            let next = match entry.class {
                Class::Placeless => return None,
                Class::Plain => &mut next[0],
                Class::Canary => &mut next[1],
            };
            *next += 1;
            Some(*next - 1)
        };
        let places: Vec<Option<usize>> = self.entries.values().map(place_of).collect();
        self.entries.values().zip(places).map(|(entry, place)| self.state_of(entry, place)).collect()
    }

    /// Takes in a node, and says what holds for it and for those that it changes something for.
    pub fn put(&mut self, prospect: Prospect) -> Vec<NodeState> {
        let name = prospect.name.clone();
        let holding = self.entries.get(&name).map(|known| known.holding).unwrap_or_default();
        self.replace(&name, Some((prospect, holding)))
    }

    /// What a node may get.
    pub fn prospect(&self, name: &str) -> Option<&Prospect> {
        self.entries.get(name).map(|entry| &entry.prospect)
    }

    /// A node is gone. Says what holds for those that this changes something for.
    pub fn remove(&mut self, name: &Arc<str>) -> Vec<NodeState> {
        self.replace(name, None)
    }

    /// What a node has of the set. Says what holds for those that this changes something for.
    pub fn hold(&mut self, name: &Arc<str>, holding: Holding) -> Vec<NodeState> {
        let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.holding != holding) else {
            return Vec::new();
        };
        let is_placed = entry.is_placed();
        entry.holding = holding;
        if entry.is_placed() != is_placed {
            let prospect = entry.prospect.clone();
            return self.replace(name, Some((prospect, holding)));
        }
        // Who has what decides who uses a place.
        self.is_unshared |= self.shares_places();
        Vec::new()
    }

    /// Puts something else, or nothing, into the place of a node.
    fn replace(&mut self, name: &Arc<str>, new: Option<(Prospect, Holding)>) -> Vec<NodeState> {
        let before = self.held();
        let mut variants = BTreeSet::new();
        if let Some(old) = self.entries.remove(name) {
            variants.insert(old.prospect.next.variant);
            self.leave_order(&old.rank());
            self.by_variant.values_mut().for_each(|names| _ = names.remove(name));
        }
        if let Some((prospect, holding)) = new {
            variants.insert(prospect.next.variant);
            self.entries.insert(name.clone(), Entry { prospect, holding, class: Class::Placeless });
            self.note_variant(name);
        }
        let mut changed = BTreeSet::from([name.clone()]);
        if self.holdback.has_canary_of_each {
            let lasts = variants.iter().filter_map(|variant| self.by_variant.get(variant));
            // The last of a variant, and the one that was it before.
            changed.extend(lasts.flat_map(|names| names.iter().rev().take(2)).cloned());
        }
        for name in &changed {
            self.reclass(name);
        }
        if self.shares_places() {
            self.is_unshared = true;
            return changed.iter().filter_map(|name| self.state(name)).collect();
        }
        // Those at the border of the partition.
        let (from, to) = (before.min(self.held()), before.max(self.held()));
        let border = from.saturating_sub(changed.len() + 1)..(to + changed.len() + 1).min(self.order.len());
        changed.extend(self.order[border].iter().map(|rank| rank.name.clone()));
        changed.iter().filter_map(|name| self.state(name)).collect()
    }

    fn note_variant(&mut self, name: &Arc<str>) {
        let entry = self.entries.get(name).filter(|entry| self.holdback.has_canary_of_each && entry.is_placed());
        if let Some(variant) = entry.map(|entry| entry.prospect.next.variant) {
            self.by_variant.entry(variant).or_default().insert(name.clone());
        }
    }

    fn reclass(&mut self, name: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let (before, after) = (entry.rank(), class(&self.holdback, &self.by_variant, entry));
        entry.class = after;
        self.leave_order(&before);
        if after != Class::Placeless {
            let rank = Rank { class: after, name: name.clone() };
            let at = self.order.partition_point(|known| *known < rank);
            self.order.insert(at, rank);
        }
    }

    fn leave_order(&mut self, rank: &Rank) {
        if let Ok(at) = self.order.binary_search(rank) {
            self.order.remove(at);
        }
    }

    /// How many nodes the partition holds back.
    fn held(&self) -> usize {
        let is_forgotten =
            is_on(Mutant::PartitionForgotten) || (self.holdback.has_selector && is_on(Mutant::SelectorAlone));
        if is_forgotten { 0 } else { held_back(&self.holdback.partition, self.order.len()) }
    }

    /// Whether selected nodes share the places that the partition leaves.
    fn shares_places(&self) -> bool {
        let has_partition = held_back(&self.holdback.partition, 100) > 0;
        self.holdback.has_selector && has_partition
    }

    /// Who may have the newest revision: no more than the partition leaves. Those that have it, or are being replaced, use
    /// places first; the rest go to selected nodes, from the end of the order.
    fn assign(&mut self) {
        self.assigned.clear();
        if !self.shares_places() {
            return;
        }
        let mut places = self.order.len() - self.held();
        let turns: [fn(&Entry) -> bool; 4] = [
            |entry| entry.holding.has_newest,
            |entry| entry.holding.is_replaced && entry.prospect.is_chosen,
            |entry| entry.holding.is_replaced,
            |entry| entry.prospect.is_chosen,
        ];
        for is_its_turn in turns {
            for rank in self.order.iter().rev() {
                let is_due = self.entries.get(&rank.name).is_some_and(is_its_turn);
                if is_due && places > 0 && self.assigned.insert(rank.name.clone()) {
                    places -= 1;
                }
            }
        }
    }

    /// Shares places out anew, if something has changed since that they follow from: once for all that was told, since it
    /// costs the fleet. Says what holds for those that this changes something for.
    pub fn share(&mut self) -> Vec<NodeState> {
        if !std::mem::take(&mut self.is_unshared) {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.assigned);
        self.assign();
        before.symmetric_difference(&self.assigned).filter_map(|name| self.state(name)).collect()
    }

    /// What holds for a node.
    fn state(&self, name: &Arc<str>) -> Option<NodeState> {
        let entry = self.entries.get(name)?;
        Some(self.state_of(entry, self.order.binary_search(&entry.rank()).ok()))
    }

    /// What holds for a node with this place in the order.
    fn state_of(&self, entry: &Entry, place: Option<usize>) -> NodeState {
        let Prospect { name, next, now, .. } = &entry.prospect;
        let is_in_partition = match place {
            None => false,
            Some(_) if self.holdback.is_blocked => true,
            Some(_) if self.shares_places() => !self.assigned.contains(name),
            Some(place) => place < self.held(),
        };
        let hold = match () {
            () if place.is_none() => None,
            () if self.holdback.is_blocked => Some(Hold::Selector),
            () if self.holdback.is_paused && !is_on(Mutant::PauseForgotten) => Some(Hold::Paused),
            () if !entry.prospect.is_chosen => Some(Hold::Selector),
            () if is_in_partition => Some(Hold::Partition),
            () => None,
        };
        // Patches that do not apply hold up their own nodes only, which keep what they run, or get it back.
        let hold = if next.rendering.is_some() { hold } else { Some(Hold::Unrendered) };
        let given = now.as_ref().filter(|_| hold.is_some()).unwrap_or(next);
        let hold = if given.rendering.is_some() { hold } else { Some(Hold::Unrendered) };
        let is_rendered = given.rendering.is_some();
        NodeState {
            name: name.clone(),
            can_start: is_rendered && given.can_start,
            can_stay: !is_rendered || given.can_stay,
            is_selected: given.is_selected,
            is_barred_for_now: is_rendered && !given.can_start && given.reach == Reach::Always,
            health: entry.prospect.health,
            is_out_of_service: entry.prospect.is_out_of_service,
            wanted: given.rendering.clone().unwrap_or_default(),
            newest: next.rendering.clone().unwrap_or_default(),
            is_unproven: given.is_unproven,
            variant: next.variant,
            hold,
            is_left_without: given.is_gone,
            is_partitioned: is_in_partition,
            class: entry.class,
        }
    }
}

fn class(holdback: &Holdback, by_variant: &BTreeMap<usize, BTreeSet<Arc<str>>>, entry: &Entry) -> Class {
    let is_last =
        || by_variant.get(&entry.prospect.next.variant).and_then(BTreeSet::last) == Some(&entry.prospect.name);
    match () {
        () if !entry.is_placed() => Class::Placeless,
        () if entry.prospect.is_canary || (holdback.has_canary_of_each && is_last()) => Class::Canary,
        () => Class::Plain,
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;

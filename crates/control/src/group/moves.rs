//! Moves pods to the groups that should have them: what [`dapple_plan::group::repair`] decides.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_plan::group::division::Division;
use dapple_plan::group::repair::{Facts, Move, Next, PodState, Stage, misplaced, next};
use dapple_plan::group::volumes::Reach;
use dapple_plan::mutant::{Mutant, is_on};
use serde_json::Value;

use super::application::{ApplicationKey, Asking};
use super::budget::Step;
use super::editions::World;
use super::policy::Policy;
use super::repair::{ECHO, HELD, Looked, NO_TARGET, Repairs};
use super::steps::{Attempt, Eviction};
use super::view::{Settled, View};
use super::volumes::Volumes;

/// Of so many pods that are to be moved it is asked which volumes they have.
const MOST_ASKED: usize = 10;

impl Repairs {
    /// Moves the next pod of an application that is not where it belongs.
    pub(super) async fn move_next(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        policy: &Policy<PropagationPolicySpec>,
        view: &View,
        (division, pods): (&mut Division, &[PodState]),
    ) -> Result<Looked, kube::Error> {
        let moves = misplaced(division, pods);
        let misplaced: BTreeSet<Arc<str>> = moves.iter().map(|known| pods[known.pod].name.clone()).collect();
        if moves.is_empty() {
            return Ok(Looked::Rest { misplaced, again: None });
        }
        let rest = |again: Duration| Ok(Looked::Rest { misplaced: misplaced.clone(), again: Some(again) });
        if let Some(wait) = self.budget.wait().or_else(|| self.budget.wait_for_groups(names(division))) {
            return rest(wait.max(ECHO));
        }
        let Settled::As { desired, available } = self.settled(at, asking, view).await? else {
            self.tell_changing(at, asking, moves.len(), "are not in the groups that should have them");
            return rest(HELD);
        };
        let facts =
            Facts { desired, available, pods: pods.to_vec(), stranded: view.stranded, most_away: policy.most_away };
        // Most looks end here: nobody need be asked where there is room for a pod that may not go anyway.
        let known = match next(division, &facts, |_, _| true) {
            Next::Evict(_) => self.next_with_node(at, asking, view, (division, &facts, &moves)).await?,
            none => (none, None),
        };
        let (known, needs) = match known {
            (Next::Rest, _) => return rest(NO_TARGET),
            (Next::Wait, _) => return rest(HELD),
            (Next::Evict(known), needs) => (known, needs),
        };
        let stage = Stage { policy: (policy.meta.uid.clone(), policy.generation), desired, misplaced: moves.len() };
        if let Some((before, for_now)) = self.budget.futile(at, Step::Move, &stage) {
            let note = format!(
                "{} pods are not in the groups that should have them, and moving one has not helped: no more are moved for {} s",
                before.misplaced,
                for_now.as_secs()
            );
            self.report(at, asking, "MoveDidNotHelp", note);
            return rest(for_now);
        }
        let (state, pod) = (&facts.pods[known.pod], &view.pods[known.pod]);
        let from = state.group.or(state.near.first().copied()).map(|group| division.groups()[group].clone());
        let to = division.groups()[known.to].clone();
        let place = from.as_ref().map_or_else(|| "no listed group".to_owned(), |from| format!("group {from:?}"));
        let note = match state.is_stale && from.as_ref() == Some(&to) {
            true => {
                format!("pod {} was evicted: it waited for nodes that its {place} does not have", pod.meta.key.name)
            }
            false => format!("pod {} was evicted from {place}: {to:?} should have it", pod.meta.key.name),
        };
        let needs = needs.map(|template| (*template).clone());
        let (step, reason) = (Step::Move, "PodMoved");
        let eviction = Eviction { view, pod, step, from, to, needs, stage, reason, note };
        match self.evict(at, asking, eviction).await? {
            Attempt::Over(ended) => Ok(Looked::Busy(ended)),
            Attempt::Held(wait) => rest(wait),
        }
    }

    /// What is done next, where groups take only pods that some node of theirs fits, and what the successor of a pod that goes is
    /// made of: by the edition of the group that it goes to.
    async fn next_with_node(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        view: &View,
        (division, facts, moves): (&mut Division, &Facts, &[Move]),
    ) -> Result<(Next, Option<Arc<Value>>), kube::Error> {
        let groups = division.groups().to_vec();
        let world = World { applications: &self.applications, overrides: &self.overrides, pods: &self.stores.pods };
        let editions = self.editions.of_owner(world, &view.owner, std::iter::once(asking), &groups).await?;
        let stuck = self.stuck(at, view, moves, &groups).await?;
        let mut full = BTreeSet::new();
        loop {
            let fits =
                |pod: &PodState, group: usize| !full.contains(&group) && !stuck.contains(&(pod.name.clone(), group));
            let known = match next(division, facts, fits) {
                Next::Evict(known) => known,
                none => return Ok((none, None)),
            };
            let group = &groups[known.to];
            // Where no edition renders, pods wait behind the gate.
            let editions = editions.as_ref().filter(|editions| !editions.unrendered().contains_key(group));
            if let Some(editions) = editions {
                let template = editions.template_in(&asking.labels, group, &view.template.value);
                let targets = self.targets(&at.key.namespace, group, true);
                if targets.has_node_for(group, &template, &view.pods[known.pod]).await? {
                    return Ok((Next::Evict(known), Some(template)));
                }
            }
            full.insert(known.to);
            if is_on(Mutant::MoveWithoutTarget) {
                return Ok((Next::Evict(known), None));
            }
        }
    }

    /// Which moves the volumes of pods cannot follow. Of a few it is asked at each look, of others at the next ones: those that
    /// cannot move hold up nobody.
    async fn stuck(
        &self,
        at: &ApplicationKey,
        view: &View,
        moves: &[Move],
        groups: &[Arc<str>],
    ) -> Result<BTreeSet<(Arc<str>, usize)>, kube::Error> {
        let volumes = Volumes { client: &self.client, nodes: &self.stores.nodes, groups: &self.stores.groups };
        let mut bound: Vec<&Move> = moves.iter().filter(|known| !view.pods[known.pod].claims.is_empty()).collect();
        let first = self.asked.fetch_add(MOST_ASKED, Ordering::Relaxed).checked_rem(bound.len()).unwrap_or(0);
        bound.rotate_left(first);
        let asked = bound.iter().take(MOST_ASKED).flat_map(|known| view.pods[known.pod].claims.iter().cloned());
        let claims = volumes.ask(&at.key.namespace, asked.collect()).await?;
        let mut stuck = BTreeSet::new();
        for (number, known) in bound.into_iter().enumerate() {
            let pod = &view.pods[known.pod];
            let is_free = number < MOST_ASKED
                && match volumes.reach(&pod.claims, &claims, groups) {
                    Reach::All => true,
                    Reach::Only(allowed) => allowed.contains(&known.to),
                    Reach::Unbound(_) => false,
                };
            if !is_free {
                stuck.insert((pod.meta.key.name.clone(), known.to));
            }
        }
        Ok(stuck)
    }
}

fn names(division: &Division) -> impl Iterator<Item = &str> {
    division.groups().iter().map(|group| &**group)
}

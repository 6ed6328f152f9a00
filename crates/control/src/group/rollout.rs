//! Gives running pods the editions of their groups: what [`dapple_plan::group::rollout`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::group::OverridePolicySpec;
use dapple_plan::group::binding::{Pair, Situation};
use dapple_plan::group::edition::{EDITION, images_only};
use dapple_plan::group::editions::Editions;
use dapple_plan::group::gate::{MADE_FOR, group_made_for, made_for};
use dapple_plan::group::placing::GATE;
use dapple_plan::group::repair::Stage;
use dapple_plan::group::rollout::{EditionName, Facts, Next, PodEdition};
use dapple_plan::group::running::{Way, has_images, images, way};
use dapple_plan::health::Health;
use dapple_plan::inplace::{STATE_ANNOTATION, Target, changed_at};
use dapple_plan::mutant::{Mutant, is_on};
use serde_json::{Value, json};

use super::application::{ApplicationKey, Asking};
use super::budget::Step;
use super::editions::shown;
use super::gates::whole;
use super::policy::Policy;
use super::repair::{ECHO, HELD, NO_TARGET, Repairs};
use super::steps::{Attempt, Disruption, Eviction};
use super::turns::facts;
use super::view::{Settled, View};
use crate::queue::Ended;
use crate::slim::{Key, Pod};

/// A pod that was changed, or made, is expected to be available after so many seconds.
const SLOW: i64 = 15;
/// So many pods are named when people are told what is waited for.
const MOST_NAMED: usize = 3;

/// The groups that a policy divides pods among, and the one that each pod counts for, by its name.
pub(super) type Places = (Vec<Arc<str>>, BTreeMap<Arc<str>, Arc<str>>);

/// The editions that an application's pods should have.
struct Wanted {
    /// The policy that says so. None if the application asks for none any more.
    policy: Option<Arc<Policy<OverridePolicySpec>>>,
    editions: Editions,
    /// Groups, in the order in which they come.
    order: Vec<Arc<str>>,
    /// The group that each pod counts for, by its name.
    places: BTreeMap<Arc<str>, Arc<str>>,
    /// Whether a policy divides pods: one that comes in place of another has to find a node of its group. Else it goes anywhere.
    is_divided: bool,
    /// Whether a pod is evicted where it takes another: one that comes in its place has the edition.
    evicts: bool,
}

impl Wanted {
    /// So many pods may be away at once.
    fn most_away(&self) -> usize {
        self.policy.as_ref().map_or(1, |policy| policy.most_away)
    }

    /// What is asked for, and how many pods lack it.
    fn stage(&self, facts: &Facts, desired: usize) -> Stage {
        let version = self.policy.as_ref().map(|policy| (policy.meta.uid.clone(), policy.generation));
        let policy = version.unwrap_or_else(|| (Arc::from(""), None));
        Stage { policy, desired, misplaced: facts.outdated() }
    }

    /// Notes which pods that are down it helps to change before the turn of their group.
    fn note_early(&self, facts: &mut Facts, pods: &[Arc<Pod>]) {
        let earlier: Vec<Vec<EditionName>> = self.order.iter().map(|group| self.editions.earlier(group)).collect();
        let (of_new_pods, wanted) = (facts.held(&earlier, false), facts.wanted.clone());
        let is_meant = |state: &PodEdition| !state.is_available && wanted[state.group] != state.edition;
        for (state, pod) in facts.pods.iter_mut().zip(pods).filter(|(state, _)| is_meant(state)) {
            let is_had_here = || {
                !self.evicts || self.editions.is_had_in_place(pod.annotations.get(EDITION), &self.order[state.group])
            };
            let is_had_anew = of_new_pods[state.group].as_ref().is_none_or(|edition| *edition != state.edition);
            state.helps_early = is_had_anew || is_had_here();
        }
    }

    /// Whether a running pod has all of its edition that it can be given, though that is not all.
    fn is_left(&self, pod: &Pod, group: &str) -> bool {
        if self.evicts || self.editions.is_had_in_place(pod.annotations.get(EDITION), group) {
            return false;
        }
        let template = self.editions.template.as_deref();
        let rendering = template.and_then(|template| self.editions.of_group(group).render(template).ok());
        rendering.is_none_or(|rendering| has_images(&rendering, &pod.running()))
    }
}

/// What is done next while the workload makes other pods, or more or fewer: what is down may be given its edition, and nothing else is
/// touched. One that is ready, and not yet for long enough to be available, is about to be what the workload waits for.
fn next_while_changing(view: &View, facts: &Facts, pods: &[Arc<Pod>]) -> Next {
    if is_on(Mutant::RolloutDisturbed) {
        return facts.next();
    }
    let is_meant = |number: usize| view.has(&pods[number]) && pods[number].ready_since.is_none();
    facts.next_down(is_meant).filter(|_| view.has_own_template()).unwrap_or(Next::Wait)
}

impl Repairs {
    /// Gives the next pod of an application the edition of its group. Pods that are `misplaced` are left alone, since those that
    /// come in their place have the edition already.
    pub(super) async fn roll_out(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        view: &View,
        places: Option<Places>,
        misplaced: &BTreeSet<Arc<str>>,
    ) -> Result<Attempt, kube::Error> {
        let Some(wanted) = self.wanted(at, asking, view, places).await? else { return Ok(Attempt::Over(Ended::Done)) };
        let (mut facts, pods) = self.facts(view, &wanted, misplaced);
        if facts.is_done() || wanted.policy.as_ref().is_some_and(|policy| policy.is_suspended) {
            return Ok(Attempt::Over(Ended::Done));
        }
        // Which edition they should have is not clear while their nodes come and go.
        let mut rest: Option<Duration> = None;
        for (state, pod) in facts.pods.iter_mut().zip(&pods).filter(|(state, _)| !state.is_left) {
            if let Some(wait) = self.unsettled(view, pod) {
                state.is_left = true;
                rest = rest.max(Some(wait));
            }
        }
        // What a pod was made by must be known to those who come after us.
        if wanted.policy.as_ref().is_some_and(|policy| !self.editions.versions.is_recorded(policy)) {
            return Ok(Attempt::Held(ECHO));
        }
        if let Some(wait) = self.budget.wait() {
            return Ok(Attempt::Held(wait.max(ECHO)));
        }
        facts.others_down += view.stranded;
        facts.most_away = wanted.most_away();
        let (next, desired) = match self.settled(at, asking, view).await? {
            Settled::Gone => return Ok(Attempt::Held(HELD)),
            Settled::As { desired, .. } => {
                facts.others_down += desired.saturating_sub(view.pods.len());
                (facts.next(), desired)
            }
            Settled::Changing => {
                self.tell_changing(at, asking, facts.outdated(), "lack the edition of their group");
                // How many there should be is not known: those are missing that were evicted and have no successors.
                facts.others_down += self.awaited(at, &wanted.order);
                (next_while_changing(view, &facts, &pods), 0)
            }
        };
        match next {
            Next::Rest => Ok(rest.map_or(Attempt::Over(Ended::Done), |rest| Attempt::Held(rest.max(ECHO)))),
            Next::Wait => {
                self.tell_wait(at, asking, (&facts, &pods), view.available.now);
                Ok(Attempt::Held(HELD))
            }
            Next::Change(number) => {
                let group = &wanted.order[facts.pods[number].group];
                if let Some(wait) = self.budget.wait_for_groups(group.split(',')) {
                    return Ok(Attempt::Held(wait.max(ECHO)));
                }
                let stage = wanted.stage(&facts, desired);
                self.change((at, asking), view, &wanted, &pods[number], stage).await.map(Attempt::Over)
            }
        }
    }

    /// How an application's pods stand with their editions, and those that this is about.
    fn facts(&self, view: &View, wanted: &Wanted, misplaced: &BTreeSet<Arc<str>>) -> (Facts, Vec<Arc<Pod>>) {
        let is_daemon = view.is_daemon();
        // A node that was down before holds up nobody, and nothing there is changed: its kubelet may not answer.
        let is_out_of_reach = |pod: &Pod| is_daemon && !view.available.has(pod) && !self.is_on_ready_node(pod);
        let is_touched = |pod: &Pod| {
            let group = wanted.places.get(&pod.meta.key.name);
            let edition = group.and_then(|group| wanted.editions.of_group(group).name.as_deref());
            edition.is_some() && edition == pod.annotations.get(EDITION)
        };
        let mut known = view.pods.clone();
        known.retain(|pod| is_touched(pod) || !is_out_of_reach(pod));
        let group_of = |pod: &Pod| wanted.places.get(&pod.meta.key.name).cloned();
        let (mut facts, pods) = facts(&known, (&wanted.order, &group_of), &wanted.editions, view.available);
        wanted.note_early(&mut facts, &pods);
        for (state, pod) in facts.pods.iter_mut().zip(&pods) {
            state.is_to_move = misplaced.contains(&state.name);
            state.is_left |= wanted.is_left(pod, &wanted.order[state.group]);
        }
        (facts, pods)
    }

    fn is_on_ready_node(&self, pod: &Pod) -> bool {
        self.stores.node_of(pod).is_some_and(|node| node.health == Health::Ready)
    }

    /// The groups of pods that no policy divides.
    fn places_by_node(&self, view: &View) -> BTreeMap<Arc<str>, Arc<str>> {
        let place_of = |pod: &Arc<Pod>| self.place_of(pod, view.is_daemon());
        view.pods.iter().filter_map(|pod| Some((pod.meta.key.name.clone(), place_of(pod)?))).collect()
    }

    /// How long a pod is left alone that lacks its edition: it says no group, and its node has joined one lately, or left one.
    fn unsettled(&self, view: &View, pod: &Pod) -> Option<Duration> {
        let follows_node = view.is_daemon() || pod.labels.get(GATE).is_none();
        pod.node.as_ref().filter(|_| follows_node).and_then(|node| self.budget.wait_for_node(node))
    }

    /// The editions that an application's pods should have. None if nothing says so.
    async fn wanted(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        view: &View,
        places: Option<Places>,
    ) -> Result<Option<Wanted>, kube::Error> {
        let policy_of = |name: &str| self.overrides.get(&Key::new(&at.key.namespace, name));
        let is_divided = places.is_some();
        let (groups, places) = places.unwrap_or_else(|| {
            let places = self.places_by_node(view);
            let mut groups: BTreeSet<Arc<str>> = places.values().cloned().collect();
            // Those that pods have the edition of, though their nodes have left them: what it made of them is to be undone.
            groups.extend(
                view.pods.iter().filter_map(|pod| pod.annotations.get(MADE_FOR).map(group_made_for)).map(Arc::from),
            );
            (groups.into_iter().collect(), places)
        });
        match Pair::Override.situation(&asking.labels) {
            Situation::Bound(name) => {
                let Some(policy) = policy_of(name) else { return Ok(None) };
                let is_made = is_divided || view.is_daemon();
                let editions = if is_made {
                    self.editions_of(view, &policy, &groups).await?
                } else {
                    // These pods were not made by the policy, and none that come in their place will be.
                    self.tell_images_only(at, asking, &policy);
                    Some(self.of_images(&policy, &groups, view))
                };
                let Some(editions) = editions else { return Ok(None) };
                let order = policy.ordered(&groups);
                let policy = Some(policy);
                Ok(Some(Wanted { policy, editions, order, places, is_divided, evicts: is_divided }))
            }
            Situation::None => {
                // The labels that were copied to pods tell which policy it was.
                let changed = view.pods.iter().filter(|pod| pod.annotations.get(EDITION).is_some());
                let asked = changed.clone().find_map(|pod| pod.labels.get(Pair::Override.required()));
                if changed.count() == 0 {
                    return Ok(None);
                }
                let editions = asked.and_then(policy_of).map(|policy| self.of_images(&policy, &groups, view));
                // Of one that is gone nobody knows what it made; what the template says is known.
                let unknown = || Editions::of("", &[], &groups, Some(view.template.value.clone()));
                let editions = editions.unwrap_or_else(unknown).released();
                let evicts = !view.is_daemon();
                Ok(Some(Wanted { policy: None, editions, order: groups, places, is_divided, evicts }))
            }
            Situation::Asked(_) | Situation::Differs { .. } => Ok(None),
        }
    }

    /// What a policy says of images alone. What it says and has said in all comes after it: pods may have been made by that.
    fn of_images(&self, policy: &Policy<OverridePolicySpec>, groups: &[Arc<str>], view: &View) -> Editions {
        let whole = self.editions.versions.specs(policy);
        let mut specs: Vec<_> = whole.iter().map(|spec| Arc::new(images_only(spec))).collect();
        specs.extend(whole);
        Editions::of(&shown(policy), &specs, groups, Some(view.template.value.clone()))
    }

    /// Gives a running pod the edition of its group.
    async fn change(
        &self,
        (at, asking): (&ApplicationKey, &Asking),
        view: &View,
        wanted: &Wanted,
        pod: &Arc<Pod>,
        stage: Stage,
    ) -> Result<Ended, kube::Error> {
        let Some(group) = wanted.places.get(&pod.meta.key.name) else { return Ok(Ended::Again(ECHO)) };
        let Some(whole) = whole(&self.client, pod).await? else { return Ok(Ended::Again(ECHO)) };
        let carried = match wanted.editions.carried(&whole, pod.annotations.get(EDITION), group) {
            Ok(None) if !wanted.evicts => wanted.editions.approached(&whole, group).map(Some),
            carried => carried,
        };
        let carried = match carried {
            Ok(carried) => carried,
            Err(text) if !wanted.evicts => {
                let note = format!("pod {} cannot be given the edition of group {group:?}: {text}", pod.meta.key.name);
                self.report(at, asking, "EditionWaits", note);
                return Ok(Ended::Again(NO_TARGET));
            }
            // What cannot be carried over to this pod is had by a new one.
            Err(_) => None,
        };
        let (now, containers) = (self.env.now().to_string(), pod.running());
        let target = Target {
            uid: &pod.meta.uid,
            version: pod.meta.version,
            hash: wanted.editions.of_group(group).name.as_deref().unwrap_or_default(),
            revision: "",
            now: &now,
            state: pod.annotations.get(STATE_ANNOTATION),
            pending: None,
            containers: &containers,
            lifecycle: None,
        };
        let disruption = Disruption { view, pod, to: group };
        // A node may be in several groups, and leave them: from here on the pod says for which it was changed.
        let says_group = |mut patch: Value| {
            if !wanted.evicts {
                let made_for = (!target.hash.is_empty()).then(|| made_for(group, ""));
                patch["metadata"]["annotations"][MADE_FOR] = json!(made_for);
            } else if wanted.policy.is_some() {
                patch["metadata"]["labels"][GATE] = json!(&**group);
            }
            patch
        };
        match carried.as_ref().map_or(Way::NewPod, |carried| way(&whole, carried, &target)) {
            Way::InPlace { patch, restarts } => self.patch(at, asking, disruption, (says_group(patch), restarts)).await,
            Way::NewPod if !wanted.evicts => match carried.and_then(|carried| images(&whole, &carried, &target)) {
                Some(patch) => self.patch(at, asking, disruption, (says_group(patch), true)).await,
                None => Ok(Ended::Again(NO_TARGET)),
            },
            Way::NewPod => self.replace((at, asking), view, wanted, (pod, group), stage).await,
        }
    }

    /// Evicts a pod that cannot be changed where it runs.
    async fn replace(
        &self,
        (at, asking): (&ApplicationKey, &Asking),
        view: &View,
        wanted: &Wanted,
        (pod, group): (&Arc<Pod>, &Arc<str>),
        stage: Stage,
    ) -> Result<Ended, kube::Error> {
        let name = &pod.meta.key.name;
        if let Some((_, rest)) = self.budget.futile(at, Step::Edition, &stage) {
            let note = format!(
                "pods lack the edition of their group, and evicting one has not helped: no more are evicted for {} s",
                rest.as_secs()
            );
            self.report(at, asking, "MoveDidNotHelp", note);
            return Ok(Ended::Again(rest));
        }
        let rendering = wanted.editions.of_group(group).render(&view.template.value);
        let rendering = rendering.unwrap_or_else(|_| (*view.template.value).clone());
        let needs = wanted.is_divided.then_some(rendering);
        let note = format!("pod {name} was evicted: another has the edition of group {group:?}");
        let (from, to) = (Some(group.clone()), group.clone());
        let (step, reason) = (Step::Edition, "EditionChanged");
        let eviction = Eviction { view, pod, step, from, to, needs, stage, reason, note };
        self.evict(at, asking, eviction).await.map(Attempt::ended)
    }

    /// Says that no pod gets anything but images, if the policy says more.
    fn tell_images_only(&self, at: &ApplicationKey, asking: &Asking, policy: &Policy<OverridePolicySpec>) {
        if images_only(&policy.spec) != *policy.spec {
            let note = format!(
                "{} says more than images, which pods get only where a PropagationPolicy gives them a group before they run",
                shown(policy)
            );
            self.report(at, asking, "OnlyImages", note);
        }
    }

    /// Says what a rollout waits for, if pods that have their edition do not become well.
    fn tell_wait(&self, at: &ApplicationKey, asking: &Asking, (facts, pods): (&Facts, &[Arc<Pod>]), now: i64) {
        let is_slow = |name: &Arc<str>| {
            let pod = pods.iter().find(|pod| pod.meta.key.name == *name);
            let changed =
                |pod: &Arc<Pod>| pod.annotations.get(STATE_ANNOTATION).and_then(changed_at).unwrap_or(i64::MIN);
            pod.is_some_and(|pod| changed(pod).max(pod.created) + SLOW <= now)
        };
        let down = facts.updated_down().map(|pod| &pod.name).filter(|name| is_slow(name));
        let down: Vec<&str> = down.map(|name| &**name).collect();
        if !down.is_empty() {
            let named = down.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
            let note = format!(
                "{} pods have the edition of their group and are not available ({named}): no more are changed until they are, \
                 or the policy says something else",
                down.len()
            );
            self.report(at, asking, "EditionWaits", note);
        }
    }
}

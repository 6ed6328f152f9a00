//! Takes steps: evicts pods, so that others come in their place, and changes them where they run. One after another in the whole
//! cluster, and none towards a group where applications lose pods: what [`dapple_plan::group::open`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::kinds::{NATIVE_DAEMON_SET, POD_DISRUPTION_BUDGET};
use dapple_plan::group::disruption::{Guarded, without_room};
use dapple_plan::group::open::{LATELY, PodSince, Taken, held, lost_since, still_open, unanswered};
use dapple_plan::group::placing::GATE;
use dapple_plan::group::repair::Stage;
use dapple_plan::inplace::{STATE_ANNOTATION, changed_at};
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::room::Requests;
use k8s_openapi::api::core::v1;
use kube::api::{Api, ListParams, Patch};
use serde_json::Value;
use tokio::sync::MutexGuard;
use tracing::info;

use super::application::{ApplicationKey, Asking};
use super::budget::{PACE, Step};
use super::owner::{UNWELL, is_gated, is_live};
use super::repair::{ECHO, HELD, NO_TARGET, REFUSED, Repairs};
use super::seated::all_groups_of;
use super::standing::pods_of_application;
use super::target::Targets;
use super::turns::Availability;
use super::view::View;
use super::wake::application_of;
use crate::observed::Observed;
use crate::queue::Ended;
use crate::slim::Pod;
use crate::writes::events::{EventType, Report};
use crate::writes::outcome::{Outcome, Writer};

/// So many applications are named when people are told why nothing is done for a group.
const MOST_NAMED: usize = 5;

/// A pod that was evicted has a successor after so many seconds, or gets none.
const SUCCEEDED_WITHIN: i64 = 60;

/// A pod that is to be disrupted, and for which group.
#[derive(Clone, Copy)]
pub(super) struct Disruption<'a> {
    /// What was decided upon.
    pub(super) view: &'a View,
    pub(super) pod: &'a Pod,
    pub(super) to: &'a str,
}

/// A pod that is evicted, and why.
pub(super) struct Eviction<'a> {
    /// What was decided upon.
    pub(super) view: &'a View,
    pub(super) pod: &'a Pod,
    pub(super) step: Step,
    /// The group that it is in, if any, and the one that its successor is for.
    pub(super) from: Option<Arc<str>>,
    pub(super) to: Arc<str>,
    /// What its successor is made of, if there has to be a node for it.
    pub(super) needs: Option<Value>,
    pub(super) stage: Stage,
    /// What people are told of it.
    pub(super) reason: &'static str,
    pub(super) note: String,
}

/// What has come of a step.
pub(super) enum Attempt {
    /// It was taken, or may have been, or the pod is another one by now: nothing else is done.
    Over(Ended),
    /// It was not: something else has to end first, for which so long is waited.
    Held(Duration),
}

impl Attempt {
    pub(super) fn ended(self) -> Ended {
        match self {
            Self::Over(ended) => ended,
            Self::Held(wait) => Ended::Again(wait),
        }
    }
}

impl Repairs {
    /// Waits for the turn to disrupt a pod: what was done before is counted then. Or says how long there is none.
    async fn turn(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        Disruption { view, pod, to }: Disruption<'_>,
    ) -> Result<MutexGuard<'_, ()>, Duration> {
        let turn = self.budget.turn().await;
        if let Some(wait) = self.budget.wait() {
            return Err(wait.max(ECHO));
        }
        let mut lost = self.lost_in(to);
        lost.remove(at);
        let others: Vec<i64> = lost.values().copied().collect();
        let is_available = view.available.has(pod);
        let Some(held) = held(is_available, &others, self.env.now().as_second()) else {
            return if self.is_outdated(at, asking, view, is_available) { Err(ECHO) } else { Ok(turn) };
        };
        if held.is_long {
            let named: Vec<String> = lost.keys().take(MOST_NAMED).map(|at| at.key.to_string()).collect();
            let note = format!(
                "no pod is moved to group {to:?} or changed there: {} applications have pods there that were placed or changed \
                 lately and are not available ({})",
                held.applications,
                named.join(", ")
            );
            self.report(at, asking, "GroupUnwell", note);
        }
        Err(HELD)
    }

    /// Whether an application asks for something else than when it was looked at, or has lost pods since, if an available one is to
    /// go: labels move between a workload and what it controls, and then the other has taken a step for the same pods.
    fn is_outdated(&self, at: &ApplicationKey, asking: &Asking, view: &View, is_available: bool) -> bool {
        if is_on(Mutant::TwoBudgets) {
            return false;
        }
        if self.applications.get(at).is_none_or(|now| now.differs(asking)) {
            return true;
        }
        let pods = pods_of_application(&self.applications, &self.stores.pods, &at.key.namespace, asking);
        let available: BTreeSet<_> =
            pods.iter().filter(|pod| view.available.has(pod)).map(|pod| &pod.meta.uid).collect();
        self.budget.is_behind(&pods, &self.stores.pods)
            || is_available && view.pods.iter().any(|pod| view.available.has(pod) && !available.contains(&pod.meta.uid))
    }

    /// The applications that have lost a pod in a group lately, and since when.
    fn lost_in(&self, group: &str) -> BTreeMap<ApplicationKey, i64> {
        let now = self.env.now().as_second();
        let mut applications = self.budget.applications_for(group);
        let unwell = [group, ""].into_iter().flat_map(|group| self.stores.pods.find(UNWELL, group));
        // Pods of other kinds are never disrupted, and may come and go all the time.
        let may_be_ours = |pod: &Arc<Pod>| {
            let owner = self.applications.owner_of(pod);
            since(pod) + LATELY > now && owner.is_some_and(|(kind, _)| self.has_running_pods_changed(kind))
        };
        let lately = unwell.filter(may_be_ours);
        applications.extend(lately.filter_map(|pod| application_of(&self.applications, &pod)));
        let lost = applications.into_iter().filter_map(|at| {
            let pods = self.pods_in(&at, group);
            let open = self.budget.keep_open(group, &at, |taken| still_open(taken, &pods, now));
            let since = lost_since(open.into_iter(), &pods, now)?;
            Some((at, since))
        });
        lost.collect()
    }

    /// How many pods of an application were evicted for some groups a moment ago, and have no successor there yet.
    pub(super) fn awaited(&self, at: &ApplicationKey, groups: &[Arc<str>]) -> usize {
        let now = self.env.now().as_second();
        let in_group = |group: &Arc<str>| {
            let taken = self.budget.evicted_for(group).remove(at)?;
            let steps: Vec<Taken> = taken.into_iter().map(|(taken, _)| taken).collect();
            let lately = steps.into_iter().filter(|taken| taken.at + SUCCEEDED_WITHIN > now).collect::<Vec<_>>();
            Some(unanswered(&lately, &self.pods_in(at, group).iter().collect::<Vec<_>>()).len())
        };
        groups.iter().filter_map(in_group).sum()
    }

    /// What pods ask for that were evicted for a group, and whose successors have not been placed there yet.
    fn on_their_way(&self, group: &str) -> Vec<Requests> {
        let mut found = Vec::new();
        for (at, taken) in self.budget.evicted_for(group) {
            let pods = self.pods_in(&at, group);
            let (steps, requests): (Vec<Taken>, Vec<Requests>) = taken.into_iter().unzip();
            let coming = unanswered(&steps, &pods.iter().collect::<Vec<_>>());
            found.extend(coming.into_iter().map(|number| requests[number].clone()));
        }
        found
    }

    /// The pods that an application has in a group.
    fn pods_in(&self, at: &ApplicationKey, group: &str) -> Vec<PodSince> {
        let Some(asking) = self.applications.get(at) else { return Vec::new() };
        let available = Availability { min_ready: 0, now: self.env.now().as_second() };
        let mut pods = pods_of_application(&self.applications, &self.stores.pods, &at.key.namespace, &asking);
        pods.retain(|pod| {
            let kind = self.applications.owner_of(pod).map(|(kind, _)| kind);
            self.place_of(pod, kind == Some(NATIVE_DAEMON_SET.at)).is_some_and(|place| *place == *group)
        });
        let told = |pod: &Arc<Pod>| PodSince {
            id: Arc::from(format!("{} {}", pod.meta.uid, since(pod))),
            since: since(pod),
            is_available: available.has(pod),
        };
        pods.iter().map(told).collect()
    }

    fn ids_in(&self, at: &ApplicationKey, group: &str) -> BTreeSet<Arc<str>> {
        self.pods_in(at, group).into_iter().map(|pod| pod.id).collect()
    }

    /// The group of a pod that no policy divides: what it says, else all groups of its node.
    pub(super) fn place_of(&self, pod: &Pod, is_daemon: bool) -> Option<Arc<str>> {
        let said = pod.labels.get_shared(GATE).filter(|_| !is_gated(pod) && !is_daemon);
        let node = pod.node.as_ref().filter(|_| pod.is_bound);
        said.or_else(|| node.map(|node| all_groups_of(&self.stores.nodes, &self.stores.groups, node)))
    }

    /// Which groups have nodes for pods of a namespace, beside those that are on their way. A preview may be a second old.
    pub(super) fn targets<'a>(&'a self, namespace: &'a str, group: &str, is_preview: bool) -> Targets<'a> {
        let (client, stores, read) = (&self.client, &self.stores, &self.read);
        Targets { client, stores, read, namespace, is_preview, on_their_way: self.on_their_way(group) }
    }

    /// Evicts a pod, so that its owner makes another.
    pub(super) async fn evict(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        eviction: Eviction<'_>,
    ) -> Result<Attempt, kube::Error> {
        let Eviction { view, pod, step, from, to, needs, stage, reason, note } = eviction;
        let _turn = match self.turn(at, asking, Disruption { view, pod, to: &to }).await {
            Ok(turn) => turn,
            Err(wait) => return Ok(Attempt::Held(wait)),
        };
        // The room that there was may be somebody else's by now.
        if let Some(template) = &needs
            && !self.targets(&at.key.namespace, &to, false).has_node_for(&to, template, pod).await?
        {
            if step == Step::Edition {
                let name = &pod.meta.key.name;
                let note = format!(
                    "pod {name} lacks the edition of group {to:?}, which has no node for another: it and the groups after it keep what \
                     they have until the group has one, or gets no pods any more"
                );
                self.report(at, asking, "EditionWaits", note);
            }
            return Ok(Attempt::Held(NO_TARGET));
        }
        if let Some(budget) = self.full_budget(pod).await? {
            return Ok(self.not_allowed(at, asking, pod, &budget));
        }
        let pods = Api::<v1::Pod>::namespaced(self.client.clone(), &at.key.namespace);
        let (second, before) = (self.env.now().as_second(), self.ids_in(at, &to));
        let outcome = Writer::new(&self.client, &pods).evict(&pod.meta).await;
        // If nobody knows whether it was done, it counts as done until that is seen.
        if let Outcome::Gone | Outcome::Unknown(_) = outcome {
            let requests = Requests::of(&pod.asking_spec());
            self.budget.note_eviction((at, step, stage), pod, (&to, Taken { at: second, before }, requests));
        }
        match outcome {
            Outcome::Gone => {
                info!(application = %at, pod = %pod.meta.key, ?step, "evicted");
                match step {
                    Step::Move => {
                        let groups = (from.as_deref(), &*to);
                        self.counted.moved(asking, &pod.meta.key.name, groups, second);
                    }
                    Step::Edition => self.counted.changed(),
                }
                self.report(at, asking, reason, note);
                Ok(Attempt::Over(Ended::Again(PACE)))
            }
            outcome => self.refused(at, asking, pod, outcome),
        }
    }

    /// Changes a pod where it runs. A restart is a disruption: PodDisruptionBudgets are asked.
    pub(super) async fn patch(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        disruption: Disruption<'_>,
        (patch, restarts): (Value, bool),
    ) -> Result<Ended, kube::Error> {
        let Disruption { pod, to, .. } = disruption;
        let pods = Api::<v1::Pod>::namespaced(self.client.clone(), &at.key.namespace);
        let writer = Writer::new(&self.client, &pods);
        let mut _turn = None;
        if restarts {
            match self.turn(at, asking, disruption).await {
                Ok(turn) => _turn = Some(turn),
                Err(wait) => return Ok(Ended::Again(wait)),
            }
            if let Some(budget) = self.full_budget(pod).await? {
                return Ok(self.not_allowed(at, asking, pod, &budget).ended());
            }
            match writer.try_evict(&pod.meta).await {
                Outcome::Gone => {}
                outcome => return self.refused(at, asking, pod, outcome).map(Attempt::ended),
            }
        }
        let taken = Taken { at: self.env.now().as_second(), before: self.ids_in(at, to) };
        let outcome = writer.patch(&pod.meta.key.name, None, &Patch::Strategic(patch)).await;
        // If nobody knows whether it was done, it counts as done until that is seen.
        if let Outcome::Written(_) | Outcome::Unknown(_) = outcome
            && restarts
        {
            self.budget.note_restart(at, to, taken);
        }
        match outcome {
            Outcome::Written(version) => {
                self.stores.pods.wrote(&pod.meta.key, version);
                info!(application = %at, pod = %pod.meta.key, restarts, "has the edition of its group");
                self.counted.changed();
                let note = format!("pod {} was given the edition of its group where it runs", pod.meta.key.name);
                self.report(at, asking, "EditionChanged", note);
                Ok(Ended::Again(PACE))
            }
            outcome => {
                if let Outcome::Unknown(_) = outcome {
                    self.budget.note_doubt(pod);
                }
                self.refused(at, asking, pod, outcome).map(Attempt::ended)
            }
        }
    }

    /// What is in the way of a disruption, if a PodDisruptionBudget has no room for it beside the pods that were restarted where they
    /// run: it counts those as healthy until their nodes have begun.
    async fn full_budget(&self, pod: &Pod) -> Result<Option<String>, kube::Error> {
        // Of one that is not ready nothing is lost.
        if pod.ready_since.is_none() || is_on(Mutant::RestartsUncounted) {
            return Ok(None);
        }
        let (client, namespace) = (self.client.clone(), &pod.meta.key.namespace);
        let api = Api::<Observed<Value>>::namespaced_with(client, namespace, &POD_DISRUPTION_BUDGET);
        let found = api.list(&ListParams::default()).await?.items;
        let budgets: Vec<Value> = found.into_iter().filter_map(|found| found.object.ok()).collect();
        if budgets.is_empty() {
            return Ok(None);
        }
        let available = Availability { min_ready: 0, now: self.env.now().as_second() };
        let pods = self.stores.pods.in_namespace(namespace);
        let behind = self.budget.behind(&pods, &self.stores.pods);
        let guarded = pods.iter().map(|pod| Guarded {
            name: &pod.meta.key.name,
            labels: &pod.labels,
            is_well: is_live(pod) && available.has(pod) && !behind.contains(&pod.meta.uid),
        });
        let full = without_room(&budgets, &pod.labels, &guarded.collect::<Vec<_>>());
        Ok(full.map(|name| format!("the PodDisruptionBudget {name} has no room, beside pods that are not well yet")))
    }

    /// What follows from a disruption that a PodDisruptionBudget does not allow.
    fn not_allowed(&self, at: &ApplicationKey, asking: &Asking, pod: &Pod, why: &str) -> Attempt {
        self.counted.refused();
        let note = format!("pod {} is to be moved or changed, and may not be disrupted: {why}", pod.meta.key.name);
        self.report(at, asking, "MoveRefused", note);
        Attempt::Held(REFUSED)
    }

    /// What follows from a disruption of a pod that was not done.
    fn refused(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        pod: &Pod,
        outcome: Outcome,
    ) -> Result<Attempt, kube::Error> {
        match outcome {
            Outcome::Refused(kube::Error::Api(status)) if status.code == 429 => {
                Ok(self.not_allowed(at, asking, pod, &status.message))
            }
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            // It is another one by now.
            _ => Ok(Attempt::Over(Ended::Again(ECHO))),
        }
    }

    pub(super) fn report(&self, at: &ApplicationKey, asking: &Asking, reason: &'static str, note: String) {
        let is_done = ["PodMoved", "EditionChanged"].contains(&reason);
        self.recorder.report(Report {
            about: at.kind,
            key: at.key.clone(),
            uid: asking.meta.uid.to_string(),
            event_type: if is_done { EventType::Normal } else { EventType::Warning },
            action: "Moving",
            reason,
            note,
        });
    }
}

/// When a pod was made or last changed where it runs.
fn since(pod: &Pod) -> i64 {
    pod.annotations.get(STATE_ANNOTATION).and_then(changed_at).unwrap_or(i64::MIN).max(pod.created)
}
